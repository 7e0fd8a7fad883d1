/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that a responder must refuse. Packets that are not from its peer change nothing and are
 * counted by cause. Requests of its peer that break a rule get the NAK of the specification
 * (InfiniBand Architecture Specification, volume 1, 9.7.4.1, 9.9.3), raise the matching event and
 * end the connection.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "peer.h"
#include "rule.h"

#define MTU	 256
#define ALL	 (NIC_ACCESS_REMOTE_WRITE | NIC_ACCESS_REMOTE_READ | NIC_ACCESS_REMOTE_ATOMIC)
#define RECV_AT	 32768
#define RECV_LEN 600

static struct peer P, *const p = &P;

static void start(uint32_t s, uint32_t access)
{
	peer_open(
		p,
		&(struct ep_params){.mtu = MTU, .access = access | 16 /* not 0 */, .rd_atomic = 4},
		s);
	for (unsigned i = 0; i < 4; i++) {
		struct roost_sge sge = ep_sge(&p->e, RECV_AT, RECV_LEN);

		ep_post_recv(&p->e, 100 + i, &sge, 1);
	}
}

/*
 * A packet of a table: va counts from the start of the memory, rkey 0 means the right key, and the
 * PSN counts from the expected one.
 */
static void send_row(uint32_t s, const struct pkt_make *row)
{
	struct pkt_make m = *row;

	m.psn += s;
	m.va += (uintptr_t)p->e.mem;
	if (!m.rkey)
		m.rkey = p->e.key;
	m.ackreq = true;
	peer_send(p, &m);
}

static void unchanged(void)
{
	assert_true(p->e.mem[0] == 0 && !memcmp(p->e.mem, p->e.mem + 1, p->e.mem_len - 1));
}

/* Checks that the last packet was refused with `syndrome`, and that the connection has ended. */
static void refused(uint32_t psn, uint8_t syndrome)
{
	enum nic_event ev = syndrome == PKT_NAK_REM_ACCESS    ? NIC_EVENT_QP_ACCESS_ERR
			    : syndrome == PKT_NAK_INVALID_REQ ? NIC_EVENT_QP_REQ_ERR
							      : NIC_EVENT_QP_FATAL;
	const struct got *g;

	do { /* ACKs and responses to valid requests before it */
		g = peer_get(p, PEER_SETTLE);
		assert_non_null(g);
	} while (g->v.opcode != PKT_ACK || PKT_AETH_TYPE(g->v.syndrome) != PKT_AETH_TYPE_NAK);
	assert_int_equal(g->v.syndrome, syndrome);
	assert_int_equal(g->v.psn, psn & PKT_PSN_MASK);
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
	assert_int_equal(p->e.events & ~(1u << NIC_EVENT_COMM_EST), 1u << ev);
	expect_quiet(p, SEC);
}

/*
 * The NAK may have been lost, so the refused request is refused again. Other packets are dropped.
 */
RULE(refused_again)
{
	struct pkt_make m = {.opcode = PKT_WRITE_ONLY, .psn = s, .len = 8};

	start(s, ALL);
	m.va = (uintptr_t)p->e.mem;
	m.dmalen = 8;
	m.rkey = p->e.key ^ 0x5a5a;
	m.ackreq = true;
	for (int i = 0; i < 3; i++) {
		peer_send(p, &m);
		expect_ack(p, PKT_NAK_REM_ACCESS, s);
		expect_quiet(p, SEC);
	}
	m.rkey = p->e.key; /* the key is not checked: the connection has ended */
	peer_send(p, &m);
	expect_ack(p, PKT_NAK_REM_ACCESS, s);
	m.psn = s + 1;
	peer_send(p, &m);
	m.psn = s - 1;
	peer_send(p, &m);
	expect_quiet(p, SEC);
	unchanged();
	assert_int_equal(nic_qp_state(p->e.qp), NIC_QPS_ERR);
	peer_close(p);
}

