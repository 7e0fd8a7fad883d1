/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels that post work requests: READs, WRITEs and SENDs on bound queue pairs. A kernel gets the
 * status of each operation and continues; no step runs twice. Also other functions of kernels that
 * the host runs.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "scene.h"

enum { MOVE_OP = 0x1001, SUM_OP, GRANT_OP };

/*
 * ---- a kernel that moves blocks from one peer to another, several at a time, and changes them
 * ----
 */

#define BLOCK 1500u
#define LANES 4u

struct move_params {
	uint64_t from, to;
	uint32_t from_key, to_key;
	uint32_t blocks;
};

struct move {
	struct move_params p;
	uint64_t sum;
	uint32_t read, written; /* blocks asked for, and passed on */
	uint32_t reading[LANES], writing[LANES];
};

static unsigned changed; /* blocks: once each */

static enum roost_next move(struct roost_call *c)
{
	struct move *m = c->state;
	uint8_t *lane;

	ROOST_STEPS(c);
	if (c->params_len != sizeof(m->p))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	memcpy(&m->p, c->params, sizeof(m->p));
	while (m->written < m->p.blocks) {
		while (m->read < m->p.blocks && m->read < m->written + LANES) {
			/* The previous WRITE from the buffer must be done. */
			ROOST_QP_WAIT(c, m->writing[m->read % LANES]);
			lane = c->scratch;
			lane += m->read % LANES * BLOCK;
			ROOST_QP_POST_READ(c, 1, m->p.from + m->read * BLOCK, m->p.from_key, lane,
					   BLOCK);
			m->reading[m->read++ % LANES] = c->qp_posted;
		}
		ROOST_QP_WAIT(c, m->reading[m->written % LANES]);
		if (c->qp_failed)
			break;
		lane = c->scratch;
		lane += m->written % LANES * BLOCK;
		changed++;
		for (uint32_t i = 0; i < BLOCK; i++) {
			m->sum += lane[i];
			lane[i] ^= 0x5a;
		}
		ROOST_QP_POST_WRITE(c, 2, m->p.to + m->written * BLOCK, m->p.to_key, lane, BLOCK);
		m->writing[m->written++ % LANES] = c->qp_posted;
	}
	ROOST_QP_WAIT_ALL(c);
	if (c->qp_failed)
		ROOST_FAIL(c, ROOST_RPC_FAILED);
	ROOST_REPLY(c, &m->sum, sizeof(m->sum));
	ROOST_STEPS_END;
}

static const struct roost_kernel move_kernel = {.abi = ROOST_KERNEL_ABI,
						.version = 1,
						.name = "move",
						.op = MOVE_OP,
						.state_size = sizeof(struct move),
						.scratch_size = LANES * BLOCK,
						.params = move};

/* ---- successful operations ---- */

/* One operation of each kind, with the kernel's memory and the region's. */
static void each_kind(void **state)
{
	const struct shape *shapes[] = {&plain, &over_loop};

	for (unsigned i = 0; i < 2; i++) {
		struct nic_counters ctr;
		struct roost_cqe cqe;
		struct roost_sge sge;
		struct told told;
		uint64_t at;

		open_scene(1, shapes[i]);
		at = (uintptr_t)s->bound[1].mem;
		memset(s->peer[1].mem + 8192, 'r', 5000);
		sge = ep_sge(&s->peer[0], 100, 3000);
		ep_post_recv(&s->peer[0], 77, &sge, 1);
		told = PLAY(&s->bound[1], fill(0, 'w', 3000), rdma(WRITE, 0, 10000, 0, 3000),
			    rdma(SEND, 0, 0, 0, 2500), rdma(READ, 1, 8192, 4000, 5000),
			    rdma(WRITE, 0, 20000, 4000, 5000),
			    with(rdma(READ, 1, 8192, 0, 4000), true, true, at + 64),
			    with(rdma(WRITE, 1, 0, 0, 4000), true, true, at + 64),
			    rdma(WRITE, 0, 0, 0, 0));
		assert_int_equal(told.posted, 7);
		assert_int_equal(told.done, 7);
		assert_int_equal(told.failed, 0);
		assert_int_equal(told.qps, 2);
		filled(s->peer[0].mem + 10000, 'w', 3000);
		assert_int_equal(s->peer[0].mem[13000], 0);
		filled(s->peer[0].mem + 20000, 'r', 5000);
		filled(s->bound[1].mem + 64, 'r', 4000);
		filled(s->peer[1].mem, 'r', 4000);
		assert_true(ep_poll_recv(&s->peer[0], &cqe));
		assert_int_equal(cqe.wr_id, 77);
		assert_int_equal(cqe.byte_len, 2500);
		filled(s->peer[0].mem + 100, 'w', 2500);
		/* The program gets no completion. */
		assert_false(ep_poll_send(&s->bound[0], &cqe));
		assert_false(ep_poll_send(&s->bound[1], &cqe));
		nic_counters(s->w.nic[0], &ctr);
		assert_int_equal(ctr.kernel_requests, 7);
		assert_int_equal(ctr.completed_wqes, 0);
		close_scene();
	}
}

