/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a hook, in a world whose turns the test gives. */
#ifndef TESTS_KERNELS_CONCLUDE_H
#define TESTS_KERNELS_CONCLUDE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/local_call.h"

/*
 * Of a local call that is off its stream: lets its operations end, and sees that its status is
 * that.
 */
static inline void conclude(struct local_call *p, uint32_t status, bool (*turn)(void))
{
	struct local_call_result result;

	while (local_call_busy(p))
		assert_true(turn());
	local_call_end_stream(p);
	assert_true(local_call_finished(p, &result));
	assert_int_equal(result.status, status);
	local_call_free(p);
}

#endif
