/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets of an attacker: from another address, to a guessed QP number, with a wrong P_Key or
 * Q_Key, damaged, replayed, or with keys that are not granted to it. They must change nothing:
 * memory, queues, completions, attributes with both PSNs, events, and all counters except that of
 * the cause are compared before and after.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "nic/counters.h"
#include "peer.h"
#include "rule.h"

#define MTU	  256
#define FIRST	  100u /* our first PSN */
#define CTR(name) (offsetof(struct nic_counters, name) / sizeof(uint64_t))
#define NONE	  NIC_COUNTER_COUNT

static struct peer P, *const p = &P;

/* The visible state of the NIC and its QP. */
struct state {
	struct nic_qp_attr attr;
	struct nic_usage usage;
	uint32_t sq[2], rq[2], sent, received, events, windows;
	uint8_t mem[65536];
	uint64_t ctr[NIC_COUNTER_COUNT], gsi;
	unsigned packets;
};

static void look(struct state *s)
{
	struct nic_counters c = peer_counters(p);

	memset(s, 0, sizeof(*s));
	nic_qp_query(p->e.qp, &s->attr);
	nic_usage(p->e.nic, &s->usage);
	s->sq[0] = atomic_load(&p->e.sqi.prod);
	s->sq[1] = atomic_load(&p->e.sqi.cons);
	s->rq[0] = atomic_load(&p->e.rqi.prod);
	s->rq[1] = atomic_load(&p->e.rqi.cons);
	s->sent = atomic_load(&p->e.sidx.prod);
	s->received = atomic_load(&p->e.ridx.prod);
	s->events = p->e.events;
	assert_int_equal(p->e.mem_len, sizeof(s->mem));
	memcpy(s->mem, p->e.mem, sizeof(s->mem));
	memcpy(s->ctr, &c, sizeof(s->ctr));
	s->gsi = p->w.gsi.count;
	s->packets = p->head;
}

/*
 * Checks that nothing has changed since `before`, except that one packet arrived, that `cause`
 * counts it (NONE: no counter does), and with `answers` that packets were sent.
 */
static void unchanged(const struct state *before, size_t cause, bool answers, const char *what,
		      unsigned opcode)
{
	struct state now;

	look(&now);
	for (size_t i = 0; i < NIC_COUNTER_COUNT; i++) {
		uint64_t more = now.ctr[i] - before->ctr[i];
		bool free = i == CTR(turns) || i == CTR(rcvd_bytes) || i == CTR(doorbells) ||
			    (answers && (i == CTR(sent_pkts) || i == CTR(sent_bytes)));

		if (!free && more != (i == CTR(rcvd_pkts) || i == cause))
			fail_msg("%s, op-code 0x%02x: %s counts %llu", what, opcode,
				 nic_counter_info[i].name, (unsigned long long)more);
		now.ctr[i] = before->ctr[i];
	}
	if (answers)
		now.packets = before->packets;
	if (memcmp(&now, before, sizeof(now)))
		fail_msg("%s, op-code 0x%02x changes the NIC's state", what, opcode);
}

/* Returns a request or response that would be valid if it came from the peer. */
static struct pkt_make right(uint8_t opcode, uint32_t psn)
{
	const struct pkt_op *op = &pkt_ops[opcode];
	bool answer = op->flags & PKT_RESPONSE;
	struct pkt_make m = {.opcode = opcode,
			     .psn = psn,
			     .ackreq = true,
			     .va = (uintptr_t)p->e.mem,
			     .rkey = p->e.key,
			     .dmalen = 8,
			     .len = 8,
			     .swap_add = 1,
			     .syndrome = PKT_AETH_ACK,
			     .inv_rkey = p->e.key};

	if (answer)
		m.psn = op->kind == PKT_KIND_ACK ? FIRST : FIRST + 1;
	if (!(op->flags & PKT_LAST) && op->flags & PKT_PAYLOAD)
		m.dmalen = m.len = MTU;
	return m;
}

