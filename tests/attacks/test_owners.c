/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer takes as many resources of kernels as it can: sketches of hll, buffers of shuffle and
 * shuffle-out, slots and memory of the node. It must get no more than its share, and another peer
 * must get its own. Resources of a connection must be free again when it ends, or when its stream
 * stops. The test counts them by the node's statistics of its kernels. It runs in virtual time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "builtin/builtin.h"
#include "kernels/runtime.h"
#include "kernels/local_call.h"
#include "roost/get.h"
#include "roost/hll.h"
#include "roost/shuffle.h"
#include "world.h"

enum { ATTACKER, NODE, PEER, NICS };

#define MEM	(128u << 10)
#define SPACE	64u
#define REPLY	0u	    /* in the caller's memory */
#define REQUEST 4096u	    /* likewise */
#define PAYLOAD (64u << 10) /* likewise; in the node's memory, the partitions */
#define LINES	(16u << 10) /* of payload */
#define IDLE	(10 * SEC)

static struct world W, *const w = &W;
static struct kernel_runtime *f;

/* A connection: `at` calls, `node_end` is the other end of it. */
struct conn {
	struct ep at, node_end;
	uint16_t mark;
};

/* ---- the scene ---- */

/*
 * The time from which the link drops all packets of the attacker, so that its messages are
 * incomplete.
 */
static struct {
	bool armed;
	unsigned after, seen;
} cut_off;

static int lose(void *ctx, const struct pkt_addr *src, const uint8_t *bth, uint32_t len)
{
	if (!cut_off.armed || world_nic_of(w, src) != ATTACKER || bth[0] < 0x19 || bth[0] > 0x1c)
		return 0;
	return cut_off.seen++ >= cut_off.after;
}

static void open_scene(void)
{
	struct sim_params sp = {.delay_ns = 1000};

	world_init(w, NICS, 1, &sp);
	sim_set_filter(w->sim, lose, NULL);
	cut_off.armed = false;
	assert_int_equal(runtime_create(w->nic[NODE], NULL, &f), 0);
	for (unsigned i = 0; kernels_builtin_at(i); i++)
		assert_int_equal(runtime_deploy(f, kernels_builtin_at(i), NULL), 0);
}

static void connect_from(struct conn *c, unsigned nic)
{
	/*
	 * many retries: streams of a peer whose packets are lost must be idle before it counts as
	 * gone
	 */
	struct ep_params p = {
		.rpc = true, .mem = MEM, .mtu = 1024, .depth = 128, .rnr_retry = 7, .timeout = 20};

	ep_init(&c->at, w, nic, &p);
	ep_init(&c->node_end, w, NODE, &p);
	ep_connect(&c->at, &c->node_end);
	c->mark = 0;
}

static void end_conn(struct conn *c)
{
	ep_fini(&c->at);
	ep_fini(&c->node_end);
}

/* Returns the number of resources in use, by the kernel's public counter. */
static uint32_t taken(uint64_t op)
{
	struct runtime_kernel_info info;

	for (unsigned i = 0; runtime_kernel_info(f, i, &info); i++)
		if (info.op == op)
			return info.resources;
	return UINT32_MAX;
}

static struct runtime_counters counters(void)
{
	struct runtime_counters c;

	runtime_counters(f, &c);
	return c;
}

static void begin(struct conn *c, uint64_t op, const void *params, uint32_t len, uint16_t flags)
{
	struct roost_rpc_head head = {.reply_addr = (uintptr_t)c->at.mem + REPLY,
				      .reply_rkey = c->at.key,
				      .reply_len = SPACE + 8,
				      .mark = ++c->mark,
				      .flags = flags};
	struct wr wr = {.op = ROOST_OP_RPC,
			.sge = {ep_sge(&c->at, REQUEST, (uint32_t)sizeof(head) + len)},
			.num_sge = 1,
			.raddr = op,
			.rkey = c->node_end.key};

	memcpy(c->at.mem + REQUEST, &head, sizeof(head));
	memcpy(c->at.mem + REQUEST + sizeof(head), params, len);
	ep_post(&c->at, &wr);
}

static void send_payload(struct conn *c, uint64_t op, uint32_t len)
{
	struct wr wr = {.op = ROOST_OP_RPC_WRITE,
			.sge = {ep_sge(&c->at, PAYLOAD, len)},
			.num_sge = 1,
			.raddr = op,
			.rkey = c->node_end.key};

	ep_post(&c->at, &wr);
}

