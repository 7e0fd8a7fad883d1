/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests between members. A member listens under a name that belongs to its first slot. Other
 * members connect and send a struct ask. The answer is one byte, with or without descriptors. A
 * request goes to all members at once, so a stopped member causes no delay while another member can
 * answer.
 */
#include "pool/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"
#include "packet/headers.h"

/*
 * Descriptors are moved above the numbers that select(2) can handle. The second value is for a low
 * limit.
 */
static const unsigned high[] = {1024, 512};
/* The descriptors above that number that the sockets of many addresses need. */
#define MOST_FDS 4096
#define LOOK_MS	 10 /* the most that a look of struct pool_wait counts */

socklen_t pool_name(struct sockaddr_un *n, enum name_kind kind, unsigned slot)
{
	static const char *const text[NAME_KINDS] = {"claim", "member", "founder", "publisher",
						     "stat"};
	int len;

	memset(n, 0, sizeof(*n));
	n->sun_family = AF_UNIX;
	len = snprintf(n->sun_path + 1, sizeof(n->sun_path) - 1, "roost-pool-%u-%s-%u",
		       (unsigned)geteuid(), text[kind], slot);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

unsigned pool_ring_name(struct sockaddr_un *n, const struct pkt_addr *addr, unsigned slot)
{
	char text[46];
	int len;

	memset(n, 0, sizeof(*n));
	n->sun_family = AF_UNIX;
	len = snprintf(n->sun_path + 1, sizeof(n->sun_path) - 1, "roost-pool-%u-ring-%s-%u",
		       (unsigned)geteuid(), pkt_addr_print(addr, text, sizeof(text)), slot);
	return (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

int pool_bind_name(enum name_kind kind, unsigned slot)
{
	struct sockaddr_un name;
	socklen_t len = pool_name(&name, kind, slot);
	int fd = sys_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return fd;
	rc = sys_bind(fd, (struct sockaddr *)&name, len);
	if (rc) {
		sys_close(fd);
		return rc;
	}
	sys_shutdown(fd, SHUT_RD); /* the socket receives nothing */
	return fd;
}

bool pool_same_user(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !sys_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.uid == geteuid();
}

int pool_connect(enum name_kind kind, int type, unsigned slot)
{
	struct sockaddr_un name;
	socklen_t len = pool_name(&name, kind, slot);
	int fd = sys_socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc;

	if (fd < 0)
		return fd;
	rc = sys_connect(fd, (struct sockaddr *)&name, len);
	if (!rc && !pool_same_user(fd))
		rc = -EPERM;
	if (!rc)
		return fd;
	sys_close(fd);
	return rc;
}

int pool_high(int fd)
{
	for (unsigned i = 0; i < sizeof(high) / sizeof(high[0]); i++) {
		int moved = sys_fcntl(fd, F_DUPFD_CLOEXEC, high[i]);

		if (moved < 0)
			continue;
		sys_close(fd);
		return moved;
	}
	return fd;
}

void pool_raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= MOST_FDS)
		return;
	limit.rlim_cur = limit.rlim_max < MOST_FDS ? limit.rlim_max : MOST_FDS;
	setrlimit(RLIMIT_NOFILE, &limit);
}

uint64_t pool_clock_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void pool_sleep_ms(unsigned ms)
{
	struct timespec ts = {.tv_nsec = ms * 1000000l};

	sys_ppoll(NULL, 0, &ts, NULL);
}

struct pool_wait pool_wait_begin(unsigned ms)
{
	return (struct pool_wait){ms, pool_clock_ms()};
}

unsigned pool_wait_look(struct pool_wait *w)
{
	uint64_t now = pool_clock_ms(), passed = now - w->last;

	if (passed > LOOK_MS)
		passed = LOOK_MS;
	w->last = now;
	w->left -= passed < w->left ? (unsigned)passed : w->left;
	return w->left < LOOK_MS ? w->left : LOOK_MS;
}

int pool_answer(int fd, const int *fds, unsigned n)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(POOL_SLOTS * sizeof(int))];
	} control;
	char byte = 1;
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t rc;

	if (n) {
		memset(&control, 0, sizeof(control));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fds, n * sizeof(int));
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(n * sizeof(int));
	}
	rc = sys_sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	return rc < 0 ? (int)rc : 0;
}

/*
 * Receives an answer. If the answer has `want` descriptors, keeps them and returns their number.
 * Otherwise returns 0 (another number), -EMFILE (some did not fit into the limit of this process),
 * -ECONNRESET (the member has hung up), -EAGAIN (no answer has come yet), or another -errno.
 */
static int receive(int fd, int *fds, unsigned want)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(POOL_SLOTS * sizeof(int))];
	} control;
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof(control)};
	struct cmsghdr *c;
	unsigned n = 0;
	int got[POOL_SLOTS];
	ssize_t rc = sys_recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (rc < 1)
		return !rc ? -ECONNRESET : rc == -EINTR ? -EAGAIN : (int)rc;
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(got, CMSG_DATA(c), n * sizeof(int));
	}
	for (unsigned i = 0; i < n; i++) {
		if (n == want)
			fds[i] = pool_high(got[i]);
		else /* no descriptors left, or an invalid answer */
			sys_close(got[i]);
	}
	if (n != want)
		return m.msg_flags & MSG_CTRUNC ? -EMFILE : 0;
	return (int)n;
}

/*
 * Returns true if the name of a member belongs to this process. Only the first slot of a process
 * has the name. Another thread may claim more slots meanwhile.
 */
static bool is_own(const struct pool *p, unsigned slot)
{
	return p->listener >= 0 && p->slot[0] == slot;
}

/*
 * Sends a request to all members. Returns the number of connections. Sets *unreached to the number
 * of members whose queue of connections is full: a stopped member, for example.
 */
static unsigned send_all(const struct pool *p, const struct ask *ask, struct pollfd at[POOL_SLOTS],
			 unsigned *unreached)
{
	unsigned n = 0;

	*unreached = 0;

	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		int fd = is_own(p, i) ? -1 : pool_connect(NAME_MEMBER, SOCK_SEQPACKET, i);

		if (fd < 0) {
			*unreached += fd == -EAGAIN && !is_own(p, i);
			continue;
		}
		if (sys_sendto(fd, ask, sizeof(*ask), MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) < 0)
			sys_close(fd);
		else
			at[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
	}
	return n;
}

int pool_ask(const struct pool *p, const struct ask *ask, int *fds, unsigned want, unsigned *silent,
	     bool *hung_up)
{
	struct pool_wait wait = pool_wait_begin(ANSWER_MS);
	struct pollfd at[POOL_SLOTS];
	unsigned unreached, n = send_all(p, ask, at, &unreached), left = n, ms;
	int got = 0;

	*hung_up = false;
	while (left && !got && (ms = pool_wait_look(&wait)) != 0) {
		struct timespec ts = {.tv_nsec = ms * 1000000l};

		if (sys_ppoll(at, n, &ts, NULL) < 1)
			continue;
		for (unsigned i = 0; i < n && !got; i++) {
			if (at[i].fd < 0 || !at[i].revents)
				continue;
			got = receive(at[i].fd, fds, want);
			if (got == -EAGAIN) {
				got = 0;
				continue;
			}
			if (got == -ECONNRESET) {
				*hung_up = true;
				got = 0;
			}
			sys_close(at[i].fd);
			at[i].fd = -1;
			left--;
		}
	}
	for (unsigned i = 0; i < n; i++) {
		if (at[i].fd >= 0)
			sys_close(at[i].fd);
	}
	*silent = got ? 0 : left + unreached;
	return got;
}
