/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checker: compares every byte of every message, and verifies that no byte beside it changed.
 *
 * One round transfers a message of each size at the same time, over all QPs in turn. The patterns
 * depend on seed, round, message and offset, so the checker detects a byte from another place,
 * message or round. Each message lies between guards, and starts at another alignment in each
 * round. Memory that is the target of writes is filled with its own background before. WRITEs and
 * SENDs are sent plain, with immediate data, inline, and gathered from several pieces; READs are
 * scattered.
 *
 *	initiator	  target
 *	round    ------->	prepares its memory, posts receives
 *	         <-------  ready
 *	   ... RDMA ...
 *	verify   ------->	(WRITE, SEND, atomics) verifies its memory and its completions
 *	         <-------  verdict
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/perf/check.h"

#define GUARD	   64
#define LINE	   64
#define MIN_RATE   1000000 /* bytes per second; a slower round has failed */
#define VERDICT_NS 600000000000u

uint64_t check_key(const struct perf_job *job, uint64_t round, enum check_pattern kind, unsigned i)
{
	return pattern_mix(job->seed * 4 + kind) ^ pattern_mix(round << 16 | i);
}

/* ---- layout, the same on both sides ---- */

struct slot {
	uint64_t base, end; /* bounds including the guards, in tx or rx */
	uint64_t at, len;   /* the message */
};

static uint64_t slot_span(uint64_t len)
{
	return (len + 2 * GUARD + LINE + LINE - 1) / LINE * LINE;
}

static struct slot slot_of(const struct perf_job *job, uint64_t round, unsigned i)
{
	struct slot s = {.len = job->sizes[i]};

	for (unsigned k = 0; k < i; k++)
		s.base += slot_span(job->sizes[k]);
	s.end = s.base + slot_span(s.len);
	s.at = s.base + GUARD + (round * 7 + i * 13) % LINE;
	return s;
}

static uint64_t data_bytes(const struct perf_job *job)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < job->num_sizes; i++)
		sum += job->sizes[i];
	return sum;
}

static uint64_t region_bytes(const struct perf_job *job)
{
	uint64_t sum = 0;

	if (job->op == PERF_ATOMIC)
		return check_atomic_bytes(job);
	for (unsigned i = 0; i < job->num_sizes; i++)
		sum += slot_span(job->sizes[i]);
	return sum;
}

uint64_t perf_check_memory(const struct perf_job *job)
{
	return region_bytes(job);
}

void check_background(struct perf_link *l, uint8_t *region, uint64_t round)
{
	pattern_fill(region, region_bytes(&l->job), check_key(&l->job, round, CHECK_BACKGROUND, 0),
		     0);
}

static void fill_data(struct perf_link *l, uint8_t *region, uint64_t round)
{
	for (unsigned i = 0; i < l->job.num_sizes; i++) {
		struct slot s = slot_of(&l->job, round, i);

		pattern_fill(region + s.at, s.len, check_key(&l->job, round, CHECK_DATA, i), 0);
	}
}

static int verify_slot(struct perf_link *l, const uint8_t *region, uint64_t round, unsigned i)
{
	struct slot s = slot_of(&l->job, round, i);
	uint64_t back = check_key(&l->job, round, CHECK_BACKGROUND, 0), d;
	const char *where = "in the message";

	d = pattern_differs(region + s.at, s.len, check_key(&l->job, round, CHECK_DATA, i), 0);
	if (d == PATTERN_SAME) {
		d = pattern_differs(region + s.base, s.at - s.base, back, s.base);
		where = "in the guard before the message";
	}
	if (d == PATTERN_SAME) {
		d = pattern_differs(region + s.at + s.len, s.end - s.at - s.len, back,
				    s.at + s.len);
		where = "in the guard after the message";
	}
	if (d == PATTERN_SAME)
		return 0;
	return perf_fail(l, -EBADMSG,
			 "WRONG BYTE at offset %llu %s: %s of %llu bytes, round %llu, seed %llu",
			 (unsigned long long)d, where, perf_op_names[l->job.op],
			 (unsigned long long)s.len, (unsigned long long)round,
			 (unsigned long long)l->job.seed);
}

