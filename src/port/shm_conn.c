/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"

#define ACCEPT_BATCH  64
#define MAX_HELLO_FDS 4

uint32_t shm_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint32_t)(t.tv_sec * 1000 + t.tv_nsec / 1000000);
}

static int watch(int epfd, uint32_t events, struct shm_end *end)
{
	struct epoll_event ev = {.events = events, .data.ptr = end};

	return sys_epoll_ctl(epfd, EPOLL_CTL_ADD, end->fd, &ev);
}

/*
 * A copy of the descriptor may live in a child that was forked: without the explicit removal epoll would go on
 * reporting it, without the shutdown the peer would not hear of the end.
 */
static void end_close(struct shm_port *s, struct shm_end *end)
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

/* A connection wakes the sleeper by data or hang-up, and the control work by hang-up alone. */
static int watch_connection(struct shm_port *s, struct shm_end *end)
{
	int rc = watch(s->base.fd, EPOLLIN | EPOLLRDHUP, end);

	return rc ? rc : watch(s->base.ctl_fd, EPOLLRDHUP, end);
}

/* The folder's rights keep others out; a descriptor that was handed around would not be stopped by them. */
static bool same_user(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return sys_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && cred.uid == geteuid();
}

int shm_listen(struct shm_port *s)
{
	struct sockaddr_un sa;
	socklen_t len = shm_dir_sockaddr(s->dirfd, s->claim.name, &sa);
	int fd = sys_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return fd;
	s->listen = (struct shm_end){SHM_END_LISTEN, fd};
	rc = sys_bind(fd, (struct sockaddr *)&sa, len);
	if (rc == 0)
		rc = sys_listen(fd, SOMAXCONN);
	if (rc == 0)
		rc = watch(s->base.ctl_fd, EPOLLIN, &s->listen);
	return rc;
}

/* ---- outgoing ---- */

