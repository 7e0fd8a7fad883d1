/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA in less than 200 lines, with the standard verbs only. One process writes into the memory of
 * another, which polls its memory until the bytes appear.
 *
 *	cc -o hello hello.c -libverbs
 *	roost run -- ./hello
 *
 * The program does not depend on Roost. It runs unchanged on an RDMA NIC if GID index 0 of port 1
 * is a RoCE v2 address.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define MESSAGE "hello from another process"

/*
 * The two sides exchange these values before they connect their QPs. They may use any channel; here
 * it is a socket pair.
 */
struct card {
	union ibv_gid gid;
	uint32_t qpn, rkey;
	uint64_t addr;
};

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char memory[64];
};

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void open_side(struct side *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	must(list && list[0], "no RDMA device");
	s->ctx = ibv_open_device(list[0]);
	must(s->ctx != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	s->pd = ibv_alloc_pd(s->ctx);
	must(s->pd != NULL, "ibv_alloc_pd");
	s->cq = ibv_create_cq(s->ctx, 4, NULL, NULL, 0);
	must(s->cq != NULL, "ibv_create_cq");
	init.send_cq = init.recv_cq = s->cq;
	s->qp = ibv_create_qp(s->pd, &init);
	must(s->qp != NULL, "ibv_create_qp");
	s->mr = ibv_reg_mr(s->pd, s->memory, sizeof(s->memory),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(s->mr != NULL, "ibv_reg_mr");
	must(ibv_modify_qp(s->qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
		     0,
	     "INIT");
}

/*
 * Exchanges cards and changes the QP to "ready to send". Both sides start with PSN 0; real programs
 * use random PSNs.
 */
static struct card meet(struct side *s, int fd)
{
	struct card mine = {.qpn = s->qp->qp_num,
			    .rkey = s->mr->rkey,
			    .addr = (uintptr_t)s->memory},
		    peer;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}}};

	must(ibv_query_gid(s->ctx, 1, 0, &mine.gid) == 0, "ibv_query_gid");
	must(write(fd, &mine, sizeof(mine)) == sizeof(mine) &&
		     read(fd, &peer, sizeof(peer)) == sizeof(peer),
	     "exchange");
	attr.dest_qp_num = peer.qpn;
	attr.ah_attr.grh.dgid = peer.gid;
	must(ibv_modify_qp(s->qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				   IBV_QP_MIN_RNR_TIMER) == 0,
	     "RTR");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1};
	must(ibv_modify_qp(s->qp, &attr,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
	     "RTS");
	/* Neither side writes before both QPs are ready. */
	must(write(fd, "r", 1) == 1 && read(fd, &mine, 1) == 1, "exchange");
	return peer;
}

static void writer(int fd)
{
	struct side s = {0};
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	struct card peer;
	struct ibv_wc wc;
	int n;

	open_side(&s);
	peer = meet(&s, fd);
	strcpy(s.memory, MESSAGE);
	sge = (struct ibv_sge){(uintptr_t)s.memory, sizeof(MESSAGE), s.mr->lkey};
	wr.wr.rdma.remote_addr = peer.addr;
	wr.wr.rdma.rkey = peer.rkey;
	must(ibv_post_send(s.qp, &wr, &bad) == 0, "ibv_post_send");
	while ((n = ibv_poll_cq(s.cq, 1, &wc)) == 0)
		;
	must(n == 1, "ibv_poll_cq");
	printf("writer: %s\n", ibv_wc_status_str(wc.status));
	if (wc.status != IBV_WC_SUCCESS)
		exit(1);
}

static void waiter(int fd)
{
	struct side s = {0};
	int gone = 0;
	char byte;

	open_side(&s);
	meet(&s, fd);
	/*
	 * The last byte arrives last. The acquire load orders the following reads after it on any
	 * processor. When the writer has ended, there is no more to wait for.
	 */
	while (__atomic_load_n(&s.memory[sizeof(MESSAGE) - 2], __ATOMIC_ACQUIRE) == 0) {
		if (gone) {
			fprintf(stderr, "waiter: the writer has ended\n");
			exit(1);
		}
		gone = recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
	}
	printf("waiter: %s\n", s.memory);
}

int main(void)
{
	int sv[2], status = 0;
	pid_t child;

	must(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0, "socketpair");
	child = fork();
	must(child >= 0, "fork");
	close(sv[child != 0]); /* the other side's: reads end when that side has ended */
	if (child == 0) {
		waiter(sv[1]);
		return 0;
	}
	writer(sv[0]);
	wait(&status);
	return status != 0;
}
