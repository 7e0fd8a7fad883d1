/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares the kernel `prism` with a plain model: random chains, then the rules of each operation,
 * and many concurrent calls.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "builtin/builtin.h"
#include "rig.h"
#include "roost/prism.h"

#define SPACE	(RIG_REPLY - 8)
#define SLOTS	16u
#define LIST	4096u /* the free list */
#define BUFFERS 8192u /* its buffers, of SIZE bytes */
#define SIZE	64u
#define WORDS	16384u /* where pointers and words are that random chains use */
#define NWORDS	64u
#define SPARE	65536u

static struct rig R, *const r = &R;

static void open_rig(const struct rig_shape *shape)
{
	rig_open(r, 1, shape);
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("prism"), NULL), 0);
}

static uint8_t *at(uint64_t off)
{
	return r->node[0].mem + off;
}

static uint64_t word(uint64_t off)
{
	uint64_t x;

	memcpy(&x, at(off), 8);
	return x;
}

static void set_word(uint64_t off, uint64_t x)
{
	memcpy(at(off), &x, 8);
}

static struct roost_prism_list *list(void)
{
	return (struct roost_prism_list *)at(LIST);
}

static uint64_t params[ROOST_RPC_MAX_PARAMS / 8];
static struct roost_prism_chain chain;

static void begin(void)
{
	chain = roost_prism_chain(params, 2000);
}

static struct rig_reply run(void)
{
	return rig_call(r, ROOST_PRISM_OP, params, chain.len, SPACE);
}

/* Makes the call, and checks the statuses of its operations. */
static struct rig_reply runs(unsigned n, const uint32_t *status)
{
	struct rig_reply a = run();
	struct roost_prism_result res;

	assert_int_equal(a.status, ROOST_RPC_OK);
	for (unsigned i = 0; i < n; i++) {
		roost_prism_output(&chain, a.data, a.len, i, &res);
		assert_int_equal(res.status, status[i]);
	}
	return a;
}
#define RUNS(...) runs(sizeof((uint32_t[]){__VA_ARGS__}) / 4, (uint32_t[]){__VA_ARGS__})

static uint64_t output_word(const struct rig_reply *a, unsigned i)
{
	struct roost_prism_result res;
	const void *p = roost_prism_output(&chain, a->data, a->len, i, &res);
	uint64_t x;

	assert_non_null(p);
	assert_int_equal(res.len, 8);
	memcpy(&x, p, 8);
	return x;
}

/* ---- the model ---- */

struct model {
	uint8_t mem[RIG_MEM];
	struct roost_prism_result res[ROOST_PRISM_MAX_OPS];
	uint8_t out[ROOST_PRISM_MAX_OPS][1024];
	bool access; /* the call ends here */
};

static struct model M;

static uint8_t *mem_at(uint64_t va, uint64_t len)
{
	static uint8_t nowhere[8192];

	if (!len)
		return nowhere;
	if (va < rig_va(r, 0) || va - rig_va(r, 0) > RIG_MEM ||
	    len > RIG_MEM - (va - rig_va(r, 0))) {
		M.access = true;
		return nowhere;
	}
	return M.mem + (va - rig_va(r, 0));
}

static uint64_t get(uint64_t va)
{
	uint64_t x;

	memcpy(&x, mem_at(va, 8), 8);
	return M.access ? 0 : x;
}

static bool related(uint8_t how, uint64_t x, uint64_t y)
{
	return how == ROOST_PRISM_EQUAL	      ? x == y
	       : how == ROOST_PRISM_NOT_EQUAL ? x != y
	       : how == ROOST_PRISM_LESS_THAN ? x < y
					      : x > y;
}

static void model_list(struct model *m, const struct roost_prism_op *op, uint64_t *target,
		       struct roost_prism_result *res)
{
	uint64_t taken = get(op->addr), given = get(op->addr + 8), mask = get(op->addr + 16),
		 size = get(op->addr + 24);

	if (m->access)
		return;
	if (taken == given || op->len > size) {
		res->status = taken == given ? ROOST_RPC_MISS : ROOST_RPC_TOO_LONG;
		return;
	}
	*target = get(op->addr + 32 + 8 * (taken & mask));
	taken++;
	if (op->addr & 7)
		m->access = true;
	if (!m->access)
		memcpy(mem_at(op->addr, 8), &taken, 8);
}

