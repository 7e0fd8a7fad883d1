/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/spare.h"
#include "base/sys.h"

uint32_t shm_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint32_t)(t.tv_sec * 1000 + t.tv_nsec / 1000000);
}

int shm_watch(int epfd, uint32_t events, struct shm_end *end)
{
	struct epoll_event ev = {.events = events, .data.ptr = end};

	return sys_epoll_ctl(epfd, EPOLL_CTL_ADD, end->fd, &ev);
}

/*
 * A forked child may have a copy of the descriptor. Without the explicit removal epoll would still
 * report it, and without the shutdown the peer would not notice the end.
 */
void shm_end_close(struct shm_port *s, struct shm_end *end)
{
	if (end->fd < 0)
		return;
	if (!s->forked) {
		sys_epoll_ctl(s->base.fd, EPOLL_CTL_DEL, end->fd, NULL);
		sys_epoll_ctl(s->base.ctl_fd, EPOLL_CTL_DEL, end->fd, NULL);
		sys_shutdown(end->fd, SHUT_RDWR);
	}
	sys_close(end->fd);
	end->fd = -1;
}

int shm_watch_connection(struct shm_port *s, struct shm_end *end)
{
	int rc = shm_watch(s->base.fd, EPOLLIN | EPOLLRDHUP, end);

	return rc ? rc : shm_watch(s->base.ctl_fd, EPOLLRDHUP, end);
}

/* The folder's rights keep other users out, but a process may have passed a descriptor on. */
bool shm_same_user(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return sys_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 &&
	       cred.uid == geteuid();
}

int shm_listen(struct shm_port *s)
{
	struct sockaddr_un sa;
	socklen_t len = shm_sockaddr(s, &s->base.addr, shm_lane(s), &sa);
	int fd = sys_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return fd;
	s->listen = (struct shm_end){SHM_END_LISTEN, fd};
	rc = sys_bind(fd, (struct sockaddr *)&sa, len);
	if (rc == 0)
		rc = sys_listen(fd, SOMAXCONN);
	if (rc == 0)
		rc = shm_watch(s->base.ctl_fd, EPOLLIN, &s->listen);
	return rc;
}

/* ---- outgoing ---- */

static int send_hello(struct shm_port *s, const struct shm_peer *to, int fd, int ring_fd,
		      uint32_t ring_size, const struct pkt_addr *group)
{
	struct shm_hello hello = {
		.magic = SHM_HELLO_MAGIC,
		.version = SHM_HELLO_VERSION,
		.ring_size = ring_size,
		.lane = shm_lane(s),
		.owner = s->owner,
		.to_owner = to->owner,
	};
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {&hello, sizeof(hello)};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	ssize_t n;

	memcpy(hello.addr, s->base.addr.b, sizeof(hello.addr));
	memcpy(hello.group, group->b, sizeof(hello.group));
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &ring_fd, sizeof(int));
	n = sys_sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n == sizeof(hello) ? 0 : n < 0 ? (int)n : -EIO;
}

/*
 * Returns a socket connected to the lane of the peer, or -errno if the peer is absent. It never
 * blocks: a full backlog counts as absence.
 */
static int dial(struct shm_port *s, const struct shm_peer *to)
{
	struct sockaddr_un sa;
	socklen_t len = shm_sockaddr(s, &to->addr, to->lane, &sa);
	int fd = sys_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return fd;
	rc = sys_connect(fd, (struct sockaddr *)&sa, len);
	if (rc == 0 && !shm_same_user(fd))
		rc = -EPERM;
	if (rc) {
		sys_close(fd);
		return rc;
	}
	return fd;
}

void shm_log_limit(struct shm_port *s, int rc)
{
	if ((rc == -EMFILE || rc == -ENFILE) && !s->logged_descriptors) {
		s->logged_descriptors = true;
		log_error(
			"shm: no file descriptor for a peer's ring: raise the limit (ulimit -n); each peer takes two");
	} else if (rc == -ENOMEM && !s->logged_memory) {
		s->logged_memory = true;
		log_error(
			"shm: no memory for a peer's ring: raise the limit (ulimit -v, or the container's), or choose shorter rings (ring=)");
	}
}

/*
 * Makes a ring of *size bytes, or of fewer if memory is short. Its descriptor is needed only until
 * the hello is sent, so the spare one may be used.
 */
static int make_ring(struct shm_port *s, uint32_t *size, struct shm_prod *ring, int *fd)
{
	for (;;) {
		int rc = shm_prod_create(*size, ring, fd);

		if ((rc == -ENOMEM || rc == -EFBIG) && *size > SHM_RING_MIN) {
			*size /= 2;
		} else if (rc == -EMFILE && s->spare_fd >= 0) {
			sys_close(s->spare_fd);
			s->spare_fd = -1;
		} else {
			return rc;
		}
	}
}

