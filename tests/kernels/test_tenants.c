/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The effect of a tenant's kernels on another tenant. One tenant makes READs of 64 bytes, one after
 * the other, while a peer makes as many calls, or sends as much payload, as it can, for each
 * built-in kernel. This is compared with a peer that makes as many WRITEs as it can: p99 must be
 * below twice that value, and the rate above half of it. WRITEs are the measure because a peer may
 * load the NIC in any case: a tenant that was alone waits for its packets, with kernels or without,
 * and kernels must not make that worse. Time is virtual and advances by the cost of the node's
 * turns, with a price per packet, KiB and step, on any machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../kv/far_model.h"
#include "base/hist.h"
#include "builtin/builtin.h"
#include "builtin/kv_store.h"
#include "kvwire/kvwire.h"
#include "rig.h"
#include "roost/aggregate.h"
#include "roost/consistency.h"
#include "roost/get.h"
#include "roost/hll.h"
#include "roost/prism.h"
#include "roost/shuffle.h"
#include "roost/traversal.h"

enum { TENANT = 1, ATTACKER = 0, PIECES = 65536 };

#define TURN_NS	  500
#define PACKET_NS 300
#define KIB_NS	  100
#define WARM_UP	  (5 * MSEC)
#define MEASURED  (100 * MSEC)

static struct rig R, *const r = &R;

/* Costs on a machine of 2020, for the most expensive input. */
struct attack {
	const char *name;
	uint32_t step_ns, kib_ns; /* KiB of payload */
	uint64_t op;
	uint32_t (*params)(uint8_t *to); /* returns their length; NULL: WRITEs */
	void (*payload)(uint8_t *to);	 /* of PIECES bytes, or payload_len; NULL: none */
	/* kv: ns of a KiB of values that operations read or write; and other sizes than usual */
	uint32_t value_ns, payload_len, space;
	/* kv: bytes of near memory, for all lines or for a part of the values; 0: no far tier */
	uint32_t near;
};

/* ---- the attacks ---- */

/* A table without a free bucket, and a key that it does not contain. */
static uint32_t get_params(uint8_t *to)
{
	struct roost_get_params p = {.table = rig_va(r, 0),
				     .mask = 1023,
				     .key = 1,
				     .bound = ~0u,
				     .flags = ROOST_GET_PROBE};

	memset(r->node[ATTACKER].mem, 0x55, 65536);
	memcpy(to, &p, sizeof(p));
	return sizeof(p);
}

/*
 * An element of a kilobyte that points to itself, with a key of 64 bytes at each position, none of
 * which matches.
 */
static uint32_t traversal_params(uint8_t *to)
{
	struct roost_traversal_params p = {.root = rig_va(r, 0),
					   .element_len = 1024,
					   .bound = ~0u,
					   .key_len = 64,
					   .next = ROOST_TRAVERSAL_NEXT_FIXED,
					   .next_pos = 254,
					   .key_mask = {~0ull, ~0ull, ~0ull, (1ull << 49) - 1}};
	uint64_t root = rig_va(r, 0);

	memset(r->node[ATTACKER].mem, 0, 1024);
	memcpy(r->node[ATTACKER].mem + 1016, &root, 8);
	p.key[0] = 1;
	memcpy(to, &p, sizeof(p));
	return sizeof(p);
}

static uint32_t consistency_params(uint8_t *to)
{
	struct roost_consistency_params p = roost_consistency_params(
		rig_va(r, 0), ROOST_CONSISTENCY_MAX, UINT16_MAX, ROOST_CONSISTENCY_CRC);

	memset(r->node[ATTACKER].mem, 0x33, ROOST_CONSISTENCY_MAX);
	memcpy(to, &p, sizeof(p));
	return sizeof(p);
}

static uint32_t estimate_params(uint8_t *to)
{
	struct roost_hll_params p =
		roost_hll_params(7, ROOST_HLL_ESTIMATE, ROOST_HLL_MAX_PRECISION);

	memcpy(to, &p, sizeof(p));
	return sizeof(p);
}