static int send_hello(struct shm_port *s, int fd, int ring_fd, const struct pkt_addr *group)
{
	struct shm_hello hello = {
		.magic = SHM_HELLO_MAGIC,
		.version = SHM_HELLO_VERSION,
		.ring_size = s->ring_size,
		.lane = s->base.lane,
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

/* A socket connected to the peer's lane, or -errno: nobody there. Never waits: a full backlog is as good as absence. */
static int dial(struct shm_port *s, const struct pkt_addr *dst, unsigned lane)
{
	char name[SHM_NAME_MAX];
	struct sockaddr_un sa;
	socklen_t len = shm_dir_sockaddr(s->dirfd, shm_dir_name(dst, lane, name), &sa);
	int fd = sys_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return fd;
	rc = sys_connect(fd, (struct sockaddr *)&sa, len);
	if (rc == 0 && !same_user(fd))
		rc = -EPERM;
	if (rc) {
		sys_close(fd);
		return rc;
	}
	return fd;
}

/* Peers see no more of it than that nobody answers. */
static void say_descriptors(struct shm_port *s, int rc)
{
	if ((rc != -EMFILE && rc != -ENFILE) || s->said_descriptors)
		return;
	s->said_descriptors = true;
	log_error(
		"shm: no file descriptor for a peer's ring: raise the limit (ulimit -n), each peer takes two");
}

static struct shm_tx *tx_make(struct shm_port *s, const struct pkt_addr *dst, unsigned lane,
			      const struct pkt_addr *group)
{
	struct shm_tx *tx;
	int ring_fd, rc;

	if (s->num_tx == SHM_MAX_TX)
		return NULL;
	tx = shm_alloc(sizeof(*tx));
	if (!tx)
		return NULL;
	rc = dial(s, dst, lane);
	if (rc < 0)
		goto free_tx;
	tx->end = (struct shm_end){SHM_END_TX, rc};
	rc = shm_prod_create(s->ring_size, &tx->ring, &ring_fd);
	if (rc)
		goto close_end;
	rc = send_hello(s, tx->end.fd, ring_fd, group);
	sys_close(ring_fd);
	if (rc == 0)
		rc = watch_connection(s, &tx->end);
	if (rc)
		goto unmap;
	tx->dst = *dst;
	tx->group = *group;
	tx->lane = (uint8_t)lane;
	tx->made_ms = tx->check_ms = shm_now_ms();
	list_add_tail(&tx->node, &s->tx);
	s->num_tx++;
	return tx;

unmap:
	shm_prod_unmap(&tx->ring);
close_end:
	end_close(s, &tx->end);
free_tx:
	say_descriptors(s, rc);
	free(tx);
	return NULL;
}

struct shm_tx *shm_tx_get(struct shm_port *s, const struct pkt_addr *dst, unsigned lane,
			  const struct pkt_addr *group)
{
	for (struct list_head *n = s->tx.next; n != &s->tx; n = n->next) {
		struct shm_tx *tx = container_of(n, struct shm_tx, node);

		if (tx->lane == lane && pkt_addr_eq(&tx->dst, dst) && pkt_addr_eq(&tx->group, group))
			return tx;
	}
	return tx_make(s, dst, lane, group);
}

bool shm_connect(struct shm_port *s, struct shm_path *path)
{
	static const struct pkt_addr no_group;
	uint32_t now = shm_now_ms();
	unsigned lanes, lane;

	if (path->tx)
		return true;
	if (path->fanout) {
		shm_fanout_look(s, path);
		return false;
	}
	if ((int32_t)(now - path->retry_ms) < 0)
		return false;
	path->retry_ms = now + path->pause_ms;
	lanes = shm_dir_lanes(s->dirfd, &path->base.dst);
	if (!lanes)
		return false;
	lane = path->lane_key % lanes;
	path->tx = shm_tx_get(s, &path->base.dst, lane, &no_group);
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

void shm_tx_end(struct shm_port *s, struct shm_tx *tx)
{
	uint32_t now = shm_now_ms();
	bool settled = now - tx->made_ms >= SHM_SETTLED_MS;

	for (struct list_head *n = s->paths.next; n != &s->paths; n = n->next) {
		struct shm_path *path = container_of(n, struct shm_path, node);

		if (path->fanout)
			shm_fanout_forget(path, tx);
		if (path->tx != tx)
			continue;
		path->tx = NULL;
		/* Whoever ran well may have been started again; whoever threw us out at once is left alone for longer. */
		if (settled)
			path->pause_ms = SHM_RETRY_MS;
		else if (path->pause_ms < SHM_RETRY_MAX_MS)
			path->pause_ms *= 2;
		path->retry_ms = settled ? now : now + path->pause_ms;
	}
	forget(s->dirty, &s->num_dirty, tx);
	forget(s->unfenced, &s->num_unfenced, tx);
	if (tx->blocked) {
		s->num_blocked--;
		/* A sleeper waits for room in it, and would wait for ever. */
		if (s->armed && !s->forked)
			sys_write(s->kick.fd, &(uint64_t){1}, sizeof(uint64_t));
	}
	if (s->last_tx == tx)
		s->last_tx = NULL;
	list_del(&tx->node);
	s->num_tx--;
	end_close(s, &tx->end);
	/* The packet reserved last may be there, and want its ICRC still. */
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

	/* The last hot one takes its place, and the last cold one takes that one's. */
	if (i < s->num_hot) {
		s->rx[i] = s->rx[--s->num_hot];
		i = s->num_hot;
	}
	s->rx[i] = s->rx[--s->num_rx];
	end_close(s, &rx->end);
	rx->next_dead = s->dead_rx;
	s->dead_rx = rx;
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

/* Receives a hello. Returns 0 and one descriptor, -EAGAIN: not there yet, or -errno: not one of ours. */
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
	return h->magic == SHM_HELLO_MAGIC && h->version == SHM_HELLO_VERSION && h->lane < PORT_MAX_LANES &&
	       memcmp(h->zero, zero, sizeof(h->zero)) == 0 && memcmp(a.b, zero, 16) != 0 &&
	       pkt_addr_is_v4(&a) == pkt_addr_is_v4(&s->base.addr) && !pkt_addr_is_group(&a);
}

/* To whom the packets of the ring are sent: us, or a group that we are a member of. */
static bool hello_dst(const struct shm_port *s, const struct shm_hello *h, struct pkt_addr *dst)
{
	static const struct pkt_addr none;

	memcpy(dst->b, h->group, sizeof(dst->b));
	if (!pkt_addr_eq(dst, &none))
		return shm_is_member(s, dst);
	*dst = s->base.addr;
	return true;
}

/* Who connects to us is there, whatever became of who had its address before: no path to it waits any longer. */
static void welcome(struct shm_port *s, const struct pkt_addr *peer)
{
	for (struct list_head *n = s->paths.next; n != &s->paths; n = n->next) {
		struct shm_path *path = container_of(n, struct shm_path, node);

		if (!path->tx && pkt_addr_eq(&path->base.dst, peer)) {
			path->pause_ms = SHM_RETRY_MS;
			path->retry_ms = shm_now_ms();
		}
	}
}

/* Makes an incoming ring of a connection that said its hello. 0 or -errno. */
static int rx_make(struct shm_port *s, const struct shm_hello *hello, int fd, int ring_fd)
{
	struct pkt_addr dst;
	struct shm_rx *rx;
	int rc;

	if (!hello_ok(s, hello) || !hello_dst(s, hello, &dst))
		return -EPROTO;
	if (s->num_rx == SHM_MAX_RX)
		return -ENOSPC;
	rx = shm_alloc(sizeof(*rx));
	if (!rx)
		return -ENOMEM;
	rc = shm_cons_map(ring_fd, hello->ring_size, &rx->ring);
	if (rc)
		goto free_rx;
	rx->end = (struct shm_end){SHM_END_RX, fd};
	memcpy(rx->src.b, hello->addr, sizeof(rx->src.b));
	rx->dst = dst;
	sys_epoll_ctl(s->base.ctl_fd, EPOLL_CTL_DEL, fd, NULL); /* it may have been pending there */
	rc = watch_connection(s, &rx->end);
	if (rc)
		goto unmap;
	/* In front: the first packets are there already, or about to come. */
	s->rx[s->num_rx++] = s->rx[s->num_hot];
	s->rx[s->num_hot++] = rx;
	welcome(s, &rx->src);
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

/* Reads the hello of a new connection and takes it in. -EAGAIN: no hello yet; else the descriptor is used up. */
static int admit(struct shm_port *s, int fd)
{
	struct shm_hello hello;
	int ring_fd = -1, rc = recv_hello(fd, &hello, &ring_fd);

	if (rc == -EAGAIN)
		return rc;
	if (rc == 0) {
		rc = rx_make(s, &hello, fd, ring_fd);
		sys_close(ring_fd);
	}
	if (rc) {
		s->base.stats.rx_bad++;
		log_debug("shm: a connection was refused: %s", strerror(-rc));
		sys_epoll_ctl(s->base.ctl_fd, EPOLL_CTL_DEL, fd, NULL);
		sys_close(fd);
	}
	return rc;
}

static void pending_add(struct shm_port *s, int fd)
{
	struct shm_end *end = s->num_pending < SHM_MAX_PENDING ? malloc(sizeof(*end)) : NULL;

	if (!end) {
		sys_close(fd);
		return;
	}
	*end = (struct shm_end){SHM_END_PENDING, fd};
	if (watch(s->base.ctl_fd, EPOLLIN | EPOLLRDHUP, end)) {
		sys_close(fd);
		free(end);
		return;
	}
	s->pending[s->num_pending++] = end;
}

static void pending_ready(struct shm_port *s, struct shm_end *end)
{
	unsigned i = 0;

	if (admit(s, end->fd) == -EAGAIN)
		return;
	while (s->pending[i] != end)
		i++;
	s->pending[i] = s->pending[--s->num_pending];
	free(end);
}

/* Out of descriptors, the listener would stay readable and keep the service thread busy: accept with the spare, and hang up. */
static void refuse_one(struct shm_port *s)
{
	int fd;

	if (s->spare_fd >= 0)
		sys_close(s->spare_fd);
	fd = sys_accept4(s->listen.fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		sys_close(fd);
	s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	s->base.stats.rx_bad++;
}

static void accept_all(struct shm_port *s)
{
	for (int i = 0; i < ACCEPT_BATCH; i++) {
		int fd = sys_accept4(s->listen.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd == -EMFILE || fd == -ENFILE) {
			say_descriptors(s, fd);
			refuse_one(s);
			return;
		}
		if (fd == -EAGAIN)
			return;
		if (fd < 0)
			continue; /* whoever called has hung up again */
		if (!same_user(fd)) {
			s->base.stats.rx_bad++;
			sys_close(fd);
		} else if (admit(s, fd) == -EAGAIN) {
			pending_add(s, fd);
		}
	}
}

/* The connection's other side is gone, or it was woken for nothing. */
static void connection_event(struct shm_port *s, struct shm_end *end)
{
	if (shm_take_wakeups(end->fd))
		return;
	if (end->kind == SHM_END_TX) {
		struct shm_tx *tx = container_of(end, struct shm_tx, end);

		shm_hint(s, &tx->dst);
		shm_tx_end(s, tx);
	} else {
		/* What it left in the ring is delivered first; the next burst that finds nothing ends it. */
		struct shm_rx *rx = container_of(end, struct shm_rx, end);

		rx->hung_up = true;
		s->untidy = true;
		end_close(s, end);
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
			due = true; /* last: it makes and frees what other events of this batch may point to */
		else if (end->kind == SHM_END_PENDING)
			pending_ready(s, end);
		else
			connection_event(s, end);
	}
	if (due)
		accept_all(s);
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

		end_close(s, end);
		free(end);
	}
	end_close(s, &s->listen);
	end_close(s, &s->kick);
}
