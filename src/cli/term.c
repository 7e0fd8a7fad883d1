/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/term.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void *check_memory(void *p)
{
	if (!p) {
		fputs("roost: out of memory\n", stderr);
		exit(1);
	}
	return p;
}

/*
 * Returns the number of bytes of the UTF-8 character at s. Returns 0 if there is none, or if the
 * character controls the terminal: C0, DEL, C1, direction of writing.
 */
static size_t shown(const unsigned char *s)
{
	uint32_t c = *s;
	size_t n = c < 0x80		   ? 1
		   : c >= 0xc2 && c < 0xe0 ? 2
		   : c >= 0xe0 && c < 0xf0 ? 3
		   : c >= 0xf0 && c < 0xf5 ? 4
					   : 0;

	if (n < 2)
		return n && c >= 0x20 && c != 0x7f;
	c &= 0x7fu >> n;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	/* Accepts only the shortest form, no surrogate, and no code point above 0x10ffff. */
	if (c < (n == 2	  ? 0x80u
		 : n == 3 ? 0x800u
			  : 0x10000u) ||
	    (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
		return 0;
	return c < 0xa0 || (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
			       (c >= 0x2066 && c <= 0x2069)
		       ? 0
		       : n;
}

char *plain_text(char *s)
{
	for (char *p = s; *p;) {
		size_t n = shown((unsigned char *)p);

		if (!n)
			*p = '?';
		p += n ? n : 1;
	}
	return s;
}

void table_init(struct table *t, unsigned columns)
{
	*t = (struct table){.columns = columns};
}

void table_row(struct table *t, const char *const *cells)
{
	char **row = check_memory(calloc(t->columns, sizeof(*row)));

	for (unsigned c = 0; c < t->columns; c++) {
		row[c] = check_memory(strdup(cells[c] ? cells[c] : ""));
		if (!t->colours)
			plain_text(row[c]);
	}
	t->rows = check_memory(realloc(t->rows, (t->num_rows + 1) * sizeof(*t->rows)));
	t->rows[t->num_rows++] = row;
}

static unsigned column_width(const struct table *t, unsigned c)
{
	size_t width = 0, n;

	for (unsigned r = 0; r < t->num_rows; r++) {
		n = strlen(t->rows[r][c]);
		if (n > width)
			width = n;
	}
	return (unsigned)width;
}

void table_print(const struct table *t, FILE *f, unsigned left)
{
	unsigned *width = check_memory(calloc(t->columns, sizeof(*width)));

	for (unsigned c = 0; c < t->columns; c++)
		width[c] = column_width(t, c);
	for (unsigned r = 0; r < t->num_rows; r++) {
		for (unsigned c = 0; c < t->columns; c++) {
			int w = (int)width[c];
			bool last = c == t->columns - 1;

			/* A line must not end with blanks. */
			if (left & 1u << c)
				fprintf(f, "%-*s", last ? 0 : w, t->rows[r][c]);
			else
				fprintf(f, "%*s", w, t->rows[r][c]);
			fputs(last ? "\n" : "  ", f);
		}
	}
	free(width);
}

void table_free(struct table *t)
{
	for (unsigned r = 0; r < t->num_rows; r++) {
		for (unsigned c = 0; c < t->columns; c++)
			free(t->rows[r][c]);
		free(t->rows[r]);
	}
	free(t->rows);
	t->rows = NULL;
	t->num_rows = 0;
}

uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void progress_start(struct progress *p, const char *what, double total)
{
	*p = (struct progress){.what = what, .total = total, .on = isatty(STDERR_FILENO)};
}

void progress_at(struct progress *p, double done, const char *note)
{
	static const char full[] = "##############################",
			  none[] = "..............................";
	int width = (int)sizeof(full) - 1, filled;
	uint64_t now;

	if (!p->on)
		return;
	now = clock_ns();
	if (p->drawn && now - p->drawn < 100000000)
		return;
	p->drawn = now;
	if (p->total > 0) {
		done = done < p->total ? done : p->total;
		filled = (int)(done / p->total * width);
		filled = filled > width ? width : filled;
		fprintf(stderr, "\r%s [%.*s%.*s] %3.0f%% %s\033[K", p->what, filled, full,
			width - filled, none, done / p->total * 100, note ? note : "");
	} else {
		fprintf(stderr, "\r%s %s\033[K", p->what, note ? note : "");
	}
	fflush(stderr);
}

void progress_end(struct progress *p)
{
	if (p->on && p->drawn)
		fputs("\r\033[K", stderr);
	p->on = false;
}

char *fmt_bytes(char *buf, size_t n, uint64_t bytes)
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	unsigned u = 0;
	double v = (double)bytes;

	while (v >= 1024 && u < 4) {
		v /= 1024;
		u++;
	}
	/* Sizes that are not round are printed exactly. */
	if (v != (double)(uint64_t)v && bytes < 1u << 20)
		snprintf(buf, n, "%" PRIu64 " B", bytes);
	else
		snprintf(buf, n, v == (double)(uint64_t)v ? "%.0f %s" : "%.1f %s", v, unit[u]);
	return buf;
}

char *fmt_count(char *buf, size_t n, uint64_t v)
{
	char plain[32];
	int len = snprintf(plain, sizeof(plain), "%" PRIu64, v);
	size_t at = 0;

	for (int i = 0; i < len && at + 2 < n; i++) {
		if (i && (len - i) % 3 == 0)
			buf[at++] = ',';
		buf[at++] = plain[i];
	}
	buf[at] = '\0';
	return buf;
}