static uint32_t items_params(uint8_t *to)
{
	struct roost_hll_params p = roost_hll_params(7, ROOST_HLL_ADD, ROOST_HLL_MAX_PRECISION);

	memcpy(to, &p, sizeof(p));
	return sizeof(p);
}

static uint32_t prism_params(uint8_t *to)
{
	struct roost_prism_chain c = roost_prism_chain(to, 1024);

	while (roost_prism_add(&c, ROOST_PRISM_READ, 0, rig_va(r, 0), 256, NULL, 0) &&
	       c.len + 64 <= 1000)
		;
	return c.len;
}

static uint32_t aggregate_params(uint8_t *to)
{
	struct roost_aggregate_params p = {
		.record = 8, .group = {.width = 8}, .max_groups = ROOST_AGGREGATE_MAX_GROUPS};

	memcpy(to, &p, sizeof(p));
	return sizeof(p);
}

static void any(uint8_t *to)
{
	for (uint32_t i = 0; i < PIECES; i++)
		to[i] = (uint8_t)(i * 2654435761u >> 24);
}

/*
 * The table is in the region. Each partition has space for one tuple, so none is ever full and all
 * are flushed.
 */
static uint32_t shuffle_params(uint8_t *to)
{
	struct roost_shuffle_params p = {
		.table = rig_va(r, 0), .partitions = 8192, .tuple = 8, .how = ROOST_SHUFFLE_RADIX};
	struct roost_shuffle_part *part = (struct roost_shuffle_part *)r->node[ATTACKER].mem;

	for (uint32_t i = 0; i < 8192; i++)
		part[i] = (struct roost_shuffle_part){rig_va(r, (256 << 10) + i * 64), 64};
	memcpy(to, &p, sizeof(p));
	return sizeof(p);
}

/* The table is in the region. Each tuple leaves alone, by a WRITE of its own to the attacker. */
static uint32_t shuffle_out_params(uint8_t *to)
{
	struct roost_shuffle_target *target = (struct roost_shuffle_target *)r->node[ATTACKER].mem;
	struct roost_shuffle_params how = {
		.partitions = 8192, .tuple = 8, .how = ROOST_SHUFFLE_RADIX};
	struct roost_shuffle_out_params p =
		roost_shuffle_out_params((void *)(uintptr_t)rig_va(r, 0), &how, 256);

	for (uint32_t i = 0; i < 8192; i++)
		target[i] = (struct roost_shuffle_target){
			.addr = (uintptr_t)r->caller[ATTACKER].mem + RIG_PAYLOAD + PIECES + i * 8,
			.len = 8,
			.rkey = r->caller[ATTACKER].key,
			.qp = 1};
	memcpy(to, &p, sizeof(p));
	return sizeof(p);
}

/* GETs of keys that are not there: as many as have space in a packet and in the reply. */
static uint32_t kv_params(uint8_t *to)
{
	static uint8_t batch[3000];
	static uint32_t len;
	struct kvwire_writer w;

	if (!len) {
		kvwire_begin(&w, batch, sizeof(batch));
		for (uint16_t i = 0;; i++) {
			struct roost_kv_op op = {.code = ROOST_KV_GET, .key = &i, .key_len = 2};

			if (!kvwire_add(&w, &op))
				break;
		}
		len = (uint32_t)kvwire_finish(&w, 0);
	}
	memcpy(to, batch, len);
	return len;
}

/*
 * Operations on a value of a MiB, in a batch of 32, except GET and PUT. Their values are as long as
 * a reply and a payload can be here.
 */
#define GET_LEN 500000u
#define PUT_LEN 240000u

static struct kv_store *store;
static uint64_t values_before; /* kv_bytes() at the last turn */

