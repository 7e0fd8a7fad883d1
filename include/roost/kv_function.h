/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The interface for functions that a key-value store runs on its values. A shared object has a list
 * of them:
 *
 *	#include <roost/kv_function.h>
 *
 *	static void scale(const struct roost_kv_call *c)
 *	{
 *		double *v = c->elements;
 *		const double *by = c->operands;
 *
 *		for (size_t i = 0; i < c->num; i++)
 *			v[i] *= by[c->num_operands == 1 ? 0 : i];
 *	}
 *
 *	static const struct roost_kv_function list[] = {
 *		{.name = "scale", .type = ROOST_KV_DOUBLE, .update = scale},
 *	};
 *	ROOST_KV_EXPORT(list);
 *
 * A function gets a copy of the value. It runs on the thread of the store, so it must not block,
 * sleep or allocate. A function that crashes, or does not return for a fifth of a second, is left
 * by a jump. Its operation fails, the value is unchanged, and the function is disabled.
 *
 * A function that does the same for each element gets a long value in pieces, by several calls in
 * order, so that other work is done in between. The pieces are as long as the time of earlier calls
 * allows. A function that needs all elements at once, to sort them for example, says so by `whole`:
 * then the store does nothing else until it has returned.
 */
#ifndef ROOST_KV_FUNCTION_H
#define ROOST_KV_FUNCTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "roost/kv_types.h"

/* Version of the structures below. A store refuses objects of another version. */
#define ROOST_KV_FUNCTION_ABI 2u

/* The arguments of a function. Elements, operands and acc are aligned to 8 bytes, param is not. */
struct roost_kv_call {
	void *elements;
	size_t num;
	const void *operands; /* updates: `num` elements, or one; filters: one */
	size_t num_operands;
	/*
	 * reduce: one element; the initial value, or the result of the call before, and then the
	 * result
	 */
	void *acc;
	const void *param; /* bytes that the client has sent */
	size_t param_len;
};

/* A function of the list. It has exactly one of update, reduce and filter. */
struct roost_kv_function {
	const char *name;			       /* at most 31 characters */
	enum roost_kv_type type;		       /* of the elements */
	void (*update)(const struct roost_kv_call *c); /* changes `elements` */
	void (*reduce)(const struct roost_kv_call *c); /* changes `acc` */
	/* Moves the elements that match to the start of `elements`, and returns their number. */
	size_t (*filter)(const struct roost_kv_call *c);
	bool whole; /* gets all elements in one call; otherwise in one or more calls */
};

struct roost_kv_functions {
	uint32_t abi, num;
	const struct roost_kv_function *list;
};

/* Exports an array of functions. A shared object uses it once. */
#define ROOST_KV_SYMBOL "roost_kv_exported"
#ifdef __cplusplus
#define ROOST_KV_EXPORT(list)                                                                      \
	extern "C" __attribute__((visibility("default"), used))                                    \
	const struct roost_kv_functions roost_kv_exported = {                                      \
		ROOST_KV_FUNCTION_ABI, sizeof(list) / sizeof((list)[0]), list}
#else
#define ROOST_KV_EXPORT(list)                                                                      \
	__attribute__((visibility("default"), used))                                               \
	const struct roost_kv_functions roost_kv_exported = {                                      \
		ROOST_KV_FUNCTION_ABI, sizeof(list) / sizeof((list)[0]), list}
#endif

#endif
