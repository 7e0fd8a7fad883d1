/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations on values in extents that run in pieces, for run.c, vector.c and record.c. */
#ifndef ROOST_KV_PART_H
#define ROOST_KV_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/element.h"
#include "kv/kv.h"
#include "kv/slab.h"

struct kv_loc;

/* The work on the next bytes of the value. */
enum kv_part_work {
	PART_GET,     /* the value to the result */
	PART_GET_ALL, /* the value to kv->gather, for PART_STORE */
	PART_STORE,   /* the new value to its extents, which were allocated */
	PART_COMPARE, /* the value with `expect` */
	PART_FETCH,   /* the value to the result, then PART_CHANGE */
	PART_CHANGE,
	PART_REDUCE,
	PART_FILTER,
	PART_RESULT, /* the elements of a filter to the result, if they were put elsewhere */
	PART_TAKE,   /* the value to a copy for a registered function */
	PART_CALL,   /* the function on elements of the copy */
};

struct kv_part {
	struct kv_op *op; /* the operation that is not finished; NULL: none */
	enum kv_part_work work;
	int status;	     /* of the operation, after PART_GET */
	uint32_t at;	     /* bytes that are done */
	uint32_t len;	     /* bytes in all */
	uint8_t *out;	     /* result of PART_FILTER */
	uint32_t found;	     /* bytes of that result */
	const uint8_t *from; /* source of PART_STORE and PART_RESULT */
	uint64_t acc;	     /* of PART_REDUCE */
	uint64_t extent[16]; /* addresses */
};

/*
 * Begins the work of an operation on the value of a pair that was found, or of PART_STORE on the
 * extents in kv->part. Returns -EINPROGRESS, the status until the last piece.
 */
int kv_part_begin(struct kv *kv, struct kv_op *op, enum kv_part_work work, struct kv_loc *loc);
int kv_part_store(struct kv *kv, struct kv_op *op, const void *from, uint32_t len);
/*
 * Works until kv->bytes has reached `until`. Returns whether the operation is finished. With a far
 * tier this belongs to the transaction of the operation.
 */
bool kv_part_run(struct kv *kv, uint64_t until);
/*
 * Return whether operations on the value of a pair run in pieces now: those on its bytes if it is
 * in extents, those on its elements also if there are many.
 */
bool kv_part_divides(const struct kv *kv, const struct kv_loc *loc);
bool kv_part_divides_elements(const struct kv *kv, const struct kv_op *op,
			      const struct kv_loc *loc);
bool kv_part_divides_registered(const struct kv *kv, const struct kv_op *op,
				const struct kv_loc *loc);

/*
 * Returns the bytes that take about as long to copy as the function takes for an element. Many
 * functions take as long for short elements as for the longest.
 */
static inline uint32_t kv_element_cost(const struct kv_op *op)
{
	if (op->fn >= KV_ADD_SAT && op->fn <= KV_MUL_SAT)
		return 48;
	return op->code == KV_REDUCE || op->code == KV_FILTER ? 16 : 8;
}

/* Returns the bytes that work on the elements in `len` bytes counts as. */
static inline uint32_t kv_element_bytes(const struct kv_op *op, uint32_t len)
{
	return (len >> log2_floor(element_width(op->type))) * kv_element_cost(op);
}

/* run.c: stores the pair of an operation whose value was compared, or read into kv->gather */
int kv_store_rest(struct kv *kv, struct kv_op *op);

#endif
