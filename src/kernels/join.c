/* SPDX-License-Identifier: BSD-2-Clause */
#include "kernels/join.h"

#include <errno.h>
#include <string.h>

#include "kernels/call.h"

/* Longer replies gain little, and the copy costs more. */
#define JOIN_MAX 512
/* Cookies of calls are up to RUNTIME_MAX_CALLS. */
#define COOKIE(buffer) (RUNTIME_MAX_CALLS + 1ull + (buffer))

static uint8_t *buffer_of(const struct join *j, unsigned i)
{
	return j->mem + (size_t)i * JOIN_BYTES;
}

/*
 * Counts the memory of the buffers, whose pages are allocated when a reply is first written to
 * them. Each refusal is counted, too, so only every 256th reply tries again.
 */
static __attribute__((noinline)) bool count_buffers(struct call_qp *q)
{
	if (q->join.tries++ || !nic_memory_take(q->rt->nic, JOIN_MEM))
		return false;
	q->join.counted = true;
	return true;
}

/* Sends the WRITE that is being filled. Returns false if it waits for space. */
static bool send_open(struct call_qp *q)
{
	struct join *j = &q->join;
	struct nic_rpc_send m = {
		.cookie = COOKIE(j->filling),
		.raddr = j->raddr,
		.rkey = j->rkey,
		.len = j->len,
		.buf = buffer_of(j, j->filling),
	};
	int rc;

	if (unlikely(!j->len)) { /* the data of its first reply could not be read */
		list_del(&j->link);
		return true;
	}
	rc = nic_rpc_send(q->qp, &m);
	if (rc == -EAGAIN)
		return false;
	list_del(&j->link);
	if (!rc)
		j->busy |= (uint8_t)(1u << j->filling);
	return true;
}

/* Begins a WRITE in a buffer that is free. */
static bool begin(struct call_qp *q, uint64_t raddr, uint32_t rkey)
{
	struct join *j = &q->join;
	unsigned i;

	if (unlikely(!j->counted) && !count_buffers(q))
		return false;
	i = (unsigned)__builtin_ctz(~(unsigned)j->busy);
	if (i >= JOIN_BUFFERS)
		return false;
	j->filling = (uint8_t)i;
	j->len = 0;
	j->rkey = rkey;
	j->raddr = raddr;
	list_add_tail(&j->link, &q->pu->joins);
	if (!q->pu->in_run)
		nic_rpc_schedule(q->qp);
	return true;
}

bool join_reply(struct call *call, const void *data, uint32_t len)
{
	const struct roost_rpc_head *h = &call->head;
	struct call_qp *q = call->q;
	struct join *j = &q->join;
	/* | the WRITE so far | between | data | tail |; `front`: of the buffer, before the data */
	uint32_t front = h->reply_len - (uint32_t)sizeof(call->tail) - len, gap = 0;
	uint64_t raddr = h->reply_addr + front;
	uint32_t most = nic_rpc_packet_max(q->qp);
	uint8_t *at;

	if (len > JOIN_MAX || len + sizeof(call->tail) > most)
		return false;
	if (list_linked(&j->link)) {
		/* What lies between two replies is in the buffer of the second one. */
		uint64_t between = raddr - (j->raddr + j->len);

		if (likely(between <= front && h->reply_rkey == j->rkey &&
			   j->len + between + len + sizeof(call->tail) <= most))
			gap = (uint32_t)between;
		else if (!send_open(q))
			return false;
	}
	if (!list_linked(&j->link) && !begin(q, raddr, h->reply_rkey))
		return false;
	at = buffer_of(j, j->filling) + j->len;
	if (unlikely(nic_rpc_load(at + gap, data, len)))
		return false;
	memset(at, 0, gap);
	memcpy(at + gap + len, &call->tail, sizeof(call->tail));
	j->len += gap + len + (uint32_t)sizeof(call->tail);
	return true;
}

void join_send(struct runtime_pu *pu)
{
	while (!list_empty(&pu->joins)) {
		struct call_qp *q = list_first_entry(&pu->joins, struct call_qp, join.link);

		if (!send_open(q))
			list_move_tail(&q->join.link, &q->waiting);
	}
}

void join_wake(struct call_qp *q)
{
	list_move_tail(&q->join.link, &q->pu->due_joins);
	nic_rpc_schedule(q->qp);
}

void join_send_due(struct runtime_pu *pu)
{
	while (!list_empty(&pu->due_joins)) {
		struct call_qp *q = list_first_entry(&pu->due_joins, struct call_qp, join.link);

		if (send_open(q))
			continue;
		/* A call that came meanwhile took the space: the WRITE is the next one again. */
		list_del(&q->join.link);
		list_add(&q->join.link, &q->waiting);
	}
}

void join_sent(struct call_qp *q, uint64_t cookie)
{
	if (cookie > RUNTIME_MAX_CALLS)
		q->join.busy ^= (uint8_t)(1u << (cookie - COOKIE(0)));
}

void join_stop(struct call_qp *q)
{
	if (list_linked(&q->join.link))
		list_del(&q->join.link);
	q->join.busy = 0;
}
