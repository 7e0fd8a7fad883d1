/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Decides whether a flush also receives. An exchange is one system call that sends a datagram and
 * then receives one. It saves a system call if a datagram waits at that moment, as on a busy node;
 * otherwise the look costs the next packets some time. So the looks that directly follow flushes
 * are counted, and flushes receive while most of these find a datagram. Pure.
 */
#ifndef ROOST_PORT_UDP_EXCHANGE_H
#define ROOST_PORT_UDP_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

/* the state changes after at most this many looks with the other result */
#define EXCHANGE_LOOKS 8

/* It begins with zeros. */
struct exchange_odds {
	uint8_t found; /* 0 .. 2 * EXCHANGE_LOOKS; a look adds or subtracts one */
	bool flushed;  /* there was no look since the last flush */
};

static inline bool exchange_pays(const struct exchange_odds *o)
{
	return o->found >= EXCHANGE_LOOKS;
}

/* Counts a look directly after a flush, or that of an exchange. */
static inline void exchange_count(struct exchange_odds *o, bool found)
{
	if (!found)
		o->found -= o->found > 0;
	else if (o->found < 2 * EXCHANGE_LOOKS)
		o->found++;
}

/* A flush has sent by a system call of its own. */
static inline void exchange_flushed(struct exchange_odds *o)
{
	o->flushed = true;
}

/* A look by a system call of its own has ended. */
static inline void exchange_looked(struct exchange_odds *o, bool found)
{
	if (o->flushed)
		exchange_count(o, found);
	o->flushed = false;
}

/* A thread is about to sleep, so the next look does not follow the flush directly. */
static inline void exchange_sleeps(struct exchange_odds *o)
{
	o->flushed = false;
}

#endif
