/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lists and hash tables in the server's memory, and look-ups in them by ONC RPC.
 */
#ifndef ROOST_BENCH_KERN_LOOK_H
#define ROOST_BENCH_KERN_LOOK_H

#include "duo.h"

#define LIST_VALUE 64u

/* Addresses are of the server's process. */
struct list_element {
	uint64_t key, value, next;
	uint64_t rest[5];
};

/* Positions in 4-byte units, for roost_traversal_list(). */
enum { LIST_KEY_POS = 0, LIST_VALUE_POS = 2, LIST_NEXT_POS = 4 };

#define ONC_PHASE 1u /* plan->phase(): onc_serve() */

/* Serves calls until the client ends the phase. */
void onc_serve(struct duo *s);
/* Called before and after a slice of calls. */
void onc_begin(struct duo *c);
void onc_end(struct duo *c);
/* Stores the value at `to`, returns its length. Waits kern.delay_ns, as on a wire. */
uint32_t onc_list(uint64_t root, uint64_t key, uint8_t *to);
uint32_t onc_get(uint64_t table, uint64_t entries, uint64_t key, uint8_t *to);

#endif
