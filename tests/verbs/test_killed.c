/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer process is killed during traffic. The connection must end within seconds, although its
 * time-outs are minutes, with the completions and events that programs expect. Only a failure
 * reaches the limits of the waits.
 */
#include "../common/child.h"
#include "side.h"

#include <signal.h>
#include <sys/prctl.h>
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

/* A peer process, and the pipes to it. */
struct peer {
	pid_t pid;
	int there[2], back[2];
};

static void start_peer(struct peer *p)
{
	assert_int_equal(pipe(p->there), 0);
	assert_int_equal(pipe(p->back), 0);
	p->pid = fork();
	if (p->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* SIGALRM does not end a stopped process */
		alarm(4 * TIMEOUT_S);
		victim(p->there[0], p->back[1]);
	}
}

static void connect_peer(struct peer *p, struct side *s)
{
	side_open(s, buf, sizeof(buf), IBV_ACCESS_REMOTE_WRITE, p->back[0], p->there[1]);
}

static void kill_peer(const struct peer *p)
{
	int status;

	kill(p->pid, SIGKILL);
	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
}

static void close_pipes(const struct peer *p)
{
	for (int i = 0; i < 2; i++) {
		close(p->there[i]);
		close(p->back[i]);
	}
}

static void killed_in_the_middle(void **state)
{
	static struct side s;
	struct ibv_sge sge = {(uintptr_t)buf, 64, 0};
	struct ibv_recv_wr recv = {.wr_id = 1000, .sg_list = &sge, .num_sge = 1}, *bad;
	struct peer peer;
	struct ibv_wc wc;
	uint64_t id;

	start_peer(&peer);
	connect_peer(&peer, &s);
	sge.lkey = s.mr->lkey;
	assert_int_equal(ibv_post_recv(s.qp, &recv, &bad), 0);
	/* Some operations have completed, some are under way, and more will be posted. */
	for (id = 0; id < 100; id++) {
		assert_int_equal(side_post(&s, IBV_WR_RDMA_WRITE, id, buf, 1024, 0), 0);
		wc = side_wc(&s);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, id);
	}
	kill_peer(&peer);
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
	close_pipes(&peer);
}

/*
 * Of two programs at one address, one is stopped and the other is killed. Only the connection to
 * the killed one ends.
 */
static void stopped_beside_a_killed_one(void **state)
{
	static struct side stopped, killed;
	struct peer a, b;
	struct ibv_wc wc;

	if (!getenv("VERBS_TEST_ADDRESS"))
		skip();
	start_peer(&a);
	start_peer(&b);
	connect_peer(&a, &stopped);
	connect_peer(&b, &killed);
	for (int i = 0; i < 2; i++) {
		struct side *s = i ? &killed : &stopped;

		assert_int_equal(side_post(s, IBV_WR_RDMA_WRITE, 1, buf, 1024, 0), 0);
		assert_int_equal(side_wc(s).status, IBV_WC_SUCCESS);
	}
	child_stop(a.pid);
	kill_peer(&b);
	assert_int_equal(side_post(&stopped, IBV_WR_RDMA_WRITE, 2, buf, 1024, 0), 0);
	assert_int_equal(side_post(&killed, IBV_WR_RDMA_WRITE, 2, buf, 1024, 0), 0);
	assert_int_equal(side_wc(&killed).status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(ibv_poll_cq(stopped.cq, 1, &wc), 0);
	kill(a.pid, SIGCONT);
	assert_int_equal(side_wc(&stopped).status, IBV_WC_SUCCESS);
	kill_peer(&a);
	side_close(&stopped);
	side_close(&killed);
	close_pipes(&a);
	close_pipes(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_in_the_middle),
		cmocka_unit_test(stopped_beside_a_killed_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
