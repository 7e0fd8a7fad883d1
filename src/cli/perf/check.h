/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Declarations that the two files of the checker share: perf/check.c (rounds, messages) and
 * perf/check_atomic.c.
 */
#ifndef ROOST_CLI_PERF_CHECK_H
#define ROOST_CLI_PERF_CHECK_H

#include "cli/pattern.h"
#include "cli/perf/perf.h"

#define CHECK_ATOMICS 48 /* atomics of a QP in a round */

enum check_pattern { CHECK_DATA, CHECK_BACKGROUND, CHECK_COUNTERS };

uint64_t check_key(const struct perf_job *job, uint64_t round, enum check_pattern kind, unsigned i);
void check_background(struct perf_link *l, uint8_t *region, uint64_t round);
int check_wait_all(struct perf_link *l, struct progress *p, double done);

uint64_t check_atomic_bytes(const struct perf_job *job);
int check_atomic_round(struct perf_link *l, uint64_t round, struct progress *p);
/* Prepare the target's counters before a round, and verify them after it. */
void check_atomic_prepare(struct perf_link *l, uint64_t round);
int check_atomic_verify(struct perf_link *l, uint64_t round);

#endif
