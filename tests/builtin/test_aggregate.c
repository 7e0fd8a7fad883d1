/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares the kernel `aggregate` with a plain model that processes the whole stream at once:
 * records of all sizes, over links of all kinds.
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
#include "roost/aggregate.h"

#define PAYLOAD (RIG_MEM - RIG_PAYLOAD)
#define OUT	65536u /* where rows go in the node's memory */

static struct rig R, *const r = &R;

static void open_rig(const struct rig_shape *shape)
{
	rig_open(r, 1, shape);
	assert_int_equal(runtime_deploy(r->f, kernels_builtin("aggregate"), NULL), 0);
}

/* Makes a call with `len` bytes of payload at RIG_PAYLOAD. */
static struct rig_reply stream(const struct roost_aggregate_params *p, uint32_t len, uint32_t space)
{
	struct rig_reply reply;

	rig_post(r, 0, 0, ROOST_AGGREGATE_OP, p, sizeof(*p), space, ROOST_RPC_STREAM);
	rig_post_payload(r, 0, ROOST_AGGREGATE_OP, len);
	reply = rig_wait(r, 0, 0, space);
	world_run(&r->w, world_now(&r->w) + SEC);
	rig_reap(r);
	return reply;
}

/* ---- the model ---- */

struct model {
	struct roost_aggregate_result res;
	struct roost_aggregate_group group[ROOST_AGGREGATE_MAX_GROUPS];
	uint8_t rows[PAYLOAD * 2];
	uint64_t bytes;
};

static uint64_t load(const uint8_t *rec, const struct roost_aggregate_field *f)
{
	uint64_t x = 0;

	for (unsigned i = 0; i < f->width; i++)
		x |= (uint64_t)rec[f->offset + i] << 8 * i;
	if (f->is_signed && f->width < 8 && x >> (8 * f->width - 1))
		x |= UINT64_MAX << 8 * f->width;
	return x;
}

static int compare(uint64_t x, uint64_t y, bool is_signed)
{
	if (is_signed)
		return (int64_t)x < (int64_t)y ? -1 : (int64_t)x > (int64_t)y;
	return x < y ? -1 : x > y;
}

static bool holds(const struct roost_aggregate_params *p, const uint8_t *rec)
{
	int c = compare(load(rec, &p->where), p->operand, p->where.is_signed);

	return p->predicate == ROOST_AGGREGATE_ALL ||
	       (p->predicate == ROOST_AGGREGATE_EQUAL && c == 0) ||
	       (p->predicate == ROOST_AGGREGATE_NOT_EQUAL && c != 0) ||
	       (p->predicate == ROOST_AGGREGATE_LESS_THAN && c < 0) ||
	       (p->predicate == ROOST_AGGREGATE_GREATER_THAN && c > 0);
}

/* Adds to a sum of two words, with the carry done by hand. */
static void sum_up(uint64_t *sum, uint64_t *high, uint64_t x, bool is_signed)
{
	*sum += x;
	*high += (*sum < x) + (is_signed && (int64_t)x < 0 ? UINT64_MAX : 0);
}

static void extremes(uint64_t *min, uint64_t *max, uint64_t x, bool first, bool is_signed)
{
	if (first || compare(x, *min, is_signed) < 0)
		*min = x;
	if (first || compare(x, *max, is_signed) > 0)
		*max = x;
}

static void model_group(struct model *m, const struct roost_aggregate_params *p, uint64_t key,
			uint64_t x)
{
	struct roost_aggregate_group *g = m->group;

	while (g < m->group + m->res.groups && g->key != key)
		g++;
	if (g == m->group + m->res.groups) {
		if (m->res.groups == p->max_groups) {
			m->res.overflow++;
			return;
		}
		*g = (struct roost_aggregate_group){.key = key};
		m->res.groups++;
	}
	extremes(&g->min, &g->max, x, !g->count, p->value.is_signed);
	sum_up(&g->sum, &g->sum_high, x, p->value.is_signed);
	g->count++;
}

static void model_row(struct model *m, const struct roost_aggregate_params *p, const uint8_t *rec,
		      uint64_t capacity)
{
	uint32_t row = 0;

	for (uint32_t i = 0; i < p->spans; i++)
		row += p->span[i].len;
	if (m->bytes + row > capacity) {
		m->res.overflow++;
		return;
	}
	for (uint32_t i = 0; i < p->spans; i++) {
		memcpy(m->rows + m->bytes, rec + p->span[i].offset, p->span[i].len);
		m->bytes += p->span[i].len;
	}
	m->res.rows++;
}

