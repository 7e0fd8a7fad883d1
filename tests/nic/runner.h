/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One run of the simulator: makes a world, connections and programs from a seed, executes and
 * checks them.
 */
#ifndef ROOST_TESTS_RUNNER_H
#define ROOST_TESTS_RUNNER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct run_stats {
	uint64_t ops, calls, bytes, packets, virtual_ns, retransmitted, faults;
	uint64_t loose_sent, loose_got; /* messages of unreliable services */
};

/*
 * Executes the run of this seed. Returns true if all results equal the model's, and adds to *stats.
 * Otherwise prints the error and the last packets on stderr, and returns false; the run's memory is
 * then not freed. `verbose` prints the run's parameters, `live` (may be NULL) gets every packet.
 */
bool run_seed(uint64_t seed, bool verbose, FILE *live, struct run_stats *stats);

#endif
