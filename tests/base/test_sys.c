/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The raw calls work, fail with -errno, do not change errno, and call no function of libc: this
 * program defines its own socket(), sendmsg() and so on, as a preloaded library would, and none of
 * them may be called.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/sys.h"

#define UNTOUCHED 4711 /* an errno that no call gives */

static unsigned captured;

#define CAPTURE(ret, name, ...)                                                                    \
	ret name(__VA_ARGS__);                                                                     \
	ret name(__VA_ARGS__)                                                                      \
	{                                                                                          \
		captured++;                                                                        \
		return -1;                                                                         \
	}

CAPTURE(int, socket, int d, int t, int p)
CAPTURE(int, bind, int fd, const struct sockaddr *a, socklen_t l)
CAPTURE(int, listen, int fd, int n)
CAPTURE(int, connect, int fd, const struct sockaddr *a, socklen_t l)
CAPTURE(int, accept4, int fd, struct sockaddr *a, socklen_t *l, int f)
CAPTURE(ssize_t, sendmsg, int fd, const struct msghdr *m, int f)
CAPTURE(ssize_t, recvmsg, int fd, struct msghdr *m, int f)
CAPTURE(int, sendmmsg, int fd, struct mmsghdr *m, unsigned n, int f)
CAPTURE(int, getsockname, int fd, struct sockaddr *a, socklen_t *l)
CAPTURE(int, setsockopt, int fd, int l, int n, const void *v, socklen_t s)
CAPTURE(int, getsockopt, int fd, int l, int n, void *v, socklen_t *s)
CAPTURE(int, ppoll, struct pollfd *f, nfds_t n, const struct timespec *t, const sigset_t *m)

static struct sockaddr_in loopback(void)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int bound(int type, struct sockaddr_in *a)
{
	int fd = sys_socket(AF_INET, type | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*a);

	assert_true(fd >= 0);
	*a = loopback();
	assert_int_equal(sys_bind(fd, (struct sockaddr *)a, sizeof(*a)), 0);
	assert_int_equal(sys_getsockname(fd, (struct sockaddr *)a, &len), 0);
	assert_int_equal(len, sizeof(*a));
	assert_true(a->sin_port != 0);
	return fd;
}

