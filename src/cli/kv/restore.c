/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies pairs of a snapshot to the new owner of a partition that has lost its node. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cli/kv/kv.h"
#include "kv/snapshot.h"

#define BUCKETS 1024u
#define PUTS	64u /* PUTs in one batch */
/* The store that the file is loaded into may have this many times the bytes of the file. */
#define STORE_TIMES 4u
#define STORE_LEAST (UINT64_C(64) << 20)

struct restore {
	struct roost_kv *to;
	struct kv_table_lock *lock;
	char *why;
	size_t why_len;
	const struct kv_table *table;
	unsigned partition;
	uint8_t *buf;
	size_t len, used;
	struct roost_kv_op ops[PUTS];
	unsigned n;
	uint32_t now;
	int rc;
};

static void put_all(struct restore *r)
{
	if (r->n && r->lock && !r->rc)
		r->rc = kv_table_remote->hold(r->lock, r->why, r->why_len);
	if (r->n && !r->rc)
		r->rc = roost_kv_run(r->to, r->ops, r->n);
	for (unsigned i = 0; i < r->n && !r->rc; i++)
		r->rc = r->ops[i].status;
	r->n = 0;
	r->used = 0;
}

static void *keep(struct restore *r, const void *data, uint32_t len)
{
	uint8_t *to = r->buf + r->used;

	memcpy(to, data, len);
	r->used += len;
	return to;
}

static bool take(void *ctx, const struct kv_pair *p)
{
	const struct kv_table *t;
	struct restore *r = ctx;

	t = r->table;
	if (r->rc || (p->expires && p->expires <= r->now) ||
	    kv_table_partition(t->seed, t->partitions, p->key, p->key_len) != r->partition)
		return true;
	if (r->n == PUTS || r->len - r->used < p->key_len + p->value_len)
		put_all(r);
	r->ops[r->n++] = (struct roost_kv_op){.code = ROOST_KV_MOVE_PUT,
					      .key = keep(r, p->key, p->key_len),
					      .key_len = p->key_len,
					      .value = keep(r, p->value, p->value_len),
					      .value_len = p->value_len,
					      .cursor = t->version,
					      .ttl = p->expires ? p->expires - r->now : 0};
	return true;
}

static int load(struct restore *r, const char *snapshot, struct kv **kv, char *why, size_t why_len)
{
	struct kv_config config = {.size = STORE_LEAST};
	struct stat st;
	int rc = stat(snapshot, &st) ? -errno : 0;

	if (!rc) {
		config.size += STORE_TIMES * (uint64_t)st.st_size;
		rc = kv_open(&config, kv);
	}
	if (rc) {
		snprintf(why, why_len, "%s: %s", snapshot, strerror(-rc));
		return rc;
	}
	kv_set_time(*kv, r->now);
	rc = kv_snapshot_load(*kv, snapshot, why, why_len);
	if (rc)
		kv_close(*kv);
	return rc;
}

int kv_restore_partition(struct roost_kv *to, struct kv_table_lock *lock, const struct kv_table *t,
			 unsigned partition, const char *snapshot, void *buf, size_t len, char *why,
			 size_t why_len)
{
	static struct restore r;
	struct kv *kv;
	uint64_t cursor = 0;
	int rc;

	r = (struct restore){.to = to,
			     .lock = lock,
			     .why = why,
			     .why_len = why_len,
			     .table = t,
			     .partition = partition,
			     .buf = buf,
			     .len = len,
			     .now = (uint32_t)time(NULL)};
	rc = load(&r, snapshot, &kv, why, why_len);
	if (rc)
		return rc;
	*why = '\0';
	do
		cursor = kv_scan(kv, cursor, BUCKETS, take, &r);
	while (cursor && !r.rc);
	put_all(&r);
	kv_close(kv);
	return r.rc;
}
