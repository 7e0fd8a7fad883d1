/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations on values as vectors of elements. All checks come before the first change, and a
 * built-in function cannot fail, so an update changes the value in its place. Registered functions
 * are in functions.c.
 */
#include <errno.h>

#include "kv/store.h"

static bool is_vector(const struct kv_op *op)
{
	return op->code == KV_UPDATE_VECTOR;
}

static bool has_function(const struct kv *kv, const struct kv_op *op)
{
	if (op->fn >= KV_FN_REGISTERED)
		return kv_has_registered(kv, op);
	if (op->code == KV_FILTER)
		return element_filter(op->fn, op->type);
	if (op->fn == KV_SWAP)
		return op->code != KV_REDUCE;
	return op->fn < KV_FNS_ELEMENT && element_plain()->fn[op->fn][op->type].each;
}

int kv_check_elements(const struct kv *kv, const struct kv_op *op)
{
	unsigned width = element_width(op->type);

	if (!width || !has_function(kv, op))
		return -EINVAL;
	if (is_vector(op) ? op->value_len % width : op->value_len != width)
		return -EINVAL;
	return op->fn == KV_SWAP && op->expect_len != op->value_len ? -EINVAL : 0;
}

static bool fits(const struct kv_op *op, uint32_t len, unsigned width)
{
	if (op->code == KV_UPDATE)
		return len == width;
	return is_vector(op) ? len == op->value_len : len % width == 0;
}

void kv_change_elements(const struct kv *kv, const struct kv_op *op, uint8_t *to, uint32_t offset,
			uint32_t len)
{
	size_t n = len / element_width(op->type);
	const uint8_t *operand = op->value, *expect = op->expect;

	if (op->fn == KV_SWAP) {
		const struct element_swap *s =
			&kv->elements->swap[log2_floor(element_width(op->type))];

		if (is_vector(op))
			s->vector(to, expect + offset, operand + offset, n);
		else
			s->each(to, expect, operand, n);
	} else {
		const struct element_fn *f = &kv->elements->fn[op->fn][op->type];

		if (is_vector(op))
			f->vector(to, operand + offset, n);
		else
			f->each(to, operand, n);
	}
}

static int update(struct kv *kv, struct kv_op *op, struct kv_loc *loc)
{
	uint32_t len = loc->pair.value_len, n;

	if (kv_part_divides_elements(kv, op, loc))
		return kv_part_begin(kv, op, op->fetch ? PART_FETCH : PART_CHANGE, loc);
	if (op->fetch || (op->code == KV_UPDATE && op->fn == KV_SWAP)) {
		const uint8_t *value = kv_value(kv, op->hash, loc);
		int err = op->fetch ? kv_put_result(op, value, len) : 0;

		if (err)
			return err;
		if (op->code == KV_UPDATE && op->fn == KV_SWAP && memcmp(value, op->expect, len))
			return -ECANCELED;
	}
	/* Each extent has whole elements. */
	for (uint32_t offset = 0; offset < len; offset += n) {
		uint8_t *to = kv_value_change(kv, op->hash, loc, offset, &n);

		kv_change_elements(kv, op, to, offset, n);
	}
	return 0;
}

static int reduce(struct kv *kv, struct kv_op *op, struct kv_loc *loc)
{
	unsigned width = element_width(op->type);
	uint64_t acc;

	if (kv_part_divides_elements(kv, op, loc))
		return kv_part_begin(kv, op, PART_REDUCE, loc);
	memcpy(&acc, op->value, width);
	kv->elements->fn[op->fn][op->type].reduce(&acc, kv_value(kv, op->hash, loc),
						  loc->pair.value_len / width);
	return kv_put_result(op, &acc, width);
}

static int filter(struct kv *kv, struct kv_op *op, struct kv_loc *loc)
{
	element_filter_fn *f = element_filter(op->fn, op->type);
	unsigned width = element_width(op->type);
	uint32_t len = loc->pair.value_len, matched;
	bool direct = !op->arena && op->out_cap >= len;
	void *to = direct ? op->out : kv->gather;

	if (kv_part_divides_elements(kv, op, loc))
		return kv_part_begin(kv, op, PART_FILTER, loc);
	matched = (uint32_t)f(to, kv_value(kv, op->hash, loc), op->value, len / width) * width;
	if (!direct)
		return kv_put_result(op, to, matched);
	op->out_len = matched;
	return 0;
}

int kv_run_elements(struct kv *kv, struct kv_op *op, struct kv_loc *loc)
{
	if (!fits(op, loc->pair.value_len, element_width(op->type)))
		return -ERANGE;
	if (op->fn >= KV_FN_REGISTERED)
		return kv_run_registered(kv, op, loc);
	if (op->code == KV_REDUCE)
		return reduce(kv, op, loc);
	return op->code == KV_FILTER ? filter(kv, op, loc) : update(kv, op, loc);
}
