/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues. */
#ifndef ROOST_NIC_CQ_H
#define ROOST_NIC_CQ_H

#include "base/list.h"
#include "base/spin.h"
#include "nic/nic.h"

struct pu;

enum cq_special {
	CQ_SHARED = 1,	/* QPs of several PUs complete or wait here and take `lock` */
	CQ_WATCHED = 2, /* `count` is kept, and `waiters` are woken */
};

struct nic_cq {
	struct roost_cqe *ring; /* NULL: the CQ counts only */
	struct roost_cq_index *index;
	uint32_t mask;
	uint32_t prod;	    /* completions ever produced */
	uint32_t cons_seen; /* index->cons as last read */
	uint8_t pu;
	uint8_t special; /* enum cq_special; 0: cq_push() takes the fast path */
	bool overrun;
	bool dirty, dirty_solicited; /* in pu->dirty: `arm` is checked at the turn's end */
	struct spin lock;
	void *ctx;
	uint32_t refs;		  /* QPs, and watches of QPs; control */
	uint32_t count;		  /* completions without error, for WAIT */
	struct list_head waiters; /* struct qp_chain of the QPs in a WAIT */
	struct nic *nic;
	struct list_head link; /* all CQs of the NIC; control */
};

struct cqe_fields {
	uint64_t wr_id;
	uint32_t byte_len, imm, wqe;
	uint32_t src_qpn; /* UD only */
	uint16_t status, opcode, flags;
	uint8_t sl; /* UD only: enum roost_cqe_network */
	bool solicited;
};
/*
 * Appends a completion of `qp`. If several PUs share the CQ, takes its lock. If the CQ is full, the
 * completion is lost, and the QP ends in qp_end_lost().
 */
void cq_push(struct nic_cq *cq, struct nic_qp *qp, const struct cqe_fields *f);
/* Take and release the lock of a CQ, if several PUs share it. */
static inline void cq_lock(struct nic_cq *cq)
{
	if (cq->special & CQ_SHARED)
		spin_lock(&cq->lock);
}

static inline void cq_unlock(struct nic_cq *cq)
{
	if (cq->special & CQ_SHARED)
		spin_unlock(&cq->lock);
}

/* Raises the events of the armed CQs to which this turn has pushed completions. */
void cq_notify_dirty(struct pu *pu);

#endif
