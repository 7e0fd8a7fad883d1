/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests the oracles on traces that were made by hand: right ones, and for each rule traces that
 * break it. Each trace runs with the PSNs that it names, and across the wrap at 2^24.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "trace.h"

/* Most traces can be taken anywhere, and have no `skip`. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

struct trace {
	const char *what;
	struct step steps[MAX_STEPS]; /* ends with one whose `a` is 0 and op 0 */
	enum oracle_rule rule;	      /* ORACLE_RULES: none is broken */
	int points;		      /* where it is broken; elsewhere it must not be */
	int at;			      /* the step at which it is */
	int skip; /* points where such a trace can't be taken, or breaks more than one rule */
};

static bool is_end(const struct step *s)
{
	return s->op == 0 && s->a == 0;
}

static void run(const struct trace *t, enum capture_point point, uint32_t base,
		const struct oracle_options *oo)
{
	struct oracle *o = oracle_new(oo);
	enum oracle_rule want = t->points & (int)point ? t->rule : ORACLE_RULES;
	const struct oracle_finding *f;
	size_t n;

	assert_non_null(o);
	assert_int_equal(oracle_pair(o, &addr_a, 0xa, &addr_b, 0xb), 0);
	for (int i = 0; i < MAX_STEPS && !is_end(&t->steps[i]); i++)
		feed(o, (uint64_t)i, &t->steps[i], 0xa, 0xb, base);
	f = oracle_findings(o, &n);
	if (want == ORACLE_RULES && n)
		fail_msg("%s, point %d, first PSN 0x%06x: step %d: %s: %s", t->what, point, base,
			 (int)f->index, oracle_rule_name(f->rule), f->text);
	if (want != ORACLE_RULES && n != 1)
		fail_msg("%s, point %d, first PSN 0x%06x: %zu findings, not one", t->what, point,
			 base, n);
	if (want != ORACLE_RULES && (f->rule != want || (int)f->index != t->at))
		fail_msg("%s, point %d, first PSN 0x%06x: step %d: %s: %s; should be %s at step %d",
			 t->what, point, base, (int)f->index, oracle_rule_name(f->rule), f->text,
			 oracle_rule_name(want), t->at);
	assert_int_equal(oracle_totals(o)->unpaired, 0);
	oracle_free(o);
}

static void run_all(const struct trace *t, size_t n)
{
	static const uint32_t bases[] = {0,	   0x123456, 0xffffff, 0xfffffe,
					 0xfffffd, 0xfffffb, 0x7fffff};

	for (size_t i = 0; i < n; i++) {
		for (enum capture_point p = ANYWHERE; p <= AT_B; p = (enum capture_point)(p * 2)) {
			struct oracle_options oo = options(p);

			if (t[i].skip & (int)p)
				continue;
			for (size_t b = 0; b < sizeof(bases) / sizeof(bases[0]); b++)
				run(&t[i], p, bases[b], &oo);
		}
	}
}

#define RUN(traces) run_all(traces, sizeof(traces) / sizeof((traces)[0]))

