/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bandwidth and message rate: keeps every queue full and counts completions.
 *
 * Messages are posted in waves of --cq-mod, in lists of --post-list; the last message of a wave is
 * signaled. All work requests of a wave are built once, so that the loop only posts and polls and
 * does not limit the result. In a run by time, the count starts after a warm-up and ends before the
 * queues drain. With --iters all messages count, from the first post to the last completion.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/perf/perf.h"

#define LINE	       64
#define STUCK_NS       60000000000u /* give up after this time without a completion */
#define LOOKS_AT_CLOCK 16	    /* polls without completions between clock readings */
/* below this number the window would miss a large part, so all messages count */
#define FEW_WAVES 8

struct bw {
	struct perf_link *l;
	struct ibv_send_wr *wr; /* a wave for each QP */
	struct ibv_sge *sge;
	uint32_t list;	    /* work requests for each call of ibv_post_send() */
	uint64_t quota;	    /* messages for each QP; UINT64_MAX: by time */
	uint64_t completed; /* completions of all QPs, at the last reading of the clock */
	uint64_t start, progressed, count_from, window_from, window_to, window_count;
	enum { BW_WARM, BW_COUNT, BW_DRAIN } phase;
};

static const enum ibv_wr_opcode wr_opcodes[] = {
	[PERF_WRITE] = IBV_WR_RDMA_WRITE,
	[PERF_READ] = IBV_WR_RDMA_READ,
	[PERF_SEND] = IBV_WR_SEND,
	[PERF_ATOMIC] = IBV_WR_ATOMIC_FETCH_AND_ADD,
};

/* Returns the offset of message `i` of a QP in its span. */
static uint64_t step(const struct perf_link *l, uint64_t i)
{
	uint64_t stride = (l->job.size + LINE - 1) / LINE * LINE;

	if (stride == 0)
		stride = LINE;
	return stride > l->span / 2 ? 0 : i % (l->span / stride) * stride;
}

static void build_wr(const struct perf_link *l, unsigned q, uint64_t i, struct ibv_send_wr *wr,
		     struct ibv_sge *sge)
{
	uint64_t at = q * l->span + step(l, i);
	enum perf_op op = l->job.op;

	/* READ and atomics access the peer's tx; WRITE accesses the peer's rx. */
	sge->addr = (uintptr_t)(op == PERF_WRITE || op == PERF_SEND ? l->tx : l->rx) + at;
	sge->length = (uint32_t)l->job.size;
	sge->lkey = l->mr->lkey;
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = q;
	wr->sg_list = sge;
	wr->num_sge = l->job.size ? 1 : 0;
	wr->opcode = wr_opcodes[op];
	if (l->job.size <= l->job.inline_max && (op == PERF_WRITE || op == PERF_SEND))
		wr->send_flags |= IBV_SEND_INLINE;
	if (l->job.transport == PERF_UD) {
		perf_ud_address(&l->qps[q], wr);
	} else if (op == PERF_ATOMIC) {
		wr->wr.atomic.remote_addr = l->remote_tx + at;
		wr->wr.atomic.rkey = l->remote_rkey;
		wr->wr.atomic.compare_add = 1;
	} else {
		wr->wr.rdma.remote_addr = (op == PERF_READ ? l->remote_tx : l->remote_rx) + at;
		wr->wr.rdma.rkey = l->remote_rkey;
	}
}

static int build_waves(struct bw *b)
{
	struct perf_link *l = b->l;
	uint32_t wave = l->wave;

	b->wr = calloc((size_t)l->num_qps * wave, sizeof(*b->wr));
	b->sge = calloc((size_t)l->num_qps * wave, sizeof(*b->sge));
	if (!b->wr || !b->sge)
		return perf_fail(l, -ENOMEM, "out of memory");
	for (unsigned q = 0; q < l->num_qps; q++) {
		for (uint32_t i = 0; i < wave; i++) {
			struct ibv_send_wr *wr = &b->wr[q * wave + i];

			build_wr(l, q, i, wr, &b->sge[q * wave + i]);
			if ((i + 1) % b->list != 0 && i + 1 < wave)
				wr->next = wr + 1;
			if (i + 1 == wave)
				wr->send_flags |= IBV_SEND_SIGNALED;
		}
	}
	return 0;
}

