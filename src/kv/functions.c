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

	if (!r->end) {
		memcpy(fs->elements, kv_value(kv, op->hash, loc), len);
		memcpy(fs->operands, op->value, op->value_len);
		memcpy(&acc, op->value, width);
		r->end = guard_call(&fs->guard, run_step, &s);
		/* This counts as a crash: the function returned elements that do not exist. */
		if (s.matched > s.call.num)
			r->end = GUARD_FAULT;
	}
	if (r->end)
		return r->end == GUARD_STUCK ? -ETIME : -EFAULT;
	return finish(kv, op, loc, &s, &acc);
}
