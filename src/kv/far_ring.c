/* SPDX-License-Identifier: BSD-2-Clause */
#include "kv/far_ring.h"

#include <errno.h>
#include <stdlib.h>

#include "base/uring.h"

_Static_assert(KV_FAR_REQUESTS <= 4096, "all requests fit into the submission queue");

struct far_ring {
	struct uring ring;
	int file;
};

int far_ring_open(int fd, struct far_ring **out)
{
	struct far_ring *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	r->file = fd;
	/* Linux has had IORING_OP_READ as long as this feature */
	err = uring_open(&r->ring, KV_FAR_REQUESTS, IORING_FEAT_RW_CUR_POS);
	if (err) {
		free(r);
		return err;
	}
	*out = r;
	return 0;
}

void far_ring_close(struct far_ring *r)
{
	uring_close(&r->ring);
	free(r);
}

void far_ring_start(struct far_ring *r, struct kv_far_request *q)
{
	uring_push(&r->ring,
		   &(struct io_uring_sqe){.opcode = q->write ? IORING_OP_WRITE : IORING_OP_READ,
					  .fd = r->file,
					  .off = q->offset,
					  .addr = (uintptr_t)q->data,
					  .len = q->len,
					  .user_data = (uintptr_t)q});
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
	struct kv_far_request *list = NULL;
	uint64_t request;
	int32_t result;

	while (uring_take(&r->ring, &request, &result)) {
		struct kv_far_request *q = (void *)(uintptr_t)request;

		if (settle(r, q, result)) {
			q->next = list;
			list = q;
		}
	}
	return list;
}

/* An error of uring_enter(), such as a lack of memory, leaves the requests queued. */
struct kv_far_request *far_ring_poll(struct far_ring *r, bool wait)
{
	struct kv_far_request *list;

	if (r->ring.queued)
		uring_enter(&r->ring, 0);
	list = reap(r);
	while (!list && wait) {
		uring_enter(&r->ring, uring_is_empty(&r->ring));
		list = reap(r);
	}
	return list;
}
