/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chains: programs made of work requests (docs/chains.md). A queue pair that is set up for them may
 * wait for completions (WAIT) and let the NIC take the WQEs of managed queues (ENABLE). The thread
 * rules are those of nic.h.
 */
#ifndef ROOST_NIC_NIC_CHAIN_H
#define ROOST_NIC_NIC_CHAIN_H

#include "nic/nic.h"

/* Of a managed send queue. */
struct nic_chain_limit {
	uint32_t rate_limit; /* WQEs per second; 0: no limit */
	uint32_t rate_burst; /* WQEs that may go at once after a pause; 0: NIC_CHAIN_BURST */
	uint32_t turn_limit; /* WQEs per turn of the PU; 0: NIC_CHAIN_TURN */
};
#define NIC_CHAIN_BURST 64
/* WQEs that all managed queues of a PU take in a turn, about; each has an equal share. */
#define NIC_CHAIN_TURN 512

struct nic_chain_attr {
	/*
	 * The NIC takes a WQE of a managed queue only when an ENABLE covers it, and one at a time.
	 * It takes them again, from the start of the ring, once the whole ring has been posted.
	 */
	bool managed_send, managed_recv;
	/* The CQs that a WAIT may name; NULL: none at this index. */
	struct nic_cq *watch[ROOST_CHAIN_WATCHES];
	/*
	 * Gets a completion for each WQE of the managed send queue, signaled or not, but for
	 * flushed ones:
	 * `imm` is the op-code, `wqe` the index. If it overruns, the queue pair ends. NULL: none.
	 */
	struct nic_cq *audit;
	struct nic_chain_limit limit;
};

/*
 * Sets a queue pair up for chains, once. 0, or
 *  -EINVAL      not in RESET or INIT; managed_recv without a receive queue of its own;
 *               limits or an audit without managed_send; an audit CQ that counts only
 *  -EOPNOTSUPP  not RC
 *  -EBUSY       already set up, or a hook sees its outgoing messages
 *  -ENOMEM
 * [control+owner of all PUs]
 */
int nic_qp_set_chain(struct nic *nic, struct nic_qp *qp, const struct nic_chain_attr *attr);
bool nic_qp_has_chain(const struct nic_qp *qp); /* [control] */
/*
 * Changes the limits of a managed send queue, in any state. The burst is full at first. 0, or
 * -EINVAL: no managed send queue. [owner]
 */
int nic_qp_limit_chain(struct nic_qp *qp, const struct nic_chain_limit *limit, uint64_t now);
/*
 * Takes all queue pairs of a protection domain that are set up for chains to the error state, but
 * for those in RESET. Returns their number. [control+owner of all PUs]
 */
unsigned nic_pd_stop_chains(struct nic *nic, uint32_t pd);

/*
 * Calculations on a connection to another host use a private op-code: both ends enable it before
 * RTR; a reset disables it. 0; -EOPNOTSUPP: not RC; -EINVAL: not in RESET or INIT. [owner]
 */
int nic_qp_set_calc(struct nic_qp *qp);
bool nic_qp_has_calc(const struct nic_qp *qp);
bool nic_qp_may_calc(const struct nic_qp *qp); /* enabled, or connected to this PU. [any] */

/* The first WQE of the queue pair that failed. */
struct nic_chain_failure {
	enum nic_wc_status status;
	uint32_t index; /* of the WQE in its queue */
	struct roost_wqe wqe;
};
/* False: none failed since the last reset. [owner] */
bool nic_qp_chain_failure(const struct nic_qp *qp, struct nic_chain_failure *out);

/*
 * Called when a WQE of a loop-back queue pair has been executed, before its completion. For
 * debuggers: the callback may take any time, and the PU stands still meanwhile. NULL: none.
 * [owner]
 */
struct nic_chain_trace {
	void (*executed)(void *ctx, struct nic_qp *qp, uint32_t index, const struct roost_wqe *wqe);
	void *ctx;
};
void nic_qp_trace_chain(struct nic_qp *qp, const struct nic_chain_trace *trace);

enum nic_chain_activity {
	NIC_CHAIN_RUNS,	   /* it has WQEs to execute */
	NIC_CHAIN_IDLE,	   /* nothing is posted, or enabled */
	NIC_CHAIN_WAITS,   /* in a WAIT */
	NIC_CHAIN_LIMITED, /* has taken its share of WQEs, by its rate limit or of the turn */
	NIC_CHAIN_NO_RECV, /* waits for a receive of its peer */
	NIC_CHAIN_FAILED,
};

struct nic_chain_state {
	uint32_t qpn;
	uint32_t executed; /* WQEs since the last reset, modulo 2^32 */
	enum nic_chain_activity activity;
	bool managed;
};
void nic_qp_chain_state(const struct nic_qp *qp, struct nic_chain_state *out); /* [owner] */
/*
 * Stores the states of the queue pairs of a PU that are set up for chains: at most `max`, those
 * that have executed most. Returns how many there are. [control+owner]
 */
unsigned nic_chain_states(const struct nic *nic, unsigned pu, struct nic_chain_state *out,
			  unsigned max);

#endif
