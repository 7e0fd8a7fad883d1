/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Snapshots of a store in a file. A snapshot is taken in steps, and the store may be used between
 * them. It is consistent for each key: the file has a pair as it was at some time between the start
 * and the last step. docs/kv.md describes the format.
 */
#ifndef ROOST_KV_SNAPSHOT_H
#define ROOST_KV_SNAPSHOT_H

#include <stddef.h>

#include "kv/kv.h"

struct kv_snapshot;

/*
 * Starts a snapshot that will replace the file at `path`. The data go to `path`.new until then.
 * Allocates 2 MiB. Returns 0, -EBUSY if another snapshot to this path is being taken, or the error
 * of a system call. Called by the thread of the store.
 */
int kv_snapshot_start(struct kv *kv, const char *path, struct kv_snapshot **out);

/* Lines of the far tier are being read: the next step is due when some have come. */
#define KV_SNAPSHOT_WAITS 2

/*
 * Writes the pairs of at most `buckets` buckets, and at most 2 MiB. Does not wait for the far tier.
 * Returns 1 or KV_SNAPSHOT_WAITS if there is more, 0 if all pairs are written, or the error of the
 * write. Called by the thread of the store.
 */
int kv_snapshot_step(struct kv_snapshot *s, uint64_t buckets);

/*
 * Completes a snapshot whose pairs are all written: syncs the file, renames it, and syncs the
 * folder. This may take long; it does not use the store. Any thread. Returns
 *	0		the new file is in place
 *	an errno	positive: the new file is in place, but the sync of the folder failed with
 *			this error; if the machine fails, the old file may be there again. The next
 *			snapshot that returns 0 ends this state
 *	-EINVAL		pairs are missing
 *	other		negative: the error of a system call; the old file is unchanged
 */
int kv_snapshot_finish(struct kv_snapshot *s);

/*
 * Frees a snapshot. Removes the new file if the snapshot was not completed. `s` may be NULL. Called
 * by the thread of the store, or by any thread after the last step.
 */
void kv_snapshot_free(struct kv_snapshot *s);

/*
 * Loads the snapshot at `path` into an empty store. Pairs that have expired are left out. Returns 0
 * or an error with one line about it in `why`; the store is empty then:
 *	-EEXIST		the store is not empty
 *	-EBADMSG	the file is no snapshot, or it is cut off or damaged
 *	-EPROTO		the file has another version
 *	-ENOSPC		the pairs do not fit into the store
 *	-ENOMEM		no memory for a buffer of 2 MiB
 *	other		the error of a system call
 */
int kv_snapshot_load(struct kv *kv, const char *path, char *why, size_t why_len);

#endif
