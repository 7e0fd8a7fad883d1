/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Scans of a store with a far tier. A bucket is visited in a transaction, as an operation is
 * executed (flight.c). If lines are missing, those of the next buckets are read at the same time,
 * as far as their addresses are known, and held until the scan is behind these buckets.
 */
#include <errno.h>

#include "kv/flight.h"

/* The value keeps many requests in flight and leaves enough free requests for operations. */
#define AHEAD_BUCKETS 64u
#define AHEAD_LINES   (KV_FAR_REQUESTS / 4)

struct visited {
	struct kv_scan_state *s;
	kv_visit visit;
	void *ctx;
	uint64_t next;
};

static void do_scan(struct kv *kv, void *arg)
{
	struct visited *v = arg;
	bool stopped;

	v->next = kv_scan_bucket(kv, v->s->cursor, v->visit, v->ctx, &stopped);
}

/* Returns the place where the scan awaits lines, or NULL if its client has its share. */
static struct waiting *place_of(struct kv_flight *f, struct kv_scan_state *s)
{
	unsigned i = 0;

	if (s->waiting)
		return &f->scans[s->waiting - 1];
	if (!share_take(&f->scan_shares, s->client))
		return NULL;
	while (f->scans[i].used)
		i++;
	f->scans[i].used = true;
	f->scans[i].until = 0;
	s->waiting = i + 1;
	return &f->scans[i];
}

void kv_scan_end(struct kv *kv, struct kv_scan_state *s)
{
	struct kv_flight *f;

	if (!s->waiting)
		return;
	f = kv->flight; /* not read earlier: only a scan that waits needs the store */
	kv_near_release(f->near, FIRST_SCAN + s->waiting - 1, &f->scans[s->waiting - 1].holds);
	f->scans[s->waiting - 1].used = false;
	share_give(&f->scan_shares, s->client);
	s->waiting = 0;
}

/* Returns the number of lines that the scan may hold besides those of the bucket that it visits. */
static uint64_t budget(const struct kv_flight *f, const struct waiting *w)
{
	uint64_t lines = 0;

	for (unsigned i = 0; i < SCANS; i++)
		lines += f->scans[i].holds.n;
	if (lines >= f->ahead_max || w->holds.n >= AHEAD_LINES)
		return 0;
	return f->ahead_max - lines < AHEAD_LINES - w->holds.n ? f->ahead_max - lines
							       : AHEAD_LINES - w->holds.n;
}

/* Requests the lines of the buckets after this one, whose lines the last transaction missed. */
static void look_ahead(struct kv *kv, struct waiting *w, uint64_t bucket)
{
	struct kv_flight *f = kv->flight;
	uint64_t lines = budget(f, w), next = bucket + 1;

	while (next < kv->buckets && next - bucket < AHEAD_BUCKETS &&
	       kv_near_num_wanted(f->near) < lines && kv_want_bucket(kv, next))
		next++;
	/* The index is read in order, so the line of the bucket after these comes next. */
	if (next < kv->buckets && lines)
		kv_near_want(f->near, kv_bucket_addr(next), BUCKET_BYTES);
	if (next > w->until)
		w->until = next;
}

int kv_scan_next(struct kv *kv, struct kv_scan_state *s, kv_visit visit, void *ctx)
{
	struct visited v = {s, visit, ctx, 0};
	struct kv_flight *f = kv->flight;
	struct waiting *w;
	int err;

	if (!f) {
		s->cursor = kv_scan(kv, s->cursor, 1, visit, ctx);
		return 0;
	}
	if (kv_divided(kv)) /* the values are between two states */
		return -EAGAIN;
	err = kv_near_error(f->near);
	if (!err && s->waiting && place_of(f, s)->holds.missing)
		return -EAGAIN;
	if (!err && !kv_attempt(kv, do_scan, &v, true)) {
		w = place_of(f, s);
		if (w) {
			f->parked++;
			look_ahead(kv, w, kv_cursor_bucket(s->cursor));
			kv_near_fetch(f->near, FIRST_SCAN + s->waiting - 1, &w->holds);
		}
		return -EAGAIN;
	}
	if (!err)
		s->cursor = v.next;
	if (err || !s->cursor ||
	    (s->waiting && kv_cursor_bucket(s->cursor) >= place_of(f, s)->until))
		kv_scan_end(kv, s);
	kv_near_trim(f->near);
	return err;
}

bool kv_scan_poll(struct kv *kv)
{
	struct kv_flight *f = kv->flight;

	return f && kv_near_poll(f->near, false);
}
