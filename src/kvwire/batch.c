/* SPDX-License-Identifier: BSD-2-Clause */
/* Batches of operations (docs/kv-wire.md). */
#include <errno.h>

#include "kvwire/kvwire.h"
#include "kvwire/number.h"

/* The first byte of an operation: its code, and flags. */
#define CODE	   0x1fu
#define TTL	   0x20u
#define SAME_VALUE 0x40u
#define SAME_SIZES KVWIRE_SAME_SIZES

enum fields {
	HAS_KEY = 1,
	HAS_VALUE = 2,
	HAS_EXPECT = 4,
	HAS_FUNCTION = 8, /* a function and, if there is a key, a parameter */
	HAS_CURSOR = 16,
};

static const uint8_t fields[ROOST_KV_CODES] = {
	[ROOST_KV_GET] = HAS_KEY,
	[ROOST_KV_PUT] = HAS_KEY | HAS_VALUE,
	[ROOST_KV_PUT_ABSENT] = HAS_KEY | HAS_VALUE,
	[ROOST_KV_PUT_PRESENT] = HAS_KEY | HAS_VALUE,
	[ROOST_KV_PUT_COMPARE] = HAS_KEY | HAS_VALUE | HAS_EXPECT,
	[ROOST_KV_DELETE] = HAS_KEY,
	[ROOST_KV_TOUCH] = HAS_KEY,
	[ROOST_KV_UPDATE] = HAS_KEY | HAS_VALUE | HAS_EXPECT | HAS_FUNCTION,
	[ROOST_KV_UPDATE_EACH] = HAS_KEY | HAS_VALUE | HAS_EXPECT | HAS_FUNCTION,
	[ROOST_KV_UPDATE_VECTOR] = HAS_KEY | HAS_VALUE | HAS_EXPECT | HAS_FUNCTION,
	[ROOST_KV_REDUCE] = HAS_KEY | HAS_VALUE | HAS_EXPECT | HAS_FUNCTION,
	[ROOST_KV_FILTER] = HAS_KEY | HAS_VALUE | HAS_EXPECT | HAS_FUNCTION,
	[ROOST_KV_SCAN] = HAS_FUNCTION | HAS_CURSOR,
	[ROOST_KV_STAT] = 0,
	[ROOST_KV_FIND_FUNCTION] = HAS_KEY,
	[ROOST_KV_PARTITIONS] = 0,
	[ROOST_KV_MOVE_PUT] = HAS_KEY | HAS_VALUE | HAS_CURSOR,
	[ROOST_KV_MOVE_DELETE] = HAS_KEY | HAS_CURSOR,
};

#define HAS_PARAM (HAS_KEY | HAS_FUNCTION)
#define FETCH	  0x80u /* flag in the byte of the type */

/* Bytes of an operation without its key, value, expected value and parameter. */
#define FIXED_MAX (1 + 1 + 3 + 4 + 3 + 8 + 3 + 3)

static bool has_param(unsigned f)
{
	return (f & HAS_PARAM) == HAS_PARAM;
}

bool kvwire_has_value(unsigned code)
{
	return code < ROOST_KV_CODES && fields[code] & HAS_VALUE;
}

/* ---- writing ---- */

void kvwire_begin(struct kvwire_writer *w, void *buf, size_t len)
{
	*w = (struct kvwire_writer){.start = buf, .at = buf, .end = (uint8_t *)buf + len};
	w->at += KVWIRE_HEAD;
}

static uint8_t *put_bytes(uint8_t *at, const void *from, uint32_t len)
{
	if (len)
		memcpy(at, from, len);
	return at + len;
}

static bool same_value(const struct kvwire_same *s, const struct roost_kv_op *op)
{
	return s->value && s->value_len == op->value_len &&
	       (s->value == op->value || !memcmp(s->value, op->value, op->value_len));
}

bool kvwire_add(struct kvwire_writer *w, const struct roost_kv_op *op)
{
	unsigned f = fields[op->code], flags = 0;
	struct kvwire_same *s = &w->same;
	size_t bytes = (f & HAS_KEY ? op->key_len : 0) + (f & HAS_EXPECT ? op->expect_len : 0) +
		       (has_param(f) ? op->param_len : 0);
	bool repeats = f & HAS_VALUE && op->value_len && same_value(s, op);
	uint8_t *at = w->at, *first = at;

	if (f & HAS_VALUE && !repeats)
		bytes += op->value_len;
	if (w->count == KVWIRE_OPS_MAX || bytes + FIXED_MAX > (size_t)(w->end - w->at))
		return false;
	at++;
	if (repeats)
		flags |= SAME_VALUE;
	if (f & HAS_KEY && w->count && op->key_len == s->key_len &&
	    (!(f & HAS_VALUE) || op->value_len == s->value_len))
		flags |= SAME_SIZES;
	if (f & HAS_KEY && !(flags & SAME_SIZES)) {
		*at++ = (uint8_t)op->key_len;
		if (f & HAS_VALUE && !repeats)
			at = put_length(at, op->value_len);
	}
	if (op->ttl) {
		flags |= TTL;
		at = put_u32(at, op->ttl);
	}
	if (f & HAS_FUNCTION) {
		at = put_u16(at, op->function);
		*at++ = (uint8_t)(op->type | (op->fetch ? FETCH : 0));
	}
	if (f & HAS_CURSOR)
		at = put_u64(at, op->cursor);
	if (f & HAS_EXPECT)
		at = put_length(at, op->expect_len);
	if (has_param(f))
		at = put_length(at, op->param_len);
	if (f & HAS_KEY) {
		at = put_bytes(at, op->key, op->key_len);
		s->key_len = op->key_len;
	}
	if (f & HAS_EXPECT)
		at = put_bytes(at, op->expect, op->expect_len);
	if (has_param(f))
		at = put_bytes(at, op->param, op->param_len);
	if (f & HAS_VALUE && !repeats) {
		s->value = at;
		s->value_len = op->value_len;
		at = put_bytes(at, op->value, op->value_len);
	}
	*first = (uint8_t)(op->code | flags);
	w->at = at;
	w->count++;
	return true;
}