/* Checks that all unused receives were flushed. */
static void flushed(unsigned first)
{
	for (unsigned i = first; i < 4; i++)
		expect_recv(p, 100 + i, NIC_WC_WR_FLUSH_ERR, 0);
	assert_false(ep_poll_recv(&p->e, &(struct roost_cqe){0}));
}

/* The QP must have allowed it (10.3.1.2; 9.9.3, class C: unsupported op-code): invalid request. */
RULE(missing_qp_permission)
{
	static const struct {
		uint32_t lacks;
		struct pkt_make m;
	} t[] = {
		{NIC_ACCESS_REMOTE_WRITE, {.opcode = PKT_WRITE_ONLY, .dmalen = 8, .len = 8}},
		{NIC_ACCESS_REMOTE_WRITE, {.opcode = PKT_WRITE_FIRST, .dmalen = 600, .len = MTU}},
		{NIC_ACCESS_REMOTE_WRITE, {.opcode = PKT_WRITE_ONLY_IMM, .dmalen = 8, .len = 8}},
		{NIC_ACCESS_REMOTE_WRITE, {.opcode = PKT_WRITE_ONLY}},
		{NIC_ACCESS_REMOTE_READ, {.opcode = PKT_READ_REQUEST, .dmalen = 8}},
		{NIC_ACCESS_REMOTE_READ, {.opcode = PKT_READ_REQUEST}},
		{NIC_ACCESS_REMOTE_ATOMIC, {.opcode = PKT_CMP_SWAP}},
		{NIC_ACCESS_REMOTE_ATOMIC, {.opcode = PKT_FETCH_ADD, .swap_add = 1}},
	};

	for (unsigned i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct nic_qp_attr a = {.access = ALL & ~t[i].lacks};

		start(s, ALL);
		/* The region allows all accesses, the QP does not. */
		assert_int_equal(ep_modify(&p->e, &a, NIC_QPA_ACCESS_FLAGS), 0);
		send_row(s, &t[i].m);
		refused(s, PKT_NAK_INVALID_REQ);
		assert_int_equal(peer_counters(p).resp_remote_invalid_request, 1);
		unchanged();
		flushed(0);
		peer_close(p);
	}
}

/* 9.7.4.1.5: key, bounds, and the region's own permission: remote access error. */
static void access_error(uint32_t s, uint32_t access, const struct pkt_make *m)
{
	start(s, ALL);
	if (access != ALL) {
		struct nic_mr_attr a = {.pd = p->e.pd,
					.addr = p->e.mem,
					.len = p->e.mem_len,
					.iova = (uintptr_t)p->e.mem,
					.access = access | NIC_ACCESS_LOCAL_WRITE};

		assert_int_equal(nic_mr_deregister(p->e.nic, p->e.key), 0);
		assert_int_equal(nic_mr_register(p->e.nic, &a, &p->e.key), 0);
	}
	send_row(s, m);
	refused(s, PKT_NAK_REM_ACCESS);
	assert_int_equal(peer_counters(p).resp_remote_access_errors, 1);
	unchanged();
	flushed(0);
	peer_close(p);
}

RULE(bounds)
{
	static const struct {
		uint64_t off;
		uint32_t len;
	} t[] = {
		{65536, 1},	   {65535, 2},	      {65536 - 255, 256}, {(uint64_t)-1, 1},
		{(uint64_t)-1, 2}, {(uint64_t)-8, 8}, {1ull << 40, 1},	  {0, 65537},
		{0, 1u << 31},	   {1, 65536},	      {1ull << 63, 8},
	};

	for (unsigned i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		uint32_t first = t[i].len < MTU ? t[i].len : MTU;

		access_error(s, ALL,
			     &(struct pkt_make){.opcode = PKT_READ_REQUEST,
						.va = t[i].off,
						.dmalen = t[i].len});
		access_error(s, ALL,
			     &(struct pkt_make){.opcode = t[i].len > MTU ? PKT_WRITE_FIRST
									 : PKT_WRITE_ONLY,
						.va = t[i].off,
						.dmalen = t[i].len,
						.len = first});
	}
	/* Addresses that wrap around: the last byte would be at 7. */
	access_error(s, ALL,
		     &(struct pkt_make){.opcode = PKT_READ_REQUEST,
					.va = -(uint64_t)(uintptr_t)0 - 8,
					.dmalen = 16});
	access_error(s, ALL, &(struct pkt_make){.opcode = PKT_FETCH_ADD, .va = 65536});
	access_error(s, ALL, &(struct pkt_make){.opcode = PKT_CMP_SWAP, .va = (uint64_t)-8});
}

