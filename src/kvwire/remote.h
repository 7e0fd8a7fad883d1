/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tables of partitions on a server. Their names begin with "etcd:"; kv_table_read(),
 * kv_table_create() and kv_table_replace() take them too. The code that talks to the server
 * (src/etcd) is a module, so that only programs that use such a table load libcurl.
 */
#ifndef ROOST_KVWIRE_REMOTE_H
#define ROOST_KVWIRE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>

#include "kvwire/fence.h"
#include "kvwire/table.h"

#define KV_TABLE_REMOTE	       "etcd:"
#define KV_TABLE_LEASE_S       30u /* lease of a node, unless the node names another one */
#define KV_TABLE_LEASE_S_LEAST 5u
#define KV_TABLE_LEASE_S_MOST  3600u

struct kv_follow;
struct kv_table_lock;

/* A node that follows a table. */
struct kv_table_self {
	struct kv_table_node node;
	unsigned lease_s; /* a node that has not renewed its lease for this time is lost */
	struct kv_fence *fence;
};

/* Errors are negative errnos, with a line in `why`. */
struct kv_table_remote {
	/* Reads a table. Tries once. */
	int (*read)(struct kv_table *t, const char *name, char *why, size_t why_len);
	/*
	 * Writes the table if that of the server has the revision t->revision (0: there is none),
	 * and sets t->revision. If `gone` is not NULL, writes only if this node has no lease. Tries
	 * for up to a minute while the server does not answer. -EEXIST: the revision differs, or
	 * the node has a lease.
	 */
	int (*write)(struct kv_table *t, const char *name, const struct kv_table_node *gone,
		     char *why, size_t why_len);
	/*
	 * Reads a table, and starts a thread that keeps reading it. If `self` is not NULL, the
	 * thread also keeps a lease for this node, which shows the server that the node runs, and
	 * opens the node's fence as long as the lease is certain. A client has no lease and passes
	 * NULL. While the server does not answer, the thread tries again at growing intervals, and
	 * writes one line to stderr, which begins with `program`.
	 */
	int (*follow)(struct kv_table *t, const char *name, const struct kv_table_self *self,
		      const char *program, struct kv_follow **out, char *why, size_t why_len);
	/* Takes the last table, if it is a later version of `t`. Does not block. */
	bool (*next)(struct kv_follow *f, const struct kv_table *t, struct kv_table *next);
	/* Returns a descriptor that becomes readable after a change. next() reads it. */
	int (*fd)(const struct kv_follow *f);
	/* Closes the fence, and gives the lease back. */
	void (*end)(struct kv_follow *f);
	/*
	 * Takes the lock with which one program at a time moves partitions. The program calls
	 * hold() before each step, which renews the lock when that is due. -EBUSY: another program
	 * has the lock. If a step takes more than a few seconds, another program may have taken the
	 * lock meanwhile and changed the table.
	 */
	int (*lock)(const char *name, struct kv_table_lock **out, char *why, size_t why_len);
	int (*hold)(struct kv_table_lock *l, char *why, size_t why_len);
	void (*unlock)(struct kv_table_lock *l);
	/*
	 * Sets lease_s[i] for each node of the table: the time of the node's lease, or 0 if the
	 * node has none.
	 */
	int (*look_up)(const struct kv_table *t, const char *name, unsigned lease_s[KV_TABLE_NODES],
		       char *why, size_t why_len);
};

/* The function of the module that returns a pointer to its struct kv_table_remote. */
#define KV_TABLE_REMOTE_TABLES "roost_etcd_tables"

extern const struct kv_table_remote *kv_table_remote; /* NULL: the module is not loaded */

bool kv_table_is_remote(const char *name);
/* Loads the module. Returns 0, or -EOPNOTSUPP with a line in `why` if there is no module. */
int kv_table_has_remote(const char *name, char *why, size_t why_len);

#endif
