/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The far tier: slower and larger than memory. It stores lines, which are read and written as a
 * whole. One thread at a time.
 */
#ifndef ROOST_KV_FAR_H
#define ROOST_KV_FAR_H

#include <stdbool.h>
#include <stdint.h>

#define KV_FAR_REQUESTS 512u /* requests in execution */
#define KV_FAR_WAITERS	320u /* numbers of operations that wait for a line */

/* A request for one line. */
struct kv_far_request {
	uint64_t line, offset; /* in bytes: line * len */
	void *data; /* `len` bytes, aligned to `len`; not changed before the request ends */
	uint32_t len;
	bool write;
	int result; /* 0 or a negative errno */
	uint64_t waiters[KV_FAR_WAITERS / 64];
	struct kv_far_request *next;
};

struct kv_far {
	/*
	 * Gets the size of the tier, in bytes. A line that was not written has undefined
	 * contents.
	 */
	int (*open)(struct kv_far *far, uint64_t size);
	/* Starts a request. At most KV_FAR_REQUESTS requests are in execution. */
	void (*start)(struct kv_far *far, struct kv_far_request *r);
	/*
	 * Returns a list of requests that have ended, in any order, or NULL. With `wait` it blocks
	 * until a request ends. The tier may begin to execute started requests only in this call.
	 */
	struct kv_far_request *(*poll)(struct kv_far *far, bool wait);
	/* Frees `far`. No request is in execution. */
	void (*close)(struct kv_far *far);
};

/*
 * Creates a far tier in a file without a name in `folder`. It uses O_DIRECT, if the file system has
 * it, and io_uring, or threads with pread(2) and pwrite(2) if io_uring is not available or
 * `threads` is true. Returns 0 or a negative errno.
 */
int kv_far_file(const char *folder, bool threads, struct kv_far **out);

#endif
