/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lists from the Linux kernel: the socket pair in place of the netlink socket sends the parts that
 * a test has written.
 */
#include <errno.h>
#include <linux/rtnetlink.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/netlink.h"
#include "base/sys.h"

#define LISTED 77 /* the type of the messages of the list */
#define FIXED  6  /* bytes of a message before its attributes */

static int other_end = -1; /* Linux's end of the socket */
static int refusal;	   /* the -errno of socket(2); 0: it works */

int __wrap_sys_socket(int domain, int type, int protocol);

int __wrap_sys_socket(int domain, int type, int protocol)
{
	int fds[2], rc;

	assert_int_equal(domain, AF_NETLINK);
	assert_int_equal(protocol, NETLINK_ROUTE);
	if (refusal)
		return refusal;
	rc = sys_socketpair(AF_UNIX, SOCK_SEQPACKET | (type & (SOCK_NONBLOCK | SOCK_CLOEXEC)), 0,
			    fds);
	assert_int_equal(rc, 0);
	/* The requests that the test does not read, and the parts that it has written. */
	if (other_end >= 0) {
		assert_int_equal(dup2(other_end, fds[0]), fds[0]);
		close(other_end);
	}
	close(fds[1]);
	return fds[0];
}

/* ---- the parts ---- */

static struct {
	uint8_t bytes[4096];
	size_t len;
} part;
static int writer = -1;

static int begin(void **state)
{
	int fds[2];

	if (sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds))
		return -1;
	other_end = fds[0];
	writer = fds[1];
	refusal = 0;
	part.len = 0;
	return 0;
}

static int end(void **state)
{
	close(writer);
	if (refusal)
		close(other_end);
	return 0;
}

static struct nlmsghdr *add(uint16_t type, uint16_t flags, const void *body, size_t len)
{
	struct nlmsghdr *h = (struct nlmsghdr *)(part.bytes + part.len);

	memset(h, 0, NLMSG_SPACE(len));
	h->nlmsg_len = (uint32_t)NLMSG_LENGTH(len);
	h->nlmsg_type = type;
	h->nlmsg_flags = flags;
	if (len)
		memcpy(NLMSG_DATA(h), body, len);
	part.len += NLMSG_SPACE(len);
	return h;
}

static void send_part(void)
{
	assert_int_equal(send(writer, part.bytes, part.len, 0), part.len);
	part.len = 0;
}

static void send_one(uint16_t type, uint16_t flags, int error)
{
	struct nlmsgerr e = {.error = error};

	add(type, flags, &e, sizeof(e));
	send_part();
}

/* ---- the reader ---- */

static unsigned taken, stop_at;
static int stop_with;

static int each(void *ctx, const struct nlmsghdr *h)
{
	assert_int_equal(h->nlmsg_type, LISTED);
	return ++taken == stop_at ? stop_with : 0;
}

static int list(void)
{
	struct nlmsghdr request = {.nlmsg_len = sizeof(request),
				   .nlmsg_type = 1,
				   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP};

	taken = 0;
	return netlink_list(NETLINK_ROUTE, &request, each, NULL);
}

static void all_parts(void **state)
{
	struct nlmsghdr asked;

	stop_at = 0;
	add(LISTED, NLM_F_MULTI, "abc", 3); /* a message whose length is not aligned */
	add(LISTED, NLM_F_MULTI, "abcd", 4);
	send_part();
	send_one(LISTED, NLM_F_MULTI, 0);
	send_one(NLMSG_DONE, NLM_F_MULTI, 0);
	assert_int_equal(list(), 0);
	assert_int_equal(taken, 3);
	assert_int_equal(recv(writer, &asked, sizeof(asked), 0), sizeof(asked));
	assert_int_equal(asked.nlmsg_len, sizeof(asked));
}

static void rest_is_not_read(void **state)
{
	stop_at = 2;
	stop_with = 1;
	for (int i = 0; i < 4; i++)
		add(LISTED, NLM_F_MULTI, NULL, 0);
	send_part();
	assert_int_equal(list(), 0);
	assert_int_equal(taken, 2);
}

static void reader_fails(void **state)
{
	stop_at = 1;
	stop_with = -E2BIG;
	send_one(LISTED, NLM_F_MULTI, 0);
	assert_int_equal(list(), -E2BIG);
}

static void list_that_changes(void **state)
{
	stop_at = 0;
	send_one(LISTED, NLM_F_MULTI | NLM_F_DUMP_INTR, 0);
	assert_int_equal(list(), -EINTR);
	assert_int_equal(taken, 0);
}

static void linux_refuses(void **state)
{
	send_one(NLMSG_ERROR, 0, -EPERM);
	assert_int_equal(list(), -EPERM);
}

