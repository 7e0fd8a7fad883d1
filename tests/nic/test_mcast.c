/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups, packet by packet: the QPs that get a copy and those that do not, and the sent
 * packets. InfiniBand Architecture Specification, volume 1, 10.5, 9.6.1.4; where it leaves a
 * choice, as Linux' rxe_mcast.c and rxe_recv.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <cmocka.h>

#include "packet/ip.h"
#include "peer.h"
#include "rule.h"

#define RECV	 32768 /* offset of the receives, 1 KiB each */
#define GRH	 40
#define UD(op)	 (uint8_t)(PKT_UD + PKT_SEND_ONLY##op)
#define COUNT(c) (peer_counters(p).c)

static struct peer P, *const p = &P;
static struct pkt_addr group;

static struct pkt_addr address(const char *text)
{
	struct pkt_addr a;

	assert_int_equal(pkt_addr_parse(text, &a), 0);
	return a;
}

static void post_recvs(struct ep *e, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct roost_sge sge = ep_sge(e, RECV + 1024 * i, 1024);

		ep_post_recv(e, 100 + i, &sge, 1);
	}
}

static void start(uint32_t s)
{
	group = address("239.1.2.3");
	peer_open(p, &(struct ep_params){.type = NIC_QPT_UD, .psn = s}, 0);
	post_recvs(&p->e, 8);
}

/* Sends a packet to the given address and QP number. */
static void send_to(const struct pkt_addr *dst, uint32_t qpn, const struct pkt_make *m)
{
	uint8_t buf[PKT_MAX_LEN];
	uint32_t len = pkt_make_raw(buf, m, qpn);

	pkt_seal(buf, len, &p->addr, dst);
	sim_inject(p->w.sim, &p->addr, dst, buf, len);
	peer_run(p, PEER_SETTLE);
}

static void no_recv(struct ep *e)
{
	struct roost_cqe c;

	assert_false(ep_poll_recv(e, &c));
}

static uint32_t make_ah_by(const struct ep *e, const struct pkt_addr *to, uint8_t sgid_index)
{
	struct nic_ah_attr a = {.pd = e->pd, .dgid = *to, .port = 1, .sgid_index = sgid_index};
	uint32_t handle;

	assert_int_equal(nic_ah_create(e->nic, &a, &handle), 0);
	return handle;
}

static uint32_t make_ah(const struct ep *e, const struct pkt_addr *to)
{
	return make_ah_by(e, to, 0);
}

static void post(struct ep *e, uint32_t ah, uint32_t len)
{
	ep_post(e, &(struct wr){.op = ROOST_OP_SEND_IMM,
				.wr_id = 1,
				.sge = {ep_sge(e, 0, len)},
				.num_sge = 1,
				.raddr = ROOST_UD_ADDR(ah, NIC_MCAST_QPN),
				.rkey = 0x11111111,
				.imm = 0x55});
}

/*
 * 9.6.1.4: a packet goes to the group's address and QP 0xffffff, and its ICRC covers this address.
 * The sender need not be a member.
 */
RULE(sends)
{
	const struct got *g;
	uint32_t ah;

	start(s);
	ah = make_ah(&p->e, &group);
	post(&p->e, ah, 60);
	g = expect(p, UD(_IMM), s);
	assert_true(pkt_addr_eq(&g->dst, &group)); /* the peer checks the QP number and the ICRC */
	assert_int_equal(g->v.payload_len, 60);
	expect_done(p, 1, NIC_WC_SUCCESS);
	no_recv(&p->e);
	assert_int_equal(nic_ah_destroy(p->e.nic, ah), 0);
	peer_close(p);
}

/*
 * 10.5: a QP gets the packets of a group while it is attached. The group's address is in the route
 * header.
 */
