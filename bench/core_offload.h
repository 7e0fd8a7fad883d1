/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef ROOST_BENCH_CORE_OFFLOAD_H
#define ROOST_BENCH_CORE_OFFLOAD_H

#include "core_node.h"

/* Prints rows: the orders of WQEs, and offloads by the size of their values, beside READs. */
void offload_rows(struct node *near, struct node *server, double seconds,
		  void (*print)(const char *op, uint32_t size, double ns));

/*
 * Returns the ns of a verb from its doorbell to its end, one at a time: in the memory of `near` on
 * a queue that is connected to itself, or by packets in that of `server`. core_verbs.c.
 */
double verb_latency(struct node *near, struct node *server, enum roost_op op, bool remote,
		    double seconds);

#endif