/* From one NIC to another through a third, over any network. */
static void moves_blocks(void **state)
{
	static const struct shape shapes[] = {
		{.sp = {.delay_ns = 2000}},
		{.sp = {.delay_ns = 2000, .loss = 0.05}},
		{.sp = {.delay_ns = 2000,
			.jitter_ns = 3000,
			.loss = 0.02,
			.dup = 0.02,
			.reorder = 0.02,
			.corrupt = 0.01}},
		{.loop = true},
	};

	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct move_params p = {.blocks = 100};
		uint64_t sum = 0, want = 0;
		struct rng rng;

		open_scene(seed, &shapes[seed % 4]);
		assert_int_equal(runtime_deploy(s->f, &move_kernel, NULL), 0);
		bind_qp(MOVE_OP, &s->bound[0], 1);
		bind_qp(MOVE_OP, &s->bound[1], 2);
		changed = 0;
		rng_seed(&rng, seed);
		for (uint32_t i = 0; i < p.blocks * BLOCK; i++)
			want += s->peer[0].mem[i] = (uint8_t)rng_u64(&rng);
		p.from = (uintptr_t)s->peer[0].mem;
		p.to = (uintptr_t)s->peer[1].mem + 8;
		p.from_key = s->peer[0].key;
		p.to_key = s->peer[1].key;
		finish(start(MOVE_OP, &p, sizeof(p), NULL, &sum, sizeof(sum)), ROOST_RPC_OK);
		assert_int_equal(sum, want);
		assert_int_equal(changed, p.blocks);
		for (uint32_t i = 0; i < p.blocks * BLOCK; i++)
			assert_int_equal(s->peer[1].mem[8 + i], s->peer[0].mem[i] ^ 0x5a);
		assert_int_equal(s->peer[1].mem[8 + p.blocks * BLOCK], 0);
		close_scene();
	}
}

/* More operations of several runs than the queue pair has slots, beside the program's own. */
static void full_queue(void **state)
{
	struct local_call *run[5];
	struct told told[5];
	struct cmd cmds[64];
	struct roost_cqe cqe;

	open_scene(1, &plain);
	for (unsigned k = 0; k < 5; k++) {
		for (unsigned i = 0; i < 60; i++)
			cmds[i] = with(rdma(WRITE, 0, (k * 60 + i) * 64u, i * 64, 64), false, false,
				       0);
		for (unsigned i = 0; i < 4; i++)
			cmds[60 + i] = cmds[i];
		cmds[0] = fill(0, (uint8_t)('a' + k), 60 * 64);
		run[k] = start(SCRIPT_OP, cmds, sizeof(cmds), NULL, &told[k], sizeof(told[k]));
		ep_post(&s->bound[0], &(struct wr){.op = ROOST_OP_WRITE,
						   .wr_id = k,
						   .sge = {ep_sge(&s->bound[0], 0, 500)},
						   .num_sge = 1,
						   .raddr = (uintptr_t)s->peer[0].mem + 100000,
						   .rkey = s->peer[0].key});
	}
	for (unsigned k = 0; k < 5; k++) {
		finish(run[k], ROOST_RPC_OK);
		assert_int_equal(told[k].posted, 63);
		assert_int_equal(told[k].failed, 0);
	}
	/* The runs have ended; wait for their last WRITEs. */
	while (turn())
		;
	for (unsigned k = 0; k < 5; k++) {
		filled(s->peer[0].mem + k * 60 * 64u + 64, (uint8_t)('a' + k), 59 * 64);
		assert_true(ep_poll_send(&s->bound[0], &cqe));
		assert_int_equal(cqe.wr_id, k);
		assert_int_equal(cqe.status, NIC_WC_SUCCESS);
	}
	close_scene();
}

