/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lists and hash tables in the server's memory, and ONC RPC as one way to look things up in them.
 */
#ifndef ROOST_BENCH_KERN_LOOK_H
#define ROOST_BENCH_KERN_LOOK_H

#include "duo.h"

#define LIST_VALUE 64u

/* Addresses are the server's. */
struct list_element {
	uint64_t key, value, next;
	uint64_t rest[5];
};

/* In 4-byte units, for roost_traversal_list(). */
enum { LIST_KEY_POS = 0, LIST_VALUE_POS = 2, LIST_NEXT_POS = 4 };

#define ONC_PHASE 1u /* plan->phase(): onc_serve() */

/* Serves calls until the client says that it is enough. */
void onc_serve(struct duo *s);
/* A slice of calls: around it. */
void onc_begin(struct duo *c);
void onc_end(struct duo *c);
/* The value's length; it lies at `to`. Spends kern.delay_ns, as a wire would. */
uint32_t onc_list(uint64_t root, uint64_t key, uint8_t *to);
uint32_t onc_get(uint64_t table, uint64_t entries, uint64_t key, uint8_t *to);

#endif
