/* SPDX-License-Identifier: BSD-2-Clause */
#include "far_throttle.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

struct far_throttle {
	struct kv_far far;
	uint64_t delay, gap, last; /* ns; `last`: the end of the last request */
	uint8_t *memory;
	uint64_t size;
	/* requests in the order of their starts */
	struct kv_far_request *queue[KV_FAR_REQUESTS];
	uint64_t ends[KV_FAR_REQUESTS], first, num;
};

static uint64_t time_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int open_memory(struct kv_far *far, uint64_t size)
{
	struct far_throttle *f = (struct far_throttle *)far;

	f->memory = mem_alloc_pages(size);
	if (!f->memory)
		exit(1);
	f->size = size;
	return 0;
}

static void start(struct kv_far *far, struct kv_far_request *r)
{
	struct far_throttle *f = (struct far_throttle *)far;
	uint64_t end = time_ns() + f->delay, at = (f->first + f->num++) % KV_FAR_REQUESTS;

	if (end < f->last + f->gap)
		end = f->last + f->gap;
	f->last = end;
	f->queue[at] = r;
	f->ends[at] = end;
}

static void move(struct far_throttle *f, struct kv_far_request *r)
{
	if (r->write)
		memcpy(f->memory + r->offset, r->data, r->len);
	else
		memcpy(r->data, f->memory + r->offset, r->len);
	r->result = 0;
}

static struct kv_far_request *poll_ends(struct kv_far *far, bool wait)
{
	struct far_throttle *f = (struct far_throttle *)far;
	struct kv_far_request *ended = NULL;

	while (f->num) {
		struct kv_far_request *r = f->queue[f->first];

		if (f->ends[f->first] > time_ns()) {
			if (ended || !wait)
				break;
			continue;
		}
		f->first = (f->first + 1) % KV_FAR_REQUESTS;
		f->num--;
		move(f, r);
		r->next = ended;
		ended = r;
	}
	return ended;
}

static void close_memory(struct kv_far *far)
{
	struct far_throttle *f = (struct far_throttle *)far;

	mem_free_pages(f->memory, f->size);
	free(f);
}

struct kv_far *far_throttle(uint64_t delay_ns, uint64_t gap_ns)
{
	struct far_throttle *f = calloc(1, sizeof(*f));

	if (!f)
		exit(1);
	f->far = (struct kv_far){open_memory, start, poll_ends, close_memory};
	f->delay = delay_ns;
	f->gap = gap_ns;
	return &f->far;
}