static void model_cas(struct model *m, const struct roost_prism_op *op, uint64_t target,
		      uint64_t swap, struct roost_prism_result *res)
{
	uint64_t there = get(target);

	if (m->access)
		return;
	memcpy(m->out[res - m->res], &there, 8);
	res->len = 8;
	if (!related(op->relation, there & op->expect_mask, op->expect & op->expect_mask)) {
		res->status = ROOST_RPC_MISS;
		return;
	}
	there = (there & ~op->swap_mask) | (swap & op->swap_mask);
	if (target & 7)
		m->access = true;
	else
		memcpy(mem_at(target, 8), &there, 8);
}

static void model_op(struct model *m, const struct roost_prism_op *op,
		     struct roost_prism_result *res)
{
	const void *data = op + 1;
	uint64_t target = op->addr, len = op->len;
	uint8_t tmp[1024];

	if (op->flags & ROOST_PRISM_INDIRECT) {
		if (op->flags & ROOST_PRISM_BOUNDED) {
			mem_at(target, 16);
			len = get(target + 8) < len ? get(target + 8) : len;
		}
		target = get(target);
		if (!m->access && !target)
			res->status = ROOST_RPC_MISS;
	}
	if (op->what == ROOST_PRISM_ALLOCATE)
		model_list(m, op, &target, res);
	if (m->access || res->status)
		return;
	if (op->flags & ROOST_PRISM_DATA_INDIRECT)
		data = mem_at(op->data, len);
	else if (op->what == ROOST_PRISM_CAS)
		data = &op->swap;
	if (m->access)
		return;
	if (op->what == ROOST_PRISM_CAS) {
		uint64_t swap;

		memcpy(&swap, data, 8);
		model_cas(m, op, target, swap, res);
	} else if (op->what == ROOST_PRISM_READ) {
		memcpy(m->out[res - m->res], mem_at(target, len), len);
		res->len = (uint32_t)len;
	} else {
		memcpy(tmp, data, len);
		memcpy(mem_at(target, len), tmp, len);
		res->len = (uint32_t)len;
		memcpy(m->out[res - m->res], &target, 8);
		if (op->what == ROOST_PRISM_ALLOCATE)
			res->len = 8;
	}
	if (!m->access && op->flags & ROOST_PRISM_REDIRECT)
		memcpy(mem_at(op->redirect, res->len), m->out[res - m->res], res->len);
}

static void run_model(struct model *m)
{
	const struct roost_prism_params *p = (const void *)params;
	const uint8_t *next = (const uint8_t *)(p + 1);
	uint32_t before = 0;

	memcpy(m->mem, r->node[0].mem, RIG_MEM);
	memset(m->res, 0, sizeof(m->res));
	m->access = false;
	for (uint32_t i = 0; i < p->ops && !m->access; i++) {
		const struct roost_prism_op *op = (const void *)next;
		bool carries =
			(op->what == ROOST_PRISM_WRITE || op->what == ROOST_PRISM_ALLOCATE) &&
			!(op->flags & ROOST_PRISM_DATA_INDIRECT);

		next += sizeof(*op) + (carries ? ALIGN_UP(op->len, 8u) : 0);
		if (op->flags & ROOST_PRISM_CONDITIONAL && before)
			m->res[i].status = ROOST_PRISM_SKIPPED;
		else
			model_op(m, op, &m->res[i]);
		before = m->res[i].status;
	}
}

static void check(void)
{
	const struct roost_prism_params *p = (const void *)params;
	struct roost_prism_result res;
	struct rig_reply a;

	run_model(&M);
	a = run();
	assert_memory_equal(r->node[0].mem, M.mem, RIG_MEM);
	assert_int_equal(a.status, M.access ? ROOST_RPC_ACCESS : ROOST_RPC_OK);
	for (uint32_t i = 0; i < p->ops && !M.access; i++) {
		const void *out = roost_prism_output(&chain, a.data, a.len, i, &res);

		assert_int_equal(res.status, M.res[i].status);
		assert_int_equal(res.len, M.res[i].len);
		if (out)
			assert_memory_equal(out, M.out[i], res.len);
	}
}

