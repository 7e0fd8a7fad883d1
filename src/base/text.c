/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

void text_put(struct text *o, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = vsnprintf(o->used < o->n ? o->buf + o->used : NULL, o->used < o->n ? o->n - o->used : 0,
		      fmt, ap);
	va_end(ap);
	if (r > 0)
		o->used += (size_t)r;
}
