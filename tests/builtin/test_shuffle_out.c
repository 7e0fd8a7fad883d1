/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares the kernel shuffle-out with a plain model: every tuple arrives in its partition, at its
 * node, once and in order, over any network.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "builtin/builtin.h"
#include "roost/shuffle.h"
#include "scene.h"

#define MAX_PARTS 2048u
#define MAX_BYTES 160000u /* of all tuples */
#define GAP	  16u	  /* bytes between partitions, which must not be written */

struct plan {
	struct roost_shuffle_params how;
	uint16_t buffer;
	uint32_t n; /* tuples */
};

static uint8_t tuples[MAX_BYTES];
static uint64_t counts[MAX_PARTS];
static uint8_t want[PEERS][MEM];

/* Returns the table, in the memory of bound[0], which is the run's region. */
static struct roost_shuffle_target *table(void)
{
	return (struct roost_shuffle_target *)s->bound[0].mem;
}

static void draw(const struct plan *p, uint64_t seed)
{
	struct rng rng;

	assert_in_range(p->n * p->how.tuple, 0, MAX_BYTES);
	rng_seed(&rng, seed);
	for (uint32_t i = 0; i < p->n * p->how.tuple; i += 8) {
		uint64_t word = rng_u64(&rng) >> (seed % 3 == 0 ? 60 : 0); /* few keys, or many */

		memcpy(tuples + i, &word, 8);
	}
	memset(counts, 0, sizeof(counts));
	roost_shuffle_count(counts, &p->how, tuples, p->n);
}

/* Partition i goes to peer i modulo PEERS, and has just the space that it needs. */
static void lay_out(const struct plan *p)
{
	uint32_t at[PEERS] = {GAP, GAP}, size = p->how.tuple;
	static uint64_t next[MAX_PARTS];

	memset(want, 0, sizeof(want));
	for (uint32_t i = 0; i < p->how.partitions; i++) {
		unsigned peer = i % PEERS;

		next[i] = at[peer];
		table()[i] = (struct roost_shuffle_target){.addr = (uintptr_t)s->peer[peer].mem +
								   at[peer],
							   .len = counts[i] * size,
							   .rkey = s->peer[peer].key,
							   .qp = peer + 1};
		at[peer] += (uint32_t)counts[i] * size + GAP;
		assert_in_range(at[peer], 0, MEM);
	}
	for (uint32_t i = 0; i < p->n; i++) {
		const uint8_t *tuple = tuples + i * size;
		uint64_t key;
		uint32_t part;

		memcpy(&key, tuple + p->how.key, 8);
		part = roost_shuffle_partition(&p->how, key);
		memcpy(want[part % PEERS] + next[part], tuple, size);
		next[part] += size;
	}
}

static void arrived(const struct plan *p)
{
	for (unsigned i = 0; i < PEERS; i++)
		assert_memory_equal(s->peer[i].mem, want[i], MEM);
	for (uint32_t i = 0; i < p->how.partitions; i++) {
		assert_int_equal(table()[i].tuples, counts[i]);
		assert_int_equal(table()[i].len, 0);
		assert_int_equal(table()[i].qp, i % PEERS + 1);
	}
}

static void open_out(uint64_t seed, const struct shape *shape)
{
	open_scene(seed, shape);
	assert_int_equal(runtime_deploy(s->f, kernels_builtin("shuffle-out"), NULL), 0);
	for (unsigned i = 0; i < PEERS; i++)
		bind_qp(ROOST_SHUFFLE_OUT_OP, &s->bound[i], i + 1);
}

static struct local_call *begin(const struct roost_shuffle_out_params *q, uint32_t bytes,
				struct roost_shuffle_out_result *result)
{
	struct local_call_attr a = {.op = ROOST_SHUFFLE_OUT_OP,
				    .params = q,
				    .params_len = sizeof(*q),
				    .pd = s->bound[0].pd,
				    .key = s->bound[0].key,
				    .reply = (uint8_t *)result,
				    .space = sizeof(*result)};
	struct local_call *run;

