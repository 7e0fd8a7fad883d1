/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes a lane of shm whose other end changes packets, descriptors and indices while they are
 * read: a second thread writes to the shared memory without pause, and the first thread takes
 * packets as the NIC does. A length or an op-code that is loaded twice, once to check it and once
 * to use it, then has two values. The input:
 *
 *	number of lies
 *	lies of 6 bytes: where, index (2), size, two values
 *	commands of 2 bytes: how many packets, and how long
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "packet/headers.h"
#include "packet/icrc.h"
#include "shared_ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LIES	 8
#define COMMANDS 64
#define ROUNDS	 4
#define MOST	 32 /* packets of a command */

/*
 * Writes `value[0]` and `value[1]` by turns: eight bytes at `at`, which is aligned so, or the one
 * at `at[offset]`.
 */
struct lie {
	volatile uint8_t *at;
	uint8_t offset;
	bool long_one;
	uint64_t value[2];
};

/* The thread is never stopped: its writes are replaced while it runs, and may mix. */
static struct lie lie[LIES];
static atomic_uint lies;

static void *write_on(void *arg)
{
	for (;;) {
		for (unsigned i = 0; i < 2 * atomic_load_explicit(&lies, memory_order_relaxed);
		     i++) {
			const struct lie *y = &lie[i / 2];

			if (y->long_one)
				*(volatile uint64_t *)y->at = y->value[i & 1];
			else
				y->at[y->offset] = (uint8_t)y->value[i & 1];
		}
	}
	return NULL;
}

static void take_lie(struct input *in, struct lie *y)
{
	uint8_t where = u8(in) % 4;
	uint32_t index = u16(in);
	struct lie new = {.long_one = u8(in) % 4 == 0};
	uint8_t first = u8(in), second;

	second = u8(in);
	new.value[0] = first;
	new.value[1] = second;
	switch (where) {
	case 0: /* descriptors: the right one, and one with another length or position */
		new.at = (volatile uint8_t *)&ring.descs[index % SHM_RING_DESCS];
		new.long_one = true;
		new.value[0] = shm_desc(index % SHM_RING_DESCS, 0, 60, 0);
		new.value[1] = shm_desc(index % SHM_RING_DESCS, second * 64u, first * 20u, second);
		break;
	case 1:
		new.at = ring.page + index % SHM_RING_CTL;
		break;
	default: /* headers of the packets at the front, payload */
		new.at = ring.data + (where == 2 ? index % 512 : index % RING);
	}
	new.offset = (uintptr_t) new.at & 7;
	new.at -= new.offset;
	*y = new;
}

/*
 * Reads the bytes of a packet as the NIC does. They change meanwhile, but the checked values must
 * stay valid.
 */
static void look(const uint8_t *bth, uint32_t len)
{
	static const struct pkt_addr a = {{[15] = 1}}, b = {{[15] = 2}};
	static uint8_t copy[PKT_MAX_LEN];
	struct icrc_flow f;
	struct pkt_view v;
	uint16_t id = 0;
	char text[64];

	icrc_flow_init(&f, &a, &b, PKT_UDP_PORT, PKT_UDP_PORT);
	icrc_verify(&f, true, &id, bth, len);
	if (pkt_parse(bth, len, &v) != PKT_OK)
		return;
	must(v.op == &pkt_ops[v.opcode] && v.op->name, "an op-code that was not checked");
	must(v.op->hdr_len + v.payload_len + v.pad + PKT_ICRC_LEN == len, "lengths don't add up");
	must(v.payload == bth + v.op->hdr_len, "payload is elsewhere");
	must(v.psn <= PKT_PSN_MASK && v.dqpn <= PKT_QPN_MASK, "a number of more than 24 bits");
	memcpy(copy, v.payload, v.payload_len);
	pkt_print(&v, text, sizeof(text));
}

static bool within(const uint8_t *bth, uint32_t len)
{
	return bth >= ring.data && bth + len <= ring.data + RING;
}

/*
 * The other end sends packets, as a right one does, and this end takes them. False: the ring
 * detected a wrong value, and the port drops the connection.
 */
static bool command(struct shm_cons *c, unsigned count, uint32_t index)
{
	uint32_t len = 0;
	uint8_t *bth, tos;
	int rc = 1;

	for (unsigned i = 0; i < count; i++) {
		uint8_t *at = ring.data + (index * 64 + i * 64) % (RING - 4096);

		memset(at, 0, 64);
		at[0] = (uint8_t)(index + i) % 0x1d;
		at[1] = PKT_BTH_MIGREQ;
		atomic_store(&ring.descs[(c->head + i) % SHM_RING_DESCS],
			     shm_desc(c->head + i, (uint32_t)(at - ring.data),
				      16 + (index + i) % 13 * 4, 0));
	}
	if (shm_cons_look(c) < 0)
		return false;
	while (count-- && (rc = shm_cons_next(c, &bth, &len, &tos)) > 0) {
		must(len >= SHM_MIN_LEN && len <= PKT_MAX_LEN, "a length out of bounds");
		must(within(bth, len), "a packet outside the ring");
		look(bth, len);
	}
	shm_cons_release(c);
	return rc >= 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct shm_cons c = {.ctl = &ring.ctl,
			     .descs = ring.descs,
			     .data = ring.data,
			     .size = RING,
			     .populated = RING};
	struct input in = {data, data + size};
	const uint8_t *begin;
	static bool runs;
	pthread_t other;
	unsigned n;

	memset(&ring, 0, sizeof(ring));
	n = u8(&in) % (LIES + 1);
	for (unsigned i = 0; i < n; i++)
		take_lie(&in, &lie[i]);
	atomic_store(&lies, n);
	begin = in.p;
	if (!runs)
		must(pthread_create(&other, NULL, write_on, NULL) == 0, "no thread");
	runs = true;
	for (unsigned i = 0; i < ROUNDS * COMMANDS && c.head < UINT32_MAX / 2; i++) {
		unsigned count;

		if (in.p == in.end)
			in.p = begin; /* the same again: the other thread is elsewhere by now */
		count = 1 + u8(&in) % MOST;
		if (begin == in.end || !command(&c, count, u8(&in)))
			break;
	}
	atomic_store(&lies, 0);
	return 0;
}
