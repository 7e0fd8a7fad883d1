/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chains: programs made of work requests (docs/chains.md). A queue pair that is set up for chains
 * may wait for completions (WAIT) and let the NIC take the WQEs of managed queues (ENABLE). The
 * thread rules are those of nic.h.
 */
#ifndef ROOST_NIC_NIC_CHAIN_H
#define ROOST_NIC_NIC_CHAIN_H

#include "nic/nic.h"

/* The limits of a managed send queue. */
struct nic_chain_limit {
	uint32_t rate_limit; /* WQEs per second; 0: no limit */
	/* WQEs that the NIC may take at once after a pause; 0: NIC_CHAIN_BURST */
	uint32_t rate_burst;
	uint32_t turn_limit; /* WQEs per turn of the PU; 0: NIC_CHAIN_TURN */
};
#define NIC_CHAIN_BURST 64
/*
 * About the number of WQEs that all managed queues of a PU take in a turn; each has an equal share.
 */
#define NIC_CHAIN_TURN 512

struct nic_chain_attr {
	/*
	 * The NIC takes a WQE of a managed queue only when an ENABLE covers it, and takes one at a
	 * time. Once the whole ring has been posted, the NIC takes its WQEs again from the start of
	 * the ring.
	 */
	bool managed_send, managed_recv;
	/* The CQs that a WAIT may name by their index; NULL: the index names none. */
	struct nic_cq *watch[ROOST_CHAIN_WATCHES];
	/*
	 * This CQ gets a completion for each WQE of the managed send queue, signaled or not, but
	 * not for flushed ones: `imm` is the op-code, `wqe` the index. If the CQ overruns, the
	 * queue pair ends. NULL: none.
	 */
	struct nic_cq *audit;
	struct nic_chain_limit limit;
};

/*
 * Sets a queue pair up for chains. May be called once. Returns 0, or
 *  -EINVAL      not in RESET or INIT; managed_recv without a receive queue of its own;
 *               limits or an audit without managed_send; an audit CQ that counts only
 *  -EOPNOTSUPP  not RC
 *  -EBUSY       already set up, or a hook sees its outgoing messages
 *  -ENOMEM
 *
 * [control+owner of all PUs]
 */
int nic_qp_set_chain(struct nic *nic, struct nic_qp *qp, const struct nic_chain_attr *attr);
/* Returns true if the QP is set up for chains. [control] */
bool nic_qp_has_chain(const struct nic_qp *qp);
/*
 * Changes the limits of a managed send queue, in any state. The burst is full at first. Returns 0,
 * or -EINVAL if the QP has no managed send queue. [owner]
 */
int nic_qp_limit_chain(struct nic_qp *qp, const struct nic_chain_limit *limit, uint64_t now);
/*
 * Takes all queue pairs of a protection domain that are set up for chains to the error state,
 * except those in RESET. Returns their number. [control+owner of all PUs]
 */
unsigned nic_pd_stop_chains(struct nic *nic, uint32_t pd);

/*
 * Enables calculations on a connection to another host. They use a private op-code, so both ends
 * must enable it before RTR; a reset disables it. Returns 0; -EOPNOTSUPP: not RC; -EINVAL: not in
 * RESET or INIT. [owner]
 */
int nic_qp_set_calc(struct nic_qp *qp);
/* Returns true if calculations are enabled. [any] */
bool nic_qp_has_calc(const struct nic_qp *qp);
/* Returns true if calculations are enabled, or the peer is a QP of the same PU. [any] */
bool nic_qp_may_calc(const struct nic_qp *qp);

/* The first WQE of the queue pair that failed. */
struct nic_chain_failure {
	enum nic_wc_status status;
	uint32_t index; /* index of the WQE in its queue */
	struct roost_wqe wqe;
};
/*
 * Stores the first failure since the last reset in *out. Returns false if no WQE has failed.
 * [owner]
 */
bool nic_qp_chain_failure(const struct nic_qp *qp, struct nic_chain_failure *out);

/*
 * A callback for debuggers. The NIC calls executed() when a WQE of a loop-back queue pair has been
 * executed, before its completion. The function may take any time; the PU runs nothing else
 * meanwhile.
 */
struct nic_chain_trace {
	void (*executed)(void *ctx, struct nic_qp *qp, uint32_t index, const struct roost_wqe *wqe);
	void *ctx;
};
/* Sets the callback of a queue pair that is set up for chains; NULL: none. [owner] */
void nic_qp_trace_chain(struct nic_qp *qp, const struct nic_chain_trace *trace);

enum nic_chain_activity {
	NIC_CHAIN_RUNS,	   /* the queue has WQEs to execute */
	NIC_CHAIN_IDLE,	   /* no WQE is posted and enabled */
	NIC_CHAIN_WAITS,   /* the queue is in a WAIT */
	NIC_CHAIN_LIMITED, /* the queue has used its share of the turn, or its rate */
	NIC_CHAIN_NO_RECV, /* the queue waits for a receive of its peer */
	NIC_CHAIN_FAILED,
};

struct nic_chain_state {
	uint32_t qpn;
	uint32_t executed; /* WQEs since the last reset, modulo 2^32 */
	enum nic_chain_activity activity;
	bool managed;
};
/* Stores the state of a QP that is set up for chains. [owner] */
void nic_qp_chain_state(const struct nic_qp *qp, struct nic_chain_state *out);
/*
 * Stores the states of the queue pairs of a PU that are set up for chains: at most `max` of them,
 * namely those that have executed the most WQEs. Returns the number of such queue pairs.
 * [control+owner]
 */
unsigned nic_chain_states(const struct nic *nic, unsigned pu, struct nic_chain_state *out,
			  unsigned max);

#endif
