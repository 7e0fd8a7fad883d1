/* SPDX-License-Identifier: BSD-2-Clause */
/* A process that a test forks, with a pipe in each direction. */
#ifndef ROOST_TESTS_FORKED_H
#define ROOST_TESTS_FORKED_H

#include <sys/wait.h>
#include <unistd.h>

struct forked {
	pid_t pid;
	int there[2], back[2]; /* pipes: to the process, and from it */
};

/* Forks. True in the new process, which ends after `seconds` at the latest. */
static bool forked_start(struct forked *f, unsigned seconds)
{
	assert_int_equal(pipe(f->there), 0);
	assert_int_equal(pipe(f->back), 0);
	f->pid = fork();
	assert_true(f->pid >= 0);
	if (f->pid == 0)
		alarm(seconds);
	return f->pid == 0;
}

/* Waits until the process has ended with status 0. */
static void forked_end(const struct forked *f)
{
	int status;

	assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	for (int i = 0; i < 2; i++) {
		close(f->there[i]);
		close(f->back[i]);
	}
}

#endif
