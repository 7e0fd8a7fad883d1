/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several threads use the same objects; this test is for TSan. Four threads post WRITEs on one QP
 * and poll one CQ. Others register memory, create and destroy QPs, arm the CQ and query. Each
 * completion is counted once, and each byte arrives.
 */
#include "fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define POSTERS 4
#define SLOT	64

static unsigned rounds = 10000;
static struct pair pair;
static atomic_uint completed[POSTERS];
static atomic_uint done, outstanding;
static atomic_bool failed;
static pthread_barrier_t start;

static void check(bool good)
{
	if (!good)
		atomic_store(&failed, true);
}

static void take_some(void)
{
	struct ibv_wc wc[4];
	int i, n = ibv_poll_cq(pair.cq[0], 4, wc);

	check(n >= 0);
	for (i = 0; i < n; i++) {
		check(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id < POSTERS);
		atomic_fetch_add(&completed[wc[i].wr_id % POSTERS], 1);
		atomic_fetch_sub(&outstanding, 1);
	}
}

static bool late(time_t since)
{
	if (time(NULL) - since <= TIMEOUT_S)
		return false;
	check(false);
	return true;
}

/* Writes its round's number into its own slot, repeatedly. */
static void *poster(void *arg)
{
	unsigned id = (unsigned)(uintptr_t)arg, i;
	uint8_t *slot = pair.buf[0] + id * SLOT;

	pthread_barrier_wait(&start);
	for (i = 1; i <= rounds && !atomic_load(&failed); i++) {
		struct ibv_sge sge = {(uintptr_t)slot, SLOT, pair.mr[0]->lkey};
		struct ibv_send_wr wr =
					   {
						   .wr_id = id,
						   .sg_list = &sge,
						   .num_sge = 1,
						   .opcode = IBV_WR_RDMA_WRITE,
						   .send_flags = IBV_SEND_SIGNALED,
						   .wr.rdma = {(uintptr_t)pair.buf[1] + id * SLOT,
							       pair.mr[1]->rkey},
					   },
				   *bad;
		time_t began = time(NULL);

		memset(slot, (int)i, SLOT);
		atomic_fetch_add(&outstanding, 1);
		check(ibv_post_send(pair.qp[0], &wr, &bad) == 0);
		/*
		 * Waits, because the slot is used again. Another thread may have polled the
		 * completion.
		 */
		while (atomic_load(&completed[id]) < i && !atomic_load(&failed) && !late(began))
			take_some();
	}
	atomic_fetch_add(&done, 1);
	return NULL;
}

static bool posting(void)
{
	return atomic_load(&done) < POSTERS && !atomic_load(&failed);
}

static void *registrar(void *arg)
{
	char mem[256];

	while (posting()) {
		struct ibv_mr *mr = ibv_reg_mr(pair.pd, mem, sizeof(mem), IBV_ACCESS_LOCAL_WRITE);

		check(mr && !ibv_dereg_mr(mr));
		sched_yield();
	}
	return NULL;
}

static void *maker(void *arg)
{
	while (posting()) {
		struct ibv_qp_init_attr attr = {
			.send_cq = pair.cq[0],
			.recv_cq = pair.cq[1],
			.cap = {2, 2, 1, 1, 0},
			.qp_type = IBV_QPT_RC,
		};
		struct ibv_qp *qp = ibv_create_qp(pair.pd, &attr);

		check(qp && !ibv_destroy_qp(qp));
		sched_yield();
	}
	return NULL;
}

static void *observer(void *arg)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_cq *cq;
	void *ctx;
	int n = 0;

	fcntl(pair.channel->fd, F_SETFL, O_NONBLOCK);
	while (posting()) {
		check(!ibv_req_notify_cq(pair.cq[0], 0));
		check(!ibv_query_qp(pair.qp[0], &attr, IBV_QP_STATE, &init));
		check(attr.qp_state == IBV_QPS_RTS);
		if (!ibv_get_cq_event(pair.channel, &cq, &ctx))
			ibv_ack_cq_events(cq, 1);
		if (++n % 64 == 0)
			check(!ibv_resize_cq(pair.cq[0], n % 128 ? 64 : 100));
		sched_yield();
	}
	return NULL;
}