	assert_int_equal(local_call_start(s->f, 0, &a, tuples, bytes, &run), 0);
	return run;
}

static struct roost_shuffle_out_result run(const struct plan *p, uint32_t status)
{
	struct roost_shuffle_out_params q = roost_shuffle_out_params(table(), &p->how, p->buffer);
	struct roost_shuffle_out_result result = {0};

	finish(begin(&q, p->n * p->how.tuple, &result), status);
	return result;
}

#define RADIX(parts, bits)                                                                         \
	{                                                                                          \
		.partitions = parts, .tuple = 8, .how = ROOST_SHUFFLE_RADIX, .shift = bits         \
	}

static void every_tuple_once(void **state)
{
	static const struct shape shapes[] = {
		{.sp = {.delay_ns = 2000}},
		{.sp = {.delay_ns = 2000, .loss = 0.05}},
		{.sp = {.delay_ns = 2000,
			.jitter_ns = 3000,
			.loss = 0.02,
			.dup = 0.02,
			.reorder = 0.02}},
		{.loop = true},
	};
	static const struct plan plans[] = {
		{RADIX(16, 0), 1024, 10000},
		{RADIX(1, 3), 4096, 5000},
		{RADIX(1024, 20), 1024, 12000},
		{{.partitions = 37, .tuple = 16, .key = 8, .how = ROOST_SHUFFLE_HASH}, 512, 7777},
		{{.partitions = 2000, .tuple = 32, .key = 16, .how = ROOST_SHUFFLE_HASH},
		 1024,
		 3001},
		{{.partitions = 5, .tuple = 128, .key = 120, .how = ROOST_SHUFFLE_HASH}, 256, 1001},
		{RADIX(4, 0), 256, 1},
		{{.partitions = 37, .tuple = 8, .how = ROOST_SHUFFLE_HASH}, 512, 7777},
		{RADIX(4, 0), 256, 0},
	};

	for (uint64_t seed = 1; seed <= 32; seed++) {
		const struct plan *p = &plans[seed / 4 % 8];
		struct roost_shuffle_out_result result;
		uint32_t writes = 0;

		open_out(seed, &shapes[seed % 4]);
		draw(p, seed);
		lay_out(p);
		result = run(p, ROOST_RPC_OK);
		assert_int_equal(result.tuples, p->n);
		for (uint32_t i = 0; i < p->how.partitions; i++)
			writes += (uint32_t)(counts[i] * p->how.tuple + p->buffer - 1) / p->buffer;
		assert_int_equal(result.writes, writes);
		arrived(p);
		close_scene();
	}
}

/* The table is updated: a second run appends its tuples to those of the first. */
static void goes_on_behind(void **state)
{
	static const struct plan p = {RADIX(8, 1), 1024, 4000};
	uint64_t first[8];

	open_out(1, &plain);
	draw(&p, 1);
	lay_out(&p);
	for (uint32_t i = 0; i < 8; i++)
		table()[i].len += 3000 * 8;
	/* Regions overlap then; but each run's first tuples are where they should be. */
	run(&p, ROOST_RPC_OK);
	for (uint32_t i = 0; i < 8; i++) {
		first[i] = table()[i].addr;
		assert_int_equal(table()[i].len, 3000 * 8);
	}
	run(&p, ROOST_RPC_OK);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(table()[i].addr, first[i] + counts[i] * 8);
	close_scene();
}