static void attached(void **state)
{
	struct roost_cqe c;
	const uint8_t *ip;

	start(5);
	send_to(&group, NIC_MCAST_QPN, &(struct pkt_make){.opcode = UD(), .len = 8});
	no_recv(&p->e);
	assert_int_equal(nic_qp_attach(p->e.nic, p->e.qp, &group), 0);
	send_to(&group, NIC_MCAST_QPN,
		&(struct pkt_make){.opcode = UD(_IMM), .len = 33, .imm = 0x77, .sqpn = 0xabcdef});
	assert_true(ep_poll_recv(&p->e, &c));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	assert_int_equal(c.byte_len, GRH + 33);
	assert_int_equal(c.flags, NIC_WC_GRH | NIC_WC_WITH_IMM);
	assert_int_equal(c.src_qpn, 0xabcdef);
	assert_int_equal(c.imm, 0x77);
	ip = p->e.mem + RECV + GRH - IP4_HDR_LEN;
	assert_memory_equal(ip + 12, p->addr.b + 12, 4);
	assert_memory_equal(ip + 16, group.b + 12, 4);
	for (unsigned i = 0; i < 33; i++)
		assert_int_equal(p->e.mem[RECV + GRH + i], pkt_pattern(i));
	assert_int_equal(nic_qp_detach(p->e.nic, p->e.qp, &group), 0);
	assert_int_equal(nic_qp_detach(p->e.nic, p->e.qp, &group), -ENOENT);
	send_to(&group, NIC_MCAST_QPN, &(struct pkt_make){.opcode = UD(), .len = 8});
	no_recv(&p->e);
	assert_int_equal(COUNT(rx_multicast), 1);
	expect_quiet(p, SEC);
	peer_close(p);
}

/*
 * Packets that members must not get are dropped and counted: a group without members, QP 0xffffff
 * at an address that is no group, a group's address with the number of a QP or of QP 1, an op-code
 * of another service, a wrong Q_Key, ICRC or length.
 */
static void dropped(void **state)
{
	struct pkt_addr other = address("239.1.2.4");
	uint8_t buf[PKT_MAX_LEN];
	uint32_t len;

	start(5);
	assert_int_equal(nic_qp_attach(p->e.nic, p->e.qp, &group), 0);
	/* The port receives it, because another QP of the port is a member. */
	assert_int_equal(p->w.port[0][0][0]->ops->join(p->w.port[0][0][0], &other), 0);
	send_to(&other, NIC_MCAST_QPN, &(struct pkt_make){.opcode = UD(), .len = 8});
	assert_int_equal(COUNT(rx_bad_group), 1);
	send_to(&p->nic_addr, NIC_MCAST_QPN, &(struct pkt_make){.opcode = UD(), .len = 8});
	assert_int_equal(COUNT(rx_bad_group), 2);
	send_to(&group, nic_qp_num(p->e.qp), &(struct pkt_make){.opcode = UD(), .len = 8});
	assert_int_equal(COUNT(rx_bad_group), 3);
	send_to(&group, NIC_GSI_QPN,
		&(struct pkt_make){
			.opcode = UD(), .len = NIC_GSI_LEN, .qkey = NIC_GSI_QKEY, .sqpn = 1});
	assert_int_equal(COUNT(rx_bad_group), 4);
	assert_int_equal(p->w.gsi.count, 0);
	send_to(&group, NIC_MCAST_QPN, &(struct pkt_make){.opcode = PKT_SEND_ONLY, .len = 8});
	send_to(&group, NIC_MCAST_QPN,
		&(struct pkt_make){.opcode = PKT_UC + PKT_SEND_ONLY, .len = 8});
	assert_int_equal(COUNT(rx_bad_service), 2);
	send_to(&group, NIC_MCAST_QPN, &(struct pkt_make){.opcode = UD(), .len = 8, .qkey = 5});
	assert_int_equal(COUNT(rx_bad_qkey), 1);
	/* The ICRC covers the destination address. */
	len = pkt_make_raw(buf, &(struct pkt_make){.opcode = UD(), .len = 8}, NIC_MCAST_QPN);
	pkt_seal(buf, len, &p->addr, &other);
	sim_inject(p->w.sim, &p->addr, &group, buf, len);
	peer_run(p, PEER_SETTLE);
	assert_int_equal(COUNT(rx_icrc_encapsulated), 1);
	send_to(&group, NIC_MCAST_QPN, &(struct pkt_make){.opcode = UD(), .len = 1000});
	assert_int_equal(COUNT(rx_ud_dropped), 1); /* longer than the receive */
	no_recv(&p->e);
	send_to(&group, NIC_MCAST_QPN, &(struct pkt_make){.opcode = UD(), .len = 8});
	expect_recv(p, 100, NIC_WC_SUCCESS, GRH + 8);
	p->w.port[0][0][0]->ops->leave(p->w.port[0][0][0], &other);
	expect_quiet(p, SEC);
	peer_close(p);
}

