/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `sum`: adds up an array of 64-bit numbers in the node's memory. Version 2 also finds
 * the largest number.
 */
#include <roost/kernel.h>

#include "sum.h"

#ifndef VERSION
#define VERSION 1
#endif
#define BATCH 64 /* numbers per read */

struct state {
	struct sum_params p;
	struct sum_reply reply;
	uint64_t number[BATCH];
	uint64_t n;
};

static enum roost_next sum(struct roost_call *c)
{
	struct state *s = c->state;

	ROOST_STEPS(c);
	if (c->params_len != sizeof(s->p))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	s->p = *(const struct sum_params *)c->params;
	while (s->p.count) {
		s->n = s->p.count < BATCH ? s->p.count : BATCH;
		ROOST_READ(c, s->p.array, s->number, s->n * sizeof(uint64_t));
		for (uint64_t i = 0; i < s->n; i++) {
			s->reply.sum += s->number[i];
#if VERSION >= 2
			if (s->reply.largest < s->number[i])
				s->reply.largest = s->number[i];
#endif
		}
		s->p.array += s->n * sizeof(uint64_t);
		s->p.count -= s->n;
	}
	ROOST_REPLY(c, &s->reply, sizeof(s->reply));
	ROOST_STEPS_END;
}

static const struct roost_kernel kernel = {
	.abi = ROOST_KERNEL_ABI,
	.name = "sum",
	.version = VERSION,
	.op = SUM_OP,
	.state_size = sizeof(struct state),
	.params = sum,
};
ROOST_KERNEL_EXPORT(kernel);
