/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests the op-code table and the codec: a built packet parses to the same fields, and a malformed
 * packet is refused with its cause.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "packet/headers.h"
#include "packet/icrc.h"

/* Header lengths after the specification's table of op-codes; 0: no such op-code. */
static const struct {
	uint8_t opcode, hdr_len;
	unsigned flags;
	const char *name;
} ops[] = {
	{0x00, 12, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST, "RC_SEND_FIRST"},
	{0x01, 12, PKT_REQUEST | PKT_PAYLOAD, "RC_SEND_MIDDLE"},
	{0x02, 12, PKT_REQUEST | PKT_PAYLOAD | PKT_LAST, "RC_SEND_LAST"},
	{0x03, 16, PKT_REQUEST | PKT_PAYLOAD | PKT_LAST | PKT_IMM, "RC_SEND_LAST_IMM"},
	{0x04, 12, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_LAST, "RC_SEND_ONLY"},
	{0x05, 16, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_LAST | PKT_IMM, "RC_SEND_ONLY_IMM"},
	{0x06, 28, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_RETH, "RC_WRITE_FIRST"},
	{0x07, 12, PKT_REQUEST | PKT_PAYLOAD, "RC_WRITE_MIDDLE"},
	{0x08, 12, PKT_REQUEST | PKT_PAYLOAD | PKT_LAST, "RC_WRITE_LAST"},
	{0x09, 16, PKT_REQUEST | PKT_PAYLOAD | PKT_LAST | PKT_IMM, "RC_WRITE_LAST_IMM"},
	{0x0a, 28, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_LAST | PKT_RETH, "RC_WRITE_ONLY"},
	{0x0b, 32, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_LAST | PKT_RETH | PKT_IMM,
	 "RC_WRITE_ONLY_IMM"},
	{0x0c, 28, PKT_REQUEST | PKT_FIRST | PKT_LAST | PKT_RETH, "RC_READ_REQ"},
	{0x0d, 16, PKT_RESPONSE | PKT_PAYLOAD | PKT_FIRST | PKT_AETH, "RC_READ_RESP_FIRST"},
	{0x0e, 12, PKT_RESPONSE | PKT_PAYLOAD, "RC_READ_RESP_MIDDLE"},
	{0x0f, 16, PKT_RESPONSE | PKT_PAYLOAD | PKT_LAST | PKT_AETH, "RC_READ_RESP_LAST"},
	{0x10, 16, PKT_RESPONSE | PKT_PAYLOAD | PKT_FIRST | PKT_LAST | PKT_AETH,
	 "RC_READ_RESP_ONLY"},
	{0x11, 16, PKT_RESPONSE | PKT_FIRST | PKT_LAST | PKT_AETH, "RC_ACK"},
	{0x12, 24, PKT_RESPONSE | PKT_FIRST | PKT_LAST | PKT_AETH | PKT_ATOMIC_ACK_ETH,
	 "RC_ATOMIC_ACK"},
	{0x13, 40, PKT_REQUEST | PKT_FIRST | PKT_LAST | PKT_ATOMIC_ETH, "RC_CMP_SWAP"},
	{0x14, 40, PKT_REQUEST | PKT_FIRST | PKT_LAST | PKT_ATOMIC_ETH, "RC_FETCH_ADD"},
	{0x16, 16, PKT_REQUEST | PKT_PAYLOAD | PKT_LAST | PKT_IETH, "RC_SEND_LAST_INV"},
	{0x17, 16, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_LAST | PKT_IETH, "RC_SEND_ONLY_INV"},
	{0x18, 28, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_LAST | PKT_RETH | PKT_NEEDS_RPC,
	 "RC_RPC_PARAMS"},
	{0x19, 28, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_RETH | PKT_NEEDS_RPC,
	 "RC_RPC_WRITE_FIRST"},
	{0x1a, 12, PKT_REQUEST | PKT_PAYLOAD | PKT_NEEDS_RPC, "RC_RPC_WRITE_MIDDLE"},
	{0x1b, 12, PKT_REQUEST | PKT_PAYLOAD | PKT_LAST | PKT_NEEDS_RPC, "RC_RPC_WRITE_LAST"},
	{0x1c, 28, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_LAST | PKT_RETH | PKT_NEEDS_RPC,
	 "RC_RPC_WRITE_ONLY"},
	{0x1e, 40, PKT_REQUEST | PKT_FIRST | PKT_LAST | PKT_ATOMIC_ETH | PKT_NEEDS_CALC, "RC_CALC"},
	{0x20, 12, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST, "UC_SEND_FIRST"},
	{0x21, 12, PKT_REQUEST | PKT_PAYLOAD, "UC_SEND_MIDDLE"},
	{0x22, 12, PKT_REQUEST | PKT_PAYLOAD | PKT_LAST, "UC_SEND_LAST"},
	{0x23, 16, PKT_REQUEST | PKT_PAYLOAD | PKT_LAST | PKT_IMM, "UC_SEND_LAST_IMM"},
	{0x24, 12, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_LAST, "UC_SEND_ONLY"},
	{0x25, 16, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_LAST | PKT_IMM, "UC_SEND_ONLY_IMM"},
	{0x26, 28, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_RETH, "UC_WRITE_FIRST"},
	{0x27, 12, PKT_REQUEST | PKT_PAYLOAD, "UC_WRITE_MIDDLE"},
	{0x28, 12, PKT_REQUEST | PKT_PAYLOAD | PKT_LAST, "UC_WRITE_LAST"},
	{0x29, 16, PKT_REQUEST | PKT_PAYLOAD | PKT_LAST | PKT_IMM, "UC_WRITE_LAST_IMM"},
	{0x2a, 28, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_LAST | PKT_RETH, "UC_WRITE_ONLY"},
	{0x2b, 32, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_LAST | PKT_RETH | PKT_IMM,
	 "UC_WRITE_ONLY_IMM"},
	{0x64, 20, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_LAST | PKT_DETH, "UD_SEND_ONLY"},
	{0x65, 24, PKT_REQUEST | PKT_PAYLOAD | PKT_FIRST | PKT_LAST | PKT_DETH | PKT_IMM,
	 "UD_SEND_ONLY_IMM"},
	{0x81, 28, PKT_FIRST | PKT_LAST | PKT_CNP_PAD, "CNP"},
};

