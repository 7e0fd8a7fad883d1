/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `shuffle`: partitions the tuples of a stream into its region while they come in, as
 * StRoM (EuroSys '20), section 6.4, does for hash joins. The payload of a call is tuples; each goes
 * behind those before it in its partition, through a buffer of ROOST_SHUFFLE_LINE bytes (16 tuples
 * of 8) that goes to memory when it is full, or at the end. All numbers little-endian.
 *
 *	payload		| table, unless it is in the region | tuple | tuple | ...
 *	tuple		| .... | key: 8 bytes | .... |
 *
 * The table says for each partition where its next tuple goes and how many bytes there are: a
 * histogram, summed up (roost_shuffle_layout()). It stands at the front of the payload or in the
 * region, since that of 1024 partitions exceeds a packet. With ROOST_SHUFFLE_ADVANCE one in the
 * region is brought up to date at the end, and the next call, anybody's, goes on behind.
 *
 * The reply is struct roost_shuffle_result. A tuple more than its partition has room for ends the
 * call with ROOST_SHUFFLE_FULL: nothing outside of the partitions is touched, what stands in them
 * is of no use, and the table is as it was.
 */
#ifndef ROOST_SHUFFLE_H
#define ROOST_SHUFFLE_H

#include <stdint.h>

#include "roost/rpc.h"

#define ROOST_SHUFFLE_OP	 4ull
#define ROOST_SHUFFLE_LINE	 128u
#define ROOST_SHUFFLE_PARTITIONS 8192u /* at most */
#define ROOST_SHUFFLE_CALLS	 16u   /* at a time, of a node; of one peer half of them */
#define ROOST_SHUFFLE_SHARE	 2u    /* of a connection */

#define ROOST_SHUFFLE_OUT_OP	8ull
#define ROOST_SHUFFLE_OUT_ROOM	(4u << 20) /* bytes: two buffers for each partition */
#define ROOST_SHUFFLE_OUT_CALLS 4u	   /* at a time, of a node; of one peer half of them */
#define ROOST_SHUFFLE_OUT_SHARE 2u	   /* of a connection */

enum roost_shuffle_how {
	/* (key >> shift) modulo the number of partitions, which is a power of two */
	ROOST_SHUFFLE_RADIX = 1,
	/* roost_shuffle_hash(key), whose high 32 bits are spread over any number of partitions */
	ROOST_SHUFFLE_HASH,
};

enum roost_shuffle_flags { ROOST_SHUFFLE_ADVANCE = 1 << 0 };

struct roost_shuffle_params {
	uint64_t table;	     /* its address in the region; 0: it is at the front of the payload */
	uint32_t partitions; /* 1 .. ROOST_SHUFFLE_PARTITIONS */
	uint16_t tuple;	     /* bytes: 8, 16, 32, 64 or 128 */
	uint16_t key;	     /* where in the tuple its key is: a multiple of 8 */
	uint8_t how;	     /* enum roost_shuffle_how */
	uint8_t shift;	     /* RADIX: 0 .. 63; otherwise 0 */
	uint16_t flags;	     /* enum roost_shuffle_flags */
	uint32_t reserved;   /* 0 */
};

/*
 * A partition, as the table has it: a multiple of the tuple's size, both. Full speed takes
 * addresses that are multiples of 64.
 */
struct roost_shuffle_part {
	uint64_t addr, len;
};

struct roost_shuffle_result {
	uint64_t tuples;
};

enum roost_shuffle_status {
	ROOST_SHUFFLE_FULL = 128, /* a partition has no room */
	/*
	 * ROOST_SHUFFLE_CALLS, or ROOST_SHUFFLE_OUT_CALLS, are under way; or as many as the
	 * connection, or its peer, may have
	 */
	ROOST_SHUFFLE_BUSY,
	ROOST_SHUFFLE_LOST, /* OUT: a WRITE failed */
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_shuffle_params) == 24, "parameters of shuffle");
#endif

