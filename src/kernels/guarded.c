/* SPDX-License-Identifier: BSD-2-Clause */
#include "kernels/guarded.h"

int guarded(struct guard *g, void (*fn)(void *arg), void *arg)
{
	struct guard_scope scope;

	guard_open(g, &scope);
	if (sigsetjmp(scope.env, 0)) {
		enum guard_end how = guard_trapped(g);

		guard_close(g, &scope);
		return how;
	}
	fn(arg);
	guard_close(g, &scope);
	return 0;
}

struct one_step {
	struct guard *g;
	void (*fn)(void *arg);
	void *arg;
};

static void one_step(void *arg)
{
	const struct one_step *s = arg;

	guard_step(s->g);
	s->fn(s->arg);
	guard_stepped(s->g);
}

int guarded_step(struct guard *g, void (*fn)(void *arg), void *arg)
{
	return guarded(g, one_step, &(struct one_step){g, fn, arg});
}
