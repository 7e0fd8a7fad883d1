/* SPDX-License-Identifier: BSD-2-Clause */
/* The interface of the kernel `sum`. Numbers are in host byte order; both machines must agree. */
#ifndef SUM_H
#define SUM_H

#include <stdint.h>

#define SUM_OP 0x1000

struct sum_params {
	uint64_t array; /* its address, in the region that the call names */
	uint64_t count; /* number of elements */
};

struct sum_reply {
	uint64_t sum;
	uint64_t largest; /* from version 2 on; 0 before */
};

#endif
