/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library to preload, with which a process sees pages of PAGE_KIB KiB. sysconf() reports this
 * size, and the calls on memory behave as on a kernel with such pages: mmap() returns multiples of
 * the size, other addresses are refused, and lengths mean whole pages, so munmap() of 4 KiB unmaps
 * a whole page. Of a file only the part up to its end can be accessed; such a kernel has zeros in
 * the rest of the last page.
 *
 * Calls inside of the C library (stacks of threads, malloc, dlopen) are not changed.
 */
#undef _FILE_OFFSET_BITS /* otherwise the header gives mmap() the name mmap64 */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE	   (PAGE_KIB * 1024ul)
#define REAL_PAGE  4096ul
#define EXPORT	   __attribute__((visibility("default")))
#define UP(x, a)   (((x) + (a)-1) & ~((a)-1))
#define RESERVED   (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)
#define FIXED_BITS (MAP_FIXED | MAP_FIXED_NOREPLACE)
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

EXPORT long sysconf(int name)
{
	long (*real)(int) = (long (*)(int))(uintptr_t)dlsym(RTLD_NEXT, "sysconf");
	long value = real(name);

	if (name == _SC_PAGESIZE)
		return PAGE;
	return name == _SC_PHYS_PAGES || name == _SC_AVPHYS_PAGES ? value / (long)(PAGE / REAL_PAGE)
								  : value;
}

EXPORT int getpagesize(void)
{
	return PAGE;
}

static void *real_mmap(uintptr_t addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, offset);
}

static int refuse(int error)
{
	errno = error;
	return -1;
}

/* Returns whether the range is one of whole pages; otherwise errno is set. */
static bool valid(const void *addr, size_t len)
{
	if (!((uintptr_t)addr % PAGE) && UP(len, PAGE) >= len)
		return true;
	errno = EINVAL;
	return false;
}

/* Reserves whole pages, at the hint if its pages are free. Returns the address, or MAP_FAILED. */
static uintptr_t reserve(uintptr_t hint, size_t whole)
{
	uintptr_t p, at = hint & ~(PAGE - 1);

	if (at &&
	    real_mmap(at, whole, PROT_NONE, RESERVED | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED)
		return at;
	p = (uintptr_t)real_mmap(0, whole + PAGE, PROT_NONE, RESERVED, -1, 0);
	at = UP(p, PAGE);
	if ((void *)p == MAP_FAILED)
		return p;
	if (at > p)
		syscall(SYS_munmap, p, at - p);
	if (p + PAGE > at)
		syscall(SYS_munmap, at + whole, p + PAGE - at);
	return at;
}

EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	size_t whole = UP(len, PAGE);
	uintptr_t at = (uintptr_t)addr;
	void *p;
	int error;

	if (!len || whole < len || offset % (off_t)PAGE || (flags & FIXED_BITS && at % PAGE)) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	if (!(flags & MAP_FIXED))
		at = flags & FIXED_BITS
			     ? (uintptr_t)real_mmap(at, whole, PROT_NONE,
						    RESERVED | MAP_FIXED_NOREPLACE, -1, 0)
			     : reserve(at, whole);
	if ((void *)at == MAP_FAILED)
		return MAP_FAILED;
	p = real_mmap(at, flags & MAP_ANONYMOUS ? whole : len, prot,
		      (flags & ~FIXED_BITS) | MAP_FIXED, fd, offset);
	if (p == MAP_FAILED && !(flags & MAP_FIXED)) {
		error = errno;
		syscall(SYS_munmap, at, whole);
		errno = error;
	}
	return p;
}

EXPORT void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t offset)
	__attribute__((alias("mmap")));

EXPORT int munmap(void *addr, size_t len)
{
	return len && valid(addr, len) ? (int)syscall(SYS_munmap, addr, UP(len, PAGE))
				       : refuse(EINVAL);
}

EXPORT int mprotect(void *addr, size_t len, int prot)
{
	return valid(addr, len) ? (int)syscall(SYS_mprotect, addr, UP(len, PAGE), prot) : -1;
}

/* Pages that are populated have no space behind the end of a file, where a page has zeros. */
EXPORT int madvise(void *addr, size_t len, int advice)
{
	bool populates = advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE;

	return valid(addr, len)
		       ? (int)syscall(SYS_madvise, addr, populates ? len : UP(len, PAGE), advice)
		       : -1;
}

EXPORT int mincore(void *addr, size_t len, unsigned char *vec)
{
	unsigned char real[PAGE / REAL_PAGE];

	if (!valid(addr, len))
		return -1;
	for (size_t page = 0; page < UP(len, PAGE) / PAGE; page++) {
		if (syscall(SYS_mincore, (char *)addr + page * PAGE, PAGE, real))
			return -1;
		vec[page] = 0;
		for (unsigned i = 0; i < sizeof(real); i++)
			vec[page] |= real[i] & 1;
	}
	return 0;
}