/* The status of the last call; -1: there is no reply yet. */
static int status_of(const struct conn *c)
{
	struct roost_rpc_tail tail;

	memcpy(&tail, c->at.mem + REPLY + SPACE, sizeof(tail));
	return tail.mark == c->mark ? tail.status : -1;
}

static int await(struct conn *c, uint64_t ns)
{
	uint64_t until = world_now(w) + ns;

	while (status_of(c) < 0 && world_step(w, until))
		;
	return status_of(c);
}

static int call(struct conn *c, uint64_t op, const void *params, uint32_t len)
{
	begin(c, op, params, len, 0);
	return await(c, SEC);
}

/* ---- hll ---- */

static int sketch(struct conn *c, uint64_t name, uint32_t what)
{
	bool makes = what == ROOST_HLL_ADD;
	struct roost_hll_params p =
		roost_hll_params(name, what, makes ? ROOST_HLL_MIN_PRECISION : 0);

	return call(c, ROOST_HLL_OP, &p, sizeof(p));
}

/* Returns the number of sketches that the connection can make. */
static unsigned make_all(struct conn *c, uint64_t from)
{
	unsigned n = 0;

	while (n < ROOST_HLL_SKETCHES && sketch(c, from + n, ROOST_HLL_ADD) == ROOST_RPC_OK)
		n++;
	assert_true(n == ROOST_HLL_SKETCHES || status_of(c) == ROOST_HLL_FULL);
	return n;
}

#define MANY 5

static void sketches(void **state)
{
	static struct conn many[MANY], peer, other;
	unsigned n = 0;

	open_scene();
	connect_from(&peer, PEER);
	connect_from(&other, PEER);
	for (unsigned i = 0; i < MANY; i++) {
		connect_from(&many[i], ATTACKER);
		n += make_all(&many[i], 1000 * (i + 1));
		assert_true(n <= ROOST_HLL_SHARE * (i + 1));
	}
	assert_int_equal(n, ROOST_HLL_SKETCHES / 2);
	assert_int_equal(taken(ROOST_HLL_OP), n);
	assert_true(counters().resources_refused >= MANY);
	/* The other peer still has its share. */
	assert_int_equal(make_all(&peer, 1), ROOST_HLL_SHARE);
	assert_int_equal(sketch(&many[0], 1, ROOST_HLL_DROP), ROOST_HLL_OWNER);
	assert_int_equal(sketch(&other, 1, ROOST_HLL_DROP), ROOST_HLL_OWNER);
	assert_int_equal(sketch(&other, 1, ROOST_HLL_ESTIMATE), ROOST_RPC_OK); /* knows the name */
	assert_int_equal(sketch(&peer, 8, ROOST_HLL_DROP), ROOST_RPC_OK);
	assert_int_equal(sketch(&peer, 8, ROOST_HLL_ADD), ROOST_RPC_OK);
	for (unsigned i = 0; i < MANY; i++)
		end_conn(&many[i]);
	assert_int_equal(taken(ROOST_HLL_OP), ROOST_HLL_SHARE);
	assert_int_equal(counters().resources_ended, n);
	assert_int_equal(sketch(&other, 1000, ROOST_HLL_ESTIMATE), ROOST_RPC_MISS);
	assert_int_equal(sketch(&other, 1, ROOST_HLL_ESTIMATE), ROOST_RPC_OK);
	assert_int_equal(make_all(&other, 100), ROOST_HLL_SHARE);
	end_conn(&peer);
	end_conn(&other);
	assert_int_equal(taken(ROOST_HLL_OP), 0);
	world_fini(w);
}

/*
 * A queue pair in the error state gives its sketches back, even if its program does not know yet.
 */
static void after_an_error(void **state)
{
	static struct conn bad, peer;
	struct nic_qp_attr err = {.state = NIC_QPS_ERR};

	open_scene();
	connect_from(&bad, ATTACKER);
	connect_from(&peer, PEER);
	assert_int_equal(make_all(&bad, 1), ROOST_HLL_SHARE);
	assert_int_equal(ep_modify(&bad.node_end, &err, NIC_QPA_STATE), 0);
	assert_int_equal(taken(ROOST_HLL_OP), 0);
	assert_int_equal(sketch(&peer, 1, ROOST_HLL_ESTIMATE), ROOST_RPC_MISS);
	end_conn(&bad);
	end_conn(&peer);
	world_fini(w);
}