RULE(keys)
{
	/* No such index, index 0, the right index with another tag. */
	static const uint32_t wrong[] = {0xffffffff, 1, 0x12345678};

	for (unsigned i = 0; i < 3; i++) {
		access_error(s, ALL,
			     &(struct pkt_make){
				     .opcode = PKT_READ_REQUEST, .rkey = wrong[i], .dmalen = 8});
		access_error(
			s, ALL,
			&(struct pkt_make){
				.opcode = PKT_WRITE_ONLY, .rkey = wrong[i], .dmalen = 8, .len = 8});
		access_error(s, ALL,
			     &(struct pkt_make){
				     .opcode = PKT_FETCH_ADD, .rkey = wrong[i], .swap_add = 1});
	}
	for (uint32_t bit = 0; bit < 32; bit++) {
		struct pkt_make m = {.opcode = PKT_READ_REQUEST, .psn = s, .dmalen = 8};

		start(s, ALL);
		m.va = (uintptr_t)p->e.mem;
		m.rkey = p->e.key ^ 1u << bit;
		peer_send(p, &m);
		refused(s, PKT_NAK_REM_ACCESS);
		peer_close(p);
	}
}

RULE(region_permission)
{
	access_error(s, ALL & ~NIC_ACCESS_REMOTE_READ,
		     &(struct pkt_make){.opcode = PKT_READ_REQUEST, .dmalen = 8});
	access_error(s, ALL & ~NIC_ACCESS_REMOTE_WRITE,
		     &(struct pkt_make){.opcode = PKT_WRITE_ONLY, .dmalen = 8, .len = 8});
	access_error(s, ALL & ~NIC_ACCESS_REMOTE_WRITE,
		     &(struct pkt_make){.opcode = PKT_WRITE_FIRST, .dmalen = 600, .len = MTU});
	access_error(s, ALL & ~NIC_ACCESS_REMOTE_ATOMIC,
		     &(struct pkt_make){.opcode = PKT_CMP_SWAP});
	access_error(s, ALL & ~NIC_ACCESS_REMOTE_ATOMIC,
		     &(struct pkt_make){.opcode = PKT_FETCH_ADD, .swap_add = 1});
}

RULE(other_protection_domain)
{
	struct nic_mr_attr a = {.len = 4096, .access = ALL | NIC_ACCESS_LOCAL_WRITE};
	struct pkt_make m = {.opcode = PKT_READ_REQUEST, .psn = s, .dmalen = 8};
	uint8_t *mem = calloc(1, 4096);
	uint32_t pd;

	start(s, ALL);
	assert_int_equal(nic_pd_alloc(p->e.nic, &pd), 0);
	a.pd = pd;
	a.addr = mem;
	a.iova = m.va = (uintptr_t)mem;
	assert_int_equal(nic_mr_register(p->e.nic, &a, &m.rkey), 0);
	peer_send(p, &m);
	refused(s, PKT_NAK_REM_ACCESS);
	assert_int_equal(nic_mr_deregister(p->e.nic, m.rkey), 0);
	assert_int_equal(nic_pd_free(p->e.nic, pd), 0);
	peer_close(p);
	free(mem);
}

/* C9-97, 9.4.5: atomics need 8-byte alignment: invalid request. */
RULE(misaligned_atomic)
{
	for (uint32_t off = 1; off < 8; off++) {
		start(s, ALL);
		send_row(s, &(struct pkt_make){.opcode = off & 1 ? PKT_CMP_SWAP : PKT_FETCH_ADD,
					       .va = off,
					       .swap_add = 1});
		refused(s, PKT_NAK_INVALID_REQ);
		unchanged();
		peer_close(p);
	}
}