static void run_model(struct model *m, const struct roost_aggregate_params *p, const uint8_t *data,
		      uint32_t len, uint64_t capacity)
{
	memset(&m->res, 0, sizeof(m->res));
	m->bytes = 0;
	for (const uint8_t *rec = data; rec < data + len; rec += p->record) {
		uint64_t x = load(rec, &p->value);

		m->res.records++;
		if (!holds(p, rec))
			continue;
		extremes(&m->res.min, &m->res.max, x, !m->res.matched, p->value.is_signed);
		sum_up(&m->res.sum, &m->res.sum_high, x, p->value.is_signed);
		m->res.matched++;
		if (p->max_groups)
			model_group(m, p, load(rec, &p->group), x);
		if (p->spans)
			model_row(m, p, rec, capacity);
	}
}

static struct model M;

/* Makes a call, and checks all of its results. */
static void check(const struct roost_aggregate_params *p, uint32_t len, uint32_t space)
{
	const uint8_t *data = r->caller[0].mem + RIG_PAYLOAD;
	struct roost_aggregate_result res;
	struct rig_reply a;

	run_model(&M, p, data, len, p->out ? p->out_len : space - sizeof(res));
	memset(r->node[0].mem + OUT, 0xee, RIG_MEM - OUT);
	a = stream(p, len, space);
	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_int_equal(roost_aggregate_result(a.data, a.len, &res), 0);
	assert_memory_equal(&res, &M.res, sizeof(res));
	if (p->out) {
		assert_int_equal(a.len, sizeof(res));
		assert_memory_equal(r->node[0].mem + OUT, M.rows, M.bytes);
		for (uint64_t i = OUT + M.bytes; i < RIG_MEM; i++)
			assert_int_equal(r->node[0].mem[i], 0xee);
	} else if (p->spans) {
		assert_int_equal(a.len, M.bytes + sizeof(res));
		assert_memory_equal(a.data, M.rows, M.bytes);
	} else {
		assert_int_equal(a.len, res.groups * sizeof(M.group[0]) + sizeof(res));
		assert_memory_equal(a.data, M.group, res.groups * sizeof(M.group[0]));
	}
}

/* ---- tests ---- */

static struct roost_aggregate_field any_field(struct rng *rng, uint32_t record)
{
	uint8_t width = 1 + (uint8_t)rng_below(rng, record < 8 ? record : 8);

	return roost_aggregate_field((uint32_t)rng_below(rng, record - width + 1), width,
				     (uint8_t)rng_below(rng, 2));
}

static struct roost_aggregate_params any(struct rng *rng)
{
	static const uint32_t sizes[] = {1,   2,   3,	 8,    16,   24,   63,	 64,
					 100, 256, 1000, 1024, 4096, 5000, 30011};
	struct roost_aggregate_params p =
		roost_aggregate_params(sizes[rng_below(rng, ARRAY_SIZE(sizes))]);
	uint32_t max_span = p.record < 128 ? p.record : 128;

	p.predicate = (uint32_t)rng_below(rng, 5);
	if (p.predicate)
		roost_aggregate_where(&p, any_field(rng, p.record), p.predicate,
				      rng_below(rng, 300) - 100);
	if (rng_below(rng, 4))
		p.value = any_field(rng, p.record);
	switch (rng_below(rng, 4)) {
	case 0:
		roost_aggregate_group_by(&p, any_field(rng, p.record),
					 1 + (uint32_t)rng_below(rng, rng_below(rng, 2) ? 5 : 100));
		break;
	case 1:
		p.out = rig_va(r, OUT);
		p.out_len = rng_below(rng, RIG_MEM - OUT);
		/* fall through */
	case 2:
		for (uint64_t n = 1 + rng_below(rng, 8); n; n--) {
			uint32_t len = 1 + (uint32_t)rng_below(rng, max_span);

			roost_aggregate_project(&p, (uint32_t)rng_below(rng, p.record - len + 1),
						len);
		}
		break;
	}
	return p;
}

/* Fills with few different bytes, so that comparisons and groups match. */
static void fill(struct rng *rng, uint32_t len)
{
	uint64_t of = rng_below(rng, 2) ? 4 : 256;

	for (uint32_t i = 0; i < len; i++)
		r->caller[0].mem[RIG_PAYLOAD + i] = (uint8_t)(rng_below(rng, of) - of / 2);
}