/* A stream into a sketch of another connection ends when that connection ends. */
static void shared_sketch(void **state)
{
	static struct conn maker, user;
	struct roost_hll_params p = roost_hll_params(1, ROOST_HLL_ADD, ROOST_HLL_MIN_PRECISION);

	open_scene();
	connect_from(&maker, ATTACKER);
	connect_from(&user, PEER);
	assert_int_equal(sketch(&maker, 1, ROOST_HLL_ADD), ROOST_RPC_OK);
	begin(&user, ROOST_HLL_OP, &p, sizeof(p), ROOST_RPC_STREAM);
	world_run(w, world_now(w) + SEC);
	end_conn(&maker);
	send_payload(&user, ROOST_HLL_OP, LINES);
	assert_int_equal(await(&user, SEC), ROOST_RPC_MISS);
	/* As its own it is there again. */
	assert_int_equal(sketch(&user, 1, ROOST_HLL_ADD), ROOST_RPC_OK);
	end_conn(&user);
	assert_int_equal(taken(ROOST_HLL_OP), 0);
	world_fini(w);
}

static void host_asks(uint64_t name, uint32_t what, unsigned status)
{
	struct roost_hll_params q =
		roost_hll_params(name, what, what == ROOST_HLL_ADD ? ROOST_HLL_MIN_PRECISION : 0);
	struct local_call_attr a = {.op = ROOST_HLL_OP, .params = &q, .params_len = sizeof(q)};
	struct local_call_result result;
	struct local_call *p;

	assert_int_equal(local_call_start(f, 0, &a, NULL, 0, &p), 0);
	while (!local_call_done(p))
		assert_true(world_step(w, world_now(w) + SEC));
	assert_true(local_call_finished(p, &result));
	assert_int_equal(result.status, status);
	local_call_free(p);
}

/* All peers may use a sketch of the host, and only the host ends it. */
static void hosts_sketch(void **state)
{
	static struct conn c;

	open_scene();
	for (unsigned i = 0; i < ROOST_HLL_SKETCHES; i++)
		host_asks(i + 1, ROOST_HLL_ADD, ROOST_RPC_OK);
	host_asks(100, ROOST_HLL_ADD, ROOST_HLL_FULL);
	host_asks(32, ROOST_HLL_DROP, ROOST_RPC_OK);
	connect_from(&c, PEER);
	assert_int_equal(sketch(&c, 1, ROOST_HLL_ADD), ROOST_RPC_OK);
	assert_int_equal(sketch(&c, 1, ROOST_HLL_ESTIMATE), ROOST_RPC_OK);
	assert_int_equal(sketch(&c, 1, ROOST_HLL_DROP), ROOST_HLL_OWNER);
	assert_int_equal(make_all(&c, 200), 1);
	end_conn(&c);
	assert_int_equal(taken(ROOST_HLL_OP), ROOST_HLL_SKETCHES - 1);
	host_asks(1, ROOST_HLL_DROP, ROOST_RPC_OK);
	assert_int_equal(taken(ROOST_HLL_OP), ROOST_HLL_SKETCHES - 2);
	world_fini(w);
}

/* ---- incomplete streams ---- */

struct streams {
	uint64_t op;
	unsigned calls;
	uint32_t (*params)(struct conn *c, void *to);
};

static uint32_t shuffle_params(struct conn *c, void *to)
{
	struct roost_shuffle_params p = {.table = (uintptr_t)c->node_end.mem,
					 .partitions = 1,
					 .tuple = 8,
					 .how = ROOST_SHUFFLE_RADIX};
	struct roost_shuffle_part part = {(uintptr_t)c->node_end.mem + PAYLOAD, MEM - PAYLOAD};

	memcpy(c->node_end.mem, &part, sizeof(part));
	memcpy(to, &p, sizeof(p));
	return sizeof(p);
}

/* The partition names no queue pair: a call that got a bench replies ROOST_SHUFFLE_LOST. */
static uint32_t out_params(struct conn *c, void *to)
{
	struct roost_shuffle_params how = {.partitions = 1, .tuple = 8, .how = ROOST_SHUFFLE_RADIX};
	struct roost_shuffle_target target = {.addr = 4096, .len = 1 << 20, .qp = 1};
	struct roost_shuffle_out_params p =
		roost_shuffle_out_params((const void *)c->node_end.mem, &how, 4096);

	memcpy(c->node_end.mem, &target, sizeof(target));
	memcpy(to, &p, sizeof(p));
	return sizeof(p);
}