/* Closes the descriptor that was kept for the ring back to this peer, which now needs it. */
static void release_return_fd(struct shm_port *s, const struct shm_peer *to)
{
	for (unsigned i = 0; i < s->num_rx; i++) {
		struct shm_rx *rx = s->rx[i];

		if (rx->return_fd >= 0 && shm_peer_eq(&rx->from, to)) {
			sys_close(rx->return_fd);
			rx->return_fd = -1;
		}
	}
}

int shm_try_ring(void)
{
	struct shm_prod ring;
	int fd, rc = shm_prod_create(SHM_RING_MIN, &ring, &fd);

	if (rc == 0) {
		shm_prod_unmap(&ring);
		sys_close(fd);
	}
	return rc;
}

static struct shm_tx *tx_make(struct shm_port *s, const struct shm_peer *to,
			      const struct pkt_addr *group, uint32_t ring_size)
{
	uint32_t most;
	struct shm_tx *tx;
	int ring_fd, rc;

	if (s->num_tx == SHM_MAX_TX || shm_find_ring(s, to, &most))
		return NULL;
	if (ring_size > most)
		ring_size = most;
	tx = shm_alloc(sizeof(*tx));
	if (!tx) {
		shm_log_limit(s, -ENOMEM);
		return NULL;
	}
	release_return_fd(s, to);
	rc = dial(s, to);
	if (rc < 0)
		goto free_tx;
	tx->end = (struct shm_end){SHM_END_TX, rc};
	rc = make_ring(s, &ring_size, &tx->ring, &ring_fd);
	if (rc)
		goto close_end;
	rc = send_hello(s, to, tx->end.fd, ring_fd, ring_size, group);
	sys_close(ring_fd);
	if (s->spare_fd < 0)
		s->spare_fd = spare_open();
	if (rc == 0)
		rc = shm_watch_connection(s, &tx->end);
	if (rc)
		goto unmap;
	tx->to = *to;
	tx->group = *group;
	tx->made_ms = tx->check_ms = shm_now_ms();
	list_add_tail(&tx->node, &s->tx);
	s->num_tx++;
	return tx;

unmap:
	shm_prod_unmap(&tx->ring);
close_end:
	shm_end_close(s, &tx->end);
free_tx:
	shm_log_limit(s, rc);
	free(tx);
	return NULL;
}

struct shm_tx *shm_tx_find(const struct shm_port *s, const struct shm_peer *peer,
			   const struct pkt_addr *group)
{
	for (struct list_head *n = s->tx.next; n != &s->tx; n = n->next) {
		struct shm_tx *tx = container_of(n, struct shm_tx, node);

		if (shm_peer_eq(&tx->to, peer) && pkt_addr_eq(&tx->group, group))
			return tx;
	}
	return NULL;
}

struct shm_tx *shm_tx_get(struct shm_port *s, const struct shm_peer *peer,
			  const struct pkt_addr *group, uint32_t ring_size)
{
	struct shm_tx *tx = shm_tx_find(s, peer, group);

	return tx ? tx : tx_make(s, peer, group, ring_size);
}

bool shm_connect(struct shm_port *s, struct shm_path *path)
{
	static const struct pkt_addr no_group;
	uint32_t now = shm_now_ms();
	struct shm_peer peer;

	if (path->tx)
		return true;
	if (path->fanout) {
		shm_fanout_update(s, path);
		return false;
	}
	if ((int32_t)(now - path->retry_ms) < 0)
		return false;
	path->retry_ms = now + path->pause_ms;
	if (shm_find(s, path, &peer))
		return false;
	path->tx = shm_tx_get(s, &peer, &no_group, path->ring_size);
	if (!path->tx)
		return false;
	path->tx->refs++;
	return true;
}

static void forget(struct shm_tx **list, unsigned *n, const struct shm_tx *tx)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < *n; i++) {
		if (list[i] != tx)
			list[kept++] = list[i];
	}
	*n = kept;
}

/*
 * Sets the time of the next attempt. A peer that ran for a while may have been restarted. A peer
 * that refused the connection gets longer pauses and a shorter ring.
 */
static void reconnect_later(struct shm_port *s, struct shm_path *path, bool settled)
{
	uint32_t now = shm_now_ms();

	if (settled) {
		path->pause_ms = SHM_RETRY_MS;
		path->ring_size = s->ring_size;
	} else {
		if (path->pause_ms < SHM_RETRY_MAX_MS)
			path->pause_ms *= 2;
		if (path->ring_size > SHM_RING_MIN)
			path->ring_size /= 2;
	}
	if (!path->fanout)
		path->retry_ms = settled ? now : now + path->pause_ms;
}

