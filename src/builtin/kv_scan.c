/* SPDX-License-Identifier: BSD-2-Clause */
/* The scan of the kernel kv: as many pairs as the reply has space for. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "builtin/kv_group.h"
#include "builtin/kv_store.h"
#include "kvwire/kvwire.h"
#include "kvwire/number.h"

#define TTL 4u /* bytes of the time to live behind a pair of a partition that leaves */

/* Returns whether a scan with this function has the pairs of the key. */
static bool in_scan(const struct kv_store_scan *s, const struct kv_pair *pair)
{
	const struct kv_parts *p = s->parts;
	unsigned at;

	if (!p)
		return s->function <= ROOST_KV_SCAN_KEYS;
	at = kv_table_partition(p->seed, p->partitions, pair->key, pair->key_len);
	switch (s->function) {
	case ROOST_KV_SCAN_LEAVING:
		return p->moving_out[at];
	case ROOST_KV_SCAN_STRAY:
		return kv_parts_stray(p, at);
	default:
		return kv_parts_serve(p, at);
	}
}

/*
 * Returns the seconds until a pair expires; 0: never. Another machine's clock may differ from that
 * of the node, so the seconds of `expires` have no meaning there.
 */
static uint32_t time_to_live(const struct kv_pair *p)
{
	uint32_t now;

	if (!p->expires)
		return 0;
	now = kv_store_now();
	return p->expires > now ? p->expires - now : 1;
}

static bool add_pair(void *ctx, const struct kv_pair *p)
{
	struct kv_store_scan *s = ctx;
	bool keys = s->function == ROOST_KV_SCAN_KEYS || s->function == ROOST_KV_SCAN_STRAY;
	bool leaves = s->function == ROOST_KV_SCAN_LEAVING;
	struct roost_kv_pair pair = {p->key, p->value, p->key_len, keys ? 0 : p->value_len};
	size_t len = kvwire_pair_len(pair.key_len, pair.value_len), whole = len;
	uint8_t *at = s->at + s->added;

	if (!in_scan(s, p))
		return true;
	if (leaves)
		whole += TTL;
	if (whole > (size_t)(s->end - at)) {
		s->missed = whole;
		return false;
	}
	kvwire_put_pair(at, &pair);
	if (leaves)
		put_u32(at + len, time_to_live(p));
	s->added += whole;
	return true;
}

#define SCAN_BUCKETS 256u
#define SCAN_STEP    32u /* buckets of a step, with a far tier */

static bool begin_scan(struct kv_store *st, struct kvwire_reply *w, struct kv_group *g)
{
	struct kv_store_scan *s = &g->scan;
	size_t space;

	if (g->alone.function > ROOST_KV_SCAN_STRAY) {
		kvwire_reply_add(w, -EINVAL, NULL, 0);
		return false;
	}
	if (g->alone.function >= ROOST_KV_SCAN_LEAVING && !st->parts) {
		kvwire_reply_add(w, -EOPNOTSUPP, NULL, 0);
		return false;
	}
	if (st->parts && st->parts->fenced && g->alone.function <= ROOST_KV_SCAN_KEYS) {
		kv_group_add_not_owned(st, w);
		return false;
	}
	*s = (struct kv_store_scan){
		.state = {.cursor = g->alone.cursor, .client = g->client},
		.data = kvwire_reply_space(w, 1, &space),
		.function = g->alone.function,
		.serves = st->parts && g->alone.function <= ROOST_KV_SCAN_KEYS,
		.parts = st->parts,
	};
	if (space < KVWIRE_CURSOR) {
		kvwire_reply_add_cut(w, 0, KVWIRE_CURSOR);
		return false;
	}
	s->at = s->data + KVWIRE_CURSOR;
	s->end = s->data + space;
	return true;
}

/* If the fence closed meanwhile, pairs may be missing, or another node may have changed them. */
static void end_scan(struct kv_store *st, struct kvwire_reply *w, const struct kv_group *g,
		     uint64_t next)
{
	const struct kv_store_scan *s = &g->scan;

	if (s->serves && !kv_fence_open(st->fence, g->version, kv_fence_now())) {
		kvwire_reply_add(w, -ETIMEDOUT, NULL, 0);
		return;
	}
	next = htole64(next);
	memcpy(s->data, &next, sizeof(next));
	kvwire_reply_add(w, 0, s->data, (uint32_t)(s->at - s->data));
}

/*
 * Ends a scan whose next pair has no space. If the reply has no pair, or if the cursor does not
 * advance, the client asks again with space for that pair, too. The cursor does not advance over
 * pairs of a chain whose hashes have the same first bits (src/kv/scan.c).
 */
static void end_at_pair(struct kv_store *st, struct kvwire_reply *w, const struct kv_group *g)
{
	const struct kv_store_scan *s = &g->scan;
	size_t len = (size_t)(s->at - s->data);

	if (len > KVWIRE_CURSOR && s->state.cursor != g->alone.cursor)
		end_scan(st, w, g, s->state.cursor);
	else
		kvwire_reply_add_cut(w, 0, (uint32_t)(len + s->missed));
}

bool kv_store_scan(struct kv_store *st, struct kvwire_reply *w, struct kv_group *g)
{
	struct kv_store_scan *s = &g->scan;

	if (!s->data && !begin_scan(st, w, g))
		return true;
	/* The fence may open again before the end of the scan, which would lack pairs. */
	if (s->serves && st->parts->fenced) {
		kvwire_reply_add(w, -ETIMEDOUT, NULL, 0);
		return true;
	}
	for (;;) {
		int rc;

		s->added = s->missed = 0;
		rc = kv_scan_next(st->kv, &s->state, add_pair, s);
		if (rc == -EAGAIN)
			return false;
		if (rc) {
			kvwire_reply_add(w, rc, NULL, 0);
			return true;
		}
		s->at += s->added;
		if (s->missed) {
			end_at_pair(st, w, g);
			return true;
		}
		if (++s->buckets >= SCAN_BUCKETS || !s->state.cursor)
			break;
		if (st->groups && s->buckets % SCAN_STEP == 0)
			return false;
	}
	end_scan(st, w, g, s->state.cursor);
	return true;
}
