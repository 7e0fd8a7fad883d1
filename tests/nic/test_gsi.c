/* SPDX-License-Identifier: BSD-2-Clause */
/* QP 1: management datagrams on the wire, sent and received, and refused ones. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "nic/counters.h"
#include "peer.h"

static struct peer P, *const p = &P;
static uint8_t mad[NIC_GSI_LEN];

static void fill_mad(void)
{
	for (unsigned i = 0; i < sizeof(mad); i++)
		mad[i] = (uint8_t)(i * 31 + 5);
}

/* IBA 13.5.1: UD SEND_ONLY between QPs 1, the default P_Key, a Q_Key of its own, 256 bytes. */
static void as_the_wire_has_it(void **state)
{
	const struct got *g;

	fill_mad();
	peer_open(p, &(struct ep_params){.mtu = 256}, 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(nic_gsi_send(p->e.nic, 0, &p->addr, 0, mad), 0);
		g = peer_get(p, PEER_SETTLE);
		assert_non_null(g);
		assert_int_equal(g->v.opcode, PKT_UD | PKT_SEND_ONLY);
		assert_int_equal(g->v.pkey, PKT_PKEY_DEFAULT);
		assert_int_equal(g->v.dqpn, 1);
		assert_int_equal(g->v.sqpn, 1);
		assert_int_equal(g->v.qkey, 0x80010000u);
		assert_int_equal(g->v.psn, i);
		assert_false(g->v.ackreq);
		assert_int_equal(g->v.payload_len, 256);
		assert_memory_equal(g->v.payload, mad, sizeof(mad));
	}
	assert_int_equal(peer_counters(p).tx_management, 3);
	assert_int_equal(nic_gsi_send(p->e.nic, 1, &p->addr, 0, mad), -EINVAL);
	peer_close(p);
}

static void between_nics(void **state)
{
	struct sim_params sp = {0};
	struct nic_counters c;
	struct world w;

	fill_mad();
	/* Two PUs and two ports: QP 1 is the first PU's, on each port. */
	world_init_shape(&w, &(struct world_shape){.nics = 2, .ports = 2, .pus = 2}, 5, &sp);
	for (unsigned port = 0; port < 2; port++) {
		struct port *from = w.port[0][port][0], *to = w.port[1][port][0];

		mad[0] = (uint8_t)(0x40 + port);
		assert_int_equal(nic_gsi_send(w.nic[0], port, &to->addr, 0x60, mad), 0);
		world_run(&w, world_now(&w) + 1000000);
		assert_int_equal(w.gsi.count, port + 1);
		assert_int_equal(w.gsi.port, port);
		assert_true(pkt_addr_eq(&w.gsi.src, &from->addr));
		assert_true(pkt_addr_eq(&w.gsi.dst, &to->addr));
		assert_memory_equal(w.gsi.mad, mad, sizeof(mad));
	}
	nic_counters(w.nic[1], &c);
	assert_int_equal(c.rx_management, 2);
	world_fini(&w);
}

struct wrong {
	uint32_t qkey, sqpn, len;
	uint8_t opcode;
	bool break_icrc;
};

/* Refused, counted for this cause, and not delivered. */
static void refused(const struct wrong *x, size_t counter)
{
	uint8_t buf[PKT_MAX_LEN], *q;
	struct nic_counters before, after;
	uint32_t len;

	q = pkt_put_bth(buf, x->opcode, PKT_BTH_MIGREQ, 1, false, 0);
	q = pkt_put_deth(q, x->qkey, x->sqpn);
	if (pkt_ops[x->opcode].flags & PKT_IMM)
		q = pkt_put_imm(q, 0);
	memset(q, 1, x->len);
	len = (uint32_t)(q + x->len - buf) + PKT_ICRC_LEN;
	pkt_seal(buf, len, &p->addr, &p->nic_addr);
	buf[len - 1] ^= x->break_icrc;
	before = peer_counters(p);
	peer_send_raw(p, NULL, buf, len);
	after = peer_counters(p);
	assert_int_equal(*(uint64_t *)((char *)&after + counter),
			 *(uint64_t *)((char *)&before + counter) + 1);
	assert_int_equal(after.rx_management, before.rx_management);
	assert_null(peer_get(p, PEER_SETTLE));
}

static void what_is_refused(void **state)
{
	static const struct {
		struct wrong x;
		size_t counter;
	} t[] = {
		{{0x80010001, 1, 256, PKT_UD | PKT_SEND_ONLY, false},
		 offsetof(struct nic_counters, rx_bad_qkey)},
		{{0x11111111, 1, 256, PKT_UD | PKT_SEND_ONLY, false},
		 offsetof(struct nic_counters, rx_bad_qkey)},
		{{0x80010000, 2, 256, PKT_UD | PKT_SEND_ONLY, false},
		 offsetof(struct nic_counters, rx_bad_qpn)},
		{{0x80010000, 1, 252, PKT_UD | PKT_SEND_ONLY, false},
		 offsetof(struct nic_counters, rx_short)},
		{{0x80010000, 1, 260, PKT_UD | PKT_SEND_ONLY, false},
		 offsetof(struct nic_counters, rx_short)},
		{{0x80010000, 1, 256, PKT_UD | PKT_SEND_ONLY_IMM, false},
		 offsetof(struct nic_counters, rx_bad_service)},
		{{0x80010000, 1, 256, PKT_UD | PKT_SEND_ONLY, true},
		 offsetof(struct nic_counters, rx_icrc_encapsulated)},
	};

	peer_open(p, &(struct ep_params){.mtu = 256}, 0);
	for (unsigned i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		refused(&t[i].x, t[i].counter);
	assert_int_equal(p->w.gsi.count, 0);
	peer_close(p);
}

/*
 * A datagram to an address without a NIC causes a hint with its transaction id; a datagram to a NIC
 * does not.
 */
static void where_no_nic_is(void **state)
{
	struct pkt_addr nobody;
	struct world w;

	fill_mad();
	world_init_shape(&w, &(struct world_shape){.nics = 2, .pus = 2}, 5,
			 &(struct sim_params){.hints = true});
	nobody = w.port[1][0][0]->addr;
	assert_int_equal(nic_gsi_send(w.nic[0], 0, &nobody, 0, mad), 0);
	world_run(&w, world_now(&w) + 1000000);
	assert_int_equal(w.gsi.count, 1);
	assert_int_equal(w.gsi_lost.count, 0);
	nobody.b[15] = 99;
	assert_int_equal(nic_gsi_send(w.nic[0], 0, &nobody, 0, mad), 0);
	world_run(&w, world_now(&w) + 1000000);
	assert_int_equal(w.gsi_lost.count, 1);
	assert_true(pkt_addr_eq(&w.gsi_lost.dst, &nobody));
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal((uint8_t)(w.gsi_lost.tid >> (56 - 8 * i)), mad[8 + i]);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_the_wire_has_it),
		cmocka_unit_test(between_nics),
		cmocka_unit_test(where_no_nic_is),
		cmocka_unit_test(what_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
