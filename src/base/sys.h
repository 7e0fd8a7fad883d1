/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls on sockets, files and descriptors of our own, raw: a library preloaded into the
 * program (rsocket's does) that takes over socket(), sendmsg(), poll() never sees them. Arguments
 * as in the man pages; the result is the call's, or a negative errno. errno itself is left alone.
 * Any thread; not cancellation points.
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
/* Without the call's time-out argument, which does not do what it says (recvmmsg(2), BUGS). */
int sys_recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags);

int sys_open(const char *path, int flags); /* of a file that is there: no mode */
ssize_t sys_read(int fd, void *buf, size_t len);
ssize_t sys_write(int fd, const void *buf, size_t len);
int sys_close(int fd);
int sys_fcntl(int fd, int cmd, unsigned long arg);
int sys_dup_cloexec(int fd);

int sys_eventfd(unsigned count, int flags);
int sys_epoll_create1(int flags);
int sys_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
/*
 * Time-outs in ns, negative is forever. Older kernels without epoll_pwait2 (before 5.11) round up
 * to a millisecond.
 */
int sys_epoll_wait_ns(int epfd, struct epoll_event *evs, int max, int64_t timeout_ns);
int sys_epoll_wait(int epfd, struct epoll_event *evs, int max, int timeout_ms);
/*
 * While *word is value, at most ns long (UINT64_MAX: for ever), until somebody wakes it. May return
 * early.
 */
void sys_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t ns);
void sys_futex_wake(_Atomic uint32_t *word); /* all that wait */
/* Unlike the kernel's, it leaves *timeout alone. NULL is forever. */
int sys_ppoll(struct pollfd *fds, unsigned n, const struct timespec *timeout, const sigset_t *mask);

/*
 * A variable of the environment; NULL: it is not set, or the process has rights that whoever set it
 * may lack (set-user-ID, file capabilities: secure_getenv(3)). The only way to the environment:
 * tests/structure.
 */
const char *sys_env(const char *name);

#endif
