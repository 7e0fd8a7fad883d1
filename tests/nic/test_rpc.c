/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Transport of calls by the core: parameters and payload arrive whole, in order and once, over any
 * network, and if the server takes little at a time. Replies are WRITEs in order with the program's
 * own work requests. Malformed packets end the connection.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/rng.h"
#include "peer.h"
#include "rule.h"
#include "trace.h"

#define KERNEL 0x123456789abcdef0ull
#define BYTES  (1u << 18)

/* A server that stores all pieces, and sometimes refuses one. */
struct server {
	struct nic *nic;
	struct nic_qp *qp;
	struct rng rng;
	double refuse; /* probability for each piece */
	uint8_t got[BYTES];
	uint32_t len;	 /* bytes of the message in progress, or of the last */
	uint32_t params; /* messages that are complete */
	uint32_t payloads;
	uint64_t op;
	uint32_t rkey, total;
	bool open; /* a message is in progress */
	uint32_t attached, detached, stopped, closed, sent, runs;
	bool schedules;	      /* each call requests a turn */
	uint64_t sent_at_run; /* packets that the NIC had sent when the last turn began */
	uint64_t last_cookie;
};

static int attach(void *ctx, struct nic_qp *qp, void **out)
{
	struct server *s = ctx;

	s->qp = qp;
	s->attached++;
	*out = s;
	return 0;
}

static void detach(void *ctx, void *qp_ctx)
{
	((struct server *)qp_ctx)->detached++;
}

static bool deliver(void *ctx, void *qp_ctx, const struct nic_rpc_piece *p)
{
	struct server *s = qp_ctx;

	assert_int_equal(p->off, s->open ? s->len : 0);
	assert_in_range(p->total, p->off + p->len, BYTES);
	if (rng_double(&s->rng) < s->refuse)
		return false;
	memcpy(s->got + p->off, p->data, p->len);
	s->len = p->off + p->len;
	s->open = !p->last;
	if (!p->last)
		return true;
	assert_int_equal(s->len, p->total);
	s->op = p->op;
	s->rkey = p->rkey;
	s->total = p->total;
	*(p->payload ? &s->payloads : &s->params) += 1;
	if (s->schedules)
		nic_rpc_schedule(s->qp);
	return true;
}

static void sent(void *ctx, void *qp_ctx, uint64_t cookie)
{
	struct server *s = qp_ctx;

	s->sent++;
	s->last_cookie = cookie;
}

static void count_stop(void *ctx, void *qp_ctx)
{
	struct server *s = qp_ctx;

	s->stopped++;
	s->open = false;
}

static unsigned run(void *ctx, unsigned pu, bool *more)
{
	struct server *s = ctx;
	struct nic_counters c = {0};

	nic_pu_counters(s->nic, pu, &c);
	s->sent_at_run = c.sent_pkts;
	*more = ++s->runs < 3 && !s->schedules;
	return 1;
}

static void close_server(void *ctx)
{
	((struct server *)ctx)->closed++;
}

static const struct nic_rpc_ops ops = {.attach = attach,
				       .detach = detach,
				       .deliver = deliver,
				       .sent = sent,
				       .stop = count_stop,
				       .run = run,
				       .close = close_server};

static struct server S;

static void serve(struct nic *nic, uint64_t seed, double refuse)
{
	memset(&S, 0, sizeof(S));
	rng_seed(&S.rng, seed);
	S.nic = nic;
	S.refuse = refuse;
	assert_int_equal(nic_rpc_serve(nic, &ops, &S), 0);
}

struct pair {
	struct world w;
	struct ep a, b; /* a calls b */
};

static void pair_open(struct pair *p, uint64_t seed, const struct sim_params *sp,
		      const struct ep_params *ep, double refuse)
{
	world_init(&p->w, 2, seed, sp);
	serve(p->w.nic[1], seed, refuse);
	ep_init(&p->a, &p->w, 0, ep);
	ep_init(&p->b, &p->w, 1, ep);
	ep_connect(&p->a, &p->b);
}

static void pair_close(struct pair *p)
{
	ep_fini(&p->a);
	ep_fini(&p->b);
	world_fini(&p->w);
}

static void fill(struct rng *r, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)rng_u64(r);
}

