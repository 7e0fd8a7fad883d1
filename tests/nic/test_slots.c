/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several NICs behind one address, identified by the slot in their QP numbers. Packets reach the
 * right NIC, loop-back stays within a NIC, and each NIC has its own window and its own liveness.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "nic/core.h"
#include "nic/dest.h"
#include "world.h"

static struct world W, *const w = &W;
static uint64_t packets;

static void tap(void *ctx, uint64_t now, bool delivered, const struct pkt_addr *src,
		const struct pkt_addr *dst, const uint8_t *bth, uint32_t len)
{
	packets += !delivered;
}

static void open_world(unsigned nics, unsigned pus, const struct sim_params *params)
{
	struct sim_params usual = {.delay_ns = 1000};

	world_init_shape(w, &(struct world_shape){.nics = nics, .pus = pus, .one_address = true}, 3,
			 params ? params : &usual);
	sim_set_tap(w->sim, tap, NULL);
	packets = 0;
}

static uint8_t status_of(struct ep *e, uint64_t ns)
{
	struct roost_cqe c;

	assert_true(ep_wait_send(e, &c, ns));
	return c.status;
}

static void write_checked(struct ep *a, struct ep *b, uint8_t value)
{
	struct wr wr = wr_rdma(ROOST_OP_WRITE, a, 0, 3000, b, 5000);

	memset(a->mem, value, 3000);
	memset(b->mem + 5000, 0, 3000);
	ep_post(a, &wr);
	assert_int_equal(status_of(a, SEC), NIC_WC_SUCCESS);
	assert_memory_equal(a->mem, b->mem + 5000, 3000);
}

/* Eight NICs at one address: each connects to each other one, and to itself. */
static void all_to_all(void **state)
{
	static struct ep a[WORLD_MAX_NICS][WORLD_MAX_NICS], b[WORLD_MAX_NICS][WORLD_MAX_NICS];

	open_world(WORLD_MAX_NICS, 1, NULL);
	for (unsigned i = 0; i < WORLD_MAX_NICS; i++)
		for (unsigned j = 0; j < WORLD_MAX_NICS; j++) {
			ep_init(&a[i][j], w, i, NULL);
			ep_init(&b[i][j], w, j, NULL);
			assert_int_equal(PORT_SLOT_OF_QPN(nic_qp_num(a[i][j].qp)), i);
			ep_connect(&a[i][j], &b[i][j]);
		}
	for (unsigned i = 0; i < WORLD_MAX_NICS; i++)
		for (unsigned j = 0; j < WORLD_MAX_NICS; j++) {
			uint64_t before = packets;

			write_checked(&a[i][j], &b[i][j], (uint8_t)(1 + 16 * i + j));
			if (i == j) /* through the DMA engine */
				assert_int_equal(packets, before);
			else
				assert_true(packets > before);
		}
	for (unsigned i = 0; i < WORLD_MAX_NICS; i++)
		for (unsigned j = 0; j < WORLD_MAX_NICS; j++) {
			ep_fini(&a[i][j]);
			ep_fini(&b[i][j]);
		}
	world_fini(w);
}

/* One slot for each PU: the PUs of one NIC, and of two. */
static void units(void **state)
{
	for (uint8_t x = 0; x < 4; x++)
		for (uint8_t y = 0; y < 8; y++) {
			struct ep_params p = {.pu = x};
			struct ep a, b;

			open_world(2, 4, NULL);
			ep_init(&a, w, 0, &p);
			p.pu = y % 4;
			ep_init(&b, w, y / 4, &p);
			assert_int_equal(PORT_SLOT_OF_QPN(nic_qp_num(b.qp)), y);
			ep_connect(&a, &b);
			write_checked(&a, &b, 7);
			write_checked(&b, &a, 8);
			assert_int_equal(packets == 0, x == y);
			ep_fini(&a);
			ep_fini(&b);
			world_fini(w);
		}
}

/* A QP number of another slot is never one of ours, even if no NIC has that slot. */
static void nobody_has_it(void **state)
{
	struct ep_params p = {.timeout = 8, .retry_cnt = 1};
	struct nic_qp_attr attr;
	struct ep a, b;
	struct wr wr;

	open_world(1, 1, NULL);
	ep_init(&a, w, 0, &p);
	ep_init(&b, w, 0, &p);
	ep_to_init(&a);
	ep_attr(&a, &b, &attr);
	attr.dest_qpn ^= 5u << 18;
	ep_to_rtr(&a, &attr);
	ep_to_rts(&a, &attr);
	wr = wr_rdma(ROOST_OP_WRITE, &a, 0, 8, &b, 0);
	ep_post(&a, &wr);
	assert_int_equal(status_of(&a, SEC), NIC_WC_RETRY_EXC_ERR);
	assert_true(packets > 0);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(w);
}

