/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels that the host starts, and that post to queue pairs bound to them. They run between
 * threads, PUs and ports.
 */
#include "../common/threads_settle.h"
#include "fixture.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "roost/verbs.h"

#define LEN    8192u
#define ROUNDS 200u

/* Reads a block from the peer, adds it up, and writes back its complement, repeatedly. */
struct turn_params {
	uint64_t addr;
	uint32_t rkey, rounds;
};

struct turn_state {
	struct turn_params p;
	uint32_t round;
	struct turn_told {
		uint64_t sum;
		uint32_t rounds, status;
	} told;
};

static enum roost_next turn(struct roost_call *c)
{
	struct turn_state *s = c->state;
	uint8_t *block;

	ROOST_STEPS(c);
	if (c->params_len != sizeof(s->p))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	memcpy(&s->p, c->params, sizeof(s->p));
	for (; s->round < s->p.rounds; s->round++) {
		ROOST_QP_READ(c, 1, s->p.addr, s->p.rkey, c->scratch, LEN);
		if (c->qp_failed)
			break;
		block = c->scratch;
		for (uint32_t i = 0; i < LEN; i++) {
			s->told.sum += block[i];
			block[i] = (uint8_t)~block[i];
		}
		ROOST_QP_WRITE(c, 1, s->p.addr, s->p.rkey, c->scratch, LEN);
		if (c->qp_failed)
			break;
	}
	s->told.rounds = s->round;
	s->told.status = roost_qp_status(c, c->qp_posted);
	ROOST_REPLY(c, &s->told, sizeof(s->told));
	ROOST_STEPS_END;
}

static const struct roost_kernel turner = {.abi = ROOST_KERNEL_ABI,
					   .name = "turn",
					   .version = 1,
					   .op = 0x1000,
					   .state_size = sizeof(struct turn_state),
					   .scratch_size = LEN,
					   .params = turn};

struct job {
	struct turn_params p;
	struct turn_told told;
	struct roost_invocation_attr a;
};

static void lay_out(struct job *j, const struct pair *p, uint32_t rounds)
{
	j->p = (struct turn_params){(uintptr_t)p->buf[1], p->mr[1]->rkey, rounds};
	j->told = (struct turn_told){0};
	j->a = (struct roost_invocation_attr){.op = 0x1000,
					      .params = &j->p,
					      .params_len = sizeof(j->p),
					      .reply = &j->told,
					      .space = sizeof(j->told)};
}

static void open_bound(struct pair *p)
{
	unsigned number;

	pair_open(p, NULL);
	assert_int_equal(roost_kernel_deploy(p->ctx, &turner, NULL), 0);
	assert_int_equal(roost_kernel_bind_qp(p->ctx, 0x1000, p->qp[0], NULL, &number), 0);
	assert_int_equal(number, 1);
}

static void close_bound(struct pair *p)
{
	assert_int_equal(roost_kernel_undeploy(p->ctx, 0x1000), 0);
	pair_close(p);
}

static void posts_work_requests(void **state)
{
	struct roost_result r;
	struct roost_run *run;
	struct ibv_wc wc;
	struct pair p;
	struct job j;

	open_bound(&p);
	memset(p.buf[1], 0x30, LEN);
	lay_out(&j, &p, 1);
	assert_int_equal(roost_kernel_run(p.ctx, &j.a, NULL, 0, &r), 0);
	assert_int_equal(r.status, ROOST_RPC_OK);
	assert_int_equal(j.told.rounds, 1);
	assert_int_equal(j.told.sum, 0x30 * LEN);
	for (unsigned i = 0; i < LEN; i++)
		assert_int_equal(p.buf[1][i], 0xcf);
	/* The kernel's operations and the program's share the queue pair. */
	lay_out(&j, &p, ROUNDS);
	run = roost_run_start(p.ctx, &j.a, NULL, 0);
	assert_non_null(run);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = write_wr(&p, &sge, i, 100);

		wr.wr.rdma.remote_addr += LEN;
		assert_int_equal(post_one(p.qp[0], &wr), 0);
		assert_int_equal(wait_good(p.cq[0]).wr_id, i);
	}
	assert_int_equal(roost_run_wait(run, 0, &r), 0);
	roost_run_end(run);
	assert_int_equal(j.told.rounds, ROUNDS);
	assert_int_equal(j.told.sum, (0x30 + 0xcf) * (uint64_t)LEN * ROUNDS / 2);
	assert_int_equal(ibv_poll_cq(p.cq[0], 1, &wc), 0);
	close_bound(&p);
}