/*
 * Only UD QPs attach, and only to groups; the peer of a connection cannot be a group. A second
 * attachment changes nothing.
 */
static void refused(void **state)
{
	static const char *const none[] = {"10.0.0.1", "223.255.255.255", "240.0.0.1",
					   "fe80::1",  "::ffff:9.9.9.9",  "::e000:1",
					   "::"};
	static const char *const some[] = {"224.0.0.0", "224.0.0.1", "239.1.1.1",
					   "239.255.255.255"};
	struct nic_usage u;
	struct pkt_addr a;

	start(5);
	for (unsigned i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		a = address(none[i]);
		assert_int_equal(nic_qp_attach(p->e.nic, p->e.qp, &a), -EINVAL);
		assert_int_equal(nic_qp_detach(p->e.nic, p->e.qp, &a), -ENOENT);
	}
	for (unsigned i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
		a = address(some[i]);
		assert_int_equal(nic_qp_attach(p->e.nic, p->e.qp, &a), 0);
		assert_int_equal(nic_qp_attach(p->e.nic, p->e.qp, &a), 0);
		assert_int_equal(nic_qp_groups(p->e.qp), i + 1);
	}
	nic_usage(p->e.nic, &u);
	assert_int_equal(u.groups, 4);
	a = address("ff0e::1"); /* the port has no such address */
	assert_int_equal(nic_qp_attach(p->e.nic, p->e.qp, &a), -EAFNOSUPPORT);
	assert_int_equal(nic_qp_groups(p->e.qp), 4);
	a = address(some[0]);
	send_to(&a, NIC_MCAST_QPN, &(struct pkt_make){.opcode = UD(), .len = 8});
	expect_recv(p, 100, NIC_WC_SUCCESS, GRH + 8);
	no_recv(&p->e);
	assert_int_equal(nic_gsi_send(p->e.nic, 0, &a, 0, (uint8_t[NIC_GSI_LEN]){0}), -EINVAL);
	peer_close(p);

	for (int t = NIC_QPT_RC; t <= NIC_QPT_UC; t++) {
		struct nic_qp_attr attr;

		peer_open_init(p, &(struct ep_params){.type = (enum nic_qp_type)t}, 0);
		assert_int_equal(nic_qp_attach(p->e.nic, p->e.qp, &group), -EINVAL);
		peer_attr(p, &attr);
		attr.state = NIC_QPS_RTR;
		attr.dgid = group;
		assert_int_equal(ep_modify(&p->e, &attr, t == NIC_QPT_RC ? MASK_RTR : MASK_RTR_UC),
				 -EINVAL);
		peer_close(p);
	}
}

/* The limits of groups and members are those of the device; all are released. */
static void limits(void **state)
{
	static struct ep more[NIC_MAX_GROUP_QPS];
	struct nic_usage u;
	struct pkt_addr a;
	char text[32];

	start(5);
	for (unsigned i = 0; i < NIC_MAX_GROUPS; i++) {
		snprintf(text, sizeof(text), "239.9.%u.%u", i / 250, i % 250);
		a = address(text);
		assert_int_equal(nic_qp_attach(p->e.nic, p->e.qp, &a), 0);
	}
	assert_int_equal(nic_qp_attach(p->e.nic, p->e.qp, &group), -ENOSPC);
	for (unsigned i = 0; i < NIC_MAX_GROUP_QPS; i++) {
		ep_init(&more[i], &p->w, 0, &(struct ep_params){.type = NIC_QPT_UD, .depth = 8});
		assert_int_equal(nic_qp_attach(p->e.nic, more[i].qp, &a),
				 i + 1 < NIC_MAX_GROUP_QPS ? 0 : -ENOSPC);
	}
	/* Only the member that is ready to receive gets the packet. */
	send_to(&a, NIC_MCAST_QPN, &(struct pkt_make){.opcode = UD(), .len = 8});
	expect_recv(p, 100, NIC_WC_SUCCESS, GRH + 8);
	assert_int_equal(COUNT(rx_multicast), 1);
	for (unsigned i = 0; i < NIC_MAX_GROUP_QPS; i++)
		ep_fini(&more[i]);
	for (unsigned i = 0; i < NIC_MAX_GROUPS; i++) {
		snprintf(text, sizeof(text), "239.9.%u.%u", i / 250, i % 250);
		a = address(text);
		assert_int_equal(nic_qp_detach(p->e.nic, p->e.qp, &a), 0);
	}
	nic_usage(p->e.nic, &u);
	assert_int_equal(u.groups, 0);
	assert_int_equal(nic_qp_attach(p->e.nic, p->e.qp, &group), 0);
	peer_close(p);
}

