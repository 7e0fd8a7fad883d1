/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A store that several threads use: the processing units that run the kernel `kv`, and the thread
 * of a node that takes snapshots. One thread at a time owns it.
 */
#ifndef ROOST_BUILTIN_KV_STORE_H
#define ROOST_BUILTIN_KV_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "builtin/kv_parts.h"
#include "base/mem.h"
#include "kv/kv.h"
#include "kv/share.h"
#include "roost/kv.h"
#include "roost/kv_function.h"

#define KV_STORE_FUNCTIONS 64u
#define KV_STORE_GROUP	   32u	/* operations of a group */
#define KV_STORE_GROUPS	   256u /* groups in flight of a store with a far tier */

struct kvwire_reply;

/* A scan, and its data, which are in the reply. */
struct kv_store_scan {
	struct kv_scan_state state;
	uint8_t *data, *at, *end;     /* data NULL: not begun */
	size_t added;		      /* bytes of the pairs of this bucket */
	size_t missed;		      /* bytes of the pair that has no space; 0: none */
	unsigned buckets;	      /* buckets that were visited */
	bool serves;		      /* a scan of the served pairs: the fence must stay open */
	unsigned function;	      /* 0, or ROOST_KV_SCAN_KEYS or a later function */
	const struct kv_parts *parts; /* NULL: this node owns all keys */
};

/* Operations of a batch that run together, and the operation behind them that runs alone. */
struct kv_group {
	unsigned n;
	int read; /* result of kvwire_next() for the last operation */
	bool has_alone;
	bool has_foreign; /* `alone` is an operation on a key of another node */
	bool moves;	  /* the group has operations of `roost kv move` */
	uint64_t version; /* version of the table of partitions when the group began */
	struct roost_kv_op alone;
	struct kv_store_scan scan; /* used if `alone` is a scan */
	uint64_t client;
	struct kv_arena arena;
	struct kv_batch batch;
	struct kv_group *next; /* next group in the list of free or dropped groups */
	struct kv_op op[KV_STORE_GROUP];
};

/* Values of `busy`: the activity of the thread that owns the store. */
enum kv_store_busy {
	KV_STORE_FREE,
	KV_STORE_SERVES,
	KV_STORE_READS, /* the thread takes a snapshot and runs no operations */
	/* an operation of a call is divided (kv_divided()); the call's next step continues it */
	KV_STORE_DIVIDED,
};

struct kv_store {
	struct kv *kv;
	atomic_int busy; /* enum kv_store_busy */
	/* with a far tier; NULL without one */
	struct kv_group *groups;
	/*
	 * used by the owner of the store: groups that are free, and the groups of each
	 * connection
	 */
	struct kv_group *free;
	struct shares shares;
	unsigned moves; /* number of groups with `moves`, which all have one version */
	uint64_t moves_version;
	_Atomic(struct kv_group *) dropped; /* the next owner of the store cancels them */
	uint64_t operations, batches;
	const struct roost_kv_function *functions[KV_STORE_FUNCTIONS]; /* number 256 and above */
	unsigned num_functions;
	struct kv_parts *parts; /* NULL: the store owns all keys */
	/*
	 * The fence after which the partitions are not served; NULL: there is none. Set before the
	 * store serves.
	 */
	const struct kv_fence *fence;
};

/* A far tier in a file without a name, or another one. */
struct kv_store_far {
	const char *folder;
	struct kv_far *tier;   /* a tier that replaces the folder; the store closes it */
	const uint8_t *secret; /* secret of the hash (kv_config), for tests */
	uint64_t near;	       /* bytes of near memory; 0: a sixteenth of the store */
};

/*
 * Opens a store. `far` may be NULL. Returns 0, -EINVAL (the size is invalid), -ENOMEM, or an error
 * of the folder.
 */
int kv_store_open(const struct roost_kv_config *config, const struct kv_store_far *far,
		  struct kv_store **out);
/* Closes the store, which no thread may use any more. */
void kv_store_close(struct kv_store *st);

/*
 * Registers functions, which must remain loaded until kv_store_close(). Must be called before the
 * store serves. Returns 0 or an error of kv_register(); *at is then the index of the failed
 * function.
 */
int kv_store_register(struct kv_store *st, const struct roost_kv_functions *f, unsigned *at);
/*
 * Fills *info. Returns 0, or -ENOENT: no function has this name. Called by the owner of the
 * store.
 */