/* ---- random chains ---- */

static uint64_t any_va(struct rng *rng)
{
	uint64_t off = rng_below(rng, 100);

	if (off == 0)
		return rng_u64(rng);
	if (off == 1)
		return rig_va(r, RIG_MEM - rng_below(rng, 64));
	return rig_va(r, WORDS + 8 * rng_below(rng, NWORDS) + (off == 2 ? 4 : 0));
}

static void any_memory(struct rng *rng)
{
	for (unsigned i = 0; i < NWORDS; i++) {
		uint64_t kind = rng_below(rng, 8);

		set_word(WORDS + 8 * i, kind < 4 ? any_va(rng) : rng_below(rng, kind * 20));
	}
	roost_prism_list_init(list(), SLOTS, SIZE);
	for (uint64_t n = rng_below(rng, SLOTS + 1); n; n--)
		roost_prism_list_give(list(), rng_below(rng, 40) ? rig_va(r, BUFFERS + n * SIZE)
								 : any_va(rng));
}

static void any_op(struct rng *rng)
{
	uint8_t flags = (uint8_t)(rng_u64(rng) & ROOST_PRISM_CONDITIONAL), data[128];
	uint32_t len = (uint32_t)rng_below(rng, 72);
	struct roost_prism_op *op = NULL;

	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)rng_u64(rng);
	if (rng_below(rng, 2))
		flags |= ROOST_PRISM_INDIRECT;
	switch (rng_below(rng, 4)) {
	case 0:
		flags |= flags & ROOST_PRISM_INDIRECT && len & 1 ? ROOST_PRISM_BOUNDED : 0;
		op = roost_prism_read(&chain, flags, any_va(rng), len);
		break;
	case 1:
		flags |= flags & ROOST_PRISM_INDIRECT && len & 1 ? ROOST_PRISM_BOUNDED : 0;
		if (len & 2)
			op = roost_prism_add(&chain, ROOST_PRISM_WRITE,
					     flags | ROOST_PRISM_DATA_INDIRECT, any_va(rng), len,
					     NULL, 0);
		else
			op = roost_prism_write(&chain, flags, any_va(rng), data, len);
		break;
	case 2:
		op = roost_prism_allocate(&chain, flags & ROOST_PRISM_CONDITIONAL, rig_va(r, LIST),
					  data, len);
		break;
	case 3:
		op = roost_prism_cas(&chain, flags, any_va(rng), (uint8_t)rng_below(rng, 4),
				     rng_below(rng, 160), rng_u64(rng));
		if (op && len & 1)
			op->expect_mask = rng_u64(rng), op->swap_mask = rng_u64(rng);
		if (op && len & 2)
			op->flags |= ROOST_PRISM_DATA_INDIRECT;
		break;
	}
	if (!op)
		return;
	if (op->what != ROOST_PRISM_WRITE && rng_below(rng, 4) == 0) {
		op->flags |= ROOST_PRISM_REDIRECT;
		op->redirect = any_va(rng);
	}
	op->data = op->flags & ROOST_PRISM_DATA_INDIRECT ? any_va(rng) : 0;
}

/* Source and target of a copy may overlap. The order is then undefined, but the model has one. */
static bool overlaps(void)
{
	const struct roost_prism_params *p = (const void *)params;
	const struct roost_prism_op *op = (const void *)(p + 1);

	for (uint32_t i = 0; i < p->ops; i++) {
		bool carries =
			(op->what == ROOST_PRISM_WRITE || op->what == ROOST_PRISM_ALLOCATE) &&
			!(op->flags & ROOST_PRISM_DATA_INDIRECT);

		if ((op->what == ROOST_PRISM_WRITE && !carries) ||
		    (op->what == ROOST_PRISM_READ && op->flags & ROOST_PRISM_REDIRECT))
			if (op->len > 8)
				return true;
		op = (const void *)((const uint8_t *)(op + 1) +
				    (carries ? ALIGN_UP(op->len, 8u) : 0));
	}
	return false;
}

