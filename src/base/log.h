/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes one line per event on stderr, "roost: ...", with the level unless this is "error". The
 * environment variable ROOST_LOG sets the level: error, warn (the default), info or debug; an
 * unknown word counts as debug. It allocates no memory, and makes one write(2) per line, so that
 * lines of several threads do not mix. The function that first detects an error logs it with its
 * cause; its callers pass the error on.
 */
#ifndef ROOST_BASE_LOG_H
#define ROOST_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

enum log_level {
	LOG_ERROR = 1,
	LOG_WARN,
	LOG_INFO,
	LOG_DEBUG,
};

extern atomic_int log_threshold; /* 0: ROOST_LOG not read yet */

/*
 * Sets the level from ROOST_LOG, and returns it. log_enabled() calls this for the first line. Any
 * thread.
 */
int log_init_threshold(void);
/* Sets the level, instead of that in ROOST_LOG. Any thread. */
void log_set_level(enum log_level level);

static inline bool log_enabled(enum log_level level)
{
	int t = atomic_load_explicit(&log_threshold, memory_order_relaxed);

	return (int)level <= (t ? t : log_init_threshold());
}

/*
 * Writes a line; callers use the macros below. A line is cut at about 1000 bytes, and line breaks
 * in it become spaces. errno is unchanged. Any thread.
 */
void log_write(enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), cold));

#define log_at(level, ...)                                                                         \
	do {                                                                                       \
		if (log_enabled(level))                                                            \
			log_write(level, __VA_ARGS__);                                             \
	} while (0)

#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

#endif