static struct wr wr_rpc(enum roost_op op, const struct ep *e, uint32_t len, uint32_t rkey)
{
	return (struct wr){
		.op = op, .sge = {ep_sge(e, 0, len)}, .num_sge = 1, .raddr = KERNEL, .rkey = rkey};
}

static void done(struct ep *e, enum nic_wc_status status, enum nic_wc_opcode opcode)
{
	struct roost_cqe c;

	assert_true(ep_wait_send(e, &c, 60 * SEC));
	assert_int_equal(c.status, status);
	if (status == NIC_WC_SUCCESS)
		assert_int_equal(c.opcode, opcode);
}

static const uint32_t sizes[] = {0, 1, 7, 255, 256, 257, 1000, 4096, 4097, 20000, BYTES};

/*
 * Calls of each size at each path MTU, over a link with the parameters `sp`, to a server that
 * refuses pieces with probability `refuse`.
 */
static void all_sizes(const struct sim_params *sp, double refuse, uint64_t seed)
{
	for (uint32_t mtu = 256; mtu <= 4096; mtu *= 4) {
		struct ep_params ep = {.rpc = true, .mem = BYTES, .mtu = mtu, .psn = 0xfffff0};
		struct trace t;
		struct pair p;
		struct rng r;

		rng_seed(&r, seed);
		pair_open(&p, seed, sp, &ep, refuse);
		trace_start(&t, &p.w, sp->dup > 0 || sp->reorder > 0, mtu);
		trace_pair(&t, &p.a, &p.b);
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			uint32_t n = sizes[i], payloads = S.payloads, params = S.params;
			struct wr wr = wr_rpc(ROOST_OP_RPC_WRITE, &p.a, n, i % 4 ? p.b.key : 0);

			fill(&r, p.a.mem, n);
			ep_post(&p.a, &wr);
			done(&p.a, NIC_WC_SUCCESS, NIC_WC_RPC_WRITE);
			assert_int_equal(S.payloads, payloads + 1);
			assert_int_equal(S.total, n);
			assert_int_equal(S.op, KERNEL);
			assert_int_equal(S.rkey, wr.rkey);
			assert_memory_equal(S.got, p.a.mem, n);
			if (n > mtu)
				continue;
			wr.op = ROOST_OP_RPC;
			ep_post(&p.a, &wr);
			done(&p.a, NIC_WC_SUCCESS, NIC_WC_RPC);
			assert_int_equal(S.params, params + 1);
			assert_memory_equal(S.got, p.a.mem, n);
		}
		/* All calls arrived once, and the trace follows the rules. */
		assert_int_equal(S.payloads, sizeof(sizes) / sizeof(sizes[0]));
		assert_true(trace_check(&t, refuse > 0 ? TRACE_RNR : 0));
		trace_stop(&t);
		pair_close(&p);
		assert_int_equal(S.attached, 1);
		assert_int_equal(S.detached, 1);
	}
}

static void clean(void **state)
{
	all_sizes(&(struct sim_params){.delay_ns = 2000}, 0, 1);
}

static void refusals(void **state)
{
	all_sizes(&(struct sim_params){.delay_ns = 2000}, 0.3, 2);
}

static void losses(void **state)
{
	for (uint64_t seed = 10; seed < 14; seed++)
		all_sizes(&(struct sim_params){.loss = 0.05, .delay_ns = 2000}, seed & 1 ? 0.1 : 0,
			  seed);
}

static void disorder(void **state)
{
	for (uint64_t seed = 20; seed < 24; seed++)
		all_sizes(
			&(struct sim_params){
				.loss = 0.02, .dup = 0.05, .reorder = 0.05, .delay_ns = 2000},
			seed & 1 ? 0.1 : 0, seed);
}

/* The same between two QPs of one NIC, without packets. */
static void loopback(void **state)
{
	struct ep_params ep = {.rpc = true, .mem = BYTES, .mtu = 1024};
	struct world w;
	struct ep a, b;
	struct rng r;

	rng_seed(&r, 3);
	world_init(&w, 1, 3, &(struct sim_params){0});
	serve(w.nic[0], 3, 0.3);
	ep_init(&a, &w, 0, &ep);
	ep_init(&b, &w, 0, &ep);
	ep_connect(&a, &b);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct wr wr = wr_rpc(ROOST_OP_RPC_WRITE, &a, sizes[i], b.key);

		fill(&r, a.mem, sizes[i]);
		ep_post(&a, &wr);
		done(&a, NIC_WC_SUCCESS, NIC_WC_RPC_WRITE);
		assert_int_equal(S.payloads, i + 1);
		assert_memory_equal(S.got, a.mem, sizes[i]);
	}
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

