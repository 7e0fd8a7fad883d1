/* SPDX-License-Identifier: BSD-2-Clause */
#include "memcached/item.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include <xxhash.h>

#include "base/mem.h"

#define MAGIC	    "RMc"
#define MONTH	    (60 * 60 * 24 * 30)
#define VALUE_SPACE ALIGN_UP(ROOST_KV_VALUE_MAX, 64u)
#define CONNECT_MS  2000
#define SCAN_SPACE  (2u * ROOST_KV_VALUE_MAX)
#define FLUSH_BATCH 256u

struct trailer {
	uint64_t cas;
	uint32_t flags, expires;
	uint8_t state;
	char magic[3];
} __attribute__((packed));

_Static_assert(sizeof(struct trailer) == ITEM_TRAILER, "the trailer of an item");

/* ---- the connection ---- */

static int connected(struct items *s)
{
	const struct roost_kv_attr attr = {.timeout_ms = CONNECT_MS};

	return s->kv ? 0 : roost_kv_open(s->host, s->service, &attr, &s->kv);
}

/* Executes operations. A connection that ended is opened again by the next call. */
static int run(struct items *s, struct roost_kv_op *ops, unsigned n)
{
	int rc = connected(s);

	if (rc)
		return rc;
	rc = roost_kv_run(s->kv, ops, n);
	if (!rc)
		return 0;
	roost_kv_close(s->kv);
	s->kv = NULL;
	return rc;
}

int items_open(struct items *s, const char *host, uint16_t service)
{
	struct timespec t;

	*s = (struct items){.host = host, .service = service};
	s->loaded = mem_alloc_pages(ITEM_BATCH * (size_t)VALUE_SPACE);
	s->fresh = mem_alloc_pages(VALUE_SPACE);
	if (!s->loaded || !s->fresh) {
		items_close(s);
		return -ENOMEM;
	}
	/* The cas values must be larger than those of an earlier front end of the same store. */
	clock_gettime(CLOCK_REALTIME, &t);
	s->cas = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	items_tick(s);
	return 0;
}

void items_close(struct items *s)
{
	if (s->kv)
		roost_kv_close(s->kv);
	if (s->loaded)
		mem_free_pages(s->loaded, ITEM_BATCH * (size_t)VALUE_SPACE);
	if (s->fresh)
		mem_free_pages(s->fresh, VALUE_SPACE);
}

void items_tick(struct items *s)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME_COARSE, &t);
	s->now = (uint64_t)t.tv_sec;
}

uint32_t item_expires(const struct items *s, int64_t exptime)
{
	uint64_t at;

	if (!exptime)
		return 0;
	if (exptime < 0)
		return 1;
	at = exptime > MONTH ? (uint64_t)exptime : s->now + (uint64_t)exptime;
	return at < UINT32_MAX ? (uint32_t)at : UINT32_MAX;
}

/* ---- loading ---- */

/* Decodes a value into an item. Returns false if the item has expired. */
static bool take(const struct items *s, const uint8_t *value, uint32_t len, struct item *it)
{
	struct trailer t;

	*it = (struct item){.value = value, .value_len = len, .len = len};
	if (len >= sizeof(t)) {
		memcpy(&t, value + len - sizeof(t), sizeof(t));
		if (!memcmp(t.magic, MAGIC, sizeof(t.magic))) {
			it->len = len - (uint32_t)sizeof(t);
			it->cas = le64toh(t.cas);
			it->flags = le32toh(t.flags);
			it->expires = le32toh(t.expires);
			it->state = t.state;
			return !it->expires || it->expires > s->now;
		}
	}
	it->cas = XXH3_64bits(value, len);
	return true;
}

int item_load_all(struct items *s, const struct item_key *key, unsigned n, struct item *it,
		  bool *found)
{
	struct roost_kv_op op[ITEM_BATCH];
	int rc;

	for (unsigned i = 0; i < n; i++)
		op[i] = (struct roost_kv_op){.code = ROOST_KV_GET,
					     .key = key[i].p,
					     .key_len = key[i].len,
					     .out = s->loaded + i * (size_t)VALUE_SPACE,
					     .out_cap = ROOST_KV_VALUE_MAX};
	for (unsigned i = 0; i < n; i++)
		it[i] = (struct item){0};
	rc = run(s, op, n);
	for (unsigned i = 0; !rc && i < n; i++) {
		found[i] = !op[i].status && take(s, op[i].out, op[i].out_len, &it[i]);
		if (op[i].status && op[i].status != -ENOENT)
			rc = op[i].status;
	}
	return rc;
}

int item_load(struct items *s, struct item_key key, struct item *it)
{
	bool found;
	int rc = item_load_all(s, &key, 1, it, &found);

	return rc ? rc : found ? 0 : -ENOENT;
}

