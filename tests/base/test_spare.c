/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A listening socket of a process without a free descriptor: the spare descriptor, another thread
 * that takes its number, and the rest.
 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rest.h"
#include "base/spare.h"
#include "base/sys.h"

static bool thief; /* another thread takes the next descriptor that is closed */
static int stolen = -1;
static int refusal; /* the -errno of accept4; 0: it works */

int __real_sys_close(int fd);
int __wrap_sys_close(int fd);
int __real_sys_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags);
int __wrap_sys_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags);

int __wrap_sys_close(int fd)
{
	int rc = __real_sys_close(fd);

	if (thief) {
		thief = false;
		stolen = dup(0);
	}
	return rc;
}

int __wrap_sys_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags)
{
	return refusal ? refusal : __real_sys_accept4(fd, a, len, flags);
}

struct stage {
	int listener, client, spare;
	struct sockaddr_un name;
	socklen_t len;
	struct rlimit was;
};

static struct stage s;

static int begin(void **state)
{
	s = (struct stage){.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)};
	s.name.sun_family = AF_UNIX;
	s.len = sizeof(s.name);
	/* An address of the kernel's choice. */
	assert_int_equal(bind(s.listener, (struct sockaddr *)&s.name, sizeof(sa_family_t)), 0);
	assert_int_equal(getsockname(s.listener, (struct sockaddr *)&s.name, &s.len), 0);
	assert_int_equal(listen(s.listener, 8), 0);
	s.client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	s.spare = spare_open();
	assert_true(s.spare >= 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &s.was), 0);
	return 0;
}

static int end(void **state)
{
	refusal = 0;
	setrlimit(RLIMIT_NOFILE, &s.was);
	close(s.listener);
	close(s.client);
	if (s.spare >= 0)
		close(s.spare);
	if (stolen >= 0)
		close(stolen);
	stolen = -1;
	return 0;
}

/* From now on the process has no free descriptor. */
static void fill(void)
{
	struct rlimit full = s.was;
	int next = dup(0);

	close(next);
	full.rlim_cur = (rlim_t)next;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &full), 0);
}

static void calls(void)
{
	assert_int_equal(connect(s.client, (struct sockaddr *)&s.name, s.len), 0);
}

static bool is_hung_up(void)
{
	char byte;

	return recv(s.client, &byte, 1, 0) == 0;
}

static enum spare_result take(int *fd)
{
	return spare_accept(s.listener, SOCK_NONBLOCK, &s.spare, fd);
}

static void accepts(void **state)
{
	int fd;

	assert_int_equal(take(&fd), SPARE_NOTHING);
	calls();
	assert_int_equal(take(&fd), SPARE_ACCEPTED);
	assert_true(fd >= 0 && s.spare >= 0);
	assert_false(is_hung_up());
	close(fd);
}

static void hangs_up_with_the_spare_one(void **state)
{
	int fd;

	fill();
	calls();
	assert_int_equal(take(&fd), SPARE_REFUSED);
	assert_int_equal(fd, -EMFILE);
	assert_true(is_hung_up());
	assert_true(s.spare >= 0);
	assert_int_equal(take(&fd), SPARE_NOTHING);
}

/* The connection stays, and is accepted later. Then there is a spare descriptor again. */
static void rests_if_it_is_taken(void **state)
{
	int fd;

	fill();
	calls();
	thief = true;
	assert_int_equal(take(&fd), SPARE_REST);
	assert_true(stolen >= 0 && s.spare < 0);
	assert_int_equal(take(&fd), SPARE_REST);
	assert_false(is_hung_up());
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &s.was), 0);
	assert_int_equal(take(&fd), SPARE_ACCEPTED);
	assert_true(s.spare >= 0);
	close(fd);
}

/* Errors that pass with the connection are none; others last. */
static void errors(void **state)
{
	static const int pass[] = {-EAGAIN, -EINTR, -ECONNABORTED};
	static const int last[] = {-ENOMEM, -ENOBUFS, -EPERM, -ENFILE};
	int fd;

	for (unsigned i = 0; i < sizeof(pass) / sizeof(pass[0]); i++) {
		refusal = pass[i];
		assert_int_equal(take(&fd), SPARE_NOTHING);
	}
	for (unsigned i = 0; i < sizeof(last) / sizeof(last[0]); i++) {
		refusal = last[i];
		assert_int_equal(take(&fd), SPARE_REST);
		assert_int_equal(fd, last[i]);
	}
	refusal = -EMFILE;
	assert_int_equal(spare_accept(s.listener, 0, NULL, &fd), SPARE_REST);
}

/* ---- the rest, in virtual time ---- */

/*
 * A thread with two sockets that are always readable and cannot be accepted. It looks when
 * rest_left() says so.
 */
static void looks_are_rare(void **state)
{
	enum { LOOKS = 100 };
	const uint64_t start = 123456;
	uint64_t now = start;
	struct rest r = {0};

	assert_int_equal(rest_left(&r, now), -1);
	assert_false(rest_ends(&r, now));
	for (unsigned i = 0; i < LOOKS; i++) {
		rest_begin(&r, now);
		rest_begin(&r, now + REST_MS / 2); /* the other socket does not prolong it */
		assert_int_equal(rest_left(&r, now), REST_MS);
		assert_false(rest_ends(&r, now + REST_MS - 1));
		now += (uint64_t)rest_left(&r, now);
		assert_int_equal(rest_left(&r, now), 0);
		assert_true(rest_ends(&r, now));
		assert_false(rest_ends(&r, now)); /* once */
		assert_int_equal(rest_left(&r, now), -1);
	}
	assert_int_equal(now - start, LOOKS * REST_MS);
}

/* A thread that looks late ends the rest at once. */
static void late_looks(void **state)
{
	struct rest r = {0};

	rest_begin(&r, 1000);
	assert_int_equal(rest_left(&r, 1000000), 0);
	assert_true(rest_ends(&r, 1000000));
	rest_begin(&r, UINT64_MAX / 2);
	assert_int_equal(rest_left(&r, 0), INT_MAX); /* no overflow */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(accepts, begin, end),
		cmocka_unit_test_setup_teardown(hangs_up_with_the_spare_one, begin, end),
		cmocka_unit_test_setup_teardown(rests_if_it_is_taken, begin, end),
		cmocka_unit_test_setup_teardown(errors, begin, end),
		cmocka_unit_test(looks_are_rare),
		cmocka_unit_test(late_looks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
