/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost doctor`: one function for each row of its table. */
#ifndef ROOST_CLI_DOCTOR_H
#define ROOST_CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "packet/icrc.h"

enum doctor_state {
	DOCTOR_OK,
	DOCTOR_WARN, /* Roost works, but is slower or does not serve every program */
	DOCTOR_FAIL, /* a part of Roost does not work */
};

/* Input of every row. */
struct doctor {
	const char *spec;     /* specification of the first port of a new program */
	struct pkt_addr addr; /* address of that port, or the first one that it would choose */
	bool udp, chosen;     /* that port is of kind udp; its specification names the address */
};

struct doctor_finding {
	enum doctor_state state;
	char found[512];
	char remedy[512]; /* empty: nothing to do */
};

typedef void doctor_row(const struct doctor *d, struct doctor_finding *f);

/*
 * Set the finding. A worse state replaces a better one, together with the remedy. `found` is the
 * text of the last call.
 */
void doctor_found(struct doctor_finding *f, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void doctor_remedy(struct doctor_finding *f, enum doctor_state state, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Reads the first line of a file without its end. Returns false when the file cannot be read or is
 * empty.
 */
bool doctor_line(const char *path, char *buf, size_t n);

/* host.c */
doctor_row doctor_kernel, doctor_clock, doctor_cores, doctor_seccomp, doctor_library;
/* limits.c */
doctor_row doctor_memlock, doctor_huge_pages, doctor_dev_shm, doctor_folder;
/* pool.c */
doctor_row doctor_pool;
/* net.c */
doctor_row doctor_interfaces, doctor_ipv6, doctor_buffers, doctor_offload, doctor_port, doctor_rxe;

#endif