/* C9-88: key and address of a WRITE or READ of no bytes are not checked. */
RULE(zero_length_skips_keys)
{
	const struct got *g;

	start(s, ALL);
	send_row(s, &(struct pkt_make){
			    .opcode = PKT_WRITE_ONLY, .va = 1ull << 60, .rkey = 0xdeadbeef});
	expect_ack(p, PKT_AETH_ACK, s);
	send_row(s, &(struct pkt_make){.opcode = PKT_READ_REQUEST,
				       .psn = 1,
				       .va = 1ull << 60,
				       .rkey = 0xdeadbeef});
	g = expect(p, PKT_READ_RESP_ONLY, s + 1);
	assert_int_equal(g->v.payload_len, 0);
	send_row(s, &(struct pkt_make){
			    .opcode = PKT_WRITE_ONLY_IMM, .psn = 2, .va = 7, .rkey = 0xdeadbeef});
	expect_ack(p, PKT_AETH_ACK, s + 2);
	expect_recv(p, 100, NIC_WC_SUCCESS, 0);
	peer_close(p);
}

/*
 * 9.9.3: a SEND longer than the receive: invalid request, and the receive ends with a local length
 * error.
 */
RULE(send_too_long)
{
	start(s, ALL);
	send_row(s, &(struct pkt_make){.opcode = PKT_SEND_FIRST, .len = MTU});
	send_row(s, &(struct pkt_make){.opcode = PKT_SEND_MIDDLE, .psn = 1, .len = MTU});
	expect_ack(p, PKT_AETH_ACK, s);
	expect_ack(p, PKT_AETH_ACK, s + 1);
	send_row(s, &(struct pkt_make){
			    .opcode = PKT_SEND_LAST, .psn = 2, .len = RECV_LEN - 2 * MTU + 1});
	refused(s + 2, PKT_NAK_INVALID_REQ);
	expect_recv(p, 100, NIC_WC_LOC_LEN_ERR, 0);
	flushed(1);
	assert_int_equal(peer_counters(p).resp_local_length_error, 1);
	/* Memory behind the receive is unchanged. */
	for (uint32_t i = RECV_AT + RECV_LEN; i < p->e.mem_len; i++)
		assert_int_equal(p->e.mem[i], 0);
	peer_close(p);
	/* A message of exactly the receive's length is accepted. */
	start(s, ALL);
	send_row(s, &(struct pkt_make){.opcode = PKT_SEND_FIRST, .len = MTU});
	send_row(s, &(struct pkt_make){.opcode = PKT_SEND_MIDDLE, .psn = 1, .len = MTU});
	send_row(s,
		 &(struct pkt_make){.opcode = PKT_SEND_LAST, .psn = 2, .len = RECV_LEN - 2 * MTU});
	expect_recv(p, 100, NIC_WC_SUCCESS, RECV_LEN);
	peer_close(p);
}

/* A receive without accessible memory is our own error: remote operational error for the peer. */
RULE(receive_without_memory)
{
	struct roost_sge sge;

	peer_open(p, &(struct ep_params){.mtu = MTU}, s);
	sge = (struct roost_sge){(uintptr_t)p->e.mem, 100, p->e.key ^ 4};
	ep_post_recv(&p->e, 100, &sge, 1);
	send_row(s, &(struct pkt_make){.opcode = PKT_SEND_ONLY, .len = 8});
	refused(s, PKT_NAK_REM_OP);
	expect_recv(p, 100, NIC_WC_LOC_PROT_ERR, 0);
	assert_int_equal(peer_counters(p).resp_local_protection_error, 1);
	peer_close(p);
}

/*
 * 9.7.4.1.1, table 36: op-codes in an order that is not valid in a message. Of n packets the last
 * is refused.
 */
