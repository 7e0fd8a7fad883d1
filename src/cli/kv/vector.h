/* SPDX-License-Identifier: BSD-2-Clause */
/* Vectors as text, for `roost kv`: numbers with commas between them. */
#ifndef ROOST_CLI_KV_VECTOR_H
#define ROOST_CLI_KV_VECTOR_H

#include <stddef.h>
#include <stdint.h>

/* Names of enum roost_kv_type and enum roost_kv_fn, each with a NULL at its end. */
extern const char *const vector_types[];
extern const char *const vector_functions[];

/* Returns the bytes of an element. */
unsigned vector_width(unsigned type);
/*
 * Reads numbers from `text` into a vector in memory that the caller frees. Returns 0, -EINVAL if
 * the text is not a list of numbers of the type, -E2BIG, or -ENOMEM.
 */
int vector_parse(unsigned type, const char *text, void **out, uint32_t *len);
/* Prints a vector of `len` bytes and a newline on stdout. */
void vector_print(unsigned type, const void *vector, uint32_t len);

#endif
