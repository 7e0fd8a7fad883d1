/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `prism`, described in roost/prism.h. The whole chain is checked before its first
 * operation runs, so that an invalid chain has no effect.
 */
#include <endian.h>
#include <string.h>

#include "base/mem.h"
#include "builtin/builtin.h"
#include "roost/prism.h"

#define ALL_FLAGS                                                                                  \
	(ROOST_PRISM_INDIRECT | ROOST_PRISM_BOUNDED | ROOST_PRISM_DATA_INDIRECT |                  \
	 ROOST_PRISM_CONDITIONAL | ROOST_PRISM_REDIRECT)

struct prism {
	uint32_t ops, i;
	uint32_t at;   /* offset of the next operation in the parameters */
	uint32_t used; /* bytes of the reply */
	uint32_t failed;
	struct roost_prism_op op;
	const uint8_t *data; /* data that follow the operation */
	uint64_t target;
	struct roost_prism_pointer pointer;
	struct roost_prism_list list;
	/*
	 * value to return, in memory byte order: address of the buffer, or previous value of the
	 * target
	 */
	uint64_t word;
	uint64_t seen;
};

struct reply {
	struct roost_prism_result result[ROOST_PRISM_MAX_OPS];
	uint8_t output[ROOST_PRISM_MAX_OUTPUT];
};

static bool is(const struct prism *s, uint8_t flag)
{
	return s->op.flags & flag;
}

static bool carries_data(const struct roost_prism_op *op)
{
	return (op->what == ROOST_PRISM_WRITE || op->what == ROOST_PRISM_ALLOCATE) &&
	       !(op->flags & ROOST_PRISM_DATA_INDIRECT);
}

/* Takes the next operation out of the parameters. Returns false if it is incomplete. */
static bool next(struct prism *s, const struct roost_call *c)
{
	const uint8_t *p = c->params;
	struct roost_prism_op *op = &s->op;
	uint64_t inl;

	if (c->params_len - s->at < sizeof(*op))
		return false;
	memcpy(op, p + s->at, sizeof(*op));
	s->at += (uint32_t)sizeof(*op);
	s->data = p + s->at;
	op->len = le32toh(op->len);
	op->addr = le64toh(op->addr);
	op->data = le64toh(op->data);
	op->redirect = le64toh(op->redirect);
	op->expect = le64toh(op->expect);
	op->expect_mask = le64toh(op->expect_mask);
	op->swap_mask = le64toh(op->swap_mask);
	inl = carries_data(op) ? ALIGN_UP((uint64_t)op->len, 8) : 0;
	if (inl > c->params_len - s->at)
		return false;
	s->at += (uint32_t)inl;
	return true;
}

static bool is_valid(const struct roost_prism_op *op)
{
	uint8_t never = 0;

	switch ((enum roost_prism_what)op->what) {
	case ROOST_PRISM_READ:
		never = ROOST_PRISM_DATA_INDIRECT;
		break;
	case ROOST_PRISM_WRITE:
		never = ROOST_PRISM_REDIRECT;
		break;
	case ROOST_PRISM_ALLOCATE:
		never = ROOST_PRISM_INDIRECT;
		break;
	case ROOST_PRISM_CAS:
		if (op->len != 8 || op->relation > ROOST_PRISM_GREATER_THAN)
			return false;
		never = ROOST_PRISM_BOUNDED;
		break;
	default:
		return false;
	}
	return !op->reserved && !(op->flags & (never | ~ALL_FLAGS)) &&
	       (!(op->flags & ROOST_PRISM_BOUNDED) || op->flags & ROOST_PRISM_INDIRECT);
}

/* Returns the most bytes that the operation adds to the reply. */
static uint64_t most_output(const struct roost_prism_op *op)
{
	if (op->what == ROOST_PRISM_WRITE || op->flags & ROOST_PRISM_REDIRECT)
		return 0;
	return op->what == ROOST_PRISM_READ ? ALIGN_UP((uint64_t)op->len, 8) : 8;
}

static bool take_params(struct prism *s, const struct roost_call *c)
{
	struct roost_prism_params p;
	uint64_t output = 0;

	if (c->params_len < sizeof(p))
		return false;
	memcpy(&p, c->params, sizeof(p));
	s->ops = le32toh(p.ops);
	if (!s->ops || s->ops > ROOST_PRISM_MAX_OPS || p.reserved)
		return false;
	s->at = sizeof(p);
	for (uint32_t i = 0; i < s->ops; i++) {
		if (!next(s, c) || !is_valid(&s->op))
			return false;
		output += most_output(&s->op);
	}
	if (s->at != c->params_len || output > ROOST_PRISM_MAX_OUTPUT)
		return false;
	s->at = sizeof(p);
	s->used = s->ops * (uint32_t)sizeof(struct roost_prism_result);
	return true;
}

/* Ends the operation, of which `len` bytes were transferred. */
static void finish(struct prism *s, struct reply *r, uint32_t status, uint32_t len)
{
	r->result[s->i] = (struct roost_prism_result){htole32(status), htole32(len)};
	s->failed = status;
	if (most_output(&s->op)) {
		memset((uint8_t *)r + s->used + len, 0, ALIGN_UP(len, 8u) - len);
		s->used += ALIGN_UP(len, 8u);
	}
}