static int verify_region(struct perf_link *l, const uint8_t *region, uint64_t round)
{
	for (unsigned i = 0; i < l->job.num_sizes; i++) {
		int rc = verify_slot(l, region, round, i);

		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- variants of a message ---- */

struct flavor {
	bool imm, inl;
	unsigned pieces;
};

static struct flavor flavor_of(const struct perf_job *job, uint64_t round, unsigned i)
{
	unsigned kind = (unsigned)(round + i) % 4;
	struct flavor f = {.pieces = 1};

	f.imm = job->op != PERF_READ && (kind == 1 || kind == 3);
	f.inl = job->op != PERF_READ && kind >= 2 && job->sizes[i] <= job->inline_max;
	f.pieces = kind >= 2 ? 3 : 1;
	return f;
}

static uint32_t immediate(uint64_t round, unsigned i)
{
	return (uint32_t)(round << 8 | i) * 2654435761u;
}

/*
 * Divides [at, at + len) into at most `pieces` entries. No entry is empty, since a length of 0 has
 * another meaning.
 */
static int cut(struct ibv_sge *sge, unsigned pieces, uint8_t *at, uint64_t len, uint32_t lkey)
{
	uint64_t take;
	int n = 0;

	while (len > 0) {
		take = pieces > 1 ? len / 3 : len;
		if (take == 0)
			take = len;
		sge[n++] = (struct ibv_sge){(uintptr_t)at, (uint32_t)take, lkey};
		at += take;
		len -= take;
		if (pieces > 1)
			pieces--;
	}
	return n;
}

static int post_message(struct perf_link *l, uint64_t round, unsigned i)
{
	static const enum ibv_wr_opcode plain[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						   IBV_WR_SEND};
	struct slot s = slot_of(&l->job, round, i);
	struct flavor f = flavor_of(&l->job, round, i);
	unsigned q = i % l->num_qps;
	uint8_t *local = (l->job.op == PERF_READ ? l->rx : l->tx) + s.at;
	struct ibv_sge sge[4];
	struct ibv_send_wr wr = {.wr_id = q, .sg_list = sge, .opcode = plain[l->job.op]}, *bad;
	int rc;

	wr.send_flags = IBV_SEND_SIGNALED | (f.inl ? IBV_SEND_INLINE : 0);
	wr.num_sge = cut(sge, f.pieces, local, s.len, l->mr->lkey);
	wr.wr.rdma.remote_addr = (l->job.op == PERF_READ ? l->remote_tx : l->remote_rx) + s.at;
	wr.wr.rdma.rkey = l->remote_rkey;
	if (f.imm) {
		wr.opcode =
			l->job.op == PERF_SEND ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.imm_data = htobe32(immediate(round, i));
	}
	rc = ibv_post_send(l->qps[q].qp, &wr, &bad);
	if (rc != 0)
		return perf_fail(l, -EIO, "can't post: %s", strerror(rc < 0 ? errno : rc));
	l->qps[q].posted++;
	return 0;
}

static bool takes_recv(const struct perf_job *job, uint64_t round, unsigned i)
{
	return job->op == PERF_SEND || (job->op == PERF_WRITE && flavor_of(job, round, i).imm);
}

static int post_recvs(struct perf_link *l, uint64_t round)
{
	struct ibv_sge sge[4];
	struct ibv_recv_wr wr = {.sg_list = sge}, *bad;
	int rc;

	for (unsigned i = 0; i < l->job.num_sizes; i++) {
		struct slot s = slot_of(&l->job, round, i);

		if (!takes_recv(&l->job, round, i))
			continue;
		wr.wr_id = PERF_RECV_TAG | i;
		wr.num_sge = 0;
		if (l->job.op == PERF_SEND)
			wr.num_sge = cut(sge, 1 + (unsigned)(round + i) % 2 * 2, l->rx + s.at,
					 s.len, l->mr->lkey);
		rc = ibv_post_recv(l->qps[i % l->num_qps].qp, &wr, &bad);
		if (rc != 0)
			return perf_fail(l, -EIO, "can't post a receive: %s",
					 strerror(rc < 0 ? errno : rc));
	}
	return 0;
}

/* Compares a receive completion with the message that was sent. */
static int verify_recv(struct perf_link *l, const struct ibv_wc *wc, uint64_t round)
{
	unsigned i = (unsigned)(wc->wr_id & ~PERF_RECV_TAG);
	bool imm;

	if (wc->status != IBV_WC_SUCCESS)
		return perf_wc_failed(l, wc);
	imm = flavor_of(&l->job, round, i).imm;
	if (wc->byte_len != (uint32_t)l->job.sizes[i])
		return perf_fail(l, -EBADMSG, "WRONG LENGTH: a receive says %u, %u was sent",
				 wc->byte_len, (unsigned)l->job.sizes[i]);
	if (!!(wc->wc_flags & IBV_WC_WITH_IMM) != imm ||
	    (imm && be32toh(wc->imm_data) != immediate(round, i)))
		return perf_fail(l, -EBADMSG,
				 "WRONG IMMEDIATE DATA: message of %u bytes, round %llu",
				 (unsigned)l->job.sizes[i], (unsigned long long)round);
	return 0;
}

static uint64_t outstanding(const struct perf_link *l)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < l->num_qps; i++)
		n += l->qps[i].posted - l->qps[i].completed;
	return n;
}

