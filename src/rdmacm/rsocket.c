/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calls of <rdma/rsocket.h> on descriptors that are not sockets over RDMA. All descriptors are
 * of this kind here, since rsocket() is a stub. librspreload.so makes these calls for ordinary TCP
 * too: its select() calls rpoll() for any descriptors (librdmacm/preload.c of rdma-core). So each
 * function does the same as the call without the r. It makes the system call itself: librspreload
 * replaces the functions of libc by functions that call these here.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "rdmacm/rdmacm.h"

/* This function is new in rdma-core 65. */
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

/* ---- one socket ---- */

ROOST_EXPORT int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	return (int)syscall(SYS_bind, socket, addr, addrlen);
}

ROOST_EXPORT int rlisten(int socket, int backlog)
{
	return (int)syscall(SYS_listen, socket, backlog);
}

ROOST_EXPORT int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return (int)syscall(SYS_accept, socket, addr, addrlen);
}

ROOST_EXPORT int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	return (int)syscall(SYS_connect, socket, addr, addrlen);
}

ROOST_EXPORT int rshutdown(int socket, int how)
{
	return (int)syscall(SYS_shutdown, socket, how);
}

ROOST_EXPORT int rclose(int socket)
{
	return (int)syscall(SYS_close, socket);
}

ROOST_EXPORT int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return (int)syscall(SYS_getpeername, socket, addr, addrlen);
}

ROOST_EXPORT int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return (int)syscall(SYS_getsockname, socket, addr, addrlen);
}

ROOST_EXPORT int rsetsockopt(int socket, int level, int optname, const void *optval,
			     socklen_t optlen)
{
	return (int)syscall(SYS_setsockopt, socket, level, optname, optval, optlen);
}

ROOST_EXPORT int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen)
{
	return (int)syscall(SYS_getsockopt, socket, level, optname, optval, optlen);
}

ROOST_EXPORT int rfcntl(int socket, int cmd, ...)
{
	va_list args;
	long arg;

	va_start(args, cmd);
	arg = va_arg(args, long);
	va_end(args);
	return (int)syscall(SYS_fcntl, socket, cmd, arg);
}

/* ---- data ---- */

ROOST_EXPORT ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	return syscall(SYS_recvfrom, socket, buf, len, flags, NULL, NULL);
}

ROOST_EXPORT ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags,
			       struct sockaddr *src_addr, socklen_t *addrlen)
{
	return syscall(SYS_recvfrom, socket, buf, len, flags, src_addr, addrlen);
}

ROOST_EXPORT ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	return syscall(SYS_recvmsg, socket, msg, flags);
}

ROOST_EXPORT ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
	return syscall(SYS_sendto, socket, buf, len, flags, NULL, 0);
}

ROOST_EXPORT ssize_t rsendto(int socket, const void *buf, size_t len, int flags,
			     const struct sockaddr *dest_addr, socklen_t addrlen)
{
	return syscall(SYS_sendto, socket, buf, len, flags, dest_addr, addrlen);
}

ROOST_EXPORT ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	return syscall(SYS_sendmsg, socket, msg, flags);
}

ROOST_EXPORT ssize_t rread(int socket, void *buf, size_t count)
{
	return syscall(SYS_read, socket, buf, count);
}

ROOST_EXPORT ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	return syscall(SYS_readv, socket, iov, iovcnt);
}

ROOST_EXPORT ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return syscall(SYS_write, socket, buf, count);
}

ROOST_EXPORT ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
	return syscall(SYS_writev, socket, iov, iovcnt);
}

/* ---- several descriptors ---- */

ROOST_EXPORT int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	struct timespec t = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000l};

	return (int)syscall(SYS_ppoll, fds, nfds, timeout < 0 ? NULL : &t, NULL, (size_t)_NSIG / 8);
}

/* Leaves the remaining time in `timeout`, as Linux' select(2) does. */
ROOST_EXPORT int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds,
			 struct timeval *timeout)
{
	struct timespec t;
	int ret;

	if (timeout)
		t = (struct timespec){timeout->tv_sec, timeout->tv_usec * 1000};
	ret = (int)syscall(SYS_pselect6, nfds, readfds, writefds, exceptfds, timeout ? &t : NULL,
			   NULL);
	if (timeout)
		*timeout = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
	return ret;
}

ROOST_EXPORT int repoll_create(int flags)
{
	return (int)syscall(SYS_epoll_create1, flags);
}

ROOST_EXPORT int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	return (int)syscall(SYS_epoll_ctl, epfd, op, fd, event);
}

ROOST_EXPORT int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
	return (int)syscall(SYS_epoll_pwait, epfd, events, maxevents, timeout, NULL,
			    (size_t)_NSIG / 8);
}
