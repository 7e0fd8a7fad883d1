/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions for the tests: three that work, and three that do not. */
#include <roost/kv_function.h>

/* element := element * operand + parameter */
static void scale(const struct roost_kv_call *c)
{
	double *v = c->elements, add = 0;
	const double *by = c->operands;

	if (c->param_len == sizeof(add))
		__builtin_memcpy(&add, c->param, sizeof(add));
	for (size_t i = 0; i < c->num; i++)
		v[i] = v[i] * by[c->num_operands == 1 ? 0 : i] + add;
}

static void squares(const struct roost_kv_call *c)
{
	const int32_t *v = c->elements;
	int32_t *sum = c->acc;

	for (size_t i = 0; i < c->num; i++)
		*sum += v[i] * v[i];
}

/* Those that the operand divides. */
static size_t multiples(const struct roost_kv_call *c)
{
	uint16_t *v = c->elements, by = *(const uint16_t *)c->operands;
	size_t n = 0;

	for (size_t i = 0; i < c->num; i++)
		if (v[i] % by == 0)
			v[n++] = v[i];
	return n;
}

static void crash(const struct roost_kv_call *c)
{
	int *volatile nowhere = (int *)8;

	*(uint8_t *)c->elements = 0xff;
	*nowhere = 1;
}

/* In the second call on a value. */
static void crash_later(const struct roost_kv_call *c)
{
	static unsigned calls;

	*(uint8_t *)c->elements = 0xff;
	if (calls++)
		crash(c);
}

static void spin(const struct roost_kv_call *c)
{
	volatile uint8_t *v = c->elements;

	for (;;)
		(*v)++;
}

static size_t too_many(const struct roost_kv_call *c)
{
	return c->num + 1;
}

static const struct roost_kv_function list[] = {
	{.name = "scale", .type = ROOST_KV_DOUBLE, .update = scale},
	{.name = "squares", .type = ROOST_KV_I32, .reduce = squares},
	{.name = "multiples", .type = ROOST_KV_U16, .filter = multiples},
	{.name = "crash", .type = ROOST_KV_U8, .update = crash},
	{.name = "crash later", .type = ROOST_KV_U8, .update = crash_later},
	{.name = "spin", .type = ROOST_KV_U8, .update = spin},
	{.name = "too many", .type = ROOST_KV_U8, .filter = too_many},
};
#if defined(ABI)
__attribute__((visibility("default")))
const struct roost_kv_functions roost_kv_exported = {ABI, 1, list};
#else
ROOST_KV_EXPORT(list);
#endif