/* Invalid work requests: longer than a packet, or on a QP without the op-codes. */
static void bad_work_requests(void **state)
{
	struct ep_params ep = {.rpc = true, .mtu = 256};
	struct pair p;
	struct wr wr;

	pair_open(&p, 4, &(struct sim_params){0}, &ep, 0);
	wr = wr_rpc(ROOST_OP_RPC, &p.a, 257, 0);
	ep_post(&p.a, &wr);
	done(&p.a, NIC_WC_LOC_LEN_ERR, 0);
	assert_int_equal(S.params, 0);
	pair_close(&p);
	ep.rpc = false;
	for (unsigned op = ROOST_OP_RPC; op <= ROOST_OP_RPC_WRITE; op++) {
		pair_open(&p, 5, &(struct sim_params){0}, &ep, 0);
		wr = wr_rpc(op, &p.a, 8, 0);
		ep_post(&p.a, &wr);
		done(&p.a, NIC_WC_LOC_QP_OP_ERR, 0);
		pair_close(&p);
	}
}

/* The QPs and states in which the op-codes can be enabled, and the end of that. */
static void attribute(void **state)
{
	struct ep_params rc = {0}, uc = {.type = NIC_QPT_UC};
	struct nic_qp_attr reset = {.state = NIC_QPS_RESET};
	struct world w;
	struct ep a, b;

	world_init(&w, 1, 6, &(struct sim_params){0});
	assert_null(nic_rpc_server(w.nic[0], &ops));
	serve(w.nic[0], 6, 0);
	assert_ptr_equal(nic_rpc_server(w.nic[0], &ops), &S);
	assert_int_equal(nic_rpc_serve(w.nic[0], &ops, &S), -EEXIST);
	ep_init(&a, &w, 0, &rc);
	ep_init(&b, &w, 0, &uc);
	assert_int_equal(nic_qp_set_rpc(w.nic[0], b.qp), -EOPNOTSUPP);
	assert_false(nic_qp_rpc(a.qp));
	assert_int_equal(nic_qp_set_rpc(w.nic[0], a.qp), 0);
	assert_int_equal(nic_qp_set_rpc(w.nic[0], a.qp), 0);
	assert_int_equal(S.attached, 1);
	assert_true(nic_qp_rpc(a.qp));
	ep_connect_self(&a);
	assert_true(nic_qp_rpc(a.qp));
	assert_int_equal(ep_modify(&a, &reset, NIC_QPA_STATE), 0);
	assert_false(nic_qp_rpc(a.qp));
	assert_int_equal(S.detached, 1);
	ep_connect_self(&a);
	assert_int_equal(nic_qp_set_rpc(w.nic[0], a.qp), -EINVAL);
	ep_fini(&a);
	ep_fini(&b);
	assert_int_equal(S.closed, 0);
	world_fini(&w);
	assert_int_equal(S.closed, 1);
}

/* ---- replies ---- */

static void reply(struct server *s, const struct ep *to, uint64_t off, const void *buf,
		  uint32_t len, uint64_t tail, uint64_t cookie, int rc)
{
	struct nic_rpc_send m = {.cookie = cookie,
				 .raddr = (uintptr_t)to->mem + off,
				 .rkey = to->key,
				 .buf = buf,
				 .len = len,
				 .tail = tail,
				 .tail_len = 8};

	assert_int_equal(nic_rpc_send(s->qp, &m), rc);
}

/*
 * Replies and the program's own WRITEs share the QP, in the order of their beginning. Each arrives
 * once.
 */
