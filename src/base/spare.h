/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A descriptor in reserve for a listening socket. A process without a free descriptor cannot accept
 * a connection, so the socket stays readable, and a thread that waits for it would be busy until
 * another thread closes something. With the spare descriptor the thread accepts and hangs up.
 * Another thread may take the number of the spare descriptor meanwhile. Then the socket must rest
 * (base/rest.h).
 */
#ifndef ROOST_BASE_SPARE_H
#define ROOST_BASE_SPARE_H

enum spare_result {
	SPARE_ACCEPTED,
	SPARE_NOTHING, /* there is no connection, or its other end has hung up */
	SPARE_REFUSED, /* there is no free descriptor, and this process has hung up */
	SPARE_REST,    /* the connection stays in the queue: the caller does not watch the socket */
};

/* Returns a descriptor that only takes a number, or -errno. */
int spare_open(void);
/*
 * Accepts the oldest connection of a non-blocking socket. *fd is its descriptor, or the -errno of
 * accept4(2); `flags` are those of accept4(2), and SOCK_CLOEXEC is added. If there is no free
 * descriptor, the function uses the spare one. If *spare is negative, it opens the spare descriptor
 * if it can. NULL: the caller has none.
 */
enum spare_result spare_accept(int listener, int flags, int *spare, int *fd);

#endif
