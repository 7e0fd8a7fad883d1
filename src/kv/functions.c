/* SPDX-License-Identifier: BSD-2-Clause */
#include "kv/functions.h"

#include <errno.h>
#include <stdlib.h>

#include "kv/store.h"

_Static_assert((int)ROOST_KV_U8 == KV_U8 && (int)ROOST_KV_I64 == KV_I64 &&
		       (int)ROOST_KV_DOUBLE == KV_DOUBLE && ROOST_KV_DOUBLE + 1 == KV_TYPES,
	       "the types of functions are those of operations");

struct registered {
	const struct roost_kv_function *f;
	char name[KV_FUNCTION_NAME];
	enum guard_end end; /* end of the call that disabled the function; 0: it is enabled */
	uint64_t cost;	    /* time of an element in ps, by earlier calls; 0: not known */
};

struct kv_functions {
	struct guard guard;
	unsigned num;
	struct registered list[KV_FUNCTIONS_MAX];
	/* copies of elements, aligned for all types */
	uint8_t elements[KV_VALUE_MAX] __attribute__((aligned(64)));
	uint8_t operands[KV_VALUE_MAX] __attribute__((aligned(64)));
};

static bool is_valid(const struct roost_kv_function *f)
{
	return f->name && f->name[0] && strnlen(f->name, KV_FUNCTION_NAME) < KV_FUNCTION_NAME &&
	       (unsigned)f->type < KV_TYPES && !!f->update + !!f->reduce + !!f->filter == 1;
}

/* A copy of SLAB_MAX bytes takes about PIECE_NS. */
#define BYTES_PER_NS 10u
#define PIECE_NS     (SLAB_MAX / BYTES_PER_NS)
#define FIRST_PIECE  64u /* bytes, while the time of an element is not known */

void kv_set_clock(struct kv *kv, uint64_t (*clock)(void *ctx), void *ctx)
{
	kv->clock = clock;
	kv->clock_ctx = ctx;
}

static int begin(struct kv *kv)
{
	struct kv_functions *fs;
	int err = guard_init();

	if (err)
		return err;
	fs = aligned_alloc(64, sizeof(*fs));
	if (!fs)
		return -ENOMEM;
	memset(fs, 0, sizeof(*fs));
	kv->functions = fs;
	return 0;
}

int kv_register(struct kv *kv, const struct roost_kv_function *f)
{
	struct registered *r;
	int err;

	if (!is_valid(f))
		return -EINVAL;
	if (kv_function(kv, f->name) >= 0)
		return -EEXIST;
	if (!kv->functions) {
		err = begin(kv);
		if (err)
			return err;
	}
	if (kv->functions->num == KV_FUNCTIONS_MAX)
		return -ENOSPC;
	r = &kv->functions->list[kv->functions->num];
	r->f = f;
	strcpy(r->name, f->name);
	return (int)(KV_FN_REGISTERED + kv->functions->num++);
}

int kv_function(const struct kv *kv, const char *name)
{
	for (unsigned i = 0; kv->functions && i < kv->functions->num; i++)
		if (strcmp(kv->functions->list[i].name, name) == 0)
			return (int)(KV_FN_REGISTERED + i);
	return -ENOENT;
}

struct guard *kv_guard(struct kv *kv)
{
	return kv->functions ? &kv->functions->guard : NULL;
}

void kv_functions_free(struct kv *kv)
{
	free(kv->functions);
}

static struct registered *registered_of(const struct kv *kv, unsigned fn)
{
	unsigned i = fn - KV_FN_REGISTERED;

	return kv->functions && i < kv->functions->num ? &kv->functions->list[i] : NULL;
}

bool kv_has_registered(const struct kv *kv, const struct kv_op *op)
{
	const struct registered *r = registered_of(kv, op->fn);

	if (!r || (unsigned)r->f->type != op->type || op->param_len > KV_VALUE_MAX)
		return false;
	return op->code == KV_FILTER   ? r->f->filter != NULL
	       : op->code == KV_REDUCE ? r->f->reduce != NULL
				       : r->f->update != NULL;
}

struct step {
	const struct roost_kv_function *f;
	struct roost_kv_call call;
	size_t matched; /* result of a filter */
};

static void run_step(void *arg)
{
	struct step *s = arg;

	if (s->f->update)
		s->f->update(&s->call);
	else if (s->f->reduce)
		s->f->reduce(&s->call);
	else
		s->matched = s->f->filter(&s->call);
}

/*
 * A call that takes longer than before counts at once, so that the next pieces are shorter. It may
 * have been interrupted, so this is forgotten within some calls.
 */
static void learn(struct registered *r, uint64_t ns, size_t num)
{
	uint64_t cost = ns * 1000 / num;

	cost = cost ? cost : 1;
	r->cost = cost > r->cost ? cost : r->cost - (r->cost - cost) / 8;
}

