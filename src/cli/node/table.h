/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of `roost node`: one region, with a hash table for `get` at its front, if there is
 * one, then its values, then room that callers use as they like.
 */
#ifndef ROOST_CLI_NODE_TABLE_H
#define ROOST_CLI_NODE_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct node_region {
	uint8_t *mem;
	size_t size;
	uint64_t entries; /* of the table, at mem; 0: there is none */
	uint64_t keys;
	size_t used; /* bytes at the front */
	char err[512];
};

/*
 * A word as a key: a number is itself (decimal, or with 0x), any other word is its XXH3 of 64 bits.
 */
uint64_t node_key(const char *word);

/* Keys 1 to n, whose values are texts: "value of 17". 0 or -errno with a line in err. */
int node_table_fill(struct node_region *r, uint64_t n);
/* A file of lines: key, blanks, value. The same. */
int node_table_read(struct node_region *r, const char *path);

#endif
