/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Look-ups as chains, in hash tables and lists, at the server of a benchmark with two processes
 * (duo.h).
 */
#ifndef ROOST_BENCH_LOOK_CHAIN_H
#define ROOST_BENCH_LOOK_CHAIN_H

#include "duo.h"

#define LOOK_DATA 1024u /* bytes of memory that a chain needs for constants */

/* One bucket; two buckets, in turn and at once; a list, with break and without. */
enum look_kind { LOOK_FIRST, LOOK_SECOND, LOOK_PARALLEL, LOOK_LIST, LOOK_LIST_WHOLE };

#define LOOK_LOOPS 3

struct look_chain {
	enum look_kind kind;
	/*
	 * Set before look_chain_make(), or NULL: a CQ for the receives, and one for the executed
	 * WQEs of the first loop.
	 */
	struct ibv_cq *receives, *audit;
	struct ibv_cq *sends, *loop_sends[LOOK_LOOPS];
	struct ibv_qp *conn, *loop[LOOK_LOOPS], *starter;
};

/* Makes the queue pairs. Returns the one to connect to the client. */
struct ibv_qp *look_chain_make(struct duo *s, struct look_chain *k, enum look_kind kind);
/*
 * Emits and starts the chain of a connected queue pair: values of value_len bytes in the server's
 * memory, LOOK_DATA bytes at offset `data` there, the reply to the client's memory at offset
 * `reply`.
 */
void look_chain_start(struct duo *s, struct look_chain *k, uint32_t value_len, size_t data,
		      size_t reply);

#endif
