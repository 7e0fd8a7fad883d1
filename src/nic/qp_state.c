/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state machine of a queue pair: the required and optional attributes of each transition.
 * Sources: InfiniBand Architecture Specification, volume 1, 10.3.1 (states) and 11.2.5.2 (table of
 * attributes of a modification); for each service the Linux kernel
 * (drivers/infiniband/core/verbs.c, qp_state_table).
 *
 *   RESET -> INIT -> RTR -> RTS <-> SQD      any -> RESET, any -> ERR      SQE -> RTS (not for RC)
 */
#include "nic/core.h"

#define STATES (NIC_QPS_ERR + 1)

struct rule {
	bool allowed;
	uint32_t required, optional;
};

/* Optional attributes of a modification in RTS or to RTS. */
#define RC_RTS_OPTIONAL                                                                            \
	(NIC_QPA_CUR_STATE | NIC_QPA_ACCESS_FLAGS | NIC_QPA_MIN_RNR_TIMER | NIC_QPA_ALT_PATH |     \
	 NIC_QPA_PATH_MIG_STATE)
#define UC_RTS_OPTIONAL                                                                            \
	(NIC_QPA_CUR_STATE | NIC_QPA_ACCESS_FLAGS | NIC_QPA_ALT_PATH | NIC_QPA_PATH_MIG_STATE)

static const struct rule rc_rules[STATES][STATES] = {
	[NIC_QPS_RESET] =
		{
			[NIC_QPS_INIT] = {true,
					  NIC_QPA_PKEY_INDEX | NIC_QPA_PORT | NIC_QPA_ACCESS_FLAGS,
					  0},
		},
	[NIC_QPS_INIT] =
		{
			[NIC_QPS_INIT] = {true, 0,
					  NIC_QPA_PKEY_INDEX | NIC_QPA_PORT | NIC_QPA_ACCESS_FLAGS},
			[NIC_QPS_RTR] = {true,
					 NIC_QPA_AV | NIC_QPA_PATH_MTU | NIC_QPA_DEST_QPN |
						 NIC_QPA_RQ_PSN | NIC_QPA_MAX_DEST_RD_ATOMIC |
						 NIC_QPA_MIN_RNR_TIMER,
					 NIC_QPA_ALT_PATH | NIC_QPA_ACCESS_FLAGS |
						 NIC_QPA_PKEY_INDEX},
		},
	[NIC_QPS_RTR] =
		{
			[NIC_QPS_RTS] = {true,
					 NIC_QPA_TIMEOUT | NIC_QPA_RETRY_CNT | NIC_QPA_RNR_RETRY |
						 NIC_QPA_SQ_PSN | NIC_QPA_MAX_QP_RD_ATOMIC,
					 RC_RTS_OPTIONAL},
		},
	[NIC_QPS_RTS] =
		{
			[NIC_QPS_RTS] = {true, 0, RC_RTS_OPTIONAL},
			[NIC_QPS_SQD] = {true, 0, NIC_QPA_EN_SQD_ASYNC_NOTIFY},
		},
	[NIC_QPS_SQD] =
		{
			[NIC_QPS_RTS] = {true, 0, RC_RTS_OPTIONAL},
			[NIC_QPS_SQD] = {true, 0,
					 NIC_QPA_PORT | NIC_QPA_AV | NIC_QPA_TIMEOUT |
						 NIC_QPA_RETRY_CNT | NIC_QPA_RNR_RETRY |
						 NIC_QPA_MAX_QP_RD_ATOMIC |
						 NIC_QPA_MAX_DEST_RD_ATOMIC | NIC_QPA_ALT_PATH |
						 NIC_QPA_ACCESS_FLAGS | NIC_QPA_PKEY_INDEX |
						 NIC_QPA_MIN_RNR_TIMER | NIC_QPA_PATH_MIG_STATE},
		},
};

