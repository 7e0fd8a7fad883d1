/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chains inside the core. A queue pair without chains has no struct qp_chain, and pays one branch
 * at each call of the functions below.
 */
#ifndef ROOST_NIC_CHAIN_H
#define ROOST_NIC_CHAIN_H

#include "base/tokens.h"
#include "nic/core.h"
#include "nic/cq.h"
#include "nic/nic_chain.h"
#include "nic/requester.h"

struct chain_watch {
	struct nic_cq *cq; /* NULL: none */
	uint32_t base;	   /* relative WAITs count from here */
};

/* Each WQE of a managed queue uses the fields up to `tokens`, so these come first. */
struct qp_chain {
	struct nic_qp *qp;
	bool managed_send, managed_recv;
	bool all_posted, all_recv_posted; /* the whole ring has been posted once */
	bool throttled;			  /* takes no WQE until the timer fires or the next turn */
	uint32_t first, first_recv;	  /* counts at the last reset */
	uint32_t enabled, recv_enabled;	  /* the NIC takes the WQEs below these counts */
	/* The limits of the managed send queue: chain_pace.c. */
	uint32_t turn_limit;
	uint32_t turn_left; /* WQEs that the NIC may still take in this turn */
	uint64_t turn;	    /* `polls` of its PU when turn_left was set */
	struct nic_cq *audit;
	struct nic_chain_trace trace;
	struct tokens tokens; /* rate 0: no limit */
	struct chain_watch watch[ROOST_CHAIN_WATCHES];
	/* The WAIT in progress. If several PUs share the CQ, its lock protects `wait`. */
	struct nic_cq *wait_cq;
	struct list_head wait;
	uint32_t wait_target;
	struct wheel_timer timer; /* for a WAIT until a time, a rate limit, or a full mailbox */
	uint64_t wait_until;	  /* end of the WAIT in progress, if it waits for a time; 0: none */
	uint32_t life; /* another one after each reset, and in each queue pair of this PU */
	bool has_failed;
	struct nic_chain_failure failure;
} __attribute__((aligned(ROOST_CACHE_LINE)));

/* Shows an executed WQE to the debugger, if there is one. */
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

/*
 * Returns true if a WQE of the protection domain with this op-code moves a count of the queue pair.
 */
static inline bool chain_enables(const struct nic_qp *to, uint32_t pd, uint8_t op)
{
	if (!to->chain || to->pd != pd)
		return false;
	return op == ROOST_OP_RECV_ENABLE ? to->chain->managed_recv : to->chain->managed_send;
}

static inline bool chain_managed(const struct nic_qp *qp)
{
	return unlikely(qp->chain != NULL) && qp->chain->managed_send;
}

/* Returns true if the queue pair may use this op-code, which is above ROOST_OP_RECV. */
static inline bool chain_has_op(const struct nic_qp *qp, uint16_t op)
{
	return op <= ROOST_OP_RECV_ENABLE ? qp->chain != NULL : qp_has(qp, QP_LOOP | QP_CALC);
}

/*
 * Returns true if the entry has no packet and is executed when its turn comes; other entries
 * without a packet wait until all entries before them are complete.
 */
static inline bool chain_in_turn(const struct sq_entry *e)
{
	return e->status == NIC_WC_SUCCESS && (e->op == ROOST_OP_NOP || e->op >= ROOST_OP_WAIT);
}

/* Convert between an operation of op_is_atomic() and its op-code and function on the wire. */
static inline uint8_t chain_atomic_opcode(uint8_t op)
{
	return op == ROOST_OP_CMP_SWAP ? PKT_CMP_SWAP
	       : op <= ROOST_OP_RECV   ? PKT_FETCH_ADD
				       : PKT_CALC;
}

static inline uint64_t chain_calc_of(uint8_t op)
{
	return op - ROOST_OP_MAX + PKT_CALC_MAX;
}

/* Returns ROOST_OP_NOP if the function does not exist. */
static inline uint8_t chain_op_of_calc(uint64_t function)
{
	if (function >= PKT_CALCS)
		return ROOST_OP_NOP;
	return function ? (uint8_t)(function - PKT_CALC_MAX + ROOST_OP_MAX) : ROOST_OP_FETCH_ADD;
}
_Static_assert(ROOST_OP_XOR - ROOST_OP_MAX == PKT_CALC_XOR - PKT_CALC_MAX &&
		       ROOST_OP_MIN_SIGNED - ROOST_OP_MAX == PKT_CALC_MIN_SIGNED - PKT_CALC_MAX,
	       "functions in the order of the op-codes");