/* A peer calls it, with payload of its own. */
static void called_by_a_peer(void **state)
{
	static const struct plan p = {RADIX(16, 0), 1024, 6000};
	const struct shape *shapes[] = {&plain, &over_loop};

	for (unsigned i = 0; i < 2; i++) {
		struct roost_shuffle_out_params q;
		struct roost_shuffle_out_result result;
		struct roost_rpc_head head;
		struct roost_rpc_tail tail;
		uint8_t *mem;

		open_out(i + 1, shapes[i]);
		draw(&p, 1);
		lay_out(&p);
		/* The region of a call is that of the queue pair on which it arrives. */
		memcpy(s->called.mem, table(), 16 * sizeof(*table()));
		q = roost_shuffle_out_params((void *)s->called.mem, &p.how, p.buffer);
		mem = s->caller.mem;
		head = (struct roost_rpc_head){.reply_addr = (uintptr_t)mem + 4096,
					       .reply_rkey = s->caller.key,
					       .reply_len = sizeof(result) + 8,
					       .mark = 7,
					       .flags = ROOST_RPC_STREAM};
		memcpy(mem, &head, sizeof(head));
		memcpy(mem + sizeof(head), &q, sizeof(q));
		memcpy(mem + 8192, tuples, p.n * 8);
		ep_post(&s->caller,
			&(struct wr){.op = ROOST_OP_RPC,
				     .sge = {ep_sge(&s->caller, 0, sizeof(head) + sizeof(q))},
				     .num_sge = 1,
				     .raddr = ROOST_SHUFFLE_OUT_OP,
				     .rkey = s->called.key});
		ep_post(&s->caller, &(struct wr){.op = ROOST_OP_RPC_WRITE,
						 .sge = {ep_sge(&s->caller, 8192, p.n * 8)},
						 .num_sge = 1,
						 .raddr = ROOST_SHUFFLE_OUT_OP,
						 .rkey = s->called.key});
		do {
			assert_true(turn());
			memcpy(&tail, mem + 4096 + sizeof(result), sizeof(tail));
		} while (tail.mark != 7);
		assert_int_equal(tail.status, ROOST_RPC_OK);
		memcpy(&result, mem + 4096, sizeof(result));
		assert_int_equal(result.tuples, p.n);
		memcpy(table(), s->called.mem, 16 * sizeof(*table()));
		if (!i) /* over loop-back the caller's memory is no peer's */
			arrived(&p);
		close_scene();
	}
}

static void refused(void **state)
{
	static const struct plan p = {RADIX(16, 0), 1024, 10000};
	struct roost_shuffle_out_params good, q;
	struct roost_shuffle_out_result result;
	struct roost_shuffle_target was;

	open_out(1, &plain);
	draw(&p, 1);
	lay_out(&p);
	good = roost_shuffle_out_params(table(), &p.how, p.buffer);
#define BAD(change, status)                                                                        \
	do {                                                                                       \
		q = good;                                                                          \
		change;                                                                            \
		finish(begin(&q, 80000, &result), status);                                         \
	} while (0)
	BAD(q.partitions = 0, ROOST_RPC_BAD_PARAMS);
	BAD(q.partitions = 24, ROOST_RPC_BAD_PARAMS);
	BAD(q.partitions = 4096, ROOST_RPC_BAD_PARAMS); /* more space than there is */
	BAD(q.tuple = 12, ROOST_RPC_BAD_PARAMS);
	BAD(q.tuple = 256, ROOST_RPC_BAD_PARAMS);
	BAD(q.key = 8, ROOST_RPC_BAD_PARAMS);
	BAD(q.how = 3, ROOST_RPC_BAD_PARAMS);
	BAD(q.shift = 64, ROOST_RPC_BAD_PARAMS);
	BAD(q.buffer = 128, ROOST_RPC_BAD_PARAMS);
	BAD(q.buffer = 1000, ROOST_RPC_BAD_PARAMS);
	BAD(q.buffer = 8192, ROOST_RPC_BAD_PARAMS);
	BAD(q.reserved = 1, ROOST_RPC_BAD_PARAMS);
	BAD(q.table += MEM, ROOST_RPC_ACCESS);
	finish(begin(&good, 80001, &result), ROOST_RPC_BAD_PARAMS);
	was = table()[3];
	table()[3].len -= 4;
	run(&p, ROOST_RPC_BAD_PARAMS);
	table()[3].len = was.len - 8;
	run(&p, ROOST_SHUFFLE_FULL);
	assert_int_equal(table()[3].addr, was.addr); /* as it was */
	table()[3] = was;
	table()[3].qp = 3;
	assert_int_equal(run(&p, ROOST_SHUFFLE_LOST).qp_status, ROOST_QP_NONE);
	table()[3] = was;
	/* All benches have been given back. */
	for (unsigned i = 0; i <= ROOST_SHUFFLE_OUT_CALLS; i++) {
		lay_out(&p);
		run(&p, ROOST_RPC_OK);
		arrived(&p);
	}
	lay_out(&p);
	table()[3].rkey ^= 0x100;
	assert_int_equal(run(&p, ROOST_SHUFFLE_LOST).qp_status, ROOST_QP_REM_ACCESS);
	close_scene();
}

