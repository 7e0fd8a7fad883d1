/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/mem.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cgroup.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

size_t mem_page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static void *map(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

void *mem_alloc_pages(size_t size)
{
	size_t page = mem_page_size();

	if (size == 0 || size > SIZE_MAX / 2) {
		errno = size ? ENOMEM : EINVAL;
		return NULL;
	}
	size = ALIGN_UP(size, page);
	if (size < MEM_HUGE_PAGE)
		return map(size);

	/* Kernels before 6.7 do not align large mappings, so this maps more and unmaps the ends. */
	char *p = map(size + MEM_HUGE_PAGE);

	if (!p)
		return NULL;

	char *start = (char *)ALIGN_UP((uintptr_t)p, MEM_HUGE_PAGE);
	size_t head = (size_t)(start - p), tail = MEM_HUGE_PAGE - head;

	if (head)
		munmap(p, head);
	if (tail)
		munmap(start + size, tail);
	madvise(start, size,
		/* a kernel without huge pages refuses this advice, which has no consequence */
		MADV_HUGEPAGE);
	return start;
}

void *mem_alloc_small_pages(size_t size)
{
	void *p = mem_alloc_pages(size);

	if (p)
		madvise(p, ALIGN_UP(size, mem_page_size()), MADV_NOHUGEPAGE);
	return p;
}

bool mem_populate(void *data, size_t from, size_t upto)
{
	char *page = (char *)ALIGN_DOWN((uintptr_t)data + from, mem_page_size());

	return madvise(page, (size_t)((char *)data + upto - page), MADV_POPULATE_WRITE) == 0 ||
	       (errno != ENOMEM && errno != EFAULT);
}

void mem_free_pages(void *p, size_t size)
{
	if (p)
		munmap(p, ALIGN_UP(size, mem_page_size()));
}

/*
 * Returns the limit of one group. Version 2 has bytes or "max"; version 1 has a huge number for no
 * limit.
 */
static double limit_of(const char *dir, bool v2)
{
	long long bytes = 0, none;

	return cgroup_numbers(dir, v2 ? "memory.max" : "memory.limit_in_bytes", &bytes, &none) >=
				       1 &&
			       bytes > 0
		       ? (double)bytes
		       : 0;
}

uint64_t mem_allowed_from(const char *mountinfo, const char *cgroup)
{
	double least = cgroup_least(mountinfo, cgroup, "memory", limit_of);

	return least < 0x1p62 ? (uint64_t)least : 0;
}

uint64_t mem_allowed(void)
{
	uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * mem_page_size();
	uint64_t groups = mem_allowed_from("/proc/self/mountinfo", "/proc/self/cgroup");

	return groups && groups < all ? groups : all;
}

bool mem_file_fits(uint64_t bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur >= bytes;
}
