/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The time-out of oob_recv() holds while a peer sends single bytes. The clock is the test's: each
 * reading of it takes a second, and lets the peer send one byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "cli/oob.h"
#include "cli/term.h"

#define SEC   1000000000ull
#define BYTES 1000 /* then the line ends */

static int peer;
static unsigned sent;
static const char *text; /* what the peer sends, a byte a second, and then blanks */

uint64_t clock_ns(void)
{
	const char byte = *text ? *text++ : sent < BYTES ? ' ' : '\n';

	assert_int_equal(write(peer, &byte, 1), 1);
	return ++sent * SEC;
}

static json_t *receive(const char *what, uint64_t timeout, struct oob *o)
{
	int fd[2];
	json_t *msg;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	peer = fd[1];
	text = what;
	sent = 0;
	oob_init(o, fd[0]);
	msg = oob_recv(o, "go", timeout);
	oob_close(o);
	close(peer);
	return msg;
}

static void test_trickle(void **state)
{
	struct oob o;

	(void)state;
	assert_null(receive("", 10 * SEC, &o));
	assert_non_null(strstr(o.err, "no answer from the other side"));
	assert_in_range(sent, 10, 20);
}

static void test_in_time(void **state)
{
	struct oob o;
	json_t *msg = receive("{\"type\":\"go\"}\n", 60 * SEC, &o);

	(void)state;
	assert_non_null(msg);
	json_decref(msg);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_trickle),
		cmocka_unit_test(test_in_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
