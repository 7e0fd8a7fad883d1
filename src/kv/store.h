/* SPDX-License-Identifier: BSD-2-Clause */
/* Internals of a store, for the files of src/kv. */
#ifndef ROOST_KV_STORE_H
#define ROOST_KV_STORE_H

#include <errno.h>
#include <stdatomic.h>

#include "kv/bucket.h"
#include "kv/element.h"
#include "kv/kv.h"
#include "kv/memory.h"
#include "kv/near.h"
#include "kv/part.h"
#include "kv/slab.h"

/* Slab class of a chained bucket: 64 bytes. */
#define KV_CHAIN_CLASS 1u

struct kv {
	struct kv_memory mem;
	struct kv_config config;
	uint8_t secret[KV_SECRET];
	uint64_t buckets, buckets_max;
	uint64_t slots, pairs, inline_pairs, chained;
	uint64_t bytes; /* kv_bytes() */
	uint64_t growth_accesses, growth_steps, evicted, expired;
	uint64_t hand; /* hand of the eviction clock: a bucket */
	uint64_t expire_hand;
	uint32_t now;
	/* no pair expires before; `next_soonest` is that of the buckets behind `expire_hand` */
	uint32_t soonest, next_soonest;
	unsigned segments; /* a power of two */
	struct slab *slabs;
	uint64_t home_mask; /* the least power of two that is not below `buckets`, minus 1 */
	uint64_t grow_at;   /* slots in use above which the index grows */
	_Atomic uint64_t index_end; /* bytes of the index, for kv_prepare() */
	uint64_t index_ready;	    /* used by kv_prepare() */
	uint8_t *gather;	    /* KV_VALUE_MAX bytes, to assemble a value from its extents */
	const struct element_table *elements;
	struct kv_functions *functions; /* NULL: none is registered */
	uint64_t (*clock)(void *ctx);	/* kv_set_clock() */
	void *clock_ctx;
	struct kv_flight *flight; /* operations with a far tier; NULL: none */
	bool divides; /* kv_run_some(), kv_run_on(): long values are worked on in pieces */
	struct kv_part part;
};

/* The location of a pair or, if it was not found, the state of its chain. */
struct kv_loc {
	/* address of the bucket and, if `chained`, of the previous bucket in the chain */
	uint64_t addr, prev;
	bool chained;
	bool is_inline;
	unsigned slot;
	const struct bucket *at; /* the bucket, until it is written */
	struct kv_pair pair;	 /* in the store's memory; value is NULL if it is in extents */
	uint64_t space; /* if has_space: address of the first bucket with enough empty slots */
	bool has_space;
};

uint64_t kv_hash(const struct kv *kv, const void *key, uint32_t len);

/*
 * Returns the tag of an inline pair, 1 to 15. Its bits are neither those of a home nor of
 * kv_second_hash.
 */
static inline unsigned kv_tag(uint64_t hash)
{
	return 1 + ((unsigned)(hash >> 47 & 0xff) * 15 >> 8);
}

static inline uint64_t kv_home(const struct kv *kv, uint64_t hash)
{
	uint64_t b = hash & kv->home_mask;

	return b < kv->buckets ? b : b & kv->home_mask >> 1;
}

static inline uint32_t kv_second_hash(uint64_t hash)
{
	return (uint32_t)(hash >> 55);
}

/*
 * Returns the segment of a pair by its hash or its bucket. A bucket, its chain and their records
 * are in one segment. The index has at least as many buckets as there are segments.
 */
static inline struct slab *kv_segment(struct kv *kv, uint64_t hash_or_bucket)
{
	return &kv->slabs[hash_or_bucket & (kv->segments - 1)];
}

static inline uint64_t kv_bucket_addr(uint64_t bucket)
{
	return bucket * BUCKET_BYTES;
}

/* Returns a bucket of a store without a far tier. The caller counts the access. */
static inline struct bucket *kv_bucket(const struct kv *kv, uint64_t addr)
{
	return (struct bucket *)(kv->mem.base + addr);
}

