/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory order: a request is written before the tail of its ring is stored (release), which Linux
 * loads with acquire. Linux stores a completion, then the tail of the other ring (release);
 * uring_is_empty() loads that tail (acquire). The head is stored (release) after the completion was
 * read.
 */
#include "base/uring.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/sys.h"

static _Atomic uint32_t *word(const uint8_t *map, uint32_t offset)
{
	return (_Atomic uint32_t *)(uintptr_t)(map + offset);
}

static void *map_ring(const struct uring *r, size_t bytes, uint64_t offset)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd,
		       (off_t)offset);

	return p == MAP_FAILED ? NULL : p;
}

static int map_all(struct uring *r)
{
	const struct io_uring_params *p = &r->p;

	r->sq_bytes = p->sq_off.array + p->sq_entries * sizeof(uint32_t);
	r->cq_bytes = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
	r->sq = map_ring(r, r->sq_bytes, IORING_OFF_SQ_RING);
	r->cq = map_ring(r, r->cq_bytes, IORING_OFF_CQ_RING);
	r->sqes = map_ring(r, p->sq_entries * sizeof(*r->sqes), IORING_OFF_SQES);
	return r->sq && r->cq && r->sqes ? 0 : -ENOMEM;
}

int uring_open(struct uring *r, uint32_t entries, uint32_t features)
{
	int err;

	*r = (struct uring){.fd = -1};
	err = r->fd = sys_io_uring_setup(entries, &r->p);
	if (err >= 0)
		err = (r->p.features & features) == features ? map_all(r) : -ENOSYS;
	if (err)
		uring_close(r);
	return err;
}

void uring_close(struct uring *r)
{
	if (r->sq)
		munmap(r->sq, r->sq_bytes);
	if (r->cq)
		munmap(r->cq, r->cq_bytes);
	if (r->sqes)
		munmap(r->sqes, r->p.sq_entries * sizeof(*r->sqes));
	if (r->fd >= 0)
		sys_close(r->fd);
	*r = (struct uring){.fd = -1};
}

void uring_push(struct uring *r, const struct io_uring_sqe *request)
{
	_Atomic uint32_t *tail = word(r->sq, r->p.sq_off.tail);
	uint32_t at = atomic_load_explicit(tail, memory_order_relaxed);
	uint32_t slot = at & (r->p.sq_entries - 1);

	r->sqes[slot] = *request;
	((uint32_t *)(void *)(r->sq + r->p.sq_off.array))[slot] = slot;
	atomic_store_explicit(tail, at + 1, memory_order_release);
	r->queued++;
}

int uring_enter(struct uring *r, uint32_t wait)
{
	int n = sys_io_uring_enter(r->fd, r->queued, wait, wait ? IORING_ENTER_GETEVENTS : 0);

	if (n > 0)
		r->queued -= (uint32_t)n;
	return n;
}

void uring_unqueue(struct uring *r)
{
	_Atomic uint32_t *tail = word(r->sq, r->p.sq_off.tail);
	uint32_t at = atomic_load_explicit(tail, memory_order_relaxed);

	atomic_store_explicit(tail, at - r->queued, memory_order_release);
	r->queued = 0;
}

bool uring_is_empty(const struct uring *r)
{
	return atomic_load_explicit(word(r->cq, r->p.cq_off.head), memory_order_relaxed) ==
	       atomic_load_explicit(word(r->cq, r->p.cq_off.tail), memory_order_acquire);
}

bool uring_take(struct uring *r, uint64_t *user_data, int32_t *result)
{
	_Atomic uint32_t *head = word(r->cq, r->p.cq_off.head);
	const struct io_uring_cqe *cqes = (const void *)(r->cq + r->p.cq_off.cqes), *c;
	uint32_t at;

	if (uring_is_empty(r))
		return false;
	at = atomic_load_explicit(head, memory_order_relaxed);
	c = &cqes[at & (r->p.cq_entries - 1)];
	*user_data = c->user_data;
	*result = c->res;
	atomic_store_explicit(head, at + 1, memory_order_release);
	return true;
}
