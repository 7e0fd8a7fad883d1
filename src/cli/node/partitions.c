/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/node/partitions.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define WHY 300

static const char *name_of(const char *file)
{
	const char *slash = strrchr(file, '/');

	return slash ? slash + 1 : file;
}

/* Watches the folder: each version of the table is a new file. Returns 0 or a negative errno. */
static int watch(struct node_partitions *p)
{
	size_t len = (size_t)(name_of(p->file) - p->file);
	char *folder = len ? strndup(p->file, len) : strdup(".");
	int rc = 0;

	p->watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (!folder || p->watch < 0 ||
	    inotify_add_watch(p->watch, folder, IN_MOVED_TO | IN_CLOSE_WRITE) < 0)
		rc = -errno;
	free(folder);
	return rc;
}

static int first_table(struct node_partitions *p, char *err, size_t errlen)
{
	struct kv_table_self self = {.node = {.service = p->service},
				     .lease_s = p->lease_ns ? (unsigned)(p->lease_ns / 1000000000)
							    : KV_TABLE_LEASE_S,
				     .fence = &p->fence};
	int rc;

	if (kv_table_is_remote(p->file)) {
		rc = kv_table_has_remote(p->file, err, errlen);
		snprintf(self.node.address, sizeof(self.node.address), "%s", p->address);
		if (!rc)
			rc = kv_table_remote->follow(&p->table, p->file, &self, "roost node",
						     &p->follow, err, errlen);
		if (!rc)
			p->watch = kv_table_remote->fd(p->follow);
		return rc;
	}
	/* The watch begins before the read, so that no version is missed. */
	rc = watch(p);
	if (!rc)
		return kv_table_read(&p->table, p->file, err, errlen);
	snprintf(err, errlen, "%s: %s", p->file, strerror(-rc));
	return rc;
}

int node_partitions_open(struct node_partitions *p, struct kv_store *store, const char *address,
			 uint16_t service, char *err, size_t errlen)
{
	int rc;

	p->watch = -1;
	if (!p->file)
		return 0;
	p->store = store;
	p->address = address;
	p->service = service;
	if (kv_table_is_remote(p->file))
		store->fence = &p->fence;
	rc = first_table(p, err, errlen);
	if (rc)
		return rc;
	rc = kv_store_set_table(store, &p->table, address, service);
	if (rc)
		snprintf(err, errlen, "%s: %s", p->file, strerror(-rc));
	return rc;
}

static void take_next(struct node_partitions *p)
{
	static struct kv_table next;
	char why[WHY];
	int rc = 0;

	if (!p->follow)
		rc = kv_table_read(&next, p->file, why, sizeof(why));
	else if (!kv_table_remote->next(p->follow, &p->table, &next))
		return;
	if (!rc && next.version == p->table.version)
		return;
	if (!rc && !kv_table_follows(&next, &p->table)) {
		rc = -EINVAL;
		snprintf(why, sizeof(why), "%s: not a later version of the table", p->file);
	}
	if (!rc) {
		rc = kv_store_set_table(p->store, &next, p->address, p->service);
		snprintf(why, sizeof(why), "%s: %s", p->file, strerror(-rc));
	}
	if (rc)
		fprintf(stderr, "roost node: %s; the node serves version %llu\n", why,
			(unsigned long long)p->table.version);
	else
		p->table = next;
}

void node_partitions_look(struct node_partitions *p)
{
	_Alignas(struct inotify_event) char buf[4096];
	bool ours = p->follow;
	ssize_t len;

	while (!p->follow && (len = read(p->watch, buf, sizeof(buf))) > 0) {
		for (const char *at = buf; at < buf + len;) {
			const struct inotify_event *e = (const void *)at;

			/* an event without a name: events were lost */
			ours |= !e->len || !strcmp(e->name, name_of(p->file));
			at += sizeof(*e) + e->len;
		}
	}
	if (ours)
		take_next(p);
}

void node_partitions_close(struct node_partitions *p)
{
	if (p->follow)
		kv_table_remote->end(p->follow);
	else if (p->file && p->watch >= 0)
		close(p->watch);
	p->follow = NULL;
	p->watch = -1;
}
