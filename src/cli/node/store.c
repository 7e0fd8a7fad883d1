/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/node/store.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "builtin/kv_store.h"
#include "cli/term.h"

#define STACK_BYTES   (256u << 10)
#define SNAPSHOT_LINE 256 /* bytes of a line about a failed snapshot */

static int fail(char *err, size_t errlen, int rc, const char *file, const char *why)
{
	snprintf(err, errlen, "%s: %s", file, why);
	return rc;
}

/* ---- functions ---- */

static int load_file(struct node_store *s, const char *file, char *err, size_t errlen)
{
	struct object *o = &s->objects[s->num_objects];
	unsigned at;
	int rc;

	if (s->num_objects == NODE_FUNCTION_FILES)
		return fail(err, errlen, -E2BIG, file, "too many files of functions");
	rc = object_open_functions(file, o, err, errlen);
	if (rc)
		return rc;
	s->num_objects++;
	rc = kv_store_register(s->store, o->functions, &at);
	if (!rc)
		return 0;
	snprintf(err, errlen, "%s: function %u: %s", file, at + 1,
		 rc == -EEXIST	 ? "another function has its name"
		 : rc == -EINVAL ? "its name, its type or its kind is invalid"
		 : rc == -ENOSPC ? "too many functions"
				 : strerror(-rc));
	return rc;
}

static int load_functions(struct node_store *s, char *err, size_t errlen)
{
	const char *at = s->functions;
	char file[4096];
	int rc = 0;

	while (!rc && at && *at) {
		size_t len = strcspn(at, ",");

		snprintf(file, sizeof(file), "%.*s", (int)len, at);
		rc = load_file(s, file, err, errlen);
		at += len + (at[len] == ',');
	}
	return rc;
}

/* ---- snapshots ---- */

/*
 * Writes a line about an error of kv_store_snapshot(): what happened, which file is there, and what
 * to do.
 */
static void describe_error(int error, char *line, size_t len)
{
	if (error > 0)
		snprintf(line, len, FILE_NOT_SYNCED ", so take another snapshot", strerror(error));
	else
		snprintf(line, len, "%s; the old file is as it was",
			 error == -EBUSY     ? "another process writes it"
			 : error == -EDEADLK ? "the store does not answer"
					     : strerror(-error));
}

static void *write_snapshot(void *arg)
{
	struct node_store *s = arg;
	int rc = kv_store_snapshot(s->store, s->snapshot, &s->stop);
	char line[SNAPSHOT_LINE];

	if (rc && rc != -ECANCELED) {
		describe_error(rc, line, sizeof(line));
		fprintf(stderr, "roost node: the snapshot %s: %s\n", s->snapshot, line);
	}
	atomic_store(&s->error, rc);
	if (!rc)
		atomic_fetch_add(&s->done, 1);
	atomic_store(&s->running, false);
	return NULL;
}

static void join(struct node_store *s)
{
	if (s->started)
		pthread_join(s->thread, NULL);
	s->started = false;
}

int node_store_snapshot(struct node_store *s)
{
	int rc;

	if (!s->snapshot || !s->store)
		return -ENOENT;
	if (atomic_load(&s->running))
		return -EBUSY;
	join(s);
	atomic_store(&s->running, true);
	rc = pthread_create(&s->thread, NULL, write_snapshot, s);
	if (rc) {
		atomic_store(&s->running, false);
		return -rc;
	}
	s->started = true;
	s->begun++;
	return 0;
}

/* Returns an error if the folder of the snapshot's file is missing or read-only. */
static int check_folder(const char *file, char *err, size_t errlen)
{
	char *copy = strdup(file);
	int rc = 0;

	if (!copy)
		return fail(err, errlen, -ENOMEM, file, strerror(ENOMEM));
	if (access(dirname(copy), W_OK | X_OK)) {
		rc = -errno;
		snprintf(err, errlen, "can't write snapshots to %s: %s", file, strerror(-rc));
	}
	free(copy);
	return rc;
}

static int load_snapshot(struct node_store *s, char *err, size_t errlen)
{
	struct kv_stat stat;
	int rc;

	if (!s->snapshot)
		return 0;
	rc = check_folder(s->snapshot, err, errlen);
	if (rc || (access(s->snapshot, F_OK) && errno == ENOENT))
		return rc;
	rc = kv_store_load(s->store, s->snapshot, err, errlen);
	kv_get_stat(s->store->kv, &stat);
	s->loaded = stat.pairs;
	return rc;
}

/* ---- memory for growth ---- */