static void many_threads(void **state)
{
	void *(*const side_shows[])(void *) = {registrar, maker, observer};
	const struct pair_options o = {.cap = {POSTERS, 1, 1, 1, 0}, .cqe = 64};
	pthread_t posters[POSTERS], others[3];
	unsigned i;

	pair_open(&pair, &o);
	pthread_barrier_init(&start, NULL, POSTERS);
	for (i = 0; i < POSTERS; i++)
		assert_int_equal(pthread_create(&posters[i], NULL, poster, (void *)(uintptr_t)i),
				 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&others[i], NULL, side_shows[i], NULL), 0);
	for (i = 0; i < POSTERS; i++)
		pthread_join(posters[i], NULL);
	for (i = 0; i < 3; i++)
		pthread_join(others[i], NULL);
	assert_false(atomic_load(&failed));
	assert_int_equal(atomic_load(&outstanding), 0);
	for (i = 0; i < POSTERS; i++)
		assert_int_equal(atomic_load(&completed[i]), rounds);
	assert_memory_equal(pair.buf[0], pair.buf[1], POSTERS * SLOT);
	pair_close(&pair);
}

static void *driver(void *arg)
{
	struct ibv_wc wc;

	while (posting())
		check(ibv_poll_cq(pair.cq[1], 1, &wc) == 0);
	return NULL;
}

/*
 * A queue of one. A thread that has seen the completion can post, even if another thread is still
 * in the turn that made it.
 */
static void a_completion_frees_its_slot(void **state)
{
	const struct pair_options o = {.cap = {1, 1, 1, 1, 0}, .cqe = 64};
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	pthread_t t;
	unsigned i;

	atomic_store(&done, POSTERS - 1);
	pair_open(&pair, &o);
	assert_int_equal(pthread_create(&t, NULL, driver, NULL), 0);
	for (i = 0; i < rounds; i++) {
		wr = write_wr(&pair, &sge, i, 8);
		assert_int_equal(post_one(pair.qp[0], &wr), 0);
		assert_int_equal(wait_good(pair.cq[0]).wr_id, i);
	}
	atomic_fetch_add(&done, 1);
	pthread_join(t, NULL);
	assert_false(atomic_load(&failed));
	pair_close(&pair);
}

/* ---- receives of a queue pair that fails ---- */

#define FAILURES 2000
#define RECEIVES 16

/* Posts receives while the queue pair moves to the error state. Returns how many. */
static void *receiver(void *arg)
{
	uintptr_t n = 0;

	pthread_barrier_wait(&start);
	while (n < RECEIVES && post_recv_one(&pair, 0, n, 1) == 0)
		n++;
	return (void *)n;
}

static void move_to(enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	assert_int_equal(ibv_modify_qp(pair.qp[0], &attr, IBV_QP_STATE), 0);
}

/*
 * A receive that is posted while the queue pair enters the error state is flushed, by the change of
 * state or by the doorbell of the post: publish_recv() in src/verbs/post.c. No other call of the
 * program drives the NIC to find it.
 */
static void receives_of_a_queue_pair_that_fails(void **state)
{
	struct pair_options o = {.cap = {1, RECEIVES, 1, 1, 0}, .cqe = 64, .leave_reset = true};
	struct ibv_wc wc[RECEIVES];
	pthread_t thread;
	void *posted;

	pair_open(&pair, &o);
	assert_int_equal(pthread_barrier_init(&start, NULL, 2), 0);
	for (unsigned i = 0; i < FAILURES; i++) {
		assert_int_equal(to_init(&pair, 0), 0);
		assert_int_equal(pthread_create(&thread, NULL, receiver, NULL), 0);
		pthread_barrier_wait(&start);
		for (unsigned spin = 0; spin < i % 64; spin++)
			atomic_load(&failed);
		move_to(IBV_QPS_ERR);
		assert_int_equal(pthread_join(thread, &posted), 0);
		assert_int_equal((uintptr_t)posted, RECEIVES);
		wait_wcs(pair.cq[0], wc, RECEIVES);
		for (unsigned n = 0; n < RECEIVES; n++) {
			assert_int_equal(wc[n].status, IBV_WC_WR_FLUSH_ERR);
			assert_int_equal(wc[n].wr_id, n);
		}
		move_to(IBV_QPS_RESET);
	}
	pthread_barrier_destroy(&start);
	pair_close(&pair);
}

/* ---- a control call while work requests are built ---- */

static void *change_state(void *arg)
{
	move_to(IBV_QPS_ERR);
	return arg;
}

