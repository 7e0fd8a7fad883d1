/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork() with the device open, as servers do. The child has no NIC. It closes the inherited objects
 * and opens its own NIC. The parent's NIC continues undisturbed.
 */
#include "../common/threads_settle.h"
#include "fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void one_write(struct pair *p, uint8_t value)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	memset(p->buf[0], value, 100);
	wr = write_wr(p, &sge, value, 100);
	assert_int_equal(post_one(p->qp[0], &wr), 0);
	assert_int_equal(wait_good(p->cq[0]).wr_id, value);
	assert_memory_equal(p->buf[0], p->buf[1], 100);
}

/* Runs in the child. A failed assertion ends the child with a status other than 0. */
static int in_child(struct ibv_context *inherited)
{
	struct pair p;

	if (ibv_close_device(inherited))
		return 2;
	choose_port(true);
	pair_open(&p, NULL);
	one_write(&p, 7);
	pair_close(&p);
	return 0;
}

static void fork_with_an_open_device(void **state)
{
	struct pair p;
	int i, status;
	pid_t pid;

	pair_open(&p, NULL);
	one_write(&p, 1);
	for (i = 0; i < 3; i++) {
		threads_settle();
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			_exit(in_child(p.ctx));
		one_write(&p, (uint8_t)(10 + i));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
		one_write(&p, (uint8_t)(20 + i));
	}
	pair_close(&p);
}

/* The engine closes with its last context and opens again. */
static void open_and_close_again(void **state)
{
	struct pair p;
	int i;

	for (i = 0; i < 5; i++) {
		pair_open(&p, NULL);
		one_write(&p, (uint8_t)i);
		pair_close(&p);
	}
}

/* Other programs come and go until they are killed. Each change reaches the pool of this one. */
static void come_and_go(void)
{
	struct pair p;

	alarm(TIMEOUT_S);
	choose_port(true);
	for (;;) {
		pair_open(&p, NULL);
		pair_close(&p);
	}
}

static void forks_while_others_come_and_go(void **state)
{
	pid_t others[2], pid;
	struct pair p;
	int status;

	for (unsigned i = 0; i < 2; i++) {
		others[i] = fork();
		assert_true(others[i] >= 0);
		if (!others[i])
			come_and_go();
	}
	pair_open(&p, NULL);
	for (unsigned i = 0; i < 100; i++) {
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			_exit(0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	one_write(&p, 1);
	pair_close(&p);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(kill(others[i], SIGKILL), 0);
		assert_int_equal(waitpid(others[i], NULL, 0), others[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fork_with_an_open_device),
		cmocka_unit_test(open_and_close_again),
		cmocka_unit_test(forks_while_others_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