static void test_right(void **state)
{
	static const struct trace traces[] = {
		{"one by one",
		 {SEND(0), ACK(0), SEND(1), ACK(1), SEND(2), ACK(2), END},
		 ORACLE_RULES,
		 0,
		 0},
		{"coalesced",
		 {SEND(0), SEND(1), SEND(2), ACK(2), SEND(3), ACK(3), ACK(3), END},
		 ORACLE_RULES,
		 0,
		 0},
		{"READ",
		 {READ(0, 700, 0), SEND(3), FIRST(0), MIDDLE(1), LAST(2, 188), ACK(3), END},
		 ORACLE_RULES,
		 0,
		 0},
		{"READ of nothing",
		 {READ(0, 0, 0), RONLY(0, 0), SEND(1), ACK(1), END},
		 ORACLE_RULES,
		 0,
		 0},
		{"READs in a row",
		 {READ(0, 512, 0), READ(2, 513, 512), FIRST(0), LAST(1, 256), FIRST(2), MIDDLE(3),
		  LAST(4, 1), END},
		 ORACLE_RULES,
		 0,
		 0},
		{"atomics",
		 {ADD(0), ADD(1), VALUE(0, 5), VALUE(1, 6), SEND(2), ACK(2), END},
		 ORACLE_RULES,
		 0,
		 0},
		{"RNR, then ready",
		 {SEND(0), SEND(1), RNR(0), SEND(0), SEND(1), ACK(0), ACK(1), END},
		 ORACLE_RULES,
		 0,
		 0},
		{"RNR twice",
		 {SEND(0), RNR(0), SEND(0), RNR(0), SEND(0), ACK(0), END},
		 ORACLE_RULES,
		 0,
		 0},
		{"RNR, and a sequence NAK for those behind",
		 {SEND(0), SEND(1), RNR(0), NAK(0), SEND(0), SEND(1), RNR(0), NAK(0), SEND(0),
		  SEND(1), ACK(1), END},
		 ORACLE_RULES,
		 0,
		 0},
		/*
		 * The first sequence NAK arrives when 0 has been sent again: not so at B, where it
		 * left.
		 */
		{"RNR, and late sequence NAKs",
		 {SEND(0), SEND(1), RNR(0), SEND(0), SEND(1), NAK(0), RNR(0), NAK(0), SEND(0),
		  SEND(1), ACK(1), END},
		 ORACLE_RULES,
		 0,
		 0,
		 AT_B},
		/*
		 * 0 was refused, and so were the others. But when 0 came again, a gap was the cause
		 * of the NAK.
		 */
		{"refused, then a sequence NAK",
		 {SEND(0), SEND(1), SEND(2), SEND(0), SEND(2), NAK(1), SEND(1), SEND(2), ACK(2),
		  END},
		 ORACLE_RULES,
		 0,
		 0,
		 AT_A},
		{"refused", {SEND(0), SEND(1), ACK(0), DENY(1), END}, ORACLE_RULES, 0, 0},
		{"time-out, and the ACK was only late",
		 {SEND(0), SEND(1), SEND(0), ACK(1), SEND(1), ACK(1), ACK(1), SEND(2), ACK(2), END},
		 ORACLE_RULES,
		 0,
		 0},
		{"READ again from the middle",
		 {READ(0, 700, 0), FIRST(0), READ(1, 444, 256), FIRST(1), LAST(2, 188), END},
		 ORACLE_RULES,
		 0,
		 0},
		{"atomic again",
		 {ADD(0), ADD(0), VALUE(0, 5), VALUE(0, 5), END},
		 ORACLE_RULES,
		 0,
		 0},
	};

	RUN(traces);
}

/* Right at one point, where the trace shows the loss. */
static void test_right_with_loss(void **state)
{
	static const struct trace traces[] = {
		/* 1 is lost before B; B names it; packets in flight pass; A goes back. */
		{"gap at B",
		 {SEND(0), SEND(2), NAK(1), SEND(3), SEND(1), SEND(2), SEND(3), ACK(3), END},
		 ORACLE_REQ_PSN,
		 AT_A,
		 1},
		{"gap seen from A",
		 {SEND(0), SEND(1), SEND(2), NAK(1), SEND(3), SEND(1), SEND(2), SEND(3), ACK(3),
		  END},
		 ORACLE_NAK_PSN,
		 AT_B,
		 3},
		{"the first is lost at B",
		 {SEND(1), NAK(0), SEND(2), SEND(0), SEND(1), SEND(2), ACK(2), END},
		 ORACLE_RULES,
		 0,
		 0,
		 AT_A},
		{"the first, a READ, is lost at B",
		 {ADD(1), NAK(0), READ(0, 64, 0), ADD(1), RONLY(0, 64), VALUE(1, 3), ADD(1),
		  VALUE(1, 3), END},
		 ORACLE_RULES,
		 0,
		 0,
		 AT_A},
		{"the turn is lost as well",
		 {SEND(0), SEND(2), NAK(1), SEND(2), SEND(1), SEND(2), ACK(2), END},
		 ORACLE_RULES,
		 0,
		 0,
		 AT_A},
		{"READ responses lost on the way here",
		 {READ(0, 1024, 0), FIRST(0), LAST(3, 256), READ(1, 768, 256), MIDDLE(2),
		  LAST(3, 256), END},
		 ORACLE_RULES,
		 0,
		 0,
		 AT_B},
		{"ACK beyond an unanswered READ: it is asked for again",
		 {READ(0, 256, 0), SEND(1), ACK(1), READ(0, 256, 0), RONLY(0, 256), SEND(1), ACK(1),
		  END},
		 ORACLE_RULES,
		 0,
		 0},
		{"NAK beyond an unanswered READ",
		 {READ(0, 512, 0), SEND(2), SEND(3), SEND(4), FIRST(0), NAK(3), READ(1, 256, 256),
		  SEND(2), SEND(3), RONLY(1, 256), ACK(3), END},
		 ORACLE_NAK_PSN,
		 AT_B,
		 5},
	};

	RUN(traces);
}

