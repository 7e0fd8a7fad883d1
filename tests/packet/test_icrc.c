/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares the invariant CRC with a plain one (bit by bit, over the bytes that the specification
 * lists), for every length, both IP versions and any identification; and tests the search for an
 * unknown identification.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "packet/crc32.h"
#include "packet/headers.h"
#include "packet/icrc.h"

#define SEED 20240611

static uint32_t plain_crc(uint32_t crc, const uint8_t *p, size_t n)
{
	crc = ~crc;
	for (size_t i = 0; i < n; i++) {
		crc ^= p[i];
		for (int b = 0; b < 8; b++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

static bool no_df; /* its value for plain_icrc() */

static uint32_t plain_icrc(const struct icrc_flow *f, uint16_t id, const uint8_t *bth, size_t len)
{
	uint8_t h[8 + 40 + 8 + 12], *p = h + 8;

	memset(h, 0xff, 8);
	if (f->v4) {
		size_t total = 28 + len;
		const uint8_t ip[20] = {0x45,
					0xff,
					(uint8_t)(total >> 8),
					(uint8_t)total,
					(uint8_t)(id >> 8),
					(uint8_t)id,
					no_df ? 0 : 0x40,
					0x00,
					0xff,
					17,
					0xff,
					0xff};

		memcpy(p, ip, 20);
		memcpy(p + 12, f->src.b + 12, 4);
		memcpy(p + 16, f->dst.b + 12, 4);
		p += 20;
	} else {
		size_t payload = 8 + len;
		const uint8_t ip[8] = {
			0x6f, 0xff, 0xff, 0xff, (uint8_t)(payload >> 8), (uint8_t)payload,
			17,   0xff};

		memcpy(p, ip, 8);
		memcpy(p + 8, f->src.b, 16);
		memcpy(p + 24, f->dst.b, 16);
		p += 40;
	}
	*p++ = (uint8_t)(f->sport >> 8);
	*p++ = (uint8_t)f->sport;
	*p++ = (uint8_t)(f->dport >> 8);
	*p++ = (uint8_t)f->dport;
	*p++ = (uint8_t)((8 + len) >> 8);
	*p++ = (uint8_t)(8 + len);
	*p++ = 0xff;
	*p++ = 0xff;
	memcpy(p, bth, 12);
	p[4] = 0xff;
	return plain_crc(plain_crc(0, h, (size_t)(p + 12 - h)), bth + 12, len - 12 - 4);
}

static void flow(struct icrc_flow *f, const char *src, const char *dst, uint16_t sport)
{
	struct pkt_addr a, b;

	assert_int_equal(pkt_addr_parse(src, &a), 0);
	assert_int_equal(pkt_addr_parse(dst, &b), 0);
	icrc_flow_init(f, &a, &b, sport, PKT_UDP_PORT);
}

static void fill(struct rng *rng, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)rng_u64(rng);
}

static void test_every_length(void **state)
{
	static uint8_t buf[ICRC_MAX_LEN], copy[ICRC_MAX_LEN];
	struct icrc_flow four, six;
	struct rng rng;

	rng_seed(&rng, SEED);
	flow(&four, "10.77.0.1", "192.168.255.3", 0xd872);
	flow(&six, "fd77::1", "2001:db8::ffff", 0xc001);
	fill(&rng, buf, sizeof(buf));
	for (size_t len = 16; len <= ICRC_MAX_LEN; len += 4) {
		uint16_t id = (uint16_t)rng_u64(&rng);

		buf[4] = (uint8_t)len; /* the reserved byte counts as ones with any value */
		memcpy(copy, buf, sizeof(buf));
		assert_int_equal(icrc_compute(&four, id, buf, len),
				 plain_icrc(&four, id, buf, len));
		assert_int_equal(icrc_compute(&six, id, buf, len), plain_icrc(&six, 0, buf, len));
		/* The input is in two parts. */
		for (size_t n = 12; n <= 28 && n <= len - 4; n += 4)
			assert_int_equal(crc32_update(icrc_begin(&four, id, buf, n, len), buf + n,
						      len - 4 - n),
					 icrc_compute(&four, id, buf, len));
		assert_memory_equal(copy, buf, sizeof(buf));
	}
}

/*
 * Any length, alignment and previous state: the code for short and long runs, and the part of the
 * library.
 */
static void test_crc32(void **state)
{
	static uint8_t buf[ICRC_MAX_LEN + 64];
	struct rng rng;

	rng_seed(&rng, 5);
	fill(&rng, buf, sizeof(buf));
	for (size_t n = 0; n <= ICRC_MAX_LEN; n += n < 700 ? 1 : 61) {
		const uint8_t *p = buf + n % 37;
		uint32_t before = (uint32_t)rng_u64(&rng), crc = crc32_update(before, p, n);

		if (crc != plain_crc(before, p, n))
			fail_msg("%zu bytes, state 0x%08x: 0x%08x", n, before, crc);
	}
}

static void test_reserved_byte(void **state)
{
	struct icrc_flow f;
	uint8_t buf[64];
	struct rng rng;
	uint32_t icrc;

	rng_seed(&rng, SEED);
	flow(&f, "10.0.0.1", "10.0.0.2", 49152);
	fill(&rng, buf, sizeof(buf));
	icrc = icrc_compute(&f, 7, buf, sizeof(buf));
	for (int v = 0; v < 256; v++) {
		buf[4] = (uint8_t)v;
		assert_int_equal(icrc_compute(&f, 7, buf, sizeof(buf)), icrc);
	}
	/* Only this byte counts as ones. */
	for (size_t i = 0; i < sizeof(buf) - 4; i++) {
		buf[i] ^= 0x10;
		assert_int_equal(icrc_compute(&f, 7, buf, sizeof(buf)) == icrc, i == 4);
		buf[i] ^= 0x10;
	}
}

/* The ICRC covers addresses, ports and version. */
static void test_flows_differ(void **state)
{
	static const struct {
		const char *src, *dst;
		uint16_t sport;
	} rows[] = {
		{"10.0.0.1", "10.0.0.2", 1}, {"10.0.0.2", "10.0.0.1", 1},
		{"10.0.0.1", "10.0.0.2", 2}, {"10.0.0.1", "10.0.0.3", 1},
		{"fd77::1", "fd77::2", 1},   {"fd77::2", "fd77::1", 1},
	};
	uint8_t buf[64] = {0};
	uint32_t icrc[6];

	for (size_t i = 0; i < 6; i++) {
		struct icrc_flow f;

		flow(&f, rows[i].src, rows[i].dst, rows[i].sport);
		icrc[i] = icrc_compute(&f, 0, buf, sizeof(buf));
		assert_int_equal(icrc[i], plain_icrc(&f, 0, buf, sizeof(buf)));
		for (size_t k = 0; k < i; k++)
			assert_int_not_equal(icrc[i], icrc[k]);
	}
}

/* Verification with the header's value, a right and a wrong guess, for every identification. */
static void test_identification(void **state)
{
	static const size_t lengths[] = {16, 20, 60, 284, 1040, ICRC_MAX_LEN};
	static uint8_t buf[ICRC_MAX_LEN];
	struct icrc_flow f;
	struct rng rng;

	rng_seed(&rng, SEED);
	flow(&f, "10.77.0.2", "10.77.0.1", 0xe5a1);
	fill(&rng, buf, sizeof(buf));
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		size_t len = lengths[i];

		for (unsigned id = 0; id<65536; id += len> 1000 ? 251 : 1) {
			uint16_t known = (uint16_t)id, guess = (uint16_t)rng_u64(&rng),
				 wrong = (uint16_t)(id + 1);

			icrc_store(buf + len - 4, icrc_compute(&f, known, buf, len));
			assert_true(icrc_verify(&f, true, &known, buf, len));
			assert_true(icrc_verify(&f, false, &known, buf, len));
			assert_int_equal(known, id);
			assert_true(icrc_verify(&f, false, &guess, buf, len));
			assert_int_equal(guess, id);
			assert_false(icrc_verify(&f, true, &wrong, buf, len));
			assert_int_equal(wrong, (uint16_t)(id + 1));
		}
	}
}

/*
 * Packets with DF clear are accepted with any identification, and distinguished from packets with
 * DF set. No other value of those bytes is accepted.
 */
static void test_without_df(void **state)
{
	static const size_t lengths[] = {16, 20, 60, 284, 1040, ICRC_MAX_LEN};
	static uint8_t buf[ICRC_MAX_LEN];
	struct icrc_flow f;
	struct rng rng;

	rng_seed(&rng, SEED);
	flow(&f, "10.77.0.2", "10.77.0.1", 0xe5a1);
	fill(&rng, buf, sizeof(buf));
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		size_t len = lengths[i];
		uint32_t per_id = (len > 1000 ? 997 : 97);

		for (uint32_t id = 0; id < 65536; id += per_id) {
			uint16_t known = (uint16_t)id, guess = (uint16_t)rng_u64(&rng);
			uint32_t icrc;

			no_df = true;
			icrc = plain_icrc(&f, known, buf, len);
			no_df = false;
			icrc_store(buf + len - 4, icrc);
			assert_int_equal(icrc_verify(&f, false, &known, buf, len),
					 ICRC_RIGHT_NO_DF);
			assert_int_equal(known, id);
			assert_int_equal(icrc_verify(&f, false, &guess, buf, len),
					 ICRC_RIGHT_NO_DF);
			assert_int_equal(guess, id);
			assert_int_equal(icrc_verify(&f, true, &known, buf, len), ICRC_WRONG);
			icrc_store(buf + len - 4, plain_icrc(&f, known, buf, len));
			assert_int_equal(icrc_verify(&f, false, &guess, buf, len), ICRC_RIGHT);
		}
	}
}