static const struct streams shuffles = {ROOST_SHUFFLE_OP, ROOST_SHUFFLE_CALLS, shuffle_params},
			    outs = {ROOST_SHUFFLE_OUT_OP, ROOST_SHUFFLE_OUT_CALLS, out_params};

static void begin_stream(struct conn *c, const struct streams *s)
{
	uint8_t params[64];

	begin(c, s->op, params, s->params(c, params), ROOST_RPC_STREAM);
	send_payload(c, s->op, LINES);
}

/* Sends the first half of a stream. */
static void begin_half(struct conn *c, const struct streams *s)
{
	/* Less than a buffer of shuffle-out, so nothing is sent. */
	cut_off.armed = true;
	cut_off.after = 2;
	cut_off.seen = 0;
	begin_stream(c, s);
	world_run(w, world_now(w) + MSEC);
}

/* Returns true if a stream of this connection gets a bench. */
static bool is_answered(struct conn *c, const struct streams *s)
{
	begin_stream(c, s);
	return await(c, SEC) != ROOST_SHUFFLE_BUSY;
}

#define HALVES 20

/*
 * More connections than there are buffers begin a stream each, and stop in the middle. Then they
 * end or stay silent.
 */
static void halves(const struct streams *s, bool idle)
{
	static struct conn half[HALVES], peer;
	uint64_t start;
	unsigned busy = 0;

	open_scene();
	connect_from(&peer, PEER);
	for (unsigned i = 0; i < HALVES; i++) {
		connect_from(&half[i], ATTACKER);
		begin_half(&half[i], s);
		busy += status_of(&half[i]) == ROOST_SHUFFLE_BUSY;
	}
	start = world_now(w);
	assert_int_equal(taken(s->op), s->calls / 2);
	assert_int_equal(busy, HALVES - s->calls / 2);
	assert_true(is_answered(&peer, s));
	assert_int_equal(taken(s->op), s->calls / 2);
	if (idle) {
		world_run(w, start + IDLE - SEC);
		assert_int_equal(taken(s->op), s->calls / 2);
		assert_int_equal(counters().idle, 0);
		world_run(w, start + IDLE + SEC);
		assert_int_equal(counters().idle, s->calls / 2);
	} else {
		for (unsigned i = 0; i < HALVES; i++)
			end_conn(&half[i]);
	}
	assert_int_equal(taken(s->op), 0);
	for (unsigned i = 0; i < s->calls + 1; i++)
		assert_true(is_answered(&peer, s));
	for (unsigned i = 0; i < HALVES && idle; i++)
		end_conn(&half[i]);
	end_conn(&peer);
	world_fini(w);
}

static void buffers_end_with_connections(void **state)
{
	halves(&shuffles, false);
	halves(&outs, false);
}

static void idle_streams_lose_buffers(void **state)
{
	halves(&shuffles, true);
	halves(&outs, true);
}

/* ---- the peer of an idle stream ---- */

/* The rest of the message is dropped, and later calls are served. */
static void late_payload(void **state)
{
	static struct conn c;
	uint64_t start;

	open_scene();
	connect_from(&c, ATTACKER);
	begin_half(&c, &shuffles);
	start = world_now(w);
	assert_int_equal(taken(ROOST_SHUFFLE_OP), 1);
	assert_int_equal(await(&c, IDLE - 2 * SEC), -1);
	assert_int_equal(await(&c, 3 * SEC), ROOST_RPC_IDLE);
	assert_in_range(world_now(w) - start, IDLE - SEC, IDLE + SEC);
	assert_int_equal(taken(ROOST_SHUFFLE_OP), 0);
	cut_off.armed = false;
	world_run(w, world_now(w) + 60 * SEC);
	assert_int_equal(nic_qp_state(c.node_end.qp), NIC_QPS_RTS);
	assert_int_equal(nic_qp_state(c.at.qp), NIC_QPS_RTS);
	begin_stream(&c, &shuffles);
	assert_int_equal(await(&c, SEC), ROOST_RPC_OK);
	end_conn(&c);
	world_fini(w);
}

