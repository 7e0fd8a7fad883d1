/* SPDX-License-Identifier: BSD-2-Clause */
#include "kv/far_ring.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sys.h"

_Static_assert(KV_FAR_REQUESTS <= 4096, "all requests fit into the submission queue");

struct far_ring {
	int fd, file;
	struct io_uring_params p;
	uint8_t *sq, *cq; /* mappings; equal if the kernel has both queues in one mapping */
	size_t sq_bytes, cq_bytes;
	struct io_uring_sqe *sqes;
	uint32_t queued; /* entries that were not submitted to the kernel */
};

static _Atomic uint32_t *word(uint8_t *map, uint32_t offset)
{
	return (_Atomic uint32_t *)(void *)(map + offset);
}

static void *map_ring(const struct far_ring *r, size_t bytes, uint64_t offset)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd,
		       (off_t)offset);

	return p == MAP_FAILED ? NULL : p;
}

static int map_all(struct far_ring *r)
{
	const struct io_uring_params *p = &r->p;

	r->sq_bytes = p->sq_off.array + p->sq_entries * sizeof(uint32_t);
	r->cq_bytes = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
	r->sq = map_ring(r, r->sq_bytes, IORING_OFF_SQ_RING);
	r->cq = map_ring(r, r->cq_bytes, IORING_OFF_CQ_RING);
	r->sqes = map_ring(r, p->sq_entries * sizeof(*r->sqes), IORING_OFF_SQES);
	return r->sq && r->cq && r->sqes ? 0 : -ENOMEM;
}

int far_ring_open(int fd, struct far_ring **out)
{
	struct far_ring *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	r->file = fd;
	r->fd = (int)syscall(SYS_io_uring_setup, KV_FAR_REQUESTS, &r->p);
	if (r->fd < 0)
		err = -errno;
	else if (!(r->p.features & IORING_FEAT_RW_CUR_POS)) /* a kernel without IORING_OP_READ */
		err = -ENOSYS;
	else
		err = map_all(r);
	if (err) {
		far_ring_close(r);
		return err;
	}
	*out = r;
	return 0;
}

void far_ring_close(struct far_ring *r)
{
	if (r->sq)
		munmap(r->sq, r->sq_bytes);
	if (r->cq)
		munmap(r->cq, r->cq_bytes);
	if (r->sqes)
		munmap(r->sqes, r->p.sq_entries * sizeof(*r->sqes));
	if (r->fd >= 0)
		sys_close(r->fd);
	free(r);
}

/*
 * Memory order: a request is written before the tail of its ring is stored (release), which Linux
 * loads with acquire. Linux stores a completion, then the tail of the other ring (release);
 * is_empty() loads that tail (acquire). The head is stored (release) after the completion was read.
 */
void far_ring_start(struct far_ring *r, struct kv_far_request *q)
{
	_Atomic uint32_t *tail = word(r->sq, r->p.sq_off.tail);
	uint32_t at = atomic_load_explicit(tail, memory_order_relaxed);
	uint32_t slot = at & (r->p.sq_entries - 1);

	r->sqes[slot] = (struct io_uring_sqe){.opcode = q->write ? IORING_OP_WRITE : IORING_OP_READ,
					      .fd = r->file,
					      .off = q->offset,
					      .addr = (uintptr_t)q->data,
					      .len = q->len,
					      .user_data = (uintptr_t)q};
	((uint32_t *)(void *)(r->sq + r->p.sq_off.array))[slot] = slot;
	atomic_store_explicit(tail, at + 1, memory_order_release);
	r->queued++;
}

static bool is_empty(struct far_ring *r)
{
	return atomic_load_explicit(word(r->cq, r->p.cq_off.head), memory_order_relaxed) ==
	       atomic_load_explicit(word(r->cq, r->p.cq_off.tail), memory_order_acquire);
}

static void enter(struct far_ring *r, bool wait)
{
	long n = syscall(SYS_io_uring_enter, r->fd, r->queued, wait ? 1 : 0,
			 wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0);

	/* After an error, such as a lack of memory, the next call tries again. */
	if (n > 0)
		r->queued -= (uint32_t)n;
}

/* Returns whether the request has ended. */
static bool settle(struct far_ring *r, struct kv_far_request *q, int32_t result)
{
	if (result == -EAGAIN || result == -EINTR) {
		far_ring_start(r, q);
		return false;
	}
	q->result = result == (int32_t)q->len ? 0 : result < 0 ? result : -EIO;
	return true;
}

static struct kv_far_request *reap(struct far_ring *r)
{
	_Atomic uint32_t *head = word(r->cq, r->p.cq_off.head);
	const struct io_uring_cqe *cqes = (const void *)(r->cq + r->p.cq_off.cqes);
	struct kv_far_request *list = NULL;

	while (!is_empty(r)) {
		uint32_t at = atomic_load_explicit(head, memory_order_relaxed);
		const struct io_uring_cqe *c = &cqes[at & (r->p.cq_entries - 1)];
		struct kv_far_request *q = (void *)(uintptr_t)c->user_data;
		int32_t result = c->res;

		atomic_store_explicit(head, at + 1, memory_order_release);
		if (settle(r, q, result)) {
			q->next = list;
			list = q;
		}
	}
	return list;
}

struct kv_far_request *far_ring_poll(struct far_ring *r, bool wait)
{
	struct kv_far_request *list;

	if (r->queued)
		enter(r, false);
	list = reap(r);
	while (!list && wait) {
		enter(r, is_empty(r));
		list = reap(r);
	}
	return list;
}