/* Calls a function that is enabled, and counts its time or its elements. */
static void call(struct kv *kv, const struct kv_op *op, struct registered *r, struct step *s)
{
	uint64_t began = kv->clock ? kv->clock(kv->clock_ctx) : 0;
	uint32_t len = (uint32_t)s->call.num * element_width(op->type);

	r->end = guard_call(&kv->functions->guard, run_step, s);
	/* This counts as a crash: the function returned elements that do not exist. */
	if (s->matched > s->call.num)
		r->end = GUARD_FAULT;
	if (kv->clock) {
		uint64_t ns = kv->clock(kv->clock_ctx) - began;

		if (s->call.num)
			learn(r, ns, s->call.num);
		kv->bytes += len + ns * BYTES_PER_NS;
	} else if (!r->end) {
		kv->bytes += kv_element_bytes(op, len);
	}
}

static int error_of(const struct registered *r)
{
	return !r->end ? 0 : r->end == GUARD_STUCK ? -ETIME : -EFAULT;
}

/* Writes the changed copy over the value. */
static void write_back(struct kv *kv, struct kv_op *op, struct kv_loc *loc)
{
	uint32_t n;

	for (uint32_t at = 0; at < loc->pair.value_len; at += n) {
		uint8_t *to = kv_value_change(kv, op->hash, loc, at, &n);

		memcpy(to, kv->functions->elements + at, n);
	}
}

static int finish(struct kv *kv, struct kv_op *op, struct kv_loc *loc, const struct step *s,
		  const void *acc)
{
	uint32_t width = element_width(op->type);

	if (s->f->reduce)
		return kv_put_result(op, acc, width);
	if (s->f->filter)
		return kv_put_result(op, kv->functions->elements, (uint32_t)s->matched * width);
	if (op->fetch) {
		int err = kv_put_result(op, kv_value(kv, op->hash, loc), loc->pair.value_len);

		if (err)
			return err;
	}
	write_back(kv, op, loc);
	return 0;
}

int kv_run_registered(struct kv *kv, struct kv_op *op, struct kv_loc *loc)
{
	struct kv_functions *fs = kv->functions;
	struct registered *r = registered_of(kv, op->fn);
	uint32_t width = element_width(op->type), len = loc->pair.value_len;
	uint64_t acc = 0;
	struct step s = {.f = r->f,
			 .call = {.elements = fs->elements,
				  .num = len / width,
				  .operands = fs->operands,
				  .num_operands = op->value_len / width,
				  .acc = &acc,
				  .param = op->param,
				  .param_len = op->param_len}};

	if (r->end)
		return error_of(r);
	if (kv_part_divides_registered(kv, op, loc))
		return kv_part_begin(kv, op, PART_TAKE, loc);
	memcpy(fs->elements, kv_value(kv, op->hash, loc), len);
	if (op->value_len) /* an update of an empty vector has no operands */
		memcpy(fs->operands, op->value, op->value_len);
	if (op->code == KV_REDUCE)
		memcpy(&acc, op->value, width);
	call(kv, op, r, &s);
	return r->end ? error_of(r) : finish(kv, op, loc, &s, &acc);
}

/* ---- in pieces ---- */

uint8_t *kv_registered_elements(const struct kv *kv)
{
	return kv->functions->elements;
}

/* Each piece begins at a multiple of 8 bytes, because the elements of a call are aligned. */
uint32_t kv_registered_piece(const struct kv *kv, const struct kv_op *op)
{
	const struct registered *r = registered_of(kv, op->fn);
	uint32_t width = element_width(op->type), most = SLAB_MAX / kv_element_cost(op) * width;
	uint64_t len = most;

	if (r->f->whole)
		return KV_VALUE_MAX;
	if (kv->clock)
		len = r->cost ? PIECE_NS * 1000ull / r->cost * width : FIRST_PIECE;
	len = ALIGN_DOWN(len < most ? len : most, 8ull);
	return len ? (uint32_t)len : 8;
}

void kv_begin_registered(struct kv *kv, const struct kv_op *op)
{
	kv->part.found = 0;
	memcpy(&kv->part.acc, op->value, element_width(op->type));
}

int kv_call_registered(struct kv *kv, struct kv_part *p, uint32_t n)
{
	const struct kv_op *op = p->op;
	struct kv_functions *fs = kv->functions;
	struct registered *r = registered_of(kv, op->fn);
	uint32_t width = element_width(op->type);
	bool vector = op->value_len > width;
	struct step s = {.f = r->f,
			 .call = {.elements = fs->elements + p->at,
				  .num = n / width,
				  .operands = fs->operands,
				  .num_operands = vector ? n / width : op->value_len / width,
				  .acc = &p->acc,
				  .param = op->param,
				  .param_len = op->param_len}};

	memcpy(fs->operands, (const uint8_t *)op->value + (vector ? p->at : 0),
	       vector ? n : op->value_len);
	call(kv, op, r, &s);
	if (r->end)
		return error_of(r);
	memmove(fs->elements + p->found, s.call.elements, s.matched * width);
	p->found += (uint32_t)s.matched * width;
	return 0;
}
