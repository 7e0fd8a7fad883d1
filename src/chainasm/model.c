/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * This file is written from docs/chains.md: see "Work requests", "Counts", "The three orders" and
 * "Errors".
 */
#include "chainasm/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STRIDE 1024
#define MAX_LEN	   (1u << 31)

enum access { READ_LOCAL, WRITE_LOCAL, READ_REMOTE, WRITE_REMOTE };

static bool before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

bool model_open(struct chain_model *m, struct chain_program *p)
{
	memset(m, 0, sizeof(*m));
	m->p = p;
	for (unsigned i = 0; i < p->queues; i++) {
		const struct chain_queue *def = &p->queue[i];
		struct model_queue *q = &m->q[i];

		q->posted = def->managed ? def->depth : def->n;
		q->enabled = def->start;
		q->recv_posted = def->recv;
		q->recv_enabled = def->start_recv;
		q->fetched = calloc(MODEL_FETCH, MAX_STRIDE);
		if (!q->fetched) {
			model_close(m);
			return false;
		}
	}
	return true;
}

void model_close(struct chain_model *m)
{
	for (unsigned i = 0; i < CHAIN_MAX_QUEUES; i++) {
		free(m->q[i].fetched);
		m->q[i].fetched = NULL;
	}
}

/* ---- memory ---- */

/* Returns the bytes at an address that a key gives access to, or NULL. */
static uint8_t *resolve(const struct chain_model *m, uint32_t key, uint64_t addr, uint64_t len,
			enum access access)
{
	const struct chain_region *r;
	int i = chain_region_of_key(m->p, key);

	if (i < 0)
		return NULL;
	r = &m->p->region[i];
	if (addr < r->addr || addr - r->addr > r->size || len > r->size - (addr - r->addr))
		return NULL;
	if (r->readonly && (access == WRITE_LOCAL || access == WRITE_REMOTE))
		return NULL;
	return r->image + (addr - r->addr);
}

static void copy(struct chain_model *m, uint8_t *to, const uint8_t *from, uint64_t n)
{
	if (to < from + n && from < to + n && to != from)
		m->open = true; /* the order of bytes is not defined */
	memmove(to, from, n);
}

/* ---- failures ---- */

static void fail_queue(struct chain_model *m, unsigned queue, uint32_t index, const char *reason)
{
	struct model_queue *q = &m->q[queue];

	if (q->failed)
		return;
	q->failed = q->own_failure = true;
	q->failed_index = index;
	snprintf(q->reason, sizeof(q->reason), "%s", reason);
}

/* Makes both ends fail, because the peer refuses the request. */
static void refuse(struct chain_model *m, unsigned queue, unsigned peer, uint32_t index,
		   const char *reason)
{
	fail_queue(m, queue, index, reason);
	if (peer != queue && !m->q[peer].failed) {
		m->q[peer].failed = true;
		snprintf(m->q[peer].reason, sizeof(m->q[peer].reason),
			 "its peer's request was refused");
	}
}

/* ---- receives ---- */

static uint32_t recv_limit(const struct chain_model *m, unsigned queue)
{
	const struct chain_queue *def = &m->p->queue[queue];
	const struct model_queue *q = &m->q[queue];

	if (!def->managed_recv)
		return q->recv_posted;
	/* a ring that was posted completely is recycled */
	if (q->recv_posted >= def->recvs)
		return q->recv_enabled;
	return before(q->recv_enabled, q->recv_posted) ? q->recv_enabled : q->recv_posted;
}

static bool has_receive(const struct chain_model *m, unsigned queue)
{
	return m->p->queue[queue].recvs && before(m->q[queue].recv_taken, recv_limit(m, queue));
}

struct message {
	uint8_t *data;
	uint32_t len;
};

/* Scatters a message into the next receive of a queue. Returns NULL, or the reason of a failure. */
static const char *receive(struct chain_model *m, unsigned queue, const struct message *msg)
{
	const struct chain_queue *def = &m->p->queue[queue];
	struct model_queue *q = &m->q[queue];
	const uint8_t *slot = chain_recv_slot(m->p, def, q->recv_taken++);
	struct roost_recv_wqe r;
	uint32_t done = 0;
	uint8_t copy_of[MAX_STRIDE];

	memcpy(copy_of, slot, def->recv_stride);
	memcpy(&r, copy_of, sizeof(r));
	if (r.num_sge > (def->recv_stride - ROOST_RECV_SGE_OFFSET) / 16)
		return "the receive has too many pieces";
	for (uint32_t i = 0; i < r.num_sge && done < msg->len; i++) {
		struct roost_sge sge;
		uint32_t n;
		uint8_t *to;

		memcpy(&sge, copy_of + ROOST_RECV_SGE_OFFSET + i * sizeof(sge), sizeof(sge));
		n = sge.len < msg->len - done ? sge.len : msg->len - done;
		if (!n)
			continue;
		to = resolve(m, sge.lkey, sge.addr, n, WRITE_LOCAL);
		if (!to)
			return "the receive is outside of its regions";
		memcpy(to, msg->data + done, n);
		done += n;
	}
	return done < msg->len ? "the message is longer than the receive" : NULL;
}

