/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer process is killed during traffic. The connection must end within seconds, although its
 * time-outs are minutes, with the completions and events that programs expect. Only a failure
 * reaches the limits of the waits.
 */
#include "side.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static uint8_t buf[4096];

static void victim(int in, int out)
{
	static struct side s;

	choose_port(true);
	side_open(&s, buf, sizeof(buf), IBV_ACCESS_REMOTE_WRITE, in, out);
	for (;;)
		pause();
}

static void killed_in_the_middle(void **state)
{
	static struct side s;
	struct ibv_sge sge = {(uintptr_t)buf, 64, 0};
	struct ibv_recv_wr recv = {.wr_id = 1000, .sg_list = &sge, .num_sge = 1}, *bad;
	int there[2], back[2], status;
	struct ibv_wc wc;
	uint64_t id;
	pid_t pid;

	assert_int_equal(pipe(there), 0);
	assert_int_equal(pipe(back), 0);
	pid = fork();
	if (pid == 0) {
		alarm(4 * TIMEOUT_S);
		victim(there[0], back[1]);
	}
	side_open(&s, buf, sizeof(buf), IBV_ACCESS_REMOTE_WRITE, back[0], there[1]);
	sge.lkey = s.mr->lkey;
	assert_int_equal(ibv_post_recv(s.qp, &recv, &bad), 0);
	/* Some operations have completed, some are under way, and more will be posted. */
	for (id = 0; id < 100; id++) {
		assert_int_equal(side_post(&s, IBV_WR_RDMA_WRITE, id, buf, 1024, 0), 0);
		wc = side_wc(&s);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, id);
	}
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	for (; id < 103; id++)
		assert_int_equal(side_post(&s, IBV_WR_RDMA_WRITE, id, buf, 1024, 0), 0);
	wc = side_wc(&s);
	assert_int_equal(wc.wr_id, 100);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	for (int left = 3; left > 0; left--) {
		wc = side_wc(&s);
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_true(wc.wr_id == 101 || wc.wr_id == 102 || wc.wr_id == 1000);
	}
	side_close(&s);
	for (int i = 0; i < 2; i++) {
		close(there[i]);
		close(back[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_in_the_middle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
