/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Options that two Roost ends agree on, by ibv_query_ece() and ibv_set_ece(): offers, answers, and
 * other values.
 */
#include "fixture.h"

#include "roost/verbs.h"

static struct ibv_ece ece_of(struct ibv_qp *qp)
{
	struct ibv_ece ece;

	assert_int_equal(ibv_query_ece(qp, &ece), 0);
	assert_int_equal(ece.comp_mask, 0);
	return ece;
}

/* Only the answer to an offer is taken as one. */
static void ece_is_agreed(void **state)
{
	struct pair_options o = {.cap = {4, 4, 1, 1, 0}, .leave_reset = true};
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct ibv_ece offer, answer, other;
	struct pair p;

	pair_open(&p, &o);
	offer = ece_of(p.qp[0]);
	assert_int_not_equal(offer.vendor_id, 0);
	assert_int_not_equal(offer.options & 0xff, 0);
	assert_int_equal(ece_of(p.qp[0]).options, offer.options);
	assert_int_not_equal(ece_of(p.qp[1]).options, offer.options);
	/* The QP's own offer is no answer. */
	assert_int_equal(ibv_set_ece(p.qp[0], &offer), EOPNOTSUPP);

	assert_int_equal(ibv_set_ece(p.qp[1], &offer), 0);
	answer = ece_of(p.qp[1]);
	assert_int_equal(answer.vendor_id, offer.vendor_id);
	/* Random values, or the answer to another offer, agree to nothing. */
	for (unsigned i = 0; i < 32; i++) {
		other = answer;
		other.options ^= 1u << i;
		if (other.options & 1u << 15)
			assert_int_equal(ibv_set_ece(p.qp[0], &other), EOPNOTSUPP);
	}
	assert_int_equal(ece_of(p.qp[0]).options, offer.options);
	assert_int_equal(ibv_set_ece(p.qp[0], &answer), 0);
	assert_int_equal(ece_of(p.qp[0]).options, answer.options);

	/* A QP that is reset starts again. */
	assert_int_equal(to_init(&p, 0), 0);
	assert_int_equal(ibv_modify_qp(p.qp[0], &reset, IBV_QP_STATE), 0);
	assert_int_not_equal(ece_of(p.qp[0]).options, answer.options);
	assert_int_equal(ibv_set_ece(p.qp[0], &answer), EOPNOTSUPP);
	pair_close(&p);
}

/* Both ends must offer calls. An offer that comes back unchanged is no consent. */
static void calls_are_agreed_on_by_both_or_not_at_all(void **state)
{
	struct pair_options o = {.cap = {4, 4, 1, 1, 0}, .leave_reset = true};
	struct ibv_ece offer;

	for (unsigned wants = 0; wants < 4; wants++) {
		struct pair p;

		pair_open(&p, &o);
		for (unsigned i = 0; i < 2; i++) {
			if (wants & 1u << i)
				assert_int_equal(roost_qp_offer_rpc(p.qp[i]), 0);
		}
		offer = ece_of(p.qp[0]);
		assert_int_equal(ibv_set_ece(p.qp[0], &offer), EOPNOTSUPP);
		assert_int_equal(ibv_set_ece(p.qp[1], &offer), 0);
		offer.options |= 1u << 15;
		assert_int_equal(ibv_set_ece(p.qp[0], &offer), EOPNOTSUPP);
		assert_false(roost_qp_has_rpc(p.qp[0]));
		offer = ece_of(p.qp[1]);
		assert_int_equal(ibv_set_ece(p.qp[0], &offer), 0);
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(roost_qp_has_rpc(p.qp[i]), wants == 3);
			assert_int_equal(roost_qp_offer_rpc(p.qp[i]), EINVAL); /* too late */
		}
		pair_close(&p);
	}
}

/*
 * If the offer was sent before the program asks for calls, there are no calls. A reset clears
 * everything.
 */
