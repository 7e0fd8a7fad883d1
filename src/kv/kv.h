/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A key-value store after KV-Direct (SOSP '17): a hash index, slabs, and operations that run in
 * groups, each group in order. One thread at a time may use a store. Errors are negative errno
 * values. docs/kv.md describes the structure.
 */
#ifndef ROOST_KV_KV_H
#define ROOST_KV_KV_H

#include <stdbool.h>
#include <stdint.h>

#define KV_KEY_MAX    255u
#define KV_VALUE_MAX  (1u << 20)
#define KV_INLINE_MAX 44u /* key and value that fill a bucket together with an expiry */
#define KV_SECRET     192u
#define KV_IN_FLIGHT  256u

struct kv;
struct kv_far;

struct kv_config {
	uint64_t size;	       /* bytes of pairs and chained buckets; at least 1 MiB */
	uint64_t buckets;      /* buckets at the start; 0: few, and the index grows */
	uint64_t buckets_max;  /* 0: one for each 128 bytes of `size` */
	unsigned inline_max;   /* most bytes of an inline key and value; 0: none */
	unsigned fill_percent; /* slots in use at which the index grows; 0: 55 */
	bool evict;	       /* if memory is full, evict pairs that were not used lately */
	uint64_t segment;      /* bytes of a segment; 0: 64 GiB. For tests */
	const uint8_t *secret; /* KV_SECRET bytes for the hash; NULL: random bytes of the kernel */

	/* A far tier (far.h), which the store closes, also if kv_open() fails. NULL: none */
	struct kv_far *far;
	uint64_t near;	    /* bytes of near memory; 0: a sixteenth of `size` */
	unsigned cacheable; /* percent of lines that may stay in near memory; 0: 100 */
	unsigned in_flight; /* operations in execution; 0: KV_IN_FLIGHT; 1: in order */
};

enum kv_code {
	KV_GET,
	KV_PUT,
	KV_PUT_ABSENT,	/* -EEXIST if the key exists */
	KV_PUT_PRESENT, /* -ENOENT if the key does not exist */
	KV_PUT_COMPARE, /* -ECANCELED if the value is not `expect` */
	KV_DELETE,
	KV_TOUCH, /* only sets `expires` */

	/*
	 * The value is a vector of elements of `type`. KV_UPDATE: one element := fn(element,
	 * operand). KV_UPDATE_EACH: each element, with one operand. KV_UPDATE_VECTOR: each element,
	 * with the operand of the same place. `value` has the operands. KV_REDUCE: `out` gets one
	 * element: from the initial value in `value`, acc := fn(acc, element) for each element in
	 * order. KV_FILTER: `out` gets the elements for which fn(element, `value`) is true.
	 */
	KV_UPDATE,
	KV_UPDATE_EACH,
	KV_UPDATE_VECTOR,
	KV_REDUCE,
	KV_FILTER,
	KV_CODES,
};

enum kv_type {
	KV_U8,
	KV_U16,
	KV_U32,
	KV_U64,
	KV_I8,
	KV_I16,
	KV_I32,
	KV_I64,
	KV_FLOAT,
	KV_DOUBLE,
	KV_TYPES,
};

/* Functions for updates and reduce, then predicates for filter. */
enum kv_fn {
	KV_ADD, /* integers wrap */
	KV_SUB,
	KV_MUL,
	KV_MIN, /* of floats: the operand, if one of both is not a number */
	KV_MAX,
	KV_AND, /* bits of integers */
	KV_OR,
	KV_XOR,
	KV_ASSIGN,
	KV_ADD_SAT, /* integers that stop at their limits */
	KV_SUB_SAT,
	KV_MUL_SAT,
	KV_FNS_ELEMENT,
	/*
	 * Updates: the operand replaces the elements that equal those of `expect`, byte by byte. If
	 * KV_UPDATE replaces no element, its status is -ECANCELED.
	 */
	KV_SWAP = KV_FNS_ELEMENT,
	KV_EQ, /* predicates, as the operators of C */
	KV_NE,
	KV_LT,
	KV_LE,
	KV_GT,
	KV_GE,
	KV_FNS,
	KV_FN_REGISTERED = 256, /* from this number on: functions of kv_register() (functions.h) */
};

/* Memory for results, which operations take one after the other. */
struct kv_arena {
	uint8_t *at, *end;
};

/* An operation and its result. The store does not keep its pointers after kv_run(). */
struct kv_op {
	/* These are in one cache line, because each operation uses them. */
	uint8_t code;	  /* enum kv_code */
	uint8_t type;	  /* enum kv_type; this and the next two: KV_UPDATE to KV_FILTER */
	bool fetch;	  /* updates: `out` gets the old value */
	uint16_t fn;	  /* enum kv_fn */
	uint32_t key_len; /* 1 to KV_KEY_MAX */
	uint32_t value_len;
	uint32_t expires; /* the second (kv_set_time()) at which the pair expires; 0: never */
	uint32_t out_cap;
	uint32_t out_len;
	uint32_t entry; /* used by the store */
	const void *key, *value;
	/* GET: the value. PUT_COMPARE: the value that is not `expect`. Must not overlap `value` */
	void *out;
	uint64_t hash; /* set by kv_run */

	/*
	 * 0, or an error:
	 *	-ENOENT, -EEXIST, -ECANCELED	see above
	 *	-EINVAL		invalid code, or a key length of 0; no such function for the type;
	 *			operands that are no elements, or not one where one is needed
	 *	-ERANGE		the value is no vector of the type, or not as long as the operands
	 *	-E2BIG		a key or value exceeds its limit
	 *	-ENOSPC		memory is full; nothing was changed. A later attempt may succeed,
	 *			because each operation merges free memory, or evicts, a bounded part
	 *	-EFAULT		the registered function crashed, now or earlier
	 *	-ETIME		the registered function did not return, now or earlier
	 *	-EIO		the far tier failed
	 *	-EINPROGRESS	kv_submit(): not finished
	 *	-EMSGSIZE	`out` is too short: out_len is the length of the value, and nothing
	 *			is written to `out`
	 */
	int status;
	uint32_t expect_len, param_len;
	/* if not NULL, kv_run() sets `out` and out_cap to the next bytes of the arena */
	struct kv_arena *arena;
	const void *expect;
	const void *param; /* for a registered function: at most KV_VALUE_MAX bytes */
};

struct kv_stat {
	uint64_t pairs, inline_pairs;
	uint64_t buckets, chained; /* buckets of the index; further buckets in chains */
	uint64_t slots;		   /* slots in use */
	uint64_t used, top, limit; /* bytes: in use, ever used, allowed */
	uint64_t reads, writes;	   /* all accesses */
	uint64_t growth_accesses;  /* accesses of growth */
	uint64_t growth_steps;	   /* buckets that were split */
	uint64_t stack_accesses;   /* accesses of the slab allocator's stacks */
	uint64_t allocs, frees;	   /* allocations and frees of slabs */
	uint64_t evicted, expired;
	uint64_t merges;
	/* with a far tier */
	uint64_t far_reads, far_writes; /* lines */
	uint64_t near_lines;		/* lines in near memory now */
	uint64_t parked;		/* number of waits of operations for lines */
	uint64_t forwarded;		/* operations that ran right after one on the same key */
	uint64_t merged;		/* writes to a line that was to be written back already */
	uint64_t near_hits;		/* accesses for which no line was read */
	uint64_t far_errors;		/* reads and writes of lines that failed */
};

/* Opens a store. Returns 0, -EINVAL if a setting is out of its bounds, or -ENOMEM. */
int kv_open(const struct kv_config *config, struct kv **out);
void kv_close(struct kv *kv);

/* Sets the time by which pairs expire, in seconds of any epoch. It must not be 0 or decrease. */
void kv_set_time(struct kv *kv, uint32_t now);

/*
 * Sets a clock in ns, for registered functions: kv_bytes() counts a ns as 10 bytes, which take
 * about as long to copy, and an operation on a long value runs in pieces that take as long as a
 * copy of 64 KiB, by the time of earlier calls. Without a clock each element counts as in a
 * built-in function.
 */
void kv_set_clock(struct kv *kv, uint64_t (*clock)(void *ctx), void *ctx);

/*
 * Executes the operations, with the same results as in order. Each has its own status, and none may
 * use the result of another one as its key or value. With a far tier only operations on one key are
 * in order, and the call blocks until all are finished.
 */
void kv_run(struct kv *kv, struct kv_op *ops, unsigned n);

/*
 * The bytes of values after which kv_run_some(), kv_run_on() and kv_poll() return. Operations on
 * long values are divided, unless their registered function works on whole values.
 */
#define KV_RUN_BYTES (256u << 10)

/*
 * Does the same as kv_run() in a store without a far tier, but may return earlier. Returns false if
 * operations are left, whose status is -EINPROGRESS: kv_run_on() continues. Until it has returned
 * true, the operations and the arena must stay, while other operations may run.
 */
bool kv_run_some(struct kv *kv, struct kv_op *ops, unsigned n);
bool kv_run_on(struct kv *kv, struct kv_op *ops, unsigned n);
/*
 * An operation on a long value may be divided: returns true if one has begun and is not finished.
 * The store must then only be used by kv_run_on() with the same operations, or by the next two.
 * With a far tier kv_poll() continues it, and all functions for such a store may be called.
 */
bool kv_divided(const struct kv *kv);
/* Finishes the operation that is divided, in a store without a far tier. */
void kv_end_divided(struct kv *kv);
/* The caller has moved its operations. */
void kv_moved_ops(struct kv *kv, const struct kv_op *from, struct kv_op *to, unsigned n);
/*
 * Returns the bytes of values that all operations have read and written until now, except those of
 * short values. Operations on elements count each element as 8 to 48 bytes: by the time that the
 * function takes. Registered functions count by their time, if there is a clock.
 */
uint64_t kv_bytes(const struct kv *kv);

/*
 * Keys of operations that come soon, each in a kv_run() of its own, so that their cache misses
 * overlap. The last keys wait here until kv_ahead_end(), which the caller calls before the first
 * kv_run().
 */
#define KV_AHEAD 32u
#define KV_HINTS 256u /* for calls that are in the queue at the same time */
struct kv_ahead {
	uint64_t hash[KV_AHEAD];
	unsigned n; /* keys that wait */
	/*
	 * For the last keys: the address of the bucket, and the slot of a record in it. The pair
	 * may have moved since.
	 */
	uint64_t hints[KV_HINTS + KV_AHEAD];
	unsigned first; /* the hint of the first key that waits */
};
void kv_ahead_key(struct kv *kv, struct kv_ahead *a, const void *key, uint32_t len);
void kv_ahead_fetch(struct kv *kv, struct kv_ahead *a);
static inline void kv_ahead_end(struct kv *kv, struct kv_ahead *a)
{
	if (a->n)
		kv_ahead_fetch(kv, a);
}
/*
 * Does the same for the key of an operation that kv_run_ahead() executes. `alone`: probably no
 * other key comes before kv_ahead_end(), so the bucket is prefetched at once.
 */
void kv_ahead_op(struct kv *kv, struct kv_ahead *a, struct kv_op *op, bool alone);
/*
 * Executes an operation that kv_ahead_op() got, if it is one of the common cases: a GET, PUT or
 * update of a pair that does not expire and that keeps its place. Otherwise returns false without a
 * change, and the caller executes it by kv_run().
 */
bool kv_run_ahead(struct kv *kv, const struct kv_ahead *a, struct kv_op *op);

/*
 * Operations of a store with a far tier, without waiting. A batch and its operations belong to the
 * store until all are finished (kv_finished()) or cancelled. Operations of one client on one key
 * take effect in the order in which they were submitted; operations on different keys do not wait
 * for each other. One client cannot take all places of operations in execution: other clients find
 * free places. The results in an arena are in the order of the batch.
 */
struct kv_batch {
	struct kv_op *ops;
	unsigned n;
	uint64_t client;       /* number of the client, any value */
	unsigned begun, ended; /* counts of operations; used by the store */
	struct kv_batch *next; /* used by the store */
};

void kv_submit(struct kv *kv, struct kv_batch *batch);
static inline bool kv_finished(const struct kv_batch *batch)
{
	return batch->ended == batch->n;
}
/* Continues all batches. With `wait`, if no batch can run, blocks until the far tier has a line. */
void kv_poll(struct kv *kv, bool wait);
/* Ends a batch. An operation that is not finished had no effect. */
void kv_cancel(struct kv *kv, struct kv_batch *batch);

/* Sets the memory that may be used, up to the `size` of kv_open(). Returns 0 or -EINVAL. */
int kv_set_limit(struct kv *kv, uint64_t bytes);

/*
 * Performs at most `n` steps of growth, if the index needs them. A step splits one bucket. Returns
 * the number of steps.
 */
unsigned kv_grow(struct kv *kv, unsigned n);

/*
 * Makes memory present that growth needs next, a huge page of the index and of each segment at a
 * time, and up to two ahead. Otherwise the first operation that uses the page waits until Linux has
 * cleared it. A thread of its own may call this while another thread uses the store. Returns
 * whether memory was missing. `grown` is called by the thread that uses the store when growth
 * reaches another huge page. A store with a far tier needs neither: kv_on_growth() returns false,
 * and kv_prepare() must not be called.
 */
bool kv_prepare(struct kv *kv);
bool kv_on_growth(struct kv *kv, void (*grown)(void *ctx), void *ctx);

/*
 * A pair that `visit` gets. `visit` must not use the store. It returns false to stop the scan
 * before this pair, which a scan from the new cursor visits again. The pair is valid during the
 * call.
 */
struct kv_pair {
	const uint8_t *key, *value;
	uint32_t key_len, value_len, expires;
};
typedef bool (*kv_visit)(void *ctx, const struct kv_pair *pair);

/*
 * Visits the pairs of the next `buckets` buckets from `cursor`, which starts at 0. Returns the new
 * cursor, or 0 if all buckets were visited. Any number is a valid cursor. A pair that exists during
 * the whole scan is visited at least once, even if the index grows meanwhile.
 */
uint64_t kv_scan(struct kv *kv, uint64_t cursor, uint64_t buckets, kv_visit visit, void *ctx);

/*
 * The same without waiting for a far tier: visits the pairs of one bucket, and moves the cursor on.
 * Returns 0, or an error after which the cursor is as it was:
 *	-EAGAIN	lines are being read, an operation is divided, or the client has its share of
 *		scans; to be called again after kv_poll(). `visit` may have been called: it is
 *		called for the same pairs again
 *	-EIO	the far tier failed
 * A scan that is not called again before its end, or an error, must be ended.
 */
struct kv_scan_state {
	uint64_t cursor;
	uint64_t client;
	unsigned waiting; /* used by the store; 0 at the start */
};
int kv_scan_next(struct kv *kv, struct kv_scan_state *s, kv_visit visit, void *ctx);
void kv_scan_end(struct kv *kv, struct kv_scan_state *s);
/*
 * Continues reads of the far tier, but runs no operations, which kv_poll() does. Returns whether a
 * line arrived.
 */
bool kv_scan_poll(struct kv *kv);

/* Returns 0, or -EIO: the far tier failed, and all operations fail. */
int kv_far_error(const struct kv *kv);
/*
 * Sets the function that is called once, with a negative errno, when the far tier fails. The thread
 * that uses the store calls it. Without a far tier it is not called.
 */
void kv_on_far_error(struct kv *kv, void (*failed)(void *ctx, int err), void *ctx);

void kv_get_stat(const struct kv *kv, struct kv_stat *stat);

/* Checks all invariants, for tests. Returns NULL or a description of the error. Slow. */
const char *kv_check(struct kv *kv);

#endif