int kv_store_find(const struct kv_store *st, const char *name, size_t len,
		  struct roost_kv_function_info *info);

/*
 * Makes the store serve the partitions that the table gives to the node at `address`. May be called
 * again, with a later version of the table, while other threads use the store: operations that
 * begin later use the new table. Blocks. Returns 0, -ENOMEM, or -EDEADLK as kv_store_snapshot().
 */
int kv_store_set_table(struct kv_store *st, const struct kv_table *t, const char *address,
		       uint16_t service);
void kv_store_cancel_dropped(struct kv_store *st);

/*
 * Takes the store for the calling thread. Returns false if another thread owns it. Does not
 * wait.
 *
 * Memory order: an owner takes `busy` by a sequentially consistent exchange and gives it up by a
 * store with release, which orders all that the store keeps without atomics. kv_store_drop_group()
 * puts a group into `dropped`, then loads `busy`; an owner exchanges `busy`, then loads `dropped`.
 * These accesses are sequentially consistent, so at least one side sees the other's.
 */
static inline bool kv_store_try(struct kv_store *st, enum kv_store_busy busy)
{
	int none = KV_STORE_FREE;

	if (!atomic_compare_exchange_strong(&st->busy, &none, (int)busy))
		return false;
	if (unlikely(st->groups != NULL) && atomic_load(&st->dropped))
		kv_store_cancel_dropped(st);
	return true;
}

static inline void kv_store_leave(struct kv_store *st)
{
	atomic_store_explicit(&st->busy, KV_STORE_FREE, memory_order_release);
}

/* Keeps the store until the next step of the call. */
static inline void kv_store_keep(struct kv_store *st)
{
	atomic_store_explicit(&st->busy, KV_STORE_DIVIDED, memory_order_relaxed);
}

/* Returns whether the owner may keep the store for longer than a step of a call. */
static inline bool kv_store_is_kept(struct kv_store *st)
{
	int busy = atomic_load_explicit(&st->busy, memory_order_relaxed);

	return busy == KV_STORE_DIVIDED || busy == KV_STORE_READS;
}

/*
 * Take and give back a group of a store with a far tier. The owner of the store calls them.
 * `client` is the number of the connection. NULL: the client has its share of the groups, or pairs
 * that a move stores under an earlier table are in flight, and a group on a later table must not
 * overtake them.
 */
struct kv_group *kv_store_take_group(struct kv_store *st, uint64_t client);
/*
 * Begins a group that was decoded and whose keys were looked up in the table of partitions. The
 * table may change before the group is finished.
 */
void kv_store_begin_group(struct kv_store *st, struct kv_group *g);
void kv_store_give_group(struct kv_store *st, struct kv_group *g);
/*
 * Returns the version of the table of partitions on which the oldest operation in flight began, or
 * that of the table if there is none. Requires a store with partitions. Called by the owner of the
 * store.
 */
uint64_t kv_store_version(const struct kv_store *st);
/*
 * Adds the reply to the scan `g->alone`: the pairs of whole buckets as long as they fit. Returns
 * false if the scan continues later: lines of the far tier are missing, or the step was long
 * enough. The owner of the store calls it.
 */
bool kv_store_scan(struct kv_store *st, struct kvwire_reply *w, struct kv_group *g);
/*
 * Cancels a group that is in flight, so that its memory is not used any more. Any thread may call
 * it.
 */
void kv_store_drop_group(struct kv_store *st, struct kv_group *g);

/*
 * Returns the time by which pairs expire, in seconds since 1970, so that a snapshot can be loaded
 * after a restart of the machine. The time never decreases, and goes on while the machine is
 * suspended.
 */
uint32_t kv_store_now(void);

/*
 * Loads the snapshot at `path` before the store serves. Returns 0, or an error of
 * kv_snapshot_load() with a line in `why`.
 */
int kv_store_load(struct kv_store *st, const char *path, char *why, size_t why_len);
/*
 * Writes a snapshot to `path` while other threads use the store. The snapshot takes at most half of
 * the time of the store. Blocks. Returns 0; -ECANCELED if *stop was set; -EDEADLK if no other
 * thread leaves the store, because the kernel crashed; or a negative error of the file. The old
 * file is then unchanged. Returns a positive errno if the new file is in place and only the sync of
 * its folder failed, as kv_snapshot_finish().
 */
int kv_store_snapshot(struct kv_store *st, const char *path, const atomic_bool *stop);

#endif
