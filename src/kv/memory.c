/* SPDX-License-Identifier: BSD-2-Clause */
#include "kv/memory.h"

#include <errno.h>
#include <sys/mman.h>

int kv_memory_open(struct kv_memory *m, uint64_t size)
{
	/* Linux aligns a mapping to huge pages only if its length is a multiple of theirs. */
	uint64_t whole = ALIGN_UP(size, size < MEM_HUGE_PAGE ? mem_page_size() : MEM_HUGE_PAGE);
	void *p = mmap(NULL, whole, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return -ENOMEM;
	madvise(p, whole, MADV_HUGEPAGE);
	*m = (struct kv_memory){.base = p, .size = whole};
	return 0;
}

void kv_memory_small(const struct kv_memory *m, uint64_t addr, uint64_t len)
{
	/* A kernel without huge pages refuses this. */
	madvise(m->base + addr, len, MADV_NOHUGEPAGE);
}

void kv_memory_close(struct kv_memory *m)
{
	if (m->base)
		munmap(m->base, m->size);
	m->base = NULL;
}
