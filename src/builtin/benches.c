/* SPDX-License-Identifier: BSD-2-Clause */
#include "builtin/benches.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

struct benches {
	unsigned n;
	size_t size;
	uint8_t *bench;
};

int benches_start(unsigned n, size_t size, void **self)
{
	struct benches *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->n = n;
	b->size = size;
	b->bench = mem_alloc_pages(n * size);
	if (!b->bench) {
		free(b);
		return -ENOMEM;
	}
	*self = b;
	return 0;
}

void benches_stop(void *self)
{
	struct benches *b = self;

	mem_free_pages(b->bench, b->n * b->size);
	free(b);
}

void *benches_take(struct roost_call *c)
{
	const struct benches *b = c->self;
	uint32_t number = roost_take(c);

	return number ? b->bench + (number - 1) * b->size : NULL;
}

void benches_give(struct roost_call *c, const void *bench)
{
	const struct benches *b = c->self;

	roost_give(c, (uint32_t)((size_t)((const uint8_t *)bench - b->bench) / b->size) + 1);
}