/* ---- the WQE ---- */

union copy_of_wqe {
	struct roost_wqe w;
	uint8_t bytes[MAX_STRIDE];
};

struct run {
	struct chain_model *m;
	unsigned queue, peer;
	uint32_t index;
	const struct chain_queue *def;
	union copy_of_wqe u;
	uint16_t op;
	uint64_t len;
};

static bool bad(struct run *r, const char *reason)
{
	fail_queue(r->m, r->queue, r->index, reason);
	return false;
}

static bool is_calc(uint16_t op)
{
	return op == ROOST_OP_FETCH_ADD || op == ROOST_OP_CMP_SWAP ||
	       (op >= ROOST_OP_MAX && op <= ROOST_OP_XOR);
}

static bool has_payload(uint16_t op)
{
	return op == ROOST_OP_WRITE || op == ROOST_OP_WRITE_IMM || op == ROOST_OP_SEND ||
	       op == ROOST_OP_SEND_IMM;
}

static struct roost_sge sge_of(const struct run *r, unsigned i)
{
	struct roost_sge sge;

	memcpy(&sge, r->u.bytes + ROOST_WQE_SGE_OFFSET + i * sizeof(sge), sizeof(sge));
	return sge;
}

/* Makes the NIC's checks of the copied WQE. */
static bool check(struct run *r)
{
	const struct roost_wqe *w = &r->u.w;

	switch (r->op) {
	case ROOST_OP_SEND_INV:
	case ROOST_OP_LOCAL_INV:
	case ROOST_OP_BIND_MW:
	case ROOST_OP_RPC:
	case ROOST_OP_RPC_WRITE:
		r->m->open = true;
		return bad(r, "the op-code is not part of chains");
	default:
		break;
	}
	if (r->op != ROOST_OP_NOP && r->op != ROOST_OP_READ && !has_payload(r->op) &&
	    !is_calc(r->op) && (r->op < ROOST_OP_WAIT || r->op > ROOST_OP_RECV_ENABLE))
		return bad(r, "no such op-code");
	if (r->op >= ROOST_OP_MAX && r->op <= ROOST_OP_XOR && r->def->peer != CHAIN_PEER_SELF &&
	    !r->m->calc)
		r->m->open = true;
	r->len = 0;
	if (w->flags & ROOST_WQE_INLINE) {
		if (!has_payload(r->op) || w->inline_len > r->def->stride - ROOST_WQE_INLINE_OFFSET)
			return bad(r, "the inline data are not valid");
		r->len = w->inline_len;
	} else {
		if (w->num_sge > (r->def->stride - ROOST_WQE_SGE_OFFSET) / 16)
			return bad(r, "the WQE has too many pieces");
		for (unsigned i = 0; i < w->num_sge; i++)
			r->len += sge_of(r, i).len;
	}
	if (r->len > MAX_LEN)
		return bad(r, "the message is too long");
	return !is_calc(r->op) || r->len == 8 || bad(r, "an atomic has 8 bytes");
}

/* Copies between the scatter list and a buffer of the message. */
static bool local(struct run *r, uint8_t *buf, bool gather)
{
	uint64_t done = 0;

	if (r->u.w.flags & ROOST_WQE_INLINE) {
		memcpy(buf, r->u.bytes + ROOST_WQE_INLINE_OFFSET, r->len);
		return true;
	}
	for (unsigned i = 0; i < r->u.w.num_sge; i++) {
		struct roost_sge sge = sge_of(r, i);
		uint8_t *at;

		if (!sge.len)
			continue;
		at = resolve(r->m, sge.lkey, sge.addr, sge.len, gather ? READ_LOCAL : WRITE_LOCAL);
		if (!at)
			return bad(r, "the local address is outside of its region");
		if (gather)
			copy(r->m, buf + done, at, sge.len);
		else
			copy(r->m, at, buf + done, sge.len);
		done += sge.len;
	}
	return true;
}

static bool refused(struct run *r, const char *reason)
{
	refuse(r->m, r->queue, r->peer, r->index, reason);
	return false;
}

