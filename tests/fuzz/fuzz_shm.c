/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes both sides of a shm ring whose other side is hostile: the input is a script of what the other side writes into
 * the shared memory (record headers, indices) and of what ours does meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "port/shm_ring.h"

#define RING SHM_RING_MIN

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
	union {
		struct shm_ring_ctl ctl;
		uint8_t page[SHM_RING_CTL_BYTES];
	};
	uint8_t data[RING];
} ring __attribute__((aligned(4096)));

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

/* Receives as the port does. False: the ring was found out. */
static bool consume(struct shm_cons *c, unsigned most)
{
	uint32_t len;
	uint8_t *bth, tos;
	int rc = 1;

	if (c->head == c->tail)
		rc = shm_cons_look(c);
	shm_cons_ahead(c, 4160);
	while (rc > 0 && most--) {
		rc = shm_cons_next(c, &bth, &len, &tos);
		if (rc <= 0)
			break;
		must(len >= SHM_MIN_LEN && len <= PKT_MAX_LEN, "a length out of bounds");
		must(within(bth, len), "a packet outside the ring");
		must(c->head - c->released <= RING, "more than the ring holds");
		bth[0] = bth[len - 1];
	}
	must(c->tail - c->head <= RING, "past the tail");
	return rc >= 0;
}

static bool produce(struct shm_prod *p, uint32_t len)
{
	uint8_t *bth = shm_prod_reserve(p, len, 0);

	if (bth) {
		must(within(bth, len), "room outside the ring");
		memset(bth, 0x5a, len);
	}
	must(p->tail - p->head <= RING, "reserved more than the ring holds");
	return !p->broken;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct shm_cons c = {.ctl = &ring.ctl, .data = ring.data, .size = RING, .populated = RING};
	struct shm_prod p = {.ctl = &ring.ctl, .data = ring.data, .size = RING, .extent = RING};
	bool good = true;

	memset(&ring, 0, sizeof(ring));
	/* Nine bytes a step: what, and a number. */
	for (; good && size >= 9; data += 9, size -= 9) {
		uint64_t v;

		memcpy(&v, data + 1, 8);
		switch (data[0] % 10) {
		case 0: /* a header anywhere */
			atomic_store(shm_rec_word(ring.data, v >> 40 << 6, RING), v & 0xffffffffffu);
			break;
		case 1: /* an honest-looking header where the consumer stands */
			atomic_store(shm_rec_word(ring.data, c.head, RING),
				     v % 4200 | (uint64_t)SHM_REC_DATA << 24);
			break;
		case 2:
			atomic_store(shm_rec_word(ring.data, c.head, RING), (uint64_t)SHM_REC_TURN << 24);
			break;
		case 3: /* bytes anywhere */
			memset(ring.data + v % (RING - 256), (int)(v >> 32), 256);
			break;
		case 4:
			atomic_store(&ring.ctl.tail, v);
			break;
		case 5:
			atomic_store(&ring.ctl.tail, c.head + v % (RING + 128));
			break;
		case 6:
			good = consume(&c, 1 + v % 64);
			break;
		case 7:
			shm_cons_release(&c);
			break;
		case 8:
			atomic_store(&ring.ctl.head, data[8] & 1 ? v : p.head + v % (RING + 128));
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