static void start(enum nic_qp_type type, uint32_t s)
{
	peer_open(p, &(struct ep_params){.type = type, .mtu = MTU, .psn = FIRST}, s);
	for (unsigned i = 0; i < 4; i++) {
		struct roost_sge sge = ep_sge(&p->e, 32768 + 4096 * i, 4096);

		ep_post_recv(&p->e, 100 + i, &sge, 1);
	}
	if (type != NIC_QPT_RC)
		return;
	/* Requests are outstanding, so that responses could do harm. */
	peer_post(p, ROOST_OP_WRITE, 1, 0, 8);
	expect(p, PKT_WRITE_ONLY, FIRST);
	peer_post(p, ROOST_OP_READ, 2, 64, 8);
	expect(p, PKT_READ_REQUEST, FIRST + 1);
}

enum harm { SOURCE, QPN, PKEY, DAMAGE, VERSION, QKEY, HARMS };

static const struct {
	const char *name;
	size_t counter;
} harms[HARMS] = {
	[SOURCE] = {"from a wrong address", CTR(rx_bad_source)},
	[QPN] = {"to a guessed QP number", CTR(rx_bad_qpn)},
	[PKEY] = {"with a wrong P_Key", CTR(rx_bad_pkey)},
	[DAMAGE] = {"with a wrong ICRC", CTR(rx_icrc_encapsulated)},
	[VERSION] = {"of another version", CTR(rx_bad_version)},
	[QKEY] = {"with a wrong Q_Key", CTR(rx_bad_qkey)},
};

static void harm(enum harm how, struct pkt_make m, const char *what, size_t counter)
{
	uint8_t buf[PKT_MAX_LEN];
	struct pkt_bth *bth = (struct pkt_bth *)buf;
	struct pkt_addr src = p->addr;
	struct state before;
	uint32_t len;

	if (how == QKEY)
		m.qkey = 0x11111110;
	len = pkt_make_raw(buf, &m, nic_qp_num(p->e.qp) ^ (how == QPN ? 1u << m.psn % 24 : 0));
	if (how == SOURCE)
		assert_int_equal(pkt_addr_parse("10.9.9.8", &src), 0);
	if (how == PKEY)
		bth->pkey = htobe16(0x8001);
	if (how == VERSION)
		bth->flags |= 1;
	pkt_seal(buf, len, &src, &p->nic_addr);
	if (how == DAMAGE)
		buf[len - 1] ^= 1;
	look(&before);
	peer_send_raw(p, &src, buf, len);
	unchanged(&before, counter, false, what, m.opcode);
}

static bool is_op(unsigned opcode, uint8_t service)
{
	const struct pkt_op *op = &pkt_ops[opcode];

	return op->kind != PKT_KIND_NONE && op->service == service &&
	       !(op->flags & (PKT_NEEDS_RPC | PKT_NEEDS_CALC)) && opcode != PKT_CNP;
}

/* Each op-code of the service, harmed in each way; op-codes of the other services. */
static void all_harms(enum nic_qp_type type, uint8_t service, uint32_t s)
{
	start(type, s);
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		if (is_op(opcode, service)) {
			for (enum harm h = SOURCE; h < HARMS; h++)
				/* A datagram may come from anywhere; only it has a Q_Key. */
				if (h != (type == NIC_QPT_UD ? SOURCE : QKEY))
					harm(h, right((uint8_t)opcode, s), harms[h].name,
					     harms[h].counter);
		} else if (is_op(opcode, PKT_RC) || is_op(opcode, PKT_UC) ||
			   is_op(opcode, PKT_UD)) {
			harm(HARMS, right((uint8_t)opcode, s), "of another service",
			     CTR(rx_bad_service));
		}
	}
}

RULE(strangers)
{
	struct pkt_make m;

	all_harms(NIC_QPT_RC, PKT_RC, s);
	/* Both directions of the connection continue undisturbed. */
	m = right(PKT_WRITE_ONLY, s);
	peer_send(p, &m);
	expect_ack(p, PKT_AETH_ACK, s);
	m = right(PKT_ACK, 0);
	peer_send(p, &m);
	expect_done(p, 1, NIC_WC_SUCCESS);
	m = right(PKT_READ_RESP_ONLY, 0);
	peer_send(p, &m);
	expect_done(p, 2, NIC_WC_SUCCESS);
	peer_close(p);
}