static void grown(void *ctx)
{
	struct node_store *s = ctx;

	sem_post(&s->growth);
}

static void *prepare(void *arg)
{
	struct node_store *s = arg;

	while (!atomic_load(&s->prepared)) {
		if (!kv_prepare(s->store->kv))
			sem_wait(&s->growth);
	}
	return NULL;
}

/* Without the thread the processing units wait for the memory. */
static void start_preparer(struct node_store *s)
{
	sem_init(&s->growth, 0, 0);
	s->prepares = kv_on_growth(s->store->kv, grown, s) &&
		      thread_start(&s->preparer, STACK_BYTES, prepare, s) == 0;
}

static void end_preparer(struct node_store *s)
{
	if (!s->prepares)
		return;
	atomic_store(&s->prepared, true);
	sem_post(&s->growth);
	pthread_join(s->preparer, NULL);
	s->prepares = false;
}

/* ---- the far tier ---- */

/*
 * Called once, by the thread that uses the store. What was written to the file is not known, so no
 * operation is executed any more.
 */
static void far_failed(void *ctx, int err)
{
	const struct node_store *s = ctx;

	fprintf(stderr,
		"roost node: the file of --kv-far in %s failed: %s; operations on the store fail until the node is started again\n",
		s->far.folder, strerror(-err));
}

/* ---- the store ---- */

/*
 * Returns an error if the file system of the far tier has too little space for the whole store: the
 * file has holes, so writes would fail later. Some file systems do not tell their size.
 */
static int check_space(const struct node_store *s, char *err, size_t errlen)
{
	char left[32], size[32];
	struct statvfs fs;
	uint64_t space;

	if (!s->far.folder || statvfs(s->far.folder, &fs) || !fs.f_blocks)
		return 0;
	space = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (space >= s->config.size)
		return 0;
	snprintf(
		err, errlen,
		"%s has %s free, and the store may take %s: give --kv-far another folder, or --kv less",
		s->far.folder, fmt_bytes(left, sizeof(left), space),
		fmt_bytes(size, sizeof(size), s->config.size));
	return -ENOSPC;
}

int node_store_open(struct node_store *s, char *err, size_t errlen)
{
	int rc = check_space(s, err, errlen);

	if (rc)
		return rc;
	rc = kv_store_open(&s->config, &s->far, &s->store);
	if (rc && s->far.folder)
		return fail(err, errlen, rc, s->far.folder, strerror(-rc));
	if (rc) {
		snprintf(err, errlen, "can't open a store of %llu bytes: %s",
			 (unsigned long long)s->config.size, strerror(-rc));
		return rc;
	}
	s->config.store = s->store;
	kv_on_far_error(s->store->kv, far_failed, s);
	start_preparer(s);
	rc = load_functions(s, err, errlen);
	return rc ? rc : load_snapshot(s, err, errlen);
}

void node_store_close(struct node_store *s)
{
	if (!s->store)
		return;
	atomic_store(&s->stop, true);
	join(s);
	end_preparer(s);
	kv_store_close(s->store);
	s->store = NULL;
	for (unsigned i = 0; i < s->num_objects; i++)
		object_close(&s->objects[i]);
	s->num_objects = 0;
}

int node_store_last_snapshot(struct node_store *s)
{
	if (!s->store || !s->snapshot)
		return 0;
	atomic_store(&s->stop, true);
	join(s);
	atomic_store(&s->stop, false);
	write_snapshot(s);
	return atomic_load(&s->error);
}

/* ---- describing ---- */

static json_t *describe_functions(const struct kv_store *st)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < st->num_functions; i++)
		json_array_append_new(all, json_string(st->functions[i]->name));
	return all;
}

json_t *node_store_describe(struct node_store *s)
{
	char line[SNAPSHOT_LINE];
	bool running;
	json_t *o;
	int error;

	if (!s->store)
		return NULL;
	o = json_pack("{s:I,s:o}", "size", (json_int_t)s->config.size, "functions",
		      describe_functions(s->store));
	if (!s->snapshot)
		return o;
	/* First, because the thread of a snapshot stores its result before it ends. */
	running = atomic_load(&s->running);
	error = atomic_load(&s->error);
	if (error)
		describe_error(error, line, sizeof(line));
	json_object_set_new(o, "snapshot",
			    json_pack("{s:s,s:I,s:I,s:I,s:b,s:s*}", "file", s->snapshot, "loaded",
				      (json_int_t)s->loaded, "begun", (json_int_t)s->begun, "done",
				      (json_int_t)atomic_load(&s->done), "running", (int)running,
				      "error", error ? line : NULL));
	return o;
}
