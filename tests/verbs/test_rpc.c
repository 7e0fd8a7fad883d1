/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roost/verbs.h: calls posted by the program or with memory of their own, kernels that are loaded
 * and unloaded, threads.
 */
#include "fixture.h"

#include <pthread.h>

#include "roost/get.h"
#include "roost/verbs.h"

#define LONG (TIMEOUT_S * 1000000000ull) /* ns: longer than any call here takes */

/* ---- kernels ---- */

/* hold: with ROOST_RPC_IMM its reply waits until the caller posts a receive. */
static enum roost_next hold(struct roost_call *c)
{
	return roost_reply(c, ROOST_RPC_OK, "held", 4);
}

/* sum: adds up the bytes of a stream. */
static enum roost_next nothing(struct roost_call *c)
{
	return ROOST_DONE;
}

static enum roost_next sum(struct roost_call *c)
{
	uint64_t *total = c->state;

	for (uint32_t i = 0; i < c->len; i++)
		*total += c->data[i];
	return c->last ? roost_reply(c, ROOST_RPC_OK, total, 8) : ROOST_DONE;
}

static const struct roost_kernel hold_kernel = {
	.abi = ROOST_KERNEL_ABI, .name = "hold", .version = 1, .op = 0x1000, .params = hold};
static const struct roost_kernel sum_kernel = {.abi = ROOST_KERNEL_ABI,
					       .name = "sum",
					       .version = 1,
					       .op = 0x1001,
					       .state_size = 8,
					       .params = nothing,
					       .payload = sum};

/* ---- a table, and lookups ---- */

#define ENTRIES 64
#define KEYS	100

/* A table in the memory of side 1: key k has the value k, k times. */
static void make_table(struct pair *p)
{
	struct roost_get_entry *t = (struct roost_get_entry *)(void *)p->buf[1];
	uint32_t used = 0;

	for (uint32_t k = 1; k <= KEYS; k++) {
		uint8_t *value = p->buf[1] + 16384 + k * 128;

		memset(value, (int)k, k);
		assert_int_equal(
			roost_get_insert(t, ENTRIES, ENTRIES, &used, k, (uintptr_t)value, k, 0), 0);
	}
	assert_int_equal(roost_kernel_deploy(p->ctx, roost_kernel_builtin("get"), NULL), 0);
}

static int get(struct pair *p, struct roost_caller *c, uint64_t key, void *reply,
	       struct roost_result *r)
{
	struct roost_get_params params = roost_get_params((uintptr_t)p->buf[1], ENTRIES, key, 0);

	return roost_call(c, ROOST_GET_OP, p->mr[1]->rkey, &params, sizeof(params), reply, KEYS,
			  LONG, r);
}

/* ---- tests ---- */

static void get_in_one_call(void **state)
{
	struct roost_caller *c;
	struct roost_result r;
	uint8_t reply[KEYS];
	struct pair p;

	pair_open_rpc(&p);
	make_table(&p);
	c = roost_caller_create(p.qp[0], 4, KEYS);
	assert_non_null(c);
	for (uint32_t k = 1; k <= KEYS; k++) {
		assert_int_equal(get(&p, c, k, reply, &r), 0);
		assert_int_equal(r.status, ROOST_RPC_OK);
		assert_int_equal(r.len, k);
		assert_ptr_equal(r.data, reply);
		for (uint32_t i = 0; i < k; i++)
			assert_int_equal(reply[i], k);
	}
	assert_int_equal(get(&p, c, 7777, reply, &r), 0);
	assert_int_equal(r.status, ROOST_RPC_MISS);
	assert_int_equal(roost_call(c, 0x9999, 0, NULL, 0, reply, KEYS, LONG, &r), 0);
	assert_int_equal(r.status, ROOST_RPC_NO_KERNEL);
	/* A reply that does not fit is not copied. */
	{
		struct roost_get_params params =
			roost_get_params((uintptr_t)p.buf[1], ENTRIES, 50, 0);

		reply[0] = 0xee;
		assert_int_equal(roost_call(c, ROOST_GET_OP, p.mr[1]->rkey, &params, sizeof(params),
					    reply, 49, LONG, &r),
				 0);
		assert_int_equal(r.status, ROOST_RPC_TOO_LONG);
		assert_int_equal(r.len, 50);
		assert_null(r.data);
		assert_int_equal(reply[0], 0xee);
	}
	assert_int_equal(roost_call(c, 1, 0, reply, ROOST_RPC_MAX_PARAMS + 1, reply, 8, LONG, &r),
			 EMSGSIZE);
	roost_caller_destroy(c);
	pair_close(&p);
}