static void test_ack_back(void **state)
{
	static const struct trace traces[] = {
		{"ACK",
		 {SEND(0), SEND(1), SEND(2), ACK(2), ACK(1), END},
		 ORACLE_ACK_BACK,
		 EVERYWHERE,
		 4},
		{"behind a READ",
		 {READ(0, 512, 0), FIRST(0), LAST(1, 256), ACK(0), END},
		 ORACLE_ACK_BACK,
		 EVERYWHERE,
		 3},
		{"behind an atomic",
		 {SEND(0), ADD(1), VALUE(1, 5), ACK(0), END},
		 ORACLE_ACK_BACK,
		 EVERYWHERE,
		 3},
		{"RNR NAK",
		 {SEND(0), SEND(1), ACK(1), RNR(1), END},
		 ORACLE_ACK_BACK,
		 EVERYWHERE,
		 3},
		{"refusal",
		 {SEND(0), SEND(1), ACK(1), DENY(0), END},
		 ORACLE_ACK_BACK,
		 EVERYWHERE,
		 3},
	};

	RUN(traces);
}

static void test_ack_unseen(void **state)
{
	static const struct trace traces[] = {
		{"ACK", {SEND(0), ACK(1), END}, ORACLE_ACK_UNSEEN, EVERYWHERE, 1},
		{"beyond a gap",
		 {SEND(0), SEND(2), SEND(3), ACK(3), END},
		 ORACLE_ACK_UNSEEN,
		 ANYWHERE | AT_B,
		 3,
		 AT_A},
		{"RNR NAK", {SEND(0), RNR(1), END}, ORACLE_ACK_UNSEEN, EVERYWHERE, 1},
		{"refusal", {SEND(0), ACK(0), DENY(1), END}, ORACLE_ACK_UNSEEN, EVERYWHERE, 2},
	};

	RUN(traces);
}

static void test_nak_psn(void **state)
{
	static const struct trace traces[] = {
		{"was acknowledged",
		 {SEND(0), SEND(1), SEND(2), ACK(1), NAK(1), END},
		 ORACLE_NAK_PSN,
		 EVERYWHERE,
		 4},
		{"nothing behind it",
		 {SEND(0), SEND(1), NAK(2), END},
		 ORACLE_NAK_PSN,
		 EVERYWHERE,
		 2},
		{"beyond what was sent",
		 {SEND(0), SEND(1), NAK(5), END},
		 ORACLE_NAK_PSN,
		 EVERYWHERE,
		 2},
		/* These start with a gap, which at A is a fault itself. */
		{"the second missing",
		 {SEND(0), SEND(2), SEND(4), NAK(3), END},
		 ORACLE_NAK_PSN,
		 ANYWHERE | AT_B,
		 3,
		 AT_A},
		{"the one that came",
		 {SEND(0), SEND(2), NAK(2), END},
		 ORACLE_NAK_PSN,
		 ANYWHERE | AT_B,
		 2,
		 AT_A},
		{"one before",
		 {SEND(0), SEND(1), SEND(3), NAK(1), END},
		 ORACLE_NAK_PSN,
		 AT_B,
		 3,
		 AT_A},
	};

	RUN(traces);
}

static void test_nak_twice(void **state)
{
	/* At B a NAK needs a gap to be seen; at A a gap can't be. */
	static const struct trace traces[] = {
		{"at once",
		 {SEND(0), SEND(1), SEND(2), NAK(1), NAK(1), END},
		 ORACLE_NAK_TWICE,
		 ANYWHERE | AT_A,
		 4,
		 AT_B},
		{"after another packet",
		 {SEND(0), SEND(1), SEND(2), NAK(1), SEND(3), NAK(1), END},
		 ORACLE_NAK_TWICE,
		 ANYWHERE | AT_A,
		 5,
		 AT_B},
		{"after it was sent again: a new gap",
		 {SEND(0), SEND(1), SEND(2), NAK(1), SEND(1), SEND(2), NAK(1), SEND(1), ACK(1),
		  END},
		 ORACLE_RULES,
		 0,
		 0,
		 AT_B},
		{"at B",
		 {SEND(0), SEND(2), NAK(1), SEND(3), NAK(1), END},
		 ORACLE_NAK_TWICE,
		 ANYWHERE | AT_B,
		 4,
		 AT_A},
		{"next gap",
		 {SEND(0), SEND(2), NAK(1), SEND(1), SEND(3), NAK(2), SEND(2), SEND(3), ACK(3),
		  END},
		 ORACLE_RULES,
		 0,
		 0,
		 AT_A},
	};

	RUN(traces);
}

