/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/kv/vector.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "roost/kv.h"

const char *const vector_types[] = {"u8",  "u16", "u32",   "u64",    "i8", "i16",
				    "i32", "i64", "float", "double", NULL};
const char *const vector_functions[] = {
	"add",	   "sub",     "mul",  "min", "max", "and", "or", "xor", "assign", "add-sat",
	"sub-sat", "mul-sat", "swap", "eq",  "ne",  "lt",  "le", "gt",	"ge",	  NULL};
_Static_assert(sizeof(vector_types) / sizeof(vector_types[0]) == ROOST_KV_TYPES + 1,
	       "a name for each type");
_Static_assert(sizeof(vector_functions) / sizeof(vector_functions[0]) == ROOST_KV_FUNCTIONS + 1,
	       "a name for each function");

unsigned vector_width(unsigned type)
{
	switch ((enum roost_kv_type)type) {
	case ROOST_KV_U8:
	case ROOST_KV_I8:
		return 1;
	case ROOST_KV_U16:
	case ROOST_KV_I16:
		return 2;
	case ROOST_KV_U32:
	case ROOST_KV_I32:
	case ROOST_KV_FLOAT:
		return 4;
	default:
		return 8;
	}
}

/* Reads one integer, in the range of the type. */
static int parse_integer(unsigned type, const char *at, char **end, void *to)
{
	unsigned width = vector_width(type), unused = 64 - 8 * width;
	uint64_t value;

	errno = 0;
	if (type >= ROOST_KV_I8) {
		int64_t v = strtoll(at, end, 0);

		if (v > INT64_MAX >> unused || v < INT64_MIN >> unused)
			return -EINVAL;
		value = (uint64_t)v;
	} else {
		value = strtoull(at, end, 0);
		if (value > UINT64_MAX >> unused || strchr(at, '-') == at)
			return -EINVAL;
	}
	if (errno)
		return -EINVAL;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "the low bytes of `value` are not its first ones"
#endif
	memcpy(to, &value, width);
	return 0;
}

static int parse_number(unsigned type, const char *at, char **end, void *to)
{
	float f;
	double d;

	if (type < ROOST_KV_FLOAT)
		return parse_integer(type, at, end, to);
	d = strtod(at, end);
	f = (float)d;
	if (type == ROOST_KV_FLOAT)
		memcpy(to, &f, sizeof(f));
	else
		memcpy(to, &d, sizeof(d));
	return 0;
}

int vector_parse(unsigned type, const char *text, void **out, uint32_t *len)
{
	unsigned width = vector_width(type);
	size_t n = 1;
	uint8_t *v;

	for (const char *c = text; *c; c++)
		n += *c == ',';
	if (n * width > ROOST_KV_VALUE_MAX)
		return -E2BIG;
	v = malloc(n * width);
	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		char *end = NULL;
		int rc = parse_number(type, text, &end, v + i * width);

		if (rc || end == text || *end != (i + 1 == n ? '\0' : ',')) {
			free(v);
			return -EINVAL;
		}
		text = end + 1;
	}
	*out = v;
	*len = (uint32_t)(n * width);
	return 0;
}

static void print_number(unsigned type, const void *at)
{
	union {
		uint8_t u8;
		uint16_t u16;
		uint32_t u32;
		uint64_t u64;
		int8_t i8;
		int16_t i16;
		int32_t i32;
		int64_t i64;
		float f;
		double d;
	} v;

	memcpy(&v, at, vector_width(type));
	switch ((enum roost_kv_type)type) {
	case ROOST_KV_U8:
		printf("%u", v.u8);
		break;
	case ROOST_KV_U16:
		printf("%u", v.u16);
		break;
	case ROOST_KV_U32:
		printf("%" PRIu32, v.u32);
		break;
	case ROOST_KV_U64:
		printf("%" PRIu64, v.u64);
		break;
	case ROOST_KV_I8:
		printf("%d", v.i8);
		break;
	case ROOST_KV_I16:
		printf("%d", v.i16);
		break;
	case ROOST_KV_I32:
		printf("%" PRId32, v.i32);
		break;
	case ROOST_KV_I64:
		printf("%" PRId64, v.i64);
		break;
	case ROOST_KV_FLOAT:
		printf("%.9g", (double)v.f);
		break;
	case ROOST_KV_DOUBLE:
		printf("%.17g", v.d);
		break;
	case ROOST_KV_TYPES:
		break;
	}
}

void vector_print(unsigned type, const void *vector, uint32_t len)
{
	unsigned width = vector_width(type);

	for (uint32_t i = 0; i < len; i += width) {
		if (i)
			putchar(',');
		print_number(type, (const uint8_t *)vector + i);
	}
	putchar('\n');
}
