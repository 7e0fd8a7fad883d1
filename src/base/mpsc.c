/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/mpsc.h"

int mpsc_init(struct mpsc *m, uint32_t capacity)
{
	if (capacity == 0 || capacity > MPSC_MAX_CAPACITY)
		return -EINVAL;

	/*
	 * With one cell, the states "full" and "free in the next lap" would have the same sequence.
	 */
	uint32_t cells = (uint32_t)pow2_ceil(capacity < 2 ? 2 : capacity);

	m->cell = mem_alloc_pages(cells * sizeof(*m->cell));
	if (!m->cell)
		return -ENOMEM;
	m->mask = cells - 1;
	/*
	 * Otherwise a push of the first lap takes a page fault, and the pop after it another one.
	 */
	if (!mem_populate(m->cell, 0, cells * sizeof(*m->cell))) {
		mpsc_destroy(m);
		return -ENOMEM;
	}
	atomic_init(&m->head, 0);
	atomic_init(&m->tail, 0);
	return 0;
}

void mpsc_destroy(struct mpsc *m)
{
	mem_free_pages(m->cell, ((size_t)m->mask + 1) * sizeof(*m->cell));
	m->cell = NULL;
}
