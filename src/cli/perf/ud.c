/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable datagrams (--transport ud): queue pairs without a connection, and counts at both ends,
 * since datagrams may be lost.
 */
#include <errno.h>
#include <string.h>

#include "cli/perf/perf.h"

#define QKEY	 0x526f6f73u
#define QUIET_NS UINT64_C(100000000) /* messages that have not arrived after this time are lost */

static int modify(struct perf_link *l, struct perf_qp *q, struct ibv_qp_attr *attr, int mask,
		  const char *what)
{
	int rc = ibv_modify_qp(q->qp, attr, IBV_QP_STATE | mask);

	return rc == 0 ? 0
		       : perf_fail(l, -EIO, "QP to %s: %s", what, strerror(rc < 0 ? errno : rc));
}

int perf_ud_init(struct perf_link *l, struct perf_qp *q)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};

	return modify(l, q, &attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, "INIT");
}

int perf_ud_connect(struct perf_link *l, struct perf_qp *q, uint32_t dqpn,
		    const struct ibv_ah_attr *to)
{
	struct ibv_ah_attr addr = *to;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int rc = modify(l, q, &attr, 0, "RTR");

	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = q->psn;
	if (rc == 0)
		rc = modify(l, q, &attr, IBV_QP_SQ_PSN, "RTS");
	if (rc < 0)
		return rc;
	q->dqpn = dqpn;
	q->ah = ibv_create_ah(l->nic->pd, &addr);
	return q->ah ? 0 : perf_fail(l, -EIO, "can't reach the other side: %s", strerror(errno));
}

void perf_ud_address(const struct perf_qp *q, struct ibv_send_wr *wr)
{
	wr->wr.ud.ah = q->ah;
	wr->wr.ud.remote_qpn = q->dqpn;
	wr->wr.ud.remote_qkey = QKEY;
}

int perf_ud_drain(struct perf_link *l, uint64_t sent)
{
	uint64_t last = clock_ns(), quiet = QUIET_NS * oob_timeout_scale();
	int n;

	while (l->recvs < sent && clock_ns() - last < quiet) {
		n = perf_reap(l);
		if (n < 0)
			return n;
		if (n > 0)
			last = clock_ns();
	}
	return 0;
}
