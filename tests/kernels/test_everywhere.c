/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each request of a kernel works wherever a kernel runs: one function, with one request in it, as a
 * call, by the host, in the parameters of a hook, and on each kind of stream.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "rig.h"

static struct rig R, *const r = &R;

enum what {
	READ,
	WRITE,
	COPY_OUT, /* from the named region to the own one */
	COPY_IN,
	CAS,
	SEND_FROM,
	REPLY_FROM,
	QP_WRITE, /* out of the named region */
	QP_READ,  /* into it */
	/* no region is named */
	SEND,
	PUT,
	TAKE,
	SEES, /* the announced granted regions and bound queue pairs */
	UNKNOWN,
};

struct params {
	uint64_t what, n, va, own, raddr, rkey;
};

struct state {
	uint64_t word;
};

static enum roost_next no_such(struct roost_call *c)
{
	c->ask = 1000;
	return ROOST_AGAIN;
}

static enum roost_next agent(struct roost_call *c)
{
	const struct params *p = c->params;
	uint32_t n = (uint32_t)p->n;
	struct state *s = c->state;

	ROOST_STEPS(c);
	s->word = 7;
	if (p->what == READ)
		ROOST_READ_IN(c, n, p->va, &s->word, 8);
	if (p->what == WRITE)
		ROOST_WRITE_IN(c, n, p->va, &s->word, 8);
	if (p->what == COPY_OUT)
		ROOST_COPY_IN(c, 0, p->own, n, p->va, 8);
	if (p->what == COPY_IN)
		ROOST_COPY_IN(c, n, p->va, 0, p->own, 8);
	if (p->what == CAS)
		ROOST_CAS_IN(c, n, p->va, &s->word, 9);
	if (p->what == SEND_FROM) {
		ROOST_SEND_FROM_IN(c, n, p->va, 8);
		return roost_reply(c, ROOST_RPC_OK, NULL, 0);
	}
	if (p->what == REPLY_FROM)
		ROOST_REPLY_FROM_IN(c, n, p->va, 8);
	if (p->what == QP_WRITE)
		ROOST_QP_DO(c, roost_in(c, n,
					roost_qp_write(c, 1, p->raddr, (uint32_t)p->rkey, NULL,
						       p->va, 8)));
	if (p->what == QP_READ)
		ROOST_QP_DO(c, roost_in(c, n,
					roost_qp_read(c, 1, p->raddr, (uint32_t)p->rkey, NULL,
						      p->va, 8)));
	if (p->what == QP_WRITE || p->what == QP_READ)
		s->word = roost_qp_status(c, c->qp_posted);
	if (p->what == SEND) {
		ROOST_SEND(c, &s->word, 8);
		return roost_reply(c, ROOST_RPC_OK, NULL, 0);
	}
	if (p->what == PUT)
		roost_put(c, p->va, &s->word, 8);
	if (p->what == TAKE) {
		s->word = roost_take(c);
		roost_give(c, (uint32_t)s->word);
	}
	if (p->what == SEES)
		s->word = (uint64_t)c->num_grants << 32 | c->num_qps;
	if (p->what == UNKNOWN)
		ROOST_WAIT(c, no_such(c));
	ROOST_REPLY(c, &s->word, 8);
	ROOST_STEPS_END;
}

static enum roost_next nothing(struct roost_call *c)
{
	return ROOST_DONE;
}

#define KERNEL(number, ...)                                                                        \
	{                                                                                          \
		.abi = ROOST_KERNEL_ABI, .version = 1, .name = "agent", .op = 0x1000 + (number),   \
		.state_size = sizeof(struct state), .resources = 1, ##__VA_ARGS__                  \
	}

enum context { CALL, CALL_PAYLOAD, RUN, RUN_PAYLOAD, PARAMS, IN, REGION, OUT, RESIZE, CONTEXTS };

static const struct roost_kernel kernels[CONTEXTS] = {
	KERNEL(CALL, .params = agent),
	KERNEL(CALL_PAYLOAD, .params = nothing, .payload = agent),
	KERNEL(RUN, .params = agent),
	KERNEL(RUN_PAYLOAD, .params = nothing, .payload = agent),
	KERNEL(PARAMS, .params = agent, .stream = nothing),
	KERNEL(IN, .stream = agent),
	KERNEL(REGION, .stream = agent),
	KERNEL(OUT, .stream = agent),
	KERNEL(RESIZE, .stream = agent, .resizes = true),
};

/* ---- the rig ---- */

#define GRANTED	  0x7000000000ull
#define MESSAGE	  64u	/* bytes that go over a stream */
#define STREAM_AT 4096u /* of the memory that they go to */

static uint64_t memory[64]; /* the granted region */
static uint32_t key;	    /* its */

static uint64_t *own(void)
{
	return (uint64_t *)r->node[0].mem;
}

