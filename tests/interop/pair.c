// SPDX-License-Identifier: BSD-2-Clause
/*
 * Two ends of a reliable connection, each on a stack of its own. They check every byte and length
 * of every operation, and the errors of operations that must fail, which perftest does not check.
 * The program uses only the standard verbs: the same binary runs on the Linux kernel's stack in the
 * guest, and on the drop-in library here.
 *
 *	pair [-d DEVICE] [-x GID INDEX] [-m PATH MTU] [-p TCP PORT] TEST [SERVER]
 *
 * Both ends run the same TEST. The end without SERVER's address waits for the other one. Each end
 * checks the data that it receives. They connect over TCP (IPv4), and take turns by a byte on it.
 * The exit status is 0 if all checks passed.
 */
#include <arpa/inet.h>
#include "pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { COMPLETION_LIMIT_S = 60 }; // emulation is slow; a missing completion is a failure

void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "pair: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(1);
}

// ---- the two ends connect

void tell(struct pair *p)
{
	if (write(p->tcp, "!", 1) != 1)
		die("the other end is gone");
}

void await(struct pair *p)
{
	char c;

	if (read(p->tcp, &c, 1) != 1)
		die("the other end gave up");
}

static void meet(struct pair *p, const char *server, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (s < 0)
		die("socket: %s", strerror(errno));
	if (server) {
		if (inet_pton(AF_INET, server, &a.sin_addr) != 1)
			die("%s: no IPv4 address", server);
		if (connect(s, (struct sockaddr *)&a, sizeof(a)))
			die("connect: %s", strerror(errno));
		p->tcp = s;
		return;
	}
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(s, (struct sockaddr *)&a, sizeof(a)) || listen(s, 1))
		die("listen: %s", strerror(errno));
	p->tcp = accept(s, NULL, NULL);
	if (p->tcp < 0)
		die("accept: %s", strerror(errno));
	close(s);
}

// Both ends have the same byte order: the struct is sent as it is.
static void exchange(struct pair *p, const struct end *own)
{
	if (write(p->tcp, own, sizeof(*own)) != sizeof(*own) ||
	    recv(p->tcp, &p->peer, sizeof(p->peer), MSG_WAITALL) != sizeof(p->peer))
		die("the other end went away before it said who it is");
}

// ---- verbs

static void post_recv(struct pair *p, int k, uint32_t size)
{
	struct ibv_sge sge = {(uintptr_t)p->mem + RECV + (size_t)k * SLOT, size, p->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = (uint64_t)k, .sg_list = &sge, .num_sge = 1};
	int e = ibv_post_recv(p->qp, &wr, &bad);

	if (e)
		die("post_recv: %s", strerror(e));
}

void post_recvs(struct pair *p, uint32_t size)
{
	for (int k = 0; k < RECVS; k++)
		post_recv(p, k, size);
}

struct ibv_wc completion(struct pair *p, const char *what)
{
	time_t until = time(NULL) + COMPLETION_LIMIT_S;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(p->cq, 1, &wc)) == 0) {
		if (time(NULL) > until)
			die("%s: no completion in %d s", what, COMPLETION_LIMIT_S);
		usleep(100);
	}
	if (n < 0)
		die("poll_cq: %s", strerror(-n));
	return wc;
}

struct ibv_wc do_wr(struct pair *p, const char *what, struct ibv_send_wr wr, size_t at,
		    uint32_t size)
{
	struct ibv_sge sge = {(uintptr_t)p->mem + at, size, p->mr->lkey};
	struct ibv_send_wr *bad;
	int e;

	wr.sg_list = &sge;
	wr.num_sge = size ? 1 : 0;
	wr.send_flags = IBV_SEND_SIGNALED;
	e = ibv_post_send(p->qp, &wr, &bad);
	if (e)
		die("%s: post_send: %s", what, strerror(e));
	return completion(p, what);
}