static void random_chains(const struct rig_shape *shape, uint64_t seed, unsigned rounds)
{
	struct rng rng;

	rng_seed(&rng, seed);
	open_rig(shape);
	for (unsigned i = 0; i < rounds; i++) {
		any_memory(&rng);
		do {
			begin();
			for (uint64_t n = 1 + rng_below(&rng, 12); n; n--)
				any_op(&rng);
		} while (overlaps());
		check();
	}
	rig_close(r);
}

static void like_the_model(void **state)
{
	random_chains(&(struct rig_shape){.sp = {.delay_ns = 1000}, .mtu = 4096}, 1, 400);
	random_chains(&(struct rig_shape){.loop = true, .mtu = 4096}, 2, 200);
	random_chains(
		&(struct rig_shape){
			.sp = {.loss = 0.03, .dup = 0.03, .reorder = 0.03, .delay_ns = 1000},
			.mtu = 4096},
		3, 100);
}

/* ---- uses from the paper ---- */

/*
 * A key-value store's PUT: a new version is allocated, and swapped in if the pointer is unchanged.
 * A GET reads it in one round trip.
 */
static void put_and_get(void **state)
{
	struct roost_prism_op *op;
	struct rig_reply a;
	const void *p;
	struct roost_prism_result res;

	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	roost_prism_list_init(list(), SLOTS, SIZE);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(roost_prism_list_give(list(), rig_va(r, BUFFERS + i * SIZE)), 0);
	for (unsigned i = 0; i < 2; i++) {
		begin();
		op = roost_prism_allocate(&chain, ROOST_PRISM_REDIRECT, rig_va(r, LIST),
					  i ? "second" : "first!", 6);
		op->redirect = rig_va(r, SPARE);
		op = roost_prism_cas(&chain, ROOST_PRISM_CONDITIONAL | ROOST_PRISM_DATA_INDIRECT,
				     rig_va(r, WORDS), ROOST_PRISM_EQUAL,
				     i ? rig_va(r, BUFFERS) : 0, 0);
		op->data = rig_va(r, SPARE);
		RUNS(0, 0);
		assert_int_equal(word(WORDS), rig_va(r, BUFFERS + i * SIZE));
		begin();
		roost_prism_read(&chain, ROOST_PRISM_INDIRECT, rig_va(r, WORDS), 6);
		a = RUNS(0);
		p = roost_prism_output(&chain, a.data, a.len, 0, &res);
		assert_memory_equal(p, i ? "second" : "first!", 6);
	}
	/* No buffer is left, so no swap takes place. */
	begin();
	roost_prism_allocate(&chain, 0, rig_va(r, LIST), "x", 1);
	roost_prism_cas(&chain, ROOST_PRISM_CONDITIONAL, rig_va(r, WORDS), ROOST_PRISM_NOT_EQUAL, 0,
			7);
	roost_prism_write(&chain, ROOST_PRISM_CONDITIONAL, rig_va(r, WORDS), "x", 1);
	roost_prism_read(&chain, 0, rig_va(r, WORDS), 8);
	a = RUNS(ROOST_RPC_MISS, ROOST_PRISM_SKIPPED, ROOST_PRISM_SKIPPED, 0);
	assert_int_equal(output_word(&a, 3), rig_va(r, BUFFERS + SIZE));
	rig_close(r);
}

static void bounds_of_the_target(void **state)
{
	struct roost_prism_result res;
	struct rig_reply a;

	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	set_word(WORDS, rig_va(r, SPARE));
	set_word(WORDS + 8, 5);
	memcpy(at(SPARE), "0123456789", 10);
	begin();
	roost_prism_read(&chain, ROOST_PRISM_INDIRECT | ROOST_PRISM_BOUNDED, rig_va(r, WORDS), 10);
	roost_prism_write(&chain, ROOST_PRISM_INDIRECT | ROOST_PRISM_BOUNDED, rig_va(r, WORDS),
			  "abcdefghij", 10);
	a = RUNS(0, 0);
	assert_memory_equal(roost_prism_output(&chain, a.data, a.len, 0, &res), "01234", 5);
	assert_int_equal(res.len, 5);
	roost_prism_output(&chain, a.data, a.len, 1, &res);
	assert_int_equal(res.len, 5);
	assert_memory_equal(at(SPARE), "abcde56789", 10);
	/* A pointer that is 0. */
	set_word(WORDS, 0);
	RUNS(ROOST_RPC_MISS, ROOST_RPC_MISS);
	set_word(WORDS, 8);
	assert_int_equal(run().status, ROOST_RPC_ACCESS);
	rig_close(r);
}

