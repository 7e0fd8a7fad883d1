/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of partitions of `roost node`: the node follows its versions, in a file or in etcd. */
#ifndef ROOST_CLI_NODE_PARTITIONS_H
#define ROOST_CLI_NODE_PARTITIONS_H

#include <stddef.h>
#include <stdint.h>

#include "builtin/kv_store.h"
#include "kvwire/remote.h"
#include "kvwire/table.h"

struct node_partitions {
	const char *file; /* from the command line; NULL: the node owns all keys */
	const char *address;
	uint16_t service;
	uint64_t lease_ns; /* from the command line; 0: the default */
	struct kv_store *store;
	struct kv_fence fence; /* of a table in etcd */
	struct kv_table table;
	struct kv_follow *follow; /* of a table in etcd; else NULL */
	int watch;		  /* poll it for POLLIN: inotify, or that of `follow`. -1: none */
};

/*
 * Takes the partitions of the node at `address` for the store, before it serves, and begins to
 * watch the table. Does nothing without a file. Returns 0, or a negative errno with a line in
 * `err`.
 */
int node_partitions_open(struct node_partitions *p, struct kv_store *store, const char *address,
			 uint16_t service, char *err, size_t errlen);
/* Takes a new version of the file, if there is one. An invalid version gives a line on stderr. */
void node_partitions_look(struct node_partitions *p);
/* Gives the lease back. The store must not serve connections any more. */
void node_partitions_close(struct node_partitions *p);

#endif