static void open_device(struct pair *p, const char *name, int access)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {64, 64, 1, 1, 0}};
	int k = 0;

	for (; list && list[k] && name && strcmp(ibv_get_device_name(list[k]), name); k++)
		;
	if (!list || !list[k])
		die("no device %s", name ? name : "at all");
	p->ctx = ibv_open_device(list[k]);
	p->pd = p->ctx ? ibv_alloc_pd(p->ctx) : NULL;
	if (!p->pd || posix_memalign((void **)&p->mem, 4096, MEMORY))
		die("open_device: %s", strerror(errno));
	memset(p->mem, 0, MEMORY);
	p->mr = ibv_reg_mr(p->pd, p->mem, MEMORY, IBV_ACCESS_LOCAL_WRITE | access);
	p->cq = ibv_create_cq(p->ctx, 128, NULL, NULL, 0);
	if (!p->mr || !p->cq)
		die("reg_mr, create_cq: %s", strerror(errno));
	init.send_cq = init.recv_cq = p->cq;
	p->qp = ibv_create_qp(p->pd, &init);
	if (!p->qp)
		die("create_qp: %s", strerror(errno));
	ibv_free_device_list(list);
}

static void to_init(struct pair *p, int access)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)access};
	int e = ibv_modify_qp(p->qp, &a,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	if (e)
		die("to INIT: %s", strerror(e));
}

// The time-out is 67 ms, or four times that. The retries are six: to the Linux kernel's rxe, seven
// means no limit (rxe_comp.c).
static void to_rts(struct pair *p, uint32_t psn)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
				.dest_qp_num = p->peer.qpn,
				.rq_psn = p->peer.psn,
				.max_dest_rd_atomic = 4,
				.min_rnr_timer = 14, // 1.28 ms
				.ah_attr = {.is_global = 1,
					    .port_num = 1,
					    .grh = {.dgid = p->peer.gid,
						    .sgid_index = (uint8_t)p->gid_index,
						    .hop_limit = 64}}};
	int e;

	for (a.path_mtu = IBV_MTU_256; 128u << a.path_mtu < p->mtu; a.path_mtu++)
		;
	e = ibv_modify_qp(p->qp, &a,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (e)
		die("to RTR: %s", strerror(e));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				 .timeout = 14,
				 .retry_cnt = 6,
				 .rnr_retry = p->test->rnr_retry,
				 .sq_psn = psn,
				 .max_rd_atomic = 4};
	e = ibv_modify_qp(p->qp, &a,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	if (e)
		die("to RTS: %s", strerror(e));
}

int main(int argc, char **argv)
{
	struct pair p = {.mtu = 1024};
	const char *device = NULL, *server;
	uint16_t port = 18515;
	struct end own = {0};
	int o;

	while ((o = getopt(argc, argv, "d:x:m:p:")) > 0) {
		switch (o) {
		case 'd':
			device = optarg;
			break;
		case 'x':
			p.gid_index = atoi(optarg);
			break;
		case 'm':
			p.mtu = (uint32_t)atoi(optarg);
			break;
		case 'p':
			port = (uint16_t)atoi(optarg);
			break;
		default:
			die("what is -%c?", o);
		}
	}
	p.test = find_test(argv[optind]);
	server = argv[optind + 1];

	// The memory region has the rights of the test, and the QP has all rights, so that the
	// region refuses.
	open_device(&p, device, p.test->access);
	fill(&p, server);
	to_init(&p, ALL);
	if (!server && p.test->recv_size)
		post_recvs(&p, p.test->recv_size);

	own = (struct end){
		p.qp->qp_num, 0xfffff0, p.mr->rkey, (uintptr_t)p.mem, {{0}}}; // PSNs wrap soon
	if (ibv_query_gid(p.ctx, 1, p.gid_index, &own.gid))
		die("no GID %d", p.gid_index);
	meet(&p, server, port);
	exchange(&p, &own);
	to_rts(&p, own.psn);
	tell(&p);
	await(&p);

	if (server)
		p.test->client(&p);
	else
		p.test->server(&p);
	// An end leaves after the other end has its last completion, because the last ACK comes
	// from its QP.
	tell(&p);
	await(&p);
	printf("pair: %s: as it should be\n", p.test->name);
	return 0;
}
