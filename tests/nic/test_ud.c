/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable datagrams, packet by packet: the sent packets and their destinations, and the packets
 * that a receiver accepts and drops. InfiniBand Architecture Specification, volume 1, 9.8.3,
 * 10.2.5; annex A17.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <cmocka.h>

#include "peer.h"
#include "rule.h"

#define RECV	 32768 /* where receives are, 1 KiB each */
#define QKEY	 0x11111111u
#define GRH	 40
#define UD(op)	 (uint8_t)(PKT_UD + PKT_SEND_ONLY##op)
#define COUNT(c) (peer_counters(p).c)

static struct peer P, *const p = &P;
static uint32_t ah;

static uint32_t make_ah(struct nic *nic, uint32_t pd, const struct pkt_addr *to)
{
	struct nic_ah_attr a = {.pd = pd, .dgid = *to, .port = 1};
	uint32_t handle;

	assert_int_equal(nic_ah_create(nic, &a, &handle), 0);
	return handle;
}

static void start(uint32_t s, struct ep_params ep)
{
	ep.type = NIC_QPT_UD;
	ep.psn = s;
	peer_open(p, &ep, 0);
	ah = make_ah(p->e.nic, p->e.pd, &p->addr);
}

static void finish(void)
{
	nic_ah_destroy(p->e.nic, ah);
	peer_close(p);
}

static void post_recvs(unsigned n, uint32_t len)
{
	for (unsigned i = 0; i < n; i++) {
		struct roost_sge sge = ep_sge(&p->e, RECV + 1024 * i, len);

		ep_post_recv(&p->e, 100 + i, &sge, 1);
	}
}

static struct wr wr_ud(const struct ep *e, enum roost_op op, uint32_t len, uint32_t handle,
		       uint32_t qpn)
{
	return (struct wr){.op = op,
			   .wr_id = 1,
			   .sge = {ep_sge(e, 0, len)},
			   .num_sge = 1,
			   .raddr = ROOST_UD_ADDR(handle, qpn),
			   .rkey = QKEY,
			   .imm = 0x55};
}

static void post(enum roost_op op, uint64_t wr_id, uint32_t len, uint32_t handle, uint32_t qkey)
{
	struct wr wr = wr_ud(&p->e, op, len, handle, PEER_QPN);

	wr.wr_id = wr_id;
	wr.rkey = qkey;
	ep_post(&p->e, &wr);
}

static void no_recv(void)
{
	struct roost_cqe c;

	assert_false(ep_poll_recv(&p->e, &c));
}

/* A datagram is one packet with a DETH. It completes when it was sent; PSNs increase by one. */
RULE(sends)
{
	const struct got *g;

	start(s, (struct ep_params){0});
	for (uint32_t i = 0; i < 100; i++)
		p->e.mem[i] = pkt_pattern(i);
	post(ROOST_OP_SEND, 1, 99, ah, QKEY);
	post(ROOST_OP_SEND_IMM, 2, 0, ah, QKEY);
	g = expect(p, UD(), s);
	assert_int_equal(g->v.qkey, QKEY);
	assert_int_equal(g->v.sqpn, nic_qp_num(p->e.qp));
	assert_int_equal(g->v.payload_len, 99);
	assert_memory_equal(g->v.payload, p->e.mem, 99);
	assert_false(g->v.ackreq);
	g = expect(p, UD(_IMM), s + 1);
	assert_int_equal(g->v.imm, 0x55);
	expect_done(p, 1, NIC_WC_SUCCESS);
	expect_done(p, 2, NIC_WC_SUCCESS);
	expect_quiet(p, 10 * SEC);
	finish();
}

/* 10.2.5: a Q_Key with the highest bit set in the work request means the QP's own. */
RULE(controlled_qkey)
{
	start(s, (struct ep_params){.qkey = 0x80010000});
	post(ROOST_OP_SEND, 1, 8, ah, 0x80000000);
	assert_int_equal(expect(p, UD(), s)->v.qkey, 0x80010000);
	post(ROOST_OP_SEND, 2, 8, ah, 0x7fffffff);
	assert_int_equal(expect(p, UD(), s + 1)->v.qkey, 0x7fffffff);
	finish();
}