size_t kvwire_finish(struct kvwire_writer *w, unsigned flags)
{
	w->start[0] = KVWIRE_VERSION;
	w->start[1] = (uint8_t)flags;
	put_u16(w->start + 2, (uint16_t)w->count);
	return (size_t)(w->at - w->start);
}

/* ---- reading ---- */

int kvwire_open(struct kvwire_reader *r, const void *batch, size_t len)
{
	const uint8_t *p = batch;

	if (len < KVWIRE_HEAD)
		return -EBADMSG;
	if (p[0] != KVWIRE_VERSION || p[1] & ~KVWIRE_LONG)
		return -EPROTONOSUPPORT;
	*r = (struct kvwire_reader){.at = p + KVWIRE_HEAD, .end = p + len, .flags = p[1]};
	r->count = r->left = get_u16(p + 2);
	return 0;
}

static bool take(struct kvwire_reader *r, uint32_t len, const void **out)
{
	*out = r->at;
	if (len > (size_t)(r->end - r->at))
		return false;
	r->at += len;
	return true;
}

/* Reads the sizes of key and value. */
static bool take_sizes(struct kvwire_reader *r, unsigned first, unsigned f, struct roost_kv_op *op)
{
	const struct kvwire_same *s = &r->same;

	op->value_len = f & HAS_VALUE ? s->value_len : 0;
	if (first & SAME_VALUE && !(f & HAS_VALUE && s->value))
		return false;
	if (first & SAME_SIZES) {
		op->key_len = s->key_len;
		return f & HAS_KEY && r->left != r->count;
	}
	if (!(f & HAS_KEY))
		return true;
	if (r->at == r->end)
		return false;
	op->key_len = *r->at++;
	return !(f & HAS_VALUE) || first & SAME_VALUE || get_length(&r->at, r->end, &op->value_len);
}

static bool take_fixed(struct kvwire_reader *r, unsigned first, unsigned f, struct roost_kv_op *op)
{
	const void *p;

	if (first & TTL) {
		if (!take(r, 4, &p))
			return false;
		op->ttl = get_u32(p);
	}
	if (f & HAS_FUNCTION) {
		const uint8_t *b;

		if (!take(r, 3, &p))
			return false;
		b = p;
		op->function = get_u16(b);
		op->type = (uint8_t)(b[2] & ~FETCH);
		op->fetch = b[2] & FETCH;
	}
	if (f & HAS_CURSOR) {
		if (!take(r, 8, &p))
			return false;
		op->cursor = get_u64(p);
	}
	return (!(f & HAS_EXPECT) || get_length(&r->at, r->end, &op->expect_len)) &&
	       (!has_param(f) || get_length(&r->at, r->end, &op->param_len));
}

static bool take_bytes(struct kvwire_reader *r, unsigned first, unsigned f, struct roost_kv_op *op)
{
	struct kvwire_same *s = &r->same;

	if (f & HAS_KEY) {
		if (!take(r, op->key_len, &op->key))
			return false;
		s->key_len = op->key_len;
	}
	if (f & HAS_EXPECT && !take(r, op->expect_len, &op->expect))
		return false;
	if (has_param(f) && !take(r, op->param_len, &op->param))
		return false;
	if (first & SAME_VALUE) {
		op->value = s->value;
	} else if (f & HAS_VALUE) {
		if (!take(r, op->value_len, &op->value))
			return false;
		s->value = op->value;
		s->value_len = op->value_len;
	}
	return true;
}

int kvwire_next(struct kvwire_reader *r, struct roost_kv_op *op)
{
	unsigned first, f;

	if (!r->left)
		return r->at == r->end ? 0 : -EBADMSG;
	if (r->at == r->end)
		return -EBADMSG;
	first = *r->at++;
	if ((first & CODE) >= ROOST_KV_CODES)
		return -EBADMSG;
	f = fields[first & CODE];
	memset(op, 0, offsetof(struct roost_kv_op, out));
	op->code = (uint8_t)(first & CODE);
	if (!take_sizes(r, first, f, op) || !take_fixed(r, first, f, op) ||
	    !take_bytes(r, first, f, op))
		return -EBADMSG;
	r->left--;
	return 1;
}