static void replies(void **state)
{
	for (uint64_t seed = 30; seed < 36; seed++) {
		struct sim_params sp = {.loss = seed & 1 ? 0.05 : 0, .dup = 0.02, .delay_ns = 2000};
		struct ep_params ep = {.rpc = true, .mem = BYTES, .mtu = 1024, .depth = 8};
		static uint8_t big[5000];
		struct pair p;
		struct rng r;

		rng_seed(&r, seed);
		pair_open(&p, seed, &sp, &ep, 0);
		fill(&r, big, sizeof(big));
		for (unsigned i = 0; i < 40; i++) {
			struct wr wr = wr_rdma(ROOST_OP_WRITE, &p.b, 65536, 3000, &p.a, 32768);
			uint32_t n = (uint32_t)rng_below(&r, sizeof(big));

			fill(&r, p.b.mem + 65536, 3000);
			ep_post(&p.b, &wr);
			reply(&S, &p.a, 0, big, n, seed << 32 | i, i + 1, 0);
			done(&p.b, NIC_WC_SUCCESS, NIC_WC_WRITE);
			assert_memory_equal(p.a.mem + 32768, p.b.mem + 65536, 3000);
			world_run(&p.w, world_now(&p.w) + SEC);
			assert_int_equal(S.sent, i + 1);
			assert_int_equal(S.last_cookie, i + 1);
			assert_memory_equal(p.a.mem, big, n);
			assert_int_equal(memcmp(p.a.mem + n, &(uint64_t){seed << 32 | i}, 8), 0);
		}
		pair_close(&p);
	}
}

/*
 * A reply from a region by its key, with an immediate. The data are those of a READ, and a receive
 * completion has the length.
 */
static void reply_from_memory(void **state)
{
	struct ep_params ep = {.rpc = true, .mtu = 256};
	struct nic_rpc_send m;
	struct roost_cqe c;
	struct pair p;

	pair_open(&p, 40, &(struct sim_params){.delay_ns = 1000}, &ep, 0);
	for (unsigned i = 0; i < 1000; i++)
		p.b.mem[i] = (uint8_t)(i * 3);
	ep_post_recv(&p.a, 9, NULL, 0);
	m = (struct nic_rpc_send){.raddr = (uintptr_t)p.a.mem + 64,
				  .rkey = p.a.key,
				  .va = (uintptr_t)p.b.mem,
				  .key = p.b.key,
				  .len = 1000,
				  .has_imm = true,
				  .imm = 77};
	m.key = 0;
	assert_int_equal(nic_rpc_send(S.qp, &m), -EACCES);
	m.key = p.b.key;
	assert_int_equal(nic_rpc_send(S.qp, &m), 0);
	assert_true(ep_wait_recv(&p.a, &c, SEC));
	assert_int_equal(c.imm, 77);
	assert_int_equal(c.byte_len, 1000);
	assert_memory_equal(p.a.mem + 64, p.b.mem, 1000);
	pair_close(&p);
}

/*
 * Replies have entries of their own: a full ring of the program does not use them, and replies do
 * not use the program's.
 */
static void reply_space(void **state)
{
	struct ep_params ep = {.rpc = true, .depth = 8, .mtu = 256};
	struct pair p;
	struct wr wr;

	pair_open(&p, 50, &(struct sim_params){.delay_ns = 1000}, &ep, 0);
	for (unsigned i = 0; i < 8; i++) {
		wr = wr_rdma(ROOST_OP_WRITE, &p.b, 4096, 8, &p.a, 4096 + 8 * i);
		ep_post(&p.b, &wr);
	}
	for (unsigned i = 0; i < NIC_RPC_SENDS; i++)
		reply(&S, &p.a, 8 * i, NULL, 0, i + 1, i + 1, 0);
	reply(&S, &p.a, 0, NULL, 0, 1, 1, -EAGAIN);
	for (unsigned i = 0; i < 8; i++)
		done(&p.b, NIC_WC_SUCCESS, NIC_WC_WRITE);
	world_run(&p.w, world_now(&p.w) + SEC);
	assert_int_equal(S.sent, NIC_RPC_SENDS);
	for (unsigned i = 0; i < NIC_RPC_SENDS; i++)
		assert_int_equal(((uint64_t *)p.a.mem)[i], i + 1);
	reply(&S, &p.a, 0, NULL, 0, 99, 99, 0);
	world_run(&p.w, world_now(&p.w) + SEC);
	assert_int_equal(*(uint64_t *)p.a.mem, 99);
	pair_close(&p);
}