/* Posts one list on each QP that has space. Returns the number of lists posted, or an error. */
static int post_round(struct bw *b)
{
	struct perf_link *l = b->l;
	struct ibv_send_wr *bad;
	int posted = 0;

	for (unsigned i = 0; i < l->num_qps; i++) {
		struct perf_qp *q = &l->qps[i];
		uint32_t in_wave = (uint32_t)(q->posted % l->wave), n = b->list;
		int rc;

		if (in_wave == 0 && (b->phase == BW_DRAIN || q->posted >= b->quota))
			continue;
		if (n > l->wave - in_wave)
			n = l->wave - in_wave;
		if (q->posted - q->completed + n > l->job.depth)
			continue;
		rc = l->calls ? perf_rpc_post(l, i)
			      : ibv_post_send(q->qp, &b->wr[i * l->wave + in_wave], &bad);
		if (rc != 0)
			return perf_fail(l, -EIO, "can't post: %s", strerror(rc < 0 ? errno : rc));
		q->posted += n;
		posted++;
	}
	return posted;
}

static uint64_t completed(const struct perf_link *l)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < l->num_qps; i++)
		sum += l->qps[i].completed;
	return sum;
}

static bool all_done(const struct bw *b)
{
	for (unsigned i = 0; i < b->l->num_qps; i++) {
		const struct perf_qp *q = &b->l->qps[i];

		if (q->completed < q->posted || (b->phase != BW_DRAIN && q->posted < b->quota))
			return false;
	}
	return true;
}

/* Reads the clock: handles warm-up, window and end, and detects a run without progress. */
static int look(struct bw *b, struct progress *p)
{
	struct perf_link *l = b->l;
	uint64_t now = clock_ns(), done = completed(l);
	char note[64];

	if (done != b->completed) {
		b->completed = done;
		b->progressed = now;
	} else if (now - b->progressed > (uint64_t)STUCK_NS * oob_timeout_scale()) {
		return perf_fail(l, -ETIMEDOUT,
				 "no completion for %u s: the other side does not answer",
				 (unsigned)(STUCK_NS / 1000000000) * oob_timeout_scale());
	}
	if (b->quota == UINT64_MAX && b->phase == BW_WARM && now >= b->window_from) {
		b->phase = BW_COUNT;
		b->window_from = now;
		b->window_to = now + l->job.duration;
		b->count_from = done;
	} else if (b->quota == UINT64_MAX && b->phase == BW_COUNT && now >= b->window_to) {
		b->phase = BW_DRAIN;
		b->window_to = now;
		b->window_count = done - b->count_from;
	}
	if (p && p->on) {
		snprintf(note, sizeof(note), "%.1f Gbit/s",
			 (double)(done * l->job.size) * 8 / (double)(now - b->start + 1));
		progress_at(p,
			    b->quota == UINT64_MAX
				    ? (double)(now - b->start) / 1e9
				    : (double)done / (double)(b->quota * l->num_qps) * p->total,
			    note);
	}
	return 0;
}

static int run(struct bw *b, struct progress *p)
{
	struct perf_link *l = b->l;
	unsigned idle = 0;
	int posted, n, rc;

	while (!all_done(b)) {
		posted = post_round(b);
		if (posted < 0)
			return posted;
		n = perf_reap(l);
		if (n < 0)
			return n;
		if (n > 0 || ++idle % LOOKS_AT_CLOCK == 0) {
			rc = look(b, p);
			if (rc < 0)
				return rc;
		}
		if (l->job.events && n == 0 && posted == 0) {
			rc = perf_sleep(l, false);
			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

static void set_result(struct bw *b, struct perf_result *r, uint64_t end)
{
	struct perf_link *l = b->l;

	if (b->quota != UINT64_MAX ||
	    b->window_count < (uint64_t)FEW_WAVES * l->wave * l->num_qps) {
		r->messages = completed(l);
		r->seconds = (double)(end - b->start) / 1e9;
	} else {
		r->messages = b->window_count;
		r->seconds = (double)(b->window_to - b->window_from) / 1e9;
	}
}

int perf_bandwidth(struct perf_link *l, struct perf_result *r, struct progress *p)
{
	struct bw b = {.l = l};
	uint64_t warm = l->job.duration / 5 < 200000000 ? l->job.duration / 5 : 200000000;
	int rc;

	b.list = (uint32_t)l->job.post_list;
	b.quota = l->job.iters ? (l->job.iters + l->num_qps - 1) / l->num_qps : UINT64_MAX;
	rc = l->calls ? 0 : build_waves(&b);
	if (rc == 0) {
		b.start = b.progressed = clock_ns();
		b.window_from = b.start + warm;
		rc = run(&b, p);
	}
	if (rc == 0)
		set_result(&b, r, clock_ns());
	free(b.wr);
	free(b.sge);
	return rc;
}