RULE(strangers_unreliable)
{
	struct pkt_make m;

	all_harms(NIC_QPT_UC, PKT_UC, s);
	m = right(PKT_UC + PKT_SEND_ONLY, s);
	peer_send(p, &m);
	expect_recv(p, 100, NIC_WC_SUCCESS, 8);
	peer_close(p);
	all_harms(NIC_QPT_UD, PKT_UD, s);
	m = right(PKT_UD + PKT_SEND_ONLY, s);
	peer_send(p, &m);
	expect_recv(p, 100, NIC_WC_SUCCESS, 48);
	peer_close(p);
}

static void settle(void)
{
	struct roost_cqe c;

	while (ep_poll_recv(&p->e, &c) || ep_poll_send(&p->e, &c))
		assert_int_equal(c.status, NIC_WC_SUCCESS);
	peer_drain(p);
}

/* Requests of all kinds are recorded, and replayed when the memory has other contents. */
RULE(replayed_requests)
{
	static const uint8_t ops[] = {PKT_SEND_ONLY,	 PKT_WRITE_ONLY,   PKT_FETCH_ADD,
				      PKT_SEND_ONLY_IMM, PKT_CMP_SWAP,	   PKT_WRITE_ONLY_IMM,
				      PKT_READ_REQUEST,	 PKT_SEND_ONLY_INV};
	struct nic_mr_attr a;
	struct pkt_make m[8];
	struct state before;
	struct roost_sge sge;
	uint32_t key;

	start(NIC_QPT_RC, s);
	a = (struct nic_mr_attr){.pd = p->e.pd,
				 .addr = p->e.mem,
				 .len = 64,
				 .iova = (uintptr_t)p->e.mem,
				 .invalidatable = true};
	assert_int_equal(nic_mr_register(p->e.nic, &a, &key), 0);
	for (unsigned i = 0; i < 8; i++) {
		m[i] = right(ops[i], s + i);
		m[i].inv_rkey = key;
		peer_send(p, &m[i]);
	}
	settle();
	memset(p->e.mem, 0x77, p->e.mem_len);
	look(&before);
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < 8; i++) {
			unsigned k = round ? 7 - i : i;

			peer_send(p, &m[k]);
			unchanged(&before, CTR(duplicate_request), true, "played again",
				  m[k].opcode);
			look(&before);
		}
	peer_drain(p);
	/* New requests are executed. */
	sge = ep_sge(&p->e, 0, 64);
	ep_post_recv(&p->e, 104, &sge, 1);
	m[0] = right(PKT_SEND_ONLY, s + 8);
	peer_send(p, &m[0]);
	expect_ack(p, PKT_AETH_ACK, s + 8);
	expect_recv(p, 104, NIC_WC_SUCCESS, 8);
	assert_int_equal(nic_mr_deregister(p->e.nic, key), 0);
	peer_close(p);
}

