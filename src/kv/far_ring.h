/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests of a far tier in a file, by io_uring. */
#ifndef ROOST_KV_FAR_RING_H
#define ROOST_KV_FAR_RING_H

#include "kv/far.h"

struct far_ring;

/* Opens a ring for a file. Returns 0, or a negative errno if io_uring is not available. */
int far_ring_open(int fd, struct far_ring **out);
void far_ring_start(struct far_ring *r, struct kv_far_request *q);
struct kv_far_request *far_ring_poll(struct far_ring *r, bool wait);
void far_ring_close(struct far_ring *r);

#endif
