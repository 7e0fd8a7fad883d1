/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs and memory of one job.
 *
 * The memory is one mapping: tx, then rx. Each QP has a span of both. As in perftest, messages
 * below 4 KiB step through their span line by line, so that they do not all access the same line;
 * larger messages use the span from its start.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/mem.h"
#include "cli/perf/perf.h"
#include "roost/verbs.h"

/*
 * 1 s: losses are found in ms without this timer, and a busy machine may stop for more than 67 ms
 */
#define QP_TIMEOUT	18
#define QP_RETRIES	7
#define QP_RNR_TIMER	1 /* 10 us */
#define HUGE_PAGE	(2u << 20)
#define UD_RECVS	4    /* receives for each send */
#define SERVE_OOB_EVERY 4096 /* polls between checks of the oob, which are system calls */

int perf_fail(struct perf_link *l, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(l->err, sizeof(l->err), fmt, ap);
	va_end(ap);
	return rc;
}

int perf_wc_failed(struct perf_link *l, const struct ibv_wc *wc)
{
	return perf_fail(l, -EIO, "QP 0x%06x: %s", wc->qp_num, ibv_wc_status_str(wc->status));
}

static uint64_t round_up(uint64_t v, uint64_t to)
{
	return (v + to - 1) / to * to;
}

/*
 * The memory is not reserved, so mmap() accepts more than the machine has. A client, which a server
 * does not know, must not make it fill all memory.
 */
static bool memory_fits(uint64_t bytes)
{
	return bytes <= mem_allowed() / 4 * 3;
}

