/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The key-value store of `roost node`: its functions, its snapshot file, and the thread that writes
 * snapshots. All functions are called by the main thread.
 */
#ifndef ROOST_CLI_NODE_STORE_H
#define ROOST_CLI_NODE_STORE_H

#include <jansson.h>
#include <pthread.h>
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
	atomic_bool running;   /* it writes */
	atomic_bool stop;      /* it shall not complete its snapshot */
	uint64_t begun;	       /* snapshots */
	_Atomic uint64_t done; /* snapshots that are complete */
	_Atomic int error;     /* of the last one: 0 or a negative errno */
	uint64_t loaded;       /* pairs, at the start */
};

/*
 * Opens the store: functions, then the snapshot, if the file exists. Returns 0, or a negative errno
 * with a line in `err`. node_store_close() accepts a partly opened store.
 */
int node_store_open(struct node_store *s, char *err, size_t errlen);
/* Starts a snapshot. Returns 0, -EBUSY if one is being taken, or -ENOENT: there is no file. */
int node_store_snapshot(struct node_store *s);
/*
 * Call it after the last call of a client. Writes the snapshot that the next start loads. Blocks.
 * Returns 0, also if there is no file, or a negative errno after a message.
 */
int node_store_last_snapshot(struct node_store *s);
/* Ends a snapshot that is being taken, and the store. The kernel has ended. */
void node_store_close(struct node_store *s);
/* Describes functions and snapshots for the control socket; NULL: there is no store. */
json_t *node_store_describe(struct node_store *s);

#endif
