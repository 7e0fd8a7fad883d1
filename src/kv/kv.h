/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A store of keys and values after KV-Direct (SOSP '17): a hash index, slabs, and operations that
 * run in groups, each group in order. One thread at a time per store. Errors are negative errno.
 * docs/kv.md has the structure.
 */
#ifndef ROOST_KV_KV_H
#define ROOST_KV_KV_H

#include <stdbool.h>
#include <stdint.h>

#define KV_KEY_MAX    255u
#define KV_VALUE_MAX  (1u << 20)
#define KV_INLINE_MAX 44u /* of key and value: a whole bucket, with time to live */
#define KV_SECRET     192u

struct kv;

struct kv_config {
	uint64_t size;	       /* bytes of pairs and chained buckets; at least 1 MiB */
	uint64_t buckets;      /* at the start; 0: few, the index grows */
	uint64_t buckets_max;  /* 0: one for each 128 bytes of `size` */
	unsigned inline_max;   /* key and value together; 0: none is inline */
	unsigned fill_percent; /* slots in use at which the index grows; 0: 55 */
	bool evict;	       /* when memory is full, pairs that were not used lately go */
	uint64_t segment;      /* bytes of a segment; 0: 64 GiB. For tests */
	const uint8_t *secret; /* KV_SECRET bytes for the hash; NULL: from the kernel */
};

enum kv_code {
	KV_GET,
	KV_PUT,
	KV_PUT_ABSENT,	/* -EEXIST when the key is there */
	KV_PUT_PRESENT, /* -ENOENT when it is not */
	KV_PUT_COMPARE, /* when the value is `expect`; -ECANCELED when it is another */
	KV_DELETE,
	KV_TOUCH, /* only sets `expires` */
	KV_CODES,
};

/* An operation, and its result. What it points to is the caller's, and is not kept. */
struct kv_op {
	uint8_t code;	  /* enum kv_code */
	uint32_t key_len; /* 1 to KV_KEY_MAX */
	uint32_t value_len;
	uint32_t expect_len;
	uint32_t expires; /* the second (see kv_set_time) from which the pair is gone; 0: never */
	uint32_t out_cap;
	const void *key, *value, *expect;
	void *out; /* GET: the value. PUT_COMPARE: the value that was another */

	/*
	 * 0; -ENOENT, -EEXIST, -ECANCELED as above; -EINVAL: a code, or a length of 0; -E2BIG: a
	 * key or value over its limit; -ENOSPC: memory is full, nothing was changed; -EMSGSIZE:
	 * `out` is too short, out_len says how long the value is, and nothing is written there.
	 */
	int status;
	uint32_t out_len;
	uint64_t hash; /* set by kv_run */
};

struct kv_stat {
	uint64_t pairs, inline_pairs;
	uint64_t buckets, chained; /* of the index; more in chains */
	uint64_t slots;		   /* in use */
	uint64_t used, top, limit; /* bytes: in use, ever used, allowed */
	uint64_t reads, writes;	   /* accesses, all of them */
	uint64_t growth_accesses;  /* those of growth */
	uint64_t growth_steps;	   /* buckets that were split */
	uint64_t stack_accesses;   /* those of the slab allocator */
	uint64_t allocs, frees;	   /* of slabs */
	uint64_t evicted, expired;
	uint64_t merges;
};

/* -EINVAL: a setting is out of its bounds; -ENOMEM. */
int kv_open(const struct kv_config *config, struct kv **out);
void kv_close(struct kv *kv);

/* The time, in seconds of any epoch but not 0. Pairs expire by it. It never goes back. */
void kv_set_time(struct kv *kv, uint32_t now);

/* Executes the operations in order. Each has its own status. */
void kv_run(struct kv *kv, struct kv_op *ops, unsigned n);

/* Allows more memory, up to the `size` of kv_open; or less than that at first. -EINVAL. */
int kv_set_limit(struct kv *kv, uint64_t bytes);

/* At most `n` steps of growth, if the index wants them: one bucket is split in each. */
unsigned kv_grow(struct kv *kv, unsigned n);

/*
 * A pair at a time, to `visit`, which must not use the store; it stops the scan by false. The value
 * is valid during the call.
 */
struct kv_pair {
	const uint8_t *key, *value;
	uint32_t key_len, value_len, expires;
};
typedef bool (*kv_visit)(void *ctx, const struct kv_pair *pair);

/*
 * Visits the pairs of the next `buckets` buckets from `cursor`, which starts at 0, and returns the
 * new cursor; 0: all were visited. A pair that is there from start to end is visited, at least
 * once, also when the index grows meanwhile.
 */
uint64_t kv_scan(struct kv *kv, uint64_t cursor, uint64_t buckets, kv_visit visit, void *ctx);

void kv_get_stat(const struct kv *kv, struct kv_stat *stat);

/* Checks every rule of the structure, for tests; NULL, or what is wrong. Slow. */
const char *kv_check(struct kv *kv);

#endif
