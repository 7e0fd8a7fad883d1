/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void __attribute__((cold)) assert_failed(const char *cond, const char *file, int line)
{
	fprintf(stderr, "roost: internal error: %s is false (%s:%d); please report this line\n",
		cond, file, line);
	abort();
}
