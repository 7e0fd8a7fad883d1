/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost doctor`: one function for each row of its table. */
#ifndef ROOST_CLI_DOCTOR_H
#define ROOST_CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "packet/icrc.h"

enum doctor_state {
	DOCTOR_OK,
	DOCTOR_WARN, /* it works; slower, or not for every program */
	DOCTOR_FAIL, /* something does not work */
};

/* What every row may use. */
struct doctor {
	const char *spec;     /* the first port of a program started now */
	struct pkt_addr addr; /* its address, or the one that it would choose first */
	bool udp, chosen;     /* the kind of that port; the specification names the address */
};

struct doctor_finding {
	enum doctor_state state;
	char found[512];
	char remedy[512]; /* empty: nothing to do */
};

typedef void doctor_row(const struct doctor *d, struct doctor_finding *f);

/*
 * Set the finding. A new state replaces a better one, and with it the remedy; the text of `found`
 * is the last one's.
 */
void doctor_found(struct doctor_finding *f, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void doctor_remedy(struct doctor_finding *f, enum doctor_state state, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The first line of a file without its end; false when it can't be read or is empty. */
bool doctor_line(const char *path, char *buf, size_t n);

/* doctor_host.c */
doctor_row doctor_kernel, doctor_clock, doctor_cores, doctor_seccomp, doctor_library;
/* doctor_limits.c */
doctor_row doctor_memlock, doctor_huge_pages, doctor_dev_shm, doctor_folder;
/* doctor_net.c */
doctor_row doctor_interfaces, doctor_ipv6, doctor_buffers, doctor_offload, doctor_port, doctor_rxe;

#endif
