/* SPDX-License-Identifier: BSD-2-Clause */
/* Two NICs on a simulated link: callers on one, the kernels and their memory on the other. */
#ifndef ROOST_TESTS_KERNELS_RIG_H
#define ROOST_TESTS_KERNELS_RIG_H

#include "kernels/runtime.h"
#include "kernels/local_call.h"
#include "world.h"

#define RIG_MEM	    (1u << 20) /* of the node, and of each caller */
#define RIG_CALLERS 2
#define RIG_SLOTS   64
/* bytes of a reply buffer; a caller's memory has RIG_SLOTS of them, then the parameters */
#define RIG_REPLY   8192
#define RIG_PARAMS  (RIG_SLOTS * RIG_REPLY)
#define RIG_PAYLOAD (RIG_PARAMS + RIG_SLOTS * 4096)

struct rig {
	struct world w;
	struct kernel_runtime *f;
	struct ep caller[RIG_CALLERS], node[RIG_CALLERS]; /* caller i talks to node i */
	uint64_t turn_ns;
	bool loop;
};

struct rig_shape {
	struct sim_params sp;
	struct runtime_config cfg;
	uint32_t mtu;	 /* 0: 1024 */
	uint32_t access; /* of the node's QPs and regions; 0: all */
	uint8_t rnr_retry;
	bool loop;	  /* callers and node are one NIC */
	uint64_t turn_ns; /* what a turn takes; 0: time stands still as long as a NIC has work */
};

void rig_open(struct rig *r, uint64_t seed, const struct rig_shape *shape);
void rig_close(struct rig *r);
/* A turn of each NIC, or time moves on. False: nothing is left to happen. */
bool rig_step(struct rig *r);

/*
 * Posts a call: parameters behind the head that is made here. Slot: which reply buffer, of `room`
 * bytes + 8.
 */
void rig_post(struct rig *r, unsigned caller, unsigned slot, uint64_t op, const void *params,
	      uint32_t len, uint32_t room, uint16_t flags);
/* The same with a head as it is. */
void rig_post_head(struct rig *r, unsigned caller, unsigned slot, uint64_t op,
		   const struct roost_rpc_head *head, const void *params, uint32_t len);
/* Posts an RPC WRITE of bytes that stand at RIG_PAYLOAD of the caller's memory. */
void rig_post_payload(struct rig *r, unsigned caller, uint64_t op, uint32_t len);
struct roost_rpc_head rig_head(struct rig *r, unsigned caller, unsigned slot, uint32_t room,
			       uint16_t flags);

struct rig_reply {
	unsigned status;
	uint32_t len;
	const uint8_t *data;
	bool front;
};
/*
 * Runs the world until the reply is there; fails the test when none comes within ten virtual
 * seconds.
 */
struct rig_reply rig_wait(struct rig *r, unsigned caller, unsigned slot, uint32_t room);
bool rig_poll(struct rig *r, unsigned caller, unsigned slot, uint32_t room, struct rig_reply *out);
struct rig_reply rig_call(struct rig *r, uint64_t op, const void *params, uint32_t len,
			  uint32_t room);
/* Takes completions of the send queues, which must be good ones. */
void rig_reap(struct rig *r);
/* Posts a WRITE out of a caller's memory to its node's. */
void rig_write(struct rig *r, unsigned caller, uint64_t from, uint64_t to, uint32_t len);

/* Makes the kernel runtime of the callers' NIC, once; on loop-back that is r->f. */
struct kernel_runtime *rig_caller_runtime(struct rig *r);
/* Begins an invocation that is to be attached to a stream, with the region of node 0. */
struct local_call *rig_local_call(struct rig *r, struct kernel_runtime *f, uint64_t op,
				  const void *params, uint32_t len, void *reply, uint32_t room);
struct runtime_counters rig_counters(const struct rig *r);

/* Address in the node's memory that callers of QP 0 name. */
static inline uint64_t rig_va(const struct rig *r, uint64_t off)
{
	return (uintptr_t)r->node[0].mem + off;
}

#endif
