/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The programs of this machine that have a NIC: those in the pool of this user (pool/pool.h), and
 * those with a socket in the private folder (port/shm_dir.h). Most are in both.
 */
#ifndef ROOST_CLI_PROGRAMS_H
#define ROOST_CLI_PROGRAMS_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

/* The result of one look. */
struct programs {
	json_t *nics;	/* the answers of NICs (src/drive/stat.c), in the order of process ids */
	json_t *silent; /* programs that did not answer: pid (0: unknown), program, state, ports */
	uint64_t at;	/* ns of clock_ns() */
};

#define PROGRAMS_ANSWER_MS 2000 /* a program on a busy machine answers in this time */

/*
 * Looks once. `dirfd` is the folder, or -1 if there is none. `silent` has members "folder": true
 * for those that have a socket in the folder.
 */
void programs_look(int dirfd, int answer_ms, struct programs *p);
/* Looks twice within a fraction of a second, so that there are rates. */
void programs_look_twice(int dirfd, struct programs *before, struct programs *now);
void programs_free(struct programs *p);

/* Returns true if `name` is the process id or the name of the program. */
bool programs_is(const json_t *program, const char *name);

/*
 * Makes a row of each program and address, in the order of addresses: objects with address, kind,
 * slots, pid, program, state ("running", "stopped", "silent"). Programs that answered also have
 * qps, connections, rx_bytes and tx_bytes, and with an earlier look `before` (else NULL): rx_bits_s
 * and tx_bits_s.
 */
json_t *programs_rows(const struct programs *p, const struct programs *before);

/* Prints such rows as a table on stdout. */
void programs_print(const json_t *rows);

#endif
