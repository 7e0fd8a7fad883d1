/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Decides whether a flush also receives. An exchange is one system call that sends a datagram and
 * then receives one. It saves a system call if a datagram waits at that moment, as on a busy node;
 * otherwise the look costs the next packets some time. So the looks that directly follow flushes
 * are counted, and flushes receive while most of these find a datagram. An exchange does not see
 * whether more datagrams wait, so after some of them in a row there is a look for several. Pure.
 */
#ifndef ROOST_PORT_UDP_EXCHANGE_H
#define ROOST_PORT_UDP_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#define EXCHANGE_LOOKS 8  /* the decision changes after about so many looks with the other result */
#define EXCHANGE_ROW   64 /* exchanges in a row */
/* While at most this many datagrams wait, they may be received by exchanges. */
#define EXCHANGE_DATAGRAMS 2
/*
 * Longer datagrams are not for exchanges. A system call is a small part of their cost, and a turn
 * that receives several of them sends longer groups: 64-KiB READs by exchanges had two thirds of
 * the rate.
 */
#define EXCHANGE_BYTES 32768

/* It begins with zeros. */
struct exchange_history {
	uint8_t found; /* 0 .. 2 * EXCHANGE_LOOKS; a look adds or subtracts one */
	uint8_t row;   /* exchanges since the last look by a system call of its own */
	bool flushed;  /* there was no look since the last flush */
};

/* A turn that has sent before has more to send than one datagram. */
static inline bool exchange_pays(const struct exchange_history *h)
{
	return !h->flushed && h->found >= EXCHANGE_LOOKS && h->row < EXCHANGE_ROW;
}

/*
 * Returns the number of datagrams that a look requests, which would otherwise request `want`. After
 * a row of exchanges, this is enough to see whether more wait than are for exchanges.
 */
static inline unsigned exchange_request(const struct exchange_history *h, unsigned want)
{
	if (h->row < EXCHANGE_ROW || want > EXCHANGE_DATAGRAMS)
		return want;
	return EXCHANGE_DATAGRAMS + 1;
}

/*
 * Returns true if the next datagram may be received by an exchange, after a burst of `packets` from
 * a look or an exchange that found `datagrams`; the last one had `bytes`. Several datagrams, and
 * single packets, are better received by one recvmmsg().
 */
static inline bool exchange_suits(unsigned datagrams, unsigned packets, uint32_t bytes)
{
	return datagrams <= EXCHANGE_DATAGRAMS && packets > datagrams && bytes <= EXCHANGE_BYTES;
}

static inline void exchange_count(struct exchange_history *h, bool found)
{
	if (!found)
		h->found -= h->found > 0;
	else if (h->found < 2 * EXCHANGE_LOOKS)
		h->found++;
	h->flushed = false;
}

/* An exchange has ended. */
static inline void exchange_done(struct exchange_history *h, bool found)
{
	exchange_count(h, found);
	h->row++;
}

/* A flush has sent by a system call of its own. */
static inline void exchange_flushed(struct exchange_history *h)
{
	h->flushed = true;
}

/* A look by a system call of its own has ended. */
static inline void exchange_looked(struct exchange_history *h, bool found)
{
	if (h->flushed)
		exchange_count(h, found);
	h->row = 0;
}

/* A thread is about to sleep, so the next look does not follow the flush directly. */
static inline void exchange_sleeps(struct exchange_history *h)
{
	h->flushed = false;
}

#endif