/* Recorded responses of the peer, and forged ones to completed requests. */
RULE(replayed_answers)
{
	static const struct {
		uint8_t opcode, syndrome;
		uint32_t psn;
		size_t counter;
	} rows[] = {
		{PKT_ACK, PKT_AETH_ACK, 0, NONE},
		{PKT_READ_RESP_ONLY, PKT_AETH_ACK, 1, NONE},
		{PKT_ATOMIC_ACK, PKT_AETH_ACK, 2, NONE},
		{PKT_ACK, PKT_AETH_ACK, 3, NONE},
		{PKT_ACK, PKT_NAK_PSN_SEQ, 3, CTR(packet_seq_err)},
		{PKT_ACK, PKT_AETH_TYPE_RNR | 1, 3, CTR(rnr_nak_retry_err)},
		{PKT_ACK, PKT_NAK_REM_ACCESS, 0, CTR(req_remote_access_errors)},
		{PKT_ACK, PKT_NAK_INVALID_REQ, 2, CTR(req_remote_invalid_request)},
		{PKT_ACK, PKT_NAK_REM_OP, 1, CTR(req_remote_op_errors)},
		/* Responses to requests that were never sent. */
		{PKT_ACK, PKT_AETH_ACK, 5, CTR(req_bad_response)},
		{PKT_READ_RESP_ONLY, PKT_AETH_ACK, 6, CTR(req_bad_response)},
		{PKT_ATOMIC_ACK, PKT_AETH_ACK, 0x7fffff, CTR(req_bad_response)},
	};
	struct state before;
	struct pkt_make m;

	peer_open(p, &(struct ep_params){.mtu = MTU, .psn = s}, 7);
	peer_post(p, ROOST_OP_WRITE, 1, 0, 8);
	peer_post(p, ROOST_OP_READ, 2, 64, 8);
	peer_post(p, ROOST_OP_FETCH_ADD, 3, 128, 8);
	peer_post(p, ROOST_OP_SEND, 4, 0, 8);
	peer_run(p, PEER_SETTLE);
	for (unsigned i = 0; i < 4; i++) {
		m = (struct pkt_make){.opcode = rows[i].opcode,
				      .syndrome = rows[i].syndrome,
				      .psn = s + rows[i].psn,
				      .len = 8};
		peer_send(p, &m);
	}
	for (unsigned i = 1; i <= 4; i++)
		expect_done(p, i, NIC_WC_SUCCESS);
	peer_post(p, ROOST_OP_WRITE, 5, 0, 8);
	peer_run(p, PEER_SETTLE);
	peer_drain(p);
	memset(p->e.mem, 0x77, p->e.mem_len);
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		m = (struct pkt_make){.opcode = rows[i].opcode,
				      .syndrome = rows[i].syndrome,
				      .psn = s + rows[i].psn,
				      .len = 8};
		look(&before);
		peer_send(p, &m);
		unchanged(&before, rows[i].counter, false, "a false answer", rows[i].opcode);
	}
	peer_ack(p, PKT_AETH_ACK, s + 4, 5);
	expect_done(p, 5, NIC_WC_SUCCESS);
	peer_close(p);
}

/* Keys of another protection domain give no access to memory, and cannot be invalidated. */
RULE(keys_of_others)
{
	static const uint8_t ops[] = {PKT_WRITE_ONLY, PKT_READ_REQUEST,	 PKT_FETCH_ADD,
				      PKT_CMP_SWAP,   PKT_SEND_ONLY_INV, PKT_WRITE_ONLY_IMM,
				      PKT_WRITE_FIRST};

	for (unsigned i = 0; i < sizeof(ops); i++) {
		struct nic_mr_attr a;
		struct pkt_make m;
		struct ep other;
		uint32_t key;

		start(NIC_QPT_RC, s);
		ep_init(&other, &p->w, 0, &(struct ep_params){.mtu = MTU});
		memset(other.mem, 0x55, other.mem_len);
		a = (struct nic_mr_attr){.pd = other.pd,
					 .addr = other.mem,
					 .len = other.mem_len,
					 .iova = (uintptr_t)other.mem,
					 .access = 15,
					 .invalidatable = true};
		assert_int_equal(nic_mr_register(p->e.nic, &a, &key), 0);
		m = right(ops[i], s);
		m.va = (uintptr_t)other.mem;
		m.rkey = m.inv_rkey = key;
		peer_send(p, &m);
		expect_ack(p, PKT_NAK_REM_ACCESS, s);
		assert_int_equal(peer_counters(p).resp_remote_access_errors, 1);
		assert_int_equal(p->e.events & 1u << NIC_EVENT_QP_ACCESS_ERR,
				 1u << NIC_EVENT_QP_ACCESS_ERR);
		for (uint64_t b = 0; b < other.mem_len; b++)
			assert_int_equal(other.mem[b], 0x55);
		/* Its owner can still use it. */
		assert_int_equal(nic_mr_deregister(p->e.nic, key), 0);
		ep_fini(&other);
		peer_close(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strangers),	     cmocka_unit_test(strangers_unreliable),
		cmocka_unit_test(replayed_requests), cmocka_unit_test(replayed_answers),
		cmocka_unit_test(keys_of_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