/* A17: the payload is behind 40 bytes, whose last 20 are the IPv4 header of the packet. */
RULE(receives_with_header)
{
	static const uint8_t want[20] = {0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17};
	struct roost_cqe c;
	const uint8_t *ip;
	uint32_t sum = 0;

	start(s, (struct ep_params){0});
	post_recvs(2, 1024);
	peer_send(p,
		  &(struct pkt_make){
			  .opcode = UD(_IMM), .psn = s, .len = 33, .imm = 0x77, .sqpn = 0xabcdef});
	assert_true(ep_poll_recv(&p->e, &c));
	assert_int_equal(c.status, NIC_WC_SUCCESS);
	assert_int_equal(c.opcode, NIC_WC_RECV);
	assert_int_equal(c.byte_len, GRH + 33);
	assert_int_equal(c.flags, NIC_WC_GRH | NIC_WC_WITH_IMM);
	assert_int_equal(c.imm, 0x77);
	assert_int_equal(c.src_qpn, 0xabcdef);
	ip = p->e.mem + RECV + 20;
	assert_memory_equal(ip, want, 2);
	assert_memory_equal(ip + 6, want + 6, 4);
	/* IP 20, UDP 8, BTH 12, DETH 8, ImmDt 4, payload 33 and 3, ICRC 4 */
	assert_int_equal(ip[2] << 8 | ip[3], 92);
	assert_memory_equal(ip + 12, p->addr.b + 12, 4);
	assert_memory_equal(ip + 16, p->nic_addr.b + 12, 4);
	for (unsigned i = 0; i < 20; i += 2)
		sum += (uint32_t)ip[i] << 8 | ip[i + 1];
	assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
	for (unsigned i = 0; i < 33; i++)
		assert_int_equal(p->e.mem[RECV + GRH + i], pkt_pattern(i));
	expect_quiet(p, SEC);
	finish();
}

/*
 * 9.8.3: a receiver ignores PSNs: it takes gaps, repetitions and packets of other senders.
 */
RULE(any_psn_from_anybody)
{
	uint8_t buf[PKT_MAX_LEN];
	struct pkt_addr other;
	uint32_t len;

	start(s, (struct ep_params){0});
	post_recvs(4, 1024);
	peer_send(p, &(struct pkt_make){.opcode = UD(), .psn = s, .len = 1});
	peer_send(p, &(struct pkt_make){.opcode = UD(), .psn = s, .len = 1});
	peer_send(p, &(struct pkt_make){.opcode = UD(), .psn = s + 5, .len = 2});
	len = pkt_make_raw(buf, &(struct pkt_make){.opcode = UD(), .len = 3}, nic_qp_num(p->e.qp));
	assert_int_equal(pkt_addr_parse("10.8.8.8", &other), 0);
	pkt_seal(buf, len, &other, &p->nic_addr);
	peer_send_raw(p, &other, buf, len);
	expect_recv(p, 100, NIC_WC_SUCCESS, GRH + 1);
	expect_recv(p, 101, NIC_WC_SUCCESS, GRH + 1);
	expect_recv(p, 102, NIC_WC_SUCCESS, GRH + 2);
	expect_recv(p, 103, NIC_WC_SUCCESS, GRH + 3);
	assert_memory_equal(p->e.mem + RECV + 3 * 1024 + 32, other.b + 12, 4);
	finish();
}

/* 10.2.5: without the Q_Key a packet is dropped, and counted. */
RULE(wrong_qkey)
{
	start(s, (struct ep_params){0});
	post_recvs(1, 1024);
	peer_send(p, &(struct pkt_make){.opcode = UD(), .psn = s, .len = 8, .qkey = QKEY ^ 1});
	no_recv();
	assert_int_equal(COUNT(rx_bad_qkey), 1);
	peer_send(p, &(struct pkt_make){.opcode = UD(), .psn = s, .len = 8});
	expect_recv(p, 100, NIC_WC_SUCCESS, GRH + 8);
	expect_quiet(p, SEC);
	finish();
}

