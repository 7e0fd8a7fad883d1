/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stream hooks: they see the bytes of a queue pair's WRITEs and SENDs as they come in or leave
 * (struct nic_stream_hook in nic_stream.h). A queue pair without hooks pays one branch per packet
 * in each direction.
 *
 *	in	in resp_write(), after all checks and the copy, so a hook sees each byte once
 *	out	at the first transmission. Rewritten packets are kept until they are acknowledged.
 *		A retransmission sends the kept copy, and the hooks do not see it
 *
 * While a hook is paused, until nic_stream_resume(), resp_write() refuses its packets and
 * stream_space() holds outgoing packets back.
 *
 *	kept	| packet | packet | ...	KEPT packets, at their PSN modulo KEPT; the packets between
 *					psn_una and psn_next are valid
 */
#include <stdlib.h>

#include "nic/dma.h"
#include "nic/requester.h"
#include "nic/stream.h"

/* The most packets in flight of a QP with rewritten bytes: twice the distance of ACK requests. */
#define KEPT	   (2 * NIC_ACKREQ_EVERY)
#define KEPT_BYTES ((size_t)KEPT * 4096)

struct qp_streams {
	struct nic_stream_hook *in[NIC_MAX_CHAIN], *out[NIC_MAX_CHAIN];
	uint8_t *kept; /* NULL: no hook rewrites */
};

/* ---- incoming ---- */

/*
 * Ends a piece for the hooks on this region, as far as they are among the first n hooks on
 * regions.
 */
static void end_piece(const struct nic *nic, uint32_t key, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (nic->region_hooks[i].key == key)
			nic->region_hooks[i].hook->end_piece(nic->region_hooks[i].hook);
}

void stream_run_in(struct nic_qp *qp, uint32_t key, const struct nic_stream_piece *piece)
{
	const struct nic *nic = qp->nic;

	for (unsigned i = 0; i < qp->num_in; i++)
		qp->streams->in[i]->bytes(qp->streams->in[i], piece);
	for (unsigned i = 0; i < nic->num_region_hooks; i++)
		if (nic->region_hooks[i].key == key)
			nic->region_hooks[i].hook->bytes(nic->region_hooks[i].hook, piece);
	end_piece(nic, key, nic->num_region_hooks);
}

void stream_abort_in(const struct nic_qp *qp, uint32_t key)
{
	end_piece(qp->nic, key, qp->nic->num_region_hooks);
}

/*
 * All PUs enter hooks in the order of the table, which changes only while all PUs are owned. So
 * they cannot deadlock.
 */
bool stream_begin_in(const struct nic_qp *qp, uint32_t key)
{
	const struct nic *nic = qp->nic;

	for (unsigned i = 0; i < qp->num_in; i++)
		if (qp->streams->in[i]->paused)
			return false;
	for (unsigned i = 0; i < nic->num_region_hooks; i++)
		if (nic->region_hooks[i].key == key &&
		    !nic->region_hooks[i].hook->begin_piece(nic->region_hooks[i].hook)) {
			end_piece(nic, key, i);
			return false;
		}
	return true;
}

bool nic_stream_has_out(const struct nic_qp *qp)
{
	return qp->num_out;
}

void nic_stream_resume(struct nic_stream_hook *hook, struct nic_qp *qp)
{
	atomic_store_explicit(&hook->paused, false, memory_order_release);
	if (qp)
		nic_schedule(qp);
}

void nic_stream_resume_remote(struct nic_stream_hook *hook, struct nic_qp *qp)
{
	nic_stream_resume(hook, NULL);
	nic_ring(qp);
}

/* ---- outgoing ---- */

