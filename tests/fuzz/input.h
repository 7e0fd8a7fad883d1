/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What fuzz targets that act out a story share: taking it from the input, whose end reads as zeros,
 * and saying what must not be.
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
 * Never two of these in one expression: the compiler says which is first, and a corpus means
 * something else with another one.
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
