/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two processes on this machine, each with a NIC of its own: this one, and a forked one that is the
 * target. For `roost perf --local` and `roost demo`.
 */
#ifndef ROOST_CLI_LOCAL_H
#define ROOST_CLI_LOCAL_H

#include <stdbool.h>
#include <sys/types.h>

#include "cli/oob.h"

#define LOCAL_SPEC_LEN 256

struct local {
	char port[LOCAL_SPEC_LEN];	/* this process's port specification */
	char peer_port[LOCAL_SPEC_LEN]; /* the target's */
	char kind[16];			/* udp, shm */
	int cpu, peer_cpu;		/* pinned to; -1: not pinned */
	pid_t pid;			/* the target's process */
	struct oob oob;			/* to the other side */
};

/*
 * Chooses both ports from `spec` (NULL: ROOST_PORT, else udp). Without an address in it, udp takes
 * two loopback addresses that belong to this process's id, shm leaves the choice to the port; with
 * one, the target takes the next, or peer_spec. A capture (pcap=FILE) is this side's; the target
 * writes FILE.target. And cores: two distinct ones when `pin` and there are. False with a line in
 * err.
 */
bool local_plan(struct local *lo, const char *spec, const char *peer_spec, bool pin, char *err,
		size_t errlen);

/*
 * Forks. In the target: runs target(lo, arg) and exits with what it returns; it ends when this
 * process does. Here: 0, with lo->oob joined to it and ROOST_PORT set, or -errno.
 */
int local_start(struct local *lo, int (*target)(struct local *lo, void *arg), void *arg);
/* Waits for the target's end. Its exit status, or 128 + signal. */
int local_wait(struct local *lo);

/* Kind of port of a specification, into buf: what stands before ':' or ','. */
void local_kind(const char *spec, char *buf, size_t n);

#endif
