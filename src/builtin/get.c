/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `get`, described in roost/get.h. It makes one access per entry. The value is sent from
 * the region without a copy.
 */
#include <endian.h>
#include <string.h>

#include "builtin/builtin.h"
#include "roost/get.h"

struct get {
	struct roost_get_params p;
	struct roost_get_entry entry __attribute__((aligned(64)));
	uint64_t at;
	uint32_t looked;
};

static bool take_params(struct get *s, const struct roost_call *c)
{
	if (c->params_len != sizeof(s->p))
		return false;
	memcpy(&s->p, c->params, sizeof(s->p));
	s->p.table = le64toh(s->p.table);
	s->p.mask = le64toh(s->p.mask);
	s->p.flags = le32toh(s->p.flags);
	s->p.bound = le32toh(s->p.bound);
	s->at = le64toh(s->p.hash) & s->p.mask;
	return !(s->p.mask & (s->p.mask + 1)) && s->p.bound &&
	       !(s->p.flags & ~(uint32_t)ROOST_GET_PROBE);
}

/*
 * Returns the bucket with the key, or NULL. *full: no bucket of the entry is free. Keys are
 * compared as bytes, since both are little-endian.
 */
static const struct roost_get_bucket *match(const struct get *s, bool *full)
{
	*full = true;
	for (unsigned i = 0; i < ROOST_GET_BUCKETS; i++) {
		const struct roost_get_bucket *b = &s->entry.bucket[i];

		if (!b->value)
			*full = false;
		else if (b->key == s->p.key)
			return b;
	}
	return NULL;
}

/* Sets s->at to the next entry of the search. Returns false if there is none. */
static bool follow(struct get *s, bool full)
{
	uint32_t next = le32toh(s->entry.next);

	if (s->p.flags & ROOST_GET_PROBE) {
		s->at = (s->at + 1) & s->p.mask;
		return full;
	}
	s->at = next - 1ull;
	return next != 0;
}

static enum roost_next get(struct roost_call *c)
{
	const struct roost_get_bucket *b;
	struct get *s = c->state;
	bool full;

	ROOST_STEPS(c);
	if (!take_params(s, c))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	for (;;) {
		ROOST_READ(c, s->p.table + s->at * sizeof(s->entry), &s->entry, sizeof(s->entry));
		b = match(s, &full);
		if (b)
			ROOST_REPLY_FROM(c, le64toh(b->value), le32toh(b->len));
		if (!follow(s, full))
			ROOST_FAIL(c, ROOST_RPC_MISS);
		if (++s->looked == s->p.bound)
			ROOST_FAIL(c, ROOST_RPC_BOUND);
	}
	ROOST_STEPS_END;
}

const struct roost_kernel kernel_get = {
	.abi = ROOST_KERNEL_ABI,
	.version = 1,
	.name = "get",
	.op = ROOST_GET_OP,
	.state_size = sizeof(struct get),
	.params = get,
};
