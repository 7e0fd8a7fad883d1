/* SPDX-License-Identifier: BSD-2-Clause */
#include "kernels/benches.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/spin.h"

struct benches {
	struct spin lock; /* to take one and to give it back: once a call */
	uint32_t taken;	  /* a bit for each */
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

void *benches_take(struct benches *b)
{
	void *bench = NULL;
	unsigned i;

	spin_lock(&b->lock);
	i = (unsigned)__builtin_ctz(~b->taken); /* there is a bit more than benches */
	if (i < b->n) {
		b->taken |= 1u << i;
		bench = b->bench + i * b->size;
	}
	spin_unlock(&b->lock);
	return bench;
}

void benches_give(struct benches *b, const void *bench)
{
	size_t i = (size_t)((const uint8_t *)bench - b->bench) / b->size;

	spin_lock(&b->lock);
	b->taken &= ~(1u << i);
	spin_unlock(&b->lock);
}
