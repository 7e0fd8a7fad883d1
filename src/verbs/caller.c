/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roost/verbs.h: calls with memory of their own. One region has a reply buffer and the parameters
 * of each call. The last 8 bytes of each reply buffer are polled:
 *
 *	| reply 0 .. tail | ... | short reply 0 .. tail | ... | params 0 | params 1 | ...
 *
 * Replies of calls with ROOST_RPC_JOIN come to the short buffers. Calls take the slots in their
 * order, so the buffers of calls that follow each other adjoin.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nic/nic_rpc.h"
#include "roost/verbs.h"
#include "verbs/objects.h"

#define MAX_CALLS  256
#define SPIN_NS	   200000u /* a wait polls for this time, and then sleeps between polls */
#define NAP_NS	   50000u
#define PARAMS_MAX (sizeof(struct roost_rpc_head) + ROOST_RPC_MAX_PARAMS)
/*
 * From the parameters of a call to those of the next one. Without the additional cache line all
 * would be in the same sets of a cache.
 */
#define PARAMS_STRIDE (ALIGN_UP(PARAMS_MAX, (size_t)CACHE_LINE) + CACHE_LINE)
#define SHORT_LEN     (ROOST_CALL_SHORT + sizeof(struct roost_rpc_tail))

enum slot_state { SLOT_FREE, SLOT_USED, SLOT_GIVEN_UP };

struct roost_caller {
	struct verbs_qp *qp;
	struct ibv_mr *mr;
	uint8_t *mem;
	size_t mem_size, stride; /* stride: bytes of a reply with its tail */
	uint32_t space;
	unsigned calls, next;
	unsigned in_flight; /* slots in use */
	uint16_t mark;	    /* mark of the last call */
	struct {
		uint8_t state; /* enum slot_state */
		bool is_short; /* the reply comes to the short buffer */
		uint16_t mark;
	} slot[MAX_CALLS];
};

static size_t reply_len(const struct roost_caller *c, unsigned id)
{
	return c->slot[id].is_short ? SHORT_LEN : c->stride;
}

static uint8_t *reply_of(const struct roost_caller *c, unsigned id)
{
	return c->slot[id].is_short ? c->mem + c->calls * c->stride + id * SHORT_LEN
				    : c->mem + id * c->stride;
}

static uint8_t *params_of(const struct roost_caller *c, unsigned id)
{
	return c->mem + c->calls * (c->stride + SHORT_LEN) + id * PARAMS_STRIDE;
}

static uint64_t *tail_of(const struct roost_caller *c, unsigned id)
{
	return (uint64_t *)(void *)(reply_of(c, id) + reply_len(c, id) - sizeof(uint64_t));
}

/*
 * Returns whether the reply of a call is complete: its tail, which is written last and in one piece
 * (roost/rpc.h), then has the call's mark.
 */
static bool reply_complete(const struct roost_caller *c, unsigned id, struct roost_rpc_tail *tail)
{
	uint64_t word = __atomic_load_n(tail_of(c, id), __ATOMIC_ACQUIRE);

	memcpy(tail, &word, sizeof(word));
	tail->len = le32toh(tail->len);
	return le16toh(tail->mark) == c->slot[id].mark;
}

VERBS_EXPORT struct roost_caller *roost_caller_create(struct ibv_qp *qp, unsigned calls,
						      uint32_t space)
{
	struct roost_caller *c;

	if (!calls || calls > MAX_CALLS || space > NIC_MAX_MSG - 64)
		return verbs_null(EINVAL);
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->qp = verbs_qp(qp);
	c->calls = calls;
	c->space = space;
	c->stride = ALIGN_UP((size_t)space + sizeof(uint64_t), (size_t)CACHE_LINE);
	c->mem_size = calls * (c->stride + SHORT_LEN + PARAMS_STRIDE);
	c->mem = mem_alloc_pages(c->mem_size);
	if (!c->mem)
		goto free_caller;
	c->mr = ibv_reg_mr_iova2(qp->pd, c->mem, c->mem_size, (uintptr_t)c->mem,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!c->mr)
		goto free_mem;
	return c;

free_mem:
	mem_free_pages(c->mem, c->mem_size);
free_caller:
	free(c);
	return NULL;
}

VERBS_EXPORT void roost_caller_destroy(struct roost_caller *c)
{
	ibv_dereg_mr(c->mr);
	mem_free_pages(c->mem, c->mem_size);
	free(c);
}

/* Finds a free slot. The slot of a call that was given up is free once its late reply has come. */
static int find_slot(struct roost_caller *c, unsigned *id)
{
	struct roost_rpc_tail tail;

	for (unsigned n = 0; n < c->calls; n++) {
		unsigned i = (c->next + n) % c->calls;

		if (c->slot[i].state == SLOT_FREE ||
		    (c->slot[i].state == SLOT_GIVEN_UP && reply_complete(c, i, &tail))) {
			c->next = (i + 1) % c->calls;
			*id = i;
			return 0;
		}
	}
	return EAGAIN;
}