/* A member in a state that receives nothing gets no packet; the other members get theirs. */
static void states(void **state)
{
	struct nic_qp_attr a = {.state = NIC_QPS_ERR};
	struct roost_cqe c;

	start(5);
	assert_int_equal(nic_qp_attach(p->e.nic, p->e.qp, &group), 0);
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_STATE), 0);
	while (ep_poll_recv(&p->e, &c))
		assert_int_equal(c.status, NIC_WC_WR_FLUSH_ERR);
	send_to(&group, NIC_MCAST_QPN, &(struct pkt_make){.opcode = UD(), .len = 8});
	assert_int_equal(COUNT(rx_multicast), 0);
	no_recv(&p->e);
	/* It stays attached over a reset. */
	a.state = NIC_QPS_RESET;
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_STATE), 0);
	ep_to_init(&p->e);
	post_recvs(&p->e, 1);
	ep_to_rtr(&p->e, &a);
	send_to(&group, NIC_MCAST_QPN, &(struct pkt_make){.opcode = UD(), .len = 8});
	expect_recv(p, 100, NIC_WC_SUCCESS, GRH + 8);
	peer_close(p);
}

/*
 * Each attached QP gets each packet once: QPs of several NICs, of both PUs of each, also the
 * sender. QPs of another group or of none get nothing.
 */
static void everybody_once(void **state)
{
	static struct ep e[3][4]; /* of 3 NICs: two PUs with two QPs each */
	struct sim_params sp = {.delay_ns = 1000, .jitter_ns = 500, .window = 65536};
	struct world w;
	struct roost_cqe c;
	uint32_t ah[3];

	group = address("ff0e::1:2");
	world_init_shape(&w, &(struct world_shape){.nics = 3, .pus = 2}, 9, &sp);
	for (unsigned n = 0; n < 3; n++)
		assert_int_equal(world_add_addr(&w, n, 1,
						n == 0	 ? "fd00::1"
						: n == 1 ? "fd00::2"
							 : "fd00::3"),
				 0);
	for (unsigned n = 0; n < 3; n++)
		for (unsigned i = 0; i < 4; i++) {
			struct nic_qp_attr a = {0};

			ep_init(&e[n][i], &w, n,
				&(struct ep_params){.type = NIC_QPT_UD, .pu = i & 1});
			ep_to_init(&e[n][i]);
			ep_to_rtr(&e[n][i], &a);
			ep_to_rts(&e[n][i], &a);
			post_recvs(&e[n][i], 31);
			/* The last QP of NIC 2 is in no group. */
			if (n != 2 || i != 3)
				assert_int_equal(nic_qp_attach(w.nic[n], e[n][i].qp, &group), 0);
		}
	for (unsigned n = 0; n < 3; n++) {
		ah[n] = make_ah_by(&e[n][0], &group, 1);
		for (unsigned k = 0; k < 10; k++)
			post(&e[n][0], ah[n], 10 * n + k);
	}
	for (unsigned n = 0; n < 3; n++)
		for (unsigned k = 0; k < 10; k++) {
			assert_true(ep_wait_send(&e[n][0], &c, SEC));
			assert_int_equal(c.status, NIC_WC_SUCCESS);
		}
	for (unsigned n = 0; n < 3; n++)
		for (unsigned i = 0; i < 4; i++) {
			uint32_t seen = 0;

			if (n == 2 && i == 3)
				continue;
			for (unsigned k = 0; k < 30; k++) {
				assert_true(ep_wait_recv(&e[n][i], &c, SEC));
				assert_int_equal(c.status, NIC_WC_SUCCESS);
				seen |= 1u << (c.byte_len - GRH);
				assert_int_equal(c.src_qpn,
						 nic_qp_num(e[(c.byte_len - GRH) / 10][0].qp));
			}
			assert_int_equal(seen, (1u << 30) - 1);
		}
	world_run(&w, world_now(&w) + MSEC);
	for (unsigned n = 0; n < 3; n++)
		for (unsigned i = 0; i < 4; i++)
			no_recv(&e[n][i]);
	for (unsigned n = 0; n < 3; n++) {
		assert_int_equal(nic_ah_destroy(w.nic[n], ah[n]), 0);
		for (unsigned i = 0; i < 4; i++)
			ep_fini(&e[n][i]);
	}
	world_fini(&w);
}