/* Sets the fields that depend on the number of buckets. */
static inline void kv_set_buckets(struct kv *kv, uint64_t buckets)
{
	atomic_store_explicit(&kv->index_end, kv_bucket_addr(buckets), memory_order_relaxed);
	kv_memory_grows(&kv->mem, kv_bucket_addr(kv->buckets), kv_bucket_addr(buckets));
	kv->buckets = buckets;
	kv->home_mask = pow2_ceil(buckets) - 1;
	kv->grow_at = kv->buckets < kv->buckets_max
			      ? kv->buckets * BUCKET_SLOTS * kv->config.fill_percent / 100
			      : UINT64_MAX;
}

static inline bool kv_is_expired(const struct kv *kv, uint32_t expires)
{
	return expires && expires <= kv->now;
}

/* record.c: pairs in slabs */

/*
 * Returns the place of a new record, or 0 if memory is full. If the value is NULL, it is in
 * extents, and the caller writes these: their addresses are in kv->part.
 */
uint32_t kv_record_new(struct kv *kv, uint64_t hash, const struct kv_pair *p, unsigned *class);
/* Writes a pair over one with a record of the same shape. */
void kv_record_write(struct kv *kv, struct slab *s, uint32_t place, const struct kv_pair *p);
bool kv_record_fits(const struct kv_pair *p, unsigned class);
void kv_record_free(struct kv *kv, struct slab *s, uint32_t place, unsigned class);
/* Reads a record except a value in extents. One access. */
void kv_record_read(struct kv *kv, struct slab *s, uint32_t place, struct kv_pair *p);
/* Returns the value of a pair that was read, in one piece. It is valid until the next call. */
const uint8_t *kv_record_value(struct kv *kv, struct slab *s, uint32_t place, struct kv_pair *p);

/*
 * Requests the records of a bucket, which are all read next, so that a far tier reads their lines
 * at the same time.
 */
void kv_want_records(struct kv *kv, const struct slab *s, const struct bucket *b);

/* Gets the addresses of the extents of a pair that was read, or of its value in the record. */
void kv_record_extents(struct kv *kv, struct slab *s, uint32_t place, uint64_t *addrs);

/*
 * Returns the place of the value's bytes from `offset`, which the caller changes at once, and the
 * number of bytes that are contiguous there. The pair was read. One access.
 */
uint8_t *kv_record_change(struct kv *kv, struct slab *s, uint32_t place, const struct kv_pair *p,
			  uint32_t offset, uint32_t *bytes);

/* index.c: pairs in buckets */

/* Returns whether the key exists. If not, looks for a bucket with `need` empty slots. */
bool kv_find(struct kv *kv, uint64_t hash, const void *key, uint32_t len, unsigned need,
	     struct kv_loc *loc);
/* Stores a pair whose key was looked up with `loc`. Returns 0 or -ENOSPC. */
int kv_store(struct kv *kv, uint64_t hash, struct kv_loc *loc, bool found, const struct kv_pair *p);
void kv_remove(struct kv *kv, uint64_t hash, struct kv_loc *loc);
unsigned kv_slots_of(const struct kv *kv, const struct kv_pair *p);
const uint8_t *kv_value(struct kv *kv, uint64_t hash, struct kv_loc *loc);

/*
 * Does the same as kv_record_change() for a pair that was found. The copies in `loc` are not
 * changed.
 */
uint8_t *kv_value_change(struct kv *kv, uint64_t hash, struct kv_loc *loc, uint32_t offset,
			 uint32_t *bytes);

/* run.c: for the files of operations */

/* Checks and hashes an operation. Sets its status. */
void kv_begin(const struct kv *kv, struct kv_op *op);
/* Executes an operation that was begun, with eviction. The index does not grow. */
void kv_execute(struct kv *kv, struct kv_op *op);

/*
 * scan.c: visits the pairs of the bucket of the cursor. Returns the next cursor, or 0 behind the
 * last bucket. *stopped: `visit` stopped the scan.
 */
