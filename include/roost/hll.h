/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `hll`: counts distinct items of a stream with HyperLogLog (Flajolet and others, 2007),
 * as StRoM (EuroSys '20), section 7.2, does while data come in. An item is 8 bytes. A sketch is
 * 2^precision registers of one byte, has a name of 64 bits, and whoever may call the kernel and
 * knows the name can use it. A node has ROOST_HLL_SKETCHES of them. A sketch belongs to the
 * connection whose call made it, ends with that, and is dropped by nobody else but the host; what
 * the host makes stays. A connection has ROOST_HLL_SHARE at most, all of one peer half of what
 * there is. All numbers little-endian.
 *
 *	item ---hash---> | index: the high `precision` bits | ...... 1000 |	register[index] = max(itself, zeros at the low end + 1)
 *
 * A call names what to do. ADD and MERGE take payload (ROOST_RPC_STREAM); they, and JOIN, make the
 * sketch when there is none. The standard error of an estimate is 1.04 / sqrt(2^precision), from
 * one item on.
 *
 * Streams of several QPs may go into one sketch at a time. What is asked of a sketch while items
 * come in is asked of some of them; items that come in while it is reset may be forgotten or not.
 */
#ifndef ROOST_HLL_H
#define ROOST_HLL_H

#include <stdint.h>

#include "roost/rpc.h"

#define ROOST_HLL_OP		5ull
#define ROOST_HLL_SKETCHES	32
#define ROOST_HLL_SHARE		8 /* of them, of a connection */
#define ROOST_HLL_MIN_PRECISION 4
#define ROOST_HLL_MAX_PRECISION 18

enum roost_hll_what {
	ROOST_HLL_ADD = 1,   /* payload: items. Without payload: makes the sketch */
	ROOST_HLL_MERGE,     /* payload: the registers of another sketch of the same precision */
	ROOST_HLL_JOIN,	     /* the registers of the sketch `from`, of the same precision */
	ROOST_HLL_ESTIMATE,  /* replies with struct roost_hll_info */
	ROOST_HLL_REGISTERS, /* replies with the registers */
	ROOST_HLL_RESET,     /* to no items */
	ROOST_HLL_DROP,	     /* its slot is free for another name */
};

struct roost_hll_params {
	uint64_t name; /* not 0 */
	uint64_t from; /* JOIN; otherwise 0 */
	uint32_t what;
	uint32_t precision; /* of ADD, MERGE and JOIN; 0 with the others: whatever it has */
};

/* A sketch that is not there: ROOST_RPC_MISS. */
enum roost_hll_status {
	/* no slot for another sketch, or the connection or its peer has its share */
	ROOST_HLL_FULL = 128,
	ROOST_HLL_PRECISION, /* the sketch has another one */
	ROOST_HLL_OWNER,     /* DROP: another connection's, or the host's */
};

struct roost_hll_info {
	uint64_t estimate; /* distinct items */
	/* all that were added; those of registers that were merged are not known */
	uint64_t items;
	uint32_t precision;
	uint32_t zeros; /* registers without an item */
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_hll_params) == 24, "parameters of hll");
_Static_assert(sizeof(struct roost_hll_info) == 24, "reply of hll");
#endif

static inline struct roost_hll_params roost_hll_params(uint64_t name, uint32_t what,
						       uint32_t precision)
{
	struct roost_hll_params p = {name, 0, what, precision};

	return p;
}

/*
 * The kernel's hash (Stafford's variant 13 of the finalizer of MurmurHash3, as in SplitMix64):
 * sketches that are made elsewhere with it can be merged.
 */
static inline uint64_t roost_hll_hash(uint64_t item)
{
	item ^= item >> 30;
	item *= 0xbf58476d1ce4e5b9ull;
	item ^= item >> 27;
	item *= 0x94d049bb133111ebull;
	return item ^ item >> 31;
}

static inline uint32_t roost_hll_index(uint64_t hash, unsigned precision)
{
	return (uint32_t)(hash >> (64 - precision));
}

/* 1 .. 65 - precision */
static inline uint8_t roost_hll_rank(uint64_t hash, unsigned precision)
{
	return (uint8_t)(__builtin_ctzll(hash | 1ull << (64 - precision)) + 1);
}

/* Estimates from how many registers have each value, 0 .. 65 - precision. */
static inline double roost_hll_from_counts(const uint32_t counts[64], unsigned precision)
{
	/*
	 * Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), algorithm
	 * 6: one formula without bias from the first item on, where the original changes to another
	 * one for small ranges. What it corrects near 2^64 items is left out.
	 */
	double m = (double)(1u << precision), x = counts[0] / m, y = 1, sigma = x, last, z;
	unsigned k = 65 - precision;

	if (counts[0] == 1u << precision)
		return 0;
	z = 0.5 * counts[k];
	while (--k)
		z = 0.5 * (z + counts[k]);
	do {
		x *= x;
		last = sigma;
		sigma += x * y;
		y += y;
	} while (sigma != last);
	z += m * sigma;
	return m * m / (2 * 0.69314718055994530942 * z);
}

/* The same for a caller that has the registers. They are all in range: else -1. */
static inline double roost_hll_estimate(const uint8_t *registers, unsigned precision)
{
	uint32_t counts[64] = {0};
	uint32_t i;

	for (i = 0; i < 1u << precision; i++) {
		if (registers[i] > 65 - precision)
			return -1;
		counts[registers[i]]++;
	}
	return roost_hll_from_counts(counts, precision);
}

static inline void roost_hll_add(uint8_t *registers, unsigned precision, uint64_t item)
{
	uint64_t hash = roost_hll_hash(item);
	uint8_t *to = &registers[roost_hll_index(hash, precision)],
		rank = roost_hll_rank(hash, precision);

	if (*to < rank)
		*to = rank;
}

static inline void roost_hll_merge(uint8_t *to, const uint8_t *from, unsigned precision)
{
	uint32_t i;

	for (i = 0; i < 1u << precision; i++)
		if (to[i] < from[i])
			to[i] = from[i];
}

#endif