static int map_memory(struct perf_link *l)
{
	uint64_t half;
	void *p;

	if (l->job.mode == PERF_CHECK) {
		half = perf_check_memory(&l->job);
	} else if (l->job.op == PERF_RPC) {
		half = perf_rpc_memory(&l->job);
	} else {
		l->span = round_up(l->job.size < 4096 ? 4096 : l->job.size, 4096);
		if (l->job.transport == PERF_UD)
			l->span += 4096; /* space for the header in front */
		if (l->span < l->job.memory)
			l->span = round_up(l->job.memory, 4096);
		half = l->span * l->num_qps;
	}
	half = round_up(half, HUGE_PAGE);
	if (!memory_fits(2 * half))
		return perf_fail(
			l, -ENOMEM,
			"%llu MiB of buffers, and this machine has %llu MiB: take a smaller --size or --qps",
			(unsigned long long)(half >> 19),
			(unsigned long long)(mem_allowed() >> 20));
	l->mem_len = 2 * half;
	p = mmap(NULL, l->mem_len + HUGE_PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return perf_fail(
			l, -ENOMEM,
			"no memory for %llu MiB of buffers: take a smaller --size or --qps",
			(unsigned long long)(l->mem_len >> 20));
	l->mem = p;
	l->mem_len += HUGE_PAGE;
	l->tx = (uint8_t *)round_up((uintptr_t)p, HUGE_PAGE);
	l->rx = l->tx + half;
	madvise(l->tx, 2 * half, MADV_HUGEPAGE); /* fewer TLB misses; errors are harmless */
	if (l->span) {
		memset(l->tx, 0x5a, l->span * l->num_qps);
		memset(l->rx, 0, l->span * l->num_qps);
	}
	l->mr = ibv_reg_mr(l->nic->pd, l->tx, 2 * half,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	if (!l->mr)
		return perf_fail(l, -errno, "can't register memory: %s", strerror(errno));
	return 0;
}

/*
 * Returns a random first PSN for the first QP. Those of the others follow at equal distances: a
 * reader of a capture (`roost pcap`) finds the requests of a response by their PSNs.
 */
static uint32_t choose_psn(const struct perf_link *l, uint32_t qp)
{
	uint32_t psn = l->qps[0].psn;

	if (qp)
		psn += qp * (0x1000000 / l->num_qps);
	else if (getrandom(&psn, sizeof(psn), 0) != sizeof(psn))
		psn = (uint32_t)clock_ns();
	return psn & 0xffffff;
}

static int create_qp(struct perf_link *l, struct perf_qp *q)
{
	bool check = l->job.mode == PERF_CHECK;
	struct ibv_qp_init_attr init = {
		.send_cq = l->cq,
		.recv_cq = l->cq,
		.qp_type = l->job.transport == PERF_UD ? IBV_QPT_UD : IBV_QPT_RC,
		.cap = {.max_send_wr = (uint32_t)l->job.depth *
				       (l->job.op == PERF_RPC ? 2 : 1), /* with payload */
			.max_recv_wr = l->recv_depth,
			.max_send_sge = check ? 4 : 1,
			.max_recv_sge = check ? 4 : 1,
			.max_inline_data = (uint32_t)l->job.inline_max},
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	int rc;

	q->qp = ibv_create_qp(l->nic->pd, &init);
	if (!q->qp)
		return perf_fail(l, -errno, "can't create a QP: %s", strerror(errno));
	q->psn = choose_psn(l, (uint32_t)(q - l->qps));
	if (l->job.transport == PERF_UD)
		return perf_ud_init(l, q);
	if (l->job.op == PERF_RPC)
		roost_qp_enable_rpc(q->qp);
	rc = ibv_modify_qp(q->qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (rc != 0)
		return perf_fail(l, -EIO, "QP to INIT: %s", strerror(rc < 0 ? errno : rc));
	return 0;
}

/* Builds the receives for SENDs: any message fits in the span of the QP. */
static int make_recvs(struct perf_link *l)
{
	uint32_t len = (uint32_t)l->job.size + (l->job.transport == PERF_UD ? PERF_GRH : 0);

	l->recv_batch = l->recv_depth < 64 ? (l->recv_depth + 1) / 2 : 32;
	l->recv_wr = calloc((size_t)l->num_qps * l->recv_batch, sizeof(*l->recv_wr));
	l->recv_sge = calloc(l->num_qps, sizeof(*l->recv_sge));
	if (!l->recv_wr || !l->recv_sge)
		return perf_fail(l, -ENOMEM, "out of memory");
	for (unsigned q = 0; q < l->num_qps; q++) {
		l->recv_sge[q] =
			(struct ibv_sge){(uintptr_t)(l->rx + q * l->span), len, l->mr->lkey};
		for (unsigned i = 0; i < l->recv_batch; i++) {
			struct ibv_recv_wr *wr = &l->recv_wr[q * l->recv_batch + i];

			wr->wr_id = PERF_RECV_TAG | q;
			wr->sg_list = &l->recv_sge[q];
			wr->num_sge = len ? 1 : 0;
			wr->next = i + 1 < l->recv_batch ? wr + 1 : NULL;
		}
	}
	return 0;
}

static int create_objects(struct perf_link *l)
{
	uint64_t cqes;

	/* A wave is signaled once, at its end. The queue holds at least two waves. */
	l->wave = (uint32_t)(l->job.mode == PERF_BANDWIDTH ? l->job.cq_mod : 1);
	l->recv_depth =
		l->job.op == PERF_SEND || l->job.mode == PERF_CHECK ? (uint32_t)l->job.depth : 1;
	/* No flow control limits a sender of datagrams. */
	if (l->job.transport == PERF_UD && l->recv_depth <= l->nic->max_wr / UD_RECVS)
		l->recv_depth *= UD_RECVS;
	cqes = l->num_qps * (l->job.depth + l->recv_depth);
	if (l->job.depth > l->nic->max_wr)
		return perf_fail(
			l, -EINVAL,
			"the device's queues hold %u work requests: take a smaller --depth",
			l->nic->max_wr);
	if (l->job.events) {
		l->channel = ibv_create_comp_channel(l->nic->ctx);
		if (!l->channel)
			return perf_fail(l, -errno, "can't create a completion channel: %s",
					 strerror(errno));
	}
	l->cq = ibv_create_cq(l->nic->ctx, (int)cqes, NULL, l->channel, 0);
	if (!l->cq)
		return perf_fail(l, -errno, "can't create a CQ of %llu entries: %s",
				 (unsigned long long)cqes, strerror(errno));
	for (unsigned i = 0; i < l->num_qps; i++) {
		int rc = create_qp(l, &l->qps[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

int perf_link_create(struct perf_link *l, struct perf_nic *nic, const struct perf_job *job,
		     struct oob *oob)
{
	int rc;

	memset(l, 0, sizeof(*l));
	l->nic = nic;
	l->job = *job;
	l->oob = oob;
	l->num_qps = (unsigned)job->qps;
	l->qps = calloc(l->num_qps, sizeof(*l->qps));
	if (!l->qps)
		return perf_fail(l, -ENOMEM, "out of memory");
	rc = map_memory(l);
	if (rc == 0)
		rc = create_objects(l);
	if (rc == 0)
		rc = make_recvs(l);
	return rc;
}

void perf_link_destroy(struct perf_link *l)
{
	for (unsigned i = 0; l->qps && i < l->num_qps; i++) {
		if (l->qps[i].qp)
			ibv_destroy_qp(l->qps[i].qp);
		if (l->qps[i].ah)
			ibv_destroy_ah(l->qps[i].ah);
	}
	perf_rpc_close(l);
	if (l->unacked_events)
		ibv_ack_cq_events(l->cq, (unsigned)l->unacked_events);
	if (l->cq)
		ibv_destroy_cq(l->cq);
	if (l->channel)
		ibv_destroy_comp_channel(l->channel);
	if (l->mr)
		ibv_dereg_mr(l->mr);
	if (l->mem)
		munmap(l->mem, l->mem_len);
	free(l->recv_wr);
	free(l->recv_sge);
	free(l->qps);
	l->qps = NULL;
}

json_t *perf_link_describe(const struct perf_link *l)
{
	json_t *msg = json_object(), *qps = json_array();

	for (unsigned i = 0; i < l->num_qps; i++)
		json_array_append_new(
			qps, json_pack("[i,i]", (int)l->qps[i].qp->qp_num, (int)l->qps[i].psn));
	json_object_set_new(msg, "type", json_string("link"));
	json_object_set_new(msg, "qps", qps);
	json_object_set_new(msg, "gid", json_string(l->nic->address));
	json_object_set_new(msg, "tx", json_integer((json_int_t)(uintptr_t)l->tx));
	json_object_set_new(msg, "rx", json_integer((json_int_t)(uintptr_t)l->rx));
	json_object_set_new(msg, "rkey", json_integer(l->mr->rkey));
	json_object_set_new(msg, "mtu", json_integer(l->nic->mtu));
	json_object_set_new(msg, "rd_atomic", json_integer(l->nic->max_rd_atomic));
	return msg;
}

static int connect_qp(struct perf_link *l, struct perf_qp *q, uint32_t dqpn, uint32_t dpsn,
		      const struct ibv_qp_attr *base)
{
	struct ibv_qp_attr attr = *base;
	int rc;

	if (l->job.transport == PERF_UD)
		return perf_ud_connect(l, q, dqpn, &base->ah_attr);
	attr.qp_state = IBV_QPS_RTR;
	attr.dest_qp_num = dqpn;
	attr.rq_psn = dpsn;
	rc = ibv_modify_qp(q->qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				   IBV_QP_MIN_RNR_TIMER);
	if (rc < 0)
		rc = errno;
	if (rc != 0)
		return perf_fail(l, -EIO,
				 "can't reach the other side (QP to RTR): %s%s (see roost doctor)",
				 strerror(rc),
				 rc == ENETUNREACH
					 ? "; bring up the interface to it, as in ip link set lo up"
					 : "");
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = q->psn;
	rc = ibv_modify_qp(q->qp, &attr,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	if (rc != 0)
		return perf_fail(l, -EIO, "QP to RTS: %s", strerror(rc < 0 ? errno : rc));
	return 0;
}

/* Gets the MTU of the connections. It is larger than that of the ports between host ports. */
static void take_mtu(struct perf_link *l)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (l->job.transport != PERF_UD && l->num_qps &&
	    ibv_query_qp(l->qps[0].qp, &attr, IBV_QP_PATH_MTU, &init) == 0)
		l->job.mtu = 128u << attr.path_mtu;
}

/* Converts an address from text to a GID: IPv6, or IPv4, which is mapped. */
static bool parse_gid(const char *s, union ibv_gid *gid)
{
	char mapped[80];

	if (!s)
		return false;
	if (inet_pton(AF_INET6, s, gid->raw) == 1)
		return true;
	snprintf(mapped, sizeof(mapped), "::ffff:%.64s", s);
	return inet_pton(AF_INET6, mapped, gid->raw) == 1;
}

int perf_link_connect(struct perf_link *l, struct oob *check, const json_t *peer)
{
	struct ibv_qp_attr base = {
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}},
		.max_dest_rd_atomic = (uint8_t)l->nic->max_rd_atomic,
		.min_rnr_timer = QP_RNR_TIMER,
		.timeout = QP_TIMEOUT,
		.retry_cnt = QP_RETRIES,
		.rnr_retry = 7,
	};
	const json_t *qps = json_object_get(peer, "qps");
	uint64_t rkey, mtu, rd;

	if (!oob_get_u64(check, peer, "tx", INT64_MAX, &l->remote_tx) ||
	    !oob_get_u64(check, peer, "rx", INT64_MAX, &l->remote_rx) ||
	    !oob_get_u64(check, peer, "rkey", UINT32_MAX, &rkey) ||
	    !oob_get_u64(check, peer, "mtu", 4096, &mtu) ||
	    !oob_get_u64(check, peer, "rd_atomic", 255, &rd))
		return perf_fail(l, -EPROTO, "%s", check->err);
	if (!parse_gid(json_string_value(json_object_get(peer, "gid")), &base.ah_attr.grh.dgid) ||
	    json_array_size(qps) != l->num_qps)
		return perf_fail(l, -EPROTO, "the other side's 'link' is invalid");
	l->remote_rkey = (uint32_t)rkey;
	mtu = mtu < l->nic->mtu ? mtu : l->nic->mtu;
	if (l->job.mtu > mtu)
		return perf_fail(l, -EINVAL, "--mtu %u does not fit the ports, which carry %u",
				 (unsigned)l->job.mtu, (unsigned)mtu);
	base.path_mtu = perf_mtu_code(l->job.mtu ? l->job.mtu : mtu);
	if (!base.path_mtu)
		return perf_fail(l, -EPROTO, "the other side's 'mtu' is no path MTU");
	if (l->job.transport == PERF_UD && l->job.size > 128u << base.path_mtu)
		return perf_fail(l, -EINVAL, "a datagram is one packet: the ports carry --size %u",
				 128u << base.path_mtu);
	base.max_rd_atomic = (uint8_t)(rd < l->nic->max_rd_atomic ? rd : l->nic->max_rd_atomic);
	l->job.mtu = 128u << base.path_mtu;
	for (unsigned i = 0; i < l->num_qps; i++) {
		const json_t *pair = json_array_get(qps, i), *n = json_array_get(pair, 0),
			     *psn = json_array_get(pair, 1);
		int rc;

		if (!json_is_integer(n) || !json_is_integer(psn) || json_integer_value(n) >> 24 ||
		    json_integer_value(psn) >> 24)
			return perf_fail(l, -EPROTO, "the other side's 'qps' is invalid");
		rc = connect_qp(l, &l->qps[i], (uint32_t)json_integer_value(n),
				(uint32_t)json_integer_value(psn), &base);
		if (rc < 0)
			return rc;
	}
	take_mtu(l);
	return 0;
}

static int post_recv_batch(struct perf_link *l, unsigned q)
{
	struct ibv_recv_wr *bad;
	int rc = ibv_post_recv(l->qps[q].qp, &l->recv_wr[q * l->recv_batch], &bad);

	return rc == 0 ? 0
		       : perf_fail(l, -EIO, "can't post a receive: %s",
				   strerror(rc < 0 ? errno : rc));
}

int perf_link_fill_recvs(struct perf_link *l)
{
	if (l->job.op != PERF_SEND || l->job.mode == PERF_CHECK)
		return 0;
	for (unsigned q = 0; q < l->num_qps; q++) {
		for (uint32_t n = 0; n + l->recv_batch <= l->recv_depth; n += l->recv_batch) {
			int rc = post_recv_batch(l, q);

			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

int perf_reap(struct perf_link *l)
{
	struct ibv_wc wc[PERF_POLL];
	int n;

	if (l->calls)
		return perf_rpc_reap(l);
	n = ibv_poll_cq(l->cq, PERF_POLL, wc);

	if (n < 0)
		return perf_fail(l, -EIO, "the completion queue failed (overrun)");
	for (int i = 0; i < n; i++) {
		struct perf_qp *q = &l->qps[wc[i].wr_id & ~PERF_RECV_TAG];

		if (wc[i].status != IBV_WC_SUCCESS)
			return perf_wc_failed(l, &wc[i]);
		if (!(wc[i].wr_id & PERF_RECV_TAG)) {
			q->completed += l->wave;
			continue;
		}
		l->recvs++;
		if (++q->recv_used == l->recv_batch) {
			q->recv_used = 0;
			if (post_recv_batch(l, (unsigned)(q - l->qps)) < 0)
				return -EIO;
		}
	}
	return n;
}

int perf_arm(struct perf_link *l)
{
	return ibv_req_notify_cq(l->cq, 0) == 0
		       ? 0
		       : perf_fail(l, -EIO, "can't arm the completion queue");
}

static int take_event(struct perf_link *l)
{
	struct ibv_cq *cq;
	void *ctx;

	if (ibv_get_cq_event(l->channel, &cq, &ctx) != 0)
		return errno == EAGAIN || errno == EINTR
			       ? 0
			       : perf_fail(l, -EIO, "waiting for an event: %s", strerror(errno));
	/*
	 * Acknowledging takes a lock, so events are acknowledged in batches, as the man page of
	 * ibv_ack_cq_events recommends.
	 */
	if (++l->unacked_events == 1024) {
		ibv_ack_cq_events(l->cq, 1024);
		l->unacked_events = 0;
	}
	return 0;
}

int perf_wait(struct perf_link *l, bool or_oob)
{
	struct pollfd pfd[2] = {{.fd = l->channel->fd, .events = POLLIN}, {.events = POLLIN}};

	if (!or_oob)
		return take_event(l);
	pfd[1].fd = l->oob->fd;
	if (poll(pfd, 2, -1) > 0 && (pfd[0].revents & POLLIN))
		return take_event(l);
	return oob_ready(l->oob);
}

int perf_sleep(struct perf_link *l, bool or_oob)
{
	int rc = perf_arm(l), n;

	if (rc < 0)
		return rc;
	n = perf_reap(l);
	return n != 0 ? (n < 0 ? n : 0) : perf_wait(l, or_oob);
}

static int serve_sleeping(struct perf_link *l)
{
	int rc;

	for (;;) {
		rc = perf_sleep(l, true);
		if (rc != 0)
			return rc < 0 ? rc : 0;
		rc = perf_reap(l);
		if (rc < 0)
			return rc;
	}
}

int perf_serve(struct perf_link *l)
{
	unsigned polls = 0;
	int rc;

	if (l->job.passive)
		return 0; /* the next reader of the oob sleeps there */
	if (l->job.events)
		return serve_sleeping(l);
	for (;;) {
		rc = perf_reap(l);
		if (rc < 0)
			return rc;
		if (++polls % SERVE_OOB_EVERY == 0 && oob_ready(l->oob))
			return 0;
	}
}
