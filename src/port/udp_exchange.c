/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sends a datagram and receives one in one system call, by io_uring. Where a system call takes
 * 1.1 us, this saves 1 us of the 6.5 of both calls. Both requests have MSG_DONTWAIT, so they end
 * within the call, and any thread that owns the port may make it.
 *
 * The received datagram stays in a spare buffer, because the buffers of the last burst are in use
 * until the next one. Nothing wakes a sleeper for it. So there is no exchange while a thread sleeps
 * on the port, and udp_arm() fails while such a datagram is there.
 *
 * When a ring is closed, Linux interrupts the threads that have used it: their epoll_wait(2) ends
 * with EINTR (io_ring_exit_work() in io_uring/io_uring.c). So a port opens its ring at its first
 * exchange, which most programs never make, and closes it at the end.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "port/udp.h"

enum request { SEND, RECEIVE, REQUESTS };

static void disable(struct udp_exchange *x, int rc)
{
	x->disabled = true;
	log_info("udp: no io_uring (%s): a flush and a look are two system calls", strerror(-rc));
}

/* Since Linux 5.12 requests may have control data. IORING_FEAT_LINKED_FILE is from 5.18. */
static bool is_open(struct udp_exchange *x)
{
	int rc;

	if (likely(x->ring.fd >= 0))
		return true;
	rc = uring_open(&x->ring, REQUESTS, IORING_FEAT_LINKED_FILE);
	if (rc)
		disable(x, rc);
	return !rc;
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

static bool lacks_memory(int rc)
{
	return rc == -EAGAIN || rc == -EBUSY || rc == -EINTR || rc == -ENOMEM;
}

static size_t bytes_of(const struct msghdr *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->msg_iovlen; i++)
		n += m->msg_iov[i].iov_len;
	return n;
}

bool udp_exchange(struct udp_port *u, int sock, struct msghdr *m)
{
	struct udp_exchange *x = &u->exchange;
	int32_t result[REQUESTS] = {-EAGAIN, -EAGAIN};
	int n;

	if (!x->suits || x->disabled || !exchange_pays(&x->history) ||
	    bytes_of(m) > EXCHANGE_BYTES || !udp_rx_may_receive(u) || !is_open(x))
		return false;
	push(&x->ring, SEND, IORING_OP_SENDMSG, sock, m);
	push(&x->ring, RECEIVE, IORING_OP_RECVMSG, u->sock, udp_rx_spare(u));
	n = uring_enter(&x->ring, 0);
	if (unlikely(n < REQUESTS))
		uring_unqueue(&x->ring);
	if (unlikely(n < 0 && !lacks_memory(n)))
		disable(x, n);
	take(&x->ring, n, result);
	udp_rx_ahead(u, result[RECEIVE]);
	exchange_done(&x->history, result[RECEIVE] >= 0);
	/* An error of an earlier packet may be in the queue of errors (udp_err.c). */
	u->error_pending |= result[SEND] < 0;
	return result[SEND] >= 0;
}
