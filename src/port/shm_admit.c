/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections from peers: they are accepted, their hellos are checked, and their rings are mapped
 * (shm.h).
 */
#include "port/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/spare.h"
#include "base/sys.h"

#define ACCEPT_BATCH  64
#define MAX_HELLO_FDS 4

/*
 * Receives a hello. Returns 0 and one descriptor, -EAGAIN (the hello has not come yet), or another
 * -errno (it is invalid).
 */
static int recv_hello(int fd, struct shm_hello *hello, int *ring_fd)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(MAX_HELLO_FDS * sizeof(int))];
	} control;
	struct iovec iov = {hello, sizeof(*hello)};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	int fds[MAX_HELLO_FDS], num = 0;
	ssize_t n = sys_recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return (int)n;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		size_t bytes = c->cmsg_len - CMSG_LEN(0);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < bytes / sizeof(int) && num < MAX_HELLO_FDS; i++, num++)
			memcpy(&fds[num], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	}
	if (n == sizeof(*hello) && num == 1 && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		*ring_fd = fds[0];
		return 0;
	}
	for (int i = 0; i < num; i++)
		sys_close(fds[i]);
	return -EPROTO;
}

static bool hello_ok(const struct shm_port *s, const struct shm_hello *h)
{
	static const uint8_t zero[16];
	struct pkt_addr a;

	memcpy(a.b, h->addr, sizeof(a.b));
	return h->magic == SHM_HELLO_MAGIC && h->version == SHM_HELLO_VERSION &&
	       h->lane < (s->pool ? POOL_SLOTS : PORT_MAX_LANES) && h->to_owner == s->owner &&
	       memcmp(h->zero, zero, sizeof(h->zero)) == 0 && memcmp(a.b, zero, 16) != 0 &&
	       pkt_addr_is_v4(&a) == pkt_addr_is_v4(&s->base.addr) && !pkt_addr_is_group(&a);
}

/*
 * Finds the destination of the packets of the ring: the address of this port, or a group that it
 * has joined.
 */
static bool hello_dst(const struct shm_port *s, const struct shm_hello *h, struct pkt_addr *dst)
{
	static const struct pkt_addr none;

	memcpy(dst->b, h->group, sizeof(dst->b));
	if (!pkt_addr_eq(dst, &none))
		return shm_is_member(s, dst);
	*dst = s->base.addr;
	return true;
}

/*
 * Makes paths to this peer stop waiting. It exists, because it connects; an earlier holder of its
 * address does not matter.
 */
static void retry_paths(struct shm_port *s, const struct pkt_addr *peer)
{
	for (struct list_head *n = s->paths.next; n != &s->paths; n = n->next) {
		struct shm_path *path = container_of(n, struct shm_path, node);

		if (!path->tx && pkt_addr_eq(&path->base.dst, peer)) {
			path->pause_ms = SHM_RETRY_MS;
			path->ring_size = s->ring_size;
			path->retry_ms = shm_now_ms();
		}
	}
}

static struct shm_peer hello_from(const struct shm_hello *h)
{
	struct shm_peer from = {.owner = h->owner, .lane = h->lane};

	memcpy(from.addr.b, h->addr, sizeof(from.addr.b));
	return from;
}

/*
 * Ends the older ring of a sender that connects again: it has one ring to this port, and one for
 * each group. Packets in the old ring are still delivered.
 */
static void end_older(struct shm_port *s, const struct shm_peer *from, const struct pkt_addr *dst)
{
	for (unsigned i = 0; i < s->num_rx; i++) {
		struct shm_rx *rx = s->rx[i];

		if (shm_peer_eq(&rx->from, from) && pkt_addr_eq(&rx->dst, dst)) {
			rx->hung_up = s->untidy = true;
			shm_end_close(s, &rx->end);
		}
	}
}

/* Returns true if a ring back to the sender will be needed and does not exist yet. */
static bool needs_return_ring(const struct shm_port *s, const struct shm_rx *rx)
{
	static const struct pkt_addr no_group;

	return pkt_addr_eq(&rx->dst, &s->base.addr) && !shm_tx_find(s, &rx->from, &no_group);
}

/*
 * Makes an incoming ring of a connection whose hello was read. Returns 0 or -errno. If a ring back
 * to the sender is needed, the function keeps *ring_fd for it and sets it to -1. Otherwise
 * connecting peers would use up the last descriptors, and none of them would get an answer.
 */