static void random_programs(const struct rig_shape *shape, uint64_t seed, unsigned rounds)
{
	struct rng rng;

	rng_seed(&rng, seed);
	open_rig(shape);
	for (unsigned i = 0; i < rounds; i++) {
		struct roost_aggregate_params p = any(&rng);
		uint32_t max = rng_below(&rng, 2) ? 3000 : 60000;
		uint32_t len = (uint32_t)rng_below(&rng, max / p.record + 2) * p.record;

		fill(&rng, len);
		check(&p, len, RIG_REPLY - 8);
	}
	rig_close(r);
}

static void like_the_model(void **state)
{
	random_programs(&(struct rig_shape){.sp = {.delay_ns = 1000}, .mtu = 4096}, 1, 150);
	random_programs(&(struct rig_shape){.sp = {.delay_ns = 1000}, .mtu = 256}, 2, 60);
	random_programs(&(struct rig_shape){.loop = true}, 3, 60);
}

static void over_a_bad_link(void **state)
{
	for (uint64_t seed = 10; seed < 13; seed++)
		random_programs(&(struct rig_shape){.sp = {.loss = 0.02,
							   .dup = 0.02,
							   .reorder = 0.02,
							   .delay_ns = 1000},
						    .mtu = 512},
				seed, 20);
}

/* Sums beyond 64 bits, values at the ends of a field's range, and signs. */
static void extreme_values(void **state)
{
	static const uint64_t values[] = {UINT64_MAX, UINT64_MAX, 1ull << 63,	 0,
					  INT64_MAX,  1,	  UINT64_MAX - 1};
	struct roost_aggregate_params p = roost_aggregate_params(8);

	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	for (unsigned i = 0; i < 4000; i++)
		memcpy(r->caller[0].mem + RIG_PAYLOAD + 8 * i, &values[i % ARRAY_SIZE(values)], 8);
	for (uint8_t is_signed = 0; is_signed < 2; is_signed++) {
		p.value = p.where = roost_aggregate_field(0, 8, is_signed);
		for (uint32_t pred = ROOST_AGGREGATE_EQUAL; pred <= ROOST_AGGREGATE_GREATER_THAN;
		     pred++) {
			for (unsigned i = 0; i < ARRAY_SIZE(values); i++) {
				p.predicate = pred;
				p.operand = values[i];
				check(&p, 32000, 1000);
			}
		}
	}
	roost_aggregate_where(&p, p.where, ROOST_AGGREGATE_LESS_THAN, 0);
	check(&p, 32000, 1000);
	assert_true((int64_t)M.res.sum_high < -100);
	p.value.is_signed = 0;
	check(&p, 32000, 1000);
	assert_true(M.res.sum_high > 100 && M.res.sum_high < 10000);
	rig_close(r);
}

static void as_many_groups_as_there_are(void **state)
{
	struct roost_aggregate_params p = roost_aggregate_params(8);

	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	for (uint32_t i = 0; i < 2000; i++) {
		uint32_t rec[2] = {i % 400 * 977, i};

		memcpy(r->caller[0].mem + RIG_PAYLOAD + 8 * i, rec, 8);
	}
	p.value = roost_aggregate_field(4, 4, 0);
	roost_aggregate_group_by(&p, roost_aggregate_field(0, 4, 0), 160);
	check(&p, 16000, RIG_REPLY - 8);
	assert_int_equal(M.res.groups, 160);
	assert_int_equal(M.res.overflow, 2000 / 400 * 240);
	/* The most groups do not fit into a reply of the rig. */
	p.max_groups = ROOST_AGGREGATE_MAX_GROUPS;
	assert_int_equal(stream(&p, 16000, RIG_REPLY - 8).status, ROOST_RPC_TOO_LONG);
	rig_close(r);
}

