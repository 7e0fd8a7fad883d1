/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sleeping and waking without lost wake-ups, and without a fence on the data path.
 *
 * A receiver that goes to sleep sets a flag in each of its rings and looks once more. A sender that
 * publishes reads the flag and writes a byte to the socket if it is set. Each side stores one word
 * and then loads the word of the other, so both need a full fence in between; otherwise both may
 * load the old value. The receiver has its fence in arm(). In the sender a fence would cost most of
 * the rate of small bursts, because it waits until the other core has given up every line of the
 * burst. The sender therefore reads the flag at once without a fence, which nearly always gives the
 * current value; if the receiver sets the flag within about 100 ns, it may not. So the sender marks
 * the ring as "unfenced" and reads the flag again in each rx_burst. It removes the mark after a
 * fence: at the first rx_burst that finds no work and does not follow a flush, or in its own arm().
 * After a flush a port must therefore be armed, or looked at twice. Otherwise the wake-up is lost,
 * and the receiver sleeps until something else wakes it. src/drive does so:
 *
 *	a thread sleeps on the ports		the owner arms them again (keep_armed)
 *	the same, and packets are masked	the program polls, or the service thread looks
 *						within policy_table.mask_most
 *	a program polls				its next polls
 *	the program has just stopped polling	leave_work() looks twice
 *	datagrams of QP 1, outside of a turn	as after a turn (PU_SENT)
 *
 * The other direction is a sender that waits for space. It sets a flag in arm(), which has a fence.
 * The receiver reads the flag in each rx_burst that visits the ring, and after the fence of its own
 * arm().
 */
#include "port/shm.h"

#include <errno.h>

#include "base/sys.h"

/* wake-ups read from a socket at a time; the remaining ones keep it readable */
#define TAKE_MOST 64

static void ring_bell(int fd)
{
	/*
	 * If the socket is full, the bytes in it wake the peer. If it is dead, its hang-up is
	 * noticed.
	 */
	if (fd >= 0)
		sys_sendto(fd, "w", 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

bool shm_take_wakeups(int fd)
{
	char buf[16];

	for (int i = 0; i < TAKE_MOST; i++) {
		ssize_t n = sys_recvfrom(fd, buf, sizeof(buf), MSG_DONTWAIT, NULL, NULL);

		if (n == -EAGAIN || n == -EINTR)
			return true;
		if (n <= 0)
			return false;
	}
	return true;
}

/*
 * Sends a wake-up if the flag is set. The thread that clears the flag sends one byte for one sleep.
 */
static void wake_if(_Atomic uint32_t *flag, int fd)
{
	if (unlikely(atomic_load_explicit(flag, memory_order_relaxed)) &&
	    atomic_exchange_explicit(flag, 0, memory_order_relaxed))
		ring_bell(fd);
}

void shm_wake_receivers(struct shm_port *s, bool fence)
{
	/*
	 * Stored: the descriptors (shm_prod_publish_to). Loaded after the fence: `sleeping`. The
	 * other side of the pair is in shm_arm(). One of the two sees the store of the other.
	 */
	if (fence)
		shm_fence();
	for (unsigned i = 0; i < s->num_unfenced; i++) {
		struct shm_tx *tx = s->unfenced[i];

		wake_if(&tx->ring.ctl->sleeping, tx->end.fd);
		if (fence)
			tx->unfenced = false;
	}
	if (fence)
		s->num_unfenced = 0;
}

void shm_wake_sender(struct shm_rx *rx)
{
	wake_if(&rx->ring.ctl->want_space, rx->end.fd);
}

/*
 * Sets or clears the flags of all rings. Returns true if a peer has cleared a flag: its wake-up has
 * come or will come.
 */
static bool set_flags(struct shm_port *s, uint32_t value)
{
	bool rung = false;

	for (unsigned i = 0; i < s->num_rx; i++)
		rung |= !atomic_exchange_explicit(&s->rx[i]->ring.ctl->sleeping, value,
						  memory_order_relaxed);
	if (!s->num_blocked)
		return rung;
	for (struct list_head *n = s->tx.next; n != &s->tx; n = n->next) {
		struct shm_tx *tx = container_of(n, struct shm_tx, node);

		if (tx->blocked)
			rung |= !atomic_exchange_explicit(&tx->ring.ctl->want_space, value,
							  memory_order_relaxed);
	}
	return rung;
}

/*
 * Returns true if a ring on which reservations failed has space for any packet, or its peer sent
 * invalid data (the next reservation handles that). It reports this once for each ring: if the
 * packets were given up, no reservation follows, and the port could never be armed again. A
 * reservation that fails makes it report the ring again.
 */
static bool space_came_free(struct shm_port *s)
{
	bool found = false;

	if (!s->num_blocked)
		return false;
	for (struct list_head *n = s->tx.next; n != &s->tx; n = n->next) {
		struct shm_tx *tx = container_of(n, struct shm_tx, node);

		if (!tx->blocked ||
		    (!shm_prod_more(&tx->ring, shm_most_size(PKT_MAX_LEN)) && !tx->ring.broken))
			continue;
		tx->blocked = false;
		s->num_blocked--;
		atomic_store_explicit(&tx->ring.ctl->want_space, 0, memory_order_relaxed);
		found = true;
	}
	return found;
}

bool shm_arm(struct port *p)
{
	struct shm_port *s = shm_of(p);
	bool busy = s->num_unreleased || s->num_dirty || s->untidy;

	if (busy)
		return false;
	s->armed = true;
	/*
	 * Stored: `sleeping`, `want_space`. Loaded after the fence: the descriptors, `head`
	 * (below). The other side is in shm_wake_receivers(), and in the arm() of the peer.
	 */
	set_flags(s, 1);
	shm_wake_receivers(s, true);
	for (unsigned i = 0; i < s->num_rx; i++) {
		struct shm_rx *rx = s->rx[i];

		shm_wake_sender(rx);
		busy |= shm_cons_look(&rx->ring) != 0;
	}
	if (busy || space_came_free(s)) {
		s->armed = false;
		set_flags(s, 0);
		return false;
	}
	return true;
}

void shm_disarm(struct port *p, bool woken)
{
	struct shm_port *s = shm_of(p);

	if (s->armed)
		woken |= set_flags(s, 0);
	s->armed = false;
	/* A wake-up after this is stale: it only wakes a thread that finds no packet. */
	if (woken)
		shm_drain(s);
}