RULE(opcode_sequence)
{
#define FIRST_SEND                                                                                 \
	{                                                                                          \
		.opcode = PKT_SEND_FIRST, .len = MTU                                               \
	}
#define FIRST_WRITE                                                                                \
	{                                                                                          \
		.opcode = PKT_WRITE_FIRST, .len = MTU, .dmalen = 600                               \
	}
	static const struct pkt_make t[][3] = {
		/* no message in progress */
		{{.opcode = PKT_SEND_MIDDLE, .len = MTU}},
		{{.opcode = PKT_SEND_LAST, .len = 8}},
		{{.opcode = PKT_SEND_LAST_IMM, .len = 8}},
		{{.opcode = PKT_SEND_LAST_INV, .len = 8}},
		{{.opcode = PKT_WRITE_MIDDLE, .len = MTU}},
		{{.opcode = PKT_WRITE_LAST, .len = 8}},
		{{.opcode = PKT_WRITE_LAST_IMM, .len = 8}},
		/* another message in progress */
		{FIRST_SEND, {.opcode = PKT_SEND_FIRST, .len = MTU}},
		{FIRST_SEND, {.opcode = PKT_SEND_ONLY, .len = 8}},
		{FIRST_SEND, {.opcode = PKT_WRITE_MIDDLE, .len = MTU}},
		{FIRST_SEND, {.opcode = PKT_WRITE_LAST, .len = 8}},
		{FIRST_SEND, {.opcode = PKT_WRITE_ONLY, .len = 8, .dmalen = 8}},
		{FIRST_SEND, {.opcode = PKT_READ_REQUEST, .dmalen = 8}},
		{FIRST_SEND, {.opcode = PKT_FETCH_ADD}},
		{FIRST_SEND,
		 {.opcode = PKT_SEND_MIDDLE, .len = MTU},
		 {.opcode = PKT_SEND_FIRST, .len = MTU}},
		{FIRST_WRITE, {.opcode = PKT_WRITE_FIRST, .len = MTU, .dmalen = 600}},
		{FIRST_WRITE, {.opcode = PKT_WRITE_ONLY, .len = 8, .dmalen = 8}},
		{FIRST_WRITE, {.opcode = PKT_SEND_MIDDLE, .len = MTU}},
		{FIRST_WRITE, {.opcode = PKT_SEND_LAST, .len = 8}},
		{FIRST_WRITE, {.opcode = PKT_SEND_ONLY, .len = 8}},
		{FIRST_WRITE, {.opcode = PKT_READ_REQUEST, .dmalen = 8}},
		{FIRST_WRITE, {.opcode = PKT_CMP_SWAP}},
		/* and continued */
		{FIRST_SEND,
		 {.opcode = PKT_SEND_MIDDLE, .len = MTU},
		 {.opcode = PKT_WRITE_MIDDLE, .len = MTU}},
		{FIRST_SEND,
		 {.opcode = PKT_SEND_MIDDLE, .len = MTU},
		 {.opcode = PKT_READ_REQUEST, .dmalen = 8}},
		{FIRST_WRITE,
		 {.opcode = PKT_WRITE_MIDDLE, .len = MTU},
		 {.opcode = PKT_SEND_LAST, .len = 8}},
		{FIRST_WRITE, {.opcode = PKT_WRITE_MIDDLE, .len = MTU}, {.opcode = PKT_CMP_SWAP}},
		/* a message that has ended */
		{FIRST_SEND,
		 {.opcode = PKT_SEND_LAST, .len = 8},
		 {.opcode = PKT_SEND_LAST, .len = 8}},
		{{.opcode = PKT_SEND_ONLY, .len = 8}, {.opcode = PKT_SEND_LAST, .len = 8}},
		{{.opcode = PKT_WRITE_ONLY, .len = 8, .dmalen = 8},
		 {.opcode = PKT_WRITE_LAST, .len = 8}},
	};

	for (unsigned i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		unsigned n = 0;

		start(s, ALL);
		for (; n < 3 && (n == 0 || t[i][n].opcode || t[i][n].len); n++) {
			struct pkt_make m = t[i][n];

			m.psn = n;
			send_row(s, &m);
		}
		refused(s + n - 1, PKT_NAK_INVALID_REQ);
		peer_close(p);
	}
}

