/* SPDX-License-Identifier: BSD-2-Clause */
/* The requester of a QP: the transmission of send queue entries, and what the peer answers. */
#ifndef ROOST_NIC_REQUESTER_H
#define ROOST_NIC_REQUESTER_H

#include "nic/core.h"
#include "nic/turn.h"

/* Packets of a message per acknowledgement request, at most (rxe stops at 128 unacknowledged). */
#define NIC_ACKREQ_EVERY 64
/* Bytes of one READ request, at most, where the port has no READ window. */
#define NIC_READ_CHUNK (1u << 20)

/* req.c */
/* Notes why the QP, which has work, leaves the list of senders, and counts the wait. [owner] */
void req_blocked(struct nic_qp *qp, enum qp_block why);
enum req_result req_run(struct nic_qp *qp);
bool req_idle(struct nic_qp *qp);
int req_send_packet(struct nic_qp *qp, struct sq_entry *e, uint32_t pkt, bool ackreq);
uint32_t req_covers(const struct nic_qp *qp, const struct sq_entry *e, uint32_t pkt);
uint32_t req_payload(const struct nic_qp *qp, const struct sq_entry *e,
		     uint32_t pkt); /* payload bytes of this packet */
uint32_t req_bytes(const struct nic_qp *qp, const struct sq_entry *e, uint32_t from, uint32_t to);

/* req_resp.c */
void req_rx(struct nic_qp *qp, const struct pkt_view *v);
void req_rewind(struct nic_qp *qp);
/* ends the oldest WQE with this status and takes the QP to the error state */
void req_fail(struct nic_qp *qp, enum nic_wc_status status);

/* retry.c */
void retry_arm(struct nic_qp *qp);
void retry_rnr_wait(struct nic_qp *qp, uint64_t ns);
void retry_fire(struct nic_qp *qp);
uint64_t retry_rnr_ns(uint8_t timer);
bool retry_count(struct nic_qp *qp); /* false: exhausted */

/* unacked.c */
enum req_result unacked_run(struct nic_qp *qp);

/* loop.c */
enum req_result loop_run(struct nic_qp *qp);

#endif
