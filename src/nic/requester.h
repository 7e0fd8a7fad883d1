/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester of a QP: it sends the entries of the send queue, and handles the answers of the
 * peer.
 */
#ifndef ROOST_NIC_REQUESTER_H
#define ROOST_NIC_REQUESTER_H

#include "nic/core.h"
#include "nic/turn.h"

/*
 * The most packets of a message from one acknowledgement request to the next. rxe stops at 128
 * unacknowledged packets.
 */
#define NIC_ACKREQ_EVERY 64
/* The most bytes of one READ request, where the port has no READ window. */
#define NIC_READ_CHUNK (1u << 20)

struct nic_ah;
struct tx_burst;

/* A packet of the entry at sq.next, or with loop-back a part of its bytes. */
struct req_packet {
	uint32_t bytes; /* bytes, as the window counts them; loop-back: bytes copied */
	uint32_t covered;
	bool ackreq, response;	 /* RC. response: a READ or an atomic, which gets a response */
	struct dest *dest;	 /* UC and UD */
	const struct nic_ah *ah; /* UD */
	struct nic_qp *peer;	 /* loop-back */
	void *dst;   /* loop-back: address of a WRITE's first bytes; NULL: not resolved yet */
	uint8_t nak; /* loop-back: the syndrome with which the peer refuses the request; 0: none */
	bool not_ready; /* loop-back: the peer, or a hook, takes no piece now */
};

enum req_admission {
	REQ_ADMITTED,
	REQ_WAITS,   /* the QP leaves the list of senders */
	REQ_REFUSED, /* e->status has the error */
};

/*
 * The functions of a service for an entry. The loop is in req_run(). For each packet it calls
 * admit(), then send(), then complete().
 */
struct req_service {
	enum req_admission (*admit)(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p);
	/* Returns 0; -EAGAIN: no space in the port; -EACCES, -EFAULT: the payload cannot be read */
	int (*send)(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p);
	/* If it returns REQ_MORE, the loop continues until the burst ends. */
	enum req_result (*complete)(struct nic_qp *qp, struct sq_entry *e,
				    const struct req_packet *p, struct tx_burst *burst);
	/* Executes an entry without a packet, or ends an entry whose status is an error. */
	enum req_result (*end)(struct nic_qp *qp, struct sq_entry *e, struct tx_burst *burst);
};

/* req.c */
/* Records why the QP, which has work, leaves the list of senders, and counts the wait. [owner] */
void req_blocked(struct nic_qp *qp, enum qp_block why);
enum req_result req_run(struct nic_qp *qp);
bool req_idle(struct nic_qp *qp);
int req_send_packet(struct nic_qp *qp, struct sq_entry *e, uint32_t pkt, bool ackreq);
uint32_t req_covers(const struct nic_qp *qp, const struct sq_entry *e, uint32_t pkt);
uint32_t req_payload(const struct nic_qp *qp, const struct sq_entry *e,
		     uint32_t pkt); /* returns the payload bytes of this packet */
uint32_t req_bytes(const struct nic_qp *qp, const struct sq_entry *e, uint32_t from, uint32_t to);

/* req_resp.c */
void req_rx(struct nic_qp *qp, const struct pkt_view *v);
void req_rewind(struct nic_qp *qp);
/* Returns the status of the request that an error NAK ends. */
enum nic_wc_status req_nak_status(uint8_t syndrome);
void req_count_nak(struct nic_counters *c, uint8_t syndrome);
/* Ends the oldest WQE with this status and takes the QP to the error state. */
void req_fail(struct nic_qp *qp, enum nic_wc_status status);
/*
 * Does the same with e->status for the oldest WQE, which failed at this end, and counts the error.
 */
void req_fail_local(struct nic_qp *qp, const struct sq_entry *e);

/* retry.c */
void retry_arm(struct nic_qp *qp);
void retry_rnr_wait(struct nic_qp *qp, uint64_t ns);
void retry_fire(struct nic_qp *qp);
uint64_t retry_rnr_ns(uint8_t timer);
bool retry_count(struct nic_qp *qp); /* returns false if no retry was left */

/* unacked.c: the functions of struct req_service for UC and UD */
enum req_admission unacked_admit(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p);
int unacked_send(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p);
enum req_result unacked_complete(struct nic_qp *qp, struct sq_entry *e, const struct req_packet *p,
				 struct tx_burst *burst);
enum req_result unacked_end(struct nic_qp *qp, struct sq_entry *e, struct tx_burst *burst);

/* loop.c: the functions of struct req_service for QPs whose peer is on the same PU */
#define LOOP_TURN (64u * 1024) /* bytes that a QP copies before the next QP's turn */
enum req_admission loop_admit(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p);
int loop_send(struct nic_qp *qp, struct sq_entry *e, struct req_packet *p);
enum req_result loop_complete(struct nic_qp *qp, struct sq_entry *e, const struct req_packet *p,
			      struct tx_burst *burst);
enum req_result loop_end(struct nic_qp *qp, struct sq_entry *e, struct tx_burst *burst);

#endif