/*
 * 9.7.4.1.2, 9.9.3 (unsupported or reserved op-code, class C): op-codes of RC that are reserved,
 * and calls on a QP that did not agree to them, where a message may begin and in the middle of one.
 * rxe drops them (its completer gets them); mlx5 has the event that the specification asks for.
 * With another PSN than the next they are dropped: they may be no requests at all.
 */
RULE(reserved_opcodes)
{
	static const struct pkt_make before[] = {{0}, FIRST_SEND, FIRST_WRITE};
	uint8_t buf[PKT_MAX_LEN];
	unsigned tried = 0;

	for (unsigned op = 0; op < 2 * PKT_UC; op++) {
		const struct pkt_make *b = &before[op / PKT_UC ? 1 + op % 2 : 0];
		uint8_t opcode = op % PKT_UC;
		uint32_t n = b->len != 0;

		if (pkt_ops[opcode].kind != PKT_KIND_NONE &&
		    !(pkt_ops[opcode].flags & (PKT_NEEDS_RPC | PKT_NEEDS_CALC)))
			continue;
		start(s, ALL);
		if (n) {
			struct pkt_make m = *b;

			send_row(s, &m);
			peer_drain(p);
		}
		for (uint32_t late = 3; late--;) { /* two ahead, one behind, the next */
			struct pkt_make m = {
				.opcode = PKT_WRITE_ONLY, .dmalen = 16, .len = 16, .ackreq = true};
			uint32_t len;

			m.psn = late == 2 ? s + n + 2 : late ? s + n - 1 : s + n;
			len = pkt_make_raw(buf, &m, nic_qp_num(p->e.qp));
			buf[0] = opcode;
			pkt_seal(buf, len, &p->addr, &p->nic_addr);
			peer_send_raw(p, &p->addr, buf, len);
			if (late)
				expect_quiet(p, PEER_SETTLE);
		}
		assert_int_equal(peer_counters(p).rx_bad_opcode, 2);
		refused(s + n, PKT_NAK_INVALID_REQ);
		peer_close(p);
		tried++;
	}
	assert_int_equal(tried, 2 * (1 + 8)); /* 0x15, 0x18 to 0x1f */
}

/*
 * 9.7.4.1.6: payload lengths that do not fit the op-code, the path MTU, or the length in the RETH.
 */