/* There can be as many calls at once as slots. Each gets its own reply. */
static void calls_at_once(void **state)
{
	struct roost_caller *c;
	struct roost_result r;
	unsigned id[8], more;
	struct pair p;

	pair_open_rpc(&p);
	make_table(&p);
	c = roost_caller_create(p.qp[0], 8, KEYS);
	for (unsigned round = 0; round < 50; round++) {
		for (unsigned i = 0; i < 8; i++) {
			struct roost_get_params params = roost_get_params(
				(uintptr_t)p.buf[1], ENTRIES, 1 + (round + i) % KEYS, 0);

			assert_int_equal(roost_call_begin(c, ROOST_GET_OP, p.mr[1]->rkey, &params,
							  sizeof(params), 0, &id[i]),
					 0);
		}
		assert_int_equal(roost_call_begin(c, ROOST_GET_OP, 0, NULL, 0, 0, &more), EAGAIN);
		for (unsigned i = 0; i < 8; i++) {
			assert_int_equal(roost_call_wait(c, id[i], LONG, &r), 0);
			assert_int_equal(r.status, ROOST_RPC_OK);
			assert_int_equal(r.len, 1 + (round + i) % KEYS);
			assert_int_equal(((const uint8_t *)r.data)[0], r.len);
			roost_call_end(c, id[i]);
			assert_int_equal(roost_call_poll(c, id[i], &r), EINVAL);
		}
	}
	roost_caller_destroy(c);
	pair_close(&p);
}