static void test_nak_resume(void **state)
{
	static const struct trace traces[] = {
		{"goes on above",
		 {SEND(0), SEND(1), SEND(2), SEND(3), NAK(1), SEND(4), SEND(2), END},
		 ORACLE_NAK_RESUME,
		 AT_A,
		 6,
		 AT_B},
		{"goes back below",
		 {SEND(0), SEND(1), SEND(2), SEND(3), NAK(1), SEND(0), END},
		 ORACLE_NAK_RESUME,
		 AT_A,
		 5,
		 AT_B},
		{"never goes back",
		 {SEND(0), SEND(1), SEND(2), NAK(1), SEND(3), SEND(4), SEND(5), SEND(6), END},
		 ORACLE_NAK_RESUME,
		 ANYWHERE | AT_A,
		 7,
		 AT_B},
		{"in flight",
		 {SEND(0), SEND(1), SEND(2), NAK(1), SEND(3), SEND(4), SEND(5), SEND(1), SEND(2),
		  END},
		 ORACLE_RULES,
		 0,
		 0,
		 AT_B},
		{"sent again already, and acknowledged",
		 {SEND(0), SEND(1), SEND(2), SEND(1), NAK(1), SEND(2), ACK(2), SEND(3), SEND(4),
		  SEND(5), SEND(6), SEND(7), END},
		 ORACLE_RULES,
		 0,
		 0,
		 AT_B},
		{"RNR NAK",
		 {SEND(0), SEND(1), SEND(2), RNR(0), SEND(1), END},
		 ORACLE_NAK_RESUME,
		 AT_A,
		 4},
		{"RNR NAK, never goes back",
		 {SEND(0), RNR(0), SEND(1), SEND(2), SEND(3), SEND(4), END},
		 ORACLE_NAK_RESUME,
		 EVERYWHERE,
		 5},
	};

	RUN(traces);
}

static void test_read_run(void **state)
{
	static const struct trace traces[] = {
		{"begins elsewhere",
		 {READ(0, 1024, 0), FIRST(1), END},
		 ORACLE_READ_RUN,
		 EVERYWHERE,
		 1},
		{"for a SEND",
		 {READ(0, 256, 0), RONLY(0, 256), SEND(1), RONLY(1, 64), END},
		 ORACLE_READ_RUN,
		 EVERYWHERE,
		 3},
		{"a packet twice",
		 {READ(0, 1024, 0), FIRST(0), MIDDLE(1), MIDDLE(1), END},
		 ORACLE_READ_RUN,
		 EVERYWHERE,
		 3},
		{"ends early",
		 {READ(0, 1024, 0), FIRST(0), MIDDLE(1), LAST(2, 256), END},
		 ORACLE_READ_RUN,
		 EVERYWHERE,
		 3},
		{"does not end",
		 {READ(0, 512, 0), FIRST(0), MIDDLE(1), END},
		 ORACLE_READ_RUN,
		 EVERYWHERE,
		 2},
		{"ONLY for several",
		 {READ(0, 512, 0), RONLY(0, 256), END},
		 ORACLE_READ_RUN,
		 EVERYWHERE,
		 1},
		{"too short at the end",
		 {READ(0, 512, 0), FIRST(0), LAST(1, 255), END},
		 ORACLE_READ_RUN,
		 EVERYWHERE,
		 2},
		{"too short in the middle",
		 {READ(0, 1024, 0), {PKT_READ_RESP_FIRST, 0, 128, 1, 0}, END},
		 ORACLE_READ_RUN,
		 EVERYWHERE,
		 1},
		{"other MSN",
		 {READ(0, 512, 0), FIRST(0), {PKT_READ_RESP_LAST, 1, 256, 2, 0}, END},
		 ORACLE_READ_RUN,
		 EVERYWHERE,
		 2},
		{"answered twice",
		 {READ(0, 256, 0), RONLY(0, 256), RONLY(0, 256), END},
		 ORACLE_READ_RUN,
		 EVERYWHERE,
		 2},
		{"a hole", {READ(0, 1024, 0), FIRST(0), MIDDLE(2), END}, ORACLE_READ_RUN, AT_B, 2},
		{"cut off, because the requester went back",
		 {READ(0, 256, 0), READ(1, 512, 0), READ(3, 256, 0), RONLY(0, 256), FIRST(1),
		  READ(0, 256, 0), RONLY(0, 256), RONLY(3, 256), END},
		 ORACLE_READ_REISSUE,
		 AT_A,
		 5},
		{"the next one too soon",
		 {READ(0, 512, 0), READ(2, 256, 0), FIRST(0), RONLY(2, 256), END},
		 ORACLE_READ_RUN,
		 AT_B,
		 3},
	};

	RUN(traces);
}