void stream_run_out(struct nic_qp *qp, const struct sq_entry *e, uint8_t *data, uint32_t off,
		    uint32_t n)
{
	const struct nic_stream_piece piece = {
		.va = e->op <= ROOST_OP_WRITE_IMM ? e->wqe.raddr + off : 0,
		.data = data,
		.total = e->len,
		.off = off,
		.len = n,
		.last = off + n == e->len,
		.pu = qp->pu_index,
	};

	for (unsigned i = 0; i < qp->num_out; i++)
		if (!qp->streams->out[i]->produce)
			qp->streams->out[i]->bytes(qp->streams->out[i], &piece);
}

void stream_run_out_before(struct nic_qp *qp, const struct nic_stream_hook *hook,
			   const struct nic_stream_piece *piece)
{
	struct nic_stream_hook **out = qp->streams->out;

	for (unsigned i = 0; out[i] != hook; i++)
		out[i]->bytes(out[i], piece);
}

void stream_run_out_after(struct nic_qp *qp, const struct nic_stream_hook *hook,
			  const struct nic_stream_piece *piece)
{
	struct nic_stream_hook **out = qp->streams->out;

	unsigned i = 0;

	while (out[i] != hook)
		i++;
	while (++i < qp->num_out)
		out[i]->bytes(out[i], piece);
}

/*
 * A hook may be paused with nothing in flight, because the packet of its piece may have left
 * already.
 */
bool stream_paused(const struct nic_qp *qp)
{
	for (unsigned i = 0; i < qp->num_out; i++)
		if (qp->streams->out[i]->paused)
			return true;
	return false;
}

bool stream_space(const struct nic_qp *qp)
{
	const struct qp_sq *sq = &qp->sq;

	if (psn_before(sq->psn_next, sq->psn_max))
		return true; /* a retransmission, which the hooks have seen */
	if (stream_paused(qp))
		return false;
	return !qp->streams->kept || sq->psn_next - sq->psn_una < KEPT;
}

int stream_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t pkt, uint8_t *dst,
		  uint32_t n)
{
	uint32_t psn = e->psn + pkt, off = pkt << qp->mtu_shift;
	bool again = psn_before(psn, qp->sq.psn_max);
	uint8_t *kept = qp->streams->kept;
	int rc;

	if (kept)
		kept += (size_t)(psn % KEPT) << qp->mtu_shift;
	if (!again || !kept) {
		rc = sq_gather(qp, e, off, kept ? kept : dst, n);
		if (unlikely(rc))
			return rc;
		if (!again)
			stream_run_out(qp, e, kept ? kept : dst, off, n);
	}
	if (kept)
		memcpy(dst, kept, n);
	return 0;
}

/* ---- attach and detach ---- */

static int alloc_streams(struct nic_qp *qp)
{
	if (qp->streams)
		return 0;
	qp->streams = calloc(1, sizeof(*qp->streams));
	return qp->streams ? 0 : -ENOMEM;
}

int nic_stream_attach_in(struct nic_qp *qp, struct nic_stream_hook *hook)
{
	if (qp->type != NIC_QPT_RC && qp->type != NIC_QPT_UC)
		return -EOPNOTSUPP;
	if (qp->num_in == NIC_MAX_CHAIN)
		return -ENOSPC;
	if (alloc_streams(qp))
		return -ENOMEM;
	qp->streams->in[qp->num_in++] = hook;
	return 0;
}

static bool in_flight(const struct nic_qp *qp)
{
	if (qp->sq.una != qp->sq.fetched || resize_active(qp))
		return true;
	/* In the error state nothing is retransmitted. */
	return qp->state != NIC_QPS_ERR && qp->sq.psn_una != qp->sq.psn_max;
}

int nic_stream_attach_out(struct nic_qp *qp, struct nic_stream_hook *hook)
{
	if (qp->type != NIC_QPT_RC)
		return -EOPNOTSUPP;
	if (in_flight(qp))
		return -EBUSY;
	if (qp->chain)
		return -EOPNOTSUPP;
	if (qp->num_out == NIC_MAX_CHAIN || (hook->produce && qp->resize))
		return -ENOSPC;
	if (alloc_streams(qp))
		return -ENOMEM;
	if (hook->rewrites && !qp->streams->kept) {
		/* The pages take no memory until a packet uses them. */
		qp->streams->kept = mem_alloc_pages(KEPT_BYTES);
		if (!qp->streams->kept)
			return -ENOMEM;
	}
	if (hook->produce && resize_begin(qp, hook))
		return -ENOMEM;
	qp->streams->out[qp->num_out++] = hook;
	return 0;
}

