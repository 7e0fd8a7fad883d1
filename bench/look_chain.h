/* SPDX-License-Identifier: BSD-2-Clause */
/* Hash look-ups as chains, at the server of a benchmark with two processes (duo.h). */
#ifndef ROOST_BENCH_LOOK_CHAIN_H
#define ROOST_BENCH_LOOK_CHAIN_H

#include "duo.h"

#define LOOK_DATA 1024u /* bytes of memory that a chain needs for constants */

enum look_kind { LOOK_FIRST, LOOK_SECOND, LOOK_PARALLEL }; /* one bucket; two: in turn, at once */

struct look_chain {
	enum look_kind kind;
	/* Set before look_chain_make(), or NULL: a CQ for the receives, and one for the answers. */
	struct ibv_cq *receives, *audit;
	struct ibv_cq *sends, *loop_sends[2];
	struct ibv_qp *conn, *loop[2], *starter;
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