static void an_offer_of_calls_may_follow_a_query(void **state)
{
	struct pair_options o = {.cap = {4, 4, 1, 1, 0}, .leave_reset = true};
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct ibv_ece before, after, answer;
	struct pair p;

	pair_open(&p, &o);
	before = ece_of(p.qp[0]);
	assert_int_equal(roost_qp_offer_rpc(p.qp[0]), 0);
	after = ece_of(p.qp[0]);
	assert_int_equal(before.options ^ after.options, 2);
	assert_int_equal(roost_qp_offer_rpc(p.qp[1]), 0);
	assert_int_equal(ibv_set_ece(p.qp[1], &before), 0);
	answer = ece_of(p.qp[1]);
	assert_int_equal(ibv_set_ece(p.qp[0], &answer), 0);
	assert_false(roost_qp_has_rpc(p.qp[0]));
	assert_false(roost_qp_has_rpc(p.qp[1]));

	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(to_init(&p, i), 0);
		assert_int_equal(ibv_modify_qp(p.qp[i], &reset, IBV_QP_STATE), 0);
		assert_int_equal(ece_of(p.qp[i]).options & 2, 0);
		/* The query made an offer. Those of both ends could have the same number. */
		assert_int_equal(ibv_modify_qp(p.qp[i], &reset, IBV_QP_STATE), 0);
		assert_int_equal(roost_qp_offer_rpc(p.qp[i]), 0);
	}
	after = ece_of(p.qp[0]);
	assert_int_equal(ibv_set_ece(p.qp[1], &after), 0);
	assert_true(roost_qp_has_rpc(p.qp[1]));
	assert_int_equal(ibv_modify_qp(p.qp[1], &reset, IBV_QP_STATE), 0);
	assert_false(roost_qp_has_rpc(p.qp[1]));
	pair_close(&p);
}

/*
 * An end that has made no offer takes no answer, whatever its number, and draws no number to
 * compare with. It once drew one: its peer's offer had the same number in one connection of 65,536,
 * was taken for this end's own offer, and there was no agreement.
 */
static void without_an_offer_there_is_no_answer(void **state)
{
	struct pair_options o = {.cap = {4, 4, 1, 1, 0}, .leave_reset = true};
	struct ibv_ece offer, answer, any;
	struct pair p;

	pair_open(&p, &o);
	offer = ece_of(p.qp[0]);
	for (uint32_t number = 0; number < 1 << 16; number++) {
		any = (struct ibv_ece){.vendor_id = offer.vendor_id,
				       .options = number << 16 | 1u << 15 | 1};
		if (ibv_set_ece(p.qp[1], &any) != EOPNOTSUPP)
			fail_msg("an answer was taken: %#x", any.options);
	}
	assert_int_equal(ibv_set_ece(p.qp[1], &offer), 0);
	answer = ece_of(p.qp[1]);
	assert_int_equal(ibv_set_ece(p.qp[0], &answer), 0);
	pair_close(&p);
}

static void ece_of_others(void **state)
{
	struct pair_options o = {.cap = {4, 4, 1, 1, 0}, .leave_reset = true};
	struct ibv_ece theirs = {.vendor_id = 9, .options = 9}, none = {.vendor_id = 9}, ours;
	struct pair p;

	pair_open(&p, &o);
	assert_int_equal(ibv_set_ece(p.qp[0], &theirs), EOPNOTSUPP);
	assert_int_equal(ibv_set_ece(p.qp[0], &none), 0);
	ours = ece_of(p.qp[1]);
	ours.comp_mask = 1;
	assert_int_equal(ibv_set_ece(p.qp[0], &ours), EINVAL);
	ours.comp_mask = 0;
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(to_init(&p, i), 0);
	assert_int_equal(to_rtr(&p, 0), 0);
	assert_int_equal(ibv_set_ece(p.qp[0], &ours), EINVAL); /* too late */
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ece_is_agreed),
		cmocka_unit_test(calls_are_agreed_on_by_both_or_not_at_all),
		cmocka_unit_test(an_offer_of_calls_may_follow_a_query),
		cmocka_unit_test(without_an_offer_there_is_no_answer),
		cmocka_unit_test(ece_of_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
