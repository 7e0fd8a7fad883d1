/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Joined replies. The replies to the calls of a turn leave as one WRITE, if the callers allow it
 * (ROOST_RPC_JOIN) and their buffers adjoin. The data are copied, so each call ends at once.
 */
#ifndef ROOST_KERNELS_JOIN_H
#define ROOST_KERNELS_JOIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "packet/headers.h"

#define JOIN_BUFFERS 4
#define JOIN_BYTES   PKT_MAX_PAYLOAD /* of a buffer */
#define JOIN_MEM     (JOIN_BUFFERS * JOIN_BYTES)

struct call;
struct call_qp;
struct runtime_pu;

/* The joined replies of a queue pair. */
struct join {
	/*
	 * if a WRITE is being filled: in runtime_pu.joins; without space for it in
	 * call_qp.waiting, then in runtime_pu.due_joins
	 */
	struct list_head link;
	uint8_t *mem;  /* the buffers: JOIN_MEM */
	uint8_t busy;  /* bits of buffers that the NIC uses */
	bool counted;  /* JOIN_MEM is counted: nic_memory_take() */
	uint8_t tries; /* replies since the last time that it was refused */
	/* the WRITE that is being filled, if `link` is linked */
	uint8_t filling; /* number of its buffer */
	uint32_t len, rkey;
	uint64_t raddr;
};

/*
 * Adds the reply of a call that is ending to the WRITE of its queue pair: `len` bytes of data, and
 * the call's tail. Returns false if the reply must be sent alone.
 */
bool join_reply(struct call *call, const void *data, uint32_t len);
/* Sends the WRITEs that are being filled, at the end of a turn. */
void join_send(struct runtime_pu *pu);
/*
 * The WRITE is the first in call_qp.waiting, and there is space: it leaves at the begin of the next
 * turn, before calls take the space.
 */
void join_wake(struct call_qp *q);
void join_send_due(struct runtime_pu *pu);
/* A WRITE was acknowledged: a WRITE of joined replies, or of a call, by its cookie. */
void join_sent(struct call_qp *q, uint64_t cookie);
/* The queue pair has ended: the NIC uses none of the buffers any more. */
void join_stop(struct call_qp *q);

#endif
