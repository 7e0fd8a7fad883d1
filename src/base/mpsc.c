/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/mpsc.h"

#include <stdlib.h>

int mpsc_init(struct mpsc *m, uint32_t capacity)
{
	if (capacity == 0 || capacity > MPSC_MAX_CAPACITY)
		return -EINVAL;

	/*
	 * With one cell, the states "full" and "free in the next lap" would have the same sequence.
	 */
	uint32_t cells = (uint32_t)pow2_ceil(capacity < 2 ? 2 : capacity);

	m->cell = calloc(cells, sizeof(*m->cell));
	if (!m->cell)
		return -ENOMEM;
	m->mask = cells - 1;
	atomic_init(&m->head, 0);
	atomic_init(&m->tail, 0);
	return 0;
}

void mpsc_destroy(struct mpsc *m)
{
	free(m->cell);
	m->cell = NULL;
}
