/* SPDX-License-Identifier: BSD-2-Clause */
#include "fixture.h"
#include "../common/network.h"
#include "roost/verbs.h"
#include "verbs/objects.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

static const char *kind(void)
{
	const char *k = getenv("VERBS_TEST_PORT");

	return k ? k : "udp";
}

bool network_ready(void)
{
	if (!getenv("VERBS_TEST_V6") || strcmp(kind(), "shm") == 0 ||
	    network_tunnel("10.78.0.1", "fd78::1", 9000) >= 0)
		return true;
	fprintf(stderr, "SKIPPED: no network namespace with a device of IPv6\n");
	return false;
}

void choose_port(bool again)
{
	const char *options = getenv("VERBS_TEST_OPTIONS"), *shared = getenv("VERBS_TEST_ADDRESS");
	unsigned pid = (unsigned)getpid();
	char addr[32], spec[128];

	if (shared) {
		snprintf(addr, sizeof(addr), "%s", shared);
	} else if (getenv("VERBS_TEST_V6")) {
		snprintf(addr, sizeof(addr), "fd78::1:%x:%x", pid >> 16, pid & 0xffff);
		if (strcmp(kind(), "shm") != 0)
			network_add6("tun0", addr); /* fails if the address is there already */
	} else {
		snprintf(addr, sizeof(addr), "127.%u.%u.%u", 64 + (pid >> 16 & 63), pid >> 8 & 255,
			 pid & 255);
	}
	snprintf(spec, sizeof(spec), "%s:%s%s", kind(), addr, options ? options : "");
	setenv("ROOST_PORT", spec, again);
}

struct ibv_context *open_device(void)
{
	struct ibv_device **list;
	struct ibv_context *ctx;
	int n = 0;

	choose_port(false);
	list = ibv_get_device_list(&n);
	assert_non_null(list);
	assert_int_equal(n, 1);
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	assert_non_null(ctx);
	return ctx;
}

static struct ibv_qp *make_qp(struct pair *p, int side, const struct pair_options *o)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = p->cq[side],
		.recv_cq = p->cq[side],
		.cap = o->cap,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = o->sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = p->pd,
	};

	if (o->send_ops) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = o->send_ops;
	}
	return ibv_create_qp_ex(p->ctx, &attr);
}

void pair_open(struct pair *p, const struct pair_options *o)
{
	static const struct pair_options plain = {
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.cqe = 64,
	};
	int i;

	if (!o)
		o = &plain;
	memset(p, 0, sizeof(*p));
	p->ctx = open_device();
	p->pd = ibv_alloc_pd(p->ctx);
	assert_non_null(p->pd);
	p->channel = ibv_create_comp_channel(p->ctx);
	assert_non_null(p->channel);
	for (i = 0; i < 2; i++) {
		p->cq[i] = ibv_create_cq(p->ctx, o->cqe ? o->cqe : 64, p, p->channel,
					 i % p->ctx->num_comp_vectors);
		assert_non_null(p->cq[i]);
		p->buf[i] = calloc(1, BUF_SIZE);
		assert_non_null(p->buf[i]);
		p->mr[i] = ibv_reg_mr(p->pd, p->buf[i], BUF_SIZE,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
		assert_non_null(p->mr[i]);
		p->qp[i] = make_qp(p, i, o);
		assert_non_null(p->qp[i]);
	}
	if (o->leave_reset)
		return;
	for (i = 0; i < 2; i++) {
		assert_int_equal(to_init(p, i), 0);
		assert_int_equal(to_rtr(p, i), 0);
	}
	for (i = 0; i < 2; i++)
		assert_int_equal(to_rts(p, i), 0);
}

void pair_open_rpc(struct pair *p)
{
	static const struct pair_options o = {
		.cap = {.max_send_wr = 64,
			.max_recv_wr = 16,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 64},
		.cqe = 256,
		.leave_reset = true,
	};

	pair_open(p, &o);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(roost_qp_enable_rpc(p->qp[i]), 0);
		assert_int_equal(to_init(p, i), 0);
		assert_int_equal(to_rtr(p, i), 0);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(to_rts(p, i), 0);
}

void pair_close(struct pair *p)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (p->qp[i])
			assert_int_equal(ibv_destroy_qp(p->qp[i]), 0);
		if (p->mr[i])
			assert_int_equal(ibv_dereg_mr(p->mr[i]), 0);
		free(p->buf[i]);
	}
	for (i = 0; i < 2; i++)
		if (p->cq[i])
			assert_int_equal(ibv_destroy_cq(p->cq[i]), 0);
	assert_int_equal(ibv_destroy_comp_channel(p->channel), 0);
	assert_int_equal(ibv_dealloc_pd(p->pd), 0);
	assert_int_equal(ibv_close_device(p->ctx), 0);
}