/* Each slot has a receive buffer of its own, so slots have separate windows. */
static void windows(void **state)
{
	struct sim_params params = {.delay_ns = 1000, .window = 65536};
	struct ep_params p = {.mem = 1 << 20};
	struct ep a[3], b[3];

	open_world(3, 1, &params);
	for (unsigned i = 0; i < 3; i++) { /* two to NIC 1, one to NIC 2 */
		ep_init(&a[i], w, 0, &p);
		ep_init(&b[i], w, 1 + i / 2, &p);
		ep_connect(&a[i], &b[i]);
	}
	assert_ptr_equal(a[0].qp->dest, a[1].qp->dest);
	assert_ptr_not_equal(a[0].qp->dest, a[2].qp->dest);
	for (unsigned i = 0; i < 2; i++) {
		struct wr wr = wr_rdma(ROOST_OP_WRITE, &a[i], 0, 500000, &b[i], 0);

		w->paused_until[1] = world_now(w) + 100 * MSEC;
		ep_post(&a[i], &wr);
	}
	world_run(w, world_now(w) + MSEC);
	assert_in_range(a[0].qp->dest->inflight, 60000, 65536); /* it waits */
	write_checked(&a[2], &b[2], 9);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(status_of(&a[i], 10 * SEC), NIC_WC_SUCCESS);
	for (unsigned i = 0; i < 3; i++) {
		ep_fini(&a[i]);
		ep_fini(&b[i]);
	}
	world_fini(w);
}

/* One of three NICs at the address is killed: its peer's requests end, the others continue. */
static void killed(void **state)
{
	struct ep_params p = {.timeout = 14, .retry_cnt = 2};
	struct ep a[2], b[2];
	struct wr wr;

	open_world(3, 1, NULL);
	for (unsigned i = 0; i < 2; i++) {
		ep_init(&a[i], w, 0, &p);
		ep_init(&b[i], w, 1 + i, &p);
		ep_connect(&a[i], &b[i]);
		write_checked(&a[i], &b[i], 1);
	}
	world_kill(w, 1);
	wr = wr_rdma(ROOST_OP_WRITE, &a[0], 0, 8, &b[0], 0);
	ep_post(&a[0], &wr);
	write_checked(&a[1], &b[1], 2);
	assert_int_equal(status_of(&a[0], 10 * SEC), NIC_WC_RETRY_EXC_ERR);
	write_checked(&a[1], &b[1], 3);
	ep_fini(&a[0]);
	ep_fini(&a[1]);
	ep_forget(&b[0]);
	ep_fini(&b[1]);
	world_fini(w);
}

/*
 * One of two peers at an address is stopped (SIGSTOP), the other one sends packets. These are no
 * sign of life of the first one, and its retries are not counted while it is stopped.
 */
static void stopped(void **state)
{
	struct sim_params params = {.delay_ns = 1000, .readers = true};
	struct ep_params p = {.timeout = 14, .retry_cnt = 2};
	struct ep a[2], b[2];
	struct wr wr;

	open_world(3, 1, &params);
	for (unsigned i = 0; i < 2; i++) {
		ep_init(&a[i], w, 0, &p);
		ep_init(&b[i], w, 1 + i, &p);
		ep_connect(&a[i], &b[i]);
	}
	w->paused_until[1] = world_now(w) + 20 * SEC;
	wr = wr_rdma(ROOST_OP_WRITE, &a[0], 0, 8, &b[0], 0);
	ep_post(&a[0], &wr);
	for (unsigned i = 0; i < 100; i++) {
		world_run(w, world_now(w) + 50 * MSEC);
		write_checked(&a[1], &b[1], (uint8_t)i);
	}
	assert_int_equal(status_of(&a[0], 60 * SEC), NIC_WC_SUCCESS);
	for (unsigned i = 0; i < 2; i++) {
		ep_fini(&a[i]);
		ep_fini(&b[i]);
	}
	world_fini(w);
}

/* All ports of a NIC have the same slot, also ports that are added later. */
static void ports_agree(void **state)
{
	struct port *lane[NIC_MAX_PUS] = {NULL};
	struct pkt_addr addr;

	open_world(2, 1, NULL);
	assert_int_equal(nic_slot(w->nic[1], 0), 1);
	assert_int_equal(pkt_addr_parse("10.0.9.9", &addr), 0);
	lane[0] = sim_port(w->sim, &addr, 0, 1);
	sim_share(lane[0], 2);
	assert_int_equal(nic_port_add(w->nic[1], 1, lane), -EINVAL);
	sim_share(lane[0], 1);
	assert_int_equal(nic_port_add(w->nic[1], 1, lane), 0);
	w->port[1][1][0] = lane[0];
	world_fini(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_to_all),	 cmocka_unit_test(units),
		cmocka_unit_test(nobody_has_it), cmocka_unit_test(windows),
		cmocka_unit_test(killed),	 cmocka_unit_test(stopped),
		cmocka_unit_test(ports_agree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