/*
 * A wrong bit anywhere is detected if the identification is known. If it is unknown, no error of
 * one bit at these lengths equals a change of 16 bits in the identification; but one of 9,344
 * errors equals a change that clears DF too, and is accepted. Otherwise *ip_id is unchanged.
 */
static void test_corrupted(void **state)
{
	static const size_t lengths[] = {20, 96, 1052};
	static uint8_t buf[2048];
	unsigned without_df = 0;
	struct icrc_flow f;
	struct rng rng;

	rng_seed(&rng, SEED);
	flow(&f, "10.77.0.2", "10.77.0.1", 0xe5a1);
	fill(&rng, buf, sizeof(buf));
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		size_t len = lengths[i];

		icrc_store(buf + len - 4, icrc_compute(&f, 0x1234, buf, len));
		for (size_t bit = 0; bit < 8 * len; bit++) {
			uint16_t known = 0x1234, guess = 0x4321;
			bool harmless = bit / 8 == 4;
			enum icrc_result r;

			buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_int_equal(icrc_verify(&f, true, &known, buf, len), harmless);
			r = icrc_verify(&f, false, &guess, buf, len);
			assert_int_equal(r == ICRC_RIGHT, harmless);
			without_df += r == ICRC_RIGHT_NO_DF;
			if (r != ICRC_RIGHT_NO_DF)
				assert_int_equal(guess, harmless ? 0x1234 : 0x4321);
			buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
	}
	assert_int_equal(without_df, 1);
}