int to_init(struct pair *p, int side)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};

	return ibv_modify_qp(p->qp[side], &a,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int to_rtr(struct pair *p, int side)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = p->qp[!side]->qp_num,
		.rq_psn = 100 + p->psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}},
	};

	if (ibv_query_gid(p->ctx, 1, 0, &a.ah_attr.grh.dgid))
		return errno;
	return ibv_modify_qp(p->qp[side], &a,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

int to_rts(struct pair *p, int side)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = 100 + p->psn,
		.max_rd_atomic = 4,
	};

	return ibv_modify_qp(p->qp[side], &a,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

struct ibv_send_wr write_wr(const struct pair *p, struct ibv_sge *sge, uint64_t wr_id, uint32_t n)
{
	*sge = (struct ibv_sge){.addr = (uintptr_t)p->buf[0], .length = n, .lkey = p->mr[0]->lkey};
	return (struct ibv_send_wr){
		.wr_id = wr_id,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)p->buf[1], .rkey = p->mr[1]->rkey},
	};
}

int post_one(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int ret = ibv_post_send(qp, wr, &bad);

	if (ret)
		assert_ptr_equal(bad, wr);
	return ret;
}

int post_recv_one(struct pair *p, int side, uint64_t wr_id, uint32_t n)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)p->buf[side], .length = n, .lkey = p->mr[side]->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
	int ret = ibv_post_recv(p->qp[side], &wr, &bad);

	if (ret)
		assert_ptr_equal(bad, &wr);
	return ret;
}

void wait_wcs(struct ibv_cq *cq, struct ibv_wc *wc, int n)
{
	time_t end = time(NULL) + TIMEOUT_S;
	int got = 0, ret;

	while (got < n) {
		ret = ibv_poll_cq(cq, n - got, wc + got);
		assert_true(ret >= 0);
		got += ret;
		if (time(NULL) > end)
			fail_msg("%d of %d completions after %d seconds", got, n, TIMEOUT_S);
	}
}

struct ibv_wc wait_good(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	wait_wcs(cq, &wc, 1);
	if (wc.status != IBV_WC_SUCCESS)
		fail_msg("completion %lu: %s", (unsigned long)wc.wr_id,
			 ibv_wc_status_str(wc.status));
	return wc;
}

void wait_pending(struct ibv_cq *cq, uint32_t n)
{
	struct verbs_cq *c = (struct verbs_cq *)cq;
	time_t until = time(NULL) + TIMEOUT_S;

	while (atomic_load_explicit(&c->index->prod, memory_order_acquire) - c->cons < n) {
		assert_int_equal(ibv_poll_cq(cq, 0, NULL), 0);
		assert_true(time(NULL) < until);
	}
}

void settle(struct ibv_cq *cq)
{
	struct timespec nap = {.tv_nsec = 1000000};
	int i;

	for (i = 0; i < 100; i++) {
		assert_int_equal(ibv_poll_cq(cq, 0, NULL), 0);
		if (i % 25 == 0)
			nanosleep(&nap, NULL);
	}
}

void cancel_call(void *(*call)(void *), void *arg)
{
	void *result = NULL;
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, call, arg), 0);
	assert_int_equal(pthread_cancel(t), 0);
	assert_int_equal(pthread_join(t, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
}