static void learns_of_errors(void **state)
{
	struct roost_result r;
	struct pair p;
	struct job j;
	unsigned number;

	open_bound(&p);
	assert_int_equal(roost_kernel_bind_qp(p.ctx, 0x2000, p.qp[0], NULL, &number), ENOENT);
	assert_int_equal(roost_kernel_unbind_qp(p.ctx, 0x1000, 2), ENOENT);
	lay_out(&j, &p, 3);
	j.p.rkey ^= 0x100;
	assert_int_equal(roost_kernel_run(p.ctx, &j.a, NULL, 0, &r), 0);
	assert_int_equal(r.status, ROOST_RPC_OK);
	assert_int_equal(j.told.rounds, 0);
	assert_int_equal(j.told.status, ROOST_QP_REM_ACCESS);
	lay_out(&j, &p, 3);
	assert_int_equal(roost_kernel_run(p.ctx, &j.a, NULL, 0, &r), 0);
	assert_int_equal(j.told.status, ROOST_QP_STATE);
	assert_int_equal(roost_kernel_unbind_qp(p.ctx, 0x1000, 1), 0);
	assert_int_equal(roost_kernel_run(p.ctx, &j.a, NULL, 0, &r), 0);
	assert_int_equal(j.told.status, ROOST_QP_NONE);
	close_bound(&p);
}

/* Queue pairs are destroyed while operations are in flight. The kernel gets an error and ends. */
static void the_qp_is_destroyed(void **state)
{
	for (unsigned i = 0; i < 8; i++) {
		struct roost_result r;
		struct roost_run *run;
		struct pair p;
		struct job j;

		open_bound(&p);
		lay_out(&j, &p, UINT32_MAX);
		run = roost_run_start(p.ctx, &j.a, NULL, 0);
		assert_non_null(run);
		for (unsigned k = 0; k < i; k++)
			assert_int_equal(roost_run_poll(run, &r), EAGAIN);
		assert_int_equal(roost_run_wait(run, 1, &r), ETIMEDOUT);
		assert_int_equal(ibv_destroy_qp(p.qp[0]), 0);
		p.qp[0] = NULL;
		assert_int_equal(roost_run_wait(run, 0, &r), 0);
		roost_run_end(run);
		assert_int_equal(r.status, ROOST_RPC_OK);
		assert_true(j.told.status == ROOST_QP_FLUSHED || j.told.status == ROOST_QP_NONE);
		close_bound(&p);
	}
}

/* The program gives up runs. The kernel stays in use until the NIC no longer uses its memory. */
static void given_up(void **state)
{
	for (unsigned i = 0; i < 8; i++) {
		struct roost_run *run;
		struct pair p;
		struct job j;
		int ret;

		open_bound(&p);
		lay_out(&j, &p, UINT32_MAX);
		run = roost_run_start(p.ctx, &j.a, NULL, 0);
		assert_non_null(run);
		for (unsigned k = 0; k < i; k++)
			settle(p.cq[0]);
		roost_run_end(run);
		do {
			settle(p.cq[0]);
			ret = roost_kernel_undeploy(p.ctx, 0x1000);
		} while (ret == EBUSY);
		assert_int_equal(ret, 0);
		pair_close(&p);
	}
}

/* A forked child has no NIC, so its runs do not proceed. The verbs report that. */
static void in_a_child(void **state)
{
	struct roost_result r;
	struct roost_run *run;
	struct pair p;
	struct job j;
	int status;
	pid_t pid;

	open_bound(&p);
	lay_out(&j, &p, UINT32_MAX);
	threads_settle();
	run = roost_run_start(p.ctx, &j.a, NULL, 0);
	assert_non_null(run);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(TIMEOUT_S);
		if (roost_run_wait(run, 0, &r) != ENOTCONN || roost_run_poll(run, &r) != ENOTCONN)
			_exit(1);
		roost_run_end(run);
		_exit(roost_kernel_run(p.ctx, &j.a, NULL, 0, &r) == ENOTCONN ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(ibv_destroy_qp(p.qp[0]), 0);
	p.qp[0] = NULL;
	assert_int_equal(roost_run_wait(run, 0, &r), 0);
	roost_run_end(run);
	close_bound(&p);
}

static void *run_some(void *arg)
{
	struct pair *p = arg;

	for (unsigned i = 0; i < 20; i++) {
		struct roost_result r;
		struct job j;

		lay_out(&j, p, 5);
		j.p.addr += LEN;
		if (roost_kernel_run(p->ctx, &j.a, NULL, 0, &r) || r.status || j.told.rounds != 5)
			return NULL;
	}
	return arg;
}

/* Several threads drive the run. This thread posts and replaces the kernel. */
static void many_threads(void **state)
{
	static struct roost_kernel versions[4];
	pthread_t thread[3];
	struct pair p;
	void *ok;

	open_bound(&p);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, run_some, &p), 0);
	for (unsigned i = 0; i < 4; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = write_wr(&p, &sge, i, 100);

		versions[i] = turner;
		versions[i].version = 2 + i;
		assert_int_equal(roost_kernel_redeploy(p.ctx, &versions[i], NULL), 0);
		assert_int_equal(post_one(p.qp[0], &wr), 0);
		wait_good(p.cq[0]);
	}
	for (unsigned i = 0; i < 3; i++) {
		pthread_join(thread[i], &ok);
		assert_non_null(ok);
	}
	close_bound(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(posts_work_requests), cmocka_unit_test(learns_of_errors),
		cmocka_unit_test(the_qp_is_destroyed), cmocka_unit_test(given_up),
		cmocka_unit_test(in_a_child),	       cmocka_unit_test(many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
