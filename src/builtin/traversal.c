/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `traversal`, described in roost/traversal.h. It makes one access per element. Values
 * are sent from the region without a copy.
 */
#include <endian.h>
#include <string.h>

#include "builtin/builtin.h"
#include "roost/traversal.h"

#define UNIT 4u

struct traversal {
	struct roost_traversal_params p;
	uint64_t at; /* address of the element */
	uint32_t looked;
	bool chain;		    /* a list or hash chain: is_chain() */
	uint32_t key_off, next_off; /* chain: offsets in the element in bytes */
	uint64_t key;		    /* in memory byte order */
	uint8_t element[ROOST_TRAVERSAL_MAX_ELEMENT] __attribute__((aligned(64)));
};

/*
 * Converts a mask. Returns false if it names a position at which a key would exceed the element.
 * *any: the mask names a position.
 */
static bool take_mask(uint64_t *mask, uint32_t units, bool *any)
{
	*any = false;
	for (unsigned i = 0; i < ROOST_TRAVERSAL_MASK_WORDS; i++) {
		uint64_t allowed = units >= 64 * (i + 1) ? UINT64_MAX
				   : units <= 64 * i	 ? 0
							 : (1ull << units % 64) - 1;

		mask[i] = le64toh(mask[i]);
		if (mask[i] & ~allowed)
			return false;
		*any |= mask[i] != 0;
	}
	return true;
}

/* Checks all parameters, but not that positions are inside of the element: see inside(). */
static bool take_params(struct traversal *s, const struct roost_call *c)
{
	struct roost_traversal_params *p = &s->p;
	uint32_t units; /* number of positions at which a key fits in the element */
	bool any;

	if (c->params_len != sizeof(*p))
		return false;
	memcpy(p, c->params, sizeof(*p));
	p->element_len = le32toh(p->element_len);
	p->value_len = le32toh(p->value_len);
	p->bound = le32toh(p->bound);
	p->key_len = le16toh(p->key_len);
	p->value_pos = (int16_t)le16toh((uint16_t)p->value_pos);
	p->next_pos = (int16_t)le16toh((uint16_t)p->next_pos);
	p->else_pos = (int16_t)le16toh((uint16_t)p->else_pos);
	p->flags = le16toh(p->flags);
	if (!p->element_len || p->element_len % UNIT ||
	    p->element_len > ROOST_TRAVERSAL_MAX_ELEMENT || !p->bound)
		return false;
	if (p->key_len < UNIT || p->key_len % UNIT || p->key_len > ROOST_TRAVERSAL_MAX_KEY ||
	    p->key_len > p->element_len)
		return false;
	if (p->predicate > ROOST_TRAVERSAL_NOT_EQUAL || p->next > ROOST_TRAVERSAL_NEXT_BY_ORDER ||
	    p->flags & ~(ROOST_TRAVERSAL_VALUE_RELATIVE | ROOST_TRAVERSAL_VALUE_INSIDE))
		return false;
	units = (p->element_len - p->key_len) / UNIT + 1;
	if (!take_mask(p->key_mask, units, &any) || !take_mask(p->order_mask, units, &any))
		return false;
	if (!any)
		memcpy(p->order_mask, p->key_mask, sizeof(p->order_mask));
	s->at = le64toh(p->root);
	return true;
}

/* Returns the first position of a key from `pos` on, or -1. */
static int next_key(const uint64_t *mask, int pos)
{
	for (int i = pos / 64; i < ROOST_TRAVERSAL_MASK_WORDS; i++) {
		uint64_t bits = mask[i];

		if (i == pos / 64)
			bits &= UINT64_MAX << pos % 64;
		if (bits)
			return i * 64 + __builtin_ctzll(bits);
	}
	return -1;
}

/*
 * Compares the element's key at `pos` with the search key. Returns less than, equal to or greater
 * than 0. Keys are little-endian, so the last bytes are compared first.
 */
static inline int compare(const struct traversal *s, int pos)
{
	const uint8_t *have = s->element + (unsigned)pos * UNIT, *want = s->p.key;
	unsigned left = s->p.key_len;
	uint64_t a, b;
	uint32_t x, y;

	while (left >= sizeof(a)) {
		left -= (unsigned)sizeof(a);
		memcpy(&a, have + left, sizeof(a));
		memcpy(&b, want + left, sizeof(b));
		if (a != b)
			return le64toh(a) < le64toh(b) ? -1 : 1;
	}
	if (!left)
		return 0;
	memcpy(&x, have, sizeof(x));
	memcpy(&y, want, sizeof(y));
	return x == y ? 0 : le32toh(x) < le32toh(y) ? -1 : 1;
}

static inline bool fulfils(uint8_t predicate, int order)
{
	switch ((enum roost_traversal_predicate)predicate) {
	case ROOST_TRAVERSAL_EQUAL:
		return order == 0;
	case ROOST_TRAVERSAL_LESS_THAN:
		return order < 0;
	case ROOST_TRAVERSAL_GREATER_THAN:
		return order > 0;
	default:
		return order != 0;
	}
}

/*
 * Returns the position of the key that matches, or -1. The function runs once per hop, so it is
 * inline, and a mask word without positions costs one test.
 */
