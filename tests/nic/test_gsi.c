/* SPDX-License-Identifier: BSD-2-Clause */
/* QP 1: management datagrams on the wire, sent and received, and refused ones. */
#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "nic/core.h"
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

/* Counts the packets that are sent. Each must have a valid ICRC. */
static void check_icrc(void *count, uint64_t now, bool delivered, const struct pkt_addr *src,
		       const struct pkt_addr *dst, const uint8_t *bth, uint32_t len)
{
	uint8_t copy[PKT_MAX_LEN];
	struct icrc_flow f;
	uint16_t id = 0;

	if (delivered)
		return;
	memcpy(copy, bth, len);
	icrc_flow_init(&f, src, dst, PKT_UDP_PORT, PKT_UDP_PORT);
	assert_true(icrc_verify(&f, true, &id, copy, len));
	++*(unsigned *)count;
}

static void stage_to(struct world *w, uint8_t host)
{
	struct pkt_addr dst = w->port[0][0][0]->addr;

	dst.b[15] = host;
	assert_int_equal(nic_gsi_stage(w->nic[0], 0, &dst, 0, mad), 0);
}

/*
 * The NIC keeps the paths to NIC_GSI_DESTS peers; another peer replaces the oldest one. If the last
 * datagram went to this one, it still waits for its ICRC, which covers the addresses of the path.
 */
static void more_peers_than_are_kept(void **state)
{
	unsigned sent = 0;
	struct world w;

	fill_mad();
	mallopt(M_PERTURB, 0x5a); /* memory that is freed does not keep its contents */
	world_init_shape(&w, &(struct world_shape){.nics = 1}, 5, &(struct sim_params){0});
	sim_set_tap(w.sim, check_icrc, &sent);
	for (uint8_t i = 0; i < NIC_GSI_DESTS; i++)
		stage_to(&w, 100 + i);
	stage_to(&w, 100);
	stage_to(&w, 100 + NIC_GSI_DESTS);
	nic_gsi_flush(w.nic[0], 0);
	assert_int_equal(sent, NIC_GSI_DESTS + 2);
	world_fini(&w);
	mallopt(M_PERTURB, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_the_wire_has_it),	    cmocka_unit_test(between_nics),
		cmocka_unit_test(where_no_nic_is),	    cmocka_unit_test(what_is_refused),
		cmocka_unit_test(more_peers_than_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
