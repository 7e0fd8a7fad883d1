/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The key-value store of `roost node`: its functions, its snapshot file, the thread that writes
 * snapshots, and the thread that makes memory present before the store grows into it. All functions
 * are called by the main thread.
 */
#ifndef ROOST_CLI_NODE_STORE_H
#define ROOST_CLI_NODE_STORE_H

#include <jansson.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "builtin/kv_store.h"
#include "kernels/object.h"
#include "roost/kv.h"

#define NODE_FUNCTION_FILES 16u

struct kv_store;

struct node_store {
	/* from the command line */
	struct roost_kv_config config; /* size 0: no store */
	struct kv_store_far far;
	const char *snapshot;  /* file; NULL: none */
	const char *functions; /* files of functions, separated by commas; NULL: none */

	struct kv_store *store;
	struct object objects[NODE_FUNCTION_FILES];
	unsigned num_objects;

	pthread_t thread;
	bool started;	       /* the thread must be joined */
	atomic_bool running;   /* the thread writes a snapshot */
	atomic_bool stop;      /* the thread must not complete its snapshot */
	uint64_t begun;	       /* number of snapshots that began */
	_Atomic uint64_t done; /* number of snapshots that are complete */
	_Atomic int error;     /* result of the last snapshot, of kv_store_snapshot() */
	uint64_t loaded;       /* pairs that were loaded at the start */

	/* The thread that makes memory present for growth. */
	pthread_t preparer;
	bool prepares;
	atomic_bool prepared; /* the thread ends */
	sem_t growth;
};

/*
 * Opens the store: functions, then the snapshot, if the file exists. Returns 0, or a negative errno
 * with a line in `err`. node_store_close() accepts a partly opened store.
 */
int node_store_open(struct node_store *s, char *err, size_t errlen);
/*
 * Starts a snapshot. Returns 0, -EBUSY if a snapshot is in progress, or -ENOENT if there is no
 * file.
 */
int node_store_snapshot(struct node_store *s);
/*
 * Writes the snapshot that the next start loads. Must be called after the last call of a client.
 * Blocks. Returns 0, also if there is no file, or an error of kv_store_snapshot() after a message.
 */
int node_store_last_snapshot(struct node_store *s);
/* Ends a snapshot in progress, and the store. The kernel must have ended. */
void node_store_close(struct node_store *s);
/* Describes functions and snapshots for the control socket. Returns NULL if there is no store. */
json_t *node_store_describe(struct node_store *s);

#endif
