/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters and locks as chains: a client SENDs the address of a counter and the number to add, or
 * that of a lock, and the NIC answers. No CPU of the server takes part, and the client has no key
 * of the server's memory. docs/chains.md describes them.
 *
 * The queue pairs of a client are those of roost/chain_lookup.h, and so is the reply: a struct
 * roost_lookup_end. A client has one request under way at a time. The number of a request must
 * differ from that of the previous request.
 */
#ifndef ROOST_CHAIN_ATOMIC_H
#define ROOST_CHAIN_ATOMIC_H

#include "roost/chain_lookup.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- counters: words of 8 bytes, aligned ---- */

struct roost_counter {
	struct roost_chain loop;   /* depth ROOST_COUNTER_LOOP; it watches the receives */
	struct roost_chain answer; /* depth ROOST_LOOKUP_ANSWER, stride ROOST_LOOKUP_STRIDE */
	uint32_t watch;		   /* index of the CQ of the client's requests */
	uint32_t counter_key;	   /* of the region of counters */
	struct roost_ref reply;	   /* client's memory: a struct roost_lookup_end */
};
#define ROOST_COUNTER_LOOP 4u
#define ROOST_COUNTER_SGES 3u

/*
 * Emits the counter into both queues, whose images must be empty, and stores the
 * ROOST_COUNTER_SGES entries of the receive to post. Then the caller posts both images and the
 * receive, and enables one receive and the whole loop queue, once. Errors: in the queues' `error`.
 */
void roost_counter_emit(const struct roost_counter *c, struct roost_sge *sge);

/* Fills in a request that adds to a counter. Returns the bytes to SEND. */
static inline uint32_t roost_counter_request(struct roost_lookup_request *r, uint64_t counter,
					     uint64_t add, uint64_t number)
{
	r->word[0] = counter;
	r->word[1] = add;
	r->word[2] = number;
	return 3 * sizeof(r->word[0]);
}

/* Returns true if the reply has come, and stores the value that the counter had before. */
static inline bool roost_counter_result(const struct roost_lookup_end *end, uint64_t number,
					uint64_t *before)
{
	if (__atomic_load_n(&end->number, __ATOMIC_ACQUIRE) != number)
		return false;
	*before = end->found[0];
	return true;
}

/* ---- locks: words of 8 bytes, aligned; 0: the lock is free, else its owner ---- */

struct roost_lock {
	struct roost_chain loop;   /* depth ROOST_LOCK_LOOP; it watches the receives */
	struct roost_chain answer; /* depth ROOST_LOOKUP_ANSWER, stride ROOST_LOOKUP_STRIDE */
	uint32_t watch;		   /* index of the CQ of the client's requests */
	uint32_t lock_key;	   /* of the region of locks */
	/* value of the lock while this client owns it; not 0; the client cannot change it */
	uint64_t owner;
	struct roost_ref reply; /* client's memory: a struct roost_lookup_end */
};
#define ROOST_LOCK_LOOP 16u
#define ROOST_LOCK_SGES 5u

/* Emits the lock, as roost_counter_emit() emits a counter, with ROOST_LOCK_SGES entries. */
void roost_lock_emit(const struct roost_lock *l, struct roost_sge *sge);

enum roost_lock_action { ROOST_LOCK = 1, ROOST_UNLOCK };

/* Fills in a request that tries to take a lock, or gives it back. Returns the bytes to SEND. */
static inline uint32_t roost_lock_request(struct roost_lookup_request *r,
					  enum roost_lock_action action, uint64_t lock,
					  uint64_t number)
{
	r->word[0] = ROOST_OPERAND(action);
	r->word[1] = r->word[2] = lock;
	r->word[3] = number;
	return 4 * sizeof(r->word[0]);
}

enum roost_lock_result { ROOST_LOCK_PENDING, ROOST_LOCK_DONE, ROOST_LOCK_REFUSED };

/*
 * Returns the state of a request: pending until the reply comes, then done or refused. A request to
 * take the lock is refused if another client owns it; end->found[0] is then that client's `owner`.
 * A request to give the lock back is refused if the client does not own it. `owner` is the value of
 * this client.
 */
static inline enum roost_lock_result roost_lock_result(const struct roost_lookup_end *end,
						       enum roost_lock_action action,
						       uint64_t owner, uint64_t number)
{
	if (__atomic_load_n(&end->number, __ATOMIC_ACQUIRE) != number)
		return ROOST_LOCK_PENDING;
	return end->found[0] == (action == ROOST_LOCK ? 0 : owner) ? ROOST_LOCK_DONE
								   : ROOST_LOCK_REFUSED;
}

#ifdef __cplusplus
}
#endif

#endif