/*
 * Without a receive, or with a receive that is too short for header and payload, the packet is
 * dropped and counted. The receive waits for the next packet.
 */
RULE(no_space)
{
	struct roost_sge sge;

	start(s, (struct ep_params){0});
	peer_send(p, &(struct pkt_make){.opcode = UD(), .psn = s, .len = 8});
	assert_int_equal(COUNT(out_of_buffer), 1);
	sge = ep_sge(&p->e, RECV, GRH + 8);
	ep_post_recv(&p->e, 100, &sge, 1);
	no_recv();
	peer_send(p, &(struct pkt_make){.opcode = UD(), .psn = s, .len = 9});
	no_recv();
	assert_int_equal(COUNT(resp_local_length_error), 1);
	assert_int_equal(COUNT(rx_ud_dropped), 2);
	peer_send(p, &(struct pkt_make){.opcode = UD(), .psn = s, .len = 8});
	expect_recv(p, 100, NIC_WC_SUCCESS, GRH + 8);
	assert_int_equal(p->e.mem[RECV + GRH + 7], pkt_pattern(7));
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_RTS);
	finish();
}

/* Other faults of a packet: P_Key, ICRC, service. */
static void malformed(void **state)
{
	uint8_t buf[PKT_MAX_LEN];
	uint32_t len;

	start(0, (struct ep_params){0});
	post_recvs(1, 1024);
	len = pkt_make_raw(buf, &(struct pkt_make){.opcode = UD(), .len = 8}, nic_qp_num(p->e.qp));
	buf[3] ^= 2; /* P_Key */
	pkt_seal(buf, len, &p->addr, &p->nic_addr);
	peer_send_raw(p, &p->addr, buf, len);
	assert_int_equal(COUNT(rx_bad_pkey), 1);
	buf[3] ^= 2;
	pkt_seal(buf, len, &p->addr, &p->nic_addr);
	buf[25] ^= 1;
	peer_send_raw(p, &p->addr, buf, len);
	assert_int_equal(COUNT(rx_icrc_encapsulated), 1);
	peer_send(p, &(struct pkt_make){.opcode = PKT_UC + PKT_SEND_ONLY, .len = 8});
	peer_send(p, &(struct pkt_make){.opcode = PKT_SEND_ONLY, .len = 8, .ackreq = true});
	assert_int_equal(COUNT(rx_bad_service), 2);
	no_recv();
	expect_quiet(p, SEC);
	finish();
}

/*
 * Datagrams that cannot be sent: too long, with an invalid handle or one of another domain, with an
 * operation of other services.
 */
static void refused_sends(void **state)
{
	struct nic_qp_attr a = {.state = NIC_QPS_RTS};
	uint32_t pd, foreign, gone;

	start(5, (struct ep_params){0});
	assert_int_equal(nic_pd_alloc(p->e.nic, &pd), 0);
	foreign = make_ah(p->e.nic, pd, &p->addr);
	assert_int_equal(nic_pd_free(p->e.nic, pd), -EBUSY);
	gone = make_ah(p->e.nic, p->e.pd, &p->addr);
	assert_int_equal(nic_ah_destroy(p->e.nic, gone), 0);
	assert_int_equal(nic_ah_destroy(p->e.nic, gone), -ENOENT);
	struct {
		enum roost_op op;
		uint32_t len, handle;
		enum nic_wc_status status;
	} row[] = {
		{ROOST_OP_SEND, 4097, ah, NIC_WC_LOC_LEN_ERR},
		{ROOST_OP_SEND, 8, gone, NIC_WC_LOC_QP_OP_ERR},
		{ROOST_OP_SEND, 8, 0, NIC_WC_LOC_QP_OP_ERR},
		{ROOST_OP_SEND, 8, foreign, NIC_WC_LOC_PROT_ERR},
		{ROOST_OP_WRITE, 8, ah, NIC_WC_LOC_QP_OP_ERR},
		{ROOST_OP_READ, 8, ah, NIC_WC_LOC_QP_OP_ERR},
		{ROOST_OP_SEND_INV, 8, ah, NIC_WC_LOC_QP_OP_ERR},
	};
	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		post(row[i].op, 1, row[i].len, row[i].handle, QKEY);
		post(ROOST_OP_SEND, 2, 8, ah, QKEY);
		expect_quiet(p, MSEC);
		expect_done(p, 1, row[i].status);
		expect_done(p, 2, NIC_WC_WR_FLUSH_ERR);
		assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_SQE);
		assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_STATE), 0);
	}
	post(ROOST_OP_SEND, 3, 4096, ah, QKEY);
	expect(p, UD(), 5);
	expect_done(p, 3, NIC_WC_SUCCESS);
	nic_ah_destroy(p->e.nic, foreign);
	assert_int_equal(nic_pd_free(p->e.nic, pd), 0);
	finish();
}

