/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Latency, by four definitions (roost-perf(1)), one message at a time:
 *
 *	pingpong	half a round trip of two WRITEs (both sides poll the last byte of their
 *			memory) or of two SENDs
 *	completion	from the post to its completion at the initiator
 *	firstbyte	from the post until the first byte is in its destination memory. For a
 *			WRITE, another process sees this byte. Both processes use one clock, so
 *			it requires --local. For a READ, it is the initiator's own memory
 *	execute		from the doorbell to the completion, between two QPs of one NIC
 *
 * A side that polls memory also polls the completion queue in between, which drives the NIC from
 * this thread. With a passive target it polls memory only.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "cli/perf/perf.h"

#define WARM_UP	       1000 /* messages that are not measured */
#define STUCK_NS       60000000000u
#define SPINS_PER_LOOK 1024 /* polls between readings of the clock, or polls of the oob */
#define LINE	       64   /* bytes */
#define PING_DEPTH     8    /* pings that may be posted before their own completions are polled */

struct lat {
	struct perf_link *l;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct perf_shared *shared;
	uint64_t seq; /* messages of this side so far */
	struct rng rng;
};

static const enum ibv_wr_opcode wr_opcodes[] = {
	[PERF_WRITE] = IBV_WR_RDMA_WRITE,
	[PERF_READ] = IBV_WR_RDMA_READ,
	[PERF_SEND] = IBV_WR_SEND,
	[PERF_ATOMIC] = IBV_WR_ATOMIC_FETCH_AND_ADD,
};

static void build(struct lat *t, struct perf_link *l)
{
	enum perf_op op = l->job.op;
	bool out = op == PERF_WRITE || op == PERF_SEND;

	memset(t, 0, sizeof(*t));
	t->l = l;
	rng_seed(&t->rng, l->job.seed);
	if (op == PERF_RPC)
		return; /* perf_rpc_post() posts calls */
	t->sge = (struct ibv_sge){(uintptr_t)(out ? l->tx : l->rx), (uint32_t)l->job.size,
				  l->mr->lkey};
	t->wr.sg_list = &t->sge;
	t->wr.num_sge = l->job.size ? 1 : 0;
	t->wr.opcode = wr_opcodes[op];
	t->wr.send_flags = IBV_SEND_SIGNALED;
	if (out && l->job.size <= l->job.inline_max)
		t->wr.send_flags |= IBV_SEND_INLINE;
	if (op == PERF_ATOMIC) {
		t->wr.wr.atomic.remote_addr = l->remote_tx;
		t->wr.wr.atomic.rkey = l->remote_rkey;
		t->wr.wr.atomic.compare_add = 1;
	} else {
		t->wr.wr.rdma.remote_addr = op == PERF_READ ? l->remote_tx : l->remote_rx;
		t->wr.wr.rdma.rkey = l->remote_rkey;
	}
}

static int post(struct lat *t)
{
	struct perf_qp *q = &t->l->qps[0];
	struct ibv_send_wr *bad;
	int rc = t->l->calls ? perf_rpc_post(t->l, 0) : ibv_post_send(q->qp, &t->wr, &bad);

	if (rc != 0)
		return perf_fail(t->l, -EIO, "can't post: %s", strerror(rc < 0 ? errno : rc));
	q->posted++;
	t->seq++;
	return 0;
}

static int stuck(struct perf_link *l, uint64_t since, const char *what)
{
	if (clock_ns() - since <= (uint64_t)STUCK_NS * oob_timeout_scale())
		return 0;
	return perf_fail(l, -ETIMEDOUT, "no %s for a minute: the other side does not answer", what);
}

