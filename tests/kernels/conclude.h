/* SPDX-License-Identifier: BSD-2-Clause */
/* Ends a hook, in a world whose turns the test runs. */
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
 * Ends a local call that is detached from its stream: waits for its operations, and checks its
 * status.
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