/* Announced payload comes late. */
static void announced_only(void **state)
{
	static struct conn c;
	uint8_t params[64];

	open_scene();
	connect_from(&c, PEER);
	for (unsigned i = 0; i < 3; i++) {
		begin(&c, ROOST_SHUFFLE_OP, params, shuffle_params(&c, params), ROOST_RPC_STREAM);
		assert_int_equal(await(&c, IDLE - MSEC), -1);
		assert_int_equal(await(&c, 2 * MSEC), ROOST_RPC_IDLE);
		send_payload(&c, ROOST_SHUFFLE_OP, LINES);
		world_run(w, world_now(w) + SEC);
		assert_int_equal(taken(ROOST_SHUFFLE_OP), 0);
		begin_stream(&c, &shuffles);
		assert_int_equal(await(&c, SEC), ROOST_RPC_OK);
	}
	assert_int_equal(counters().idle, 3);
	end_conn(&c);
	world_fini(w);
}

/* A stream with a piece every nine seconds is slow, and does not end. */
static void slow_stream(void **state)
{
	static struct conn c;

	open_scene();
	connect_from(&c, ATTACKER);
	begin_half(&c, &shuffles);
	for (unsigned i = 0; i < LINES / 1024; i++) {
		uint64_t until = world_now(w) + IDLE - SEC;

		/* All are sent again meanwhile, and one more arrives. */
		cut_off.seen = 0;
		cut_off.after = 1;
		world_run(w, until);
		assert_int_equal(counters().idle, 0);
	}
	cut_off.armed = false;
	assert_int_equal(await(&c, 60 * SEC), ROOST_RPC_OK);
	end_conn(&c);
	world_fini(w);
}

/* ---- memory ---- */

static struct nic_usage usage(void)
{
	struct nic_usage u;

	nic_usage(w->nic[NODE], &u);
	return u;
}

/*
 * When the node's memory is used up, existing connections are served with fewer slots, and new ones
 * are refused. A connection that ends gives its memory back.
 */
static void memory_limit(void **state)
{
	static struct conn first, second;
	struct roost_get_params get = {.mask = 1023, .key = 1, .bound = 10};
	struct nic_qp_init init = {.type = NIC_QPT_RC};
	struct nic_qp *qp;
	uint64_t before, with_one;

	open_scene();
	before = usage().memory;
	connect_from(&first, PEER);
	with_one = usage().memory;
	assert_true(with_one > before);
	nic_memory_limit(w->nic[NODE], with_one);
	assert_int_equal(usage().memory_limit, with_one);
	/* There is no second slot: calls are served one after the other. */
	get.table = (uintptr_t)first.node_end.mem;
	for (unsigned i = 0; i < 50; i++)
		begin(&first, ROOST_GET_OP, &get, sizeof(get), 0);
	assert_int_equal(await(&first, SEC), ROOST_RPC_MISS);
	world_run(w, world_now(w) + SEC); /* all of them: their request's memory is used again */
	assert_true(counters().refused > 0);
	assert_int_equal(usage().memory, with_one);
	assert_int_equal(sketch(&first, 1, ROOST_HLL_ADD), ROOST_HLL_FULL);
	/* No further connection is accepted. */
	init.send_cq = first.node_end.scq;
	init.recv_cq = first.node_end.rcq;
	init.pd = first.node_end.pd;
	init.sq = (struct nic_queue_attr){.ring = first.node_end.sq,
					  .wr_id = first.node_end.sq_wr,
					  .index = &first.node_end.sqi,
					  .depth = 128,
					  .stride_shift = first.node_end.sq_shift};
	assert_int_equal(nic_qp_create(w->nic[NODE], &init, &qp), -12 /* -ENOMEM */);
	assert_true(usage().memory_refused > 0);
	nic_memory_limit(w->nic[NODE], 0);
	connect_from(&second, ATTACKER);
	assert_int_equal(sketch(&second, 1, ROOST_HLL_ADD), ROOST_RPC_OK);
	end_conn(&second);
	end_conn(&first);
	/* The kernel keeps the page of a sketch after its end. */
	assert_in_range(usage().memory, before, before + (1u << ROOST_HLL_MAX_PRECISION));
	assert_int_equal(runtime_undeploy(f, ROOST_HLL_OP), 0);
	assert_int_equal(usage().memory, before);
	world_fini(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sketches),
		cmocka_unit_test(after_an_error),
		cmocka_unit_test(shared_sketch),
		cmocka_unit_test(hosts_sketch),
		cmocka_unit_test(buffers_end_with_connections),
		cmocka_unit_test(idle_streams_lose_buffers),
		cmocka_unit_test(late_payload),
		cmocka_unit_test(announced_only),
		cmocka_unit_test(slow_stream),
		cmocka_unit_test(memory_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
