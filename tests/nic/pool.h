/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Equal receives, for any message: in a shared receive queue, or in a QP's own receive queue if its
 * messages are not known in advance. A slot is posted, filled, read, and posted again.
 */
#ifndef ROOST_TESTS_POOL_H
#define ROOST_TESTS_POOL_H

#include "base/rng.h"
#include "world.h"

#define POOL_SLOTS    15u
#define POOL_DEPTH    16u /* of the queue */
#define POOL_SLOT_LEN (SHARED_RQ_MEM / POOL_SLOTS / 8 * 8)
#define POOL_FILL     0xa5 /* the value of bytes that no message has written */

struct pool {
	struct shared_rq srq; /* used when own is NULL */
	struct ep *own;
	uint32_t base; /* of the slots in own's memory */
	bool busy[POOL_SLOTS];
	uint32_t limit, limit_from,
		events; /* SRQ: the requested limit; receives taken and events seen at that time */
};

void pool_init_shared(struct pool *p, struct nic *nic);
/*
 * The slots are POOL_SLOTS * POOL_SLOT_LEN bytes of e's memory from `base` on. The queue has space
 * for all of them.
 */
void pool_init_own(struct pool *p, struct ep *e, uint32_t base);
void pool_fini(struct pool *p);
/* Posts some of the free slots, at most n. */
void pool_post(struct pool *p, unsigned n, struct rng *r);
/* Returns the bytes of a completion, until pool_free(). NULL: this receive was not posted. */
uint8_t *pool_slot(struct pool *p, uint64_t wr_id);
void pool_free(struct pool *p, uint64_t wr_id);
/* Returns whether the rest of the slot is as it was posted. */
bool pool_rest_untouched(const uint8_t *slot, uint32_t from);
/* Sometimes requests a limit event. False: an event is missing, or was not requested. */
bool pool_check_limit(struct pool *p, struct rng *r);

#endif
