/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A chain answers an `if` while the program that made it is stopped, and after it was killed. Three
 * processes take part. This process is the client; it forks the hull, which owns the NIC and has no
 * other task; the hull's child makes the chain and hands it over as images of work requests.
 *
 *	client			B (loop-back, managed)		A (to the client, managed)
 *	SEND of x  --receive-->	WAIT for a receive
 *	 x goes into the CAS	CAS: is A's NOP marked x?  --->	NOP, or now: WRITE of 1
 *				ENABLE 2 of A		   --->	WRITE of the request's number
 */
#include "chain_hull.h"
#include "forked.h"
#include "process_state.h"

#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define REQUESTS 12
#define SECRET	 0x42434445464748ull /* 48 bits are used */
#define ID	 (SECRET & 0xffffffffffff)

/* The memory of the program. */
struct table {
	_Atomic uint64_t pid; /* of the child, when its chain is posted */
	uint64_t one;
	uint64_t number[REQUESTS];
	uint64_t scratch;
};

/* The client's memory. */
struct answer {
	_Atomic uint64_t equal, number;
	uint8_t x[8];
};

enum { QUEUE_A, QUEUE_B, STARTER, QUEUES };

/* The requests of the child to the hull. */
struct request {
	enum { DESCRIBE, POST, RECEIVE, START } kind;
	uint32_t queue, n;
	struct ibv_sge sge;
	struct roost_wqe wqe[3];
};

/* ---- the child ---- */

static bool ask(struct roost_hull *hull, const struct request *r)
{
	return roost_hull_ask(hull, r, sizeof(*r), NULL, 0) == 0;
}

static struct roost_wqe write_to_client(const struct chain_env *e, const void *from, uint64_t to)
{
	return (struct roost_wqe){.ctrl = ROOST_CTRL(ROOST_OP_WRITE, 0),
				  .num_sge = 1,
				  .raddr = to,
				  .rkey = e->client_key,
				  .sge = {{(uintptr_t)from, 8, e->table_key}}};
}

static bool post_request(struct roost_hull *hull, const struct chain_env *e, struct table *t,
			 uint32_t i)
{
	const uint64_t cas = e->ring[QUEUE_B] + (3 * i + 1) * sizeof(struct roost_wqe);
	struct request a = {.kind = POST, .queue = QUEUE_A, .n = 2};
	struct request b = {.kind = POST, .queue = QUEUE_B, .n = 3};
	struct request r = {.kind = RECEIVE};

	t->number[i] = i + 1;
	a.wqe[0] = write_to_client(e, &t->one, e->client + offsetof(struct answer, equal));
	a.wqe[0].ctrl = ROOST_CTRL(ROOST_OP_NOP, ID);
	a.wqe[1] = write_to_client(e, &t->number[i], e->client + offsetof(struct answer, number));
	b.wqe[0] = (struct roost_wqe){.ctrl = ROOST_CTRL(ROOST_OP_WAIT, 0),
				      .raddr = 0 | ROOST_CHAIN_RELATIVE,
				      .swap_add = 1};
	b.wqe[1] = (struct roost_wqe){
		.ctrl = ROOST_CTRL(ROOST_OP_CMP_SWAP, 0),
		.num_sge = 1,
		.raddr = e->ring[QUEUE_A] + 2 * i * sizeof(struct roost_wqe),
		.rkey = e->ring_key[QUEUE_A],
		.compare = ROOST_CTRL(ROOST_OP_NOP, 0), /* the receive stores x in it */
		.swap_add = ROOST_CTRL(ROOST_OP_WRITE, 0),
		.sge = {{(uintptr_t)&t->scratch, 8, e->table_key}},
	};
	b.wqe[2] = (struct roost_wqe){.ctrl = ROOST_CTRL(ROOST_OP_ENABLE, 0),
				      .raddr = e->qpn[QUEUE_A] | ROOST_CHAIN_RELATIVE,
				      .swap_add = 2};
	r.sge = (struct ibv_sge){cas + offsetof(struct roost_wqe, compare) + 2, 6,
				 e->ring_key[QUEUE_B]};
	return ask(hull, &a) && ask(hull, &b) && ask(hull, &r);
}

static int work(struct roost_hull *hull, void *arg)
{
	struct table *t = roost_hull_memory(hull, "table", sizeof(*t));
	struct request r = {.kind = DESCRIBE};
	struct chain_env e;

	alarm(4 * TIMEOUT_S);
	if (!t || roost_hull_ask(hull, &r, sizeof(r), &e, sizeof(e)) != sizeof(e))
		return 2;
	t->one = 1;
	for (uint32_t i = 0; i < REQUESTS; i++)
		if (!post_request(hull, &e, t, i))
			return 3;
	r.kind = START;
	if (!ask(hull, &r))
		return 4;
	t->pid = (uint64_t)getpid();
	for (;;)
		pause();
}

