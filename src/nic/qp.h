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

/*
 * The fields of a WRITE and its ACK are together: with thousands of busy QPs each line is a cache
 * miss at each turn. The groups are asserted below.
 */
struct nic_qp {
	/* each packet and each turn; the first four: [any] */
	_Atomic uint32_t db_active; /* the PU knows of posted work and will check for more */
	_Atomic uint32_t db_queued; /* the QP is in the PU's ring of doorbells */
	_Atomic uint32_t db_prod;   /* index->prod at the last nic_qp_busy() */
	_Atomic uint8_t state_hint;
	uint8_t pu_index;
	uint8_t state; /* enum nic_qp_state */
	uint8_t type;
	uint8_t service; /* enum pkt_service: the class of the op-codes that it sends and accepts */
	uint8_t port;	 /* from 0 */
	bool loop;	 /* the peer is a QP of this NIC on the same PU */
	bool rpc;	 /* op-codes 0x18 .. 0x1c are calls */
	bool sig_all;
	bool heard;		 /* received a packet since RESET */
	uint8_t num_in, num_out; /* hooks: stream.c */
	uint8_t mtu_shift;
	uint8_t tos;
	uint8_t max_send_sge;
	bool kernel_wrs_enabled; /* kernels may post to it */
	uint16_t max_inline;
	bool keepalive;
	uint32_t qpn;
	uint32_t dest_qpn;
	uint32_t mtu;
	uint32_t pd;
	uint32_t access;
	/* UDP source port of the peer's packets (rx.c); above 65535: none received yet */
	uint32_t peer_port;
	struct nic *nic;

	struct pu *pu;
	struct dest *dest;
	struct nic_cq *send_cq;
	struct qp_resize *resize;   /* NULL: no kernel changes the length of WRITEs */
	struct list_head tx_link;   /* senders, or waiters of a window */
	struct list_head resp_link; /* QPs with responses to send */

	struct qp_sq sq;
	struct wheel_timer timer;
	struct nic_qp_attr attr;
	uint32_t read_chunk; /* response packets of one READ request, at most */
	uint32_t events;     /* asynchronous events already raised */
	struct qp_resp resp;

	struct nic_cq *recv_cq;
	struct nic_srq *srq;	    /* NULL: the QP has its own receive queue */
	struct list_head lost_link; /* pu->lost */
	struct list_head dest_link; /* among the QPs of dest */
	void *ctx;
	struct qp_streams *streams; /* NULL: no hook was ever attached */
	void *rpc_ctx;		    /* of the layer that serves calls, or NULL */
	uint32_t groups;	    /* multicast groups it is attached to */
	uint32_t windows;	    /* list of type 2 windows bound to it: mw.c */
	uint64_t bytes;		    /* memory of this QP */
	struct roost_sge recv_sges[ROOST_MAX_SGE];
};

/* The allocator aligns a QP to a line. */
#define QP_LINE(field) (offsetof(struct nic_qp, field) / ROOST_CACHE_LINE)
#define ONE_LINE(first, last)                                                                      \
	_Static_assert(QP_LINE(first) == QP_LINE(last) &&                                          \
			       offsetof(struct nic_qp, first) % ROOST_CACHE_LINE == 0,             \
		       "a group of hot fields is one cache line")
ONE_LINE(db_active, nic);
ONE_LINE(pu, resp_link);
ONE_LINE(sq.ring, sq.window);
ONE_LINE(sq.count, sq.nak_seen);
ONE_LINE(sq.progress, sq.probed);
ONE_LINE(sq.nak_psn, attr.max_dest_rd_atomic);
ONE_LINE(resp.epsn, resp.rq);
#undef ONE_LINE
#undef QP_LINE

/* qp.c */
/*
 * Makes room for copies of `window` WQEs and `more` entries of kernels, and moves the present
 * entries. 0 or -ENOMEM.
 */
int qp_size_entries(struct nic_qp *qp, uint32_t window, uint32_t more);
bool queue_ok(const struct nic_queue_attr *q);
void recv_ring_init(struct recv_ring *rq, const struct nic_queue_attr *q, uint32_t pd);
void qp_error(struct nic_qp *qp);
void qp_end_all_lost(struct pu *pu);
static inline void qp_end_lost(struct pu *pu)
{
	if (unlikely(!list_empty(&pu->lost)))
		qp_end_all_lost(pu);
}
void qp_sq_error(struct nic_qp *qp);
void qp_event(struct nic_qp *qp, enum nic_event ev);
void qp_first_packet(struct nic_qp *qp);
/* qp_state.c */
int qp_check_modify(const struct nic_qp *qp, const struct nic_qp_attr *a, uint32_t mask);

#endif
