/* SPDX-License-Identifier: BSD-2-Clause */
/* Output at a terminal: tables, a progress line, numbers with units. */
#ifndef ROOST_CLI_TERM_H
#define ROOST_CLI_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Makes untrusted text (names of files and programs, answers from a socket) safe for a terminal.
 * Control characters, which could move the cursor or change the title, and bytes that are not UTF-8
 * become '?'. Works in place; returns s.
 */
char *plain_text(char *s);

/*
 * A table, whose first row is the head. Cells are copied, as plain text unless `colours` is set.
 * When memory is exhausted, the program ends with one line.
 */
struct table {
	char ***rows;
	unsigned columns, num_rows;
	bool colours; /* cells contain colour codes and are not changed */
};

void table_init(struct table *t, unsigned columns);
/* Adds a row of one string for each column; a NULL cell is empty. */
void table_row(struct table *t, const char *const *cells);
/*
 * Prints the table. Each column is as wide as its longest cell. `left` has a bit for each column
 * that is aligned to the left.
 */
void table_print(const struct table *t, FILE *f, unsigned left);
void table_free(struct table *t);

/*
 * A progress line on stderr. It is redrawn at most ten times a second, and only when stderr is a
 * terminal. One thread at a time may use it.
 */
struct progress {
	const char *what;
	double total;	/* 0: unknown */
	uint64_t drawn; /* ns; 0: nothing drawn yet */
	bool on;
};

void progress_start(struct progress *p, const char *what, double total);
void progress_at(struct progress *p, double done, const char *note);
void progress_end(struct progress *p); /* erases the line */

/* Formats a size into buf and returns buf: "64 B", "4 KiB", "1.5 MiB". */
char *fmt_bytes(char *buf, size_t n, uint64_t bytes);
/* Formats a number with commas between thousands. */
char *fmt_count(char *buf, size_t n, uint64_t v);

/* Returns the ns of CLOCK_MONOTONIC, which all processes of a machine share. */
uint64_t clock_ns(void);

#endif