/* chain.c */
bool chain_fetch(struct nic_qp *qp);  /* sq_fetch() for a managed queue */
bool chain_posted(struct nic_qp *qp); /* sq_posted() for a chain */
/* Returns the count below which receives may be taken. It replaces the `prod` of their ring. */
uint32_t chain_receives(struct nic_qp *qp);
enum chain_result chain_step(struct nic_qp *qp, struct sq_entry *e); /* executes e */
/*
 * Executes the entry at sq.next of a queue pair with packets, at once. The entry retires behind the
 * entries before it. After an error e->status is set.
 */
enum req_result chain_run(struct nic_qp *qp, struct sq_entry *e);
void chain_retire(struct nic_qp *qp); /* retires the executed entries at sq.una */
/* Schedules the queue pairs whose WAIT on this CQ has ended. The caller owns `pu`. */
void chain_wake(struct nic_cq *cq, struct pu *pu);
int chain_calc(uint8_t op, void *addr, uint64_t operand, uint64_t *old); /* returns 0 or -EFAULT */

void chain_failed(struct nic_qp *qp, const struct sq_entry *e); /* keeps the first error */

/* chain_pace.c */
/* Begins the queue's turn and computes its share of WQEs. */
void chain_begin_turn(struct nic_qp *qp);
void chain_throttle(struct nic_qp *qp); /* stops a queue that has used its share or its tokens */
/* Schedules the queue for the next turn, unless it has a place in this one. */
void chain_next_turn(struct nic_qp *qp);
/* Schedules the queue pair at a time, on its PU. */
void chain_timer_at(struct nic_qp *qp, uint64_t when);
void chain_timer(struct nic_qp *qp);			       /* called when the timer fires */
bool chain_audit(struct nic_qp *qp, const struct sq_entry *e); /* see chain_reports() */

/* Returns true if the NIC may take a WQE of the managed queue now. */
static inline bool chain_may_take(struct nic_qp *qp)
{
	struct qp_chain *c = qp->chain;

	if (c->turn != qp->pu->polls)
		chain_begin_turn(qp);
	c->throttled = !c->turn_left || (c->tokens.rate && !tokens_take(&c->tokens, qp->pu->now));
	if (unlikely(c->throttled)) {
		chain_throttle(qp);
		return false;
	}
	c->turn_left--;
	return true;
}

/*
 * Audits a signaled WQE at its end. Returns false if the WQE gets no completion, because it is
 * signaled for the audit only.
 */
static inline bool chain_reports(struct nic_qp *qp, const struct sq_entry *e)
{
	return !qp->chain->audit || chain_audit(qp, e);
}

/* chain_mail.c */
int chain_mail_init(struct nic *nic); /* returns 0 or -ENOMEM. [control+owner of all PUs] */
void chain_mail_fini(struct pu *pu);
/* Sends an ENABLE or RECV_ENABLE to the PU of the queue. Returns false if the mailbox is full. */
bool chain_send_mail(struct nic_qp *qp, const struct sq_entry *e, unsigned pu);
void chain_take_mail(struct pu *pu);
/* Makes the ENABLEs under way to a queue pair, which is reset, change nothing any more. [owner] */
void chain_expire_mail(struct nic_qp *qp);
/* Refuses the ENABLEs under way to a new queue pair: an earlier one had its number. [owner] */
void chain_refuse_mail(struct nic_qp *qp);

/*
 * Executes an ENABLE or RECV_ENABLE of a queue of this PU. `by` is the queue pair that executes the
 * WQE, or NULL. Returns false if the domain has no such managed queue.
 */
bool chain_enable(struct pu *pu, uint32_t pd, const struct nic_qp *by, const struct sq_entry *e);

/* chain_setup.c */
void chain_stop(struct nic_qp *qp); /* ends a WAIT */
void chain_reset(struct nic_qp *qp);
void chain_destroy(struct nic_qp *qp);

#endif
