/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes both sides of a shm ring whose other side is hostile: the input is a script of the other
 * side's writes to the shared memory (descriptors, indices) and of our side's calls.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared_ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t ends[SHM_RING_DESCS];

static void must(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "fuzz_shm: %s\n", what);
		abort();
	}
}

static bool within(const uint8_t *bth, uint32_t len)
{
	return bth >= ring.data && bth + len <= ring.data + RING;
}

/* Receives as the port does. False: the ring is known to be invalid. */
static bool consume(struct shm_cons *c, unsigned most)
{
	uint32_t len;
	uint8_t *bth, tos;
	int look = shm_cons_look(c), rc = 0;

	shm_cons_watch(c);
	while (most--) {
		rc = shm_cons_next(c, &bth, &len, &tos);
		if (rc <= 0)
			break;
		must(len >= SHM_MIN_LEN && len <= PKT_MAX_LEN, "a length out of bounds");
		must(within(bth, len), "a packet outside the ring");
		bth[0] = bth[len - 1];
	}
	must(look >= 0 || rc < 0, "nonsense was seen and taken");
	return rc >= 0;
}

static bool produce(struct shm_prod *p, uint32_t len)
{
	uint8_t *bth = shm_prod_reserve(p, len, 0);

	if (bth) {
		must(within(bth, len) || (bth == p->first && len <= SHM_WATCHED),
		     "space outside the ring");
		memset(bth, 0x5a, len);
	}
	must(p->pos - p->free <= RING, "reserved more than the ring holds");
	must(p->index - p->head <= SHM_RING_DESCS, "reserved more than there are descriptors");
	return !p->broken;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct shm_cons c = {.ctl = &ring.ctl,
			     .descs = ring.descs,
			     .data = ring.data,
			     .size = RING,
			     .populated = RING};
	struct shm_prod p = {.ctl = &ring.ctl,
			     .descs = ring.descs,
			     .data = ring.data,
			     .ends = ends,
			     .size = RING,
			     .extent = RING};
	bool good = true;

	memset(&ring, 0, sizeof(ring));
	/* A step has nine bytes: its kind and a number. */
	for (; good && size >= 9; data += 9, size -= 9) {
		uint64_t v;

		memcpy(&v, data + 1, 8);
		switch (data[0] % 10) {
		case 0: /* a descriptor anywhere */
			atomic_store(&ring.descs[v >> 32 & (SHM_RING_DESCS - 1)], v);
			break;
		case 1: /* a valid one at the position of the consumer */
			atomic_store(&ring.descs[c.head % SHM_RING_DESCS],
				     shm_desc(c.head, (uint32_t)(v >> 32) % RING, v % 4200,
					      (uint8_t)(v >> 16)));
			break;
		case 2: /* one round of the ring too far */
			atomic_store(&ring.descs[c.head % SHM_RING_DESCS],
				     shm_desc(c.head + SHM_RING_DESCS, 0, 100, 0));
			break;
		case 3: /* bytes anywhere in front of the data */
			memset((uint8_t *)&ring + v % (SHM_RING_OVERHEAD - 64), (int)(v >> 32), 64);
			break;
		case 4: /* the same descriptor in the whole ring */
			for (unsigned i = 0; i < SHM_RING_DESCS; i++)
				atomic_store(&ring.descs[i], v);
			break;
		case 5: /* all of them valid */
			for (unsigned i = 0; i < SHM_RING_DESCS; i++)
				atomic_store(&ring.descs[(c.head + i) % SHM_RING_DESCS],
					     shm_desc(c.head + i, (uint32_t)(v >> 32) % RING,
						      v % 4200, 0));
			break;
		case 6:
			good = consume(&c, 1 + v % 64);
			break;
		case 7:
			shm_cons_release(&c);
			break;
		case 8:
			atomic_store(&ring.ctl.head,
				     data[8] & 1 ? v : p.head + v % (SHM_RING_DESCS + 8));
			break;
		default:
			good = produce(&p, SHM_MIN_LEN + v % (PKT_MAX_LEN - SHM_MIN_LEN + 1));
			if (data[8] & 1)
				shm_prod_publish(&p);
			else if (data[8] & 2)
				shm_prod_cancel(&p);
			else if (data[8] & 4)
				shm_prod_publish_finished(&p);
			break;
		}
	}
	return 0;
}