static int rx_make(struct shm_port *s, const struct shm_hello *hello, int fd, int *ring_fd)
{
	struct shm_peer from = hello_from(hello);
	struct pkt_addr dst;
	struct shm_rx *rx;
	int rc;

	if (!hello_ok(s, hello) || !hello_dst(s, hello, &dst))
		return -EPROTO;
	if (!shm_is_owner(s, &from, fd))
		return -EPERM;
	if (hello->ring_size > s->ring_size)
		return -EMSGSIZE;
	end_older(s, &from, &dst);
	if (s->num_rx == SHM_MAX_RX || (s->num_rx && s->rx_bytes + hello->ring_size > SHM_RX_BYTES))
		return -ENOSPC;
	rx = shm_alloc(sizeof(*rx));
	if (!rx)
		return -ENOMEM;
	rc = shm_cons_map(*ring_fd, hello->ring_size, &rx->ring);
	if (rc)
		goto free_rx;
	rx->end = (struct shm_end){SHM_END_RX, fd};
	rx->from = from;
	rx->dst = dst;
	rx->return_fd = -1;
	/* its hello may have been awaited there */
	sys_epoll_ctl(s->base.ctl_fd, EPOLL_CTL_DEL, fd, NULL);
	rc = shm_watch_connection(s, &rx->end);
	if (rc)
		goto unmap;
	if (needs_return_ring(s, rx)) {
		rx->return_fd = *ring_fd;
		*ring_fd = -1;
	}
	/* The ring starts hot, because its first packets are there or will come soon. */
	s->rx[s->num_rx++] = s->rx[s->num_hot];
	s->rx[s->num_hot++] = rx;
	s->rx_bytes += rx->ring.size;
	retry_paths(s, &from.addr);
	shm_publish_ring(s);
	if (s->armed) {
		atomic_store_explicit(&rx->ring.ctl->sleeping, 1, memory_order_relaxed);
		shm_fence();
		if (shm_cons_look(&rx->ring))
			sys_write(s->kick.fd, &(uint64_t){1}, sizeof(uint64_t));
	}
	return 0;

unmap:
	sys_epoll_ctl(s->base.fd, EPOLL_CTL_DEL, fd, NULL);
	shm_cons_unmap(&rx->ring);
free_rx:
	free(rx);
	return rc;
}

/*
 * Reads the hello of a new connection and admits it. Returns -EAGAIN if there is no hello yet; in
 * all other cases the descriptor is consumed.
 */
static int admit(struct shm_port *s, int fd)
{
	struct shm_hello hello;
	int ring_fd = -1, rc = recv_hello(fd, &hello, &ring_fd);

	if (rc == -EAGAIN)
		return rc;
	if (rc == 0) {
		rc = rx_make(s, &hello, fd, &ring_fd);
		if (ring_fd >= 0)
			sys_close(ring_fd);
	}
	if (rc) {
		s->base.stats.rx_bad++;
		shm_log_limit(s, rc);
		shm_publish_ring(s);
		log_debug("shm: a connection was refused: %s", strerror(-rc));
		sys_epoll_ctl(s->base.ctl_fd, EPOLL_CTL_DEL, fd, NULL);
		sys_close(fd);
	}
	return rc;
}

/* Frees entry `i`. The entries stay in the order in which they came. */
static void pending_remove(struct shm_port *s, unsigned i)
{
	free(s->pending[i]);
	s->num_pending--;
	memmove(&s->pending[i], &s->pending[i + 1], (s->num_pending - i) * sizeof(s->pending[0]));
}

void shm_pending_ready(struct shm_port *s, struct shm_end *end)
{
	unsigned i = 0;

	if (admit(s, end->fd) == -EAGAIN)
		return;
	while (s->pending[i] != end)
		i++;
	pending_remove(s, i);
}

/*
 * Ends the oldest connection without a hello. A peer sends its hello soon after it has connected,
 * so idle connections must not keep new ones out.
 */
static void end_oldest(struct shm_port *s)
{
	shm_pending_ready(s, s->pending[0]); /* the hello may have come since */
	if (s->num_pending < SHM_MAX_PENDING)
		return;
	s->base.stats.rx_bad++;
	shm_end_close(s, s->pending[0]);
	pending_remove(s, 0);
}

/*
 * Keeps a connection until its hello comes. No event of an earlier connection may be left to
 * handle, because its entry may be freed.
 */
static void pending_add(struct shm_port *s, int fd)
{
	struct shm_end *end;

	if (s->num_pending == SHM_MAX_PENDING)
		end_oldest(s);
	end = malloc(sizeof(*end));
	if (!end) {
		sys_close(fd);
		return;
	}
	*end = (struct shm_end){SHM_END_PENDING, fd};
	if (shm_watch(s->base.ctl_fd, EPOLLIN | EPOLLRDHUP, end)) {
		sys_close(fd);
		free(end);
		return;
	}
	s->pending[s->num_pending++] = end;
}

bool shm_accept_all(struct shm_port *s)
{
	for (int i = 0; i < ACCEPT_BATCH; i++) {
		enum spare_result result;
		int fd;

		result = spare_accept(s->listen.fd, SOCK_NONBLOCK, &s->spare_fd, &fd);
		if (result != SPARE_ACCEPTED) {
			shm_log_limit(s, fd);
			s->base.stats.rx_bad += result == SPARE_REFUSED;
			return result != SPARE_REST;
		}
		if (!shm_same_user(fd)) {
			s->base.stats.rx_bad++;
			sys_close(fd);
		} else if (admit(s, fd) == -EAGAIN) {
			pending_add(s, fd);
		}
	}
	return true;
}
