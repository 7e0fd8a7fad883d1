/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer process is killed during traffic. The connection must end within seconds, although its
 * time-outs are minutes, with the completions and events that programs expect. Only a failure
 * reaches the limits of the waits.
 */
#include "fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT 20 /* 4.3 seconds, eight times with growing intervals: two minutes */

/* The connection data that the two processes exchange. */
struct name {
	union ibv_gid gid;
	uint32_t qpn;
	uint64_t addr;
	uint32_t rkey;
};

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct name peer;
	uint8_t buf[4096];
};

static void tell(int fd, const struct name *n)
{
	assert_int_equal(write(fd, n, sizeof(*n)), sizeof(*n));
}

static void hear(int fd, struct name *n)
{
	assert_int_equal(read(fd, n, sizeof(*n)), sizeof(*n));
}

static void bring_up(struct side *s, int in, int out)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 64, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
				.port_num = 1,
				.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct name own;

	s->ctx = open_device();
	s->pd = ibv_alloc_pd(s->ctx);
	s->cq = ibv_create_cq(s->ctx, 256, NULL, NULL, 0);
	s->mr = ibv_reg_mr(s->pd, s->buf, sizeof(s->buf),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	init.send_cq = init.recv_cq = s->cq;
	s->qp = ibv_create_qp(s->pd, &init);
	assert_non_null(s->qp);
	assert_int_equal(
		ibv_modify_qp(s->qp, &a,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	own = (struct name){.qpn = s->qp->qp_num, .addr = (uintptr_t)s->buf, .rkey = s->mr->rkey};
	assert_int_equal(ibv_query_gid(s->ctx, 1, 0, &own.gid), 0);
	tell(out, &own);
	hear(in, &s->peer);
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = s->peer.qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.hop_limit = 64, .dgid = s->peer.gid}},
	};
	assert_int_equal(ibv_modify_qp(s->qp, &a,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				 .timeout = TIMEOUT,
				 .retry_cnt = 7,
				 .rnr_retry = 7,
				 .max_rd_atomic = 1};
	assert_int_equal(ibv_modify_qp(s->qp, &a,
				       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					       IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
	tell(out, &own); /* both are ready before any packet is sent */
	hear(in, &s->peer);
}

static void victim(int in, int out)
{
	static struct side s;

	choose_port(true);
	bring_up(&s, in, out);
	for (;;)
		pause();
}

static int post_write(struct side *s, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)s->buf, 1024, s->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE},
			   *bad;

	wr.wr.rdma.remote_addr = s->peer.addr;
	wr.wr.rdma.rkey = s->peer.rkey;
	return ibv_post_send(s->qp, &wr, &bad);
}

static struct ibv_wc next_wc(struct side *s)
{
	time_t until = time(NULL) + TIMEOUT_S;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(s->cq, 1, &wc)) == 0)
		if (time(NULL) > until)
			fail_msg("nothing in %d seconds", TIMEOUT_S);
	assert_int_equal(n, 1);
	return wc;
}

static void killed_in_the_middle(void **state)
{
	static struct side s;
	struct ibv_sge sge = {(uintptr_t)s.buf, 64, 0};
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
	bring_up(&s, back[0], there[1]);
	sge.lkey = s.mr->lkey;
	assert_int_equal(ibv_post_recv(s.qp, &recv, &bad), 0);
	/* Some operations have completed, some are under way, and more will be posted. */
	for (id = 0; id < 100; id++) {
		assert_int_equal(post_write(&s, id), 0);
		wc = next_wc(&s);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, id);
	}
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	for (; id < 103; id++)
		assert_int_equal(post_write(&s, id), 0);
	wc = next_wc(&s);
	assert_int_equal(wc.wr_id, 100);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	for (int left = 3; left > 0; left--) {
		wc = next_wc(&s);
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_true(wc.wr_id == 101 || wc.wr_id == 102 || wc.wr_id == 1000);
	}
	assert_int_equal(ibv_destroy_qp(s.qp), 0);
	assert_int_equal(ibv_dereg_mr(s.mr), 0);
	assert_int_equal(ibv_destroy_cq(s.cq), 0);
	assert_int_equal(ibv_dealloc_pd(s.pd), 0);
	assert_int_equal(ibv_close_device(s.ctx), 0);
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
