/* SPDX-License-Identifier: BSD-2-Clause */
/* The result of the turn of a QP's requester or responder. */
#ifndef ROOST_NIC_TURN_H
#define ROOST_NIC_TURN_H

enum req_result {
	REQ_IDLE, /* there is no packet to send, or the QP waits */
	REQ_MORE, /* the turn has ended, and work is left */
	REQ_PORT_FULL,
};

#endif
