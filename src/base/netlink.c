/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/netlink.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/sys.h"

#define REPLY_BYTES 16384 /* Linux makes the parts of a list as large as the reader's buffer */

/* Returns the same as NLMSG_OK(), but without a comparison of signed and unsigned numbers. */
static bool fits(const struct nlmsghdr *h, size_t left)
{
	return left >= sizeof(*h) && h->nlmsg_len >= sizeof(*h) && h->nlmsg_len <= left;
}

/* Returns the error in a message of this type. */
static int error_of(const struct nlmsghdr *h)
{
	const struct nlmsgerr *e = NLMSG_DATA(h);

	return h->nlmsg_len >= NLMSG_LENGTH(sizeof(*e)) && e->error < 0 ? e->error : -EPROTO;
}

/* Returns 1 at the end of the list. */
static int take(const struct nlmsghdr *h, netlink_each *each, void *ctx)
{
	if (h->nlmsg_flags & NLM_F_DUMP_INTR)
		return -EINTR;
	if (h->nlmsg_type == NLMSG_DONE)
		return 1;
	if (h->nlmsg_type == NLMSG_ERROR)
		return error_of(h);
	return each(ctx, h);
}

/* Reads a part of the list. Returns 1 after the last part. */
static int read_part(int fd, netlink_each *each, void *ctx)
{
	union {
		struct nlmsghdr head;
		uint8_t bytes[REPLY_BYTES];
	} in;
	const struct nlmsghdr *h = &in.head;
	ssize_t n = sys_read(fd, &in, sizeof(in));
	size_t left;

	if (n <= 0)
		return n ? (int)n : -EPROTO;
	for (left = (size_t)n; fits(h, left);) {
		size_t whole = NLMSG_ALIGN(h->nlmsg_len);
		int rc = take(h, each, ctx);

		if (rc)
			return rc;
		left = whole < left ? left - whole : 0;
		h = (const struct nlmsghdr *)((const char *)h + whole);
	}
	return left ? -EPROTO : 0;
}

int netlink_list(int protocol, const struct nlmsghdr *request, netlink_each *each, void *ctx)
{
	/* A socket of its own, so that the rest of a list can be left. */
	int fd = sys_socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol), rc = 0;
	ssize_t n;

	if (fd < 0)
		return fd;
	n = sys_write(fd, request, request->nlmsg_len);
	if (n != (ssize_t)request->nlmsg_len)
		rc = n < 0 ? (int)n : -EPROTO;
	while (!rc)
		rc = read_part(fd, each, ctx);
	sys_close(fd);
	return rc < 0 ? rc : 0;
}

const void *netlink_attr(const struct nlmsghdr *h, size_t skip, unsigned type, size_t least,
			 size_t *len)
{
	const char *at = (const char *)NLMSG_DATA(h) + NLMSG_ALIGN(skip);
	size_t begin = NLMSG_LENGTH(NLMSG_ALIGN(skip));
	int left = h->nlmsg_len > begin ? (int)(h->nlmsg_len - begin) : 0;
	const void *found = NULL;

	for (const struct rtattr *a = (const void *)at; RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type != type || RTA_PAYLOAD(a) < least)
			continue;
		found = RTA_DATA(a);
		*len = RTA_PAYLOAD(a);
	}
	return found;
}
