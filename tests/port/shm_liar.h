/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the tests of hostile shm peers: an endpoint, a correct peer that must still be served,
 * and hellos made by the test.
 */
#ifndef TESTS_PORT_SHM_LIAR_H
#define TESTS_PORT_SHM_LIAR_H

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "shm_rig.h"

#define RING  SHM_RING_MIN
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct stage {
	struct port *hub, *honest;
	struct port_path *path;
	struct shm_claim liar;
	uint64_t sent;
};

/* Checks that the correct peer is still served. */
static inline void still_serves(struct stage *s)
{
	srig_send_now(s->honest, s->path, s->sent);

	struct port_pkt pkt = srig_next(s->hub);

	srig_check(&pkt, s->sent++);
	assert_int_equal(shm_of(s->honest)->num_tx, 1);
}

static inline struct stage open_stage(void)
{
	struct stage s = {.hub = srig_open("10.0.0.1", 0), .honest = srig_open("10.0.0.2", 0)};

	s.liar = srig_claim("10.0.0.66");
	s.path = s.honest->ops->path_get(s.honest, &s.hub->addr, 0);
	still_serves(&s);
	return s;
}

static inline void close_stage(struct stage *s)
{
	close(s->liar.lock_fd);
	port_close(s->honest);
	port_close(s->hub);
}

static inline int dial_hub(void)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/10.0.0.1.0", srig_dir);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static inline struct shm_hello good_hello(void)
{
	struct shm_hello h = {
		.magic = SHM_HELLO_MAGIC, .version = SHM_HELLO_VERSION, .ring_size = RING};
	struct pkt_addr a = srig_addr("10.0.0.66");

	memcpy(h.addr, a.b, 16);
	return h;
}

static inline int ring_fd(off_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, bytes), 0);
	assert_int_equal(fallocate(fd, 0, 0, SHM_RING_OVERHEAD + RING), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* Sends bytes with `num` copies of a descriptor, then closes the descriptor. */
static inline void say(int fd, const void *bytes, size_t len, int pass, int num)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(8 * sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)(uintptr_t)bytes, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (num) {
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE((size_t)num * sizeof(int));

		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)num * sizeof(int));
		for (int i = 0; i < num; i++)
			memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &pass, sizeof(int));
	}
	assert_int_equal(sendmsg(fd, &msg, MSG_NOSIGNAL), (ssize_t)len);
	if (pass >= 0)
		close(pass);
}

static inline int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) != -1;
	return n;
}

static inline bool hung_up(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_DONTWAIT) == 0;
}

/*
 * Checks that the hub refuses the connection's input: it hangs up, counts, and keeps no descriptor.
 */
static inline void expect_refused(struct stage *s, int fd, const char *what)
{
	uint64_t bad = s->hub->stats.rx_bad;
	unsigned rings = shm_of(s->hub)->num_rx;

	s->hub->ops->control(s->hub);
	if (!hung_up(fd))
		fail_msg("%s: accepted", what);
	assert_int_equal(s->hub->stats.rx_bad, bad + 1);
	assert_int_equal(shm_of(s->hub)->num_rx, rings);
	close(fd);
}

#endif
