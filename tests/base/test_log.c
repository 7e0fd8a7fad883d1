/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static int saved_stderr, pipe_fd[2];

static int catch_stderr(void **state)
{
	saved_stderr = dup(STDERR_FILENO);
	return pipe(pipe_fd) < 0 || dup2(pipe_fd[1], STDERR_FILENO) < 0;
}

static int release_stderr(void **state)
{
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	close(pipe_fd[0]);
	close(pipe_fd[1]);
	return 0;
}

/* Returns the text since the last call. Writes a mark, so that a read of no text does not block. */
static const char *written(void)
{
	static char buf[8192];
	ssize_t n;

	assert_int_equal(write(pipe_fd[1], "$", 1), 1);
	n = read(pipe_fd[0], buf, sizeof(buf) - 1);
	assert_true(n > 0 && buf[n - 1] == '$');
	buf[n - 1] = '\0';
	return buf;
}

static void set_env(const char *word)
{
	if (word)
		setenv("ROOST_LOG", word, 1);
	else
		unsetenv("ROOST_LOG");
	atomic_store(&log_threshold, 0); /* as in a new process */
}

static void say_all(void)
{
	log_error("e%d", 1);
	log_warn("w%d", 2);
	log_info("i%d", 3);
	log_debug("d%d", 4);
}

static void levels(void **state)
{
	static const struct {
		const char *word, *expect;
	} rows[] = {
		{NULL, "roost: e1\nroost: warn: w2\n"},
		{"", "roost: e1\nroost: warn: w2\n"},
		{"error", "roost: e1\n"},
		{"warn", "roost: e1\nroost: warn: w2\n"},
		{"info", "roost: e1\nroost: warn: w2\nroost: info: i3\n"},
		{"debug", "roost: e1\nroost: warn: w2\nroost: info: i3\nroost: debug: d4\n"},
		{"all", "roost: e1\nroost: warn: w2\nroost: info: i3\nroost: debug: d4\n"},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		set_env(rows[i].word);
		say_all();
		assert_string_equal(written(), rows[i].expect);
	}
	log_set_level(LOG_ERROR);
	say_all();
	assert_string_equal(written(), "roost: e1\n");
}

static void always_one_line(void **state)
{
	static char longs[5000];
	const char *got;

	set_env(NULL);
	log_error("two\nlines\r\n\n");
	assert_string_equal(written(), "roost: two lines \n");
	log_error("%s", "");
	assert_string_equal(written(), "roost: \n");

	memset(longs, 'x', sizeof(longs) - 1);
	log_error("%s", longs);
	got = written();
	assert_in_range(strlen(got), 1000, 1024);
	assert_ptr_equal(strchr(got, '\n'), got + strlen(got) - 1);
}

static void keeps_errno(void **state)
{
	errno = EPIPE; /* the error that a caller returns next */
	log_error("bind: %m");
	assert_int_equal(errno, EPIPE);
	assert_string_equal(written(), "roost: bind: Broken pipe\n");

	int full = open("/dev/full", O_WRONLY);

	assert_true(full >= 0);
	dup2(full, STDERR_FILENO);
	close(full);
	errno = EPIPE;
	log_error("lost");
	assert_int_equal(errno, EPIPE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(levels, catch_stderr, release_stderr),
		cmocka_unit_test_setup_teardown(always_one_line, catch_stderr, release_stderr),
		cmocka_unit_test_setup_teardown(keeps_errno, catch_stderr, release_stderr),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