static uint64_t calc(uint16_t op, uint64_t a, const struct roost_wqe *w)
{
	uint64_t b = w->swap_add;

	switch (op) {
	case ROOST_OP_CMP_SWAP:
		return a == w->compare ? b : a;
	case ROOST_OP_FETCH_ADD:
		return a + b;
	case ROOST_OP_MAX:
		return a < b ? b : a;
	case ROOST_OP_MIN:
		return a < b ? a : b;
	case ROOST_OP_MAX_SIGNED:
		return (int64_t)a < (int64_t)b ? b : a;
	case ROOST_OP_MIN_SIGNED:
		return (int64_t)a < (int64_t)b ? a : b;
	case ROOST_OP_AND:
		return a & b;
	case ROOST_OP_OR:
		return a | b;
	default:
		return a ^ b;
	}
}

static bool atomic(struct run *r)
{
	const struct roost_wqe *w = &r->u.w;
	uint64_t old, new;
	uint8_t *at;

	if (w->raddr % 8)
		return refused(r, "an atomic is aligned to 8 bytes");
	at = resolve(r->m, w->rkey, w->raddr, 8, WRITE_REMOTE);
	if (!at)
		return refused(r, "the remote address is outside of its region");
	memcpy(&old, at, 8);
	new = calc(r->op, old, w);
	memcpy(at, &new, 8);
	return local(r, (uint8_t *)&old, false);
}

/* Executes a WRITE or READ. */
static bool move(struct run *r)
{
	const struct roost_wqe *w = &r->u.w;
	const bool read = r->op == ROOST_OP_READ;
	uint8_t *at;

	if (!r->len)
		return true;
	at = resolve(r->m, w->rkey, w->raddr, r->len, read ? READ_REMOTE : WRITE_REMOTE);
	if (!at)
		return refused(r, "the remote address is outside of its region");
	return local(r, at, !read);
}

static bool message(struct run *r)
{
	struct message msg = {NULL, 0};
	const char *reason;
	bool ok;

	if (r->op == ROOST_OP_WRITE_IMM) {
		if (!move(r))
			return false;
		r->m->q[r->peer].recv_taken++;
		r->m->q[r->peer].receives++;
		return true;
	}
	msg.data = malloc(r->len + 1);
	msg.len = (uint32_t)r->len;
	ok = msg.data ? local(r, msg.data, true) : bad(r, "out of memory");
	reason = ok ? receive(r->m, r->peer, &msg) : NULL;
	free(msg.data);
	if (!ok)
		return false;
	if (reason)
		return refused(r, reason);
	r->m->q[r->peer].receives++;
	return true;
}

/* ---- WAIT and ENABLE ---- */

static bool object(const struct run *r, uint32_t *name)
{
	*name = (uint32_t)r->u.w.raddr;
	return !(r->u.w.raddr >> 33);
}

static bool is_relative(const struct run *r)
{
	return r->u.w.raddr & ROOST_CHAIN_RELATIVE;
}

static enum model_result sleep_until(struct run *r)
{
	struct model_queue *q = &r->m->q[r->queue];

	if (r->u.w.raddr & ~(ROOST_CHAIN_TIME | ROOST_CHAIN_RELATIVE)) {
		bad(r, "the WAIT for a time names an object");
		return MODEL_FAILED;
	}
	if (!q->sleeps) {
		q->wake = r->u.w.swap_add;
		if (is_relative(r) && __builtin_add_overflow(q->wake, r->m->now, &q->wake))
			q->wake = UINT64_MAX;
	}
	q->sleeps = q->wake > r->m->now;
	return q->sleeps ? MODEL_SLEEPS : MODEL_DONE;
}

static enum model_result wait_for(struct run *r)
{
	struct model_queue *q = &r->m->q[r->queue];
	const struct chain_watch_name *w;
	uint32_t index, count, target = (uint32_t)r->u.w.swap_add;

	if (r->u.w.raddr & ROOST_CHAIN_TIME)
		return sleep_until(r);
	if (!object(r, &index) || index >= ROOST_CHAIN_WATCHES || r->def->watch[index].queue < 0) {
		bad(r, "the WAIT names no completion queue");
		return MODEL_FAILED;
	}
	w = &r->def->watch[index];
	count = w->receives ? r->m->q[w->queue].receives : r->m->q[w->queue].sends;
	if (is_relative(r))
		target += q->base[index];
	if (before(count, target))
		return MODEL_WAITS;
	if (is_relative(r))
		q->base[index] = target;
	return MODEL_DONE;
}