static uint32_t long_batch(uint8_t *to, const struct roost_kv_op *op, unsigned n, uint8_t flags)
{
	struct kvwire_writer w;

	kvwire_begin(&w, to, 4000);
	while (n--)
		assert_true(kvwire_add(&w, op));
	return (uint32_t)kvwire_finish(&w, flags);
}

static uint32_t touch_params(uint8_t *to)
{
	struct roost_kv_op op = {.code = ROOST_KV_TOUCH, .key = "v", .key_len = 1};

	return long_batch(to, &op, 32, 0);
}

static uint32_t reduce_by(enum roost_kv_fn function, uint8_t *to)
{
	struct roost_kv_op op = {.code = ROOST_KV_REDUCE,
				 .function = function,
				 .type = ROOST_KV_I8,
				 .key = "v",
				 .key_len = 1,
				 .value = "1",
				 .value_len = 1};

	return long_batch(to, &op, 32, 0);
}

/* The slowest function of all, by measurement. */
static uint32_t reduce_params(uint8_t *to)
{
	return reduce_by(ROOST_KV_SUB_SAT, to);
}

/*
 * A registered function that takes 1 us for an element, so 1 s for a value. Only its time counts
 * for the store, by a clock that only it moves on.
 */
#define ELEMENT_NS 1000u

static uint64_t function_ns, function_before;

static uint64_t function_clock(void *ctx)
{
	return function_ns;
}

static void take_a_us(const struct roost_kv_call *c)
{
	function_ns += c->num * ELEMENT_NS;
}

static const struct roost_kv_function slow = {
	.name = "slow", .type = ROOST_KV_I8, .reduce = take_a_us};

static uint32_t registered_params(uint8_t *to)
{
	return reduce_by(ROOST_KV_REGISTERED, to);
}

static uint32_t update_params(uint8_t *to)
{
	struct roost_kv_op op = {.code = ROOST_KV_UPDATE_EACH,
				 .function = ROOST_KV_ADD,
				 .type = ROOST_KV_U64,
				 .key = "v",
				 .key_len = 1,
				 .value = "12345678",
				 .value_len = 8};

	return long_batch(to, &op, 32, 0);
}

static uint32_t long_get_params(uint8_t *to)
{
	struct roost_kv_op op = {.code = ROOST_KV_GET, .key = "g", .key_len = 1};

	return long_batch(to, &op, 1, KVWIRE_LONG);
}

static uint32_t no_params(uint8_t *to)
{
	return 0;
}

static void long_put(uint8_t *to)
{
	static uint8_t value[PUT_LEN - 100];
	struct roost_kv_op op = {.code = ROOST_KV_PUT,
				 .key = "p",
				 .key_len = 1,
				 .value = value,
				 .value_len = sizeof(value)};
	struct kvwire_writer w;
	size_t len;

	kvwire_begin(&w, to, PUT_LEN);
	assert_true(kvwire_add(&w, &op));
	len = kvwire_finish(&w, 0);
	assert_in_range(len, 1, PUT_LEN);
	memset(to + len, 0, PUT_LEN - len);
}

#define STORE	 (32u << 20)
#define NEAR_ALL STORE
#define NEAR_FEW (512u << 10)

static void open_store(struct roost_kv_config *config, uint32_t near)
{
	static const struct roost_kv_functions functions = {ROOST_KV_FUNCTION_ABI, 1, &slow};
	static struct far_model model;
	struct kv_store_far far = {.tier = &model.far, .near = near};
	uint8_t *value = calloc(1, KV_VALUE_MAX);
	unsigned at;

	assert_non_null(value);
	far_model_init(&model, 1, 2);
	assert_int_equal(kv_store_open(config, near ? &far : NULL, &store), 0);
	assert_int_equal(kv_store_register(store, &functions, &at), 0);
	kv_set_clock(store->kv, function_clock, NULL);
	function_ns = function_before = 0;
	for (unsigned i = 0; i < 2; i++) {
		struct kv_op put = {.code = KV_PUT,
				    .key = i ? "g" : "v",
				    .key_len = 1,
				    .value = value,
				    .value_len = i ? GET_LEN : KV_VALUE_MAX};

		kv_run(store->kv, &put, 1);
		assert_int_equal(put.status, 0);
	}
	free(value);
	config->store = store;
	values_before = kv_bytes(store->kv);
}

