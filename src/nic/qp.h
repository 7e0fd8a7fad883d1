/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs. */
#ifndef ROOST_NIC_QP_H
#define ROOST_NIC_QP_H

#include "base/list.h"
#include "base/wheel.h"
#include "nic/nic.h"
#include "nic/pu.h"
#include "nic/responder.h"
#include "nic/sq.h"

struct dest;
struct qp_chain;

enum qp_feature {
	QP_LOOP = 1, /* the peer is a QP of the same PU: loop.c */
	QP_RPC = 2,  /* op-codes 0x18 .. 0x1c are calls */
	QP_CALC = 4, /* op-code 0x1e is a calculation (nic_qp_set_calc()) */
};

/*
 * With thousands of busy QPs, each turn of a QP misses the cache for each line that it touches. So
 * the fields that a WRITE and its ACK touch are in groups of one line each, as asserted below. The
 * responder uses two of the lines, and the requester five.
 */
struct nic_qp {
	/* identity; both sides use it for each packet. The first four fields: [any] */
	_Atomic uint8_t db_active; /* the PU knows of posted work and will check for more */
	_Atomic uint8_t db_queued; /* the QP is in the PU's ring of doorbells */
	_Atomic uint8_t state_hint;
	_Atomic uint8_t features; /* enum qp_feature; the owner changes it */
	uint8_t pu_index;
	uint8_t state; /* enum nic_qp_state */
	uint8_t type;
	/* enum pkt_service: the class of the op-codes that the QP sends and accepts */
	uint8_t service;
	uint8_t port; /* from 0; qp_set_port() */
	bool sig_all;
	bool has_received;	 /* the QP has received a packet since RESET */
	uint8_t num_in, num_out; /* numbers of hooks: stream.c */
	uint8_t mtu_shift;
	uint8_t tos;
	/*
	 * max_dest_rd_atomic. If it was reduced, the replay ring is longer and may hold more
	 * entries. They stay until the next request, because the peer may still need their
	 * responses.
	 */
	uint8_t replay_limit;
	uint32_t qpn;
	uint32_t dest_qpn;
	uint32_t mtu;
	uint32_t pd;
	uint32_t access;
	/* UDP source port of the peer's packets (rx.c); above 65535: no packet was received yet */
	uint32_t peer_port;
	struct nic *nic;
	struct pu *pu;
	struct dest *dest;

	/* responder */
	struct list_head resp_link; /* QPs with responses to send */
	struct qp_resp resp;
	struct nic_cq *recv_cq;

	/* requester */
	struct qp_sq sq;
	struct list_head tx_link; /* pu->senders, or the waiters of a window */
	struct qp_resize *resize; /* NULL: no kernel changes the length of WRITEs */
	struct wheel_timer timer;
	struct nic_cq *send_cq;
	struct qp_chain *chain; /* NULL: no chains */
	struct nic_qp_attr attr;

	/* the rest */
	struct nic_srq *srq;	    /* NULL: the QP has its own receive queue */
	struct list_head lost_link; /* in pu->lost */
	struct list_head dest_link; /* among the QPs of dest */
	void *ctx;
	struct qp_streams *streams; /* NULL: no hook was ever attached */
	void *rpc_ctx;		    /* qp_ctx of the layer that serves calls, or NULL */
	uint32_t read_chunk;	    /* the most response packets of one READ request */
	_Atomic uint32_t db_prod;   /* index->prod at the last nic_qp_busy(). [any] */
	_Atomic bool single_call;   /* nic_rpc_single_call(). [any] */
	bool kernel_wrs_enabled;    /* kernels may post to the QP */
	bool keepalive;
	bool ack_waited;  /* the ACK has already waited for a turn: resp_send.c */
	uint32_t events;  /* asynchronous events already raised */
	uint32_t groups;  /* number of multicast groups of the QP */
	uint32_t windows; /* first of the type 2 windows that are bound to the QP: mw.c */
	uint64_t bytes;	  /* memory of this QP */
	struct roost_sge recv_sges[ROOST_MAX_SGE];
} __attribute__((aligned(ROOST_CACHE_LINE)));

