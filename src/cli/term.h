/* SPDX-License-Identifier: BSD-2-Clause */
/* What people see at a terminal: tables, a progress line, numbers with units. */
#ifndef ROOST_CLI_TERM_H
#define ROOST_CLI_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Text from elsewhere (names of files and programs, what a socket answered), for a terminal:
 * control characters, which could move its cursor or change its title, and bytes that are not UTF-8
 * become '?'. In place; returns s.
 */
char *plain_text(char *s);

/*
 * A table: the first row is the head. Cells are copied, as plain text unless `colours` was set.
 * Memory errors end the program with one line.
 */
struct table {
	char ***rows;
	unsigned columns, num_rows;
	bool colours; /* cells bring their own: they stay as they are */
};

void table_init(struct table *t, unsigned columns);
/* One string a column; a NULL cell is empty. */
void table_row(struct table *t, const char *const *cells);
/*
 * Columns as wide as their longest cell; `left` has a bit for each column that is aligned to the
 * left.
 */
void table_print(const struct table *t, FILE *f, unsigned left);
void table_free(struct table *t);

/*
 * A progress line on stderr, drawn over itself ten times a second at most, and only when stderr is
 * a terminal. One thread.
 */
struct progress {
	const char *what;
	double total;	/* 0: unknown */
	uint64_t drawn; /* ns; 0: nothing drawn yet */
	bool on;
};

void progress_start(struct progress *p, const char *what, double total);
void progress_at(struct progress *p, double done, const char *note);
void progress_end(struct progress *p); /* wipes the line */

/* Into buf, which is returned: "64 B", "4 KiB", "1.5 MiB". */
char *fmt_bytes(char *buf, size_t n, uint64_t bytes);
/* With thousands apart by commas. */
char *fmt_count(char *buf, size_t n, uint64_t v);

/* ns of CLOCK_MONOTONIC: one clock for all processes of a machine. */
uint64_t clock_ns(void);

#endif