static void one_each(uint8_t *to)
{
	for (uint64_t i = 0; i < PIECES / 8; i++)
		memcpy(to + i * 8, &i, 8);
}

static const struct attack
	writes = {.name = "WRITEs"},
	attacks[] = {
		{.name = "get", 210, 0, ROOST_GET_OP, get_params, NULL},
		{.name = "traversal", 1500, 0, ROOST_TRAVERSAL_OP, traversal_params, NULL},
		{.name = "consistency", 1500, 0, ROOST_CONSISTENCY_OP, consistency_params, NULL},
		{.name = "hll, estimates", 2000, 0, ROOST_HLL_OP, estimate_params, NULL},
		{.name = "hll, items", 300, 300, ROOST_HLL_OP, items_params, any},
		{.name = "prism", 300, 0, ROOST_PRISM_OP, prism_params, NULL},
		{.name = "aggregate", 300, 2600, ROOST_AGGREGATE_OP, aggregate_params, any},
		{.name = "shuffle", 8000, 400, ROOST_SHUFFLE_OP, shuffle_params, one_each},
		{.name = "shuffle-out",
		 700,
		 400,
		 ROOST_SHUFFLE_OUT_OP,
		 shuffle_out_params,
		 one_each},
		{.name = "kv", 2400, 0, ROOST_KV_OP, kv_params, NULL},
		{.name = "kv, TOUCH of a MiB",
		 300,
		 0,
		 ROOST_KV_OP,
		 touch_params,
		 NULL,
		 .value_ns = 105},
		{.name = "kv, REDUCE of a MiB",
		 300,
		 0,
		 ROOST_KV_OP,
		 reduce_params,
		 NULL,
		 .value_ns = 105},
		{.name = "kv, UPDATE_EACH of a MiB",
		 300,
		 0,
		 ROOST_KV_OP,
		 update_params,
		 NULL,
		 .value_ns = 105},
		{.name = "kv, long GET",
		 300,
		 0,
		 ROOST_KV_OP,
		 long_get_params,
		 NULL,
		 .value_ns = 105,
		 .space = GET_LEN + 64},
		{.name = "kv, long PUT",
		 300,
		 100,
		 ROOST_KV_OP,
		 no_params,
		 long_put,
		 .value_ns = 105,
		 .payload_len = PUT_LEN},
		{.name = "kv, a registered function", 300, 0, ROOST_KV_OP, registered_params, NULL},
		{.name = "kv, TOUCH, far tier",
		 300,
		 0,
		 ROOST_KV_OP,
		 touch_params,
		 NULL,
		 .value_ns = 105,
		 .near = NEAR_ALL},
		{.name = "kv, REDUCE, far tier",
		 300,
		 0,
		 ROOST_KV_OP,
		 reduce_params,
		 NULL,
		 .value_ns = 105,
		 .near = NEAR_ALL},
		{.name = "kv, UPDATE_EACH, far tier",
		 300,
		 0,
		 ROOST_KV_OP,
		 update_params,
		 NULL,
		 .value_ns = 105,
		 .near = NEAR_ALL},
		{.name = "kv, a registered function, far tier",
		 300,
		 0,
		 ROOST_KV_OP,
		 registered_params,
		 NULL,
		 .near = NEAR_ALL},
		{.name = "kv, long GET, far tier",
		 300,
		 0,
		 ROOST_KV_OP,
		 long_get_params,
		 NULL,
		 .value_ns = 105,
		 .space = GET_LEN + 64,
		 .near = NEAR_ALL},
		{.name = "kv, long PUT, far tier",
		 300,
		 100,
		 ROOST_KV_OP,
		 no_params,
		 long_put,
		 .value_ns = 105,
		 .payload_len = PUT_LEN,
		 .near = NEAR_ALL},
		{.name = "kv, TOUCH, far tier, missing lines",
		 300,
		 0,
		 ROOST_KV_OP,
		 touch_params,
		 NULL,
		 .value_ns = 105,
		 .near = NEAR_FEW},
		{.name = "kv, UPDATE_EACH, far tier, missing lines",
		 300,
		 0,
		 ROOST_KV_OP,
		 update_params,
		 NULL,
		 .value_ns = 105,
		 .near = NEAR_FEW},
};