/* Returns the CPU time of a thread in ns. */
static uint64_t cpu_ns(pthread_t thread)
{
	struct timespec ts = {0};
	clockid_t clock;

	if (pthread_getcpuclockid(thread, &clock) == 0)
		clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void build_write(struct ibv_qp_ex *ex, uint64_t wr_id)
{
	ex->wr_id = wr_id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, pair.mr[1]->rkey, (uintptr_t)pair.buf[1]);
	ibv_wr_set_sge(ex, pair.mr[0]->lkey, (uintptr_t)pair.buf[0], 64);
}

/*
 * A thread builds work requests, and uses other objects meanwhile. The state of its queue pair
 * changes afterwards, and the thread that changes it holds up nobody: it spins until then.
 */
static void a_change_of_state_waits_for_the_builder(void **state)
{
	const struct pair_options o = {
		.cap = {4, 4, 1, 1, 0}, .cqe = 64, .send_ops = IBV_QP_EX_WITH_RDMA_WRITE};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_qp_ex *ex;
	struct ibv_wc wc;
	pthread_t t;

	pair_open(&pair, &o);
	ex = ibv_qp_to_qp_ex(pair.qp[0]);
	alarm(TIMEOUT_S); /* ends a deadlock */
	ibv_wr_start(ex);
	assert_int_equal(pthread_create(&t, NULL, change_state, NULL), 0);
	do {
		struct ibv_mr *mr = ibv_reg_mr(pair.pd, pair.buf[0], 64, 0);

		assert_non_null(mr);
		assert_int_equal(ibv_dereg_mr(mr), 0);
		assert_int_equal(ibv_poll_cq(pair.cq[0], 1, &wc), 0);
		assert_int_equal(ibv_query_qp(pair.qp[0], &attr, IBV_QP_STATE, &init), 0);
		assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	} while (cpu_ns(t) < 20000000);
	build_write(ex, 7);
	assert_int_equal(ibv_wr_complete(ex), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	alarm(0);
	assert_int_equal(ibv_query_qp(pair.qp[0], &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	wait_wcs(pair.cq[0], &wc, 1);
	assert_int_equal(wc.wr_id, 7);
	pair_close(&pair);
}

static void set_state(int side, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = {.qp_state = to};

	assert_int_equal(ibv_modify_qp(pair.qp[side], &attr, IBV_QP_STATE), 0);
}

/*
 * The thread that builds work requests changes the state of their queue pair. In the error state
 * they are flushed. A reset drops them, and what is built behind it.
 */
static void a_builder_changes_the_state(void **state)
{
	const struct pair_options o = {
		.cap = {4, 4, 1, 1, 0}, .cqe = 64, .send_ops = IBV_QP_EX_WITH_RDMA_WRITE};
	struct ibv_qp_ex *ex;
	struct ibv_wc wc;

	pair_open(&pair, &o);
	ex = ibv_qp_to_qp_ex(pair.qp[0]);
	alarm(TIMEOUT_S); /* ends a deadlock */
	ibv_wr_start(ex);
	build_write(ex, 1);
	set_state(0, IBV_QPS_ERR);
	assert_int_equal(ibv_wr_complete(ex), 0);
	wait_wcs(pair.cq[0], &wc, 1);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	set_state(0, IBV_QPS_RESET);
	set_state(1, IBV_QPS_RESET);
	for (int i = 0; i < 2; i++)
		assert_int_equal(to_init(&pair, i), 0);
	for (int i = 0; i < 2; i++)
		assert_true(to_rtr(&pair, i) == 0 && to_rts(&pair, i) == 0);
	ibv_wr_start(ex);
	build_write(ex, 2);
	set_state(0, IBV_QPS_RESET);
	assert_true(to_init(&pair, 0) == 0 && to_rtr(&pair, 0) == 0 && to_rts(&pair, 0) == 0);
	build_write(ex, 3);
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	build_write(ex, 4);
	assert_int_equal(ibv_wr_complete(ex), 0);
	assert_int_equal(wait_good(pair.cq[0]).wr_id, 4);
	alarm(0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_threads),
		cmocka_unit_test(a_completion_frees_its_slot),
		cmocka_unit_test(receives_of_a_queue_pair_that_fails),
		cmocka_unit_test(a_change_of_state_waits_for_the_builder),
		cmocka_unit_test(a_builder_changes_the_state),
	};

	/*
	 * With two units each round waits for a thread that no program polls for. There are more
	 * threads than cores.
	 */
	if (getenv("ROOST_PUS"))
		rounds = 300;

	return cmocka_run_group_tests(tests, NULL, NULL);
}
