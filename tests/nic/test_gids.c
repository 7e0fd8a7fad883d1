/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A port with several addresses: its GID table, connections and datagrams with each address, and
 * packets to the wrong address.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "world.h"

static struct world W, *const w = &W;
static uint64_t packets;

static void tap(void *ctx, uint64_t now, bool delivered, const struct pkt_addr *src,
		const struct pkt_addr *dst, const uint8_t *bth, uint32_t len)
{
	packets += delivered;
}

static struct pkt_addr addr(const char *text)
{
	struct pkt_addr a;

	assert_int_equal(pkt_addr_parse(text, &a), 0);
	return a;
}

/*
 * NIC 0 has 10.0.0.1 and 10.0.8.1 in port 1, NIC 1 has 10.0.0.2 and 10.0.8.2. Port 2 has one
 * address.
 */
static void begin(unsigned pus)
{
	world_init_shape(w, &(struct world_shape){.nics = 2, .ports = 2, .pus = pus}, 1,
			 &(struct sim_params){.delay_ns = 1000});
	sim_set_tap(w->sim, tap, NULL);
	packets = 0;
	assert_int_equal(world_add_addr(w, 0, 1, "10.0.8.1"), 0);
	assert_int_equal(world_add_addr(w, 1, 1, "10.0.8.2"), 0);
}

static void tables(void **state)
{
	struct pkt_addr a = addr("10.0.8.1"), second = addr("10.0.1.1"), nobodys = addr("10.9.9.9");
	struct nic *nic;
	struct nic_gid g;

	begin(1);
	nic = w->nic[0];
	assert_int_equal(nic_port_nums(nic), 2);
	assert_int_equal(nic_gids(nic, 0), 0);
	assert_int_equal(nic_gids(nic, 1), 2);
	assert_int_equal(nic_gids(nic, 2), 1);
	assert_int_equal(nic_gids(nic, 3), 0);
	assert_true(nic_gid(nic, 1, 1, &g));
	assert_int_equal(g.port, 2);
	assert_true(pkt_addr_eq(&nic_port(nic, g.port, 0)->addr, &a));
	assert_true(nic_gid_of(nic, &a, &g));
	assert_int_equal(g.port, 2);
	assert_int_equal(g.port_num, 1);
	assert_int_equal(g.index, 1);
	assert_true(nic_gid_of(nic, &second, &g));
	assert_int_equal(g.port_num, 2);
	assert_int_equal(g.index, 0);
	assert_false(nic_gid_of(nic, &nobodys, &g));
	assert_false(nic_gid(nic, 1, 2, &g));
	assert_false(nic_gid(nic, 0, 0, &g));
	assert_false(nic_gid(nic, 3, 0, &g));
	assert_null(nic_port(nic, 3, 0));
	assert_int_equal(world_add_addr(w, 0, 0, "10.1.0.1"), -EINVAL);
	assert_int_equal(world_add_addr(w, 0, 3, "10.1.0.1"), -EINVAL);
	for (unsigned i = 3; i < NIC_MAX_PORTS; i++) {
		char text[32];

		snprintf(text, sizeof(text), "10.1.1.%u", i);
		assert_int_equal(world_add_addr(w, 0, 1 + i % 2, text), 0);
	}
	assert_int_equal(world_add_addr(w, 0, 1, "10.1.0.1"), -ENOSPC);
	assert_int_equal(nic_ports(nic), NIC_MAX_PORTS);
	/* Earlier entries keep their indices. */
	assert_true(nic_gid_of(nic, &a, &g));
	assert_int_equal(g.index, 1);
	world_fini(w);
}

/* RESET to RTS with source GID `sgid` of port 1 and the peer's address. */
static void connect_one(struct ep *e, const struct ep *peer, uint8_t sgid, const char *dst)
{
	struct nic_qp_attr a;

	ep_attr(e, peer, &a);
	a.sgid_index = sgid;
	a.dgid = addr(dst);
	ep_to_init(e);
	ep_to_rtr(e, &a);
	ep_to_rts(e, &a);
}

