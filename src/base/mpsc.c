/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/mpsc.h"

#include <stdlib.h>

int mpsc_init(struct mpsc *m, uint32_t capacity)
{
	if (capacity == 0 || capacity > MPSC_MAX_CAPACITY)
		return -EINVAL;

	/* With one cell, "full" and "free, one lap on" would be the same sequence. */
	uint32_t cells = (uint32_t)pow2_ceil(capacity < 2 ? 2 : capacity);

	m->cell = aligned_alloc(CACHE_LINE, ALIGN_UP(cells * sizeof(*m->cell), CACHE_LINE));
	if (!m->cell)
		return -ENOMEM;
	m->mask = cells - 1;
	atomic_init(&m->head, 0);
	atomic_init(&m->tail, 0);
	for (uint32_t i = 0; i < cells; i++)
		atomic_init(&m->cell[i], (uint64_t)i << 32);
	return 0;
}

void mpsc_destroy(struct mpsc *m)
{
	free(m->cell);
	m->cell = NULL;
}
