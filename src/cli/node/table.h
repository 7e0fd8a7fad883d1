/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of `roost node`: one region. At its front are an optional hash table for `get` and the
 * values of the table. Callers use the rest as they like.
 */
#ifndef ROOST_CLI_NODE_TABLE_H
#define ROOST_CLI_NODE_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct node_region {
	uint8_t *mem;
	size_t size;
	uint64_t entries; /* entries of the table at mem; 0: no table */
	uint64_t keys;
	size_t used; /* bytes of table and values */
	char err[512];
};

/*
 * Returns the key of a word. A number (decimal, or with 0x) is its own key; the key of any other
 * word is its 64-bit XXH3.
 */
uint64_t node_key(const char *word);

/*
 * Fills the table with keys 1 to n, whose values are texts: "value of 17". Returns 0, or -errno
 * with a line in err.
 */
int node_table_fill(struct node_region *r, uint64_t n);
/* Fills the table from a file with lines of key, blanks and value. Returns as above. */
int node_table_read(struct node_region *r, const char *path);

#endif