/* Returns the place in the reply for the next returned bytes. */
static uint8_t *reply_end(const struct prism *s, struct reply *r)
{
	return (uint8_t *)r + s->used;
}

/* Takes the target from the pointer. Returns false if the pointer is 0. */
static bool follow(struct prism *s)
{
	uint64_t bound = le64toh(s->pointer.len);

	s->target = le64toh(s->pointer.addr);
	if (is(s, ROOST_PRISM_BOUNDED) && bound < s->op.len)
		s->op.len = (uint32_t)bound;
	return s->target != 0;
}

/* Returns 0 if the list has a buffer for the data, or the status of the failure. */
static uint32_t list_status(const struct prism *s)
{
	if (s->list.taken == s->list.given)
		return ROOST_RPC_MISS;
	return s->op.len > le64toh(s->list.size) ? ROOST_RPC_TOO_LONG : 0;
}

static uint64_t head_slot(const struct prism *s)
{
	return s->op.addr + sizeof(s->list) + 8 * (le64toh(s->list.taken) & le64toh(s->list.mask));
}

static bool compares(const struct prism *s)
{
	uint64_t there = le64toh(s->word) & s->op.expect_mask,
		 expect = s->op.expect & s->op.expect_mask;

	switch ((enum roost_prism_relation)s->op.relation) {
	case ROOST_PRISM_EQUAL:
		return there == expect;
	case ROOST_PRISM_NOT_EQUAL:
		return there != expect;
	case ROOST_PRISM_LESS_THAN:
		return there < expect;
	case ROOST_PRISM_GREATER_THAN:
		return there > expect;
	}
	return false;
}

static uint64_t swapped(const struct prism *s)
{
	uint64_t mask = htole64(s->op.swap_mask);

	return (s->word & ~mask) | (s->op.swap & mask);
}

static enum roost_next prism(struct roost_call *c)
{
	struct reply *r = c->scratch;
	struct prism *s = c->state;

	ROOST_STEPS(c);
	if (!take_params(s, c))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	for (; s->i < s->ops; s->i++) {
		next(s, c);
		if (is(s, ROOST_PRISM_CONDITIONAL) && s->failed) {
			finish(s, r, ROOST_PRISM_SKIPPED, 0);
			continue;
		}
		s->target = s->op.addr;
		if (is(s, ROOST_PRISM_INDIRECT)) {
			ROOST_READ(c, s->target, &s->pointer, is(s, ROOST_PRISM_BOUNDED) ? 16 : 8);
			if (!follow(s)) {
				finish(s, r, ROOST_RPC_MISS, 0);
				continue;
			}
		}
		if (s->op.what == ROOST_PRISM_READ) {
			if (is(s, ROOST_PRISM_REDIRECT))
				ROOST_COPY(c, s->op.redirect, s->target, s->op.len);
			else
				ROOST_READ(c, s->target, reply_end(s, r), s->op.len);
			finish(s, r, ROOST_RPC_OK, s->op.len);
			continue;
		}
		if (s->op.what == ROOST_PRISM_ALLOCATE) {
			/*
			 * The counts only rise. If `taken` is unchanged, no other call took a
			 * buffer meanwhile, and the word that was read is the buffer's address.
			 */
			do {
				ROOST_READ(c, s->op.addr, &s->list, sizeof(s->list));
				if (list_status(s))
					break;
				ROOST_READ(c, head_slot(s), &s->word, 8);
				s->seen = s->list.taken;
				ROOST_CAS(c, s->op.addr, &s->seen, htole64(le64toh(s->seen) + 1));
			} while (s->seen != s->list.taken);
			if (list_status(s)) {
				finish(s, r, list_status(s), 0);
				continue;
			}
			s->target = le64toh(s->word);
		}
		if (s->op.what != ROOST_PRISM_CAS) {
			if (is(s, ROOST_PRISM_DATA_INDIRECT))
				ROOST_COPY(c, s->target, s->op.data, s->op.len);
			else
				ROOST_WRITE(c, s->target, s->data, s->op.len);
			if (s->op.what == ROOST_PRISM_WRITE) {
				finish(s, r, ROOST_RPC_OK, s->op.len);
				continue;
			}
		} else {
			if (is(s, ROOST_PRISM_DATA_INDIRECT))
				ROOST_READ(c, s->op.data, &s->op.swap, 8);
			ROOST_READ(c, s->target, &s->word, 8);
			s->seen = ~s->word;
			while (compares(s) && s->seen != s->word) {
				s->seen = s->word;
				ROOST_CAS(c, s->target, &s->word, swapped(s));
			}
		}
		if (is(s, ROOST_PRISM_REDIRECT))
			ROOST_WRITE(c, s->op.redirect, &s->word, 8);
		else
			memcpy(reply_end(s, r), &s->word, 8);
		finish(s, r,
		       s->op.what == ROOST_PRISM_ALLOCATE || compares(s) ? ROOST_RPC_OK
									 : ROOST_RPC_MISS,
		       8);
	}
	ROOST_REPLY(c, r, s->used);
	ROOST_STEPS_END;
}

const struct roost_kernel kernel_prism = {
	.abi = ROOST_KERNEL_ABI,
	.version = 1,
	.name = "prism",
	.op = ROOST_PRISM_OP,
	.state_size = sizeof(struct prism),
	.scratch_size = sizeof(struct reply),
	.params = prism,
};