/* Operations complete in order, and each has its own status. */
static void several_under_way(void **state)
{
	struct told told;

	open_scene(1, &plain);
	told = PLAY(NULL, fill(0, 'x', 4096), with(rdma(WRITE, 0, 0, 0, 4096), false, false, 0),
		    with(rdma(READ, 1, 0, 4096, 4096), false, false, 0),
		    with((struct cmd){.what = SEND, .qp = 3, .len = 1}, false, false, 0),
		    {.what = SLEEPY}, with(rdma(WRITE, 0, 4096, 0, 1), false, false, 0),
		    {.what = WAIT});
	assert_int_equal(told.posted, 4);
	assert_int_equal(told.done, 4);
	assert_int_equal(told.failed, 1);
	assert_int_equal(told.status[0], ROOST_QP_OK);
	assert_int_equal(told.status[1], ROOST_QP_OK);
	assert_int_equal(told.status[2], ROOST_QP_NONE);
	assert_int_equal(told.status[3], ROOST_QP_OK);
	close_scene();
}

/* ---- failures ---- */

static void refused(void **state)
{
	struct told told;
	struct cmd bad;

	open_scene(1, &plain);
	bad = rdma(WRITE, 0, 0, 0, 100);
	bad.rkey ^= 0x100;
	told = PLAY(NULL, bad, rdma(WRITE, 0, 0, 0, 100), fill(0, 'y', 100),
		    rdma(WRITE, 1, 0, 0, 100));
	assert_int_equal(told.status[0], ROOST_QP_REM_ACCESS);
	assert_int_equal(told.status[1], ROOST_QP_STATE);
	/* the kernel and other queue pairs continue */
	assert_int_equal(told.status[2], ROOST_QP_OK);
	filled(s->peer[1].mem, 'y', 100);
	assert_int_equal(nic_qp_state(s->bound[0].qp), NIC_QPS_ERR);
	assert_true(s->bound[0].events & 1u << NIC_EVENT_QP_FATAL);
	close_scene();
}

static void refused_locally(void **state)
{
	struct told told;
	uint64_t at;

	open_scene(1, &plain);
	at = (uintptr_t)s->bound[1].mem;
	/*
	 * The region is bound[1]'s: of another protection domain than bound[0]; then out of it; no
	 * number; no region.
	 */
	told = PLAY(&s->bound[1], with(rdma(WRITE, 0, 0, 0, 8), true, true, at),
		    with(rdma(WRITE, 1, 0, 0, 8), true, true, at + MEM - 7),
		    with(rdma(READ, 1, 0, 0, 8), true, true, at - 1),
		    {.what = SEND, .then = 1, .qp = 0, .len = 1},
		    with(rdma(WRITE, 1, 0, 0, 8), true, true, at));
	assert_int_equal(told.status[0], ROOST_QP_LOCAL);
	assert_int_equal(told.status[1], ROOST_QP_LOCAL);
	assert_int_equal(told.status[2], ROOST_QP_LOCAL);
	assert_int_equal(told.status[3], ROOST_QP_NONE);
	/* the queue pair has not changed */
	assert_int_equal(told.status[4], ROOST_QP_OK);
	told = PLAY(NULL, with(rdma(WRITE, 1, 0, 0, 8), true, true, at));
	assert_int_equal(told.status[0], ROOST_QP_LOCAL);
	assert_int_equal(runtime_unbind_qp(s->f, SCRIPT_OP, 2), 0);
	assert_int_equal(runtime_unbind_qp(s->f, SCRIPT_OP, 2), -ENOENT);
	told = PLAY(NULL, rdma(WRITE, 1, 0, 0, 8));
	assert_int_equal(told.status[0], ROOST_QP_NONE);
	close_scene();
}

static void nobody_receives(void **state)
{
	static const struct shape shapes[] = {{.sp = {.delay_ns = 2000}, .rnr_retry = 2},
					      {.loop = true, .rnr_retry = 2}};

	for (unsigned i = 0; i < 2; i++) {
		struct told told;

		open_scene(1, &shapes[i]);
		told = PLAY(NULL, with(rdma(SEND, 0, 0, 0, 100), false, false, 0),
			    rdma(WRITE, 0, 0, 0, 8));
		assert_int_equal(told.status[0], ROOST_QP_RNR);
		assert_int_equal(told.status[1], ROOST_QP_FLUSHED);
		close_scene();
	}
}