#define NUM_OPS (sizeof(ops) / sizeof(ops[0]))

static void test_table(void **state)
{
	unsigned known = 0;

	for (size_t i = 0; i < NUM_OPS; i++) {
		const struct pkt_op *op = &pkt_ops[ops[i].opcode];

		assert_non_null(op->name);
		assert_string_equal(op->name, ops[i].name);
		assert_int_equal(op->hdr_len, ops[i].hdr_len);
		assert_int_equal(op->flags, ops[i].flags);
		assert_int_equal(op->service,
				 op->kind == PKT_KIND_CNP ? PKT_CNP_SERVICE : ops[i].opcode & 0xe0);
	}
	for (int i = 0; i < 256; i++) {
		known += pkt_ops[i].kind != PKT_KIND_NONE;
		assert_int_equal(pkt_ops[i].name != NULL, pkt_ops[i].kind != PKT_KIND_NONE);
	}
	assert_int_equal(known, NUM_OPS);
}

/*
 * Builds a packet of the op-code, with payload of n bytes and its pad. Returns the length of BTH ..
 * ICRC.
 */
static size_t build(uint8_t *bth, uint8_t opcode, size_t n, unsigned bth_flags, uint32_t qpn,
		    uint32_t psn, bool ackreq)
{
	unsigned flags = pkt_ops[opcode].flags, pad = (4 - n % 4) % 4;
	uint8_t *p = pkt_put_bth(bth, opcode, (uint8_t)(bth_flags | pad << PKT_BTH_PAD_SHIFT), qpn,
				 ackreq, psn);

	if (flags & PKT_DETH)
		p = pkt_put_deth(p, 0x80010000, 0x00abcdef);
	if (flags & PKT_RETH)
		p = pkt_put_reth(p, 0x0102030405060708, 0x11223344, 0x7fffffff);
	if (flags & PKT_ATOMIC_ETH)
		p = pkt_put_atomic(p, 0x0102030405060708, 0x11223344, 0xa1a2a3a4a5a6a7a8,
				   0xb1b2b3b4b5b6b7b8);
	if (flags & PKT_AETH)
		p = pkt_put_aeth(p, 0x34, 0xfedcba);
	if (flags & PKT_ATOMIC_ACK_ETH)
		p = pkt_put_be64(p, 0xc1c2c3c4c5c6c7c8);
	if (flags & PKT_IMM)
		p = pkt_put_imm(p, htobe32(0xdeadbeef));
	if (flags & PKT_IETH)
		p = pkt_put_ieth(p, 0x55667788);
	if (flags & PKT_CNP_PAD) {
		memset(p, 0, 16);
		p += 16;
	}
	memset(p, 0x5a, n + pad + PKT_ICRC_LEN);
	return (size_t)(p - bth) + n + pad + PKT_ICRC_LEN;
}

