/* SPDX-License-Identifier: BSD-2-Clause */
/* Pairs of a snapshot, for the new owner of a partition that has lost its node. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cli/kv/kv.h"
#include "kv/snapshot.h"

#define BUCKETS 1024u
#define PUTS	64u /* at once */
/* The store that the file is loaded into may have this many times the bytes of the file. */
#define SPACE	    4u
#define SPACE_LEAST (UINT64_C(64) << 20)

struct old {
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

static void put_all(struct old *o)
{
	if (o->n && o->lock && !o->rc)
		o->rc = kv_table_remote->hold(o->lock, o->why, o->why_len);
	if (o->n && !o->rc)
		o->rc = roost_kv_run(o->to, o->ops, o->n);
	for (unsigned i = 0; i < o->n && !o->rc; i++)
		o->rc = o->ops[i].status;
	o->n = 0;
	o->used = 0;
}

static void *keep(struct old *o, const void *data, uint32_t len)
{
	uint8_t *to = o->buf + o->used;

	memcpy(to, data, len);
	o->used += len;
	return to;
}

static bool take(void *ctx, const struct kv_pair *p)
{
	const struct kv_table *t;
	struct old *o = ctx;

	t = o->table;
	if (o->rc || (p->expires && p->expires <= o->now) ||
	    kv_table_partition(t->seed, t->partitions, p->key, p->key_len) != o->partition)
		return true;
	if (o->n == PUTS || o->len - o->used < p->key_len + p->value_len)
		put_all(o);
	o->ops[o->n++] = (struct roost_kv_op){.code = ROOST_KV_MOVE_PUT,
					      .key = keep(o, p->key, p->key_len),
					      .key_len = p->key_len,
					      .value = keep(o, p->value, p->value_len),
					      .value_len = p->value_len,
					      .ttl = p->expires ? p->expires - o->now : 0};
	return true;
}

static int load(struct old *o, const char *snapshot, struct kv **kv, char *why, size_t why_len)
{
	struct kv_config config = {.size = SPACE_LEAST};
	struct stat st;
	int rc = stat(snapshot, &st) ? -errno : 0;

	if (!rc) {
		config.size += SPACE * (uint64_t)st.st_size;
		rc = kv_open(&config, kv);
	}
	if (rc) {
		snprintf(why, why_len, "%s: %s", snapshot, strerror(-rc));
		return rc;
	}
	kv_set_time(*kv, o->now);
	rc = kv_snapshot_load(*kv, snapshot, why, why_len);
	if (rc)
		kv_close(*kv);
	return rc;
}

int kv_store_old(struct roost_kv *to, struct kv_table_lock *lock, const struct kv_table *t,
		 unsigned partition, const char *snapshot, void *buf, size_t len, char *why,
		 size_t why_len)
{
	static struct old o;
	struct kv *kv;
	uint64_t cursor = 0;
	int rc;

	o = (struct old){.to = to,
			 .lock = lock,
			 .why = why,
			 .why_len = why_len,
			 .table = t,
			 .partition = partition,
			 .buf = buf,
			 .len = len,
			 .now = (uint32_t)time(NULL)};
	rc = load(&o, snapshot, &kv, why, why_len);
	if (rc)
		return rc;
	*why = '\0';
	do
		cursor = kv_scan(kv, cursor, BUCKETS, take, &o);
	while (cursor && !o.rc);
	put_all(&o);
	kv_close(kv);
	return o.rc;
}
