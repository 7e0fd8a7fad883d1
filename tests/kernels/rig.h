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
	uint64_t turn_ns; /* duration of a turn; 0: time does not advance while a NIC has work */
};

void rig_open(struct rig *r, uint64_t seed, const struct rig_shape *shape);
void rig_close(struct rig *r);
/* Runs a turn of each NIC, or advances the time. Returns false if no event is left. */
bool rig_step(struct rig *r);

/*
 * Posts a call with these parameters; makes the head. `slot` is the number of the reply buffer, of
 * `space` + 8 bytes.
 */
void rig_post(struct rig *r, unsigned caller, unsigned slot, uint64_t op, const void *params,
	      uint32_t len, uint32_t space, uint16_t flags);
/* Posts a call with this head. */
void rig_post_head(struct rig *r, unsigned caller, unsigned slot, uint64_t op,
		   const struct roost_rpc_head *head, const void *params, uint32_t len);
/* Posts an RPC WRITE of the bytes at RIG_PAYLOAD of the caller's memory. */
void rig_post_payload(struct rig *r, unsigned caller, uint64_t op, uint32_t len);
struct roost_rpc_head rig_head(struct rig *r, unsigned caller, unsigned slot, uint32_t space,
			       uint16_t flags);

struct rig_reply {
	unsigned status;
	uint32_t len;
	const uint8_t *data;
	bool front;
};
/*
 * Runs the world until the reply arrives. Fails the test if none arrives within ten virtual
 * seconds.
 */
struct rig_reply rig_wait(struct rig *r, unsigned caller, unsigned slot, uint32_t space);
bool rig_poll(struct rig *r, unsigned caller, unsigned slot, uint32_t space, struct rig_reply *out);
struct rig_reply rig_call(struct rig *r, uint64_t op, const void *params, uint32_t len,
			  uint32_t space);
/* Takes completions of the send queues, and checks that they are successful. */
void rig_reap(struct rig *r);
/* Posts a WRITE from a caller's memory to its node's memory. */
void rig_write(struct rig *r, unsigned caller, uint64_t from, uint64_t to, uint32_t len);

/* Makes the kernel runtime of the callers' NIC, once; on loop-back that is r->f. */
struct kernel_runtime *rig_caller_runtime(struct rig *r);
/* Begins a local call for a stream, with the region of node 0. */
struct local_call *rig_local_call(struct rig *r, struct kernel_runtime *f, uint64_t op,
				  const void *params, uint32_t len, void *reply, uint32_t space);
struct runtime_counters rig_counters(const struct rig *r);

/* Returns the address of the node's memory that callers of QP 0 use. */
static inline uint64_t rig_va(const struct rig *r, uint64_t off)
{
	return (uintptr_t)r->node[0].mem + off;
}

#endif
