/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sys.h"

#define LINE_MAX_BYTES 1024

atomic_int log_threshold;

static const char *const level_name[] = {
	[LOG_ERROR] = "error",
	[LOG_WARN] = "warn",
	[LOG_INFO] = "info",
	[LOG_DEBUG] = "debug",
};

static int level_of(const char *word)
{
	if (!word || !*word)
		return LOG_WARN;
	for (int l = LOG_ERROR; l <= LOG_DEBUG; l++)
		if (!strcmp(word, level_name[l]))
			return l;
	return LOG_DEBUG;
}

int log_init_threshold(void)
{
	int level = level_of(sys_env("ROOST_LOG"));

	atomic_store_explicit(&log_threshold, level, memory_order_relaxed);
	return level;
}

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&log_threshold, (int)level, memory_order_relaxed);
}

void log_write(enum log_level level, const char *fmt, ...)
{
	int saved = errno;
	char line[LINE_MAX_BYTES];
	size_t space = sizeof(line) - 1, len, prefix; /* one byte for the line's end */
	va_list ap;
	int n;

	n = level == LOG_ERROR ? snprintf(line, space, "roost: ")
			       : snprintf(line, space, "roost: %s: ", level_name[level]);
	prefix = len = (size_t)n;
	errno = saved; /* for %m */
	va_start(ap, fmt);
	n = vsnprintf(line + len, space - len, fmt, ap);
	va_end(ap);
	if (n > 0)
		len += (size_t)n < space - len ? (size_t)n : space - len - 1;
	while (len > prefix && line[len - 1] == '\n')
		len--;
	for (size_t i = 0; i < len; i++)
		if (line[i] == '\n' || line[i] == '\r')
			line[i] = ' ';
	line[len++] = '\n';
	/*
	 * A raw system call, because a preloaded library may replace write(). Errors are ignored.
	 */
	(void)!syscall(SYS_write, STDERR_FILENO, line, len);
	errno = saved;
}