void shm_tx_end(struct shm_port *s, struct shm_tx *tx)
{
	bool settled = shm_now_ms() - tx->made_ms >= SHM_SETTLED_MS;

	for (struct list_head *n = s->paths.next; n != &s->paths; n = n->next) {
		struct shm_path *path = container_of(n, struct shm_path, node);

		if (path->fanout ? !shm_fanout_forget(path, tx) : path->tx != tx)
			continue;
		path->tx = NULL;
		reconnect_later(s, path, settled);
	}
	forget(s->dirty, &s->num_dirty, tx);
	forget(s->unfenced, &s->num_unfenced, tx);
	if (tx->blocked) {
		s->num_blocked--;
		/* A sleeper that waits for space in this ring must wake up. */
		if (s->armed && !s->forked)
			sys_write(s->kick.fd, &(uint64_t){1}, sizeof(uint64_t));
	}
	if (s->last_tx == tx)
		s->last_tx = NULL;
	list_del(&tx->node);
	s->num_tx--;
	shm_end_close(s, &tx->end);
	/* The memory stays mapped: the last reservation may be in this ring and lack its ICRC. */
	tx->next_dead = s->dead_tx;
	s->dead_tx = tx;
}

void shm_free_dead_tx(struct shm_port *s)
{
	while (s->dead_tx) {
		struct shm_tx *tx = s->dead_tx;

		s->dead_tx = tx->next_dead;
		shm_prod_unmap(&tx->ring);
		free(tx);
	}
}

/* ---- incoming ---- */

void shm_rx_end(struct shm_port *s, unsigned i)
{
	struct shm_rx *rx = s->rx[i];

	/*
	 * The last hot ring moves to the free place, and the last cold ring to the place of that
	 * hot ring.
	 */
	if (i < s->num_hot) {
		s->rx[i] = s->rx[--s->num_hot];
		i = s->num_hot;
	}
	s->rx[i] = s->rx[--s->num_rx];
	s->rx_bytes -= rx->ring.size;
	if (rx->return_fd >= 0)
		sys_close(rx->return_fd);
	shm_end_close(s, &rx->end);
	rx->next_dead = s->dead_rx;
	s->dead_rx = rx;
	shm_publish_ring(s);
}

void shm_free_dead_rx(struct shm_port *s)
{
	while (s->dead_rx) {
		struct shm_rx *rx = s->dead_rx;

		s->dead_rx = rx->next_dead;
		shm_cons_unmap(&rx->ring);
		free(rx);
	}
}

/* Ends a connection whose other side is gone; ignores a stale wake-up. */
static void connection_event(struct shm_port *s, struct shm_end *end)
{
	if (shm_take_wakeups(end->fd))
		return;
	if (end->kind == SHM_END_TX) {
		struct shm_tx *tx = container_of(end, struct shm_tx, end);

		shm_hint(s, &tx->to);
		shm_tx_end(s, tx);
	} else {
		/*
		 * Packets left in the ring are delivered first. The next burst that finds none ends
		 * the connection.
		 */
		struct shm_rx *rx = container_of(end, struct shm_rx, end);

		rx->hung_up = true;
		s->untidy = true;
		shm_end_close(s, end);
		if (s->armed)
			sys_write(s->kick.fd, &(uint64_t){1}, sizeof(uint64_t));
	}
}

void shm_control(struct port *p)
{
	struct shm_port *s = shm_of(p);
	struct epoll_event evs[32];
	bool due = false;
	int n = sys_epoll_wait(p->ctl_fd, evs, 32, 0);

	for (int i = 0; i < n; i++) {
		struct shm_end *end = evs[i].data.ptr;

		if (end->kind == SHM_END_LISTEN)
			/*
			 * handled last: it makes and frees objects to which other events of this
			 * batch may point
			 */
			due = true;
		else if (end->kind == SHM_END_PENDING)
			shm_pending_ready(s, end);
		else
			connection_event(s, end);
	}
	p->rests = due && !shm_accept_all(s);
}

void shm_drain(struct shm_port *s)
{
	struct epoll_event evs[32];
	int n = sys_epoll_wait(s->base.fd, evs, 32, 0);
	uint64_t count;

	for (int i = 0; i < n; i++) {
		struct shm_end *end = evs[i].data.ptr;

		if (end->kind == SHM_END_KICK)
			sys_read(end->fd, &count, sizeof(count));
		else
			connection_event(s, end);
	}
}

void shm_close_all(struct shm_port *s)
{
	while (!list_empty(&s->tx))
		shm_tx_end(s, container_of(s->tx.next, struct shm_tx, node));
	while (s->num_rx)
		shm_rx_end(s, s->num_rx - 1);
	shm_free_dead_tx(s);
	shm_free_dead_rx(s);
	while (s->num_pending) {
		struct shm_end *end = s->pending[--s->num_pending];

		shm_end_close(s, end);
		free(end);
	}
	shm_end_close(s, &s->listen);
	shm_end_close(s, &s->kick);
}
