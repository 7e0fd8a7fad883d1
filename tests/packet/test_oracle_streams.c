/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests the oracles beside their rules: the streams of a connection, the start of a new connection,
 * the counts and the limits.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "trace.h"

/*
 * Three connections between the same hosts: the oracle finds the requests of responses by their
 * PSNs.
 */
static void test_pairing(void **state)
{
	static const struct step steps[] = {SEND(0), SEND(1), SEND(2), ACK(1), ACK(2)};
	struct oracle_options oo = options(ANYWHERE);
	struct oracle *o = oracle_new(&oo);
	struct oracle_stream s;
	unsigned paired = 0;

	assert_non_null(o);
	for (size_t i = 0; i < 5; i++) {
		for (uint32_t k = 0; k < 3; k++)
			feed(o, i, &steps[i], 0x10 + k, 0x20 + k, 1000 * k);
	}
	assert_int_equal(oracle_totals(o)->violations, 0);
	assert_int_equal(oracle_totals(o)->unpaired, 0);
	assert_int_equal(oracle_totals(o)->c.requests, 9);
	assert_int_equal(oracle_totals(o)->c.acks, 6);
	for (uint32_t i = 0; oracle_stream_get(o, i, &s); i++) {
		if (!s.c.requests)
			continue;
		assert_true(s.paired);
		assert_int_equal(s.sqpn, s.dqpn - 0x10);
		assert_int_equal(s.c.acks, 2);
		paired++;
	}
	assert_int_equal(paired, 3);
	oracle_free(o);
}

/* The same PSNs on two connections are not judged until oracle_pair() tells them apart. */
static void test_ambiguous(void **state)
{
	static const struct step steps[] = {SEND(0), SEND(1), ACK(1), ACK(0)};

	for (int told = 0; told < 2; told++) {
		struct oracle_options oo = options(ANYWHERE);
		struct oracle *o = oracle_new(&oo);

		assert_non_null(o);
		if (told) {
			assert_int_equal(oracle_pair(o, &addr_a, 0x10, &addr_b, 0x20), 0);
			assert_int_equal(oracle_pair(o, &addr_b, 0x21, &addr_a, 0x11), 0);
			assert_int_equal(oracle_pair(o, &addr_a, 0x10, &addr_b, 0x20), 0);
			assert_int_equal(oracle_pair(o, &addr_a, 0x10, &addr_b, 0x21), -EEXIST);
		}
		for (size_t i = 0; i < 4; i++) {
			for (uint32_t k = 0; k < 2; k++)
				feed(o, i, &steps[i], 0x10 + k, 0x20 + k, 5);
		}
		assert_int_equal(oracle_totals(o)->unpaired, told ? 0 : 4);
		assert_int_equal(oracle_totals(o)->broken[ORACLE_ACK_BACK], told ? 2 : 0);
		oracle_free(o);
	}
}

/* QP numbers used again, with PSNs far off: a new connection, and judged as one. */
static void test_new_connection(void **state)
{
	static const struct step steps[] = {SEND(0), SEND(1), ACK(1)};
	struct oracle_options oo = options(AT_A);
	struct oracle *o = oracle_new(&oo);

	assert_non_null(o);
	for (uint32_t k = 0; k < 3; k++) {
		for (size_t i = 0; i < 3; i++)
			feed(o, i, &steps[i], 0xa, 0xb, 0x500000 * k);
	}
	assert_int_equal(oracle_totals(o)->violations, 0);
	assert_int_equal(oracle_totals(o)->connections_anew, 2);
	assert_int_equal(oracle_totals(o)->c.acks, 3);
	oracle_free(o);
}

/* A trace that starts in the middle, with an answer to a request before it. */
static void test_begins_late(void **state)
{
	static const struct step late[] = {SEND(5), ACK(3), ACK(4), SEND(6), ACK(6)};
	struct oracle_options oo = options(ANYWHERE);
	struct oracle *o = oracle_new(&oo);

	assert_non_null(o);
	for (size_t i = 0; i < 5; i++)
		feed(o, i, &late[i], 0xa, 0xb, 0);
	assert_int_equal(oracle_totals(o)->violations, 0);
	assert_int_equal(oracle_totals(o)->unpaired, 0);
	oracle_free(o);
}

