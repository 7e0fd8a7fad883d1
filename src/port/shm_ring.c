/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/shm_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/sys.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif

#define RING_MAGIC 0x676e6972656f6f72ull /* "rooering" */
#define SEALS	   (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static bool good_size(uint32_t size)
{
	return is_pow2(size) && size >= SHM_RING_MIN && size <= SHM_RING_MAX;
}

/* Tries to make the memory not executable; kernels before 6.3 refuse the flag. */
static int make_memfd(void)
{
	int fd = memfd_create("roost-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("roost-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd < 0 ? -errno : fd;
}

static void *map_ring(int fd, uint32_t size)
{
	return mmap(NULL, SHM_RING_OVERHEAD + (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    0);
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

int shm_prod_create(uint32_t size, struct shm_prod *p, int *fd)
{
	uint32_t first = min_u32(size, SHM_RING_FIRST);
	uint8_t *m;
	int rc;

	if (!good_size(size))
		return -EINVAL;
	if (!mem_file_fits(SHM_RING_OVERHEAD + size))
		return -EFBIG;
	rc = make_memfd();
	if (rc < 0)
		return rc;
	*fd = rc;
	*p = (struct shm_prod){.size = size, .extent = first, .step = min_u32(size, SHM_RING_STEP)};
	p->ends = calloc(SHM_RING_DESCS, sizeof(*p->ends));
	if (!p->ends) {
		rc = -ENOMEM;
		goto close_fd;
	}
	/*
	 * The memory is allocated before the first access, so that a shortage is an error here and
	 * not a signal later.
	 */
	rc = ftruncate(*fd, SHM_RING_OVERHEAD + (off_t)size)
		     ? -errno
		     : sys_fallocate(*fd, 0, 0, SHM_RING_OVERHEAD + (off_t)first);
	if (rc == 0 && fcntl(*fd, F_ADD_SEALS, SEALS))
		rc = -errno;
	if (rc)
		goto free_ends;
	m = map_ring(*fd, size);
	if (m == MAP_FAILED) {
		rc = -errno;
		goto free_ends;
	}
	mem_populate(m, 0, SHM_RING_OVERHEAD + first); /* fallocate() has found the memory */
	p->ctl = (struct shm_ring_ctl *)(void *)m;
	p->descs = (_Atomic uint64_t *)(void *)(m + SHM_RING_CTL);
	p->data = m + SHM_RING_OVERHEAD;
	p->ctl->magic = RING_MAGIC;
	return 0;

free_ends:
	free(p->ends);
close_fd:
	sys_close(*fd);
	p->ctl = NULL;
	p->ends = NULL;
	return rc;
}

void shm_prod_unmap(struct shm_prod *p)
{
	if (p->ctl)
		munmap(p->ctl, SHM_RING_OVERHEAD + (size_t)p->size);
	free(p->ends);
	p->ctl = NULL;
	p->ends = NULL;
}

int shm_cons_map(int fd, uint32_t size, struct shm_cons *c)
{
	uint32_t first = min_u32(size, SHM_RING_FIRST);
	struct statfs fs;
	struct stat st;
	uint8_t *m;
	int seals;

	if (!good_size(size))
		return -EINVAL;
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & SEALS) != SEALS || (seals & F_SEAL_WRITE))
		return -EPERM;
	/* Memory of hugetlbfs can be sealed too, but may run out of pages at an access (SIGBUS). */
	if (fstatfs(fd, &fs) || fstat(fd, &st))
		return -errno;
	if (fs.f_type != TMPFS_MAGIC || !S_ISREG(st.st_mode) ||
	    st.st_size != SHM_RING_OVERHEAD + (off_t)size)
		return -EINVAL;
	/*
	 * The sender must have allocated the pages that this process touches. A connection then
	 * costs this process only page tables.
	 */
	if (st.st_blocks * 512 < SHM_RING_OVERHEAD + (off_t)first)
		return -EINVAL;
	m = map_ring(fd, size);
	if (m == MAP_FAILED)
		return -errno;
	if (!mem_populate(m, 0, SHM_RING_OVERHEAD + first)) {
		munmap(m, SHM_RING_OVERHEAD + (size_t)size);
		return -ENOMEM;
	}
	*c = (struct shm_cons){
		.ctl = (struct shm_ring_ctl *)(void *)m,
		.descs = (_Atomic uint64_t *)(void *)(m + SHM_RING_CTL),
		.data = m + SHM_RING_OVERHEAD,
		.size = size,
		.populated = first,
	};
	return 0;
}

void shm_cons_unmap(struct shm_cons *c)
{
	if (c->ctl)
		munmap(c->ctl, SHM_RING_OVERHEAD + (size_t)c->size);
	c->ctl = NULL;
}

bool shm_cons_populate(struct shm_cons *c, uint32_t upto)
{
	uint32_t end = min_u32(ALIGN_UP(upto, SHM_RING_STEP), c->size);

	if (!mem_populate(c->data, c->populated, end))
		return false;
	c->populated = end;
	return true;
}

static bool extend(struct shm_prod *p)
{
	uint32_t end = min_u32(p->extent + p->step, p->size);

	if (end == p->extent)
		return false;
	if (!mem_populate(p->data, p->extent, end)) {
		p->step = 0; /* there is no more memory, so the ring stays as large as it is */
		return false;
	}
	p->extent = end;
	return true;
}

void shm_prod_look(struct shm_prod *p)
{
	uint64_t head = atomic_load_explicit(&p->ctl->head, memory_order_acquire);

	/* A valid head neither decreases nor exceeds the published index. */
	if (head - p->head > p->published - p->head) {
		p->broken = true;
	} else if (head != p->head) {
		p->head = head;
		p->free += (uint32_t)(p->ends[(head - 1) % SHM_RING_DESCS] - (uint32_t)p->free);
	}
}

/* Returns the unused bytes between the released records and the end of the reserved ones. */
static uint32_t skipped(const struct shm_prod *p)
{
	return p->free < p->turn ? p->skip : 0;
}

bool shm_prod_more(struct shm_prod *p, uint32_t need)
{
	uint64_t lap_end, space_end;
	uint32_t off;

	shm_prod_look(p);
	p->index_limit = min_u64(p->head + SHM_RING_DESCS, p->published + SHM_RING_PENDING);
	if (p->broken || p->index >= p->index_limit)
		return false;
	for (;;) {
		off = (uint32_t)p->pos & (p->size - 1);
		if (off + need <= p->extent)
			break;

		/* The bytes in use if the producer skipped to the start of the data. */
		uint64_t turned = p->pos + (p->size - off) + need - p->free;

		if ((p->pos - p->free - skipped(p) >= SHM_RING_LAG || turned > p->size) &&
		    extend(p))
			continue;
		if (turned > p->size)
			return false;
		p->skip = p->size - off;
		p->pos += p->skip;
		p->turn = p->pos;
	}
	lap_end = p->pos - off + p->extent;
	space_end = p->free + min_u64(p->size, (uint64_t)skipped(p) + SHM_RING_WINDOW);
	p->limit = min_u64(lap_end, space_end);
	return p->pos + need <= p->limit;
}

/* Copies at most two cache lines by words; a call of memcpy() would cost more. */
static void copy_first(struct shm_prod *p)
{
	uint32_t len = p->pending[p->published % SHM_RING_PENDING] & 0xffff;

	for (uint32_t at = 0; at < len; at += SHM_REC_ALIGN)
		memcpy(p->first_at + at, p->first + at, SHM_REC_ALIGN);
	p->first_at = NULL;
}

void shm_prod_publish_to(struct shm_prod *p, uint64_t index)
{
	if (p->first_at && index != p->published)
		copy_first(p);
	/* The first descriptor is stored last: a consumer that sees it sees all of them. */
	for (uint64_t i = index; i != p->published;) {
		i--;
		atomic_store_explicit(&p->descs[i % SHM_RING_DESCS],
				      p->pending[i % SHM_RING_PENDING], memory_order_release);
	}
	p->published = index;
	p->index_limit = min_u64(p->head + SHM_RING_DESCS, index + SHM_RING_PENDING);
}
