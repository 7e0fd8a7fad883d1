/* SPDX-License-Identifier: BSD-2-Clause */
/* The result of a QP's turn: of its requester, or of its responder. */
#ifndef ROOST_NIC_TURN_H
#define ROOST_NIC_TURN_H

enum req_result {
	REQ_IDLE, /* nothing to send, or the QP waits */
	REQ_MORE, /* the turn is over before the work */
	REQ_PORT_FULL,
};

#endif