static int drop_all(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len)
{
	return 1;
}

static void nobody_answers(void **state)
{
	static const struct shape shape = {.sp = {.delay_ns = 2000}, .retry_cnt = 2, .timeout = 10};
	struct told told;

	open_scene(1, &shape);
	sim_set_filter(s->w.sim, drop_all, NULL);
	told = PLAY(NULL, with(rdma(READ, 0, 0, 0, 3000), false, false, 0),
		    rdma(WRITE, 0, 0, 0, 8));
	assert_int_equal(told.status[0], ROOST_QP_RETRY);
	assert_int_equal(told.status[1], ROOST_QP_FLUSHED);
	sim_set_filter(s->w.sim, NULL, NULL);
	close_scene();
}

/* ---- kernels that the host runs ---- */

/* Replies with the sum of a word of the region and the payload. */
struct sum_state {
	uint64_t sum, word;
};

static enum roost_next sum_params(struct roost_call *c)
{
	struct sum_state *sum = c->state;

	ROOST_STEPS(c);
	if (c->params_len != 8)
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	ROOST_READ(c, *(const uint64_t *)c->params, &sum->word, 8);
	sum->sum = sum->word;
	sum->word = 7;
	ROOST_WRITE(c, *(const uint64_t *)c->params + 8, &sum->word, 8);
	ROOST_STEPS_END;
}

static enum roost_next sum_payload(struct roost_call *c)
{
	struct sum_state *sum = c->state;

	ROOST_STEPS(c);
	for (uint32_t i = 0; i < c->len; i++)
		sum->sum += c->data[i];
	if (c->last)
		ROOST_REPLY(c, &sum->sum, 8);
	ROOST_STEPS_END;
}

static const struct roost_kernel sum_kernel = {.abi = ROOST_KERNEL_ABI,
					       .name = "sum",
					       .version = 1,
					       .op = SUM_OP,
					       .state_size = sizeof(struct sum_state),
					       .params = sum_params,
					       .payload = sum_payload};

/* Runs it to its end. */
static struct local_call *run_sum(uint64_t at, const void *payload, uint64_t len, uint64_t *sum,
				  uint32_t space, struct local_call_result *result)
{
	struct local_call_attr attr = {.op = SUM_OP,
				       .params = &at,
				       .params_len = 8,
				       .pd = s->bound[0].pd,
				       .key = s->bound[0].key,
				       .reply = (uint8_t *)sum,
				       .space = space};
	struct local_call *p;

	assert_int_equal(local_call_start(s->f, 0, &attr, payload, len, &p), 0);
	while (!local_call_done(p))
		assert_true(turn());
	assert_true(local_call_finished(p, result));
	return p;
}

static void called_by_the_host(void **state)
{
	struct local_call_result result;
	uint64_t word = 1000, sum = 0;
	struct local_call *p;

	open_scene(1, &plain);
	assert_int_equal(runtime_deploy(s->f, &sum_kernel, NULL), 0);
	memcpy(s->bound[0].mem + 64, &word, 8);
	p = run_sum((uintptr_t)s->bound[0].mem + 64, "\1\2\3\4\5", 5, &sum, sizeof(sum), &result);
	assert_int_equal(result.status, ROOST_RPC_OK);
	assert_int_equal(result.len, 8);
	assert_int_equal(result.bytes, 5);
	assert_int_equal(sum, 1015);
	memcpy(&word, s->bound[0].mem + 72, 8);
	assert_int_equal(word, 7);
	local_call_free(p);
	/* In pieces, and more than one turn. */
	p = run_sum((uintptr_t)s->bound[0].mem + 64, s->bound[0].mem + 4096, MEM - 4096, &sum,
		    sizeof(sum), &result);
	assert_int_equal(result.bytes, MEM - 4096);
	assert_int_equal(sum, 1000);
	local_call_free(p);
	/* Accesses are checked as in calls. */
	p = run_sum((uintptr_t)s->bound[0].mem + MEM, NULL, 0, &sum, sizeof(sum), &result);
	assert_int_equal(result.status, ROOST_RPC_ACCESS);
	local_call_free(p);
	p = run_sum((uintptr_t)s->bound[0].mem + 64, "", 0, &sum, 7, &result);
	assert_int_equal(result.status, ROOST_RPC_TOO_LONG);
	assert_int_equal(result.len, 8);
	local_call_free(p);
	close_scene();
}