VERBS_EXPORT int roost_call_begin(struct roost_caller *c, uint64_t op, uint32_t rkey,
				  const void *params, uint32_t len, unsigned flags, unsigned *id)
{
	struct roost_rpc_head head = {.flags = htole16((uint16_t)flags)};
	struct roost_rpc_wr wr = {.op = op, .rkey = rkey, .num_sge = 1};
	struct ibv_sge sge;
	uint8_t *at;
	int ret;

	if (len > ROOST_RPC_MAX_PARAMS)
		return EMSGSIZE;
	ret = find_slot(c, id);
	if (ret)
		return ret;
	if (!++c->mark) /* 0 is the mark of an empty slot */
		c->mark++;
	c->slot[*id].is_short = flags & ROOST_RPC_JOIN;
	at = params_of(c, *id);
	head.reply_addr = htole64((uintptr_t)reply_of(c, *id));
	head.reply_rkey = htole32(c->mr->rkey);
	head.reply_len = htole32((uint32_t)reply_len(c, *id));
	head.mark = htole16(c->mark);
	memcpy(at, &head, sizeof(head));
	if (len)
		memcpy(at + sizeof(head), params, len);
	sge = (struct ibv_sge){(uintptr_t)at, (uint32_t)sizeof(head) + len, c->mr->lkey};
	wr.sg_list = &sge;
	if (sge.length <= c->qp->sq.max_inline)
		wr.send_flags = IBV_SEND_INLINE;
	__atomic_store_n(tail_of(c, *id), 0, __ATOMIC_RELAXED);
	c->slot[*id].mark = c->mark;
	nic_rpc_single_call(c->qp->nic_qp, !c->in_flight);
	ret = roost_post_rpc(&c->qp->qp, &wr);
	c->slot[*id].state = ret ? SLOT_FREE : SLOT_USED;
	c->in_flight += !ret;
	return ret;
}

static int take(const struct roost_caller *c, unsigned id, struct roost_result *out)
{
	struct roost_rpc_tail tail;
	uint32_t space = (uint32_t)reply_len(c, id) - (uint32_t)sizeof(tail);

	if (!reply_complete(c, id, &tail))
		return EAGAIN;
	*out = (struct roost_result){.status = tail.status, .len = tail.len};
	if (tail.status == ROOST_RPC_TOO_LONG || tail.len > space)
		return 0;
	out->data = reply_of(c, id) + (tail.flags & ROOST_RPC_FRONT ? 0 : space - tail.len);
	return 0;
}

VERBS_EXPORT int roost_call_poll(struct roost_caller *c, unsigned id, struct roost_result *out)
{
	if (id >= c->calls || c->slot[id].state != SLOT_USED)
		return EINVAL;
	if (!take(c, id, out))
		return 0;
	drive_progress(c->qp->drive, c->qp->pu);
	if (!take(c, id, out))
		return 0;
	return nic_qp_state(c->qp->nic_qp) == NIC_QPS_ERR || !nic_qp_rpc(c->qp->nic_qp) ? ENOTCONN
											: EAGAIN;
}

VERBS_EXPORT int roost_call_look(struct roost_caller *c, unsigned id, struct roost_result *out)
{
	if (id >= c->calls || c->slot[id].state != SLOT_USED)
		return EINVAL;
	return take(c, id, out);
}

VERBS_EXPORT int roost_call_wait(struct roost_caller *c, unsigned id, uint64_t timeout_ns,
				 struct roost_result *out)
{
	uint64_t start = drive_now(c->qp->drive), now;

	for (;;) {
		int ret = roost_call_poll(c, id, out);

		if (ret != EAGAIN)
			return ret;
		now = drive_now(c->qp->drive);
		if (timeout_ns && now - start >= timeout_ns)
			return ETIMEDOUT;
		if (now - start > SPIN_NS)
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	}
}

VERBS_EXPORT void roost_call_end(struct roost_caller *c, unsigned id)
{
	struct roost_rpc_tail tail;

	if (id >= c->calls || c->slot[id].state != SLOT_USED)
		return;
	c->slot[id].state = reply_complete(c, id, &tail) ? SLOT_FREE : SLOT_GIVEN_UP;
	c->in_flight--;
}

VERBS_EXPORT int roost_call(struct roost_caller *c, uint64_t op, uint32_t rkey, const void *params,
			    uint32_t len, void *reply, uint32_t space, uint64_t timeout_ns,
			    struct roost_result *out)
{
	unsigned id;
	int ret = roost_call_begin(c, op, rkey, params, len, 0, &id);

	if (ret)
		return ret;
	ret = roost_call_wait(c, id, timeout_ns, out);
	if (!ret && out->data) {
		if (out->len > space)
			out->status = ROOST_RPC_TOO_LONG;
		else if (out->len) /* reply may be NULL if space is 0 */
			memcpy(reply, out->data, out->len);
		out->data = out->status == ROOST_RPC_TOO_LONG ? NULL : reply;
	}
	roost_call_end(c, id);
	return ret;
}
