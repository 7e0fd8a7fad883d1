/* SPDX-License-Identifier: BSD-2-Clause */
#include "spare_mem.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, len)   ((void)(p), (void)(len))
#define ASAN_UNPOISON_MEMORY_REGION(p, len) ((void)(p), (void)(len))
#endif

#define SPARES 8

static struct {
	void *p;
	size_t len;
} spares[SPARES];

void *spare_mem_take(size_t len)
{
	void *p = NULL;

	for (unsigned i = 0; i < SPARES && !p; i++) {
		if (!spares[i].p || spares[i].len != len)
			continue;
		p = spares[i].p;
		spares[i].p = NULL;
		ASAN_UNPOISON_MEMORY_REGION(p, len);
	}
	if (!p)
		p = aligned_alloc(4096, (len + 4095) & ~(size_t)4095);
	if (!p)
		abort();
	memset(p, 0, len);
	return p;
}

void spare_mem_give(void *p, size_t len)
{
	static unsigned next;

	if (!p)
		return;
	free(spares[next].p); /* the oldest */
	spares[next].p = p;
	spares[next].len = len;
	ASAN_POISON_MEMORY_REGION(p, len);
	next = (next + 1) % SPARES;
}