/* Rows without space are counted, and memory behind the space is not written. */
static void rows_without_space(void **state)
{
	struct roost_aggregate_params p = roost_aggregate_params(16);
	struct rng rng;

	rng_seed(&rng, 20);
	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	fill(&rng, 48000);
	roost_aggregate_project(&p, 3, 10);
	check(&p, 48000, 64);
	assert_int_equal(M.res.overflow, 3000);
	check(&p, 48000, 64 + 10);
	check(&p, 48000, 5000);
	p.out = rig_va(r, OUT);
	for (p.out_len = 0; p.out_len < 12000; p.out_len += 1009)
		check(&p, 48000, 64);
	/* Space outside of the region. */
	p.out = rig_va(r, RIG_MEM) - 100;
	p.out_len = 1000;
	assert_int_equal(stream(&p, 48000, 64).status, ROOST_RPC_ACCESS);
	p.out = UINT64_MAX - 50;
	assert_int_equal(stream(&p, 48000, 64).status, ROOST_RPC_ACCESS);
	assert_int_equal(stream(&p, 48000, 63).status, ROOST_RPC_ACCESS);
	p.out = p.out_len = p.spans = 0;
	assert_int_equal(stream(&p, 48000, 63).status, ROOST_RPC_TOO_LONG);
	check(&p, 48000, 64);
	rig_close(r);
}

/* ---- streams ---- */

#define RECORD 56u /* no multiple of it up to 7 packets is a multiple of the path MTU */

/* Fills `n` records from `off` of the caller's memory: the first word of each is `word`. */
static void fill_records(uint32_t off, uint32_t n, uint64_t word)
{
	memset(r->caller[0].mem + off, 0x77, (size_t)n * RECORD);
	for (uint32_t i = 0; i < n; i++)
		memcpy(r->caller[0].mem + off + (size_t)i * RECORD, &word, sizeof(word));
}

/*
 * A connection ends in the middle of a message, within a record. The records of the next
 * connection's messages are complete, and the record that was cut is not counted.
 */
static void a_message_is_cut_short(void **state)
{
	static const struct nic_qp_attr reset = {.state = NIC_QPS_RESET};
	struct roost_aggregate_params p = roost_aggregate_params(RECORD);
	struct roost_aggregate_result got;
	struct local_call_result now, end;
	struct local_call *call;

	p.value = roost_aggregate_field(0, 8, 0);
	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	fill_records(0, 7168, 1);
	fill_records(RECORD * 7168, 100, 1000);
	call = rig_local_call(r, r->f, ROOST_AGGREGATE_OP, &p, sizeof(p), &got, sizeof(got));
	assert_int_equal(local_call_attach_in(call, r->node[0].qp), 0);
	rig_write(r, 0, 0, 0, RECORD * 7168);
	do {
		assert_true(rig_step(r));
		local_call_finished(call, &now);
	} while (!now.bytes);
	assert_true(now.bytes < RECORD * 7168 && now.bytes % RECORD);
	assert_int_equal(ep_modify(&r->caller[0], &reset, NIC_QPA_STATE), 0);
	assert_int_equal(ep_modify(&r->node[0], &reset, NIC_QPA_STATE), 0);
	ep_connect(&r->caller[0], &r->node[0]);
	for (unsigned i = 0; i < 2; i++)
		rig_write(r, 0, RECORD * 7168, 0, RECORD * 100);
	world_run(&r->w, world_now(&r->w) + SEC);
	rig_reap(r);
	assert_int_equal(local_call_detach(call), 0);
	local_call_end_stream(call);
	assert_true(local_call_finished(call, &end));
	assert_int_equal(end.status, ROOST_RPC_OK);
	assert_int_equal(got.records, now.bytes / RECORD + 200);
	assert_int_equal(got.sum, now.bytes / RECORD + 200 * 1000);
	local_call_free(call);
	rig_close(r);
}

/* A kernel is attached in the middle of a message: it counts the records that it sees whole. */
static void attached_within_a_message(void **state)
{
	struct roost_aggregate_params p = roost_aggregate_params(RECORD);
	struct roost_aggregate_result got;
	struct local_call_result first, end;
	struct local_call *call[2];
	uint64_t unseen;

	p.value = roost_aggregate_field(0, 8, 0);
	open_rig(&(struct rig_shape){.sp = {.delay_ns = 1000}});
	fill_records(0, 7168, 1);
	for (unsigned i = 0; i < 2; i++)
		call[i] = rig_local_call(r, r->f, ROOST_AGGREGATE_OP, &p, sizeof(p), &got,
					 sizeof(got));
	assert_int_equal(local_call_attach_in(call[0], r->node[0].qp), 0);
	rig_write(r, 0, 0, 0, RECORD * 7168);
	do {
		assert_true(rig_step(r));
		local_call_finished(call[0], &first);
	} while (!first.bytes);
	assert_true(first.bytes < RECORD * 7168 && first.bytes % RECORD);
	unseen = (first.bytes + RECORD - 1) / RECORD;
	assert_int_equal(local_call_attach_in(call[1], r->node[0].qp), 0);
	world_run(&r->w, world_now(&r->w) + SEC);
	rig_reap(r);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(local_call_detach(call[i]), 0);
		local_call_end_stream(call[i]);
		assert_true(local_call_finished(call[i], &end));
		assert_int_equal(end.status, ROOST_RPC_OK);
		assert_int_equal(got.records, i ? 7168 - unseen : 7168);
		assert_int_equal(got.sum, got.records);
		local_call_free(call[i]);
	}
	rig_close(r);
}