static void relations_and_masks(void **state)
{
	static const struct {
		uint8_t relation;
		uint64_t there, expect, expect_mask, swap, swap_mask, then;
	} rows[] = {
		{ROOST_PRISM_EQUAL, 5, 5, UINT64_MAX, 7, UINT64_MAX, 7},
		{ROOST_PRISM_EQUAL, 5, 4, UINT64_MAX, 7, UINT64_MAX, 5},
		{ROOST_PRISM_EQUAL, 0x1205, 0x3405, 0xff, 0x7777, 0xff00, 0x7705},
		{ROOST_PRISM_NOT_EQUAL, 5, 5, UINT64_MAX, 7, UINT64_MAX, 5},
		{ROOST_PRISM_NOT_EQUAL, 5, 4, UINT64_MAX, 7, 2, 7},
		{ROOST_PRISM_LESS_THAN, 5, 6, UINT64_MAX, 7, UINT64_MAX, 7},
		{ROOST_PRISM_LESS_THAN, 6, 6, UINT64_MAX, 7, UINT64_MAX, 6},
		{ROOST_PRISM_LESS_THAN, UINT64_MAX, 6, UINT64_MAX, 7, UINT64_MAX, UINT64_MAX},
		{ROOST_PRISM_GREATER_THAN, UINT64_MAX, 6, UINT64_MAX, 7, UINT64_MAX, 7},
		{ROOST_PRISM_GREATER_THAN, 6, 6, UINT64_MAX, 7, UINT64_MAX, 6},
		{ROOST_PRISM_GREATER_THAN, 0x0500, 0x04ff, 0xff00, 0, 0xf, 0x0500},
		{ROOST_PRISM_GREATER_THAN, 0x0501, 0x05ff, 0xff00, 0, 0xf, 0x0501},
		{ROOST_PRISM_GREATER_THAN, 0x0601, 0x05ff, 0xff00, 0, 0xf, 0x0600},
	};

	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct roost_prism_op *op;
		struct rig_reply a;

		set_word(WORDS, rows[i].there);
		begin();
		op = roost_prism_cas(&chain, 0, rig_va(r, WORDS), rows[i].relation, rows[i].expect,
				     rows[i].swap);
		op->expect_mask = rows[i].expect_mask;
		op->swap_mask = rows[i].swap_mask;
		a = run();
		assert_int_equal(a.status, ROOST_RPC_OK);
		assert_int_equal(output_word(&a, 0), rows[i].there);
		assert_int_equal(word(WORDS), rows[i].then);
	}
	rig_close(r);
}

/*
 * Concurrent calls with interleaved steps. Each takes a buffer from the same list, and increments a
 * count if no other call did meanwhile. No buffer is given out twice or lost, and the count is
 * right.
 */
static void many_at_once(void **state)
{
	enum { CALLS = 300, FLIGHT = 16 };
	bool busy[FLIGHT] = {false}, mine[CALLS] = {false};
	unsigned posted = 0, done = 0, counted = 0;
	struct roost_prism_list *l;

	open_rig(&(struct rig_shape){.sp = {.loss = 0.02, .dup = 0.02, .delay_ns = 2000}});
	l = list();
	roost_prism_list_init(l, 256, 8);
	for (unsigned given = 0; done < CALLS;) {
		while (given < CALLS && roost_prism_list_give(l, rig_va(r, SPARE + 8 * given)) == 0)
			given++;
		for (unsigned s = 0; s < FLIGHT; s++) {
			struct roost_prism_result res;
			struct rig_reply a;

			begin();
			roost_prism_allocate(&chain, 0, rig_va(r, LIST), "taken!!", 8);
			roost_prism_cas(&chain, 0, rig_va(r, WORDS), ROOST_PRISM_EQUAL, word(WORDS),
					word(WORDS) + 1);
			if (busy[s] && rig_poll(r, 0, s, 64, &a)) {
				uint64_t at_buffer = output_word(&a, 0) - rig_va(r, SPARE);

				assert_true(at_buffer < 8 * CALLS && !mine[at_buffer / 8]);
				mine[at_buffer / 8] = true;
				assert_memory_equal(at(SPARE + at_buffer), "taken!!", 8);
				roost_prism_output(&chain, a.data, a.len, 1, &res);
				counted += res.status == ROOST_RPC_OK;
				busy[s] = false;
				done++;
			}
			if (!busy[s] && posted < CALLS) {
				rig_post(r, 0, s, ROOST_PRISM_OP, params, chain.len, 64, 0);
				busy[s] = true;
				posted++;
			}
		}
		rig_reap(r);
		assert_true(world_step(&r->w, world_now(&r->w) + 10 * SEC) || done == CALLS);
	}
	assert_int_equal(l->taken, CALLS);
	assert_int_equal(word(WORDS), counted);
	assert_in_range(counted, 10, CALLS);
	rig_close(r);
}

