/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tables of partitions that a server has. Their names begin with "etcd:"; kv_table_read(),
 * kv_table_create() and kv_table_replace() take them too. The code that talks to the server
 * (src/etcd) is a module, so that libcurl is loaded by programs only that use such a table.
 */
#ifndef ROOST_KVWIRE_REMOTE_H
#define ROOST_KVWIRE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>

#include "kvwire/fence.h"
#include "kvwire/table.h"

#define KV_TABLE_REMOTE	       "etcd:"
#define KV_TABLE_LEASE_S       30u /* of a node, unless it says another one */
#define KV_TABLE_LEASE_S_LEAST 5u
#define KV_TABLE_LEASE_S_MOST  3600u

struct kv_follow;
struct kv_table_lock;

/* A node that follows a table. */
struct kv_table_self {
	struct kv_table_node node;
	unsigned lease_s; /* a node that has not renewed its lease for so long is lost */
	struct kv_fence *fence;
};

/* Errors are negative errnos, with a line in `why`. */
struct kv_table_remote {
	/* One try. */
	int (*read)(struct kv_table *t, const char *name, char *why, size_t why_len);
	/*
	 * Writes the table if that of the server has the revision t->revision (0: there is none), and
	 * sets t->revision. `gone`: and only if this node has no lease; or NULL. Tries for up to a
	 * minute while the server does not answer. -EEXIST: the revision is another one, or the node
	 * has a lease.
	 */
	int (*write)(struct kv_table *t, const char *name, const struct kv_table_node *gone,
		     char *why, size_t why_len);
	/*
	 * Reads a table, and starts a thread that reads it again and again. `self`: the thread also
	 * keeps a lease for this node, which the server then has as one that runs, and opens its
	 * fence as long as the lease is certain; NULL: a client, which has none. While the server
	 * does not answer, the thread tries again, ever less often, and writes one line to stderr,
	 * which begins with `program`.
	 */
	int (*follow)(struct kv_table *t, const char *name, const struct kv_table_self *self,
		      const char *program, struct kv_follow **out, char *why, size_t why_len);
	/* Takes the last table, if it is a later version of `t`. Does not block. */
	bool (*next)(struct kv_follow *f, const struct kv_table *t, struct kv_table *next);
	/* Returns a descriptor that poll() finds readable after a change; it is read by next(). */
	int (*fd)(const struct kv_follow *f);
	/* Closes the fence, and gives the lease back. */
	void (*end)(struct kv_follow *f);
	/*
	 * Lets one program at a time move partitions. It calls hold() before each step: that renews the
	 * lock when it is due. -EBUSY: another program has the lock. If a step takes more than seconds,
	 * another program may have had it meanwhile, and has changed the table.
	 */
	int (*lock)(const char *name, struct kv_table_lock **out, char *why, size_t why_len);
	int (*hold)(struct kv_table_lock *l, char *why, size_t why_len);
	void (*unlock)(struct kv_table_lock *l);
	/* Sets lease_s[i] for each node of the table: the time of its lease, or 0 if it has none. */
	int (*look_up)(const struct kv_table *t, const char *name, unsigned lease_s[KV_TABLE_NODES],
		       char *why, size_t why_len);
};

/* The function of the module that returns a pointer to its struct kv_table_remote. */
#define KV_TABLE_REMOTE_TABLES "roost_etcd_tables"

extern const struct kv_table_remote *kv_table_remote; /* NULL: the module is not loaded */

bool kv_table_is_remote(const char *name);
/* Loads the module. Returns 0, or -EOPNOTSUPP with a line in `why`: there is none. */
int kv_table_has_remote(const char *name, char *why, size_t why_len);

#endif
