/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef ROOST_TESTS_KERNELS_COUNT_H
#define ROOST_TESTS_KERNELS_COUNT_H

#include <roost/kernel.h>

#define COUNT_OP 0x2000

struct count_params {
	uint64_t where;
	uint64_t reads; /* in vain, before it counts */
};

struct count_reply {
	uint64_t sum;
	uint64_t version, generation;
};

struct count_host {
	unsigned started, stopped, taken;
};

struct count_own {
	struct count_host *host;
	uint64_t generation; /* replacements before */
};

#endif