static void datagrams(void **state)
{
	struct sockaddr_in to, from;
	int rx = bound(SOCK_DGRAM, &to), tx = bound(SOCK_DGRAM, &from), size = 100000, got = 0;
	struct iovec iov[3] = {{"one", 3}, {"two!", 4}, {"three", 5}};
	struct mmsghdr out[3] = {0}, in[4] = {0};
	struct pollfd pfd = {.fd = rx, .events = POLLIN};
	socklen_t len = sizeof(got);
	struct iovec riov[4];
	char buf[4][16];

	assert_int_equal(sys_setsockopt(rx, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
	assert_int_equal(sys_getsockopt(rx, SOL_SOCKET, SO_RCVBUF, &got, &len), 0);
	assert_true(got >= size);
	assert_int_equal(sys_ppoll(&pfd, 1, &(struct timespec){0}, NULL), 0);
	for (int i = 0; i < 3; i++)
		out[i].msg_hdr = (struct msghdr){&to, sizeof(to), &iov[i], 1, NULL, 0, 0};
	assert_int_equal(sys_sendmmsg(tx, out, 3, 0), 3);
	assert_int_equal(sys_sendmsg(tx, &out[0].msg_hdr, 0), 3);
	assert_int_equal(sys_sendto(tx, "plain", 5, 0, (struct sockaddr *)&to, sizeof(to)), 5);
	assert_int_equal(sys_ppoll(&pfd, 1, NULL, NULL), 1);

	for (int i = 0; i < 4; i++) {
		riov[i] = (struct iovec){buf[i], sizeof(buf[i])};
		in[i].msg_hdr = (struct msghdr){.msg_iov = &riov[i], .msg_iovlen = 1};
	}
	assert_int_equal(sys_recvmmsg(rx, in, 3, MSG_DONTWAIT), 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(in[i].msg_len, iov[i].iov_len);
		assert_memory_equal(buf[i], iov[i].iov_base, iov[i].iov_len);
	}
	assert_int_equal(sys_recvmsg(rx, &in[3].msg_hdr, 0), 3);
	len = sizeof(to);
	assert_int_equal(sys_recvfrom(rx, buf[0], sizeof(buf[0]), 0, (struct sockaddr *)&to, &len),
			 5);
	assert_int_equal(to.sin_port, from.sin_port);
	assert_int_equal(sys_recvmsg(rx, &in[3].msg_hdr, MSG_DONTWAIT), -EAGAIN);
	assert_int_equal(sys_close(rx), 0);
	assert_int_equal(sys_close(tx), 0);
}

static void files(void **state)
{
	char byte = 1;
	int fd = sys_open("/dev/zero", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_true(sys_fcntl(fd, F_GETFD, 0) & FD_CLOEXEC);
	assert_int_equal(sys_read(fd, &byte, 1), 1);
	assert_int_equal(byte, 0);
	assert_int_equal(sys_close(fd), 0);
	errno = 0;
	assert_int_equal(sys_open("/dev/null/none", O_RDONLY), -ENOTDIR);
	assert_int_equal(errno, 0);
}

static void streams(void **state)
{
	struct sockaddr_in addr, peer;
	socklen_t len = sizeof(peer);
	int lfd = bound(SOCK_STREAM, &addr), c = sys_socket(AF_INET, SOCK_STREAM, 0), s;
	char buf[8];

	assert_int_equal(sys_listen(lfd, 1), 0);
	assert_int_equal(sys_connect(c, (struct sockaddr *)&addr, sizeof(addr)), 0);
	s = sys_accept4(lfd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(s >= 0);
	assert_true(sys_fcntl(s, F_GETFD, 0) & FD_CLOEXEC);
	assert_int_equal(sys_read(s, buf, sizeof(buf)), -EAGAIN);
	assert_int_equal(sys_write(c, "hello", 5), 5);
	assert_int_equal(sys_ppoll(&(struct pollfd){.fd = s, .events = POLLIN}, 1, NULL, NULL), 1);
	assert_int_equal(sys_read(s, buf, sizeof(buf)), 5);
	len = sizeof(peer);
	assert_int_equal(sys_getpeername(c, (struct sockaddr *)&peer, &len), 0);
	assert_int_equal(peer.sin_port, addr.sin_port);
	assert_int_equal(sys_shutdown(c, SHUT_WR), 0);
	assert_int_equal(sys_ppoll(&(struct pollfd){.fd = s, .events = POLLIN}, 1, NULL, NULL), 1);
	assert_int_equal(sys_read(s, buf, sizeof(buf)), 0);
	sys_close(s);
	sys_close(c);
	sys_close(lfd);
}

static void events(void **state)
{
	int ev = sys_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), ep = sys_epoll_create1(EPOLL_CLOEXEC),
	    fds[2], dup;
	struct epoll_event in = {.events = EPOLLIN, .data.u64 = 77}, out[2];
	uint64_t v = 5;

	assert_true(ev >= 0 && ep >= 0);
	assert_int_equal(sys_epoll_ctl(ep, EPOLL_CTL_ADD, ev, &in), 0);
	assert_int_equal(sys_epoll_wait(ep, out, 2, 0), 0);
	assert_int_equal(sys_epoll_wait_ns(ep, out, 2, 0), 0);
	assert_int_equal(sys_epoll_wait_ns(ep, out, 2, 1500000), 0);
	assert_int_equal(sys_write(ev, &v, sizeof(v)), sizeof(v));
	assert_int_equal(sys_epoll_wait(ep, out, 2, -1), 1);
	assert_int_equal(out[0].data.u64, 77);
	assert_int_equal(sys_epoll_wait_ns(ep, out, 2, -1), 1);
	assert_int_equal(sys_read(ev, &v, sizeof(v)), sizeof(v));
	assert_int_equal(v, 5);
	assert_int_equal(sys_read(ev, &v, sizeof(v)), -EAGAIN);

	assert_int_equal(sys_socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
	dup = sys_dup_cloexec(fds[1]);
	assert_true(dup >= 0 && dup != fds[1]);
	assert_true(sys_fcntl(dup, F_GETFD, 0) & FD_CLOEXEC);
	assert_int_equal(sys_write(fds[0], "x", 1), 1);
	assert_int_equal(sys_read(dup, &v, sizeof(v)), 1);
	for (int i = 0; i < 2; i++)
		sys_close(fds[i]);
	sys_close(dup);
	sys_close(ev);
	sys_close(ep);
}

static void errors(void **state)
{
	errno = UNTOUCHED;
	assert_int_equal(sys_socket(AF_INET, 12345, 0), -EINVAL);
	assert_int_equal(sys_close(-1), -EBADF);
	assert_int_equal(sys_sendmsg(-1, &(struct msghdr){0}, 0), -EBADF);
	assert_int_equal(sys_epoll_wait(-1, NULL, 1, 0), -EBADF);
	assert_int_equal(sys_epoll_wait_ns(-1, (struct epoll_event[1]){0}, 1, 0), -EBADF);
	assert_int_equal(errno, UNTOUCHED);
}

static void nothing_was_captured(void **state)
{
	assert_int_equal(captured, 0);
	assert_int_equal(socket(0, 0, 0), -1); /* and it would have been */
	assert_int_equal(captured, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(datagrams), cmocka_unit_test(files),
		cmocka_unit_test(streams),   cmocka_unit_test(events),
		cmocka_unit_test(errors),    cmocka_unit_test(nothing_was_captured),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
