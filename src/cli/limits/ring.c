/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bare ring: the limit for two cores that pass messages with the least work of a software RDMA
 * NIC, which is to copy the payload in and out and to compute a CRC-32 on both sides. The ring has
 * 1024 slots of 4,160 bytes; indices are published every 16 messages, or every 32 small ones.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "cli/limits/limit.h"
#include "packet/crc32.h"

#define SLOTS	  1024u
#define SLOT	  4160u /* a payload of 4 KiB, headers, CRC */
#define RING	  (SLOTS * SLOT)
#define SMALL	  256u
#define WORK_SIZE (64u << 10) /* size of the message that the program at either end works on */

/* One direction. The slots are in shared memory, as between processes. */
struct ring {
	_Alignas(128) _Atomic uint64_t tail;
	_Alignas(128) _Atomic uint64_t head;
	_Alignas(128) uint8_t *slots;
	uint8_t *from, *to;
};

struct job {
	struct ring ring[2]; /* ring[i]: written by side i */
	uint32_t payload, burst;
	bool both;
	atomic_bool wrong;
};

struct sender {
	uint64_t tail, head;
	uint32_t at;
};

struct receiver {
	uint64_t head;
	uint32_t at;
};

/* Returns the place of the next message in the program's memory. */
static uint32_t advance(uint32_t at, uint32_t payload)
{
	at += payload;
	return at + payload <= WORK_SIZE ? at : 0;
}

/* Sends a burst, if there is space for it. */
static bool send_burst(struct job *j, struct ring *r, struct sender *s)
{
	if (s->tail + j->burst - s->head > SLOTS) {
		s->head = atomic_load_explicit(&r->head, memory_order_acquire);
		if (s->tail + j->burst - s->head > SLOTS)
			return false;
	}
	for (uint32_t i = 0; i < j->burst; i++) {
		uint8_t *slot = r->slots + (s->tail + i) % SLOTS * SLOT;
		uint32_t crc;

		memcpy(slot, r->from + s->at, j->payload);
		crc = crc32_update(0, slot, j->payload);
		memcpy(slot + j->payload, &crc, sizeof(crc));
		s->at = advance(s->at, j->payload);
	}
	s->tail += j->burst;
	atomic_store_explicit(&r->tail, s->tail, memory_order_release);
	return true;
}

/* Receives available messages, at most a burst. */
static uint32_t receive_burst(struct job *j, struct ring *r, struct receiver *s)
{
	uint64_t there = atomic_load_explicit(&r->tail, memory_order_acquire) - s->head;
	uint32_t n = there < j->burst ? (uint32_t)there : j->burst;

	if (n == 0)
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *slot = r->slots + (s->head + i) % SLOTS * SLOT;
		uint32_t crc;

		memcpy(&crc, slot + j->payload, sizeof(crc));
		if (unlikely(crc32_update(0, slot, j->payload) != crc))
			atomic_store(&j->wrong, true);
		memcpy(r->to + s->at, slot, j->payload);
		s->at = advance(s->at, j->payload);
	}
	s->head += n;
	atomic_store_explicit(&r->head, s->head, memory_order_release);
	return n;
}

static void side(void *arg, int me, struct limit_pair *p)
{
	struct job *j = arg;
	struct sender tx = {0};
	struct receiver rx = {0};
	bool sends = j->both || me == 0, receives = j->both || me == 1;
	unsigned spins = 0;
	uint32_t n;

	do {
		bool sent = sends && send_burst(j, &j->ring[me], &tx);

		n = receives ? receive_burst(j, &j->ring[!me], &rx) : 0;
		if (!sent && n == 0)
			limit_wait(p, &spins);
	} while (limit_count(p, me, n));
}

static int ring_init(struct ring *r)
{
	r->slots = mmap(NULL, RING, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	r->from = mem_alloc_pages(WORK_SIZE);
	r->to = mem_alloc_pages(WORK_SIZE);
	if (r->slots == MAP_FAILED || !r->from || !r->to)
		return -ENOMEM;
	for (uint32_t i = 0; i < WORK_SIZE; i++)
		r->from[i] = (uint8_t)(i * 7 + (i >> 8));
	memset(r->to, 1, WORK_SIZE);
	return 0;
}

static void ring_fini(struct ring *r)
{
	if (r->slots && r->slots != MAP_FAILED)
		munmap(r->slots, RING);
	mem_free_pages(r->from, WORK_SIZE);
	mem_free_pages(r->to, WORK_SIZE);
}

int limit_ring(const struct limit_cores *c, uint32_t payload, bool both_ways, double seconds,
	       double *rate)
{
	struct job *j = aligned_alloc(128, sizeof(*j));
	double sides[2];
	int rc;

	if (!j)
		return -ENOMEM;
	memset(j, 0, sizeof(*j));
	j->payload = payload;
	j->burst = payload <= SMALL ? 32 : 16;
	j->both = both_ways;
	rc = ring_init(&j->ring[0]);
	if (rc == 0)
		rc = ring_init(&j->ring[1]);
	if (rc == 0)
		rc = limit_pair_run(c, side, j, seconds, sides);
	if (rc == 0 && j->wrong)
		rc = -EIO;
	if (rc == 0)
		*rate = sides[0] + sides[1];
	ring_fini(&j->ring[0]);
	ring_fini(&j->ring[1]);
	free(j);
	return rc;
}
