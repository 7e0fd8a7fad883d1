/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder of a QP: the receive queue, the message in progress, and the READs and atomics that
 * must be answered, or answered again.
 */
#ifndef ROOST_NIC_RESPONDER_H
#define ROOST_NIC_RESPONDER_H

#include "base/list.h"
#include "nic/nic.h"
#include "nic/turn.h"

struct pkt_view;
struct cqe_fields;

/* A READ or atomic that the responder has to answer, or may have to answer again. */
struct resp_entry {
	uint32_t psn, npkts;
	/*
	 * The current execution, in packets relative to psn: the first, the next to send, one past
	 * the last. If cur == end, no execution is running.
	 */
	uint32_t start, cur, end;
	uint32_t limit; /* end of this execution: an offset in the READ, in bytes */
	uint32_t msn;
	uint32_t rkey, len;
	uint64_t va;
	uint64_t result; /* old value, for an atomic */
	bool atomic;
	bool done; /* the last response has been sent at least once */
};

/* A ring of posted receives, of one QP or of an SRQ. */
struct recv_ring {
	uint8_t *ring;
	uint64_t *wr_ids;
	struct roost_queue_index *index;
	uint32_t mask;
	uint8_t stride_shift;
	uint32_t cons; /* receives taken */
	uint32_t prod_seen;
	uint32_t pd; /* protection domain of the keys in the receives */
};

/* The state of the responder. Its first group is a part of a cache line, as qp.h asserts. */
struct qp_resp {
	uint32_t epsn; /* the expected PSN */
	uint32_t msn;
	uint32_t rkey; /* key of the WRITE in progress */
	uint32_t bytes_left;
	uint64_t va;
	uint32_t received;   /* bytes so far of the message in progress */
	uint32_t rpc_len;    /* bytes of the RPC WRITE in progress */
	uint8_t msg;	     /* enum pkt_kind of the message in progress; NONE between messages */
	uint8_t nak;	     /* syndrome to send after the READs before it; 0: none */
	bool ack;	     /* acknowledge up to epsn - 1 */
	bool nak_sent;	     /* later PSNs get no NAK until epsn comes */
	bool has_recv;	     /* recv holds a receive */
	bool drop;	     /* UC: drop the rest of the message in progress */
	bool cnp;	     /* send a congestion notification */
	uint8_t last_nak;    /* syndrome of the NAK, at nak_psn, that ended the connection */
	uint8_t head, count; /* replay ring: entries [head, head + count) */
	/* number, in the replay ring, of the oldest entry with responses to send; count: none */
	uint8_t oldest;
	uint8_t replay_size; /* entries of `replay` */
	uint32_t nak_psn;

	/* receives; READs and atomics */
	struct recv_ring *rq; /* NULL: none */
	struct recv_ring own_rq;
	struct {
		uint64_t wr_id;
		uint32_t index, num_sge;
		uint32_t sge, sge_off; /* position of the next byte */
	} recv;
	/* NULL: no entries. They are allocated separately, because most QPs have few. */
	struct resp_entry *replay;
	uint64_t cnp_next; /* the earliest time of the next notification */
};

/* A shared receive queue: srq.c. */
struct nic_srq {
	struct recv_ring rq;
	uint32_t limit; /* the event is raised when fewer receives are posted; 0: not armed */
	uint32_t refs;	/* QPs; control */
	uint8_t pu;	/* of its QPs */
	bool broken;	/* the program stored an invalid index */
	struct nic *nic;
	void *ctx;
	struct list_head link; /* all SRQs of the NIC; control */
};

/* srq.c */
void srq_taken(struct nic_srq *srq);  /* a QP has taken a receive from the ring */
void srq_broken(struct nic_srq *srq); /* raises the event, once, because the index is invalid */

/* resp.c */
void resp_rx(struct nic_qp *qp, const struct pkt_view *v);
void resp_nak(struct nic_qp *qp, uint8_t syndrome, uint32_t psn);
bool resp_take_recv(struct nic_qp *qp);
enum scatter_result { SCATTER_OK, SCATTER_TOO_LONG, SCATTER_BAD_MEMORY };
enum scatter_result resp_scatter(struct nic_qp *qp, const uint8_t *src, uint32_t n);
void resp_complete_recv(struct nic_qp *qp, const struct cqe_fields *f);
/*
 * Appends payload to the current receive. Returns 0, or the NAK syndrome of a reliable connection;
 * its receive has then completed in error.
 */
uint8_t resp_scatter_or_nak(struct nic_qp *qp, const uint8_t *payload, uint32_t n);
/* Rewinds the receive of a dropped message, so that the next message fills it. */
static inline void resp_keep_recv(struct qp_resp *r)
{
	r->recv.sge = r->recv.sge_off = 0;
}
bool resp_in_sequence(const struct nic_qp *qp, const struct pkt_view *v);
uint8_t resp_rnr(const struct nic_qp *qp); /* returns the syndrome of an RNR NAK */
/* Execute a packet that is in sequence. Return 0, or the NAK syndrome of a reliable connection. */
uint8_t resp_send(struct nic_qp *qp, const struct pkt_view *v);
uint8_t resp_write(struct nic_qp *qp, const struct pkt_view *v);
void resp_flush(struct nic_qp *qp);
/* Executes an operation of op_is_atomic(). Returns 0 and sets *old, or returns a NAK syndrome. */
uint8_t resp_execute_atomic(struct nic_qp *qp, uint8_t op, uint64_t va, uint32_t rkey,
			    uint64_t swap_add, uint64_t compare, uint64_t *old);

/*
 * Check the first packet of a WRITE or READ. Return 0, or a NAK syndrome. If len > 0, *dst gets the
 * address of the WRITE's memory.
 */
uint8_t resp_check_write(const struct nic_qp *qp, uint32_t rkey, uint64_t va, uint32_t len,
			 void **dst);
uint8_t resp_check_read(const struct nic_qp *qp, uint32_t rkey, uint64_t va, uint32_t len);
/*
 * Completes a receive. With NIC_WC_WITH_INV, first invalidates the key. Returns 0, or a NAK
 * syndrome.
 */
uint8_t resp_end_send(struct nic_qp *qp, struct cqe_fields *f);

/* resp_send.c */
/* Counts an error NAK, and raises its event. */
void resp_refused(struct nic_qp *qp, uint8_t syndrome);
void resp_queue_read(struct nic_qp *qp, const struct pkt_view *v, uint32_t psn, uint32_t npkts);
void resp_queue_atomic(struct nic_qp *qp, uint32_t psn, uint64_t result);
void resp_duplicate(struct nic_qp *qp, const struct pkt_view *v, uint32_t psn);
enum req_result resp_run(struct nic_qp *qp);
/* Handles a packet with an ECN mark: a notification is due, at most one in 50 us. */
void resp_congested(struct nic_qp *qp, const struct pkt_view *v);
void resp_refuse_again(struct nic_qp *qp, const struct pkt_view *v);
/*
 * Returns true if the peer has as many READs and atomics outstanding as were agreed (IBA 9.4.4: the
 * responder's resources). A fully answered request does not count, even while it is answered again.
 */
bool resp_replay_full(const struct nic_qp *qp);
/*
 * Moves all entries to a longer replay ring, and installs the ring. The caller frees the old one.
 */
void resp_move_replay(struct qp_resp *r, struct resp_entry *to, uint8_t size);

#endif