/* An error whose number is cut, or that is none. */
static void error_without_number(void **state)
{
	add(NLMSG_ERROR, 0, NULL, 0);
	send_part();
	assert_int_equal(list(), -EPROTO);
}

static void error_of_zero(void **state)
{
	send_one(NLMSG_ERROR, 0, 0);
	assert_int_equal(list(), -EPROTO);
}

static void end_is_missing(void **state)
{
	stop_at = 0;
	send_one(LISTED, NLM_F_MULTI, 0);
	assert_int_equal(list(), -EAGAIN); /* it does not wait for the next part */
	assert_int_equal(taken, 1);
}

static void socket_is_closed(void **state)
{
	shutdown(writer, SHUT_WR);
	assert_int_equal(list(), -EPROTO);
}

/* Each length behind the first message that is not the message's own. */
static void message_is_cut(void **state)
{
	stop_at = 0;
	add(LISTED, NLM_F_MULTI, "abcdefgh", 8);
	add(LISTED, NLM_F_MULTI, "abcdefgh", 8)->nlmsg_len++;
	send_part();
	assert_int_equal(list(), -EPROTO);
	assert_int_equal(taken, 1);
}

static void length_below_the_header(void **state)
{
	stop_at = 0;
	add(LISTED, NLM_F_MULTI, "abcdefgh", 8)->nlmsg_len = sizeof(struct nlmsghdr) - 1;
	send_part();
	assert_int_equal(list(), -EPROTO);
	assert_int_equal(taken, 0);
}

static void no_socket(void **state)
{
	refusal = -EMFILE;
	assert_int_equal(list(), -EMFILE);
}

/* ---- attributes ---- */

static uint8_t *add_attr(uint8_t *at, unsigned type, const void *value, size_t len)
{
	struct rtattr a = {.rta_len = (unsigned short)RTA_LENGTH(len),
			   .rta_type = (unsigned short)type};

	memcpy(at, &a, sizeof(a));
	memcpy(at + RTA_LENGTH(0), value, len);
	return at + RTA_SPACE(len);
}

/*
 * A message with attributes 1, 2, 1. It is a copy without space behind it, so that ASan reports
 * each byte that is read there. `cut`: that many bytes of its end are missing.
 */
static struct nlmsghdr *with_attrs(size_t cut)
{
	_Alignas(4) uint8_t b[128] = {0};
	uint8_t *at = b + NLMSG_LENGTH(NLMSG_ALIGN(FIXED));
	struct nlmsghdr *h;
	size_t len;

	at = add_attr(at, 1, "one", 3);
	at = add_attr(at, 2, "second", 6);
	at = add_attr(at, 1, "uno", 3);
	len = (size_t)(at - b) - 1 - cut; /* the last one has no padding */
	h = malloc(len);
	assert_non_null(h);
	memcpy(h, b, len);
	h->nlmsg_len = (uint32_t)len;
	return h;
}

static void attributes(void **state)
{
	struct nlmsghdr *h = with_attrs(0);
	const char *value;
	size_t len = 0;

	value = netlink_attr(h, FIXED, 1, 0, &len);
	assert_non_null(value);
	assert_int_equal(len, 3);
	assert_memory_equal(value, "uno", 3); /* the last one counts */
	value = netlink_attr(h, FIXED, 2, 6, &len);
	assert_non_null(value);
	assert_int_equal(len, 6);
	assert_memory_equal(value, "second", 6);
	assert_null(netlink_attr(h, FIXED, 2, 7, &len));
	assert_null(netlink_attr(h, FIXED, 3, 0, &len));
	free(h);
}

static void attributes_that_are_cut(void **state)
{
	for (size_t cut = 1;; cut++) {
		struct nlmsghdr *h = with_attrs(cut);
		bool last = h->nlmsg_len == sizeof(*h);
		const char *value;
		size_t len;

		value = netlink_attr(h, FIXED, 1, 0, &len);
		if (value)
			assert_memory_equal(value, "one", 3);
		value = netlink_attr(h, FIXED, 2, 0, &len);
		if (value)
			assert_memory_equal(value, "second", 6);
		free(h);
		if (last)
			return;
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(all_parts),
		TEST(rest_is_not_read),
		TEST(reader_fails),
		TEST(list_that_changes),
		TEST(linux_refuses),
		TEST(error_without_number),
		TEST(error_of_zero),
		TEST(end_is_missing),
		TEST(socket_is_closed),
		TEST(message_is_cut),
		TEST(length_below_the_header),
		TEST(no_socket),
		cmocka_unit_test(attributes),
		cmocka_unit_test(attributes_that_are_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