/* Returns the position of the hook, or `num` if the hook is not attached here. */
static unsigned find(struct nic_stream_hook *const *chain, unsigned num,
		     const struct nic_stream_hook *hook)
{
	unsigned i = 0;

	while (i < num && chain[i] != hook)
		i++;
	return i;
}

static void remove_hook(struct nic_stream_hook **chain, uint8_t *num, unsigned at)
{
	memmove(&chain[at], &chain[at + 1], (--*num - at) * sizeof(chain[0]));
}

int nic_stream_detach(struct nic_qp *qp, struct nic_stream_hook *hook)
{
	struct qp_streams *s = qp->streams;
	bool rewritten = false;
	unsigned at;

	if (!s)
		return -ENOENT;
	at = find(s->in, qp->num_in, hook);
	if (at < qp->num_in) {
		remove_hook(s->in, &qp->num_in, at);
		return 0;
	}
	at = find(s->out, qp->num_out, hook);
	if (at == qp->num_out)
		return -ENOENT;
	if ((hook->rewrites || hook->produce) && in_flight(qp))
		return -EBUSY;
	remove_hook(s->out, &qp->num_out, at);
	nic_schedule(qp); /* the hook may have held packets back */
	if (hook->produce)
		resize_end(qp);
	for (unsigned i = 0; i < qp->num_out; i++)
		rewritten |= s->out[i]->rewrites;
	if (s->kept && !rewritten) {
		mem_free_pages(s->kept, KEPT_BYTES);
		s->kept = NULL;
	}
	return 0;
}

void stream_detach(struct nic_qp *qp)
{
	struct qp_streams *s = qp->streams;

	if (!s)
		return;
	if (qp->resize)
		resize_reset(qp);
	for (unsigned i = 0; i < qp->num_in; i++)
		s->in[i]->gone(s->in[i]);
	for (unsigned i = 0; i < qp->num_out; i++)
		s->out[i]->gone(s->out[i]);
	qp->num_in = qp->num_out = 0;
	if (qp->resize)
		resize_end(qp);
	if (s->kept)
		mem_free_pages(s->kept, KEPT_BYTES);
	free(s);
	qp->streams = NULL;
}

int nic_stream_attach_region(struct nic *nic, uint32_t key, struct nic_stream_hook *hook)
{
	if (nic->num_region_hooks == NIC_MAX_REGION_HOOKS)
		return -ENOSPC;
	nic->region_hooks[nic->num_region_hooks].key = key;
	nic->region_hooks[nic->num_region_hooks++].hook = hook;
	return 0;
}

bool stream_on_region(const struct nic *nic, uint32_t key)
{
	for (unsigned i = 0; i < nic->num_region_hooks; i++)
		if (key == nic->region_hooks[i].key)
			return true;
	return false;
}

int nic_stream_detach_region(struct nic *nic, struct nic_stream_hook *hook)
{
	for (unsigned i = 0; i < nic->num_region_hooks; i++) {
		if (nic->region_hooks[i].hook != hook)
			continue;
		nic->region_hooks[i] = nic->region_hooks[--nic->num_region_hooks];
		return 0;
	}
	return -ENOENT;
}

void nic_stream_region_forget(struct nic *nic, uint32_t key)
{
	for (unsigned i = nic->num_region_hooks; i-- > 0;)
		if (key == nic->region_hooks[i].key)
			nic->region_hooks[i] = nic->region_hooks[--nic->num_region_hooks];
}