static void test_round_trip(void **state)
{
	static const size_t lengths[] = {0, 1, 2, 3, 4, 255, 256, 1023, 4096};
	uint8_t buf[PKT_MAX_LEN];

	for (size_t i = 0; i < NUM_OPS; i++) {
		for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
			unsigned flags = ops[i].flags;
			size_t n = flags & PKT_PAYLOAD ? lengths[k] : 0, len;
			struct pkt_view v;

			len = build(buf, ops[i].opcode, n, k & 1 ? PKT_BTH_SE | PKT_BTH_MIGREQ : 0,
				    0x00fedcba, 0xffffff, k & 1);
			assert_int_equal(pkt_parse(buf, len, &v), PKT_OK);
			assert_ptr_equal(v.op, &pkt_ops[ops[i].opcode]);
			assert_int_equal(v.opcode, ops[i].opcode);
			assert_int_equal(v.dqpn, 0xfedcba);
			assert_int_equal(v.psn, 0xffffff);
			assert_int_equal(v.ackreq, k & 1);
			assert_int_equal(v.solicited, k & 1);
			assert_int_equal(v.pkey, 0xffff);
			assert_int_equal(v.bth_ecn, 0);
			assert_int_equal(v.payload_len, n);
			assert_int_equal(v.pad, (4 - n % 4) % 4);
			if (n)
				assert_ptr_equal(v.payload, buf + ops[i].hdr_len);
			if (flags & PKT_DETH) {
				assert_int_equal(v.qkey, 0x80010000);
				assert_int_equal(v.sqpn, 0xabcdef);
			}
			if (flags & (PKT_RETH | PKT_ATOMIC_ETH)) {
				assert_int_equal(v.va, 0x0102030405060708);
				assert_int_equal(v.rkey, 0x11223344);
			}
			if (flags & PKT_RETH)
				assert_int_equal(v.dmalen, 0x7fffffff);
			if (flags & PKT_ATOMIC_ETH) {
				assert_int_equal(v.swap_add, 0xa1a2a3a4a5a6a7a8);
				assert_int_equal(v.compare, 0xb1b2b3b4b5b6b7b8);
			}
			if (flags & PKT_AETH) {
				assert_int_equal(v.syndrome, 0x34);
				assert_int_equal(v.msn, 0xfedcba);
			}
			if (flags & PKT_ATOMIC_ACK_ETH)
				assert_int_equal(v.swap_add, 0xc1c2c3c4c5c6c7c8);
			if (flags & PKT_IMM)
				assert_int_equal(v.imm, htobe32(0xdeadbeef));
			if (flags & PKT_IETH)
				assert_int_equal(v.inv_rkey, 0x55667788);
		}
	}
}

/* A packet that is cut off anywhere is refused, and (under ASan) not read beyond its end. */
static void test_truncated(void **state)
{
	uint8_t buf[PKT_MAX_LEN];

	for (size_t i = 0; i < NUM_OPS; i++) {
		size_t len = build(buf, ops[i].opcode, 0, 0, 1, 2, false);

		for (size_t cut = 0; cut < len; cut++) {
			uint8_t *exact = malloc(cut ? cut : 1);
			struct pkt_view v;

			assert_non_null(exact);
			memcpy(exact, buf, cut);
			assert_int_equal(pkt_parse(exact, cut, &v), PKT_ERR_SHORT);
			free(exact);
		}
	}
}