static void open_rig(uint32_t access)
{
	const struct roost_grant region = {
		.addr = GRANTED, .len = sizeof(memory), .access = access};
	const struct runtime_qp_limits limits = {0};
	struct nic_mr_attr a = {.addr = memory,
				.len = sizeof(memory),
				.iova = GRANTED,
				.access = NIC_ACCESS_LOCAL_WRITE};
	unsigned number;

	rig_open(r, 1,
		 &(struct rig_shape){
			 .sp = {.delay_ns = 1000}, .cfg = {.max_steps = 1000}, .rnr_retry = 7});
	a.pd = r->node[1].pd;
	assert_int_equal(nic_mr_register(r->w.nic[1], &a, &key), 0);
	for (unsigned i = 0; i < CONTEXTS; i++) {
		assert_int_equal(runtime_deploy(r->f, &kernels[i], NULL), 0);
		assert_int_equal(runtime_grant(r->f, kernels[i].op, &region, a.pd, key, &number),
				 0);
		assert_int_equal(number, 1);
		assert_int_equal(
			runtime_bind_qp(r->f, kernels[i].op, r->node[1].qp, &limits, &number), 0);
		assert_int_equal(number, 1);
	}
	for (unsigned i = 0; i < 64; i++)
		memory[i] = i;
}

static void close_rig(void)
{
	assert_int_equal(nic_mr_deregister(r->w.nic[1], key), 0);
	rig_close(r);
}

struct outcome {
	uint32_t status, len;
	uint64_t word;		  /* of its data */
	uint8_t message[MESSAGE]; /* the resulting stream */
};

static void settle(void)
{
	world_run(&r->w, world_now(&r->w) + SEC);
	rig_reap(r);
}

static struct outcome as_call(const struct params *p, bool payload)
{
	uint64_t op = kernels[payload ? CALL_PAYLOAD : CALL].op;
	struct rig_reply a;
	struct outcome out = {0};

	rig_post(r, 0, 0, op, p, sizeof(*p), 8, payload ? ROOST_RPC_STREAM : 0);
	if (payload)
		rig_post_payload(r, 0, op, MESSAGE);
	a = rig_wait(r, 0, 0, 8);
	settle();
	out.status = a.status;
	out.len = a.len;
	if (a.len)
		memcpy(&out.word, a.data, 8);
	return out;
}

static void attach(struct local_call *p, enum context context)
{
	int rc = 0;

	if (context == IN)
		rc = local_call_attach_in(p, r->node[0].qp);
	else if (context == REGION)
		rc = local_call_attach_region(p, r->node[0].key);
	else if (context == OUT || context == RESIZE)
		rc = local_call_attach_out(p, r->node[0].qp);
	assert_int_equal(rc, 0);
}

/* A message, which the kernel sees. */
static void send_message(enum context context)
{
	bool out = context == OUT || context == RESIZE;
	struct ep *from = out ? &r->node[0] : &r->caller[0],
		  *to = out ? &r->caller[0] : &r->node[0];
	struct wr wr = wr_rdma(ROOST_OP_WRITE, from, 8192, MESSAGE, to, STREAM_AT);
	struct roost_cqe c;

	memset(to->mem + STREAM_AT, 0, MESSAGE);
	memset(from->mem + 8192, 0xab, MESSAGE);
	ep_post(from, &wr);
	assert_true(ep_wait_send(from, &c, SEC));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
}

static struct outcome on_host(const struct params *p, enum context context)
{
	static uint8_t payload[MESSAGE];
	struct local_call_result result;
	struct outcome out = {0};
	struct local_call *l;
	struct local_call_attr a = {.op = kernels[context].op,
				    .params = p,
				    .params_len = sizeof(*p),
				    .pd = r->node[0].pd,
				    .key = r->node[0].key,
				    .reply = (uint8_t *)&out.word,
				    .space = 8};

	if (context == RUN || context == RUN_PAYLOAD)
		assert_int_equal(local_call_start(r->f, 0, &a,
						  context == RUN_PAYLOAD ? payload : NULL,
						  sizeof(payload), &l),
				 0);
	else
		assert_int_equal(local_call_begin(r->f, 0, &a, &l), 0);
	attach(l, context);
	if (context >= IN)
		send_message(context);
	settle();
	assert_int_equal(local_call_detach(l), 0);
	assert_false(local_call_busy(l));
	assert_true(local_call_finished(l, &result));
	out.status = result.status;
	out.len = result.len;
	memcpy(out.message,
	       (context == OUT || context == RESIZE ? r->caller : r->node)[0].mem + STREAM_AT,
	       MESSAGE);
	local_call_free(l);
	return out;
}

static struct outcome run(enum context context, enum what what, unsigned n, uint64_t va)
{
	const struct params p = {.what = what,
				 .n = n,
				 .va = va,
				 .own = rig_va(r, 0),
				 .raddr = (uintptr_t)r->caller[1].mem,
				 .rkey = r->caller[1].key};

	return context <= CALL_PAYLOAD ? as_call(&p, context == CALL_PAYLOAD)
				       : on_host(&p, context);
}

static struct outcome granted(enum context context, enum what what, unsigned word)
{
	return run(context, what, 1, GRANTED + 8 * word);
}

static void replies(const struct outcome *a, uint64_t word)
{
	assert_int_equal(a->status, ROOST_RPC_OK);
	assert_int_equal(a->len, 8);
	assert_int_equal(a->word, word);
}