static inline int match(const struct traversal *s)
{
	for (int i = 0; i < ROOST_TRAVERSAL_MASK_WORDS; i++)
		for (uint64_t bits = s->p.key_mask[i]; bits; bits &= bits - 1) {
			int pos = i * 64 + __builtin_ctzll(bits);

			if (fulfils(s->p.predicate, compare(s, pos)))
				return pos;
		}
	return -1;
}

/* Returns whether `len` bytes at a position are inside of the element. */
static bool inside(const struct traversal *s, int pos, uint32_t len)
{
	return pos >= 0 && len <= s->p.element_len &&
	       (unsigned)pos * UNIT <= s->p.element_len - len;
}

static inline bool address_at(const struct traversal *s, int pos, uint64_t *out)
{
	if (!inside(s, pos, sizeof(*out)))
		return false;
	memcpy(out, s->element + (unsigned)pos * UNIT, sizeof(*out));
	*out = le64toh(*out);
	return true;
}

/* Returns the position of the next element's address for ROOST_TRAVERSAL_NEXT_BY_KEY. */
static int child(const struct traversal *s)
{
	const struct roost_traversal_params *p = &s->p;
	int at = p->else_pos;

	for (int pos = next_key(p->order_mask, 0); pos >= 0;
	     pos = next_key(p->order_mask, pos + 1)) {
		if (compare(s, pos) > 0)
			break;
		at = pos + p->key_len / (int)UNIT + p->next_pos;
	}
	return at;
}

/*
 * Sets s->at to the next element's address, or 0 if there is none. Returns false if the position is
 * outside of the element.
 */
static inline bool follow(struct traversal *s)
{
	const struct roost_traversal_params *p = &s->p;
	int first;

	switch ((enum roost_traversal_next)p->next) {
	case ROOST_TRAVERSAL_NEXT_FIXED:
		return address_at(s, p->next_pos, &s->at);
	case ROOST_TRAVERSAL_NEXT_BY_KEY:
		return address_at(s, child(s), &s->at);
	case ROOST_TRAVERSAL_NEXT_BY_ORDER:
		first = next_key(p->order_mask, 0);
		return first >= 0 &&
		       address_at(s, compare(s, first) > 0 ? p->next_pos : p->else_pos, &s->at);
	default:
		s->at = 0;
		return true;
	}
}

/*
 * Returns whether elements have one key of 8 bytes, compared for equality, and one next element. A
 * hop then costs two loads and a compare.
 */
static bool is_chain(struct traversal *s)
{
	const struct roost_traversal_params *p = &s->p;
	int pos = next_key(p->key_mask, 0);

	if (pos < 0 || next_key(p->key_mask, pos + 1) >= 0 || p->key_len != sizeof(s->key) ||
	    p->predicate != ROOST_TRAVERSAL_EQUAL || p->next != ROOST_TRAVERSAL_NEXT_FIXED ||
	    !inside(s, p->next_pos, sizeof(uint64_t)))
		return false;
	memcpy(&s->key, p->key, sizeof(s->key));
	s->key_off = (uint32_t)pos * UNIT;
	s->next_off = (uint32_t)p->next_pos * UNIT;
	return true;
}

static inline uint64_t word_at(const struct traversal *s, uint32_t off)
{
	uint64_t word;

	memcpy(&word, s->element + off, sizeof(word));
	return word;
}

static enum roost_next found(struct roost_call *c, const struct traversal *s, int key)
{
	const struct roost_traversal_params *p = &s->p;
	int pos = p->value_pos + (p->flags & ROOST_TRAVERSAL_VALUE_RELATIVE ? key : 0);
	uint64_t value;

	if (p->flags & ROOST_TRAVERSAL_VALUE_INSIDE) {
		if (!inside(s, pos, p->value_len))
			ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
		ROOST_REPLY(c, s->element + (unsigned)pos * UNIT, p->value_len);
	}
	if (!address_at(s, pos, &value))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	ROOST_REPLY_FROM(c, value, p->value_len);
}

static enum roost_next traversal(struct roost_call *c)
{
	struct traversal *s = c->scratch;
	int key;

	ROOST_STEPS(c);
	if (!take_params(s, c))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	s->chain = is_chain(s);
	for (s->looked = 0; s->at; s->looked++) {
		if (s->looked == s->p.bound)
			ROOST_FAIL(c, ROOST_RPC_BOUND);
		ROOST_READ(c, s->at, s->element, s->p.element_len);
		if (s->chain) {
			if (word_at(s, s->key_off) == s->key)
				return found(c, s, (int)(s->key_off / UNIT));
			s->at = le64toh(word_at(s, s->next_off));
			continue;
		}
		key = match(s);
		if (key >= 0)
			return found(c, s, key);
		if (!follow(s))
			ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	}
	ROOST_FAIL(c, ROOST_RPC_MISS);
	ROOST_STEPS_END;
}

const struct roost_kernel kernel_traversal = {
	.abi = ROOST_KERNEL_ABI,
	.version = 1,
	.name = "traversal",
	.op = ROOST_TRAVERSAL_OP,
	.scratch_size = sizeof(struct traversal),
	.params = traversal,
};