/*
 * The kernel `shuffle-out`: the same on the sending side. The tuples of its payload are partitioned
 * to queue pairs that the host binds to it (roost_kernel_bind_qp()): each partition has a region of
 * a remote memory, and two buffers of a path MTU here; a full one leaves as a WRITE behind those
 * before it, and what is left at the end as a shorter one. The host runs it with payload out of its
 * memory (roost_run_start(), roost_kernel_run()), or a peer calls it. Tuples never lie in
 * registered memory, and reach each partition in order.
 *
 * The table stands in the region of the run. At the end it says how many tuples went to each
 * partition and where the next ones would, so that another run goes on behind. The reply is struct
 * roost_shuffle_out_result, when all WRITEs are done. ROOST_SHUFFLE_FULL: a tuple more than its
 * partition has room for; ROOST_SHUFFLE_LOST: a WRITE failed: what stands in the partitions is of
 * no use, and the table is as it was.
 */
struct roost_shuffle_out_params {
	uint64_t table; /* its address in the region: `partitions` entries */
	/* 1 .. ROOST_SHUFFLE_PARTITIONS; with two buffers each within ROOST_SHUFFLE_OUT_ROOM */
	uint32_t partitions;
	uint16_t tuple, key;
	uint8_t how, shift; /* all as above */
	uint16_t buffer;    /* bytes: the path MTU, 256 .. 4096 */
	uint32_t reserved;  /* 0 */
};

struct roost_shuffle_target {
	uint64_t addr,
		len; /* remote: where its next tuple goes, and room from there; len a multiple of the tuple's size */
	uint32_t rkey;
	uint32_t qp;	 /* the queue pair's number, as it was bound */
	uint64_t tuples; /* at the end: that went there in this run */
};

struct roost_shuffle_out_result {
	uint64_t tuples;
	uint32_t writes;
	uint32_t qp_status; /* LOST: enum roost_qp_status of the WRITE that failed */
};

static inline struct roost_shuffle_out_params
roost_shuffle_out_params(const struct roost_shuffle_target *table,
			 const struct roost_shuffle_params *p, uint16_t mtu)
{
	struct roost_shuffle_out_params out = {(uintptr_t)table, p->partitions, p->tuple, p->key,
					       p->how,		 p->shift,	mtu,	  0};

	return out;
}

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_shuffle_out_params) == 24, "parameters of shuffle-out");
_Static_assert(sizeof(struct roost_shuffle_target) == 32, "its table");
#endif

/* The finalizer of MurmurHash3 in its variant 13 (Stafford), as in SplitMix64. */
static inline uint64_t roost_shuffle_hash(uint64_t key)
{
	key ^= key >> 30;
	key *= 0xbf58476d1ce4e5b9ull;
	key ^= key >> 27;
	key *= 0x94d049bb133111ebull;
	return key ^ key >> 31;
}

static inline uint32_t roost_shuffle_partition(const struct roost_shuffle_params *p, uint64_t key)
{
	if (p->how == ROOST_SHUFFLE_RADIX)
		return (uint32_t)(key >> p->shift) & (p->partitions - 1);
	return (uint32_t)((roost_shuffle_hash(key) >> 32) * p->partitions >> 32);
}

/* Adds to a histogram those of n tuples. */
static inline void roost_shuffle_count(uint64_t *counts, const struct roost_shuffle_params *p,
				       const void *tuples, uint64_t n)
{
	const uint8_t *at = (const uint8_t *)tuples + p->key;

	for (uint64_t i = 0; i < n; i++, at += p->tuple) {
		uint64_t key;

		__builtin_memcpy(&key, at, 8);
		counts[roost_shuffle_partition(p, key)]++;
	}
}

/*
 * The table for partitions one behind the other from `base` on, each with room for its count and
 * beginning at a multiple of `align` (a power of two; 64 for full speed). Returns the bytes that
 * all take.
 */
static inline uint64_t roost_shuffle_layout(struct roost_shuffle_part *table,
					    const uint64_t *counts,
					    const struct roost_shuffle_params *p, uint64_t base,
					    uint32_t align)
{
	uint64_t at = base;

	for (uint32_t i = 0; i < p->partitions; i++) {
		at = (at + align - 1) & ~(uint64_t)(align - 1);
		table[i].addr = at;
		table[i].len = counts[i] * p->tuple;
		at += table[i].len;
	}
	return at - base;
}

#endif