static void refused(const struct roost_aggregate_params *p)
{
	assert_int_equal(rig_call(r, ROOST_AGGREGATE_OP, p, sizeof(*p), 64).status,
			 ROOST_RPC_BAD_PARAMS);
}

static void bad_parameters(void **state)
{
	struct roost_aggregate_params good = roost_aggregate_params(100), p;
	uint8_t some[200] = {0};

	open_rig(&(struct rig_shape){.sp = {0}});
	assert_int_equal(rig_call(r, ROOST_AGGREGATE_OP, &good, sizeof(good), 64).status,
			 ROOST_RPC_OK);
	memcpy(some, &good, sizeof(good));
	for (uint32_t n = 0; n < sizeof(some); n++)
		if (n != sizeof(good))
			assert_int_equal(rig_call(r, ROOST_AGGREGATE_OP, some, n, 64).status,
					 ROOST_RPC_BAD_PARAMS);
	p = roost_aggregate_params(0), refused(&p);
	p = good, p.value = roost_aggregate_field(93, 8, 0), refused(&p);
	p = good, p.value = roost_aggregate_field(0, 9, 0), refused(&p);
	p = good, p.value = roost_aggregate_field(UINT32_MAX, 8, 0), refused(&p);
	p = good, p.value = roost_aggregate_field(0, 8, 2), refused(&p);
	p = good, p.value = roost_aggregate_field(1, 0, 0), refused(&p);
	p = good, p.value = (struct roost_aggregate_field){0, 4, 0, 1}, refused(&p);
	p = good, p.predicate = ROOST_AGGREGATE_EQUAL, refused(&p);
	p = good, roost_aggregate_where(&p, roost_aggregate_field(0, 4, 0), 5, 0), refused(&p);
	p = good, p.where = roost_aggregate_field(0, 4, 0), refused(&p);
	p = good, roost_aggregate_group_by(&p, roost_aggregate_field(0, 4, 0), 0), refused(&p);
	p = good, roost_aggregate_group_by(&p, roost_aggregate_field(0, 4, 0), 257), refused(&p);
	p = good, p.max_groups = 1, refused(&p);
	p = good, p.spans = 9, refused(&p);
	p = good, roost_aggregate_project(&p, 0, 0), refused(&p);
	p = good, roost_aggregate_project(&p, 1, 100), refused(&p);
	p = good, roost_aggregate_project(&p, UINT32_MAX, 2), refused(&p);
	p = good, p.out_len = 1, refused(&p);
	p = roost_aggregate_params(5000), roost_aggregate_project(&p, 0, 1025), refused(&p);
	p = roost_aggregate_params(5000), roost_aggregate_project(&p, 0, 1000),
	roost_aggregate_project(&p, 0, 25), refused(&p);
	p = good, roost_aggregate_project(&p, 0, 9);
	roost_aggregate_group_by(&p, roost_aggregate_field(0, 4, 0), 9), refused(&p);
	/* Incomplete records; unannounced records. */
	assert_int_equal(stream(&good, 1001, 64).status, ROOST_RPC_BAD_PARAMS);
	rig_post_payload(r, 0, ROOST_AGGREGATE_OP, 800);
	world_run(&r->w, world_now(&r->w) + SEC);
	assert_int_equal(rig_counters(r).bad_params, 21 + sizeof(some) - 1 + 2);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(like_the_model),
		cmocka_unit_test(over_a_bad_link),
		cmocka_unit_test(extreme_values),
		cmocka_unit_test(as_many_groups_as_there_are),
		cmocka_unit_test(rows_without_space),
		cmocka_unit_test(bad_parameters),
		cmocka_unit_test(a_message_is_cut_short),
		cmocka_unit_test(attached_within_a_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