/* ---- storing ---- */

int item_store(struct items *s, unsigned code, struct item_key key, uint32_t len, struct item *it,
	       const struct item *old)
{
	struct roost_kv_op op = {
		.code = (uint8_t)code, .key = key.p, .key_len = key.len, .value = s->fresh};
	struct trailer t;
	int rc;

	if (len > ITEM_MAX)
		return -E2BIG;
	if (code == ROOST_KV_PUT && it->expires && it->expires <= s->now) {
		rc = item_delete(s, key);
		return rc == -ENOENT ? 0 : rc;
	}
	if (!it->cas)
		it->cas = ++s->cas;
	t = (struct trailer){.cas = htole64(it->cas),
			     .flags = htole32(it->flags),
			     .expires = htole32(it->expires),
			     .state = it->state,
			     .magic = MAGIC};
	memcpy(s->fresh + len, &t, sizeof(t));
	op.value_len = len + (uint32_t)sizeof(t);
	if (old) {
		op.expect = old->value;
		op.expect_len = old->value_len;
	}
	if (it->expires)
		/* An expired item is hidden by its trailer, until the store removes it. */
		op.ttl = it->expires > s->now ? (uint32_t)(it->expires - s->now) : 1;
	rc = run(s, &op, 1);
	return rc ? rc : op.status;
}

int item_add(struct items *s, struct item_key key, uint32_t len, struct item *it)
{
	struct item old;
	int rc = item_store(s, ROOST_KV_PUT_ABSENT, key, len, it, NULL);

	if (rc != -EEXIST)
		return rc;
	/* The clocks of store and front end differ: the item may have expired for one of them. */
	rc = item_load(s, key, &old);
	if (rc != -ENOENT || !old.value)
		return rc ? rc : -EEXIST;
	return item_store(s, ROOST_KV_PUT_COMPARE, key, len, it, &old);
}

int item_replace(struct items *s, struct item_key key, uint32_t len, struct item *it)
{
	struct item old;
	int rc = item_load(s, key, &old);

	return rc ? rc : item_store(s, ROOST_KV_PUT_PRESENT, key, len, it, NULL);
}

int item_delete(struct items *s, struct item_key key)
{
	struct roost_kv_op op[] = {{.code = ROOST_KV_GET,
				    .key = key.p,
				    .key_len = key.len,
				    .out = s->loaded,
				    .out_cap = ROOST_KV_VALUE_MAX},
				   {.code = ROOST_KV_DELETE, .key = key.p, .key_len = key.len}};
	struct item old;
	int rc = run(s, op, 2);

	if (rc || op[1].status)
		return rc ? rc : op[1].status;
	/* A GET that misses was for a long value, and came after the DELETE: the item was there. */
	return op[0].status || take(s, op[0].out, op[0].out_len, &old) ? 0 : -ENOENT;
}

/* Another client may have deleted some of the pairs. */
static int delete_some(struct items *s, struct roost_kv_op *op, unsigned n)
{
	int rc = run(s, op, n);

	for (unsigned i = 0; !rc && i < n; i++)
		rc = op[i].status == -ENOENT ? 0 : op[i].status;
	return rc;
}

static int delete_scanned(struct items *s, struct roost_kv_op *scan)
{
	struct roost_kv_op op[FLUSH_BATCH];
	struct roost_kv_pair pair;
	uint32_t at = 0;
	unsigned n = 0;
	int rc = 0;

	while (!rc && roost_kv_next_pair(scan, &at, &pair, &scan->cursor)) {
		op[n++] = (struct roost_kv_op){
			.code = ROOST_KV_DELETE, .key = pair.key, .key_len = pair.key_len};
		if (n == FLUSH_BATCH) {
			rc = delete_some(s, op, n);
			n = 0;
		}
	}
	return rc ? rc : delete_some(s, op, n);
}

int items_flush(struct items *s)
{
	struct roost_kv_op scan = {.code = ROOST_KV_SCAN,
				   .function = ROOST_KV_SCAN_KEYS,
				   .out = s->loaded,
				   .out_cap = SCAN_SPACE};
	int rc;

	do {
		rc = run(s, &scan, 1);
		if (!rc)
			rc = scan.status;
		if (!rc)
			rc = delete_scanned(s, &scan);
	} while (!rc && scan.cursor);
	return rc;
}

int items_stat(struct items *s, struct roost_kv_stat *stat)
{
	struct roost_kv_op op = {.code = ROOST_KV_STAT, .out = stat, .out_cap = sizeof(*stat)};
	int rc = run(s, &op, 1);

	return rc ? rc : op.status;
}