/*
 * Each call sets its own bit of the same word, for any value of the other bits. The CAS is repeated
 * if another call changed the word in between.
 */
static void bits_of_one_word(void **state)
{
	enum { CALLS = 60 };
	struct rig_reply a;

	open_rig(&(struct rig_shape){.sp = {.delay_ns = 2000}});
	for (unsigned s = 0; s < CALLS; s++) {
		struct roost_prism_op *op;

		begin();
		op = roost_prism_cas(&chain, 0, rig_va(r, WORDS), ROOST_PRISM_EQUAL, 0, UINT64_MAX);
		op->expect_mask = op->swap_mask = 1ull << s;
		rig_post(r, 0, s, ROOST_PRISM_OP, params, chain.len, 64, 0);
	}
	for (unsigned s = 0; s < CALLS; s++) {
		a = rig_wait(r, 0, s, 64);
		assert_int_equal(a.status, ROOST_RPC_OK);
		assert_int_equal(output_word(&a, 0) >> s & 1, 0);
	}
	assert_int_equal(word(WORDS), (1ull << CALLS) - 1);
	rig_close(r);
}

/* ---- refused chains ---- */

static void rights(void **state)
{
	open_rig(&(struct rig_shape){.access = NIC_ACCESS_REMOTE_READ | NIC_ACCESS_REMOTE_WRITE});
	begin();
	roost_prism_cas(&chain, 0, rig_va(r, WORDS), ROOST_PRISM_EQUAL, 1, 1);
	RUNS(ROOST_RPC_MISS); /* it only compares */
	begin();
	roost_prism_cas(&chain, 0, rig_va(r, WORDS), ROOST_PRISM_EQUAL, 0, 1);
	assert_int_equal(run().status, ROOST_RPC_ACCESS);
	assert_int_equal(word(WORDS), 0);
	rig_close(r);
	open_rig(&(struct rig_shape){.access = NIC_ACCESS_REMOTE_READ | NIC_ACCESS_REMOTE_ATOMIC});
	begin();
	roost_prism_cas(&chain, 0, rig_va(r, WORDS), ROOST_PRISM_EQUAL, 0, 1);
	RUNS(0);
	begin();
	roost_prism_cas(&chain, 0, rig_va(r, WORDS + 12), ROOST_PRISM_EQUAL, 0, 1);
	assert_int_equal(run().status, ROOST_RPC_ACCESS);
	begin();
	roost_prism_write(&chain, 0, rig_va(r, WORDS), "x", 1);
	assert_int_equal(run().status, ROOST_RPC_ACCESS);
	assert_int_equal(word(WORDS), 1);
	rig_close(r);
}

/* A buffer of the list is too small; a buffer is outside of the region. */
static void lists_that_lead_astray(void **state)
{
	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	roost_prism_list_init(list(), SLOTS, 4);
	roost_prism_list_give(list(), rig_va(r, RIG_MEM));
	begin();
	roost_prism_allocate(&chain, 0, rig_va(r, LIST), "12345", 5);
	RUNS(ROOST_RPC_TOO_LONG);
	assert_int_equal(list()->taken, 0);
	begin();
	roost_prism_allocate(&chain, 0, rig_va(r, LIST), "1234", 4);
	assert_int_equal(run().status, ROOST_RPC_ACCESS);
	list()->mask = UINT64_MAX;
	list()->taken = UINT64_MAX / 2;
	assert_int_equal(run().status, ROOST_RPC_ACCESS);
	rig_close(r);
}