uint64_t kv_scan_bucket(struct kv *kv, uint64_t cursor, kv_visit visit, void *ctx, bool *stopped);
uint64_t kv_cursor_bucket(uint64_t cursor);
/*
 * Requests the lines of a bucket, its chain and their records, as far as their addresses are known.
 * Returns false if the line of the bucket itself is missing.
 */
bool kv_want_bucket(struct kv *kv, uint64_t bucket);

/* flight.c: operations with a far tier */

int kv_flight_open(struct kv *kv);
void kv_flight_close(struct kv *kv);
void kv_flight_stat(const struct kv *kv, struct kv_stat *stat);
void kv_flight_run(struct kv *kv, struct kv_op *ops, unsigned n);

/*
 * Frees near memory above its limit, between two operations. Bytes that accesses returned are
 * invalid afterwards.
 */
static inline void kv_trim(struct kv *kv)
{
	if (unlikely(kv->mem.near != NULL))
		kv_near_trim(kv->mem.near);
}

/* Sets the length of the result, and finds its memory. Returns 0 or -EMSGSIZE. */
static inline int kv_claim_result(struct kv_op *op, uint32_t len)
{
	if (op->arena) {
		size_t space = (size_t)(op->arena->end - op->arena->at);

		op->out = op->arena->at;
		op->out_cap = space < UINT32_MAX ? (uint32_t)space : UINT32_MAX;
	}
	op->out_len = len;
	if (len > op->out_cap)
		return -EMSGSIZE;
	if (op->arena)
		op->arena->at += len;
	return 0;
}

/* Copies a result to `out`. Returns 0 or -EMSGSIZE. */
int kv_put_result(struct kv_op *op, const void *value, uint32_t len);

/* vector.c: operations on elements */

/* Checks an operation of KV_UPDATE to KV_FILTER. Returns 0 or -EINVAL. */
int kv_check_elements(const struct kv *kv, const struct kv_op *op);
/* Executes such an operation on the pair that was found. Returns its status. */
int kv_run_elements(struct kv *kv, struct kv_op *op, struct kv_loc *loc);
/* Changes the elements at `to`, which begin `offset` bytes behind the start of the value. */
void kv_change_elements(const struct kv *kv, const struct kv_op *op, uint8_t *to, uint32_t offset,
			uint32_t len);

/* functions.c: registered functions */

/* Returns whether the operation's function exists for its type and kind, and its parameter fits. */
bool kv_has_registered(const struct kv *kv, const struct kv_op *op);
/* Executes a registered function as kv_run_elements() does, for a value that fits. */
int kv_run_registered(struct kv *kv, struct kv_op *op, struct kv_loc *loc);
/* For part.c: the copy of the value, and the bytes of elements that a call gets at most. */
uint8_t *kv_registered_elements(const struct kv *kv);
uint32_t kv_registered_piece(const struct kv *kv, const struct kv_op *op);
/* Begins an operation in pieces on the copy. */
void kv_begin_registered(struct kv *kv, const struct kv_op *op);
/* Calls the function on the next n bytes of the copy. Returns 0, -EFAULT or -ETIME. */
int kv_call_registered(struct kv *kv, struct kv_part *p, uint32_t n);
void kv_functions_free(struct kv *kv);

/*
 * evict.c: evicts pairs. Returns false if it found no pair. It visits at most `*budget` buckets,
 * and subtracts their number from `*budget`.
 */
bool kv_evict(struct kv *kv, unsigned *budget);
/* Does the same for pairs that have expired. Visits no bucket if there can be none. */
bool kv_expire(struct kv *kv, unsigned *budget);
/* Notes the time of a pair that is stored. */
static inline void kv_note_expiry(struct kv *kv, uint32_t expires)
{
	if (!expires)
		return;
	if (expires < kv->soonest)
		kv->soonest = expires;
	if (expires < kv->next_soonest)
		kv->next_soonest = expires;
}

#endif