/* A reply to memory that is not the caller's ends the connection, and the server is notified. */
static void reply_refused(void **state)
{
	struct ep_params ep = {.rpc = true};
	struct nic_rpc_send m = {.rkey = 0x77777777, .tail_len = 8};
	struct pair p;

	pair_open(&p, 60, &(struct sim_params){.delay_ns = 1000}, &ep, 0);
	assert_int_equal(nic_rpc_send(S.qp, &m), 0);
	world_run(&p.w, world_now(&p.w) + SEC);
	assert_int_equal(nic_qp_state(p.b.qp), NIC_QPS_ERR);
	assert_int_equal(p.b.events & 1u << NIC_EVENT_QP_FATAL, 1u << NIC_EVENT_QP_FATAL);
	assert_int_equal(S.stopped, 1);
	assert_int_equal(S.sent, 0);
	assert_int_equal(nic_rpc_send(S.qp, &m), -ENOTCONN);
	pair_close(&p);
}

/* The server runs in the turns that it requests. */
static void turns(void **state)
{
	struct ep_params ep = {.rpc = true};
	struct pair p;

	pair_open(&p, 61, &(struct sim_params){0}, &ep, 0);
	world_run(&p.w, world_now(&p.w) + MSEC);
	assert_int_equal(S.runs, 0);
	nic_rpc_schedule(S.qp);
	assert_true(nic_pending(p.w.nic[1], 0));
	world_run(&p.w, world_now(&p.w) + MSEC);
	assert_int_equal(S.runs, 3);
	pair_close(&p);
}

/* ---- accesses of a call ---- */

static void accesses(void **state)
{
	struct ep_params ep = {.rpc = true};
	uint8_t buf[64] = {0};
	struct nic_mr_attr all;
	struct pair p;
	uint32_t key;
	uint64_t va;

	pair_open(&p, 70, &(struct sim_params){0}, &ep, 0);
	va = (uintptr_t)p.b.mem;
	memcpy(p.b.mem, "hash table", 10);
	assert_int_equal(nic_rpc_read(S.qp, p.b.key, va, buf, 10), 0);
	assert_memory_equal(buf, "hash table", 10);
	assert_int_equal(nic_rpc_write(S.qp, p.b.key, va + 100, "list", 4), 0);
	assert_memory_equal(p.b.mem + 100, "list", 4);
	assert_int_equal(nic_rpc_copy(S.qp, p.b.key, va + 200, p.b.key, va, 10), 0);
	assert_memory_equal(p.b.mem + 200, "hash table", 10);
	assert_true(nic_rpc_prefetch(S.qp, p.b.key, va, 65536, NIC_ACCESS_REMOTE_READ));
	/* Other keys, and one byte too far on either side. */
	assert_int_equal(nic_rpc_read(S.qp, p.b.key ^ 1, va, buf, 1), -EACCES);
	assert_int_equal(nic_rpc_read(S.qp, p.a.key, va, buf, 1), -EACCES);
	assert_int_equal(nic_rpc_read(S.qp, p.b.key, va - 1, buf, 2), -EACCES);
	assert_int_equal(nic_rpc_write(S.qp, p.b.key, va + 65535, buf, 2), -EACCES);
	assert_int_equal(nic_rpc_copy(S.qp, p.b.key, va, p.b.key, va + 65535, 2), -EACCES);
	assert_false(nic_rpc_prefetch(S.qp, p.b.key, va, 65537, NIC_ACCESS_REMOTE_READ));
	pair_close(&p);
	/* Without the permission of QP and region. */
	ep.access = NIC_ACCESS_REMOTE_READ;
	pair_open(&p, 71, &(struct sim_params){0}, &ep, 0);
	va = (uintptr_t)p.b.mem;
	assert_int_equal(nic_rpc_read(S.qp, p.b.key, va, buf, 1), 0);
	assert_int_equal(nic_rpc_write(S.qp, p.b.key, va, buf, 1), -EACCES);
	assert_int_equal(nic_rpc_copy(S.qp, p.b.key, va + 8, p.b.key, va, 1), -EACCES);
	/* The region allows it, the QP does not. */
	all = (struct nic_mr_attr){
		.pd = p.b.pd, .addr = p.b.mem, .len = p.b.mem_len, .iova = va, .access = 15};
	assert_int_equal(nic_mr_register(p.b.nic, &all, &key), 0);
	assert_int_equal(nic_rpc_read(S.qp, key, va, buf, 1), 0);
	assert_int_equal(nic_rpc_write(S.qp, key, va, buf, 1), -EACCES);
	assert_false(nic_rpc_prefetch(S.qp, key, va, 1, NIC_ACCESS_REMOTE_WRITE));
	assert_int_equal(nic_mr_deregister(p.b.nic, key), 0);
	pair_close(&p);
}

