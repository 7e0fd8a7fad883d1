/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations on values in extents, in pieces of an extent. Between the pieces the store must not be
 * used for anything else, so that operations stay atomic: a pair may have a part of its new value.
 * All checks come before the first piece that changes the value.
 *
 *	GET			PART_GET
 *	PUT			PART_STORE
 *	PUT_COMPARE		PART_COMPARE, and PART_STORE; or PART_GET from the first difference
 *	TOUCH			PART_GET_ALL, PART_STORE
 *	updates			PART_CHANGE; with `fetch` after PART_FETCH
 *	REDUCE			PART_REDUCE
 *	FILTER			PART_FILTER; PART_RESULT if the result might not have fitted
 *
 * With a registered function, which works on a copy of the value:
 *
 *	updates			PART_TAKE, PART_CALL; with `fetch` PART_FETCH; PART_STORE
 *	REDUCE			PART_TAKE, PART_CALL
 *	FILTER			PART_TAKE, PART_CALL, PART_RESULT
 *
 * With a far tier an operation in pieces is one transaction. All lines of the value are requested
 * before the first piece, so that a missing one ends the transaction before any piece was done.
 */
#include "kv/part.h"

#include <errno.h>

#include "kv/store.h"

_Static_assert(sizeof(((struct kv_part *)0)->extent) / 8 == KV_VALUE_MAX / SLAB_MAX,
	       "each extent has a place");

bool kv_part_divides(const struct kv *kv, const struct kv_loc *loc)
{
	return unlikely(kv->divides) && !loc->is_inline && !loc->pair.value;
}

bool kv_part_divides_elements(const struct kv *kv, const struct kv_op *op, const struct kv_loc *loc)
{
	return unlikely(kv->divides) && !loc->is_inline &&
	       kv_element_bytes(op, loc->pair.value_len) > SLAB_MAX;
}

bool kv_part_divides_registered(const struct kv *kv, const struct kv_op *op,
				const struct kv_loc *loc)
{
	return unlikely(kv->divides) && !loc->is_inline &&
	       loc->pair.value_len > kv_registered_piece(kv, op);
}

/* Ends the transaction if a line of the extents is missing. */
static void need_extents(const struct kv *kv, uint32_t len)
{
	uint32_t missing_len = 0, n;
	uint64_t missing = 0;

	if (likely(kv->mem.near == NULL))
		return;
	for (uint32_t at = 0; at < len; at += n) {
		uint64_t addr = kv->part.extent[at / SLAB_MAX];

		n = len - at < SLAB_MAX ? len - at : SLAB_MAX;
		if (kv_near_want(kv->mem.near, addr, n)) {
			missing = addr;
			missing_len = n;
		}
	}
	if (missing_len)
		kv_near_need(kv->mem.near, missing, missing_len);
}

static int begin(struct kv_part *p, struct kv_op *op, enum kv_part_work work, uint32_t len)
{
	p->op = op;
	p->work = work;
	p->at = 0;
	p->len = len;
	return -EINPROGRESS;
}

int kv_part_store(struct kv *kv, struct kv_op *op, const void *from, uint32_t len)
{
	need_extents(kv, len);
	kv->part.from = from;
	return begin(&kv->part, op, PART_STORE, len);
}

/* Filters go to the result at once if all elements have space there. */
static void begin_filter(struct kv *kv, const struct kv_op *op, uint32_t len)
{
	struct kv_part *p = &kv->part;
	size_t space = op->arena ? (size_t)(op->arena->end - op->arena->at) : op->out_cap;

	p->found = 0;
	p->from = kv->gather;
	p->out = space < len ? kv->gather : op->arena ? op->arena->at : op->out;
}

int kv_part_begin(struct kv *kv, struct kv_op *op, enum kv_part_work work, struct kv_loc *loc)
{
	uint32_t len = loc->pair.value_len;
	struct kv_part *p = &kv->part;
	int err = 0;

	p->status = 0;
	if (work == PART_COMPARE && len != op->expect_len) {
		work = PART_GET;
		p->status = -ECANCELED;
	}
	if (work == PART_GET || work == PART_FETCH)
		err = kv_claim_result(op, len);
	if (err)
		return err;
	if (work == PART_REDUCE)
		memcpy(&p->acc, op->value, element_width(op->type));
	if (work == PART_FILTER)
		begin_filter(kv, op, len);
	if (work == PART_TAKE)
		kv_begin_registered(kv, op);
	kv_record_extents(kv, kv_segment(kv, op->hash), slot_place(bucket_slot(loc->at, loc->slot)),
			  p->extent);
	need_extents(kv, len);
	return begin(p, op, work, len);
}

/*
 * Works on the next n bytes, which are in one extent. Returns false if PART_COMPARE differs, or if
 * the function of PART_CALL failed, whose error is p->status.
 */
