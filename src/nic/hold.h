/* SPDX-License-Identifier: BSD-2-Clause */
/* ACKs that wait for the program's answer: hold.c. */
#ifndef ROOST_NIC_HOLD_H
#define ROOST_NIC_HOLD_H

#include <stdbool.h>
#include <stdint.h>

struct nic_qp;
struct pu;

/* What is known of a QP's program. */
struct hold {
	uint64_t asked;		 /* when a request came that nothing was sent after; 0: none */
	uint64_t answered;	 /* when something was */
	uint32_t gap[2];	 /* ns from an answer to the next request; [1]: with ACKs held */
	uint16_t wary, wariness; /* so many requests to go without holding; how many it will be next */
	uint8_t answers, tries;	 /* running; with the ACK held, since the times were compared */
	bool held;		 /* the ACK of the last request was */
};

/* A request wants to be acknowledged. True: its ACK waits. All of them: owner of the QP's PU. */
bool hold_ack(struct nic_qp *qp);
/* A request leaves that may be the answer. */
void hold_answered(struct nic_qp *qp);
/* All go to the responders. */
void hold_release(struct pu *pu);
/* Takes the QP off the list. */
void hold_end(struct nic_qp *qp);
/* The QP ends: the ACK leaves at once. */
void hold_leave(struct nic_qp *qp);

#endif
