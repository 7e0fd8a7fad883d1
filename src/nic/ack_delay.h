/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Delays the ACK of a reply behind the caller's next request. A caller with one call at a time
 * posts its next call directly after each reply. An ACK that leaves in between delays the request:
 * both packets have their descriptors in one cache line of the ring, which then moves between the
 * two cores once more, and the locked instructions of the post wait until the ring's lines have
 * arrived.
 *
 * The caller's habit is observed first, because a program that does not post and poll at once has
 * no turn soon in which the ACK could leave. One reply of a PU at a time is observed, and other
 * replies are acknowledged at once. Pure.
 *
 *	NONE ---reply---> REPLIED ---turn, soon, with a post---> POSTED ---turn---> NONE
 *				  \---any other turn------------------------------> NONE
 *
 * A reply that goes this way counts, if the last turn comes soon, too. After enough of them the ACK
 * is delayed, and leaves in the turn that returns to NONE.
 */
#ifndef ROOST_NIC_ACK_DELAY_H
#define ROOST_NIC_ACK_DELAY_H

#include <stdbool.h>
#include <stdint.h>

#define ACK_DELAY_REPLIES 8 /* replies in succession before an ACK is delayed */
/*
 * A turn is soon if it comes within this time. A caller that polls has turns every 0.1 us, and a
 * peer probes for its ACK after 1 ms.
 */
#define ACK_DELAY_NS 10000u

enum ack_delay_state { ACK_DELAY_NONE, ACK_DELAY_REPLIED, ACK_DELAY_POSTED };

/* It begins with zeros. */
struct ack_delay {
	uint8_t state;	/* enum ack_delay_state */
	uint8_t counts; /* 0 .. ACK_DELAY_REPLIES */
	bool delayed;	/* the ACK of the reply that is observed is delayed */
	uint32_t since; /* time of the last change of `state`: ns, the lower 32 bits */
};

/* The reply to a call has come at `now` (ns). Returns true if its ACK is delayed. */
static inline bool ack_delay_reply(struct ack_delay *d, uint64_t now)
{
	if (d->state != ACK_DELAY_NONE)
		return false;
	d->state = ACK_DELAY_REPLIED;
	d->delayed = d->counts == ACK_DELAY_REPLIES;
	d->since = (uint32_t)now;
	return d->delayed;
}

/* Returns true if ack_delay_turn() must be called in the next turn. */
static inline bool ack_delay_active(const struct ack_delay *d)
{
	return d->state != ACK_DELAY_NONE;
}

/*
 * A turn begins at `now` (ns). `posted`: the queue pair has requests to send. Returns true if the
 * ACK that is delayed leaves in this turn.
 */
static inline bool ack_delay_turn(struct ack_delay *d, bool posted, uint64_t now)
{
	bool soon = (uint32_t)now - d->since <= ACK_DELAY_NS;

	if (d->state == ACK_DELAY_REPLIED && posted && soon) {
		d->state = ACK_DELAY_POSTED;
		d->since = (uint32_t)now;
		return false;
	}
	if (d->state != ACK_DELAY_POSTED || !soon)
		d->counts = 0;
	else if (d->counts < ACK_DELAY_REPLIES)
		d->counts++;
	d->state = ACK_DELAY_NONE;
	return d->delayed;
}

#endif