/* ---- time ---- */

static struct node_work {
	uint64_t packets, bytes, steps, payload;
} before;

static struct node_work work_of(void)
{
	struct runtime_counters f = rig_counters(r);
	struct nic_counters n;

	nic_counters(r->w.nic[1], &n);
	return (struct node_work){n.rcvd_pkts, n.rcvd_bytes, f.steps, f.payload_bytes};
}

/* Runs a turn of both NICs, and advances the time by the cost of the node's turn. */
static void a_turn(const struct attack *a)
{
	uint64_t start = world_now(&r->w), end = start + TURN_NS;
	struct node_work now;

	nic_poll(r->w.nic[0], 0, start);
	nic_poll(r->w.nic[1], 0, start);
	now = work_of();
	end += (now.packets - before.packets) * PACKET_NS +
	       (now.bytes - before.bytes) / 1024 * KIB_NS +
	       (now.steps - before.steps) * a->step_ns +
	       (now.payload - before.payload) / 1024 * a->kib_ns +
	       (kv_bytes(store->kv) - values_before) / 1024 * a->value_ns + function_ns -
	       function_before;
	before = now;
	function_before = function_ns;
	values_before = kv_bytes(store->kv);
	if (nic_turn_end_requested(r->w.nic[1], 0))
		nic_turn_ended(r->w.nic[1], 0, end);
	sim_advance(r->w.sim, end);
}

/* ---- the two ---- */

#define MAX_CALLS 48

static struct {
	bool busy[MAX_CALLS];
	unsigned posted, done; /* work requests */
} attacker;

static void reap_attacker(void)
{
	struct roost_cqe c;

	while (ep_poll_send(&r->caller[ATTACKER], &c)) {
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		attacker.done++;
	}
}

static void keep_attacking(const struct attack *a)
{
	unsigned slots = a->space > RIG_REPLY ? 1 : a->payload_len ? 2 : a->payload ? 8 : MAX_CALLS;
	uint32_t space = a->space ? a->space : 4096;
	struct roost_rpc_head head;
	struct rig_reply reply;
	uint8_t params[4096];
	uint32_t len;

	reap_attacker();
	if (!a->params) {
		for (; attacker.posted - attacker.done < 8; attacker.posted++)
			rig_write(r, ATTACKER, RIG_PAYLOAD, 0, PIECES);
		return;
	}
	for (unsigned i = 0; i < slots; i++) {
		if (attacker.busy[i] && !rig_poll(r, ATTACKER, i, space, &reply))
			continue;
		attacker.busy[i] = true;
		len = a->params(params);
		head = rig_head(r, ATTACKER, i, 4096, a->payload ? ROOST_RPC_STREAM : 0);
		head.reply_len = space + 8; /* a long reply takes the space of many slots */
		memset(r->caller[ATTACKER].mem + i * RIG_REPLY + space, 0, 8);
		rig_post_head(r, ATTACKER, i, a->op, &head, params, len);
		if (a->payload)
			rig_post_payload(r, ATTACKER, a->op,
					 a->payload_len ? a->payload_len : PIECES);
	}
}

struct seen {
	uint64_t reads, p99;
};

