/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Decides when a thread watches its listening sockets again after it could not accept a connection,
 * because no descriptor or no memory is free. The connection stays in the queue of its socket, so
 * the socket stays readable, and a thread that watched it would be busy until another thread closes
 * something. The functions are pure. Times are in ms, of any clock.
 */
#ifndef ROOST_BASE_REST_H
#define ROOST_BASE_REST_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define REST_MS 100

/* All zeros: no rest. A rest may include several sockets. */
struct rest {
	uint64_t until; /* 0: there is no rest now */
};

/* Begins a rest: the caller does not watch the socket. A rest that has begun is not prolonged. */
static inline void rest_begin(struct rest *r, uint64_t now)
{
	if (!r->until)
		r->until = now + REST_MS;
}

/* Returns true once, at the end of a rest: the caller watches its sockets again. */
static inline bool rest_ends(struct rest *r, uint64_t now)
{
	if (!r->until || now < r->until)
		return false;
	r->until = 0;
	return true;
}

/* Returns the ms until the end of the rest, for poll(2); -1: there is no rest. */
static inline int rest_left(const struct rest *r, uint64_t now)
{
	uint64_t left = r->until > now ? r->until - now : 0;

	return !r->until ? -1 : left < INT_MAX ? (int)left : INT_MAX;
}

#endif
