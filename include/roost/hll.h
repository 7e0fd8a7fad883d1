/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `hll`: counts the distinct items of a stream with HyperLogLog (Flajolet and others,
 * 2007), while the data come in, as in StRoM (EuroSys '20), section 7.2. An item has 8 bytes. All
 * numbers are little-endian.
 *
 * A sketch has a name of 64 bits and 2^precision registers of one byte. Each caller of the kernel
 * that knows the name can use the sketch. A sketch belongs to the connection whose call made it and
 * is freed when the connection ends. Only this connection and the host can drop it. A sketch that
 * the host made remains until the host drops it.
 *
 * A node has at most ROOST_HLL_SKETCHES sketches, a connection ROOST_HLL_SHARE, and all connections
 * of one peer together half of the node's.
 *
 *	item ---hash---> | index: the high `precision` bits | ...... 1000 |
 *
 *	register[index] = max(register[index], zeros at the low end + 1)
 *
 * The field `what` selects the operation. ADD and MERGE take payload (ROOST_RPC_STREAM). ADD, MERGE
 * and JOIN make the sketch if it does not exist. The standard error of an estimate is 1.04 /
 * sqrt(2^precision), from the first item on.
 *
 * Streams of several QPs may add to one sketch concurrently. An estimate during an ADD includes
 * some of its items. Items that arrive during a RESET may be lost or kept.
 */
#ifndef ROOST_HLL_H
#define ROOST_HLL_H

#include <stdint.h>

#include "roost/rpc.h"

#define ROOST_HLL_OP		5ull
#define ROOST_HLL_SKETCHES	32
#define ROOST_HLL_SHARE		8 /* sketches of one connection */
#define ROOST_HLL_MIN_PRECISION 4
#define ROOST_HLL_MAX_PRECISION 18

enum roost_hll_what {
	ROOST_HLL_ADD = 1,   /* payload: items. Without payload: makes the sketch */
	ROOST_HLL_MERGE,     /* payload: the registers of another sketch of the same precision */
	ROOST_HLL_JOIN,	     /* the registers of the sketch `from`, of the same precision */
	ROOST_HLL_ESTIMATE,  /* replies with struct roost_hll_info */
	ROOST_HLL_REGISTERS, /* replies with the registers */
	ROOST_HLL_RESET,     /* sets all registers to 0 */
	ROOST_HLL_DROP,	     /* frees the sketch */
};

struct roost_hll_params {
	uint64_t name;	    /* not 0 */
	uint64_t from;	    /* JOIN: name of the source; otherwise 0 */
	uint32_t what;	    /* enum roost_hll_what */
	uint32_t precision; /* ADD, MERGE, JOIN: not 0. Others: 0 accepts any precision */
};

/* A call with the name of a sketch that does not exist ends with ROOST_RPC_MISS. */
enum roost_hll_status {
	/* the node, the connection or its peer has the most sketches that it may have */
	ROOST_HLL_FULL = 128,
	ROOST_HLL_PRECISION, /* the sketch has another precision */
	ROOST_HLL_OWNER,     /* DROP: the sketch belongs to another connection or to the host */
};

struct roost_hll_info {
	uint64_t estimate; /* distinct items */
	/* items that were added, with repetitions; without items of merged or joined registers */
	uint64_t items;
	uint32_t precision;
	uint32_t zeros; /* registers without an item */
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_hll_params) == 24, "parameters of hll");
_Static_assert(sizeof(struct roost_hll_info) == 24, "reply of hll");
#endif

/* Returns the parameters of a call for the sketch `name`. what: enum roost_hll_what. */
static inline struct roost_hll_params roost_hll_params(uint64_t name, uint32_t what,
						       uint32_t precision)
{
	struct roost_hll_params p = {name, 0, what, precision};

	return p;
}

/*
 * Returns the hash of an item, as the kernel computes it: Stafford's variant 13 of the finalizer of
 * MurmurHash3, as in SplitMix64. A sketch that another program made with it can be merged.
 */
static inline uint64_t roost_hll_hash(uint64_t item)
{
	item ^= item >> 30;
	item *= 0xbf58476d1ce4e5b9ull;
	item ^= item >> 27;
	item *= 0x94d049bb133111ebull;
	return item ^ item >> 31;
}

/* Returns the index of a hash's register. */
static inline uint32_t roost_hll_index(uint64_t hash, unsigned precision)
{
	return (uint32_t)(hash >> (64 - precision));
}

/* Returns the value that a hash gives its register: 1 .. 65 - precision. */
static inline uint8_t roost_hll_rank(uint64_t hash, unsigned precision)
{
	return (uint8_t)(__builtin_ctzll(hash | 1ull << (64 - precision)) + 1);
}

/* Returns the estimate. counts[v] is the number of registers with value v, 0 .. 65 - precision. */
static inline double roost_hll_from_counts(const uint32_t counts[64], unsigned precision)
{
	/*
	 * Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), algorithm
	 * 6. This one formula has no bias for any number of items; the original algorithm has a
	 * second formula for small ranges. The correction near 2^64 items is left out.
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

/* Returns the estimate from the registers, or -1 if one of them is out of range. */
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

/* Adds an item to 1 << precision registers. */
static inline void roost_hll_add(uint8_t *registers, unsigned precision, uint64_t item)
{
	uint64_t hash = roost_hll_hash(item);
	uint8_t *to = &registers[roost_hll_index(hash, precision)],
		rank = roost_hll_rank(hash, precision);

	if (*to < rank)
		*to = rank;
}

/* Merges the registers `from` into `to`, both of the same precision. */
static inline void roost_hll_merge(uint8_t *to, const uint8_t *from, unsigned precision)
{
	uint32_t i;

	for (i = 0; i < 1u << precision; i++)
		if (to[i] < from[i])
			to[i] = from[i];
}

#endif
