/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requests of a kernel, one row for each enum roost_ask: the kind of the request, and the
 * rights that its addresses need. A new request is a new row, and a new member of struct
 * ask_backend if no existing member performs it.
 */
#ifndef ROOST_KERNELS_ASKS_H
#define ROOST_KERNELS_ASKS_H

#include "nic/nic.h"
#include "roost/kernel.h"

enum ask_kind {
	ASK_NOTHING, /* the kernel runs again */
	ASK_ACCESS,  /* memory of a region */
	ASK_SEND,    /* data before the reply */
	ASK_REPLY,   /* with ROOST_DONE only: ends the invocation */
	ASK_WR,	     /* a kernel work request */
	ASK_WAIT,    /* waits for kernel work requests in progress */
	ASK_PAUSE,   /* the kernel runs again in a later turn */
};

struct ask_rule {
	uint8_t kind; /* enum ask_kind */
	uint8_t op;   /* op-code of a work request: ROOST_OP_READ and so on */
	/*
	 * enum nic_access: the access to the bytes at roost_call.va and at roost_call.from; 0: no
	 * access. A work request is checked only if it has no buf.
	 */
	uint8_t va, from;
};

#define ASKS 18

static const struct ask_rule ask_rules[ASKS] = {
	[ROOST_ASK_NONE] = {.kind = ASK_NOTHING},
	[ROOST_ASK_READ] = {.kind = ASK_ACCESS, .va = NIC_ACCESS_REMOTE_READ},
	[ROOST_ASK_WRITE] = {.kind = ASK_ACCESS, .va = NIC_ACCESS_REMOTE_WRITE},
	[ROOST_ASK_COPY] = {.kind = ASK_ACCESS,
			    .va = NIC_ACCESS_REMOTE_WRITE,
			    .from = NIC_ACCESS_REMOTE_READ},
	[ROOST_ASK_CAS] = {.kind = ASK_ACCESS, .va = NIC_ACCESS_REMOTE_ATOMIC},
	[ROOST_ASK_SEND] = {.kind = ASK_SEND},
	[ROOST_ASK_SEND_FROM] = {.kind = ASK_SEND, .from = NIC_ACCESS_REMOTE_READ},
	[ROOST_ASK_REPLY] = {.kind = ASK_REPLY},
	[ROOST_ASK_REPLY_FROM] = {.kind = ASK_REPLY, .from = NIC_ACCESS_REMOTE_READ},
	[ROOST_ASK_QP_READ] = {.kind = ASK_WR, .op = ROOST_OP_READ, .va = NIC_ACCESS_REMOTE_WRITE},
	[ROOST_ASK_QP_WRITE] = {.kind = ASK_WR, .op = ROOST_OP_WRITE, .va = NIC_ACCESS_REMOTE_READ},
	[ROOST_ASK_QP_SEND] = {.kind = ASK_WR, .op = ROOST_OP_SEND, .va = NIC_ACCESS_REMOTE_READ},
	[ROOST_ASK_QP_WAIT] = {.kind = ASK_WAIT},
	[ROOST_ASK_QP_WRITE_IMM] = {.kind = ASK_WR,
				    .op = ROOST_OP_WRITE_IMM,
				    .va = NIC_ACCESS_REMOTE_READ},
	[ROOST_ASK_QP_SEND_IMM] = {.kind = ASK_WR,
				   .op = ROOST_OP_SEND_IMM,
				   .va = NIC_ACCESS_REMOTE_READ},
	[ROOST_ASK_QP_CAS] = {.kind = ASK_WR,
			      .op = ROOST_OP_CMP_SWAP,
			      .va = NIC_ACCESS_REMOTE_WRITE},
	[ROOST_ASK_QP_FETCH_ADD] = {.kind = ASK_WR,
				    .op = ROOST_OP_FETCH_ADD,
				    .va = NIC_ACCESS_REMOTE_WRITE},
	[ROOST_ASK_PAUSE] = {.kind = ASK_PAUSE},
};
_Static_assert(ROOST_ASK_PAUSE == ASKS - 1, "a row for each enum roost_ask");

#endif