static void test_refused(void **state)
{
	static const struct {
		const char *what;
		uint8_t opcode;
		size_t payload; /* as built, pad included */
		size_t at;	/* byte to overwrite */
		uint8_t value;
		int more; /* bytes to add to the length */
		enum pkt_error err;
	} rows[] = {
		{"right", PKT_SEND_ONLY, 8, 2, 0xff, 0, PKT_OK},
		{"P_Key is the caller's matter", PKT_SEND_ONLY, 8, 2, 0x12, 0, PKT_OK},
		{"reserved op-code", PKT_SEND_ONLY, 8, 0, 0x15, 0, PKT_ERR_OPCODE},
		{"reserved op-code", PKT_SEND_ONLY, 8, 0, 0x1d, 0, PKT_ERR_OPCODE},
		{"UC has no READ", PKT_SEND_ONLY, 8, 0, 0x2c, 0, PKT_ERR_OPCODE},
		{"RD is not spoken", PKT_SEND_ONLY, 8, 0, 0x44, 0, PKT_ERR_OPCODE},
		{"UD has no WRITE", PKT_SEND_ONLY, 8, 0, 0x6a, 0, PKT_ERR_OPCODE},
		{"not the CNP", PKT_SEND_ONLY, 8, 0, 0x80, 0, PKT_ERR_OPCODE},
		{"XRC", PKT_SEND_ONLY, 8, 0, 0xa4, 0, PKT_ERR_OPCODE},
		{"version 1", PKT_SEND_ONLY, 8, 1, 0x01, 0, PKT_ERR_VERSION},
		{"version 8", PKT_SEND_ONLY, 8, 1, 0x08, 0, PKT_ERR_VERSION},
		{"pad of 3 in 4 bytes", PKT_SEND_ONLY, 4, 1, 0x30, 0, PKT_OK},
		{"pad of 1 in nothing", PKT_SEND_ONLY, 0, 1, 0x10, 0, PKT_ERR_PAD},
		{"pad of 3 in nothing", PKT_WRITE_LAST, 0, 1, 0x30, 0, PKT_ERR_PAD},
		{"no whole words", PKT_SEND_ONLY, 8, 2, 0xff, 1, PKT_ERR_PAD},
		{"no whole words", PKT_SEND_ONLY, 8, 2, 0xff, -1, PKT_ERR_PAD},
		{"no whole words", PKT_SEND_ONLY, 8, 2, 0xff, 2, PKT_ERR_PAD},
		{"longest payload", PKT_WRITE_ONLY_IMM, 4096, 2, 0xff, 0, PKT_OK},
		{"payload over 4096", PKT_WRITE_ONLY_IMM, 4096, 2, 0xff, 4, PKT_ERR_PAD},
		{"payload over 4096", PKT_SEND_MIDDLE, 4096, 2, 0xff, 4, PKT_ERR_PAD},
		/* the responder refuses these */
		{"READ request with payload", PKT_READ_REQUEST, 0, 2, 0xff, 4, PKT_OK},
		{"ACK with payload", PKT_ACK, 0, 2, 0xff, 4, PKT_ERR_PAD},
		{"ACK with pad", PKT_ACK, 0, 1, 0x10, 0, PKT_ERR_PAD},
		{"atomic with payload", PKT_CMP_SWAP, 0, 2, 0xff, 8, PKT_OK},
		{"CNP with payload", PKT_CNP, 0, 2, 0xff, 4, PKT_ERR_PAD},
	};
	uint8_t buf[PKT_MAX_LEN + 8];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t len = build(buf, rows[i].opcode, rows[i].payload, 0, 1, 2, false);
		struct pkt_view v;
		enum pkt_error err;

		buf[rows[i].at] = rows[i].value;
		err = pkt_parse(buf, (size_t)((long)len + rows[i].more), &v);
		if (err != rows[i].err)
			fail_msg("%s (op-code 0x%02x): %s, should be: %s", rows[i].what,
				 rows[i].opcode, pkt_error_str(err), pkt_error_str(rows[i].err));
	}
}

