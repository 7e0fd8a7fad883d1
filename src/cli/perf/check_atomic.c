/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The atomics of the checker. Each QP works on its own counters, so a model that both sides compute
 * predicts every returned value. All QPs also add to one shared counter, whose returned values must
 * all differ. Counters and returned values are separated by background bytes, which must not
 * change.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/perf/check.h"

#define COUNTERS      8	 /* counters of a QP */
#define SHARED_EVERY  8	 /* one in this number of CHECK_ATOMICS uses the shared counter */
#define RESULT_STRIDE 32 /* distance of counters, or of returned values; guard bytes between them */

uint64_t check_atomic_bytes(const struct perf_job *job)
{
	uint64_t counters = job->qps * COUNTERS + 1, results = job->qps * CHECK_ATOMICS;

	return (counters > results ? counters : results) * RESULT_STRIDE + RESULT_STRIDE;
}

struct atomic_op {
	bool swap, shared;
	uint64_t counter;      /* offset in the target's tx */
	uint64_t add, compare; /* add is the new value of a compare-and-swap */
};

static uint64_t counter_at(const struct perf_job *job, unsigned q, unsigned c)
{
	return (q * COUNTERS + c) * RESULT_STRIDE + 8;
}

static uint64_t shared_at(const struct perf_job *job)
{
	return job->qps * COUNTERS * RESULT_STRIDE + 8;
}

static uint64_t result_at(unsigned q, unsigned j)
{
	return (q * CHECK_ATOMICS + j) * RESULT_STRIDE + 8;
}

/*
 * Computes operation j of QP q. `model` has the counters of the QP and is updated. Returns the
 * value that the operation must find.
 */
static uint64_t atomic_plan(const struct perf_job *job, uint64_t round, unsigned q, unsigned j,
			    uint64_t *model, struct atomic_op *op)
{
	unsigned c = (j * 5 + (unsigned)round) % COUNTERS;
	uint64_t found = model[c];

	*op = (struct atomic_op){.counter = counter_at(job, q, c)};
	if (j % SHARED_EVERY == SHARED_EVERY - 1) {
		op->shared = true;
		op->counter = shared_at(job);
		op->add = 1;
		return 0;
	}
	op->add = pattern_mix(round << 32 | q << 8 | j);
	op->swap = j % 3 == 2;
	if (!op->swap) {
		model[c] += op->add;
	} else if (j % 2) {
		op->compare = found;
		model[c] = op->add;
	} else {
		op->compare = ~found; /* the operation must not change the counter */
	}
	return found;
}

static void start_model(const struct perf_job *job, uint64_t round, unsigned q, uint64_t *model)
{
	for (unsigned c = 0; c < COUNTERS; c++)
		model[c] = pattern_word(check_key(job, round, CHECK_COUNTERS, q), c);
}

void check_atomic_prepare(struct perf_link *l, uint64_t round)
{
	uint64_t model[COUNTERS], zero = 0;

	check_background(l, l->tx, round);
	for (unsigned q = 0; q < l->num_qps; q++) {
		start_model(&l->job, round, q, model);
		for (unsigned c = 0; c < COUNTERS; c++)
			memcpy(l->tx + counter_at(&l->job, q, c), &model[c], 8);
	}
	memcpy(l->tx + shared_at(&l->job), &zero, 8);
}

/* Returns true if the 8 bytes at `at` are `value`. Overwrites them with the background. */
static bool expect(uint8_t *region, uint64_t at, uint64_t value, uint64_t back)
{
	uint64_t v;

	memcpy(&v, region + at, 8);
	pattern_fill(region + at, 8, back, at); /* afterwards the whole region must be background */
	return v == value;
}

int check_atomic_verify(struct perf_link *l, uint64_t round)
{
	uint64_t model[COUNTERS], back = check_key(&l->job, round, CHECK_BACKGROUND, 0), d;
	struct atomic_op op;

	for (unsigned q = 0; q < l->num_qps; q++) {
		start_model(&l->job, round, q, model);
		for (unsigned j = 0; j < CHECK_ATOMICS; j++)
			atomic_plan(&l->job, round, q, j, model, &op);
		for (unsigned c = 0; c < COUNTERS; c++) {
			if (!expect(l->tx, counter_at(&l->job, q, c), model[c], back))
				return perf_fail(l, -EBADMSG,
						 "WRONG COUNTER %u of QP %u, round %llu", c, q,
						 (unsigned long long)round);
		}
	}
	if (!expect(l->tx, shared_at(&l->job), l->num_qps * (CHECK_ATOMICS / SHARED_EVERY), back))
		return perf_fail(l, -EBADMSG, "WRONG SHARED COUNTER, round %llu",
				 (unsigned long long)round);
	d = pattern_differs(l->tx, check_atomic_bytes(&l->job), back, 0);
	if (d != PATTERN_SAME)
		return perf_fail(l, -EBADMSG,
				 "an atomic changed a byte beside the counters, at %llu",
				 (unsigned long long)d);
	return 0;
}