/* READs of the tenant's until `until`; into h when there is one. */
static uint64_t read_on(const struct attack *a, uint64_t until, struct hist *h)
{
	struct ep *e = &r->caller[TENANT];
	struct wr wr = {.op = ROOST_OP_READ,
			.sge = {ep_sge(e, 0, 64)},
			.num_sge = 1,
			.raddr = (uintptr_t)r->node[TENANT].mem,
			.rkey = r->node[TENANT].key};
	uint64_t reads = 0, began;
	struct roost_cqe c;

	while (world_now(&r->w) < until) {
		began = world_now(&r->w);
		ep_post(e, &wr);
		while (!ep_poll_send(e, &c)) {
			if (a)
				keep_attacking(a);
			a_turn(a ? a : &writes);
		}
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		reads++;
		if (h)
			hist_add(h, world_now(&r->w) - began);
	}
	return reads;
}

static struct seen tenant_beside(const struct attack *a)
{
	struct roost_kv_config config = {.size = STORE};
	static struct hist h;
	struct seen seen;
	unsigned number;

	rig_open(r, 5, &(struct rig_shape){.sp = {.delay_ns = 1000}, .mtu = 4096, .rnr_retry = 7});
	open_store(&config, a ? a->near : 0);
	for (unsigned i = 0; kernels_builtin_at(i); i++)
		assert_int_equal(
			runtime_deploy(r->f, kernels_builtin_at(i),
				       kernels_builtin_at(i)->op == ROOST_KV_OP ? &config : NULL),
			0);
	assert_int_equal(runtime_bind_qp(r->f, ROOST_SHUFFLE_OUT_OP, r->node[ATTACKER].qp,
					 &(struct runtime_qp_limits){0}, &number),
			 0);
	memset(&attacker, 0, sizeof(attacker));
	memset(&before, 0, sizeof(before));
	if (a && a->op == ROOST_HLL_OP) {
		struct roost_hll_params p =
			roost_hll_params(7, ROOST_HLL_ADD, ROOST_HLL_MAX_PRECISION);

		assert_int_equal(rig_call(r, ROOST_HLL_OP, &p, sizeof(p), 64).status, ROOST_RPC_OK);
		rig_reap(r);
	}
	if (a && a->payload)
		a->payload(r->caller[ATTACKER].mem + RIG_PAYLOAD);
	hist_reset(&h);
	read_on(a, world_now(&r->w) + WARM_UP, NULL);
	seen.reads = read_on(a, world_now(&r->w) + MEASURED, &h);
	seen.p99 = hist_percentile(&h, 99);
	rig_close(r);
	if (a && a->near == NEAR_FEW) {
		struct kv_stat stat;

		kv_get_stat(store->kv, &stat);
		assert_true(stat.far_reads * mem_page_size() > 4u << 20);
	}
	kv_store_close(store);
	return seen;
}

static bool attacked(uint64_t op)
{
	for (unsigned i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++)
		if (attacks[i].op == op)
			return true;
	return false;
}

static void a_tenant_keeps_its_share(void **state)
{
	struct seen alone = tenant_beside(NULL), base = tenant_beside(&writes);
	unsigned bad = 0;

	for (unsigned i = 0; kernels_builtin_at(i); i++)
		assert_true(attacked(kernels_builtin_at(i)->op));
	print_message("alone: %llu READs, p99 %llu ns; beside WRITEs: %llu, %llu ns\n",
		      (unsigned long long)alone.reads, (unsigned long long)alone.p99,
		      (unsigned long long)base.reads, (unsigned long long)base.p99);
	for (unsigned i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
		struct seen s = tenant_beside(&attacks[i]);

		print_message("beside %s: %llu READs, p99 %llu ns\n", attacks[i].name,
			      (unsigned long long)s.reads, (unsigned long long)s.p99);
		bad += s.p99 >= 2 * base.p99 || s.reads <= base.reads / 2;
	}
	assert_int_equal(bad, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_tenant_keeps_its_share)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