static void refused(void)
{
	assert_int_equal(run().status, ROOST_RPC_BAD_PARAMS);
	assert_int_equal(word(WORDS), 0);
}

/* The last operation of a chain is invalid: the first does not run. */
static struct roost_prism_op *bad(uint8_t what, uint8_t flags, uint32_t len)
{
	begin();
	roost_prism_write(&chain, 0, rig_va(r, WORDS), "12345678", 8);
	return roost_prism_add(&chain, what, flags, rig_va(r, WORDS), len, NULL, 0);
}

static void bad_parameters(void **state)
{
	static const uint8_t none[ROOST_RPC_MAX_PARAMS];
	struct roost_prism_params *p = (struct roost_prism_params *)params;

	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}, .mtu = 4096});
	for (uint32_t n = 0; n < 200; n++)
		assert_int_equal(rig_call(r, ROOST_PRISM_OP, none, n, 64).status,
				 ROOST_RPC_BAD_PARAMS);
	bad(0, 0, 0), refused();
	bad(5, 0, 0), refused();
	bad(ROOST_PRISM_READ, 32, 8), refused();
	bad(ROOST_PRISM_READ, ROOST_PRISM_BOUNDED, 8), refused();
	bad(ROOST_PRISM_READ, ROOST_PRISM_DATA_INDIRECT, 8), refused();
	bad(ROOST_PRISM_WRITE, ROOST_PRISM_REDIRECT, 0), refused();
	bad(ROOST_PRISM_WRITE, 0, 8), refused();
	bad(ROOST_PRISM_WRITE, 0, UINT32_MAX), refused();
	bad(ROOST_PRISM_ALLOCATE, 0, UINT32_MAX - 6), refused();
	bad(ROOST_PRISM_ALLOCATE, ROOST_PRISM_INDIRECT, 0), refused();
	bad(ROOST_PRISM_CAS, 0, 4), refused();
	bad(ROOST_PRISM_CAS, 0, 8)->relation = 4, refused();
	bad(ROOST_PRISM_CAS, 0, 8)->reserved = 1, refused();
	bad(ROOST_PRISM_READ, 0, 8), chain.len += 8, refused();
	bad(ROOST_PRISM_READ, 0, 8), chain.len -= 8, refused();
	bad(ROOST_PRISM_READ, 0, 8), p->ops = 3, refused();
	bad(ROOST_PRISM_READ, 0, 8), p->ops = 1, refused();
	bad(ROOST_PRISM_READ, 0, 8), p->reserved = 1, refused();
	bad(ROOST_PRISM_READ, 0, ROOST_PRISM_MAX_OUTPUT + 1), refused();
	bad(ROOST_PRISM_READ, 0, UINT32_MAX), refused();
	bad(ROOST_PRISM_READ, 0, ROOST_PRISM_MAX_OUTPUT - 8);
	roost_prism_read(&chain, 0, rig_va(r, 0), 9), refused();
	/* A valid chain runs. */
	begin();
	roost_prism_read(&chain, 0, rig_va(r, 0), 7000);
	RUNS(0);
	begin();
	for (unsigned i = 0; i < ROOST_PRISM_MAX_OPS; i++)
		roost_prism_read(&chain, 0, rig_va(r, 0), 0);
	assert_int_equal(p->ops, 31); /* more than fit into the memory that begin() takes */
	assert_int_equal(run().status, ROOST_RPC_OK);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(like_the_model),
		cmocka_unit_test(put_and_get),
		cmocka_unit_test(bounds_of_the_target),
		cmocka_unit_test(relations_and_masks),
		cmocka_unit_test(many_at_once),
		cmocka_unit_test(bits_of_one_word),
		cmocka_unit_test(rights),
		cmocka_unit_test(lists_that_lead_astray),
		cmocka_unit_test(bad_parameters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