/*
 * Random bytes pass one time in 32,768 when the identification and DF are free, and not more often.
 */
static void test_rubbish(void **state)
{
	unsigned passed = 0, rounds = 1u << 20;
	struct icrc_flow f;
	uint8_t buf[32];
	struct rng rng;

	rng_seed(&rng, SEED);
	flow(&f, "10.77.0.2", "10.77.0.1", 0xe5a1);
	for (unsigned i = 0; i < rounds; i++) {
		uint16_t id = 0;

		fill(&rng, buf, sizeof(buf));
		passed += icrc_verify(&f, false, &id, buf, sizeof(buf));
	}
	/* 32 expected; the seed is fixed. */
	assert_in_range(passed, 16, 60);
}

/* IPv6 has no identification, so there is no search. */
static void test_six_is_exact(void **state)
{
	struct icrc_flow f;
	uint8_t buf[64] = {1, 2, 3};
	uint16_t id = 99;

	flow(&f, "fd77::1", "fd77::2", 5);
	icrc_store(buf + 60, icrc_compute(&f, 1, buf, 64));
	assert_true(icrc_verify(&f, false, &id, buf, 64));
	assert_true(icrc_verify(&f, true, &id, buf, 64));
	for (unsigned d = 1; d < 65536; d++) {
		icrc_store(buf + 60, icrc_compute(&f, 1, buf, 64) ^ d);
		assert_false(icrc_verify(&f, false, &id, buf, 64));
	}
	assert_int_equal(id, 99);
}

static void test_impossible_lengths(void **state)
{
	static const size_t lengths[] = {
		0,     1,	4, 12, 15, 17, 18, 19, 21, ICRC_MAX_LEN - 1, ICRC_MAX_LEN + 4,
		65508, SIZE_MAX};
	struct icrc_flow f;
	uint16_t id = 1;
	uint8_t b = 0;

	flow(&f, "10.0.0.1", "10.0.0.2", 5);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		assert_false(icrc_verify(&f, false, &id, &b, lengths[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_length),   cmocka_unit_test(test_crc32),
		cmocka_unit_test(test_reserved_byte),  cmocka_unit_test(test_flows_differ),
		cmocka_unit_test(test_identification), cmocka_unit_test(test_without_df),
		cmocka_unit_test(test_corrupted),      cmocka_unit_test(test_rubbish),
		cmocka_unit_test(test_six_is_exact),   cmocka_unit_test(test_impossible_lengths),
	};

	printf("seed %d\n", SEED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