static void write_both_ways(struct ep *a, struct ep *b)
{
	struct ep *end[2] = {a, b};

	for (int i = 0; i < 2; i++) {
		struct ep *from = end[i], *to = end[!i];
		struct wr wr = wr_rdma(ROOST_OP_WRITE, from, 0, 20000, to, 30000);
		struct roost_cqe c;

		for (int k = 0; k < 20000; k++)
			from->mem[k] = (uint8_t)(k * 7 + i);
		ep_post(from, &wr);
		assert_true(ep_wait_send(from, &c, SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		assert_memory_equal(to->mem + 30000, from->mem, 20000);
	}
}

/* Each address of one NIC with each of the other's. */
static void connections_by_each(void **state)
{
	static const char *const ours[] = {"10.0.0.1", "10.0.8.1"}, *const theirs[] = {"10.0.0.2",
										       "10.0.8.2"};

	for (unsigned pus = 1; pus <= 2; pus++) {
		begin(pus);
		for (uint8_t x = 0; x < 2; x++)
			for (uint8_t y = 0; y < 2; y++) {
				struct ep a, b;

				ep_init(&a, w, 0, &(struct ep_params){.pu = (uint8_t)(pus - 1)});
				ep_init(&b, w, 1, &(struct ep_params){0});
				connect_one(&a, &b, x, theirs[y]);
				connect_one(&b, &a, y, ours[x]);
				write_both_ways(&a, &b);
				ep_fini(&a);
				ep_fini(&b);
			}
		world_fini(w);
	}
}

/* On one NIC: by one address through the DMA engine, by two in packets. */
static void connections_with_ourselves(void **state)
{
	struct ep a, b;

	begin(1);
	ep_init(&a, w, 0, &(struct ep_params){0});
	ep_init(&b, w, 0, &(struct ep_params){0});
	connect_one(&a, &b, 1, "10.0.8.1");
	connect_one(&b, &a, 1, "10.0.8.1");
	write_both_ways(&a, &b);
	assert_int_equal(packets, 0);
	ep_fini(&a);
	ep_fini(&b);

	ep_init(&a, w, 0, &(struct ep_params){0});
	ep_init(&b, w, 0, &(struct ep_params){0});
	connect_one(&a, &b, 1, "10.0.0.1");
	connect_one(&b, &a, 0, "10.0.8.1");
	write_both_ways(&a, &b);
	assert_in_range(packets, 40, 2000);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(w);
}

/*
 * A connection is between two addresses: packets to the QP at another address of ours are not its
 * peer's.
 */
static void to_the_wrong_address(void **state)
{
	struct nic_counters before, after;
	struct roost_cqe c;
	struct ep a, b;
	struct wr wr;

	begin(1);
	ep_init(&a, w, 0, &(struct ep_params){.timeout = 10, .retry_cnt = 1});
	ep_init(&b, w, 1, &(struct ep_params){0});
	connect_one(&a, &b, 0, "10.0.8.2");
	connect_one(&b, &a, 0, "10.0.0.1");
	nic_counters(w->nic[1], &before);
	wr = wr_rdma(ROOST_OP_WRITE, &a, 0, 16, &b, 0);
	ep_post(&a, &wr);
	assert_true(ep_wait_send(&a, &c, SEC));
	assert_int_equal(c.status, NIC_WC_RETRY_EXC_ERR);
	nic_counters(w->nic[1], &after);
	assert_true(after.rx_bad_source > before.rx_bad_source);
	assert_int_equal(after.rx_write_requests, before.rx_write_requests);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(w);
}

static void ud_up(struct ep *e, uint8_t port)
{
	struct nic_qp_attr a = {.sq_psn = 1};

	ep_init(e, w, e->nic_index, &(struct ep_params){.type = NIC_QPT_UD, .port = port});
	ep_to_init(e);
	ep_to_rtr(e, &a);
	ep_to_rts(e, &a);
}

static uint32_t handle(const struct ep *e, uint8_t port_num, uint8_t sgid, const char *dst)
{
	struct nic_ah_attr a = {.pd = e->pd,
				.port = port_num,
				.sgid_index = sgid,
				.dgid = addr(dst),
				.traffic_class = 0};
	uint32_t ah;

	assert_int_equal(nic_ah_create(e->nic, &a, &ah), 0);
	return ah;
}

static uint8_t ud_send(struct ep *from, uint32_t ah, const struct ep *to, uint32_t len)
{
	struct wr wr = {.op = ROOST_OP_SEND,
			.sge = {ep_sge(from, 0, len)},
			.num_sge = 1,
			.raddr = ROOST_UD_ADDR(ah, nic_qp_num(to->qp)),
			.rkey = from->p.qkey};
	struct roost_cqe c;

	ep_post(from, &wr);
	assert_true(ep_wait_send(from, &c, SEC));
	return (uint8_t)c.status;
}

/*
 * A datagram QP receives at all addresses of its port; the handle selects the address from which it
 * sends.
 */
static void datagrams_by_each(void **state)
{
	static const char *const ours[] = {"10.0.0.1", "10.0.8.1"}, *const theirs[] = {"10.0.0.2",
										       "10.0.8.2"};
	struct ep a = {.nic_index = 0}, b = {.nic_index = 1};
	struct roost_cqe c;

	begin(1);
	ud_up(&a, 0);
	ud_up(&b, 0);
	for (uint8_t x = 0; x < 2; x++)
		for (uint8_t y = 0; y < 2; y++) {
			struct roost_sge sge = ep_sge(&b, 4096, 2048);
			struct pkt_addr src = addr(ours[x]), dst = addr(theirs[y]);
			uint32_t ah = handle(&a, 1, x, theirs[y]);

			ep_post_recv(&b, 5, &sge, 1);
			assert_int_equal(ud_send(&a, ah, &b, 100), NIC_WC_SUCCESS);
			assert_true(ep_wait_recv(&b, &c, SEC));
			assert_memory_equal(b.mem + 4096 + 20 + 12, src.b + 12, 4);
			assert_memory_equal(b.mem + 4096 + 20 + 16, dst.b + 12, 4);
			assert_int_equal(nic_ah_destroy(w->nic[0], ah), 0);
		}
	ep_fini(&a);
	ep_fini(&b);
	world_fini(w);
}

/*
 * Packets at an address of the other port are not for the QP, and it cannot use a handle of the
 * other port.
 */
static void datagrams_of_another_port(void **state)
{
	struct nic_counters before, after;
	struct ep a = {.nic_index = 0}, b = {.nic_index = 1};
	struct roost_sge sge;
	struct roost_cqe c;
	uint32_t ah;

	begin(1);
	ud_up(&a, 0);
	ud_up(&b, 1);
	sge = ep_sge(&b, 4096, 2048);
	ep_post_recv(&b, 5, &sge, 1);
	nic_counters(w->nic[1], &before);
	ah = handle(&a, 1, 1, "10.0.8.2");
	assert_int_equal(ud_send(&a, ah, &b, 100), NIC_WC_SUCCESS);
	assert_false(ep_wait_recv(&b, &c, SEC));
	nic_counters(w->nic[1], &after);
	assert_int_equal(after.rx_bad_source, before.rx_bad_source + 1);
	assert_int_equal(nic_ah_destroy(w->nic[0], ah), 0);
	ah = handle(&a, 2, 0, "10.0.1.2");
	assert_int_equal(ud_send(&a, ah, &b, 100), NIC_WC_LOC_QP_OP_ERR);
	assert_int_equal(nic_ah_destroy(w->nic[0], ah), 0);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(w);
}

/* The address that was added may be of an interface with a smaller MTU. */
static void smaller_mtu(void **state)
{
	struct ep a = {.nic_index = 0}, b;
	struct nic_qp_attr attr;
	uint32_t ah;

	begin(1);
	sim_set_params(w->sim, &(struct sim_params){.mtu = 1024});
	assert_int_equal(world_add_addr(w, 0, 1, "10.0.9.1"), 0);
	assert_int_equal(world_add_addr(w, 1, 1, "10.0.9.2"), 0);
	ud_up(&a, 0);
	ah = handle(&a, 1, 1, "10.0.8.2");
	assert_int_equal(ud_send(&a, ah, &a, 4096), NIC_WC_SUCCESS);
	assert_int_equal(nic_ah_destroy(w->nic[0], ah), 0);
	ah = handle(&a, 1, 2, "10.0.9.2");
	assert_int_equal(ud_send(&a, ah, &a, 1024), NIC_WC_SUCCESS);
	assert_int_equal(ud_send(&a, ah, &a, 1025), NIC_WC_LOC_LEN_ERR);
	assert_int_equal(nic_ah_destroy(w->nic[0], ah), 0);
	ep_fini(&a);

	ep_init(&a, w, 0, &(struct ep_params){.mtu = 2048});
	ep_init(&b, w, 1, &(struct ep_params){.mtu = 2048});
	ep_to_init(&a);
	ep_attr(&a, &b, &attr);
	attr.state = NIC_QPS_RTR;
	attr.sgid_index = 2;
	attr.dgid = addr("10.0.9.2");
	assert_int_equal(ep_modify(&a, &attr, MASK_RTR), -EINVAL);
	attr.sgid_index = 3; /* there are three */
	attr.path_mtu = 1024;
	assert_int_equal(ep_modify(&a, &attr, MASK_RTR), -EINVAL);
	attr.sgid_index = 2;
	assert_int_equal(ep_modify(&a, &attr, MASK_RTR), 0);
	nic_qp_query(a.qp, &attr);
	assert_int_equal(attr.sgid_index, 2);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables),
		cmocka_unit_test(connections_by_each),
		cmocka_unit_test(connections_with_ourselves),
		cmocka_unit_test(to_the_wrong_address),
		cmocka_unit_test(datagrams_by_each),
		cmocka_unit_test(datagrams_of_another_port),
		cmocka_unit_test(smaller_mtu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