int check_wait_all(struct perf_link *l, struct progress *p, double done)
{
	uint64_t start = clock_ns(), limit, idle = 0;
	int n, rc;

	limit = (60 + data_bytes(&l->job) / MIN_RATE) * 1000000000u * oob_timeout_scale();
	while (outstanding(l) > 0) {
		n = perf_reap(l);
		if (n < 0)
			return n;
		if (n == 0 && l->job.events) {
			rc = perf_sleep(l, false);
			if (rc < 0)
				return rc;
		}
		if (++idle % 4096 == 0) {
			if (clock_ns() - start > limit)
				return perf_fail(l, -ETIMEDOUT, "round not complete after %llu s",
						 (unsigned long long)(limit / 1000000000));
			progress_at(p, done, NULL);
		}
	}
	return 0;
}

/* ---- rounds ---- */

static int ask(struct perf_link *l, const char *question, uint64_t round, const char *answer)
{
	json_t *msg;
	int rc;

	rc = oob_send(l->oob, json_pack("{s:s,s:I}", "type", question, "n", (json_int_t)round));
	if (rc < 0)
		return perf_fail(l, rc, "%s", l->oob->err);
	msg = oob_recv(l->oob, answer, VERDICT_NS * oob_timeout_scale());
	if (!msg)
		return perf_fail(l, -EPROTO, "%s", l->oob->err);
	json_decref(msg);
	return 0;
}

static int data_round(struct perf_link *l, uint64_t round, struct progress *p)
{
	int rc = 0;

	if (l->job.op == PERF_READ)
		check_background(l, l->rx, round);
	else
		fill_data(l, l->tx, round);
	for (unsigned i = 0; i < l->job.num_sizes && rc == 0; i++)
		rc = post_message(l, round, i);
	if (rc == 0)
		rc = check_wait_all(l, p, (double)round);
	if (rc == 0 && l->job.op == PERF_READ)
		rc = verify_region(l, l->rx, round);
	return rc;
}

int perf_check(struct perf_link *l, struct perf_result *r, struct progress *p)
{
	uint64_t start = clock_ns(), rounds = l->job.iters ? l->job.iters : 4;
	bool atomics = l->job.op == PERF_ATOMIC;
	int rc = 0;

	for (uint64_t round = 0; round < rounds && rc == 0; round++) {
		progress_at(p, (double)round, NULL);
		rc = ask(l, "round", round, "ready");
		if (rc == 0)
			rc = atomics ? check_atomic_round(l, round, p) : data_round(l, round, p);
		if (rc == 0 && l->job.op != PERF_READ)
			rc = ask(l, "verify", round, "verdict");
		if (rc == 0) {
			r->messages += atomics ? l->num_qps * CHECK_ATOMICS : l->job.num_sizes;
			r->bytes_checked +=
				atomics ? l->num_qps * CHECK_ATOMICS * 8 : data_bytes(&l->job);
		}
	}
	r->seconds = (double)(clock_ns() - start) / 1e9;
	return rc;
}