/* Memory is bounded: beyond the limits packets are only counted. */
static void test_limits(void **state)
{
	static const struct step first = SEND(0),
				 reads[] = {READ(0, 256, 0), READ(1, 256, 0), READ(2, 256, 0),
					    RONLY(0, 256),   RONLY(1, 256),   RONLY(2, 256)};
	static const struct step bad[] = {SEND(0), ACK(0), ACK(5), ACK(6), ACK(7)};
	struct oracle_options oo = options(ANYWHERE);
	const struct oracle_finding *f;
	struct oracle *o;
	size_t n;

	oo.max_streams = 2;
	o = oracle_new(&oo);
	assert_non_null(o);
	for (uint32_t k = 0; k < 5; k++)
		feed(o, k, &first, 0xa, k, 0);
	assert_int_equal(oracle_totals(o)->streams, 2);
	assert_int_equal(oracle_totals(o)->unfollowed, 3);
	assert_int_equal(oracle_pair(o, &addr_a, 70, &addr_b, 71), -ENOSPC);
	oracle_free(o);

	oo = options(ANYWHERE);
	oo.max_reads = 1;
	o = oracle_new(&oo);
	assert_non_null(o);
	assert_int_equal(oracle_pair(o, &addr_a, 0xa, &addr_b, 0xb), 0);
	for (size_t i = 0; i < 6; i++)
		feed(o, i, &reads[i], 0xa, 0xb, 0);
	assert_int_equal(oracle_totals(o)->violations, 0);
	oracle_free(o);

	oo = options(ANYWHERE);
	oo.max_findings = 2;
	o = oracle_new(&oo);
	assert_non_null(o);
	for (size_t i = 0; i < 5; i++)
		feed(o, i, &bad[i], 0xa, 0xb, 0);
	f = oracle_findings(o, &n);
	assert_int_equal(n, 2);
	assert_int_equal(f[0].index, 2);
	assert_int_equal(f[0].time_ns, 2000);
	assert_int_equal(f[0].psn, 5);
	assert_int_equal(f[0].dqpn, 0xa);
	assert_true(pkt_addr_eq(&f[0].src, &addr_b));
	assert_int_equal(oracle_totals(o)->violations, 3);
	assert_int_equal(oracle_totals(o)->broken[ORACLE_ACK_UNSEEN], 3);
	oracle_free(o);

	oo.max_streams = 0;
	assert_null(oracle_new(&oo));
	oo = options(ANYWHERE);
	oo.disorder = true;
	assert_null(oracle_new(&oo));
	oracle_free(NULL);
}

static void test_other_services(void **state)
{
	static const struct step steps[] = {{PKT_UC + PKT_SEND_ONLY, 0, 64, 0, 0},
					    {PKT_UC + PKT_SEND_ONLY, 9, 64, 0, 0},
					    {PKT_UD + PKT_SEND_ONLY, 3, 64, 0, 0},
					    {PKT_CNP, 0, 1, 0, 0}};
	struct oracle_options oo = options(AT_A);
	struct oracle *o = oracle_new(&oo);

	assert_non_null(o);
	for (size_t i = 0; i < 4; i++)
		feed(o, i, &steps[i], 0xa, 0xb, 0);
	assert_int_equal(oracle_totals(o)->packets, 4);
	assert_int_equal(oracle_totals(o)->unreliable, 3);
	assert_int_equal(oracle_totals(o)->cnps, 1);
	assert_int_equal(oracle_totals(o)->streams, 0);
	assert_int_equal(oracle_totals(o)->violations, 0);
	oracle_free(o);
}

/* Counts as a requester's and a responder's counters would have them. */
static void test_counts(void **state)
{
	static const struct step steps[] = {
		SEND(0),  SEND(2), NAK(1), SEND(3), SEND(1),	 SEND(2),     SEND(3),
		ACK(3),	  ADD(4),  ADD(4), ADD(4),  VALUE(4, 1), VALUE(4, 1), READ(5, 512, 0),
		FIRST(5), SEND(7), RNR(7), SEND(7), ACK(7)};
	struct oracle_options oo = options(AT_B);
	struct oracle *o = oracle_new(&oo);
	const struct oracle_counts *c;

	assert_non_null(o);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		feed(o, i, &steps[i], 0xa, 0xb, 0xfffffe);
	assert_int_equal(oracle_totals(o)->violations, 0);
	c = &oracle_totals(o)->c;
	assert_int_equal(c->requests, 12);
	assert_int_equal(c->responses, 7);
	assert_int_equal(c->acks, 2);
	assert_int_equal(c->naks_seq, 1);
	assert_int_equal(c->naks_rnr, 1);
	assert_int_equal(c->gaps, 1);
	assert_int_equal(c->out_of_order, 2);
	assert_int_equal(c->turns, 4);
	assert_int_equal(c->retransmitted, 6);
	assert_int_equal(c->duplicates, 2);
	assert_int_equal(c->atomics, 3);
	assert_int_equal(c->atomics_again, 2);
	assert_int_equal(c->reads, 1);
	assert_int_equal(c->read_responses, 1);
	assert_int_equal(c->payload, 64 * 8 + 256);
	oracle_free(o);
}

static void test_names(void **state)
{
	for (int r = 0; r < ORACLE_RULES; r++) {
		assert_string_not_equal(oracle_rule_name((enum oracle_rule)r), "?");
		assert_string_not_equal(oracle_rule_text((enum oracle_rule)r), "?");
	}
	assert_string_equal(oracle_rule_name(ORACLE_RULES), "?");
	assert_string_equal(oracle_rule_text(ORACLE_RULES), "?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pairing),	       cmocka_unit_test(test_ambiguous),
		cmocka_unit_test(test_new_connection), cmocka_unit_test(test_begins_late),
		cmocka_unit_test(test_limits),	       cmocka_unit_test(test_other_services),
		cmocka_unit_test(test_counts),	       cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
