/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Delays the ACK of a reply behind the caller's next request. A caller with one call at a time
 * posts its next call directly after each reply. An ACK that leaves in between delays the request:
 * both packets have their descriptors in one cache line of the ring, which then moves between the
 * two cores once more, and the locked instructions of the post wait until the ring's lines have
 * arrived.
 *
 * The caller's habit is observed first, because an ACK that waits for a post that does not come
 * leaves in the next turn, and a program that has stopped polling has no turn soon. Pure; the unit
 * of time is a turn of the PU.
 *
 *	NONE ---reply---> OBSERVED ---turn: counts whether requests were posted---> NONE
 *	NONE ---reply, after enough posts---> WAITS ---turn with posts---> BEHIND ---turn---> NONE
 *					           \---turn without-------------------> NONE
 *
 * The ACK leaves in the turn that returns from WAITS or BEHIND to NONE.
 */
#ifndef ROOST_NIC_ACK_DELAY_H
#define ROOST_NIC_ACK_DELAY_H

#include <stdbool.h>
#include <stdint.h>

/* Replies in succession that were followed by a post in the next turn; only then an ACK waits. */
#define ACK_DELAY_POSTS 8

enum ack_delay_state { ACK_DELAY_NONE, ACK_DELAY_OBSERVED, ACK_DELAY_WAITS, ACK_DELAY_BEHIND };

/* It begins with zeros. */
struct ack_delay {
	uint8_t state; /* enum ack_delay_state */
	uint8_t posts; /* 0 .. ACK_DELAY_POSTS */
};

/*
 * A reply has come. `alone`: no other packet came with it. Returns true if its ACK waits. The reply
 * behind it does not wait, and its ACK is that of both.
 */
static inline bool ack_delay_reply(struct ack_delay *d, bool alone)
{
	if (!alone)
		d->posts = 0; /* several calls are in flight, and the node waits for the ACKs */
	if (d->state != ACK_DELAY_NONE)
		return false;
	d->state = d->posts < ACK_DELAY_POSTS ? ACK_DELAY_OBSERVED : ACK_DELAY_WAITS;
	return d->state == ACK_DELAY_WAITS;
}

/* Returns true if ack_delay_turn() must be called in the next turn. */
static inline bool ack_delay_active(const struct ack_delay *d)
{
	return d->state != ACK_DELAY_NONE;
}

/*
 * A turn begins. `posted`: it has requests to send. Returns true if the ACK that waits leaves in
 * this turn.
 */
static inline bool ack_delay_turn(struct ack_delay *d, bool posted)
{
	enum ack_delay_state state = d->state;

	d->state = state == ACK_DELAY_WAITS && posted ? ACK_DELAY_BEHIND : ACK_DELAY_NONE;
	if (state == ACK_DELAY_BEHIND)
		return true;
	if (!posted)
		d->posts = 0;
	else if (d->posts < ACK_DELAY_POSTS)
		d->posts++;
	return state == ACK_DELAY_WAITS && !posted;
}

#endif
