/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The longest message, 2^31 bytes, in the smallest packets: 2^23 of them, half of all PSNs, from
 * requester to responder over a link that loses some. The memory of both ends is a mapping of 2 GiB
 * of one small file. Each 256 bytes begin with their offset in the file, so the test can check that
 * a packet has the bytes of its PSN.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "world.h"

#define MTU	256
#define ALL	(1ull << 31)
#define PACKETS (1u << 23)
#define PERIOD	(17ull << 16) /* pages of each size; of a length that divides no power of two */
#define ROUND	((ALL + PERIOD - 1) / PERIOD * PERIOD)
#define DELAY	2000

static struct world W, *const w = &W;
static struct ep A, B, *const a = &A, *const b = &B;

struct big {
	uint8_t *mem;
	uint32_t key;
	int fd;
};

static struct {
	uint32_t first;	  /* PSN of the message */
	uint64_t packets; /* with payload, as they were sent */
	uint64_t next;	  /* one past the furthest of them */
	uint64_t wrong;	  /* packets with the wrong bytes */
} seen;

static void open_big(struct big *m, struct ep *e, bool filled)
{
	struct nic_mr_attr attr = {.pd = e->pd, .len = ALL, .access = 15};

	m->fd = memfd_create("longest", 0);
	assert_true(m->fd >= 0);
	assert_int_equal(ftruncate(m->fd, (off_t)PERIOD), 0);
	m->mem = mmap(NULL, ROUND, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(m->mem != MAP_FAILED);
	for (uint64_t at = 0; at < ROUND; at += PERIOD)
		assert_true(mmap(m->mem + at, PERIOD, PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_FIXED | MAP_POPULATE, m->fd, 0) != MAP_FAILED);
	for (uint64_t i = 0; filled && i < PERIOD; i += 8)
		*(uint64_t *)(m->mem + i) = i;
	attr.addr = m->mem;
	attr.iova = (uintptr_t)m->mem;
	assert_int_equal(nic_mr_register(e->nic, &attr, &m->key), 0);
}

static void close_big(struct big *m, struct ep *e)
{
	assert_int_equal(nic_mr_deregister(e->nic, m->key), 0);
	munmap(m->mem, ROUND);
	close(m->fd);
}

static void look(void *ctx, uint64_t now, bool delivered, const struct pkt_addr *src,
		 const struct pkt_addr *dst, const uint8_t *bth, uint32_t len)
{
	struct pkt_view v;
	uint64_t index, stamp;

	if (delivered || pkt_parse(bth, len, &v) != PKT_OK || !v.payload_len)
		return;
	index = (v.psn - seen.first) & PKT_PSN_MASK;
	memcpy(&stamp, v.payload, sizeof(stamp));
	seen.packets++;
	seen.wrong += index >= PACKETS || v.payload_len != MTU || stamp != index * MTU % PERIOD;
	seen.next = index + 1 > seen.next ? index + 1 : seen.next;
	/* A long READ is cut into requests, each with responses of its own. */
	if (v.op->kind != PKT_KIND_READ_RESP) {
		seen.wrong += !!(v.op->flags & PKT_FIRST) != (index == 0) ||
			      !!(v.op->flags & PKT_LAST) != (index == PACKETS - 1);
		if (v.op->flags & PKT_FIRST)
			seen.wrong += v.op->flags & PKT_RETH && v.dmalen != ALL;
	}
}

/* With PSNs that wrap, and without. */
static void message(enum roost_op op, uint32_t psn)
{
	struct ep_params p = {.mtu = MTU, .psn = psn};
	struct big from, to;
	struct roost_cqe c;
	struct wr wr = {.op = op, .wr_id = 7, .num_sge = 1};
	struct ep *source = op == ROOST_OP_READ ? b : a, *sink = op == ROOST_OP_READ ? a : b;

	world_init(w, 2, 77,
		   &(struct sim_params){.delay_ns = DELAY,
					.loss = 1e-4,
					.window = 1 << 18,
					.read_window = 1 << 18});
	ep_init(a, w, 0, &p);
	ep_init(b, w, 1, &p);
	ep_connect(a, b);
	open_big(&from, source, true);
	open_big(&to, sink, false);
	memset(&seen, 0, sizeof(seen));
	seen.first = psn;
	sim_set_tap(w->sim, look, NULL);
	if (op == ROOST_OP_SEND)
		ep_post_recv(b, 8, &(struct roost_sge){(uintptr_t)to.mem, (uint32_t)ALL, to.key},
			     1);
	wr.sge[0] = op == ROOST_OP_READ
			    ? (struct roost_sge){(uintptr_t)to.mem, (uint32_t)ALL, to.key}
			    : (struct roost_sge){(uintptr_t)from.mem, (uint32_t)ALL, from.key};
	wr.raddr = (uintptr_t)(op == ROOST_OP_READ ? from.mem : to.mem);
	wr.rkey = op == ROOST_OP_READ ? from.key : to.key;
	ep_post(a, &wr);
	/* The first PSN plus half of the number space is that of the second message. */
	wr = wr_rdma(ROOST_OP_WRITE, a, 0, 8, b, 64);
	wr.wr_id = 9;
	a->mem[0] = 0x5a;
	assert_true(ep_wait_send(a, &c, 1000 * SEC));
	assert_int_equal(c.wr_id, 7);
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	assert_int_equal(seen.wrong, 0);
	assert_int_equal(seen.next, PACKETS);
	assert_true(seen.packets > PACKETS); /* some were lost */
	if (op == ROOST_OP_SEND) {
		assert_true(ep_wait_recv(b, &c, SEC));
		assert_int_equal(c.byte_len, ALL);
	}
	assert_memory_equal(to.mem, from.mem, PERIOD);
	sim_set_tap(w->sim, NULL, NULL);
	ep_post(a, &wr);
	assert_true(ep_wait_send(a, &c, 1000 * SEC));
	assert_int_equal(c.wr_id, 9);
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	assert_int_equal(b->mem[64], 0x5a);
	close_big(&from, source);
	close_big(&to, sink);
	ep_fini(a);
	ep_fini(b);
	world_fini(w);
}

static void longest_write(void **state)
{
	message(ROOST_OP_WRITE, 0);
}

static void longest_read(void **state)
{
	message(ROOST_OP_READ, 0xffffff);
}

static void longest_send(void **state)
{
	message(ROOST_OP_SEND, 0x7ffff0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(longest_write),
		cmocka_unit_test(longest_read),
		cmocka_unit_test(longest_send),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
