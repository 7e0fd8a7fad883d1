/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KERNEL_SIGSET_BYTES 8 /* Linux's sigset_t, not libc's */
#define NS_PER_SEC	    1000000000ll
#define NS_PER_MS	    1000000ll

/* syscall(2) returns -1 and sets errno; these functions return -errno and keep errno. */
#define RAW(...)                                                                                   \
	(__extension__({                                                                           \
		int raw_saved = errno;                                                             \
		long raw_ret = syscall(__VA_ARGS__);                                               \
                                                                                                   \
		if (raw_ret < 0) {                                                                 \
			raw_ret = -(long)errno;                                                    \
			errno = raw_saved;                                                         \
		}                                                                                  \
		raw_ret;                                                                           \
	}))

int sys_socket(int domain, int type, int protocol)
{
	return (int)RAW(SYS_socket, domain, type, protocol);
}

int sys_socketpair(int domain, int type, int protocol, int fds[2])
{
	return (int)RAW(SYS_socketpair, domain, type, protocol, fds);
}

int sys_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	return (int)RAW(SYS_bind, fd, addr, len);
}

int sys_listen(int fd, int backlog)
{
	return (int)RAW(SYS_listen, fd, backlog);
}

int sys_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	return (int)RAW(SYS_accept4, fd, addr, len, flags);
}

int sys_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	return (int)RAW(SYS_connect, fd, addr, len);
}

int sys_shutdown(int fd, int how)
{
	return (int)RAW(SYS_shutdown, fd, how);
}

int sys_getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	return (int)RAW(SYS_getsockname, fd, addr, len);
}

int sys_getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
	return (int)RAW(SYS_getpeername, fd, addr, len);
}

int sys_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	return (int)RAW(SYS_setsockopt, fd, level, name, value, len);
}

int sys_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	return (int)RAW(SYS_getsockopt, fd, level, name, value, len);
}

ssize_t sys_sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr,
		   socklen_t alen)
{
	return RAW(SYS_sendto, fd, buf, len, flags, addr, alen);
}

ssize_t sys_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
		     socklen_t *alen)
{
	return RAW(SYS_recvfrom, fd, buf, len, flags, addr, alen);
}

ssize_t sys_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	return RAW(SYS_sendmsg, fd, msg, flags);
}

ssize_t sys_recvmsg(int fd, struct msghdr *msg, int flags)
{
	return RAW(SYS_recvmsg, fd, msg, flags);
}

int sys_sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	return (int)RAW(SYS_sendmmsg, fd, msgs, n, flags);
}

int sys_recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	return (int)RAW(SYS_recvmmsg, fd, msgs, n, flags, NULL);
}

int sys_open(const char *path, int flags)
{
	return (int)RAW(SYS_openat, AT_FDCWD, path, flags);
}

int sys_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	return (int)RAW(SYS_openat, dirfd, path, flags, mode);
}

ssize_t sys_read(int fd, void *buf, size_t len)
{
	return RAW(SYS_read, fd, buf, len);
}

ssize_t sys_write(int fd, const void *buf, size_t len)
{
	return RAW(SYS_write, fd, buf, len);
}

ssize_t sys_pread(int fd, void *buf, size_t len, off_t at)
{
	return RAW(SYS_pread64, fd, buf, len, at);
}

ssize_t sys_pwrite(int fd, const void *buf, size_t len, off_t at)
{
	return RAW(SYS_pwrite64, fd, buf, len, at);
}

int sys_fallocate(int fd, int mode, off_t at, off_t len)
{
	return (int)RAW(SYS_fallocate, fd, mode, at, len);
}

int sys_close(int fd)
{
#ifdef __SANITIZE_THREAD__
	/*
	 * This calls close() of libc: after a raw call ThreadSanitizer would take the next file
	 * with this number for the same file. Without the two other calls a cancelled thread would
	 * end here.
	 */
	int saved = errno, state, rc;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	rc = close(fd) ? -errno : 0;
	pthread_setcancelstate(state, &state);
	errno = saved;
	return rc;
#else
	return (int)RAW(SYS_close, fd);
#endif
}

int sys_fcntl(int fd, int cmd, unsigned long arg)
{
	return (int)RAW(SYS_fcntl, fd, cmd, arg);
}

int sys_dup_cloexec(int fd)
{
	return sys_fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

int sys_io_uring_setup(unsigned entries, struct io_uring_params *p)
{
	return (int)RAW(SYS_io_uring_setup, entries, p);
}

int sys_io_uring_enter(int fd, unsigned submit, unsigned wait, unsigned flags)
{
	return (int)RAW(SYS_io_uring_enter, fd, submit, wait, flags, NULL, 0);
}

int sys_eventfd(unsigned count, int flags)
{
	return (int)RAW(SYS_eventfd2, count, flags);
}

int sys_epoll_create1(int flags)
{
	return (int)RAW(SYS_epoll_create1, flags);
}

int sys_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	return (int)RAW(SYS_epoll_ctl, epfd, op, fd, ev);
}

int sys_epoll_wait(int epfd, struct epoll_event *evs, int max, int timeout_ms)
{
	return (int)RAW(SYS_epoll_pwait, epfd, evs, max, timeout_ms, NULL, KERNEL_SIGSET_BYTES);
}

int sys_epoll_wait_ns(int epfd, struct epoll_event *evs, int max, int64_t timeout_ns)
{
#ifdef SYS_epoll_pwait2
	/* The Linux kernel expects 64-bit times, also where the timespec of libc has 32 bits. */
	int64_t ts[2] = {timeout_ns / NS_PER_SEC, timeout_ns % NS_PER_SEC};
	int ret = (int)RAW(SYS_epoll_pwait2, epfd, evs, max, timeout_ns < 0 ? NULL : ts, NULL,
			   KERNEL_SIGSET_BYTES);

	/*
	 * The call itself never fails with EPERM: the error comes from a seccomp profile of a
	 * container that is older than the call.
	 */
	if (ret != -ENOSYS && ret != -EPERM)
		return ret;
#endif
	if (timeout_ns < 0)
		return sys_epoll_wait(epfd, evs, max, -1);

	int64_t ms = (timeout_ns + NS_PER_MS - 1) / NS_PER_MS;

	return sys_epoll_wait(epfd, evs, max, ms > INT32_MAX ? INT32_MAX : (int)ms);
}

int sys_ppoll(struct pollfd *fds, unsigned n, const struct timespec *timeout, const sigset_t *mask)
{
	struct timespec copy = timeout ? *timeout : (struct timespec){0};

	return (int)RAW(SYS_ppoll, fds, n, timeout ? &copy : NULL, mask, KERNEL_SIGSET_BYTES);
}

void sys_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
	struct timespec ts = {(time_t)(ns / NS_PER_SEC), (long)(ns % NS_PER_SEC)};

	(void)RAW(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ns == UINT64_MAX ? NULL : &ts);
}

void sys_futex_wake(_Atomic uint32_t *word)
{
	(void)RAW(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX);
}

const char *sys_env(const char *name)
{
	return secure_getenv(name);
}