/*
 * With more partitions than operations in progress, the status is that of the failed operation, not
 * of those that were flushed after it.
 */
static void the_first_failure(void **state)
{
	static const struct plan plans[] = {{RADIX(64, 0), 256, 10000}, {RADIX(64, 0), 256, 600}};

	for (unsigned i = 0; i < 2 * 64; i++) {
		const struct plan *p = &plans[i & 1];

		open_out(1, &plain);
		draw(p, 1);
		lay_out(p);
		table()[i / 2].rkey ^= 0x100;
		assert_int_equal(run(p, ROOST_SHUFFLE_LOST).qp_status, ROOST_QP_REM_ACCESS);
		close_scene();
	}
}

/* Unannounced payload has no parameters. */
static void without_parameters(void **state)
{
	struct runtime_counters ctr;

	open_out(1, &plain);
	ep_post(&s->caller, &(struct wr){.op = ROOST_OP_RPC_WRITE,
					 .sge = {ep_sge(&s->caller, 0, 4096)},
					 .num_sge = 1,
					 .raddr = ROOST_SHUFFLE_OUT_OP,
					 .rkey = s->called.key});
	while (turn())
		;
	runtime_counters(s->f, &ctr);
	assert_int_equal(ctr.bad_params, 1);
	assert_int_equal(ctr.faults, 0);
	close_scene();
}

/*
 * Runs without a bench get a status. Runs that are given up give the bench back when their WRITEs
 * are done.
 */
static void busy(void **state)
{
	static const struct plan p = {RADIX(2, 0), 1024, 20000};
	struct roost_shuffle_out_params q;
	struct roost_shuffle_out_result result[ROOST_SHUFFLE_OUT_CALLS + 1];
	struct local_call *runs[ROOST_SHUFFLE_OUT_CALLS];

	open_out(1, &plain);
	draw(&p, 1);
	lay_out(&p);
	q = roost_shuffle_out_params(table(), &p.how, p.buffer);
	for (unsigned i = 0; i < ROOST_SHUFFLE_OUT_CALLS; i++)
		runs[i] = begin(&q, p.n * 8, &result[i]);
	finish(begin(&q, p.n * 8, &result[ROOST_SHUFFLE_OUT_CALLS]), ROOST_SHUFFLE_BUSY);
	for (unsigned i = 0; i < ROOST_SHUFFLE_OUT_CALLS; i++)
		local_call_free(runs[i]);
	finish(begin(&q, p.n * 8, &result[0]), ROOST_SHUFFLE_BUSY);
	while (turn())
		;
	run(&p, ROOST_RPC_OK);
	arrived(&p);
	close_scene();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_tuple_once),
		cmocka_unit_test(goes_on_behind),
		cmocka_unit_test(called_by_a_peer),
		cmocka_unit_test(refused),
		cmocka_unit_test(the_first_failure),
		cmocka_unit_test(without_parameters),
		cmocka_unit_test(busy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