/* ---- the hull ---- */

static long answer(void *ctx, const void *request, size_t len, void *reply)
{
	struct ibv_recv_wr recv = {.num_sge = 1}, *bad;
	struct roost_enable_wr start = {.relative = true, .count = 3 * REQUESTS};
	struct request r;

	if (len != sizeof(r))
		return -EBADMSG;
	memcpy(&r, request, sizeof(r));
	switch (r.kind) {
	case DESCRIBE:
		return chain_hull_describe(reply);
	case POST:
		if (r.queue > QUEUE_B || r.n > 3)
			return -EINVAL;
		return -roost_post_wqes(chain_hull.queue[r.queue], r.wqe, r.n, 0);
	case RECEIVE:
		recv.sg_list = &r.sge;
		return -ibv_post_recv(chain_hull.side.qp, &recv, &bad);
	case START:
		start.qp_num = chain_hull.queue[QUEUE_B]->qp_num;
		return -roost_post_enable(chain_hull.queue[STARTER], &start);
	}
	return -EINVAL;
}

static int serve(int in, int out)
{
	const struct chain_hull_shape shape = {.table = sizeof(struct table),
					       .access = IBV_ACCESS_REMOTE_READ,
					       .receives = REQUESTS,
					       .managed = true};
	struct roost_hull_program p = {.run = work, .request = answer};
	struct chain_hull *h = &chain_hull;

	chain_hull_open(&shape, in, out);
	h->queue[QUEUE_A] = h->side.qp;
	h->queue[QUEUE_B] =
		chain_hull_loop(3 * REQUESTS, &(struct roost_chain_attr){.managed_send = true,
									 .watch = {h->receives}});
	h->queue[STARTER] = chain_hull_loop(3 * REQUESTS, &(struct roost_chain_attr){0});
	chain_hull_register(QUEUES);
	chain_hull_serve(&p, in);
	return 0;
}

/* ---- the client ---- */

static struct answer local;

static uint64_t child_of(struct side *s)
{
	time_t until = time(NULL) + TIMEOUT_S;
	struct ibv_wc wc;

	do {
		assert_true(time(NULL) < until);
		side_post(s, IBV_WR_RDMA_READ, 1, &local.x, 8, offsetof(struct table, pid));
		wc = side_wc(s);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	} while (!*(uint64_t *)local.x);
	return *(uint64_t *)local.x;
}

/* Sends x and waits for the answers. */
static bool is_secret(struct side *s, uint64_t x, uint64_t number)
{
	time_t until = time(NULL) + TIMEOUT_S;
	struct ibv_wc wc;

	local.equal = 0;
	memcpy(local.x, &x, sizeof(x));
	assert_int_equal(side_post(s, IBV_WR_SEND, 2, local.x, 6, 0), 0);
	wc = side_wc(s);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	while (local.number != number) {
		assert_int_equal(ibv_poll_cq(s->cq, 1, &wc), 0);
		if (time(NULL) > until)
			fail_msg("request %llu: no answer in %d seconds",
				 (unsigned long long)number, TIMEOUT_S);
	}
	return local.equal;
}

static void four_requests(struct side *s, uint64_t *number)
{
	assert_true(is_secret(s, ID, ++*number));
	assert_false(is_secret(s, ID ^ 1, ++*number));
	assert_false(is_secret(s, ID ^ 1ull << 47, ++*number));
	assert_true(is_secret(s, ID, ++*number));
}

static void answers_without_its_program(void **state)
{
	static struct side s;
	uint64_t child, number = 0;
	struct forked hull;

	if (forked_start(&hull, 4 * TIMEOUT_S))
		_exit(serve(hull.there[0], hull.back[1]));
	side_open(&s, &local, sizeof(local), IBV_ACCESS_REMOTE_WRITE, hull.back[0], hull.there[1]);
	child = child_of(&s);
	four_requests(&s, &number);
	assert_int_equal(kill((pid_t)child, SIGSTOP), 0);
	wait_for_state(child, true);
	four_requests(&s, &number);
	assert_int_equal(state_of(child), 'T');
	assert_int_equal(kill((pid_t)child, SIGKILL), 0);
	wait_for_state(child, false);
	four_requests(&s, &number);
	assert_int_equal(number, REQUESTS);
	assert_int_equal(write(hull.there[1], "", 1), 1);
	forked_end(&hull);
	side_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_without_its_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
