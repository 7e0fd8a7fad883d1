/* SPDX-License-Identifier: BSD-2-Clause */
/* Programs beside the test: forked children, which end with the test. */
#ifndef ROOST_TESTS_CHILD_H
#define ROOST_TESTS_CHILD_H

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Ends a child with a message. An assertion would continue with the tests there. */
static inline void child_fails(const char *what)
{
	dprintf(STDOUT_FILENO, "the child: %s\n", what);
	_exit(1);
}

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x))                                                                          \
			child_fails(#x);                                                           \
	} while (0)

/* Starts a child that runs serve() with one end of a pair of sockets. *fd is the other end. */
static inline pid_t child_start(void (*serve)(int fd), int *fd)
{
	int end[2];
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, end), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(end[0]);
		serve(end[1]);
		_exit(0);
	}
	close(end[1]);
	*fd = end[0];
	return pid;
}

/* Returns when all threads of the child are stopped; kill() alone does not wait for them. */
static inline void child_stop(pid_t pid)
{
	int status;

	kill(pid, SIGSTOP);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
}

#define CHILD_THREADS 8 /* the most that child_hold() can hold */

/*
 * Holds all threads of a child, as a debugger does. Returns their number, or 0 if this is not
 * allowed here.
 */
static inline unsigned child_hold(pid_t pid, pid_t tid[CHILD_THREADS])
{
	struct dirent *e;
	unsigned n = 0;
	char path[64];
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	assert_non_null(d);
	while ((e = readdir(d))) {
		pid_t one = (pid_t)strtol(e->d_name, NULL, 10);

		if (one <= 0)
			continue;
		assert_true(n < CHILD_THREADS);
		if (ptrace(PTRACE_SEIZE, one, NULL, NULL) ||
		    ptrace(PTRACE_INTERRUPT, one, NULL, NULL))
			break;
		assert_int_equal(waitpid(one, NULL, __WALL), one);
		tid[n++] = one;
	}
	closedir(d);
	return e ? 0 : n;
}

/* Kills a child that is stopped in this way. */
static inline void child_kill_stopped(const pid_t *tid, unsigned n)
{
	int status;

	kill(tid[0], SIGKILL);
	while (n-- > 0) { /* the first thread ends last */
		do
			assert_int_equal(waitpid(tid[n], &status, __WALL), tid[n]);
		while (!WIFSIGNALED(status));
	}
}

static inline void child_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Kills the child of child_start(), if it has not been finished yet. Sets *pid to 0. */
static inline void child_finish(pid_t *pid, int fd)
{
	if (!*pid)
		return;
	child_kill(*pid);
	close(fd);
	*pid = 0;
}

#endif