static void test_read_reissue(void **state)
{
	static const struct trace traces[] = {
		{"longer",
		 {READ(0, 700, 0), FIRST(0), READ(1, 700, 256), END},
		 ORACLE_READ_REISSUE,
		 EVERYWHERE,
		 2},
		{"shorter",
		 {READ(0, 700, 0), FIRST(0), READ(1, 256, 256), END},
		 ORACLE_READ_REISSUE,
		 EVERYWHERE,
		 2},
		{"not moved",
		 {READ(0, 700, 0), FIRST(0), READ(1, 444, 0), END},
		 ORACLE_READ_REISSUE,
		 EVERYWHERE,
		 2},
		{"other key",
		 {READ(0, 700, 0), {PKT_READ_REQUEST, 0, 700, 0, 8}, END},
		 ORACLE_READ_REISSUE,
		 EVERYWHERE,
		 1},
		{"too far on",
		 {READ(0, 700, 0), FIRST(0), READ(2, 188, 512), END},
		 ORACLE_READ_REISSUE,
		 EVERYWHERE,
		 2},
		{"older one is missing",
		 {READ(0, 256, 0), READ(1, 512, 0), FIRST(1), READ(2, 256, 256), END},
		 ORACLE_READ_REISSUE,
		 EVERYWHERE,
		 3},
		{"too far back",
		 {READ(0, 700, 0), FIRST(0), MIDDLE(1), READ(1, 444, 256), END},
		 ORACLE_READ_REISSUE,
		 AT_A,
		 3},
		{"all is there",
		 {READ(0, 256, 0), RONLY(0, 256), READ(0, 256, 0), END},
		 ORACLE_READ_REISSUE,
		 AT_A,
		 2},
	};

	/*
	 * In "older one is missing" B answers out of order, which is another fault at its own end,
	 * but no rule here.
	 */
	RUN(traces);
}

static void test_replay(void **state)
{
	static const struct trace traces[] = {
		{"other value",
		 {ADD(0), VALUE(0, 5), ADD(0), VALUE(0, 6), END},
		 ORACLE_REPLAY,
		 EVERYWHERE,
		 3},
		{"answered twice",
		 {ADD(0), VALUE(0, 5), VALUE(0, 5), END},
		 ORACLE_REPLAY,
		 EVERYWHERE,
		 2},
		{"for a SEND",
		 {ADD(0), SEND(1), VALUE(0, 5), VALUE(1, 5), END},
		 ORACLE_REPLAY,
		 EVERYWHERE,
		 3},
	};

	RUN(traces);
}

static void test_msn(void **state)
{
	static const struct trace traces[] = {
		{"one too many",
		 {SEND(0), ACKM(0, 7), SEND(1), ACKM(1, 9), END},
		 ORACLE_MSN,
		 EVERYWHERE,
		 3},
		{"one too few",
		 {SEND(0), ACKM(0, 7), SEND(1), SEND(2), ACKM(2, 8), END},
		 ORACLE_MSN,
		 EVERYWHERE,
		 4},
		{"none at all",
		 {SEND(0), ACKM(0, 7), SEND(1), ACKM(1, 0), END},
		 ORACLE_MSN,
		 EVERYWHERE,
		 3},
		{"for a part",
		 {SEND(0), ACKM(0, 7), PART(1), ACKM(1, 8), END},
		 ORACLE_MSN,
		 EVERYWHERE,
		 3},
		{"for a copy",
		 {SEND(0), ACKM(0, 7), SEND(1), SEND(1), ACKM(1, 9), END},
		 ORACLE_MSN,
		 EVERYWHERE,
		 4},
		{"right",
		 {SEND(0), ACKM(0, 7), PART(1), SEND(2), READ(3, 700, 0), SEND(6), ADD(7),
		  ACKM(7, 11), END},
		 ORACLE_RULES,
		 0,
		 0},
		{"over the end",
		 {SEND(0), ACKM(0, 0xffffff), SEND(1), ACKM(1, 0), END},
		 ORACLE_RULES,
		 0,
		 0},
		{"of less",
		 {SEND(0), ACKM(0, 7), SEND(1), SEND(2), ACKM(1, 9), END},
		 ORACLE_RULES,
		 0,
		 0},
	};

	RUN(traces);
}

