/* SPDX-License-Identifier: BSD-2-Clause */
/* The decision whether a flush also receives: its state machine, without sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "port/udp_exchange.h"

#define GROUP 64 /* packets of a datagram */
#define LEN   96 /* bytes of a packet */
#define WANT  64 /* the most datagrams that a look requests */

static void a_busy_port_exchanges(void **state)
{
	struct exchange_history o = {0};

	for (unsigned i = 0; i < EXCHANGE_LOOKS; i++) {
		assert_false(exchange_pays(&o));
		exchange_flushed(&o);
		exchange_looked(&o, true);
	}
	assert_true(exchange_pays(&o));
	for (unsigned i = 0; i < 10 * EXCHANGE_LOOKS; i++)
		exchange_count(&o, true);
	for (unsigned i = 0; i <= EXCHANGE_LOOKS; i++) {
		assert_true(exchange_pays(&o));
		exchange_count(&o, false);
	}
	assert_false(exchange_pays(&o));
}

/* After a row of exchanges there is a look. */
static void a_row_ends(void **state)
{
	struct exchange_history o = {.found = EXCHANGE_LOOKS};

	for (unsigned row = 0; row < 3; row++) {
		for (unsigned i = 0; i < EXCHANGE_ROW; i++) {
			assert_true(exchange_pays(&o));
			exchange_done(&o, true);
		}
		assert_false(exchange_pays(&o));
		exchange_looked(&o, true);
	}
}

/* Only a look that directly follows a flush counts. */
static void later_looks_do_not_count(void **state)
{
	struct exchange_history o = {0};

	for (unsigned i = 0; i < 10 * EXCHANGE_LOOKS; i++) {
		exchange_flushed(&o);
		exchange_looked(&o, false);
		exchange_looked(&o, true);
		exchange_looked(&o, true);
		exchange_flushed(&o);
		exchange_sleeps(&o);
		exchange_looked(&o, true);
	}
	assert_false(exchange_pays(&o));
	o = (struct exchange_history){.flushed = true};
	exchange_done(&o, true);
	exchange_looked(&o, true);
	assert_int_equal(o.found, 1);
}

/* Half of the looks find a datagram: the state depends on the last ones only. */
static void old_looks_are_forgotten(void **state)
{
	struct exchange_history o = {0};

	for (unsigned i = 0; i < 1000; i++)
		exchange_count(&o, i % 2);
	for (unsigned i = 0; i < 2 * EXCHANGE_LOOKS; i++)
		exchange_count(&o, true);
	assert_true(exchange_pays(&o));
	for (unsigned i = 0; i < 2 * EXCHANGE_LOOKS; i++)
		exchange_count(&o, false);
	assert_false(exchange_pays(&o));
}

/*
 * The look after a row requests more datagrams than exchanges are for, unless it requests as many
 * anyway. Other looks request what they would without exchanges.
 */
static void the_look_after_a_row_requests_more(void **state)
{
	struct exchange_history o = {.found = EXCHANGE_LOOKS};

	for (unsigned row = 0; row < 3; row++) {
		for (unsigned i = 0; i < EXCHANGE_ROW; i++) {
			for (unsigned want = 1; want <= WANT; want++)
				assert_int_equal(exchange_request(&o, want), want);
			exchange_done(&o, true);
		}
		assert_int_equal(exchange_request(&o, 1), EXCHANGE_DATAGRAMS + 1);
		assert_int_equal(exchange_request(&o, EXCHANGE_DATAGRAMS), EXCHANGE_DATAGRAMS + 1);
		for (unsigned want = EXCHANGE_DATAGRAMS + 1; want <= WANT; want++)
			assert_int_equal(exchange_request(&o, want), want);
		exchange_looked(&o, row % 2);
		assert_int_equal(exchange_request(&o, 1), 1);
	}
}

/* Exchanges are for groups of packets, of which few wait, and which are not long. */
static void few_short_groups_suit(void **state)
{
	const struct exchange_history row_over = {.row = EXCHANGE_ROW};
	const unsigned most = EXCHANGE_DATAGRAMS;

	for (unsigned n = 1; n <= most; n++) {
		assert_true(exchange_suits(n, n + 1, EXCHANGE_BYTES));
		assert_true(exchange_suits(n, n * GROUP, GROUP * LEN));
		assert_false(exchange_suits(n, n, LEN)); /* single packets */
		assert_false(exchange_suits(n, n * GROUP, EXCHANGE_BYTES + 1));
	}
	assert_false(exchange_suits(1, 0, LEN)); /* all were for other programs */
	assert_false(exchange_suits(most + 1, (most + 1) * GROUP, GROUP * LEN));
	/* so the look after a row ends exchanges if it gets all that it requests */
	assert_false(exchange_suits(exchange_request(&row_over, 1), WANT, GROUP * LEN));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_busy_port_exchanges),
		cmocka_unit_test(a_row_ends),
		cmocka_unit_test(the_look_after_a_row_requests_more),
		cmocka_unit_test(few_short_groups_suit),
		cmocka_unit_test(later_looks_do_not_count),
		cmocka_unit_test(old_looks_are_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
