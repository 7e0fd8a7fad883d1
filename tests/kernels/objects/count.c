/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A kernel in a file of its own, built in several versions: adds one to the number at the address
 * that its parameters name, in the number of steps that they give, and replies with the sum, its
 * version, and the number of the version. The host gets the starts and stops.
 */
#include <stdlib.h>

#include "count.h"

struct state {
	struct count_params p;
	struct count_reply r;
};

#ifdef UNDEFINED
extern int nobody_has_this(void);
#endif

static enum roost_next run(struct roost_call *c)
{
	const struct count_own *own = c->self;
	struct state *s = c->state;

	ROOST_STEPS(c);
	if (c->params_len != sizeof(s->p))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	s->p = *(const struct count_params *)c->params;
	s->r.version = VERSION;
	s->r.generation = own->generation;
	while (s->p.reads--)
		ROOST_READ(c, s->p.where, &s->r.sum, 8);
	ROOST_READ(c, s->p.where, &s->r.sum, 8);
	s->r.sum++;
	ROOST_WRITE(c, s->p.where, &s->r.sum, 8);
	ROOST_REPLY(c, &s->r, sizeof(s->r));
	ROOST_STEPS_END;
}

static int start(void **self)
{
	struct count_host *host = *self;
	struct count_own *own = malloc(sizeof(*own));

#ifdef UNDEFINED
	nobody_has_this();
#endif
	if (host)
		host->started++;
	*own = (struct count_own){.host = host};
	*self = own;
	return 0;
}

static void stop(void *self)
{
	struct count_own *own = self;

	if (own->host)
		own->host->stopped++;
	free(own);
}

#ifdef SHARE
/* Continues with the state of the old version. */
static int take_over(void **self, const struct roost_kernel *old)
{
	struct count_own *own = *self;

	if (own->host)
		own->host->taken++;
	own->generation++;
	return 0;
}
#else
static int take_over(void **self, const struct roost_kernel *old)
{
	const struct count_own *had = *self;
	struct count_own *own = malloc(sizeof(*own));

	if (had->host)
		had->host->taken++;
	*own = (struct count_own){.host = had->host, .generation = had->generation + 1};
	*self = own;
	return 0;
}
#endif

static const struct roost_kernel count = {
	.abi = ABI,
	.name = "count",
	.version = VERSION,
	.op = COUNT_OP,
	.state_size = sizeof(struct state),
	.params = run,
	.start = start,
	.stop = stop,
	.take_over = take_over,
};

#ifndef HIDDEN
ROOST_KERNEL_EXPORT(count);
#else
const void *nothing_of_a_kernel = &count;
#endif