static void test_fields(void **state)
{
	uint8_t buf[64];
	struct pkt_view v;
	size_t len = build(buf, PKT_SEND_ONLY, 0, 0, 0xffffffff, 0xff000001, true);

	/* The builder uses 24 bits of a number; the bits above are other fields. */
	assert_int_equal(buf[4], 0);
	assert_int_equal(buf[8], 0x80);
	buf[2] = 0x12;
	buf[3] = 0x34;
	buf[4] = 0xff;
	buf[8] |= 0x7f;
	assert_int_equal(pkt_parse(buf, len, &v), PKT_OK);
	assert_int_equal(v.pkey, 0x1234);
	assert_int_equal(v.bth_ecn, PKT_BTH_FECN | PKT_BTH_BECN);
	assert_int_equal(v.dqpn, 0xffffff);
	assert_int_equal(v.psn, 1);
	assert_true(v.ackreq);
}

static void test_print(void **state)
{
	static const struct {
		uint8_t opcode;
		size_t payload;
		unsigned bth_flags;
		int syndrome; /* -1: leave it */
		const char *text;
	} rows[] = {
		{PKT_SEND_ONLY, 5, PKT_BTH_SE, -1,
		 "RC_SEND_ONLY qp 0x000011 psn 77 ackreq se payload 5 pad 3"},
		{PKT_WRITE_FIRST, 256, 0, -1,
		 "RC_WRITE_FIRST qp 0x000011 psn 77 ackreq va 0x102030405060708 "
		 "rkey 0x11223344 len 2147483647 "
		 "payload 256"},
		{PKT_READ_REQUEST, 0, 0, -1,
		 "RC_READ_REQ qp 0x000011 psn 77 ackreq va 0x102030405060708 rkey 0x11223344 len 2147483647"},
		{PKT_CMP_SWAP, 0, 0, -1,
		 "RC_CMP_SWAP qp 0x000011 psn 77 ackreq va 0x102030405060708 rkey 0x11223344 "
		 "compare 0xb1b2b3b4b5b6b7b8 "
		 "swap 0xa1a2a3a4a5a6a7a8"},
		{PKT_FETCH_ADD, 0, 0, -1,
		 "RC_FETCH_ADD qp 0x000011 psn 77 ackreq va 0x102030405060708 rkey 0x11223344 "
		 "add 0xa1a2a3a4a5a6a7a8"},
		{PKT_CALC, 0, 0, -1,
		 "RC_CALC qp 0x000011 psn 77 ackreq va 0x102030405060708 rkey 0x11223344 "
		 "function 12804494279291877304 operand 0xa1a2a3a4a5a6a7a8"},
		{PKT_ATOMIC_ACK, 0, 0, 0x1f,
		 "RC_ATOMIC_ACK qp 0x000011 psn 77 ackreq msn 16702650 original 0xc1c2c3c4c5c6c7c8"},
		{PKT_ACK, 0, 0, 0x1f, "RC_ACK qp 0x000011 psn 77 ackreq msn 16702650"},
		{PKT_ACK, 0, 0, 0x05, "RC_ACK qp 0x000011 psn 77 ackreq credits 5 msn 16702650"},
		{PKT_ACK, 0, 0, 0x34,
		 "RC_ACK qp 0x000011 psn 77 ackreq rnr_nak timer 20 msn 16702650"},
		{PKT_ACK, 0, 0, 0x60, "RC_ACK qp 0x000011 psn 77 ackreq nak psn_seq msn 16702650"},
		{PKT_ACK, 0, 0, 0x61,
		 "RC_ACK qp 0x000011 psn 77 ackreq nak invalid_req msn 16702650"},
		{PKT_ACK, 0, 0, 0x62,
		 "RC_ACK qp 0x000011 psn 77 ackreq nak remote_access msn 16702650"},
		{PKT_ACK, 0, 0, 0x63,
		 "RC_ACK qp 0x000011 psn 77 ackreq nak remote_op msn 16702650"},
		{PKT_ACK, 0, 0, 0x7f, "RC_ACK qp 0x000011 psn 77 ackreq nak 0x7f msn 16702650"},
		{PKT_ACK, 0, 0, 0x40,
		 "RC_ACK qp 0x000011 psn 77 ackreq syndrome 0x40 msn 16702650"},
		{PKT_SEND_ONLY_IMM, 4, 0, -1,
		 "RC_SEND_ONLY_IMM qp 0x000011 psn 77 ackreq imm 0xdeadbeef payload 4"},
		{PKT_SEND_ONLY_INV, 4, 0, -1,
		 "RC_SEND_ONLY_INV qp 0x000011 psn 77 ackreq invalidate 0x55667788 payload 4"},
		{PKT_UD + PKT_SEND_ONLY, 4, 0, -1,
		 "UD_SEND_ONLY qp 0x000011 psn 77 ackreq from 0xabcdef qkey 0x80010000 payload 4"},
		{PKT_CNP, 0, 0, -1, "CNP qp 0x000011 psn 77 ackreq"},
	};
	uint8_t buf[PKT_MAX_LEN];
	char text[256];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t len = build(buf, rows[i].opcode, rows[i].payload, rows[i].bth_flags, 0x11,
				   77, true);
		struct pkt_view v;

		if (rows[i].syndrome >= 0)
			buf[12] = (uint8_t)rows[i].syndrome;
		assert_int_equal(pkt_parse(buf, len, &v), PKT_OK);
		assert_int_equal(pkt_print(&v, text, sizeof(text)), strlen(rows[i].text));
		assert_string_equal(text, rows[i].text);
		/* A buffer that is too small gets the part that fits. */
		for (size_t n = 1; n < sizeof(text); n += 13) {
			char *small = malloc(n);
			size_t fits = strlen(rows[i].text) < n ? strlen(rows[i].text) : n - 1;

			assert_non_null(small);
			assert_int_equal(pkt_print(&v, small, n), fits);
			assert_int_equal(strlen(small), fits);
			assert_memory_equal(small, rows[i].text, fits);
			free(small);
		}
		assert_int_equal(pkt_print(&v, NULL, 0), 0);
	}
}