/* Polls, or sleeps, until all posted work requests are complete. */
static int wait_completion(struct lat *t, uint64_t since)
{
	struct perf_link *l = t->l;
	struct perf_qp *q = &l->qps[0];
	unsigned spins = 0;
	int n, rc;

	while (q->completed < q->posted) {
		n = perf_reap(l);
		if (n < 0)
			return n;
		if (n == 0 && l->job.events) {
			rc = perf_sleep(l, false);
			if (rc < 0)
				return rc;
		}
		if (++spins % SPINS_PER_LOOK == 0) {
			rc = stuck(l, since, "completion");
			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec ts = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	nanosleep(&ts, NULL);
}

static uint8_t look_at(const uint8_t *p)
{
	uint8_t v = *(const volatile uint8_t *)p;

	atomic_thread_fence(memory_order_acquire);
	return v;
}

/* Returns the mark of a message. It is never 0, since the memory is 0 at the start. */
static uint8_t mark(uint64_t seq)
{
	return (uint8_t)(seq % 255 + 1);
}

/* Chooses a random address for the next READ, before its time begins. */
static void choose_address(struct lat *t)
{
	const struct perf_job *job = &t->l->job;
	uint64_t lines = (job->memory - job->size) / LINE + 1;

	t->wr.wr.rdma.remote_addr = t->l->remote_tx + rng_below(&t->rng, lines) * LINE;
}

static int one_completion(struct lat *t, uint64_t *ns)
{
	uint64_t t0 = clock_ns();
	int rc = post(t);

	if (rc == 0)
		rc = wait_completion(t, t0);
	*ns = clock_ns() - t0;
	return rc;
}

static int one_firstbyte_read(struct lat *t, uint64_t *ns)
{
	struct perf_link *l = t->l;
	uint64_t t0;
	int n, rc;

	l->rx[0] = (uint8_t)~0x5a; /* the peer's memory is filled with 0x5a */
	t0 = clock_ns();
	rc = post(t);
	while (rc == 0 && look_at(l->rx) != 0x5a) {
		n = perf_reap(l);
		rc = n < 0 ? n : 0;
	}
	*ns = clock_ns() - t0;
	return rc < 0 ? rc : wait_completion(t, t0);
}

static int one_firstbyte_write(struct lat *t, uint64_t *ns)
{
	struct perf_link *l = t->l;
	struct perf_shared *s = t->shared;
	uint64_t t0, want = t->seq + 1;
	unsigned spins = 0;
	int rc;

	l->tx[0] = mark(want);
	t0 = clock_ns();
	rc = post(t);
	if (rc == 0)
		rc = wait_completion(t, t0);
	while (rc == 0 && atomic_load_explicit(&s->seq, memory_order_acquire) != want) {
		if (++spins % SPINS_PER_LOOK == 0)
			rc = stuck(l, t0, "sign of the target");
	}
	*ns = atomic_load_explicit(&s->stamp, memory_order_relaxed) - t0;
	return rc;
}

/*
 * Measures half the time until the answer arrives. The next ping may be sent before the completion
 * of this ping arrives.
 */
static int one_pingpong(struct lat *t, uint64_t *ns)
{
	struct perf_link *l = t->l;
	struct perf_qp *q = &l->qps[0];
	uint64_t t0, want = t->seq + 1, recvs = l->recvs;
	bool writes = l->job.op == PERF_WRITE;
	const uint8_t *last = l->rx + (l->job.size ? l->job.size - 1 : 0);
	unsigned spins = 0;
	int n, rc;

	if (writes)
		l->tx[l->job.size - 1] = mark(want);
	t0 = clock_ns();
	rc = post(t);
	while (rc == 0 && (writes ? look_at(last) != mark(want) : l->recvs == recvs)) {
		n = perf_reap(l);
		rc = n < 0 ? n : 0;
		if (n == 0 && l->job.events)
			rc = perf_sleep(l, false);
		if (rc == 0 && ++spins % SPINS_PER_LOOK == 0)
			rc = stuck(l, t0, "answer");
	}
	*ns = (clock_ns() - t0) / 2;
	return rc == 0 && q->posted - q->completed >= PING_DEPTH ? wait_completion(t, t0) : rc;
}

typedef int (*measure_fn)(struct lat *t, uint64_t *ns);

static measure_fn measure_of(const struct perf_job *job)
{
	switch (job->lat) {
	case PERF_PINGPONG:
		return one_pingpong;
	case PERF_FIRSTBYTE:
		return job->op == PERF_READ ? one_firstbyte_read : one_firstbyte_write;
	default:
		return one_completion;
	}
}

static int measure(struct lat *t, struct perf_result *r, struct progress *p)
{
	struct perf_link *l = t->l;
	measure_fn one = measure_of(&l->job);
	uint64_t start = clock_ns(), end, ns, n = 0, now, counted_from = start;
	/* --gap measures a sleeping NIC, which needs no warm-up. Large messages warm up by time. */
	uint64_t warm = l->job.gap ? 2 : WARM_UP, warm_until = start + l->job.duration / 10;
	int rc;

	end = l->job.iters ? UINT64_MAX : start + l->job.duration + l->job.duration / 10;
	for (;;) {
		if (l->job.gap)
			sleep_ns(l->job.gap);
		if (l->job.memory)
			choose_address(t);
		rc = one(t, &ns);
		if (rc < 0)
			return rc;
		n++;
		if (n <= warm) {
			counted_from = clock_ns();
			if (!l->job.iters && counted_from > warm_until)
				warm = n;
			continue;
		}
		hist_add(r->hist, ns);
		if (l->job.iters && r->hist->count >= l->job.iters)
			break;
		if (!l->job.iters || (p && p->on && n % 256 == 0)) {
			now = clock_ns();
			if (now >= end)
				break;
			if (p)
				progress_at(p,
					    l->job.iters ? (double)r->hist->count /
								   (double)l->job.iters * p->total
							 : (double)(now - start) / 1e9,
					    NULL);
		}
	}
	r->messages = r->hist->count;
	r->seconds = (double)(clock_ns() - counted_from) / 1e9;
	return wait_completion(t, clock_ns());
}

int perf_latency(struct perf_link *l, struct perf_result *r, struct perf_shared *shared,
		 struct progress *p)
{
	struct lat t;

	build(&t, l);
	t.shared = shared;
	if (l->job.lat == PERF_FIRSTBYTE && l->job.op == PERF_WRITE && !shared)
		return perf_fail(l, -EINVAL,
				 "firstbyte of a WRITE needs one clock on both sides: use --local");
	if (shared)
		atomic_store(&shared->seq, 0); /* it may have the value of the previous job */
	r->hist = calloc(1, sizeof(*r->hist));
	if (!r->hist)
		return perf_fail(l, -ENOMEM, "out of memory");
	return measure(&t, r, p);
}

static int target_pingpong(struct lat *t)
{
	struct perf_link *l = t->l;
	struct perf_qp *q = &l->qps[0];
	bool writes = l->job.op == PERF_WRITE;
	const uint8_t *last = l->rx + (l->job.size ? l->job.size - 1 : 0);
	uint64_t answered = 0;
	unsigned spins = 0;
	int n, rc = 0;

	while (rc == 0) {
		n = perf_reap(l);
		if (n < 0)
			return n;
		if (writes ? look_at(last) != mark(t->seq + 1) : l->recvs == answered) {
			if (++spins % SPINS_PER_LOOK == 0 && oob_ready(l->oob))
				return 0;
			continue;
		}
		spins = 0;
		answered++;
		if (writes)
			l->tx[l->job.size - 1] = mark(t->seq + 1);
		rc = post(t);
		if (rc == 0 && q->posted - q->completed >= PING_DEPTH)
			rc = wait_completion(t, clock_ns());
	}
	return rc;
}

/* Answers SENDs, and sleeps in between. */
static int target_pingpong_sleeping(struct lat *t)
{
	struct perf_link *l = t->l;
	struct perf_qp *q = &l->qps[0];
	uint64_t answered = 0;
	int n, rc = 0;

	while (rc == 0) {
		n = perf_reap(l);
		if (n < 0)
			return n;
		if (l->recvs == answered) {
			rc = perf_sleep(l, true);
			if (rc > 0)
				return 0;
			continue;
		}
		answered++;
		rc = post(t);
		if (rc == 0 && q->posted - q->completed >= PING_DEPTH)
			rc = wait_completion(t, clock_ns());
	}
	return rc;
}

static int target_firstbyte(struct lat *t)
{
	struct perf_link *l = t->l;
	unsigned spins = 0;
	uint64_t seq = 0;
	int n;

	for (;;) {
		if (look_at(l->rx) == mark(seq + 1)) {
			atomic_store_explicit(&t->shared->stamp, clock_ns(), memory_order_relaxed);
			atomic_store_explicit(&t->shared->seq, ++seq, memory_order_release);
			spins = 0;
		}
		if (!l->job.passive) {
			n = perf_reap(l);
			if (n < 0)
				return n;
		}
		if (++spins % SPINS_PER_LOOK == 0 && oob_ready(l->oob))
			return 0;
	}
}

int perf_latency_target(struct perf_link *l, struct perf_shared *shared)
{
	struct lat t;

	build(&t, l);
	t.shared = shared;
	if (l->job.lat == PERF_PINGPONG)
		return l->job.events ? target_pingpong_sleeping(&t) : target_pingpong(&t);
	if (l->job.lat == PERF_FIRSTBYTE && l->job.op == PERF_WRITE) {
		if (!shared)
			return perf_fail(
				l, -EINVAL,
				"firstbyte of a WRITE needs one clock on both sides: use --local");
		atomic_store(&shared->seq, 0);
		return target_firstbyte(&t);
	}
	return perf_serve(l);
}

/* Receives for SENDs to the loop-back peer are reposted by hand: only one link is polled. */
static int loop_back(struct perf_link *a, struct perf_link *b)
{
	struct oob none;
	json_t *da = perf_link_describe(a), *db = perf_link_describe(b);
	int rc;

	oob_init(&none, -1);
	rc = perf_link_connect(a, &none, db);
	if (rc == 0) {
		rc = perf_link_connect(b, &none, da);
		if (rc < 0)
			perf_fail(a, rc, "%s", b->err);
	}
	json_decref(da);
	json_decref(db);
	return rc;
}

static int execute_sends(struct lat *t, struct perf_link *b, uint64_t *ns)
{
	int n, rc = one_completion(t, ns);

	/* The completions of the receiver are polled outside of the measured time. */
	n = perf_reap(b);
	if (n < 0)
		return perf_fail(t->l, n, "%s", b->err);
	return rc;
}

static int execute(struct lat *t, struct perf_link *b, struct perf_result *r, struct progress *p)
{
	struct perf_link *a = t->l;
	uint64_t start = clock_ns(), ns, n, now;
	int rc;

	for (n = 0;; n++) {
		if (a->job.gap)
			sleep_ns(a->job.gap);
		rc = a->job.op == PERF_SEND ? execute_sends(t, b, &ns) : one_completion(t, &ns);
		if (rc < 0)
			return rc;
		now = clock_ns();
		if (n >= (a->job.gap ? 2 : WARM_UP))
			hist_add(r->hist, ns);
		if (a->job.iters ? r->hist->count >= a->job.iters : now - start >= a->job.duration)
			break;
		if (p)
			progress_at(p, (double)(now - start) / 1e9, NULL);
	}
	r->messages = r->hist->count;
	r->seconds = (double)(clock_ns() - start) / 1e9;
	return 0;
}

int perf_execute(struct perf_nic *nic, const struct perf_job *job, struct perf_result *r,
		 struct progress *p, char *err)
{
	struct perf_link a, b;
	struct lat t;
	int rc;

	memset(&b, 0, sizeof(b));
	r->hist = calloc(1, sizeof(*r->hist));
	rc = perf_link_create(&a, nic, job, NULL);
	if (rc == 0) {
		rc = perf_link_create(&b, nic, job, NULL);
		if (rc < 0)
			perf_fail(&a, rc, "%s", b.err);
	}
	if (rc == 0)
		rc = loop_back(&a, &b);
	if (rc == 0)
		rc = perf_link_fill_recvs(&b);
	if (rc == 0) {
		r->mtu = a.job.mtu;
		build(&t, &a);
		rc = execute(&t, &b, r, p);
	}
	if (rc < 0)
		snprintf(err, PERF_ERR_LEN, "%s", a.err);
	perf_link_destroy(&a);
	perf_link_destroy(&b);
	return rc;
}