/* An access is refused as soon as its permission has ended, in each of the possible ways. */
static void accesses_end(void **state)
{
	struct ep_params ep = {.rpc = true};
	struct nic_mr_attr mr = {.len = 4096, .access = 15, .invalidatable = true};
	struct nic_qp_attr less = {.access = NIC_ACCESS_REMOTE_WRITE};
	struct wr inv = {.op = ROOST_OP_LOCAL_INV};
	struct roost_cqe c;
	uint8_t buf[8];
	struct pair p;
	uint32_t key[2];
	uint64_t va;

	pair_open(&p, 72, &(struct sim_params){0}, &ep, 0);
	va = (uintptr_t)p.b.mem;
	mr.pd = p.b.pd;
	mr.addr = p.b.mem;
	mr.iova = va;
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(nic_mr_register(p.b.nic, &mr, &key[i]), 0);
		assert_int_equal(nic_rpc_read(S.qp, key[i], va, buf, 8), 0);
	}
	assert_int_equal(nic_mr_deregister(p.b.nic, key[1]), 0);
	assert_int_equal(nic_rpc_read(S.qp, key[1], va, buf, 8), -EACCES);
	assert_int_equal(nic_rpc_read(S.qp, key[0], va, buf, 8), 0);
	inv.imm = key[0];
	ep_post(&p.b, &inv);
	assert_true(ep_wait_send(&p.b, &c, MSEC));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	assert_int_equal(nic_rpc_read(S.qp, key[0], va, buf, 8), -EACCES);
	assert_int_equal(nic_mr_deregister(p.b.nic, key[0]), 0);
	/* The QP's own permission. */
	assert_int_equal(nic_rpc_read(S.qp, p.b.key, va, buf, 8), 0);
	assert_int_equal(nic_qp_modify(p.b.nic, S.qp, &less, NIC_QPA_ACCESS_FLAGS, world_now(&p.w)),
			 0);
	assert_int_equal(nic_rpc_read(S.qp, p.b.key, va, buf, 8), -EACCES);
	assert_int_equal(nic_rpc_write(S.qp, p.b.key, va, buf, 8), 0);
	pair_close(&p);
}

/* ---- a peer that violates rules ---- */

static struct peer P, *const p = &P;

static void hostile_open(uint32_t s, bool with_server, double refuse)
{
	struct nic_qp_attr a;

	peer_open_init(p, &(struct ep_params){.mtu = 256}, s);
	if (with_server)
		serve(p->e.nic, s, refuse);
	assert_int_equal(nic_qp_set_rpc(p->e.nic, p->e.qp), 0);
	peer_attr(p, &a);
	ep_to_rtr(&p->e, &a);
	ep_to_rts(&p->e, &a);
}

static void send_rpc(uint8_t opcode, uint32_t psn, uint64_t op, uint32_t dmalen, uint32_t len)
{
	peer_send(p, &(struct pkt_make){.opcode = opcode,
					.ackreq = true,
					.psn = psn,
					.va = op,
					.dmalen = dmalen,
					.len = len});
}

/* IBA 9.7.4.1: lengths must agree with the RETH, and packets be at valid positions. */
RULE(malformed_calls_are_refused)
{
	static const struct {
		uint8_t opcode;
		uint32_t dmalen, len;
	} bad[] = {
		{PKT_RPC_PARAMS, 16, 8},
		{PKT_RPC_PARAMS, 8, 16},
		{PKT_RPC_PARAMS, 260, 260},
		{PKT_RPC_WRITE_ONLY, 8, 4},
		{PKT_RPC_WRITE_FIRST, 256, 256},
		{PKT_RPC_WRITE_FIRST, 512, 128},
		{PKT_RPC_WRITE_FIRST, 0x80000001u, 256},
		{PKT_RPC_WRITE_MIDDLE, 0, 256},
		{PKT_RPC_WRITE_LAST, 0, 8},
	};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		hostile_open(s, true, 0);
		send_rpc(bad[i].opcode, s, KERNEL, bad[i].dmalen, bad[i].len);
		expect_ack(p, PKT_NAK_INVALID_REQ, s);
		assert_int_equal(S.params + S.payloads, 0);
		assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
		peer_close(p);
	}
}

