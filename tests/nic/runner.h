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
 * Carries out the run of this seed. True: all was as the model says; adds to *stats. Otherwise says
 * on stderr what was wrong, with the last packets, and returns false; the run's memory is then not
 * freed. `verbose` prints the run's parameters, `live` (may be NULL) gets every packet.
 */
bool run_seed(uint64_t seed, bool verbose, FILE *live, struct run_stats *stats);

#endif
