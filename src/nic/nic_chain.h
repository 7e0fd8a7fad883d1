/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chains: programs made of work requests (docs/chains.md). A queue pair that is set up for them may
 * wait for completions (WAIT) and let the NIC take the WQEs of managed queues (ENABLE). The thread
 * rules are those of nic.h.
 */
#ifndef ROOST_NIC_NIC_CHAIN_H
#define ROOST_NIC_NIC_CHAIN_H

#include "nic/nic.h"

struct nic_chain_attr {
	/*
	 * The NIC takes a WQE of a managed queue only when an ENABLE covers it, and one at a time.
	 * It takes them again, from the start of the ring, once the whole ring has been posted.
	 */
	bool managed_send, managed_recv;
	/* The CQs that a WAIT may name; NULL: none at this index. */
	struct nic_cq *watch[ROOST_CHAIN_WATCHES];
};

/*
 * Sets a queue pair up for chains, once. 0, or
 *  -EINVAL      not in RESET or INIT; managed_recv without a receive queue of its own
 *  -EOPNOTSUPP  not RC
 *  -EBUSY       already set up, or a hook sees its outgoing messages
 *  -ENOMEM
 * [control+owner of all PUs]
 */
int nic_qp_set_chain(struct nic *nic, struct nic_qp *qp, const struct nic_chain_attr *attr);
bool nic_qp_has_chain(const struct nic_qp *qp); /* [control] */

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