static int target_prepare(struct perf_link *l, uint64_t round)
{
	switch (l->job.op) {
	case PERF_ATOMIC:
		check_atomic_prepare(l, round);
		return 0;
	case PERF_READ:
		fill_data(l, l->tx, round);
		return 0;
	default:
		check_background(l, l->rx, round);
		return post_recvs(l, round);
	}
}

/* Polls one receive completion. Returns 1, 0 when there was none, or an error. */
static int take_recv(struct perf_link *l, uint64_t round, unsigned *due)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(l->cq, 1, &wc), rc;

	if (n == 0)
		return 0;
	if (n < 0)
		return perf_fail(l, -EIO, "the completion queue failed");
	if (*due == 0)
		return perf_fail(l, -EBADMSG, "a completion too many");
	rc = verify_recv(l, &wc, round);
	--*due;
	return rc < 0 ? rc : 1;
}

static int sleep_for_recv(struct perf_link *l, uint64_t round, unsigned *due)
{
	int rc = perf_arm(l);

	if (rc == 0)
		rc = take_recv(l, round, due);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	return perf_wait(l, true);
}

/*
 * Polls for receive completions, each once, until the initiator sends a message. All receives have
 * completed by then, since the ACKs that completed the requests of the initiator were sent after
 * them.
 */
static int target_serve(struct perf_link *l, uint64_t round)
{
	unsigned due = 0, polls = 0;
	bool end = false;
	int n, rc;

	for (unsigned i = 0; i < l->job.num_sizes; i++)
		due += l->job.op != PERF_ATOMIC && takes_recv(&l->job, round, i);
	if (l->job.passive && due == 0)
		return 0;
	for (;;) {
		n = take_recv(l, round, &due);
		if (n < 0)
			return n;
		if (n > 0)
			continue;
		/*
		 * Polls once more after the message of the initiator: an empty CQ before it does
		 * not show that completions are missing.
		 */
		if (end)
			break;
		if (l->job.events) {
			rc = sleep_for_recv(l, round, &due);
			if (rc < 0)
				return rc;
			end = rc > 0;
		} else if (++polls % 256 == 0) {
			end = oob_ready(l->oob);
		}
	}
	return due == 0 ? 0 : perf_fail(l, -EBADMSG, "%u receives did not complete", due);
}

static int target_round(struct perf_link *l, uint64_t round)
{
	json_t *msg;
	int rc;

	rc = target_prepare(l, round);
	if (rc == 0)
		rc = oob_send(l->oob, json_pack("{s:s}", "type", "ready"));
	if (rc == 0)
		rc = target_serve(l, round);
	if (rc < 0 || l->job.op == PERF_READ)
		return rc;
	msg = oob_recv(l->oob, "verify", UINT64_MAX);
	if (!msg)
		return perf_fail(l, -EPROTO, "%s", l->oob->err);
	json_decref(msg);
	rc = l->job.op == PERF_ATOMIC ? check_atomic_verify(l, round)
				      : verify_region(l, l->rx, round);
	if (rc == 0)
		rc = oob_send(l->oob, json_pack("{s:s}", "type", "verdict"));
	return rc;
}

int perf_check_target(struct perf_link *l)
{
	uint64_t rounds = l->job.iters ? l->job.iters : 4, n;
	json_t *msg;
	int rc = 0;

	for (uint64_t round = 0; round < rounds && rc == 0; round++) {
		msg = oob_recv(l->oob, "round", UINT64_MAX);
		if (!msg || !oob_get_u64(l->oob, msg, "n", UINT32_MAX, &n)) {
			json_decref(msg);
			return perf_fail(l, -EPROTO, "%s", l->oob->err);
		}
		if (n != round)
			rc = perf_fail(l, -EPROTO, "round %llu came where %llu was due",
				       (unsigned long long)n, (unsigned long long)round);
		json_decref(msg);
		if (rc == 0)
			rc = target_round(l, round);
	}
	return rc;
}
