/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RULE(name) { ... }: a test of one rule. It runs once for each first PSN `s`: these are chosen so
 * that the 24 bits wrap early, in the middle, and not at all.
 */
#ifndef ROOST_TESTS_RULE_H
#define ROOST_TESTS_RULE_H

#include <stdint.h>

static const uint32_t rule_starts[] = {0, 0x123456, 0xfffffe, 0xffffff, 0x7ffffe};

#define RULE(name)                                                                                 \
	static void name##_at(uint32_t s);                                                         \
	static void name(void **state)                                                             \
	{                                                                                          \
		for (unsigned i_ = 0; i_ < sizeof(rule_starts) / sizeof(rule_starts[0]); i_++)     \
			name##_at(rule_starts[i_]);                                                \
	}                                                                                          \
	static void name##_at(uint32_t s)

#endif
