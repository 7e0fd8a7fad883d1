/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring of io_uring(7): requests go to Linux, and completions come back. One thread at a time may
 * use a ring.
 */
#ifndef ROOST_BASE_URING_H
#define ROOST_BASE_URING_H

#include <linux/io_uring.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Linux 5.18; older headers do not define it. Value: include/uapi/linux/io_uring.h. */
#ifndef IORING_FEAT_LINKED_FILE
#define IORING_FEAT_LINKED_FILE (1U << 12)
#endif

struct uring {
	int fd; /* -1: closed */
	struct io_uring_params p;
	uint8_t *sq, *cq; /* mappings */
	size_t sq_bytes, cq_bytes;
	struct io_uring_sqe *sqes;
	uint32_t queued; /* requests that Linux has not taken yet */
};

/*
 * Opens a ring for `entries` requests at a time. `features`: IORING_FEAT_* that Linux must have.
 * Returns 0, or -errno with the ring closed: -ENOSYS if Linux lacks a feature, -EPERM where
 * io_uring is forbidden, as in containers.
 */
int uring_open(struct uring *r, uint32_t entries, uint32_t features);
/* May be called again for a closed ring. */
void uring_close(struct uring *r);
/* Queues a copy of a request. There must be space for it. */
void uring_push(struct uring *r, const struct io_uring_sqe *request);
/*
 * Passes the queued requests to Linux, and waits for `wait` completions. Returns the number of
 * requests that Linux took, or -errno.
 */
int uring_enter(struct uring *r, uint32_t wait);
/* Removes the queued requests that Linux has not taken. */
void uring_unqueue(struct uring *r);
/* Takes a completion. Returns false if there is none. */
bool uring_take(struct uring *r, uint64_t *user_data, int32_t *result);
bool uring_is_empty(const struct uring *r);

#endif
