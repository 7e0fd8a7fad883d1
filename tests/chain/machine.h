/* SPDX-License-Identifier: BSD-2-Clause */
/* A machine for tests of chains: queues of one NIC in virtual time, and data for all of them. */
#ifndef ROOST_TESTS_CHAIN_MACHINE_H
#define ROOST_TESTS_CHAIN_MACHINE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "roost/chain.h"
#include "world.h"

#define MACHINE_QUEUES 6

struct machine {
	struct world w;
	struct ep starter; /* an ordinary queue; its memory is the data of all queues */
	struct ep ep[MACHINE_QUEUES];
	struct roost_chain_queue queue[MACHINE_QUEUES];
	struct roost_chain_data data;
	unsigned queues;
};

/* All counts begin at `first`. The structure is large: keep it static. */
void machine_open(struct machine *m, uint32_t first);
void machine_close(struct machine *m);
/* Adds a managed queue, connected to itself, which watches its own completions (index 0). */
struct roost_chain machine_queue(struct machine *m, uint32_t depth);
/* Posts the WQEs that were emitted into a queue, and NOPs behind them up to its depth. */
void machine_post(struct machine *m, const struct roost_chain *c);
/* Enables n WQEs of the queue, and runs until the NIC has no more work. */
void machine_go(struct machine *m, const struct roost_chain *c, uint32_t n);
void machine_run(struct machine *m);
/* Returns the number of WQEs that the queue has executed since it was opened. */
uint32_t machine_executed(const struct machine *m, const struct roost_chain *c);
/* Returns the word at a place of the data. */
uint64_t *machine_word(struct machine *m, struct roost_ref p);

#endif
