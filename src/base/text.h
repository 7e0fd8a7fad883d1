/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Text put together piece by piece in a buffer that may be too small: as snprintf(3) cuts and
 * counts, over several calls.
 */
#ifndef ROOST_BASE_TEXT_H
#define ROOST_BASE_TEXT_H

#include <stddef.h>

struct text {
	char *buf;
	size_t n;    /* of buf, with room for the terminating 0 */
	size_t used; /* length of the whole text, what was cut off included */
};

/* Appends; what does not fit is cut off and counted. A buffer of length 0 may be NULL. */
void text_put(struct text *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
