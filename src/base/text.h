/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Builds a text in pieces, in a buffer that may be too small: it cuts and counts as snprintf(3)
 * does, over several calls.
 */
#ifndef ROOST_BASE_TEXT_H
#define ROOST_BASE_TEXT_H

#include <stddef.h>

struct text {
	char *buf;
	size_t n;    /* bytes of buf, including the terminating 0 */
	size_t used; /* length of the whole text, including the part that was cut off */
};

/*
 * Appends text. Text that does not fit is cut off, but counted. `buf` may be NULL if its length is
 * 0.
 */
void text_put(struct text *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
