/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two processes on this machine, each with its own NIC: this process, and a forked process that is
 * the target. `roost perf --local` and `roost demo` use it.
 */
#ifndef ROOST_CLI_LOCAL_H
#define ROOST_CLI_LOCAL_H

#include <stdbool.h>
#include <sys/types.h>

#include "cli/oob.h"

#define LOCAL_SPEC_LEN 256

struct drive;
struct opt_command;

struct local {
	char port[LOCAL_SPEC_LEN];	/* port specification of this process */
	char peer_port[LOCAL_SPEC_LEN]; /* port specification of the target */
	char kind[16];			/* host, udp, shm */
	int cpu, peer_cpu;		/* cores to pin to; -1: not pinned */
	pid_t pid;			/* process of the target */
	struct oob oob;			/* connection to the other side */
};

/*
 * Chooses the two ports from `spec` (NULL: ROOST_PORT, else host), and the cores. Returns false
 * with a line in err on errors.
 *
 *   - Without an address in `spec`, host and udp take two loopback addresses that are derived
 *     from the process id; shm leaves the choice to the port.
 *   - With an address in `spec`, the target takes the next address, or peer_spec.
 *   - A capture (pcap=FILE) is that of this side; the target writes FILE.target.
 *   - The two cores are distinct if `pin` is set and there are two.
 */
bool local_plan(struct local *lo, const char *spec, const char *peer_spec, bool pin, char *err,
		size_t errlen);

/*
 * Forks the target. The target runs target(lo, arg), exits with its return value, and ends when
 * this process ends. In this process, returns 0 with lo->oob connected to the target and ROOST_PORT
 * set, or -errno.
 */
int local_start(struct local *lo, int (*target)(struct local *lo, void *arg), void *arg);
/* Waits for the end of the target. Returns its exit status, or 128 + signal. */
int local_wait(struct local *lo);

/*
 * Returns whether Roost can read the specification of --port, or of ROOST_PORT (spec NULL).
 * Otherwise it has printed a usage error.
 */
bool local_port_fits(const struct opt_command *cmd, const char *spec);
/*
 * Opens the NIC of this process if ROOST_PORT names its address; otherwise the first connection
 * chooses one. The functions that connect return only errno if the port cannot be opened, and this
 * function prints a line that says why. Returns 0 or CLI_FAILED. *out, which may be NULL, is for
 * local_port_close().
 */
int local_port_open(const struct opt_command *cmd, struct drive **out);
void local_port_close(struct drive *d);

/* Copies the kind of port of a specification into buf: the part before ':' or ','. */
void local_kind(const char *spec, char *buf, size_t n);

#endif