/*
 * A port with several addresses on one network receives a group's packet once, whichever address
 * sends. A group of another family is joined by the address of that family. A QP that attaches
 * again also receives at addresses that were added since.
 */
static void several_addresses(void **state)
{
	static const char *const more[] = {"10.0.8.1", "fd00::1", "fd00::2"};
	struct pkt_addr six = address("ff0e::5");
	struct sim_params sp = {.delay_ns = 1000};
	struct nic_qp_attr a = {0};
	struct roost_cqe c;
	struct world w;
	struct ep e;

	group = address("239.1.2.3");
	world_init(&w, 1, 9, &sp);
	ep_init(&e, &w, 0, &(struct ep_params){.type = NIC_QPT_UD});
	ep_to_init(&e);
	ep_to_rtr(&e, &a);
	ep_to_rts(&e, &a);
	post_recvs(&e, 8);
	assert_int_equal(nic_qp_attach(w.nic[0], e.qp, &group), 0);
	assert_int_equal(nic_qp_attach(w.nic[0], e.qp, &six), -EAFNOSUPPORT);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(world_add_addr(&w, 0, 1, more[i]), 0);
	assert_int_equal(nic_qp_attach(w.nic[0], e.qp, &group), 0);
	assert_int_equal(nic_qp_attach(w.nic[0], e.qp, &six), 0);
	assert_int_equal(nic_qp_groups(e.qp), 2);
	for (uint8_t i = 0; i < 4; i++) {
		uint32_t ah = make_ah_by(&e, i < 2 ? &group : &six, i);

		post(&e, ah, 10u + i);
		assert_true(ep_wait_send(&e, &c, SEC));
		assert_true(ep_wait_recv(&e, &c, SEC));
		assert_int_equal(c.byte_len, GRH + 10 + i);
		world_run(&w, world_now(&w) + MSEC);
		no_recv(&e);
		assert_int_equal(nic_ah_destroy(w.nic[0], ah), 0);
	}
	/* The port is a member on the other network as well. */
	for (unsigned i = 0; i < 2; i++)
		w.port[0][i][0]->medium = 10 + i;
	assert_int_equal(nic_qp_attach(w.nic[0], e.qp, &group), 0);
	uint32_t ah = make_ah(&e, &group);

	post(&e, ah, 20);
	for (unsigned i = 0; i < 2; i++) /* the simulated link is one network */
		assert_true(ep_wait_recv(&e, &c, SEC));
	assert_int_equal(nic_qp_detach(w.nic[0], e.qp, &group), 0);
	post(&e, ah, 20);
	world_run(&w, world_now(&w) + MSEC);
	no_recv(&e);
	assert_int_equal(nic_ah_destroy(w.nic[0], ah), 0);
	ep_fini(&e);
	world_fini(&w);
}

/* A member without a receive loses only its own copy. */
static void no_space(void **state)
{
	struct ep other;
	struct nic_qp_attr a = {0};

	start(5);
	ep_init(&other, &p->w, 0, &(struct ep_params){.type = NIC_QPT_UD});
	ep_to_init(&other);
	ep_to_rtr(&other, &a);
	assert_int_equal(nic_qp_attach(p->e.nic, other.qp, &group), 0);
	assert_int_equal(nic_qp_attach(p->e.nic, p->e.qp, &group), 0);
	send_to(&group, NIC_MCAST_QPN, &(struct pkt_make){.opcode = UD(), .len = 8});
	expect_recv(p, 100, NIC_WC_SUCCESS, GRH + 8);
	assert_int_equal(COUNT(out_of_buffer), 1);
	ep_fini(&other);
	send_to(&group, NIC_MCAST_QPN, &(struct pkt_make){.opcode = UD(), .len = 8});
	expect_recv(p, 101, NIC_WC_SUCCESS, GRH + 8);
	assert_int_equal(COUNT(out_of_buffer), 1);
	peer_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sends),
		cmocka_unit_test(attached),
		cmocka_unit_test(dropped),
		cmocka_unit_test(refused),
		cmocka_unit_test(limits),
		cmocka_unit_test(states),
		cmocka_unit_test(everybody_once),
		cmocka_unit_test(no_space),
		cmocka_unit_test(several_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