/*
 * One QP sends to many: QPs of other NICs, of another PU, of its own PU, and itself. A link without
 * loss delivers all of them.
 */
static void many_destinations(void **state)
{
	struct sim_params sp = {.delay_ns = 1000, .window = 65536};
	struct ep_params ep = {.type = NIC_QPT_UD};
	uint32_t handle[4];
	struct ep e[6];
	struct roost_cqe c;
	struct world w;

	world_init_shape(&w, &(struct world_shape){.nics = 3, .pus = 2}, 9, &sp);
	for (unsigned i = 0; i < 6; i++) {
		struct nic_qp_attr a = {0};

		ep.pu = i & 1;
		ep_init(&e[i], &w, i / 2, &ep);
		ep_to_init(&e[i]);
		ep_to_rtr(&e[i], &a);
		ep_to_rts(&e[i], &a);
		for (unsigned k = 0; k < 8; k++) {
			struct roost_sge sge = ep_sge(&e[i], RECV + 1024 * k, 1024);

			ep_post_recv(&e[i], k, &sge, 1);
		}
	}
	for (unsigned n = 0; n < 3; n++)
		handle[n] = make_ah(w.nic[0], e[0].pd, &w.port[n][0][0]->addr);
	for (unsigned k = 0; k < 8; k++)
		for (unsigned i = 0; i < 6; i++) {
			struct wr wr = wr_ud(&e[0], ROOST_OP_SEND, 10 * i + k, handle[i / 2],
					     nic_qp_num(e[i].qp));

			ep_post(&e[0], &wr);
		}
	for (unsigned k = 0; k < 48; k++) {
		assert_true(ep_wait_send(&e[0], &c, SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
	}
	for (unsigned i = 0; i < 6; i++)
		for (unsigned k = 0; k < 8; k++) {
			assert_true(ep_wait_recv(&e[i], &c, SEC));
			assert_int_equal(c.wr_id, k);
			assert_int_equal(c.byte_len, GRH + 10 * i + k);
			assert_int_equal(c.src_qpn, nic_qp_num(e[0].qp));
		}
	for (unsigned n = 0; n < 3; n++)
		assert_int_equal(nic_ah_destroy(w.nic[0], handle[n]), 0);
	for (unsigned i = 0; i < 6; i++)
		ep_fini(&e[i]);
	world_fini(&w);
}

/*
 * Datagrams that are posted leave before their address handle and their QP are destroyed: a program
 * may end without waiting for the completions. One turn would send 32 of them.
 */
RULE(last_datagrams)
{
	enum { POSTED = 60 };

	start(s, (struct ep_params){0});
	for (unsigned i = 0; i < POSTED; i++)
		post(ROOST_OP_SEND, i, 64, ah, QKEY);
	nic_send_datagrams(p->e.nic, 0, world_now(&p->w));
	assert_int_equal(nic_ah_destroy(p->e.nic, ah), 0);
	for (uint32_t i = 0; i < POSTED; i++)
		expect(p, UD(), s + i);
	for (unsigned i = 0; i < POSTED; i++)
		expect_done(p, i, NIC_WC_SUCCESS);
	peer_close(p);
}

static unsigned refused;

static int no_space_now(struct port *port, struct port_path *path, uint32_t len, uint8_t tos,
			struct port_buf *buf)
{
	assert_true(refused++ < 1000);
	return -EAGAIN;
}

/*
 * A port that has no space before it is flushed does not stop the call, and does not keep the
 * datagrams of another port. Its own datagrams leave later.
 */
static void last_datagrams_of_a_blocked_port(void **state)
{
	enum { POSTED = 60 };
	struct port_ops blocked;
	const struct port_ops *ops;
	struct roost_cqe c;
	struct world w;
	struct ep e[2];
	uint32_t handle[2];

	world_init_shape(&w, &(struct world_shape){.nics = 2, .ports = 2}, 8, NULL);
	for (uint8_t i = 0; i < 2; i++) {
		struct nic_ah_attr a = {.dgid = w.port[1][i][0]->addr, .port = (uint8_t)(i + 1)};

		ep_init(&e[i], &w, 0, &(struct ep_params){.type = NIC_QPT_UD, .port = i});
		ep_connect_self(&e[i]);
		a.pd = e[i].pd;
		assert_int_equal(nic_ah_create(w.nic[0], &a, &handle[i]), 0);
	}
	ops = w.port[0][0][0]->ops;
	blocked = *ops;
	blocked.reserve = no_space_now;
	w.port[0][0][0]->ops = &blocked;
	for (unsigned n = 0; n < POSTED; n++) {
		for (unsigned i = 0; i < 2; i++) {
			struct wr wr = wr_ud(&e[i], ROOST_OP_SEND, 64, handle[i], PEER_QPN);

			ep_post(&e[i], &wr);
		}
	}
	nic_send_datagrams(w.nic[0], 0, world_now(&w));
	assert_true(refused != 0);
	assert_false(ep_poll_send(&e[0], &c));
	for (unsigned n = 0; n < POSTED; n++)
		assert_true(ep_poll_send(&e[1], &c));
	w.port[0][0][0]->ops = ops;
	for (unsigned n = 0; n < POSTED; n++)
		assert_true(ep_wait_send(&e[0], &c, SEC));
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(nic_ah_destroy(w.nic[0], handle[i]), 0);
		ep_fini(&e[i]);
	}
	world_fini(&w);
}

/* 11.2.5.2: a UD QP has no path, and a Q_Key. */
static void states(void **state)
{
	struct nic_qp_attr a = {.state = NIC_QPS_INIT, .port = 1, .qkey = 5}, q;

	start(1, (struct ep_params){0});
	a.state = NIC_QPS_RESET;
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_STATE), 0);
	a.state = NIC_QPS_INIT;
	assert_int_equal(ep_modify(&p->e, &a, MASK_INIT), -EINVAL);
	assert_int_equal(ep_modify(&p->e, &a, MASK_INIT_UD & ~(uint32_t)NIC_QPA_QKEY), -EINVAL);
	assert_int_equal(ep_modify(&p->e, &a, MASK_INIT_UD), 0);
	a.state = NIC_QPS_RTR;
	assert_int_equal(ep_modify(&p->e, &a, MASK_RTR_UC), -EINVAL);
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_STATE), 0);
	a.state = NIC_QPS_RTS;
	a.qkey = 6;
	assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_STATE), -EINVAL);
	assert_int_equal(ep_modify(&p->e, &a, MASK_RTS_UX | NIC_QPA_ACCESS_FLAGS), -EINVAL);
	assert_int_equal(ep_modify(&p->e, &a, MASK_RTS_UX | NIC_QPA_QKEY), 0);
	nic_qp_query(p->e.qp, &q);
	assert_int_equal(q.qkey, 6);
	assert_int_equal(q.port, 1);
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sends),
		cmocka_unit_test(controlled_qkey),
		cmocka_unit_test(receives_with_header),
		cmocka_unit_test(any_psn_from_anybody),
		cmocka_unit_test(wrong_qkey),
		cmocka_unit_test(no_space),
		cmocka_unit_test(malformed),
		cmocka_unit_test(refused_sends),
		cmocka_unit_test(many_destinations),
		cmocka_unit_test(last_datagrams),
		cmocka_unit_test(last_datagrams_of_a_blocked_port),
		cmocka_unit_test(states),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
