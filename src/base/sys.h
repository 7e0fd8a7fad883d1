/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Raw system calls on the library's own sockets, files and descriptors. A library that is preloaded
 * into the program (that of rsocket) and replaces socket(), sendmsg() or poll() does not see them.
 * Arguments are as in the man pages. The result is that of the call, or a negative errno; errno
 * itself is not changed. Any thread; not cancellation points.
 */
#ifndef ROOST_BASE_SYS_H
#define ROOST_BASE_SYS_H

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

int sys_socket(int domain, int type, int protocol);
int sys_socketpair(int domain, int type, int protocol, int fds[2]);
int sys_bind(int fd, const struct sockaddr *addr, socklen_t len);
int sys_listen(int fd, int backlog);
int sys_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int sys_connect(int fd, const struct sockaddr *addr, socklen_t len);
int sys_shutdown(int fd, int how);
int sys_getsockname(int fd, struct sockaddr *addr, socklen_t *len);
int sys_getpeername(int fd, struct sockaddr *addr, socklen_t *len);
int sys_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int sys_getsockopt(int fd, int level, int name, void *value, socklen_t *len);

ssize_t sys_sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr,
		   socklen_t alen);
ssize_t sys_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
		     socklen_t *alen);
ssize_t sys_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t sys_recvmsg(int fd, struct msghdr *msg, int flags);
int sys_sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags);
/*
 * Receives messages without a timeout: the timeout of the system call does not work as expected
 * (recvmmsg(2), BUGS).
 */
int sys_recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags);

int sys_open(const char *path, int flags); /* only for existing files, so it has no mode */
int sys_openat(int dirfd, const char *path, int flags, mode_t mode);
ssize_t sys_read(int fd, void *buf, size_t len);
ssize_t sys_write(int fd, const void *buf, size_t len);
ssize_t sys_pread(int fd, void *buf, size_t len, off_t at);
ssize_t sys_pwrite(int fd, const void *buf, size_t len, off_t at);
int sys_fallocate(int fd, int mode, off_t at, off_t len);
int sys_close(int fd);
int sys_fcntl(int fd, int cmd, unsigned long arg);
/* Duplicates a descriptor; the copy has FD_CLOEXEC. */
int sys_dup_cloexec(int fd);

struct io_uring_params;
int sys_io_uring_setup(unsigned entries, struct io_uring_params *p);
int sys_io_uring_enter(int fd, unsigned submit, unsigned wait, unsigned flags);

int sys_eventfd(unsigned count, int flags);
int sys_epoll_create1(int flags);
int sys_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
/*
 * Waits like sys_epoll_wait(), but timeout_ns is in ns; a negative value means no timeout. On
 * kernels without epoll_pwait2 (before 5.11) the timeout is rounded up to a millisecond.
 */
int sys_epoll_wait_ns(int epfd, struct epoll_event *evs, int max, int64_t timeout_ns);
int sys_epoll_wait(int epfd, struct epoll_event *evs, int max, int timeout_ms);
/*
 * Waits while *word equals value, until a thread wakes it, for at most `ns` (UINT64_MAX: no limit).
 * It may return early.
 */
void sys_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t ns);
void sys_futex_wake(_Atomic uint32_t *word); /* wakes all waiting threads */
/* Calls ppoll(2). Unlike the system call, it does not change *timeout. NULL: no timeout. */
int sys_ppoll(struct pollfd *fds, unsigned n, const struct timespec *timeout, const sigset_t *mask);

/*
 * Returns a variable of the environment. Returns NULL if it is not set, or if the process has
 * rights that the user who set it may lack (set-user-ID, file capabilities: secure_getenv(3)). src
 * accesses the environment only by this function; tests/structure checks this.
 */
const char *sys_env(const char *name);

#endif