/* Several runs with much payload: a turn processes one piece, and the runs take turns. */
static void a_piece_a_turn(void **state)
{
	enum { RUNS = 3, PIECE = 256 << 10, LEN = 8 * PIECE };
	static uint8_t payload[LEN];
	uint64_t at, sum[RUNS], before[RUNS] = {0};
	struct local_call *p[RUNS];
	unsigned done = 0;

	open_scene(1, &plain);
	assert_int_equal(runtime_deploy(s->f, &sum_kernel, NULL), 0);
	memset(payload, 1, LEN);
	at = (uintptr_t)s->bound[0].mem + 64;
	for (unsigned i = 0; i < RUNS; i++) {
		struct local_call_attr attr = {.op = SUM_OP,
					       .params = &at,
					       .params_len = 8,
					       .pd = s->bound[0].pd,
					       .key = s->bound[0].key,
					       .reply = (uint8_t *)&sum[i],
					       .space = 8};

		assert_int_equal(local_call_start(s->f, 0, &attr, payload, LEN, &p[i]), 0);
	}
	while (done < RUNS) {
		uint64_t moved = 0, least = LEN, most = 0;
		struct local_call_result result;

		done = 0;
		for (unsigned i = 0; i < RUNS; i++) {
			done += local_call_finished(p[i], &result);
			moved += result.bytes - before[i];
			before[i] = result.bytes;
			least = result.bytes < least ? result.bytes : least;
			most = result.bytes > most ? result.bytes : most;
		}
		assert_in_range(moved, 0, most == PIECE ? RUNS * PIECE : PIECE);
		assert_in_range(most - least, 0, PIECE);
		assert_true(done == RUNS || turn());
	}
	for (unsigned i = 0; i < RUNS; i++) {
		assert_int_equal(sum[i], LEN);
		finish(p[i], ROOST_RPC_OK);
	}
	close_scene();
}

/* Names region 1 in one of the ways, by its parameters. */
static enum roost_next elsewhere(struct roost_call *c)
{
	const uint64_t *how = c->params, *at = how + 1;
	uint64_t *word = c->state;

	ROOST_STEPS(c);
	if (*how == 0)
		ROOST_READ_IN(c, 1, *at, word, 8);
	if (*how == 1)
		ROOST_WRITE_IN(c, 1, *at, word, 8);
	if (*how == 2)
		ROOST_SEND_FROM_IN(c, 1, *at, 8);
	if (*how == 3)
		ROOST_REPLY_FROM_IN(c, 1, *at, 8);
	ROOST_WAIT(c, roost_in(c, 1, roost_qp_then(c, roost_qp_send(c, 1, NULL, *at, 8))));
	*word = roost_qp_status(c, c->qp_posted);
	ROOST_REPLY(c, word, 8);
	ROOST_STEPS_END;
}

static const struct roost_kernel grant_kernel = {.abi = ROOST_KERNEL_ABI,
						 .name = "elsewhere",
						 .version = 1,
						 .op = GRANT_OP,
						 .state_size = 8,
						 .params = elsewhere};

/* A run has no granted regions; an access to one does not go to its own region instead. */
static void no_granted_regions(void **state)
{
	uint64_t params[2], word = 0;

	open_scene(1, &plain);
	assert_int_equal(runtime_deploy(s->f, &grant_kernel, NULL), 0);
	bind_qp(GRANT_OP, &s->bound[0], 1);
	params[1] = (uintptr_t)s->bound[0].mem;
	for (params[0] = 0; params[0] < 4; params[0]++)
		finish(start(GRANT_OP, params, sizeof(params), &s->bound[0], &word, 8),
		       ROOST_RPC_ACCESS);
	finish(start(GRANT_OP, params, sizeof(params), &s->bound[0], &word, 8), ROOST_RPC_OK);
	assert_int_equal(word, ROOST_QP_LOCAL);
	close_scene();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind),
		cmocka_unit_test(moves_blocks),
		cmocka_unit_test(full_queue),
		cmocka_unit_test(several_under_way),
		cmocka_unit_test(refused),
		cmocka_unit_test(refused_locally),
		cmocka_unit_test(nobody_receives),
		cmocka_unit_test(nobody_answers),
		cmocka_unit_test(called_by_the_host),
		cmocka_unit_test(a_piece_a_turn),
		cmocka_unit_test(no_granted_regions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