/* Calls that the program posts itself: the call has a completion, its reply takes a receive. */
static void posted_by_hand(void **state)
{
	struct roost_rpc_head *head;
	struct roost_rpc_tail *tail;
	struct roost_get_params params;
	struct roost_rpc_wr wr = {
		.wr_id = 5, .op = ROOST_GET_OP, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct pair p;

	pair_open_rpc(&p);
	make_table(&p);
	params = roost_get_params((uintptr_t)p.buf[1], ENTRIES, 42, 0);
	head = (struct roost_rpc_head *)(void *)p.buf[0];
	*head = (struct roost_rpc_head){.reply_addr = (uintptr_t)p.buf[0] + 1024,
					.reply_rkey = p.mr[0]->rkey,
					.reply_len = 512,
					.mark = 77,
					.flags = ROOST_RPC_IMM};
	memcpy(head + 1, &params, sizeof(params));
	sge = (struct ibv_sge){(uintptr_t)p.buf[0], sizeof(*head) + sizeof(params), p.mr[0]->lkey};
	wr.sg_list = &sge;
	wr.rkey = p.mr[1]->rkey;
	assert_int_equal(post_recv_one(&p, 0, 6, 0), 0);
	assert_int_equal(roost_post_rpc(p.qp[0], &wr), 0);
	for (unsigned seen = 0; seen != 3;) {
		wc = wait_good(p.cq[0]);
		if (wc.wr_id == 5) {
			assert_int_equal(wc.opcode, ROOST_WC_RPC);
			seen |= 1;
			continue;
		}
		assert_int_equal(wc.wr_id, 6);
		assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		assert_int_equal(be32toh(wc.imm_data), 77);
		assert_int_equal(wc.byte_len, 42 + 8);
		seen |= 2;
	}
	tail = (struct roost_rpc_tail *)(void *)(p.buf[0] + 1024 + 512 - 8);
	assert_int_equal(tail->len, 42);
	assert_int_equal(tail->status, ROOST_RPC_OK);
	assert_int_equal(tail->mark, 77);
	assert_int_equal(p.buf[0][1024 + 512 - 8 - 42], 42);
	/* Calls that cannot be posted. */
	wr.num_sge = 2;
	assert_int_equal(roost_post_rpc(p.qp[0], &wr), EINVAL);
	wr.num_sge = 1;
	sge.length = 1025; /* longer than a packet: the queue pair goes into the error state */
	assert_int_equal(roost_post_rpc(p.qp[0], &wr), 0);
	wait_wcs(p.cq[0], &wc, 1);
	assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
	pair_close(&p);
}

static void payload(void **state)
{
	struct roost_rpc_wr wr = {
		.wr_id = 9, .op = 0x1001, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	struct roost_caller *c;
	struct roost_result r;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct pair p;

	pair_open_rpc(&p);
	assert_int_equal(roost_kernel_deploy(p.ctx, &sum_kernel, NULL), 0);
	c = roost_caller_create(p.qp[0], 1, 8);
	for (uint32_t n = 0; n <= BUF_SIZE; n += n < 4 ? 1 : n / 2) {
		uint64_t want = 0;
		unsigned id;

		for (uint32_t i = 0; i < n; i++)
			want += p.buf[0][i] = (uint8_t)(i * 7 + n);
		sge = (struct ibv_sge){(uintptr_t)p.buf[0], n, p.mr[0]->lkey};
		wr.sg_list = &sge;
		assert_int_equal(roost_call_begin(c, 0x1001, 0, NULL, 0, ROOST_RPC_STREAM, &id), 0);
		assert_int_equal(roost_post_rpc_write(p.qp[0], &wr), 0);
		assert_int_equal(roost_call_wait(c, id, LONG, &r), 0);
		assert_int_equal(r.status, ROOST_RPC_OK);
		assert_memory_equal(r.data, &want, 8);
		roost_call_end(c, id);
		wc = wait_good(p.cq[0]);
		assert_int_equal(wc.opcode, ROOST_WC_RPC_WRITE);
	}
	roost_caller_destroy(c);
	pair_close(&p);
}

/*
 * A call that is given up keeps its slot until its reply has come. No other call gets a late reply.
 */
static void given_up(void **state)
{
	struct roost_caller *c;
	struct roost_result r;
	uint8_t reply[KEYS];
	struct ibv_wc wc;
	unsigned id;
	struct pair p;

	pair_open_rpc(&p);
	make_table(&p);
	assert_int_equal(roost_kernel_deploy(p.ctx, &hold_kernel, NULL), 0);
	c = roost_caller_create(p.qp[0], 1, KEYS);
	assert_int_equal(roost_call_begin(c, 0x1000, 0, NULL, 0, ROOST_RPC_IMM, &id), 0);
	assert_int_equal(roost_call_wait(c, id, 1000000, &r), ETIMEDOUT);
	roost_call_end(c, id);
	assert_int_equal(get(&p, c, 9, reply, &r), EAGAIN);
	assert_int_equal(post_recv_one(&p, 0, 6, 0), 0);
	wc = wait_good(p.cq[0]);
	assert_int_equal(wc.byte_len, 12);
	assert_int_equal(get(&p, c, 9, reply, &r), 0);
	assert_int_equal(r.status, ROOST_RPC_OK);
	assert_int_equal(r.len, 9);
	roost_caller_destroy(c);
	pair_close(&p);
}

/* Calls that wait fail when the queue pair goes into the error state. */
static void the_end(void **state)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct roost_caller *c;
	struct roost_result r;
	unsigned id;
	struct pair p;

	pair_open_rpc(&p);
	assert_int_equal(roost_kernel_deploy(p.ctx, &hold_kernel, NULL), 0);
	c = roost_caller_create(p.qp[0], 1, 8);
	assert_int_equal(roost_call_begin(c, 0x1000, 0, NULL, 0, ROOST_RPC_IMM, &id), 0);
	assert_int_equal(roost_call_poll(c, id, &r), EAGAIN);
	assert_int_equal(ibv_modify_qp(p.qp[0], &err, IBV_QP_STATE), 0);
	assert_int_equal(roost_call_wait(c, id, LONG, &r), ENOTCONN);
	assert_int_equal(ibv_modify_qp(p.qp[1], &err, IBV_QP_STATE), 0);
	roost_caller_destroy(c);
	pair_close(&p);
}

static void who_may(void **state)
{
	struct roost_rpc_wr wr = {.op = 1};
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp_init_attr ia = {.qp_type = IBV_QPT_UC, .cap = {1, 1, 1, 1, 0}};
	struct ibv_qp *uc;
	struct pair p;

	pair_open(&p, NULL);
	assert_int_equal(roost_qp_enable_rpc(p.qp[0]), EINVAL); /* RTS */
	assert_int_equal(roost_post_rpc(p.qp[0], &wr), EINVAL);
	assert_int_equal(roost_post_rpc_write(p.qp[0], &wr), EINVAL);
	assert_int_equal(ibv_modify_qp(p.qp[0], &reset, IBV_QP_STATE), 0);
	assert_int_equal(roost_qp_enable_rpc(p.qp[0]), 0);
	assert_int_equal(roost_post_rpc(p.qp[0], &wr), EINVAL); /* not yet RTS */
	ia.send_cq = ia.recv_cq = p.cq[0];
	uc = ibv_create_qp(p.pd, &ia);
	assert_non_null(uc);
	assert_int_equal(roost_qp_enable_rpc(uc), EOPNOTSUPP);
	assert_int_equal(ibv_destroy_qp(uc), 0);
	assert_null(roost_kernel_builtin("nothing"));
	assert_null(roost_caller_create(p.qp[0], 0, 8));
	assert_null(roost_caller_create(p.qp[0], 257, 8));
	pair_close(&p);
}

/* Each side calls the other from a thread of its own, while kernels are loaded and unloaded. */
struct thread {
	struct pair *p;
	int side;
	struct roost_get_params params;
	unsigned good, none;
};

static void *call_often(void *arg)
{
	struct thread *t = arg;
	struct roost_caller *c = roost_caller_create(t->p->qp[t->side], 2, KEYS);
	struct roost_result r;
	uint8_t reply[KEYS];

	for (unsigned i = 0; i < 2000; i++) {
		if (roost_call(c, ROOST_GET_OP, t->p->mr[1]->rkey, &t->params, sizeof(t->params),
			       reply, KEYS, LONG, &r))
			break;
		if (r.status == ROOST_RPC_OK && r.len == 33 && reply[32] == 33)
			t->good++;
		else if (r.status == ROOST_RPC_NO_KERNEL)
			t->none++;
	}
	roost_caller_destroy(c);
	return NULL;
}

static void threads(void **state)
{
	struct thread t[2];
	pthread_t id[2];
	struct pair p;

	pair_open_rpc(&p);
	make_table(&p);
	for (int i = 0; i < 2; i++) {
		t[i] = (struct thread){
			.p = &p,
			.side = i,
			.params = roost_get_params((uintptr_t)p.buf[1], ENTRIES, 33, 0)};
		assert_int_equal(pthread_create(&id[i], NULL, call_often, &t[i]), 0);
	}
	for (unsigned i = 0; i < 50; i++) {
		int ret = roost_kernel_undeploy(p.ctx, ROOST_GET_OP);

		if (ret) {
			assert_int_equal(ret, EBUSY);
			continue;
		}
		assert_int_equal(roost_kernel_deploy(p.ctx, roost_kernel_builtin("get"), NULL), 0);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(id[i], NULL);
		assert_int_equal(t[i].good + t[i].none, 2000);
	}
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(get_in_one_call), cmocka_unit_test(calls_at_once),
		cmocka_unit_test(posted_by_hand),  cmocka_unit_test(payload),
		cmocka_unit_test(given_up),	   cmocka_unit_test(the_end),
		cmocka_unit_test(who_may),	   cmocka_unit_test(threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