static bool enable(struct run *r)
{
	uint32_t name, n = (uint32_t)r->u.w.swap_add, *count;
	int to = object(r, &name) ? chain_queue_of_number(r->m->p, name) : -1;
	const bool recv = r->op == ROOST_OP_RECV_ENABLE;

	if (to < 0)
		return bad(r, "the ENABLE names no queue");
	if (recv ? !r->m->p->queue[to].managed_recv : !r->m->p->queue[to].managed)
		return bad(r, "the ENABLE names a queue that is not managed");
	count = recv ? &r->m->q[to].recv_enabled : &r->m->q[to].enabled;
	if (is_relative(r))
		*count += n;
	else if (before(*count, n))
		*count = n;
	return true;
}

/* ---- queues ---- */

static uint32_t limit(const struct chain_queue *def, const struct model_queue *q)
{
	return def->managed ? q->enabled : q->posted;
}

/* Copies WQEs out of the ring: one WQE of a managed queue, several of an ordinary queue. */
static bool fetch(struct chain_model *m, unsigned queue)
{
	const struct chain_queue *def = &m->p->queue[queue];
	struct model_queue *q = &m->q[queue];
	unsigned most = def->managed ? 1 : MODEL_FETCH;

	if (q->next != q->taken)
		return true;
	for (unsigned i = 0; i < most && before(q->taken, limit(def, q)); i++) {
		memcpy(q->fetched + (size_t)(q->taken % MODEL_FETCH) * MAX_STRIDE,
		       chain_slot(m->p, def, q->taken), def->stride);
		q->taken++;
	}
	return q->next != q->taken;
}

static enum model_result execute(struct run *r)
{
	struct chain_model *m = r->m;

	if (!check(r))
		return MODEL_FAILED;
	if (r->op == ROOST_OP_WAIT) {
		enum model_result result = wait_for(r);

		if (result != MODEL_DONE)
			return result;
	}
	if (r->op >= ROOST_OP_ENABLE && r->op <= ROOST_OP_RECV_ENABLE)
		return enable(r) ? MODEL_DONE : MODEL_FAILED;
	if (r->op == ROOST_OP_NOP || r->op == ROOST_OP_WAIT)
		return MODEL_DONE;
	if (r->def->peer == CHAIN_PEER_OUTSIDE) {
		m->open = true;
		return MODEL_DONE;
	}
	if (m->q[r->peer].failed) {
		bad(r, "its peer has failed");
		return MODEL_FAILED;
	}
	if (r->op == ROOST_OP_SEND || r->op == ROOST_OP_SEND_IMM || r->op == ROOST_OP_WRITE_IMM) {
		if (!has_receive(m, r->peer))
			return MODEL_NO_RECV;
		return message(r) ? MODEL_DONE : MODEL_FAILED;
	}
	return (is_calc(r->op) ? atomic(r) : move(r)) ? MODEL_DONE : MODEL_FAILED;
}

enum model_result model_step(struct chain_model *m, unsigned queue)
{
	struct model_queue *q = &m->q[queue];
	struct run r = {.m = m, .queue = queue, .def = &m->p->queue[queue], .index = q->next};
	enum model_result last = q->last;

	if (q->failed)
		return q->last = MODEL_FAILED;
	if (!fetch(m, queue))
		return q->last = MODEL_IDLE;
	memcpy(r.u.bytes, q->fetched + (size_t)(q->next % MODEL_FETCH) * MAX_STRIDE, r.def->stride);
	r.op = ROOST_CTRL_OP(r.u.w.ctrl);
	r.peer = r.def->peer < 0 ? queue : (unsigned)r.def->peer;
	if (m->before && last != MODEL_WAITS && last != MODEL_SLEEPS && last != MODEL_NO_RECV)
		m->before(m->ctx, queue, q->next, &r.u.w);
	q->last = execute(&r);
	if (q->last != MODEL_DONE)
		return q->last;
	m->executed++;
	q->next++;
	if (r.u.w.flags & ROOST_WQE_SIGNALED)
		q->sends++;
	return MODEL_DONE;
}

/* Advances the clock to the end of the first WAIT. Returns false if there is none. */
static bool pass_time(struct chain_model *m)
{
	uint64_t next = UINT64_MAX;

	for (unsigned i = 0; i < m->p->queues; i++)
		if (m->q[i].last == MODEL_SLEEPS && m->q[i].wake < next)
			next = m->q[i].wake;
	if (next == UINT64_MAX)
		return false;
	m->now = next;
	return true;
}

bool model_run(struct chain_model *m, uint64_t max)
{
	const uint64_t end = m->executed + max;
	bool moved = true;

	while (moved) {
		moved = false;
		for (unsigned i = 0; i < m->p->queues; i++)
			for (unsigned n = 0; n < MODEL_FETCH; n++) {
				if (m->executed == end)
					return false;
				if (model_step(m, i) != MODEL_DONE)
					break;
				moved = true;
			}
		moved = moved || pass_time(m);
	}
	return true;
}
