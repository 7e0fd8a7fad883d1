/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys that exist as long as a program renews their lease (tenure.h). Each node of a table has a
 * key that shows that the node runs, KEY/nodes/ADDRESS:SERVICE. The program that moves a partition
 * has KEY/move. The functions block, as those of http.h do.
 */
#ifndef ROOST_ETCD_LEASE_H
#define ROOST_ETCD_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "etcd/http.h"
#include "etcd/tenure.h"
#include "kvwire/table.h"

struct lease {
	char key[256], name[KV_TABLE_ADDRESS + 8]; /* parts of KEY/NAME */
	bool alone;				   /* one program at a time has the key */
	struct tenure tenure;			   /* tenure_init() */
};

/* Write the common key of the nodes of a table, and the name of a node below it. */
void lease_nodes(char *to, size_t len, const char *key);
void lease_name(char *to, size_t len, const struct kv_table_node *n);
/*
 * Gets or renews the lease when it is due. Returns 0, or a negative errno with a line in `why`:
 * -EBUSY if another program has the key, or has removed or set the key of this node. After its
 * lease has ended, a program may get the key again although another program had it meanwhile.
 */
int lease_keep(struct lease *l, struct http *h, char *why, size_t why_len);
/* Gives the lease back. Tries once. */
void lease_end(struct lease *l, struct http *h);

#endif
