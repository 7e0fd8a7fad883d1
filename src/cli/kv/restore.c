/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies pairs of a snapshot to the new owner of a partition that has lost its node. They expire by
 * the clock of the new owner, as if it had loaded the file itself. The clock of this machine may
 * differ, so it only measures the time since the new owner was asked for its own.
 */
#include <endian.h>
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
	int64_t ahead; /* seconds of the new owner's clock, less those since this machine booted */
	int rc;
};

static int64_t since_boot(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec;
}

/* Asks the new owner for its clock. A node that does not tell it counts as having our own. */
static int ask_clock(struct restore *r)
{
	struct roost_kv_stat s = {0};
	struct roost_kv_op op = {.code = ROOST_KV_STAT, .out = &s, .out_cap = sizeof(s)};
	int rc = roost_kv_run(r->to, &op, 1);

	r->ahead = (s.now ? (int64_t)le64toh(s.now) : time(NULL)) - since_boot();
	return rc ? rc : op.status;
}

/* Returns the time of the new owner's clock. */
static uint32_t now(const struct restore *r)
{
	return (uint32_t)(r->ahead + since_boot());
}

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
	uint32_t at = p->expires ? now(r) : 0;

	t = r->table;
	if (r->rc || (p->expires && p->expires <= at) ||
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
					      .ttl = p->expires ? p->expires - at : 0};
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
	kv_set_time(*kv, now(r));
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
			     .len = len};
	*why = '\0';
	rc = ask_clock(&r);
	if (!rc)
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
