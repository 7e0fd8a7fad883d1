/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions of fuzz targets whose input is a sequence of commands: they read the input, which ends
 * with zeros, and report failures.
 */
#ifndef ROOST_TESTS_FUZZ_INPUT_H
#define ROOST_TESTS_FUZZ_INPUT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct input {
	const uint8_t *p, *end;
};

/*
 * An expression must have one of these calls at most: the compiler chooses the order of two, and a
 * corpus would have another meaning with another compiler.
 */
static inline uint8_t u8(struct input *in)
{
	return in->p < in->end ? *in->p++ : 0;
}

static inline uint32_t u16(struct input *in)
{
	uint32_t low = u8(in);

	return low | (uint32_t)u8(in) << 8;
}

static inline uint32_t u32(struct input *in)
{
	uint32_t low = u16(in);

	return low | u16(in) << 16;
}

static inline void must(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
		abort();
	}
}

#endif