static void ends(struct outcome a, uint32_t status)
{
	assert_int_equal(a.status, status);
	assert_int_equal(a.len, 0);
}

/* Data ahead of the reply: they go to the caller, or become the stream. */
static void sends(enum context context, struct outcome a, uint64_t word)
{
	uint64_t rest;

	if (context != RESIZE) {
		replies(&a, word);
		return;
	}
	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_int_equal(a.len, 0);
	assert_memory_equal(a.message, &word, 8);
	memcpy(&rest, a.message + 8, 8);
	assert_int_equal(rest, 0xababababababababull); /* it has ended: the rest passes */
}

/* ---- the tests ---- */

static void granted_regions(void **state)
{
	for (enum context at = 0; at < CONTEXTS; at++) {
		uint64_t *remote;
		struct outcome a;

		open_rig(NIC_ACCESS_REMOTE_READ | NIC_ACCESS_REMOTE_WRITE |
			 NIC_ACCESS_REMOTE_ATOMIC);
		remote = (uint64_t *)r->caller[1].mem;
		a = granted(at, READ, 5);
		replies(&a, 5);
		granted(at, WRITE, 6);
		assert_int_equal(memory[6], 7);
		granted(at, COPY_OUT, 11);
		assert_int_equal(own()[0], 11);
		own()[0] = 99;
		granted(at, COPY_IN, 12);
		assert_int_equal(memory[12], 99);
		a = granted(at, CAS, 7);
		replies(&a, 7);
		assert_int_equal(memory[7], 9);
		sends(at, granted(at, SEND_FROM, 20), 20);
		a = granted(at, REPLY_FROM, 21);
		replies(&a, 21);
		a = granted(at, QP_WRITE, 22);
		replies(&a, ROOST_QP_OK);
		assert_int_equal(remote[0], 22);
		remote[0] = 1234;
		a = granted(at, QP_READ, 23);
		replies(&a, ROOST_QP_OK);
		assert_int_equal(memory[23], 1234);
		close_rig();
	}
}

/* With another number, beyond the end, or without the right: no memory is accessed. */
static void what_was_not_granted(void **state)
{
	for (enum context at = 0; at < CONTEXTS; at++) {
		open_rig(NIC_ACCESS_REMOTE_READ);
		for (enum what w = READ; w <= REPLY_FROM; w++) {
			bool reads =
				w == READ || w == COPY_OUT || w == SEND_FROM || w == REPLY_FROM;

			assert_int_equal(granted(at, w, 1).status,
					 reads ? ROOST_RPC_OK : ROOST_RPC_ACCESS);
			ends(run(at, w, 0, GRANTED), ROOST_RPC_ACCESS);
			ends(run(at, w, 2, GRANTED), ROOST_RPC_ACCESS);
			ends(run(at, w, UINT32_MAX, GRANTED), ROOST_RPC_ACCESS);
			ends(run(at, w, 1, GRANTED - 8), ROOST_RPC_ACCESS);
			ends(run(at, w, 1, GRANTED + sizeof(memory) - 7), ROOST_RPC_ACCESS);
		}
		/* A work request reports it itself. */
		for (unsigned n = 0; n < 4; n++) {
			struct outcome a = run(at, QP_READ, n, GRANTED);

			replies(&a, ROOST_QP_LOCAL);
			a = run(at, QP_WRITE, n, GRANTED);
			replies(&a, n == 1 ? ROOST_QP_OK : ROOST_QP_LOCAL);
		}
		for (unsigned i = 0; i < 64; i++)
			assert_int_equal(memory[i], i);
		close_rig();
	}
}

static void all_else(void **state)
{
	for (enum context at = 0; at < CONTEXTS; at++) {
		struct outcome a;

		open_rig(NIC_ACCESS_REMOTE_READ);
		own()[3] = 33;
		a = run(at, READ, 0, rig_va(r, 24));
		replies(&a, 33);
		run(at, WRITE, 0, rig_va(r, 24));
		assert_int_equal(own()[3], 7);
		a = run(at, CAS, 0, rig_va(r, 24));
		replies(&a, 7);
		assert_int_equal(own()[3], 9);
		run(at, COPY_IN, 0, rig_va(r, 32));
		assert_int_equal(own()[4], own()[0]);
		sends(at, run(at, SEND, 0, 0), 7);
		sends(at, run(at, SEND_FROM, 0, rig_va(r, 24)), 9);
		a = run(at, REPLY_FROM, 0, rig_va(r, 24));
		replies(&a, 9);
		run(at, PUT, 0, rig_va(r, 40));
		assert_int_equal(own()[5], 7);
		ends(run(at, PUT, 0, rig_va(r, RIG_MEM)), ROOST_RPC_ACCESS);
		a = run(at, TAKE, 0, 0);
		replies(&a, 1);
		a = run(at, SEES, 0, 0);
		replies(&a, 1ull << 32 | 1);
		ends(run(at, UNKNOWN, 0, 0), ROOST_RPC_FAILED);
		close_rig();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(granted_regions),
		cmocka_unit_test(what_was_not_granted),
		cmocka_unit_test(all_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