static int post_atomics(struct perf_link *l, uint64_t round, uint64_t *expected)
{
	uint64_t model[COUNTERS];
	struct atomic_op op;

	for (unsigned q = 0; q < l->num_qps; q++) {
		start_model(&l->job, round, q, model);
		for (unsigned j = 0; j < CHECK_ATOMICS; j++) {
			struct ibv_sge sge = {(uintptr_t)(l->rx + result_at(q, j)), 8, l->mr->lkey};
			struct ibv_send_wr wr = {.wr_id = q, .sg_list = &sge, .num_sge = 1}, *bad;
			int rc;

			expected[q * CHECK_ATOMICS + j] =
				atomic_plan(&l->job, round, q, j, model, &op);
			wr.send_flags = IBV_SEND_SIGNALED;
			wr.opcode =
				op.swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
			wr.wr.atomic.remote_addr = l->remote_tx + op.counter;
			wr.wr.atomic.rkey = l->remote_rkey;
			wr.wr.atomic.compare_add = op.swap ? op.compare : op.add;
			wr.wr.atomic.swap = op.add;
			rc = ibv_post_send(l->qps[q].qp, &wr, &bad);
			if (rc != 0)
				return perf_fail(l, -EIO, "can't post: %s",
						 strerror(rc < 0 ? errno : rc));
			l->qps[q].posted++;
		}
	}
	return 0;
}

/*
 * Verifies the shared counter: every value below the total was returned exactly once. `seen` has a
 * zeroed byte for each.
 */
static int verify_results(struct perf_link *l, uint64_t round, const uint64_t *expected,
			  uint8_t *seen)
{
	uint64_t back = check_key(&l->job, round, CHECK_BACKGROUND, 0), v,
		 total = l->num_qps * (CHECK_ATOMICS / SHARED_EVERY), d;

	for (unsigned k = 0; k < l->num_qps * CHECK_ATOMICS; k++) {
		uint64_t at = result_at(k / CHECK_ATOMICS, k % CHECK_ATOMICS);

		memcpy(&v, l->rx + at, 8);
		if (k % CHECK_ATOMICS % SHARED_EVERY == SHARED_EVERY - 1) {
			if (v >= total || seen[v]++)
				return perf_fail(
					l, -EBADMSG,
					"the shared counter gave %llu twice, or out of range; round %llu",
					(unsigned long long)v, (unsigned long long)round);
			expect(l->rx, at, v, back);
		} else if (!expect(l->rx, at, expected[k], back)) {
			return perf_fail(
				l, -EBADMSG,
				"WRONG RESULT of atomic %u of QP %u, round %llu, seed %llu",
				k % CHECK_ATOMICS, k / CHECK_ATOMICS, (unsigned long long)round,
				(unsigned long long)l->job.seed);
		}
	}
	d = pattern_differs(l->rx, check_atomic_bytes(&l->job), back, 0);
	if (d != PATTERN_SAME)
		return perf_fail(l, -EBADMSG,
				 "an atomic's result touched a byte beside its place, at %llu",
				 (unsigned long long)d);
	return 0;
}

int check_atomic_round(struct perf_link *l, uint64_t round, struct progress *p)
{
	uint64_t *expected = calloc(l->num_qps * CHECK_ATOMICS, sizeof(*expected));
	uint8_t *seen = calloc(l->num_qps, CHECK_ATOMICS / SHARED_EVERY);
	int rc = expected && seen ? 0 : perf_fail(l, -ENOMEM, "out of memory");

	check_background(l, l->rx, round);
	if (rc == 0)
		rc = post_atomics(l, round, expected);
	if (rc == 0)
		rc = check_wait_all(l, p, (double)round);
	if (rc == 0)
		rc = verify_results(l, round, expected, seen);
	free(expected);
	free(seen);
	return rc;
}
