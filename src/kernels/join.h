/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Joined replies. The replies to the calls of one burst leave as one WRITE, if the callers allow it
 * (ROOST_RPC_JOIN) and their buffers adjoin. The data are copied, so each call ends at once.
 */
#ifndef ROOST_KERNELS_JOIN_H
#define ROOST_KERNELS_JOIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

#define JOIN_BUFFERS 4
#define JOIN_BYTES   4096 /* of a buffer: the largest path MTU */
#define JOIN_MEM     (JOIN_BUFFERS * JOIN_BYTES)

struct call;
struct call_qp;
struct runtime_pu;

/* The joined replies of a queue pair. */
struct join {
	struct list_head link; /* in runtime_pu.joins, if a buffer is open */
	uint8_t *mem;	       /* the buffers: JOIN_MEM */
	uint8_t busy;	       /* bits of buffers that the NIC uses */
	bool counted;	       /* JOIN_MEM is counted: nic_memory_take() */
	/* the WRITE that is being filled, if `link` is linked */
	uint8_t open; /* its buffer */
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
/* A WRITE was acknowledged: `cookie` is that of nic_rpc_send(). */
void join_sent(struct call_qp *q, uint64_t cookie);
/* The queue pair has ended: the NIC uses none of the buffers any more. */
void join_stop(struct call_qp *q);

#endif