/* The fields from `first` to `last` are one cache line. */
#define QP_LINE(first, last)                                                                       \
	_Static_assert(offsetof(struct nic_qp, first) % ROOST_CACHE_LINE == 0 &&                   \
			       offsetof(struct nic_qp, first) / ROOST_CACHE_LINE ==                \
				       offsetof(struct nic_qp, last) / ROOST_CACHE_LINE,           \
		       "hot fields of a QP in one cache line")
QP_LINE(db_active, dest);
QP_LINE(resp_link, resp.nak_psn);
QP_LINE(sq.ring, sq.window);
QP_LINE(sq.count, sq.drained_event);
QP_LINE(sq.progress, resize);
QP_LINE(timer, attr.sq_draining);
#undef QP_LINE

/* Returns true if the QP has one of the features. [any] */
static inline bool qp_has(const struct nic_qp *qp, unsigned features)
{
	return atomic_load_explicit(&((struct nic_qp *)(uintptr_t)qp)->features,
				    memory_order_relaxed) &
	       features;
}

/* Returns true if the service has acknowledgements and retransmission. */
static inline bool qp_acknowledged(const struct nic_qp *qp)
{
	return qp->type == NIC_QPT_RC;
}

/* Switches a feature on or off. */
static inline void qp_set_feature(struct nic_qp *qp, enum qp_feature feature, bool on)
{
	unsigned others = atomic_load_explicit(&qp->features, memory_order_relaxed) & ~feature;

	atomic_store_explicit(&qp->features, (uint8_t)(on ? others | feature : others),
			      memory_order_relaxed);
}

/* Set and read the port while other threads read it: nic_qp_batches(). */
static inline void qp_set_port(struct nic_qp *qp, unsigned port)
{
	__atomic_store_n(&qp->port, (uint8_t)port, __ATOMIC_RELAXED);
}

static inline uint8_t qp_port(const struct nic_qp *qp)
{
	return __atomic_load_n(&qp->port, __ATOMIC_RELAXED);
}

/* Prefetch the lines that a requester, or a responder, uses. */
static inline void qp_prefetch_requester(const struct nic_qp *qp)
{
	__builtin_prefetch(qp, 1);
	__builtin_prefetch(&qp->sq.ring, 1);
	__builtin_prefetch(&qp->sq.count, 1);
	__builtin_prefetch(&qp->sq.progress, 1);
	__builtin_prefetch(&qp->timer, 1);
}

static inline void qp_prefetch_responder(const struct nic_qp *qp)
{
	__builtin_prefetch(qp, 1);
	__builtin_prefetch(&qp->resp_link, 1);
}

/* qp_create.c */
/*
 * Allocates entries for copies of `window` WQEs and for `more` replies and work requests of
 * kernels, and moves the present entries to them. Returns 0 or -ENOMEM.
 */
int qp_size_entries(struct nic_qp *qp, uint32_t window, uint32_t more);
/*
 * Returns true if sizes and pointers of a ring are valid. A depth of 0 is valid: there is no ring.
 */
bool queue_ok(const struct nic_queue_attr *q);
void recv_ring_init(struct recv_ring *rq, const struct nic_queue_attr *q, uint32_t pd);
/* Frees the QP and its send queue entries. No table may refer to the QP any more. */
void qp_free(struct nic_qp *qp);
/* qp.c */
void qp_set_state(struct nic_qp *qp, enum nic_qp_state state);
/* Takes the QP to the error state and flushes all posted work (IBA 10.3.1.9). */
void qp_error(struct nic_qp *qp);
/* Ends the QPs whose completions were lost (cq.c). Must not be called during work on a QP. */
void qp_end_all_lost(struct pu *pu);
static inline void qp_end_lost(struct pu *pu)
{
	if (unlikely(!list_empty(&pu->lost)))
		qp_end_all_lost(pu);
}
/*
 * Flushes the send queue after a failed request of an unacknowledged service, and takes the QP to
 * SQE. The receive queue continues. The program may go back to RTS (IBA 10.3.1.8).
 */
void qp_sq_error(struct nic_qp *qp);
/* Raises an asynchronous event, unless it was raised before according to qp->events. */
void qp_event(struct nic_qp *qp, enum nic_event ev);
void qp_first_packet(struct nic_qp *qp);
/* qp_state.c */
int qp_check_modify(const struct nic_qp *qp, const struct nic_qp_attr *a, uint32_t mask);

#endif
