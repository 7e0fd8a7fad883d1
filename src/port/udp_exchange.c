/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sends a datagram and receives one in one system call, by io_uring. Where a system call takes
 * 1.1 us, this saves 1 us of the 6.5 of both calls. Both requests have MSG_DONTWAIT, so they end
 * within the call, and any thread that owns the port may make it.
 *
 * The received datagram stays in a spare buffer, because the buffers of the last burst are in use
 * until the next one. Nothing wakes a sleeper for it, so a flush receives only in a turn that has
 * received packets: after such a turn, a thread looks again or arms the port.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/uring.h"
#include "port/udp.h"

enum request { SEND, RECEIVE, REQUESTS };

void udp_exchange_open(struct udp_port *u)
{
	struct uring *r = calloc(1, sizeof(*r));
	int rc = -ENOMEM;

	/* Since Linux 5.12 requests may have control data. IORING_FEAT_LINKED_FILE is from 5.18. */
	if (r)
		rc = uring_open(r, REQUESTS, IORING_FEAT_LINKED_FILE);
	if (!rc) {
		u->exchange.ring = r;
		return;
	}
	free(r);
	log_info("udp: no io_uring (%s): a flush and a look are two system calls", strerror(-rc));
}

void udp_exchange_close(struct udp_port *u)
{
	if (u->exchange.ring)
		uring_close(u->exchange.ring);
	free(u->exchange.ring);
	u->exchange.ring = NULL;
}

static void push(struct uring *r, enum request i, uint8_t opcode, int sock, struct msghdr *m)
{
	uring_push(r, &(struct io_uring_sqe){.opcode = opcode,
					     .fd = sock,
					     .addr = (uintptr_t)m,
					     .len = 1,
					     .msg_flags = MSG_DONTWAIT,
					     .user_data = i});
}

/* Takes the results of n requests. They are there, unless Linux deferred a request. */
static void take(struct uring *r, int n, int32_t result[REQUESTS])
{
	for (int taken = 0; taken < n;) {
		uint64_t i;
		int32_t rc;

		if (!uring_take(r, &i, &rc)) {
			uring_enter(r, 1);
			continue;
		}
		result[i] = rc;
		taken++;
	}
}

int udp_exchange(struct udp_port *u, int sock, struct msghdr *m)
{
	struct udp_exchange *x = &u->exchange;
	int32_t result[REQUESTS] = {-ENOSYS, -EAGAIN};
	int n;

	if (!x->ring || !x->allowed || !exchange_pays(&x->odds) || !udp_rx_may_receive(u))
		return -ENOSYS;
	x->allowed = false;
	push(x->ring, SEND, IORING_OP_SENDMSG, sock, m);
	push(x->ring, RECEIVE, IORING_OP_RECVMSG, u->sock, udp_rx_spare(u));
	n = uring_enter(x->ring, 0);
	if (unlikely(n < 0)) {
		udp_exchange_close(u);
		return -ENOSYS;
	}
	if (unlikely(n < REQUESTS))
		uring_unqueue(x->ring);
	take(x->ring, n, result);
	udp_rx_ahead(u, result[RECEIVE]);
	exchange_count(&x->odds, result[RECEIVE] >= 0);
	return result[SEND];
}
