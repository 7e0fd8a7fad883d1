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
#include "side.h"
#include "forked.h"
#include "process_state.h"

#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "roost/chain_verbs.h"
#include "roost/hull.h"

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

enum { QUEUE_A, QUEUE_B, QUEUES };

/* The data that the child gets from the hull. */
struct env {
	uint32_t qpn[QUEUES], ring_key[QUEUES];
	uint64_t ring[QUEUES];
	uint32_t table_key, client_key;
	uint64_t client;
};

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

static struct roost_wqe write_to_client(const struct env *e, const void *from, uint64_t to)
{
	return (struct roost_wqe){.ctrl = ROOST_CTRL(ROOST_OP_WRITE, 0),
				  .num_sge = 1,
				  .raddr = to,
				  .rkey = e->client_key,
				  .sge = {{(uintptr_t)from, 8, e->table_key}}};
}

static bool post_request(struct roost_hull *hull, const struct env *e, struct table *t, uint32_t i)
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
	struct env e;

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

static struct side hull_side;
static struct ibv_cq *receives, *quiet;
static struct ibv_qp *queue[QUEUES], *starter;
static struct ibv_mr *ring[QUEUES];

static void prepare(struct side *s, struct ibv_qp_init_attr *init)
{
	receives = roost_create_counting_cq(s->ctx, 0);
	quiet = roost_create_counting_cq(s->ctx, 0);
	assert_non_null(receives);
	assert_non_null(quiet);
	init->recv_cq = receives;
	init->send_cq = quiet;
	init->cap.max_recv_wr = REQUESTS;
}

static void created(struct side *s)
{
	struct roost_chain_attr a = {.managed_send = true};

	assert_int_equal(roost_qp_set_chain(s->qp, &a), 0);
}

static struct ibv_qp *loop_queue(struct side *s, const struct roost_chain_attr *attr)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 3 * REQUESTS, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC,
		.send_cq = quiet,
		.recv_cq = quiet,
	};
	struct ibv_qp *qp = ibv_create_qp(s->pd, &init);

	assert_non_null(qp);
	assert_int_equal(roost_qp_set_chain(qp, attr), 0);
	assert_int_equal(roost_qp_connect_self(qp, 1, 0), 0);
	return qp;
}

static long answer(void *ctx, const void *request, size_t len, void *reply)
{
	struct ibv_recv_wr recv = {.num_sge = 1}, *bad;
	struct roost_enable_wr start = {.relative = true, .count = 3 * REQUESTS};
	struct env *e = reply;
	struct request r;

	if (len != sizeof(r))
		return -EBADMSG;
	memcpy(&r, request, sizeof(r));
	switch (r.kind) {
	case DESCRIBE:
		memset(e, 0, sizeof(*e));
		for (unsigned i = 0; i < QUEUES; i++) {
			e->qpn[i] = queue[i]->qp_num;
			e->ring[i] = (uintptr_t)ring[i]->addr;
			e->ring_key[i] = ring[i]->rkey;
		}
		e->table_key = hull_side.mr->lkey;
		e->client = hull_side.peer.addr;
		e->client_key = hull_side.peer.rkey;
		return sizeof(*e);
	case POST:
		if (r.queue >= QUEUES || r.n > 3)
			return -EINVAL;
		return -roost_post_wqes(queue[r.queue], r.wqe, r.n, 0);
	case RECEIVE:
		recv.sg_list = &r.sge;
		return -ibv_post_recv(hull_side.qp, &recv, &bad);
	case START:
		start.qp_num = queue[QUEUE_B]->qp_num;
		return -roost_post_enable(starter, &start);
	}
	return -EINVAL;
}

static bool ended(void *ctx, int status)
{
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	return false;
}

static int serve(int in, int out)
{
	const int access =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	struct roost_hull_program p = {.run = work, .request = answer, .ended = ended};
	struct side *s = &hull_side;
	struct roost_hull *hull;
	struct table *t;
	char end;

	choose_port(true);
	hull = roost_hull_create();
	t = roost_hull_memory(hull, "table", sizeof(*t));
	assert_non_null(t);
	s->prepare = prepare;
	s->created = created;
	side_open(s, t, sizeof(*t), IBV_ACCESS_REMOTE_READ, in, out);
	queue[QUEUE_A] = s->qp;
	queue[QUEUE_B] = loop_queue(
		s, &(struct roost_chain_attr){.managed_send = true, .watch = {receives}});
	starter = loop_queue(s, &(struct roost_chain_attr){0});
	for (unsigned i = 0; i < QUEUES; i++) {
		ring[i] = roost_reg_queue_mr(queue[i], ROOST_SEND_QUEUE, access);
		assert_non_null(ring[i]);
	}
	assert_int_equal(roost_hull(hull, &p), 0);
	/* The child is dead. The chain serves until the client ends. */
	assert_int_equal(read(in, &end, 1), 1);
	assert_int_equal(ibv_destroy_qp(starter), 0);
	for (unsigned i = 0; i < QUEUES; i++) {
		assert_int_equal(ibv_destroy_qp(queue[i]), EBUSY);
		assert_int_equal(ibv_dereg_mr(ring[i]), 0);
	}
	assert_int_equal(ibv_destroy_qp(queue[QUEUE_B]), 0);
	assert_int_equal(ibv_destroy_qp(s->qp), 0);
	assert_int_equal(ibv_destroy_cq(receives), 0);
	assert_int_equal(ibv_destroy_cq(quiet), 0);
	assert_int_equal(ibv_dereg_mr(s->mr), 0);
	assert_int_equal(ibv_destroy_cq(s->cq), 0);
	assert_int_equal(ibv_dealloc_pd(s->pd), 0);
	assert_int_equal(ibv_close_device(s->ctx), 0);
	roost_hull_destroy(hull);
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
