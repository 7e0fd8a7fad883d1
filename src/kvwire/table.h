/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of partitions (docs/kv.md): which node owns which part of the keys. It is a file that
 * nodes and clients read, or a value in etcd (remote.h). kv_table_read(), kv_table_create() and
 * kv_table_replace() access the file or etcd; the other functions use memory only.
 */
#ifndef ROOST_KVWIRE_TABLE_H
#define ROOST_KVWIRE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_TABLE_PARTITIONS 1024u /* the most partitions, a power of two */
#define KV_TABLE_NODES	    256u
#define KV_TABLE_ADDRESS    64u
#define KV_TABLE_NOBODY	    UINT16_MAX
#define KV_TABLE_TEXT	    (256u << 10) /* the most bytes of the file */

struct kv_table_node {
	char address[KV_TABLE_ADDRESS];
	uint16_t service;
};

struct kv_table {
	uint64_t version;  /* begins at 1; each change of the table increases it */
	uint64_t seed;	   /* seed of the hash that selects the partition of a key */
	uint64_t revision; /* revision on the server that has the table; 0: a file */
	unsigned partitions, nodes;
	struct kv_table_node node[KV_TABLE_NODES];
	uint16_t owner[KV_TABLE_PARTITIONS]; /* an index of node[], or KV_TABLE_NOBODY */
	/*
	 * The node that a partition moves from, or KV_TABLE_NOBODY. While a partition moves to its
	 * owner, no node serves it.
	 */
	uint16_t from[KV_TABLE_PARTITIONS];
	/* The version in which the node of a partition and its pairs were given up; 0: none. */
	uint64_t lost[KV_TABLE_PARTITIONS];
};

/* Returns the partition of a key. `partitions` is a power of two. */
unsigned kv_table_partition(uint64_t seed, unsigned partitions, const void *key, size_t len);
/* Returns the index of a node, or -1 if the table does not have it. */
int kv_table_find(const struct kv_table *t, const char *address, uint16_t service);
/*
 * Returns whether `next` is a later version of the same table, with the same seed and number of
 * partitions.
 */
bool kv_table_follows(const struct kv_table *next, const struct kv_table *t);

/* Reads a table. Returns 0, or -EBADMSG with a line in `why`. */
int kv_table_parse(struct kv_table *t, const char *text, size_t len, char *why, size_t why_len);
/* Writes the text of a table. Returns its length; text was left out if this is `cap` or more. */
size_t kv_table_format(const struct kv_table *t, char *text, size_t cap);

/* Reads the table in a file or in etcd. Returns 0, or a negative errno with a line in `why`. */
int kv_table_read(struct kv_table *t, const char *path, char *why, size_t why_len);
/*
 * Writes a table to a new file, which appears with its whole content. Returns 0, or with a line in
 * `why`
 *	an errno	positive: the new file is in place, but its folder was not synced, so a
 *			failure of the machine may undo this
 *	-EEXIST		there is a file
 *	other		negative: there is no new file
 */
int kv_table_create(struct kv_table *t, const char *path, char *why, size_t why_len);
/*
 * Replaces the table in a file by a later version. Returns as above; after a negative errno the old
 * file is unchanged. -EEXIST: another program has changed the table in etcd since it was read, or
 * the node `gone` (NULL: none) has a lease there.
 */
int kv_table_replace(struct kv_table *t, const char *path, const struct kv_table_node *gone,
		     char *why, size_t why_len);

#endif