/* The rules of RC without the attributes of retransmission and READs. */
static const struct rule uc_rules[STATES][STATES] = {
	[NIC_QPS_RESET] =
		{
			[NIC_QPS_INIT] = {true,
					  NIC_QPA_PKEY_INDEX | NIC_QPA_PORT | NIC_QPA_ACCESS_FLAGS,
					  0},
		},
	[NIC_QPS_INIT] =
		{
			[NIC_QPS_INIT] = {true, 0,
					  NIC_QPA_PKEY_INDEX | NIC_QPA_PORT | NIC_QPA_ACCESS_FLAGS},
			[NIC_QPS_RTR] = {true,
					 NIC_QPA_AV | NIC_QPA_PATH_MTU | NIC_QPA_DEST_QPN |
						 NIC_QPA_RQ_PSN,
					 NIC_QPA_ALT_PATH | NIC_QPA_ACCESS_FLAGS |
						 NIC_QPA_PKEY_INDEX},
		},
	[NIC_QPS_RTR] = {[NIC_QPS_RTS] = {true, NIC_QPA_SQ_PSN, UC_RTS_OPTIONAL}},
	[NIC_QPS_RTS] =
		{
			[NIC_QPS_RTS] = {true, 0, UC_RTS_OPTIONAL},
			[NIC_QPS_SQD] = {true, 0, NIC_QPA_EN_SQD_ASYNC_NOTIFY},
		},
	[NIC_QPS_SQD] =
		{
			[NIC_QPS_RTS] = {true, 0, UC_RTS_OPTIONAL},
			[NIC_QPS_SQD] = {true, 0,
					 NIC_QPA_AV | NIC_QPA_ALT_PATH | NIC_QPA_ACCESS_FLAGS |
						 NIC_QPA_PKEY_INDEX | NIC_QPA_PATH_MIG_STATE},
		},
	[NIC_QPS_SQE] = {[NIC_QPS_RTS] = {true, 0, NIC_QPA_CUR_STATE | NIC_QPA_ACCESS_FLAGS}},
};

#define UD_RTS_OPTIONAL (NIC_QPA_CUR_STATE | NIC_QPA_QKEY)

/* UD has no peer, and needs the Q_Key. */
static const struct rule ud_rules[STATES][STATES] = {
	[NIC_QPS_RESET] = {[NIC_QPS_INIT] = {true, NIC_QPA_PKEY_INDEX | NIC_QPA_PORT | NIC_QPA_QKEY,
					     0}},
	[NIC_QPS_INIT] =
		{
			[NIC_QPS_INIT] = {true, 0,
					  NIC_QPA_PKEY_INDEX | NIC_QPA_PORT | NIC_QPA_QKEY},
			[NIC_QPS_RTR] = {true, 0, NIC_QPA_PKEY_INDEX | NIC_QPA_QKEY},
		},
	[NIC_QPS_RTR] = {[NIC_QPS_RTS] = {true, NIC_QPA_SQ_PSN, UD_RTS_OPTIONAL}},
	[NIC_QPS_RTS] =
		{
			[NIC_QPS_RTS] = {true, 0, UD_RTS_OPTIONAL},
			[NIC_QPS_SQD] = {true, 0, NIC_QPA_EN_SQD_ASYNC_NOTIFY},
		},
	[NIC_QPS_SQD] =
		{
			[NIC_QPS_RTS] = {true, 0, UD_RTS_OPTIONAL},
			[NIC_QPS_SQD] = {true, 0, NIC_QPA_PKEY_INDEX | NIC_QPA_QKEY},
		},
	[NIC_QPS_SQE] = {[NIC_QPS_RTS] = {true, 0, UD_RTS_OPTIONAL}},
};

static const struct rule *rule_of(const struct nic_qp *qp, enum nic_qp_state from,
				  enum nic_qp_state to)
{
	switch ((enum nic_qp_type)qp->type) {
	case NIC_QPT_UC:
		return &uc_rules[from][to];
	case NIC_QPT_UD:
		return &ud_rules[from][to];
	default:
		return &rc_rules[from][to];
	}
}

