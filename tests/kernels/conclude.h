/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a place, in a world whose turns the test gives. */
#ifndef TESTS_KERNELS_CONCLUDE_H
#define TESTS_KERNELS_CONCLUDE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/place.h"

/* Of a place that is off its stream: lets its operations end, and sees that its status is that. */
static inline void conclude(struct place *p, uint32_t status, bool (*turn)(void))
{
	struct place_result result;

	while (place_acts(p))
		assert_true(turn());
	place_conclude(p);
	assert_true(place_over(p, &result));
	assert_int_equal(result.status, status);
	place_free(p);
}

#endif
