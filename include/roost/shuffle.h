/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `shuffle`: partitions the tuples of a stream into the call's region while they come
 * in, as StRoM (EuroSys '20), section 6.4, does for hash joins. The payload of a call is tuples.
 * Each tuple is appended to its partition, through a buffer of ROOST_SHUFFLE_LINE bytes (16 tuples
 * of 8). A buffer is written to memory when it is full, and at the end. All numbers are
 * little-endian.
 *
 *	payload		| table, unless it is in the region | tuple | tuple | ...
 *	tuple		| .... | key: 8 bytes | .... |
 *
 * The table has an entry for each partition: the address of its next tuple, and the free bytes from
 * there on. It is the prefix sum of a histogram (roost_shuffle_layout()). The table is in the
 * region or at the front of the payload; it is not in the parameters, because a table of 1024
 * partitions exceeds a packet. With ROOST_SHUFFLE_ADVANCE the kernel updates a table in the region
 * at the end, and the next call with the table, of any caller, appends to the partitions.
 *
 * The reply is struct roost_shuffle_result. A tuple for a full partition ends the call with
 * ROOST_SHUFFLE_FULL. In this case the contents of the partitions are undefined, the table is
 * unchanged, and no memory outside of the partitions was written.
 */
#ifndef ROOST_SHUFFLE_H
#define ROOST_SHUFFLE_H

#include <stdint.h>

#include "roost/rpc.h"

#define ROOST_SHUFFLE_OP	 4ull
#define ROOST_SHUFFLE_LINE	 128u
#define ROOST_SHUFFLE_PARTITIONS 8192u /* at most */
#define ROOST_SHUFFLE_CALLS	 16u   /* concurrent calls of a node; of one peer half of that */
#define ROOST_SHUFFLE_SHARE	 2u    /* concurrent calls of a connection */

#define ROOST_SHUFFLE_OUT_OP	8ull
#define ROOST_SHUFFLE_OUT_SPACE (4u << 20) /* bytes: two buffers for each partition */
#define ROOST_SHUFFLE_OUT_CALLS 4u	   /* concurrent calls of a node; of a peer half of that */
#define ROOST_SHUFFLE_OUT_SHARE 2u	   /* concurrent calls of a connection */

enum roost_shuffle_how {
	/* (key >> shift) modulo the number of partitions, which is a power of two */
	ROOST_SHUFFLE_RADIX = 1,
	/* roost_shuffle_hash(key), whose high 32 bits are spread over any number of partitions */
	ROOST_SHUFFLE_HASH,
};

enum roost_shuffle_flags { ROOST_SHUFFLE_ADVANCE = 1 << 0 };

struct roost_shuffle_params {
	uint64_t table;	     /* its address in the region; 0: at the front of the payload */
	uint32_t partitions; /* 1 .. ROOST_SHUFFLE_PARTITIONS */
	uint16_t tuple;	     /* bytes: 8, 16, 32, 64 or 128 */
	uint16_t key;	     /* offset of the key in the tuple: a multiple of 8 */
	uint8_t how;	     /* enum roost_shuffle_how */
	uint8_t shift;	     /* RADIX: 0 .. 63; otherwise 0 */
	uint16_t flags;	     /* enum roost_shuffle_flags */
	uint32_t reserved;   /* 0 */
};

/*
 * An entry of the table: the address of the partition's next tuple, and its free bytes. Both are
 * multiples of the tuple's size. Full speed needs addresses that are multiples of 64.
 */
struct roost_shuffle_part {
	uint64_t addr, len;
};

struct roost_shuffle_result {
	uint64_t tuples;
};

enum roost_shuffle_status {
	ROOST_SHUFFLE_FULL = 128, /* a partition has no space */
	/*
	 * The node has ROOST_SHUFFLE_CALLS or ROOST_SHUFFLE_OUT_CALLS calls in progress, or the
	 * connection or its peer has as many as it may have.
	 */
	ROOST_SHUFFLE_BUSY,
	ROOST_SHUFFLE_LOST, /* OUT: a WRITE failed */
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_shuffle_params) == 24, "parameters of shuffle");
#endif

/*
 * The kernel `shuffle-out`: partitions tuples on the sending side. It writes the tuples of its
 * payload to remote memory, over queue pairs that the host binds to it (roost_kernel_bind_qp()).
 * Each partition has a range of remote memory, and two local buffers of a path MTU. A full buffer
 * is written by a WRITE that appends it to the partition; the rest at the end by a shorter WRITE.
 * The local tuples need no registered memory. The tuples of a partition arrive in order.
 *
 * The host runs the kernel with payload from its memory (roost_run_start(), roost_kernel_run()), or
 * a peer calls it.
 *
 * The table is in the region of the run. At the end the kernel stores in it the number of tuples of
 * each partition and the address of the next tuple, so that another run can append. The reply is
 * struct roost_shuffle_out_result. It is sent when all WRITEs are done. Errors:
 *
 *	ROOST_SHUFFLE_FULL	a tuple was for a full partition
 *	ROOST_SHUFFLE_LOST	a WRITE failed
 *
 * After an error the contents of the partitions are undefined, and the table is unchanged.
 */
struct roost_shuffle_out_params {
	uint64_t table; /* its address in the region: `partitions` entries */
	/* 1 .. ROOST_SHUFFLE_PARTITIONS; all buffers together fit in ROOST_SHUFFLE_OUT_SPACE */
	uint32_t partitions;
	uint16_t tuple, key;
	uint8_t how, shift; /* as in struct roost_shuffle_params, like tuple and key */
	uint16_t buffer;    /* bytes: the path MTU, 256 .. 4096 */
	uint32_t reserved;  /* 0 */
};

struct roost_shuffle_target {
	/*
	 * remote address of the partition's next tuple, and the free bytes from there on, a
	 * multiple of the tuple's size
	 */
	uint64_t addr, len;
	uint32_t rkey;
	uint32_t qp;	 /* number of the bound queue pair, from 1 */
	uint64_t tuples; /* set at the end: tuples that this run sent to the partition */
};

struct roost_shuffle_out_result {
	uint64_t tuples;
	uint32_t writes;
	uint32_t qp_status; /* ROOST_SHUFFLE_LOST: enum roost_qp_status of the failed WRITE */
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

/*
 * Returns the hash of a key, as the kernels compute it: variant 13 (Stafford) of MurmurHash3's
 * finalizer (SplitMix64).
 */
static inline uint64_t roost_shuffle_hash(uint64_t key)
{
	key ^= key >> 30;
	key *= 0xbf58476d1ce4e5b9ull;
	key ^= key >> 27;
	key *= 0x94d049bb133111ebull;
	return key ^ key >> 31;
}

/* Returns the number of a key's partition. */
static inline uint32_t roost_shuffle_partition(const struct roost_shuffle_params *p, uint64_t key)
{
	if (p->how == ROOST_SHUFFLE_RADIX)
		return (uint32_t)(key >> p->shift) & (p->partitions - 1);
	return (uint32_t)((roost_shuffle_hash(key) >> 32) * p->partitions >> 32);
}

/* Adds n tuples to the histogram `counts`. */
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
 * Fills the table for partitions that follow each other from `base` on. Each has space for its
 * count of tuples and begins at a multiple of `align` (a power of two; 64 for full speed). Returns
 * the bytes that all partitions take.
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