static bool run_piece(struct kv *kv, struct kv_part *p, uint32_t n)
{
	const uint64_t addr = p->extent[p->at / SLAB_MAX] + p->at % SLAB_MAX;
	const struct kv_op *op = p->op;
	const uint8_t *value;

	if (p->work == PART_STORE) {
		memcpy(kv_write(&kv->mem, addr, n), p->from + p->at, n);
		return true;
	}
	if (p->work == PART_CHANGE) {
		kv_change_elements(kv, op, kv_change(&kv->mem, addr, n), p->at, n);
		return true;
	}
	if (p->work == PART_RESULT) {
		memcpy((uint8_t *)op->out + p->at, p->from + p->at, n);
		return true;
	}
	if (p->work == PART_CALL) {
		p->status = kv_call_registered(kv, p, n);
		return !p->status;
	}
	value = kv_read(&kv->mem, addr, n);
	switch (p->work) {
	case PART_COMPARE:
		return memcmp(value, (const uint8_t *)op->expect + p->at, n) == 0;
	case PART_GET_ALL:
		memcpy(kv->gather + p->at, value, n);
		break;
	case PART_TAKE:
		memcpy(kv_registered_elements(kv) + p->at, value, n);
		break;
	case PART_REDUCE:
		kv->elements->fn[op->fn][op->type].reduce(&p->acc, value,
							  n / element_width(op->type));
		break;
	case PART_FILTER:
		p->found +=
			(uint32_t)element_filter(op->fn, op->type)(
				p->out + p->found, value, op->value, n / element_width(op->type)) *
			element_width(op->type);
		break;
	default:
		memcpy((uint8_t *)op->out + p->at, value, n);
		break;
	}
	return true;
}

static int end_filter(struct kv *kv, struct kv_part *p)
{
	bool direct = p->work == PART_FILTER && p->out != kv->gather;
	int err = kv_claim_result(p->op, p->found);

	return err || direct ? err : begin(p, p->op, PART_RESULT, p->found);
}

/* The function has worked on all elements. */
static int end_calls(struct kv *kv, struct kv_part *p)
{
	struct kv_op *op = p->op;
	int err;

	p->from = kv_registered_elements(kv);
	if (op->code == KV_REDUCE)
		return kv_put_result(op, &p->acc, element_width(op->type));
	if (op->code == KV_FILTER)
		return end_filter(kv, p);
	if (!op->fetch)
		return begin(p, op, PART_STORE, p->len);
	err = kv_claim_result(op, p->len);
	return err ? err : begin(p, op, PART_FETCH, p->len);
}

/* Ends a kind of work. Returns the status of the operation, -EINPROGRESS if other work follows. */
static int next_work(struct kv *kv, struct kv_part *p)
{
	switch (p->work) {
	case PART_GET_ALL:
	case PART_COMPARE:
		return kv_store_rest(kv, p->op);
	case PART_FETCH:
		return begin(p, p->op, p->op->fn >= KV_FN_REGISTERED ? PART_STORE : PART_CHANGE,
			     p->len);
	case PART_TAKE:
		return begin(p, p->op, PART_CALL, p->len);
	case PART_CALL:
		return end_calls(kv, p);
	case PART_REDUCE:
		return kv_put_result(p->op, &p->acc, element_width(p->op->type));
	case PART_FILTER:
		return end_filter(kv, p);
	case PART_GET:
		return p->status;
	default:
		return 0;
	}
}

/* The value is not `expect`, so it is the result. */
static int differs(struct kv_part *p)
{
	int err = kv_claim_result(p->op, p->len);

	p->status = -ECANCELED;
	return err ? err : begin(p, p->op, PART_GET, p->len);
}

static bool on_elements(const struct kv_part *p)
{
	return p->work == PART_CHANGE || p->work == PART_REDUCE || p->work == PART_FILTER;
}

static bool changes(const struct kv_part *p)
{
	return p->work == PART_STORE || p->work == PART_CHANGE;
}

/* Returns the length of the next piece: an extent, or elements that take as long. */
static uint32_t next_piece(const struct kv *kv, const struct kv_part *p)
{
	uint32_t n = SLAB_MAX - p->at % SLAB_MAX, most = SLAB_MAX;

	if (p->work == PART_CALL)
		most = kv_registered_piece(kv, p->op);
	if (on_elements(p))
		most = SLAB_MAX / kv_element_cost(p->op) * element_width(p->op->type);
	n = n < most ? n : most;
	return n < p->len - p->at ? n : p->len - p->at;
}

bool kv_part_run(struct kv *kv, uint64_t until)
{
	struct kv_part *p = &kv->part;
	int status = -EINPROGRESS;

	while (status == -EINPROGRESS) {
		uint32_t n = next_piece(kv, p);

		if (kv->bytes >= until)
			return false;
		if (p->work != PART_CALL)
			kv->bytes += on_elements(p) ? kv_element_bytes(p->op, n) : n;
		if (unlikely(kv->mem.near != NULL) && changes(p))
			kv->bytes += n; /* the old bytes are saved */
		if (n && !run_piece(kv, p, n)) {
			status = p->work == PART_CALL ? p->status : differs(p);
			continue;
		}
		p->at += n;
		if (p->at == p->len)
			status = next_work(kv, p);
	}
	p->op->status = status;
	p->op = NULL;
	return true;
}