static void test_req_psn(void **state)
{
	static const struct trace traces[] = {
		{"one left out", {SEND(0), SEND(2), END}, ORACLE_REQ_PSN, AT_A, 1},
		{"after a READ", {READ(0, 700, 0), SEND(4), END}, ORACLE_REQ_PSN, AT_A, 1},
		{"after going back",
		 {SEND(0), SEND(1), SEND(2), SEND(1), SEND(4), END},
		 ORACLE_REQ_PSN,
		 AT_A,
		 4},
		{"not left out", {READ(0, 700, 0), SEND(3), END}, ORACLE_RULES, 0, 0},
	};

	RUN(traces);
}

/* With a network that reorders, received packets are not judged; sent ones are. */
static void test_disorder(void **state)
{
	static const struct trace acks = {"ACKs swapped",
					  {SEND(0), SEND(1), SEND(2), ACK(2), ACK(1), END},
					  ORACLE_ACK_BACK,
					  AT_B,
					  4};
	static const struct trace naks = {"a NAK doubled",
					  {SEND(0), SEND(1), SEND(2), NAK(1), NAK(1), SEND(1),
					   SEND(2), ACK(2), NAK(1), SEND(3), END},
					  ORACLE_RULES,
					  0,
					  0};
	static const struct trace leap = {
		"a PSN left out", {SEND(0), SEND(2), END}, ORACLE_REQ_PSN, AT_A, 1};

	for (enum capture_point p = AT_A; p <= AT_B; p = (enum capture_point)(p * 2)) {
		struct oracle_options oo = options(p);

		oo.disorder = true;
		run(&acks, p, 0xffffff, &oo);
		run(&leap, p, 0xffffff, &oo);
		if (p == AT_A)
			run(&naks, p, 0xffffff, &oo);
	}
}

/* The path MTU is learnt: from a full packet, or from the PSN behind a READ. */
static void test_learn_mtu(void **state)
{
	static const struct trace traces[] = {
		{"from the first packet",
		 {{PKT_WRITE_FIRST, 0, 256, 0, 0},
		  {PKT_WRITE_LAST, 1, 1, 0, 0},
		  READ(2, 700, 0),
		  SEND(5),
		  ACK(1),
		  FIRST(2),
		  MIDDLE(3),
		  LAST(4, 188),
		  ACK(5),
		  END},
		 ORACLE_RULES,
		 0,
		 0},
		{"from the response",
		 {READ(0, 700, 0), FIRST(0), MIDDLE(1), LAST(2, 188), SEND(3), ACK(3), END},
		 ORACLE_RULES,
		 0,
		 0},
		{"from the next request",
		 {READ(0, 700, 0), SEND(3), FIRST(0), MIDDLE(1), LAST(2, 188), ACK(3), END},
		 ORACLE_RULES,
		 0,
		 0},
		{"from the next READ",
		 {READ(0, 700, 0), READ(3, 700, 700), FIRST(0), MIDDLE(1), LAST(2, 188), FIRST(3),
		  END},
		 ORACLE_RULES,
		 0,
		 0},
		{"it still judges",
		 {READ(0, 700, 0), SEND(3), FIRST(0), LAST(1, 188), END},
		 ORACLE_READ_RUN,
		 EVERYWHERE,
		 3},
	};

	for (size_t i = 0; i < sizeof(traces) / sizeof(traces[0]); i++) {
		for (enum capture_point p = ANYWHERE; p <= AT_B; p = (enum capture_point)(p * 2)) {
			struct oracle_options oo = options(p);

			oo.mtu = 0;
			run(&traces[i], p, 0xfffffe, &oo);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right),	     cmocka_unit_test(test_right_with_loss),
		cmocka_unit_test(test_ack_back),     cmocka_unit_test(test_ack_unseen),
		cmocka_unit_test(test_nak_psn),	     cmocka_unit_test(test_nak_twice),
		cmocka_unit_test(test_nak_resume),   cmocka_unit_test(test_read_run),
		cmocka_unit_test(test_read_reissue), cmocka_unit_test(test_replay),
		cmocka_unit_test(test_msn),	     cmocka_unit_test(test_req_psn),
		cmocka_unit_test(test_disorder),     cmocka_unit_test(test_learn_mtu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