static void test_errors_have_text(void **state)
{
	for (int e = 0; e < PKT_ERR_COUNT; e++) {
		assert_non_null(pkt_error_str((enum pkt_error)e));
		for (int other = 0; other < e; other++)
			assert_string_not_equal(pkt_error_str((enum pkt_error)e),
						pkt_error_str((enum pkt_error)other));
	}
	assert_string_equal(pkt_error_str(PKT_ERR_COUNT), "unknown error");
}

static void test_addresses(void **state)
{
	static const struct {
		const char *in, *out; /* out NULL: refused */
		bool v4;
	} rows[] = {
		{"10.77.0.1", "10.77.0.1", true},
		{"255.255.255.255", "255.255.255.255", true},
		{"::ffff:10.77.0.1", "10.77.0.1", true},
		{"fd77::1", "fd77::1", false},
		{"::1", "::1", false},
		{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		 "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false},
		{"10.77.0", NULL, false},
		{"10.77.0.256", NULL, false},
		{"", NULL, false},
		{"host", NULL, false},
		{"fd77::1%lo", NULL, false},
	};
	struct pkt_addr a, b;
	char buf[46];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(pkt_addr_parse(rows[i].in, &a) == 0, rows[i].out != NULL);
		if (!rows[i].out)
			continue;
		assert_string_equal(pkt_addr_print(&a, buf, sizeof(buf)), rows[i].out);
		assert_int_equal(pkt_addr_is_v4(&a), rows[i].v4);
		assert_int_equal(pkt_addr_parse(buf, &b), 0);
		assert_true(pkt_addr_eq(&a, &b));
		b.b[15] ^= 1;
		assert_false(pkt_addr_eq(&a, &b));
	}
	assert_string_equal(pkt_addr_print(&a, buf, 3), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_print),
		cmocka_unit_test(test_errors_have_text),
		cmocka_unit_test(test_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