RULE(lengths)
{
	static const struct pkt_make t[][3] = {
		{{.opcode = PKT_SEND_FIRST, .len = MTU - 1}},
		{{.opcode = PKT_SEND_FIRST, .len = 0}},
		{{.opcode = PKT_SEND_FIRST, .len = MTU + 4}},
		{{.opcode = PKT_SEND_ONLY, .len = MTU + 1}},
		{FIRST_SEND, {.opcode = PKT_SEND_MIDDLE, .len = MTU - 4}},
		{FIRST_SEND, {.opcode = PKT_SEND_MIDDLE, .len = 0}},
		{FIRST_SEND, {.opcode = PKT_SEND_MIDDLE, .len = MTU + 4}},
		{FIRST_SEND, {.opcode = PKT_SEND_LAST, .len = 0}},
		{FIRST_SEND, {.opcode = PKT_SEND_LAST, .len = MTU + 1}},
		{FIRST_SEND, {.opcode = PKT_SEND_LAST_IMM, .len = 0}},
		{{.opcode = PKT_WRITE_FIRST, .len = MTU - 4, .dmalen = 600}},
		{{.opcode = PKT_WRITE_FIRST, .len = MTU + 4, .dmalen = 600}},
		{{.opcode = PKT_WRITE_FIRST, .len = MTU, .dmalen = MTU}},
		{{.opcode = PKT_WRITE_FIRST, .len = MTU, .dmalen = 8}},
		{{.opcode = PKT_WRITE_FIRST, .len = MTU, .dmalen = 0}},
		{{.opcode = PKT_WRITE_ONLY, .len = 8, .dmalen = 9}},
		{{.opcode = PKT_WRITE_ONLY, .len = 8, .dmalen = 7}},
		{{.opcode = PKT_WRITE_ONLY, .len = 0, .dmalen = 7}},
		{{.opcode = PKT_WRITE_ONLY, .len = 7, .dmalen = 0}},
		{{.opcode = PKT_WRITE_ONLY, .len = MTU + 4, .dmalen = MTU + 4}},
		{{.opcode = PKT_WRITE_ONLY_IMM, .len = 8, .dmalen = 600}},
		{FIRST_WRITE, {.opcode = PKT_WRITE_MIDDLE, .len = MTU - 4}},
		{FIRST_WRITE, {.opcode = PKT_WRITE_LAST, .len = 8}},
		{FIRST_WRITE, {.opcode = PKT_WRITE_LAST, .len = 0}},
		/* longer and shorter than announced, at the end */
		{FIRST_WRITE,
		 {.opcode = PKT_WRITE_MIDDLE, .len = MTU},
		 {.opcode = PKT_WRITE_MIDDLE, .len = MTU}},
		{FIRST_WRITE,
		 {.opcode = PKT_WRITE_MIDDLE, .len = MTU},
		 {.opcode = PKT_WRITE_LAST, .len = 87}},
		{FIRST_WRITE,
		 {.opcode = PKT_WRITE_MIDDLE, .len = MTU},
		 {.opcode = PKT_WRITE_LAST, .len = 89}},
		/* longer than any message may be */
		{{.opcode = PKT_WRITE_FIRST, .len = MTU, .dmalen = 0x80000001}},
		{{.opcode = PKT_READ_REQUEST, .dmalen = 0x80000001}},
		{{.opcode = PKT_READ_REQUEST, .dmalen = 0xffffffff}},
	};

	for (unsigned i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		unsigned n = 0;

		start(s, ALL);
		for (; n < 3 && (n == 0 || t[i][n].opcode || t[i][n].len); n++) {
			struct pkt_make m = t[i][n];

			m.psn = n;
			send_row(s, &m);
		}
		refused(s + n - 1, PKT_NAK_INVALID_REQ);
		peer_close(p);
	}
}

/* 9.7.4.1: payload in a READ request or an atomic, which have none, causes a NAK. */
RULE(payload_where_none)
{
	static const uint8_t ops[] = {PKT_READ_REQUEST, PKT_CMP_SWAP, PKT_FETCH_ADD};

	for (unsigned i = 0; i < 2 * sizeof(ops); i++) {
		struct pkt_make m = {.opcode = ops[i / 2], .psn = s, .ackreq = true, .dmalen = 8};
		uint8_t buf[PKT_MAX_LEN] = {0};
		uint32_t len, more = i % 2 ? MTU : 4;

		start(s, ALL);
		m.va = (uintptr_t)p->e.mem;
		m.rkey = p->e.key;
		len = pkt_make_raw(buf, &m, nic_qp_num(p->e.qp)) + more;
		memset(buf + len - PKT_ICRC_LEN - more, 0x5a, more);
		pkt_seal(buf, len, &p->addr, &p->nic_addr);
		peer_send_raw(p, NULL, buf, len);
		refused(s, PKT_NAK_INVALID_REQ);
		unchanged();
		peer_close(p);
	}
}

/*
 * 9.7.4.1.6: no payload with an op-code that needs some. A SEND ONLY, or a WRITE ONLY of length 0,
 * may have none.
 */
