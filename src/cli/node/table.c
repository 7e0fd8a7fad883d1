/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/node/table.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/mem.h"
#include "roost/get.h"

#define VALUE_ALIGN 8

uint64_t node_key(const char *word)
{
	char *end;
	uint64_t v;

	errno = 0;
	v = strtoull(word, &end, 0);
	if (isdigit((unsigned char)*word) && *end == '\0' && errno == 0)
		return v;
	return XXH3_64bits(word, strlen(word));
}

/*
 * An entry has three buckets. With half as many entries as keys, most keys are in the first entry
 * that a look-up reads.
 */
struct building {
	struct node_region *r;
	struct roost_get_entry *table;
	uint32_t more, chained;
};

static int no_space(struct node_region *r, uint64_t keys)
{
	snprintf(r->err, sizeof(r->err),
		 "%" PRIu64 " keys do not fit in %zu bytes: take a larger --memory", keys, r->size);
	return -ENOSPC;
}

static int begin(struct building *b, struct node_region *r, uint64_t keys)
{
	uint64_t entries = pow2_ceil(keys / 2 + 1), more = keys / 2 + 64;

	if (keys > r->size / sizeof(struct roost_get_entry) ||
	    (entries + more) * sizeof(struct roost_get_entry) > r->size)
		return no_space(r, keys);
	*b = (struct building){
		.r = r, .table = (struct roost_get_entry *)(void *)r->mem, .more = (uint32_t)more};
	r->entries = entries;
	r->used = (entries + more) * sizeof(struct roost_get_entry);
	return 0;
}

static int add(struct building *b, uint64_t key, const char *value, size_t len)
{
	struct node_region *r = b->r;
	uint8_t *to = r->mem + r->used;

	if (len > r->size - r->used)
		return no_space(r, r->keys + 1);
	memcpy(to, value, len);
	if (roost_get_insert(b->table, r->entries, b->more, &b->chained, key, (uintptr_t)to,
			     (uint32_t)len, 0))
		return no_space(r, r->keys + 1);
	r->keys++;
	r->used = ALIGN_UP(r->used + len, (size_t)VALUE_ALIGN);
	if (r->used > r->size)
		r->used = r->size;
	return 0;
}

int node_table_fill(struct node_region *r, uint64_t n)
{
	struct building b;
	char value[64];
	int rc = begin(&b, r, n);

	for (uint64_t key = 1; rc == 0 && key <= n; key++) {
		int len = snprintf(value, sizeof(value), "value of %" PRIu64, key);

		rc = add(&b, key, value, (size_t)len);
	}
	return rc;
}

/* Splits a line at its first blanks. Returns false if the line has no key or no value. */
static bool split(char *line, char **value)
{
	size_t n = strcspn(line, " \t");

	line[strcspn(line, "\r\n")] = '\0';
	if (n == 0 || line[n] == '\0')
		return false;
	line[n] = '\0';
	*value = line + n + 1 + strspn(line + n + 1, " \t");
	return true;
}

static bool empty(const char *line)
{
	return line[strspn(line, " \t\r\n")] == '\0';
}

static int unreadable(struct node_region *r, const char *path)
{
	snprintf(r->err, sizeof(r->err), "can't read %s: %s", path, strerror(errno));
	return -EIO;
}

static int add_lines(struct building *b, FILE *f, const char *path)
{
	uint64_t number = 0;
	size_t space = 0;
	char *line = NULL, *value;
	int rc = 0;

	while (rc == 0 && getline(&line, &space, f) > 0) {
		number++;
		if (empty(line))
			continue;
		if (!split(line, &value)) {
			snprintf(b->r->err, sizeof(b->r->err),
				 "%s:%" PRIu64 ": a line is a key, blanks, and a value", path,
				 number);
			rc = -EINVAL;
		} else {
			rc = add(b, node_key(line), value, strlen(value));
		}
	}
	if (rc == 0 && ferror(f)) /* also for a folder, which can be opened but not read */
		rc = unreadable(b->r, path);
	free(line);
	return rc;
}

/* Returns whether the file can be read twice: for the number of its keys, then for them. */
static bool readable_twice(struct node_region *r, FILE *f, const char *path)
{
	if (fseeko(f, 0, SEEK_SET) == 0)
		return true;
	snprintf(r->err, sizeof(r->err), "can't read %s twice: give a file, not a pipe", path);
	return false;
}

static uint64_t count_lines(FILE *f)
{
	uint64_t n = 1;
	int c;

	while ((c = getc(f)) != EOF)
		n += c == '\n';
	rewind(f);
	return n;
}

int node_table_read(struct node_region *r, const char *path)
{
	FILE *f = fopen(path, "re");
	struct building b;
	int rc;

	if (!f)
		return unreadable(r, path);
	rc = readable_twice(r, f, path) ? begin(&b, r, count_lines(f)) : -ESPIPE;
	if (rc == 0)
		rc = add_lines(&b, f, path);
	fclose(f);
	return rc;
}
