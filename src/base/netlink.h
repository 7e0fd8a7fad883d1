/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads a list from the Linux kernel (netlink(7)): the routes, or the sockets. Any thread. */
#ifndef ROOST_BASE_NETLINK_H
#define ROOST_BASE_NETLINK_H

#include <linux/netlink.h>
#include <stddef.h>

/*
 * Takes a message of the list. Its length is that of its header. Returns 0 to read on, 1 if the
 * rest of the list is not needed, or -errno, which netlink_list() returns.
 */
typedef int netlink_each(void *ctx, const struct nlmsghdr *h);

/*
 * Sends a request, and calls `each` with the messages of the list. `protocol` is that of the
 * socket: NETLINK_ROUTE, NETLINK_SOCK_DIAG. `request` starts with a header whose length, type
 * and flags are set, NLM_F_DUMP among them. Does not wait.
 *
 * Returns 0 after the whole list, or after `each` returned 1. Returns -errno if the list is not
 * known completely: -EINTR if it changed meanwhile, -EPROTO if its end is missing or a message is
 * cut, the error of the Linux kernel, of a system call, or of `each`.
 */
int netlink_list(int protocol, const struct nlmsghdr *request, netlink_each *each, void *ctx);

/*
 * Returns the contents of the attribute `type` in a message, at least `least` bytes, or NULL. Its
 * length is stored in *len. The attributes begin `skip` bytes behind the header of the message. Of
 * several attributes of this type, the last one counts.
 */
const void *netlink_attr(const struct nlmsghdr *h, size_t skip, unsigned type, size_t least,
			 size_t *len);

#endif