RULE(no_payload_where_some)
{
	static const struct pkt_make t[][2] = {
		{{.opcode = PKT_SEND_FIRST}},
		{FIRST_SEND, {.opcode = PKT_SEND_MIDDLE}},
		{FIRST_SEND, {.opcode = PKT_SEND_LAST}},
		{FIRST_SEND, {.opcode = PKT_SEND_LAST_IMM}},
		{FIRST_SEND, {.opcode = PKT_SEND_LAST_INV}},
		{{.opcode = PKT_WRITE_FIRST, .dmalen = 600}},
		{{.opcode = PKT_WRITE_ONLY, .dmalen = 8}},
		{{.opcode = PKT_WRITE_ONLY_IMM, .dmalen = 8}},
		{FIRST_WRITE, {.opcode = PKT_WRITE_MIDDLE}},
		{FIRST_WRITE, {.opcode = PKT_WRITE_LAST}},
		{FIRST_WRITE, {.opcode = PKT_WRITE_LAST_IMM}},
	};

	for (unsigned i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		unsigned n = 1 + (t[i][1].opcode != 0);

		start(s, ALL);
		for (unsigned k = 0; k < n; k++) {
			struct pkt_make m = t[i][k];

			m.psn = k;
			send_row(s, &m);
		}
		refused(s + n - 1, PKT_NAK_INVALID_REQ);
		peer_close(p);
	}
}

/*
 * 10.6.5: a peer may invalidate only windows and fast-registered keys, and this QP has none.
 */
RULE(invalidate_refused)
{
	start(s, ALL);
	send_row(s,
		 &(struct pkt_make){.opcode = PKT_SEND_ONLY_INV, .len = 8, .inv_rkey = p->e.key});
	refused(s, PKT_NAK_REM_ACCESS);
	assert_non_null(p);
	/* The region is unchanged. */
	assert_int_equal(nic_mr_deregister(p->e.nic, p->e.key), 0);
	p->e.key = 0;
	peer_close(p);
}

/*
 * The event "communication established" is raised once, by the first request in RTR. In RTR
 * requests are executed, and responses are dropped.
 */
RULE(events_in_rtr)
{
	struct nic_qp_attr a;

	peer_open_init(p, &(struct ep_params){.mtu = MTU}, s);
	peer_attr(p, &a);
	/* In INIT all packets are dropped. */
	send_row(s, &(struct pkt_make){.opcode = PKT_WRITE_ONLY, .dmalen = 8, .len = 8});
	expect_quiet(p, SEC);
	assert_int_equal(peer_counters(p).rx_bad_qpn, 1);
	unchanged();
	ep_to_rtr(&p->e, &a);
	assert_int_equal(p->e.events, 0);
	peer_ack(p, PKT_AETH_ACK, 0, 0);
	assert_int_equal(p->e.events, 0);
	send_row(s, &(struct pkt_make){.opcode = PKT_WRITE_ONLY, .dmalen = 8, .len = 8});
	expect_ack(p, PKT_AETH_ACK, s);
	assert_int_equal(p->e.events, 1u << NIC_EVENT_COMM_EST);
	p->e.events = 0;
	send_row(s, &(struct pkt_make){.opcode = PKT_WRITE_ONLY, .psn = 1, .dmalen = 8, .len = 8});
	expect_ack(p, PKT_AETH_ACK, s + 1);
	ep_to_rts(&p->e, &a);
	send_row(s, &(struct pkt_make){.opcode = PKT_WRITE_ONLY, .psn = 2, .dmalen = 8, .len = 8});
	expect_ack(p, PKT_AETH_ACK, s + 2);
	assert_int_equal(p->e.events, 0);
	peer_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refused_again),
		cmocka_unit_test(missing_qp_permission),
		cmocka_unit_test(bounds),
		cmocka_unit_test(keys),
		cmocka_unit_test(region_permission),
		cmocka_unit_test(other_protection_domain),
		cmocka_unit_test(misaligned_atomic),
		cmocka_unit_test(zero_length_skips_keys),
		cmocka_unit_test(send_too_long),
		cmocka_unit_test(receive_without_memory),
		cmocka_unit_test(opcode_sequence),
		cmocka_unit_test(reserved_opcodes),
		cmocka_unit_test(lengths),
		cmocka_unit_test(payload_where_none),
		cmocka_unit_test(no_payload_where_some),
		cmocka_unit_test(invalidate_refused),
		cmocka_unit_test(events_in_rtr),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