/*
 * The MTU of the port is the limit, or that of the way to this peer, which a query has returned if
 * the QP was connected to it before. Programs state the queried values again.
 */
static bool mtu_ok(const struct nic_qp *qp, const struct nic_qp_attr *a, uint32_t mask,
		   unsigned port_index)
{
	struct port *port = qp->pu->ports[port_index].port;
	uint32_t dqpn = mask & NIC_QPA_DEST_QPN ? a->dest_qpn : qp->dest_qpn;

	if (a->path_mtu < 256 || a->path_mtu & (a->path_mtu - 1))
		return false;
	return a->path_mtu <= port->mtu ||
	       (mask & NIC_QPA_AV && a->path_mtu <= port_qp_mtu(port, &a->dgid, dqpn, port->mtu));
}

static bool values_ok(const struct nic_qp *qp, const struct nic_qp_attr *a, uint32_t mask)
{
	const struct nic *nic = qp->nic;
	uint8_t port_num = mask & NIC_QPA_PORT ? a->port : qp->attr.port;
	struct nic_gid gid = {.port = qp->port};

	if (mask & NIC_QPA_PORT && (a->port < 1 || a->port > nic_port_nums(nic)))
		return false;
	if (mask & NIC_QPA_PKEY_INDEX && a->pkey_index != 0)
		return false;
	if (mask & NIC_QPA_AV && !nic_gid(nic, port_num, a->sgid_index, &gid))
		return false;
	if (mask & NIC_QPA_PATH_MTU && !mtu_ok(qp, a, mask, gid.port))
		return false;
	if (mask & NIC_QPA_DEST_QPN && a->dest_qpn > PKT_QPN_MASK)
		return false;
	if (mask & NIC_QPA_TIMEOUT && a->timeout > 31)
		return false;
	if ((mask & NIC_QPA_RETRY_CNT && a->retry_cnt > 7) ||
	    (mask & NIC_QPA_RNR_RETRY && a->rnr_retry > 7))
		return false;
	if (mask & NIC_QPA_MIN_RNR_TIMER && a->min_rnr_timer > 31)
		return false;
	if ((mask & NIC_QPA_MAX_QP_RD_ATOMIC && a->max_rd_atomic > NIC_MAX_RD_ATOMIC) ||
	    (mask & NIC_QPA_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > NIC_MAX_RD_ATOMIC))
		return false;
	/* In SQD the limit may be reduced while READs are outstanding. */
	return !(mask & NIC_QPA_MAX_QP_RD_ATOMIC) || qp->sq.rd_out <= a->max_rd_atomic;
}

int qp_check_modify(const struct nic_qp *qp, const struct nic_qp_attr *a, uint32_t mask)
{
	enum nic_qp_state from = qp->state;
	enum nic_qp_state to = mask & NIC_QPA_STATE ? a->state : from;
	const struct rule *rule;

	if (mask & NIC_QPA_CUR_STATE && a->cur_state != from)
		return -EINVAL;
	if (to < NIC_QPS_RESET || to >= STATES)
		return -EINVAL;
	mask &= ~(uint32_t)NIC_QPA_STATE;
	if (to == NIC_QPS_RESET || to == NIC_QPS_ERR)
		return mask & ~(uint32_t)NIC_QPA_CUR_STATE ? -EINVAL : 0;
	rule = rule_of(qp, from, to);
	if (!rule->allowed || (mask & rule->required) != rule->required ||
	    mask & ~(rule->required | rule->optional))
		return -EINVAL;
	/* Alternate paths (automatic path migration) are not supported. */
	if (mask & (NIC_QPA_ALT_PATH | NIC_QPA_PATH_MIG_STATE))
		return -EINVAL;
	return values_ok(qp, a, mask) ? 0 : -EINVAL;
}
