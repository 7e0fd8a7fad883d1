/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chains inside the core. A queue pair without them has no struct qp_chain and pays one branch
 * where the hooks below are.
 */
#ifndef ROOST_NIC_CHAIN_H
#define ROOST_NIC_CHAIN_H

#include "nic/core.h"
#include "nic/cq.h"
#include "nic/nic_chain.h"
#include "nic/requester.h"

struct chain_watch {
	struct nic_cq *cq; /* NULL: none */
	uint32_t base;	   /* relative WAITs count from here */
};

struct qp_chain {
	struct nic_qp *qp;
	bool managed_send, managed_recv;
	bool all_posted, all_recv_posted; /* the whole ring has been posted once */
	uint32_t first, first_recv;	  /* counts at the last reset */
	uint32_t enabled, recv_enabled;	  /* counts below which the NIC takes WQEs */
	struct chain_watch watch[ROOST_CHAIN_WATCHES];
	/* The WAIT in progress; `wait` is under the lock of a CQ that several PUs share. */
	struct nic_cq *wait_cq;
	struct list_head wait;
	uint32_t wait_target;
	bool has_failed;
	struct nic_chain_failure failure;
	struct nic_chain_trace trace;
};

/* Shows a debugger, if there is one, an executed WQE. */
static inline void chain_executed(struct nic_qp *qp, const struct sq_entry *e)
{
	if (unlikely(qp->chain != NULL) && unlikely(qp->chain->trace.executed != NULL))
		qp->chain->trace.executed(qp->chain->trace.ctx, qp, e->index, &e->wqe);
}

enum chain_result {
	CHAIN_DONE,
	CHAIN_WAITS,  /* the QP is scheduled when the WAIT may end */
	CHAIN_FAILED, /* e->status has the error */
};

static inline bool chain_managed(const struct nic_qp *qp)
{
	return unlikely(qp->chain != NULL) && qp->chain->managed_send;
}

/* True if the queue pair has an op-code above ROOST_OP_RECV. */
static inline bool chain_has_op(const struct nic_qp *qp, uint16_t op)
{
	return op <= ROOST_OP_RECV_ENABLE ? qp->chain != NULL : qp->loop;
}

/* True if the entry has no packet and acts in its turn, not when all before it are complete. */
static inline bool chain_in_turn(const struct sq_entry *e)
{
	return e->status == NIC_WC_SUCCESS && (e->op == ROOST_OP_NOP || e->op >= ROOST_OP_WAIT);
}

/* chain.c */
bool chain_fetch(struct nic_qp *qp);  /* as sq_fetch(), for a managed queue */
bool chain_posted(struct nic_qp *qp); /* as sq_posted() */
/* The count below which receives may be taken, instead of the `prod` of their ring. */
uint32_t chain_receives(struct nic_qp *qp);
enum chain_result chain_step(struct nic_qp *qp, struct sq_entry *e); /* executes e */
/*
 * Executes the entry at sq.next of a queue pair with packets. Its effect is in its turn; it retires
 * behind the entries before it. After an error e->status is set.
 */
enum req_result chain_run(struct nic_qp *qp, struct sq_entry *e);
void chain_retire(struct nic_qp *qp); /* retires the executed entries at sq.una */
/* Schedules the queue pairs whose WAIT on this CQ is over. The caller owns `pu`. */
void chain_wake(struct nic_cq *cq, struct pu *pu);
int chain_calc(uint8_t op, void *addr, uint64_t operand, uint64_t *old); /* 0 or -EFAULT */

/* chain_setup.c */
void chain_failed(struct nic_qp *qp, const struct sq_entry *e); /* keeps the first error */
void chain_stop(struct nic_qp *qp);				/* ends a WAIT */
void chain_reset(struct nic_qp *qp);
void chain_destroy(struct nic_qp *qp);

#endif