/* A NIC that serves no calls: the request is not supported (IBA 9.7.4.1.2). */
RULE(a_nic_that_only_calls_refuses_calls)
{
	hostile_open(s, false, 0);
	send_rpc(PKT_RPC_PARAMS, s, KERNEL, 8, 8);
	expect_ack(p, PKT_NAK_INVALID_REQ, s);
	peer_close(p);
}

/* A duplicate is acknowledged and not executed again (IBA 9.7.5.1.2). */
RULE(a_duplicate_call_is_not_run_again)
{
	hostile_open(s, true, 0);
	for (unsigned i = 0; i < 3; i++) {
		send_rpc(PKT_RPC_PARAMS, s, KERNEL, 8, 8);
		expect_ack(p, PKT_AETH_ACK, s);
	}
	assert_int_equal(S.params, 1);
	peer_close(p);
}

/*
 * Without a free slot a call gets an RNR NAK (IBA 9.7.5.2.8), and later packets are dropped until
 * it arrives again.
 */
RULE(a_call_without_space_is_asked_for_again)
{
	hostile_open(s, true, 1);
	send_rpc(PKT_RPC_PARAMS, s, KERNEL, 8, 8);
	expect_ack(p, PKT_AETH_TYPE_RNR | 1, s);
	send_rpc(PKT_RPC_PARAMS, s + 1, KERNEL, 8, 8);
	expect_quiet(p, MSEC);
	S.refuse = 0;
	send_rpc(PKT_RPC_PARAMS, s, KERNEL, 8, 8);
	expect_ack(p, PKT_AETH_ACK, s);
	assert_int_equal(S.params, 1);
	peer_close(p);
}

/* The caller takes the ACK while the call runs. */
static void an_ack_leaves_before_the_call_runs(void **state)
{
	hostile_open(100, true, 0);
	S.schedules = true;
	for (uint32_t i = 0; i < 3; i++) {
		send_rpc(PKT_RPC_PARAMS, 100 + i, KERNEL, 8, 8);
		expect_ack(p, PKT_AETH_ACK, 100 + i);
		assert_int_equal(S.runs, i + 1);
		assert_int_equal(S.sent_at_run, i + 1);
	}
	peer_close(p);
}

/* Before RTS the QP has no PSNs for replies. */
RULE(calls_wait_for_rts)
{
	struct nic_qp_attr a;

	peer_open_init(p, &(struct ep_params){.mtu = 256}, s);
	serve(p->e.nic, s, 0);
	assert_int_equal(nic_qp_set_rpc(p->e.nic, p->e.qp), 0);
	peer_attr(p, &a);
	ep_to_rtr(&p->e, &a);
	send_rpc(PKT_RPC_PARAMS, s, KERNEL, 8, 8);
	expect_ack(p, PKT_AETH_TYPE_RNR | 1, s);
	ep_to_rts(&p->e, &a);
	send_rpc(PKT_RPC_PARAMS, s, KERNEL, 8, 8);
	expect_ack(p, PKT_AETH_ACK, s);
	assert_int_equal(S.params, 1);
	peer_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clean),
		cmocka_unit_test(refusals),
		cmocka_unit_test(losses),
		cmocka_unit_test(disorder),
		cmocka_unit_test(loopback),
		cmocka_unit_test(bad_work_requests),
		cmocka_unit_test(attribute),
		cmocka_unit_test(replies),
		cmocka_unit_test(reply_from_memory),
		cmocka_unit_test(reply_space),
		cmocka_unit_test(reply_refused),
		cmocka_unit_test(turns),
		cmocka_unit_test(accesses),
		cmocka_unit_test(accesses_end),
		cmocka_unit_test(malformed_calls_are_refused),
		cmocka_unit_test(a_nic_that_only_calls_refuses_calls),
		cmocka_unit_test(a_duplicate_call_is_not_run_again),
		cmocka_unit_test(a_call_without_space_is_asked_for_again),
		cmocka_unit_test(an_ack_leaves_before_the_call_runs),
		cmocka_unit_test(calls_wait_for_rts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
