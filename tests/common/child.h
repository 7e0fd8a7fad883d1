/* SPDX-License-Identifier: BSD-2-Clause */
/* Programs beside the test: forked children, which end with the test. */
#ifndef ROOST_TESTS_CHILD_H
#define ROOST_TESTS_CHILD_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
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
