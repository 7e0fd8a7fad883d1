/* SPDX-License-Identifier: BSD-2-Clause */
/* The meta commands: mg, ms, md, ma, mn, me. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "memcached/session.h"

/* A request in progress, and the values that its reply may show. */
struct meta {
	struct mc_session *m;
	struct items *s;
	const struct mc_request *r;
	struct evbuffer *out;
	struct item_key key;
	struct item it;
	bool won, stale, already_won;
};

static uint64_t number(const struct mc_request *r, char name, uint64_t otherwise)
{
	const struct mc_flag *f = mc_flag(r, name);
	uint64_t v;

	return f && mc_number(f->arg, &v) ? v : otherwise;
}

/* Returns the expiry of a flag with a time, or `otherwise` without the flag. */
static uint32_t expiry(const struct meta *q, char name, uint32_t otherwise)
{
	const struct mc_flag *f = mc_flag(q->r, name);
	int64_t v;

	return f && mc_signed(f->arg, &v) ? item_expires(q->s, v) : otherwise;
}

/* ---- replies ---- */

/* Appends the flags that the request asks to return, in its order. */
static void add_flags(const struct meta *q, bool hit)
{
	const struct mc_request *r = q->r;

	for (unsigned i = 0; i < r->num_flags; i++) {
		const struct mc_flag *f = &r->flag[i];

		switch (f->name) {
		case 'O':
			evbuffer_add(q->out, " O", 2);
			evbuffer_add(q->out, f->arg.p, f->arg.len);
			break;
		case 'k':
			evbuffer_add(q->out, " k", 2);
			evbuffer_add(q->out, r->key.p, r->key.len);
			if (mc_flag(r, 'b'))
				evbuffer_add(q->out, " b", 2);
			break;
		case 'c':
			if (hit)
				evbuffer_add_printf(q->out, " c%" PRIu64, q->it.cas);
			break;
		case 'f':
			if (hit)
				evbuffer_add_printf(q->out, " f%" PRIu32, q->it.flags);
			break;
		case 's':
			if (hit)
				evbuffer_add_printf(q->out, " s%" PRIu32, q->it.len);
			break;
		case 't':
			/* The request may have set a time that is over. */
			if (hit && q->it.expires)
				evbuffer_add_printf(
					q->out, " t%" PRIu64,
					q->it.expires > q->s->now ? q->it.expires - q->s->now : 0);
			else if (hit)
				evbuffer_add(q->out, " t-1", 4);
			break;
		default:
			break;
		}
	}
	if (q->won)
		evbuffer_add(q->out, " W", 2);
	if (q->stale)
		evbuffer_add(q->out, " X", 2);
	if (q->already_won)
		evbuffer_add(q->out, " Z", 2);
	evbuffer_add(q->out, "\r\n", 2);
}

/* Replies with two letters and flags. A `quiet` reply is left out with the flag q. */
static void reply(const struct meta *q, const char *letters, bool hit, bool quiet)
{
	if (quiet && mc_flag(q->r, 'q'))
		return;
	evbuffer_add(q->out, letters, 2);
	add_flags(q, hit);
}

static void reply_value(const struct meta *q, const uint8_t *data, uint32_t len)
{
	evbuffer_add_printf(q->out, "VA %" PRIu32, len);
	add_flags(q, true);
	evbuffer_add(q->out, data, len);
	evbuffer_add(q->out, "\r\n", 2);
}

/* With the flag q, `quiet_miss` hides the reply about a missing item. */
static void reply_status(const struct meta *q, int rc, const char *exists, const char *missing,
			 bool quiet_miss)
{
	switch (rc) {
	case 0:
		reply(q, "HD", true, true);
		break;
	case -ENOENT:
		reply(q, missing, false, quiet_miss);
		break;
	case -EEXIST:
	case -EBUSY:
		reply(q, exists, false, false);
		break;
	default:
		mc_failed(q->out, rc);
	}
}

/* ---- mg ---- */

/* Stores the loaded item with another expiry or state. Its cas stays. */
static int restore(struct meta *q, const struct item *old)
{
	if (old->len > ITEM_MAX)
		return -E2BIG;
	memcpy(q->s->fresh, old->value, old->len);
	return item_store(q->s, ROOST_KV_PUT_COMPARE, q->key, old->len, &q->it, old);
}

/* Decides whether this client (W) or another client (Z) is to store a new value. */
static void choose_winner(struct meta *q)
{
	uint32_t early = expiry(q, 'R', 0);
	bool due = early && q->it.expires && q->it.expires < early;

	q->won = q->stale = q->already_won = false;
	q->stale = q->it.state & ITEM_STALE;
	if (q->it.state & ITEM_WON)
		q->already_won = true;
	else if (q->stale || due)
		q->won = true;
	if (q->won)
		q->it.state |= ITEM_WON;
}

/* Handles a miss with the flag N: creates an empty item, and this client wins. */
static int create_empty(struct meta *q)
{
	q->it = (struct item){.state = ITEM_WON, .expires = expiry(q, 'N', 0)};
	q->it.cas = number(q->r, 'E', 0);
	q->won = true;
	return item_add(q->s, q->key, 0, &q->it);
}

static int try_get(struct meta *q, struct item *old)
{
	int rc = item_load(q->s, q->key, old);

	if (rc == -ENOENT && mc_flag(q->r, 'N')) {
		rc = create_empty(q);
		*old = q->it;
		return rc == -EEXIST ? -ECANCELED : rc;
	}
	if (rc)
		return rc;
	q->it = *old;
	choose_winner(q);
	q->it.expires = expiry(q, 'T', q->it.expires);
	if (q->it.state == old->state && q->it.expires == old->expires)
		return 0;
	return restore(q, old);
}

static void meta_get(struct meta *q)
{
	struct item old = {0};
	int rc = -ECANCELED;

	for (unsigned i = 0; rc == -ECANCELED && i < MC_TRIES; i++)
		rc = try_get(q, &old);
	q->m->gets++;
	q->m->hits += !rc && !q->won;
	if (rc == -ENOENT) {
		reply(q, "EN", false, true);
	} else if (rc) {
		mc_failed(q->out, rc);
	} else if (mc_flag(q->r, 'v')) {
		reply_value(q, old.value, old.len);
	} else {
		reply(q, "HD", true, false);
	}
}

/* ---- ms ---- */

/*
 * Compares the cas. With the flag I, an older cas stores the value as stale. Returns 0 or
 * -EBUSY.
 */
static int check_cas(struct meta *q, const struct item *old)
{
	const struct mc_flag *c = mc_flag(q->r, 'C');
	uint64_t cas = number(q->r, 'C', 0);

	if (!c || cas == old->cas)
		return 0;
	if (!mc_flag(q->r, 'I') || cas > old->cas)
		return -EBUSY;
	q->it.state = ITEM_STALE;
	return 0;
}

static char mode_of(const struct mc_request *r, char otherwise)
{
	const struct mc_flag *f = mc_flag(r, 'M');

	return !f ? otherwise : f->arg.len == 1 ? *f->arg.p : '\0';
}

static int store_plain(struct meta *q, char mode, const uint8_t *data, uint32_t len)
{
	struct item old;
	int rc;

	/* The mode "add" stores only a missing item, which has no cas. */
	if (mc_flag(q->r, 'C') && mode != 'E') {
		rc = item_load(q->s, q->key, &old);
		if (rc)
			return rc;
		rc = check_cas(q, &old);
		if (rc)
			return rc;
		memcpy(q->s->fresh, data, len);
		rc = item_store(q->s, ROOST_KV_PUT_COMPARE, q->key, len, &q->it, &old);
		return rc == -ECANCELED ? -EBUSY : rc;
	}
	memcpy(q->s->fresh, data, len);
	if (mode == 'E')
		return item_add(q->s, q->key, len, &q->it);
	if (mode == 'R')
		return item_replace(q->s, q->key, len, &q->it);
	return item_store(q->s, ROOST_KV_PUT, q->key, len, &q->it, NULL);
}

/* Tries once to append or prepend. With the flag N a missing item is created. */
static int try_join(struct meta *q, char mode, const uint8_t *data, uint32_t len)
{
	struct item old;
	uint32_t joined;
	int rc = item_load(q->s, q->key, &old);

	if (rc == -ENOENT && mc_flag(q->r, 'N')) {
		q->it.expires = expiry(q, 'N', 0);
		memcpy(q->s->fresh, data, len);
		rc = item_add(q->s, q->key, len, &q->it);
		return rc == -EEXIST ? -ECANCELED : rc;
	}
	if (!rc)
		rc = check_cas(q, &old);
	if (rc)
		return rc;
	joined = mc_join(q->s, &old, data, len, mode == 'P');
	if (!joined && old.len + len)
		return -E2BIG;
	q->it = (struct item){.len = joined, .flags = old.flags, .expires = old.expires};
	q->it.cas = number(q->r, 'E', 0);
	return item_store(q->s, ROOST_KV_PUT_COMPARE, q->key, joined, &q->it, &old);
}

static void meta_set(struct meta *q, const uint8_t *data)
{
	char mode = mode_of(q->r, 'S');
	uint32_t len = (uint32_t)q->r->data_len;
	int rc = -ECANCELED;

	mode = mode >= 'a' ? (char)(mode - 32) : mode;
	if (!mode || !strchr("SERAP", mode)) {
		mc_line(q->out, "CLIENT_ERROR invalid mode for ms");
		return;
	}
	q->it = (struct item){.len = len,
			      .flags = (uint32_t)number(q->r, 'F', 0),
			      .expires = expiry(q, 'T', 0),
			      .cas = number(q->r, 'E', 0)};
	q->m->sets++;
	if (mode == 'A' || mode == 'P') {
		for (unsigned i = 0; rc == -ECANCELED && i < MC_TRIES; i++)
			rc = try_join(q, mode, data, len);
	} else {
		rc = store_plain(q, mode, data, len);
	}
	mc_drop_stale(q->m, q->r, rc);
	/* A missing item is "not found" for a compare, else "not stored". */
	reply_status(q, rc, rc == -EBUSY ? "EX" : "NS", mc_flag(q->r, 'C') ? "NF" : "NS", false);
}

/* ---- md ---- */

/* Marks the item as stale, or removes its value (x). */
static int change(struct meta *q, const struct item *old)
{
	bool invalidate = mc_flag(q->r, 'I'), empty = mc_flag(q->r, 'x');
	uint32_t len = empty ? 0 : old->len;

	if (len > ITEM_MAX)
		return -E2BIG;
	q->it = *old;
	q->it.cas = number(q->r, 'E', 0);
	if (empty)
		q->it.flags = 0;
	else
		memcpy(q->s->fresh, old->value, len);
	if (invalidate) {
		q->it.state = ITEM_STALE;
		q->it.expires = expiry(q, 'T', old->expires);
	}
	return item_store(q->s, ROOST_KV_PUT_COMPARE, q->key, len, &q->it, old);
}

/*
 * Deletes the item that was loaded. The store has no compare and DELETE, so the value is replaced
 * by an expired value.
 */
static int delete_same(struct meta *q, const struct item *old)
{
	q->it = (struct item){.expires = 1};
	return item_store(q->s, ROOST_KV_PUT_COMPARE, q->key, 0, &q->it, old);
}

static void meta_delete(struct meta *q)
{
	bool changes = mc_flag(q->r, 'I') || mc_flag(q->r, 'x');
	struct item old;
	int rc = -ECANCELED;

	if (!changes && !mc_flag(q->r, 'C'))
		rc = item_delete(q->s, q->key);
	for (unsigned i = 0; rc == -ECANCELED && i < MC_TRIES; i++) {
		rc = item_load(q->s, q->key, &old);
		if (!rc && mc_flag(q->r, 'C') && number(q->r, 'C', 0) != old.cas)
			rc = -EBUSY;
		if (!rc)
			rc = changes ? change(q, &old) : delete_same(q, &old);
	}
	reply_status(q, rc, "EX", "NF", true);
}

/* ---- ma ---- */

static int try_arithmetic(struct meta *q, bool decr, uint64_t *value)
{
	struct item old;
	int rc = item_load(q->s, q->key, &old);

	if (rc == -ENOENT && mc_flag(q->r, 'N')) {
		*value = number(q->r, 'J', 0);
		q->it = (struct item){.expires = expiry(q, 'N', 0), .cas = number(q->r, 'E', 0)};
		q->it.len = mc_put_number(q->s, *value);
		rc = item_add(q->s, q->key, q->it.len, &q->it);
		return rc == -EEXIST ? -ECANCELED : rc;
	}
	if (!rc && mc_flag(q->r, 'C') && number(q->r, 'C', 0) != old.cas)
		rc = -EBUSY;
	if (rc)
		return rc;
	if (!mc_add(&old, number(q->r, 'D', 1), decr, value))
		return -EDOM;
	q->it = (struct item){.flags = old.flags, .cas = number(q->r, 'E', 0)};
	q->it.expires = expiry(q, 'T', old.expires);
	q->it.len = mc_put_number(q->s, *value);
	return item_store(q->s, ROOST_KV_PUT_COMPARE, q->key, q->it.len, &q->it, &old);
}

static void meta_arithmetic(struct meta *q)
{
	char mode = mode_of(q->r, 'I');
	uint64_t value = 0;
	int rc = -ECANCELED;

	if (!mode || !strchr("Ii+Dd-", mode)) {
		mc_line(q->out, "CLIENT_ERROR invalid mode for ma");
		return;
	}
	for (unsigned i = 0; rc == -ECANCELED && i < MC_TRIES; i++)
		rc = try_arithmetic(q, strchr("Dd-", mode), &value);
	if (rc == -EDOM)
		mc_line(q->out, "CLIENT_ERROR cannot increment or decrement non-numeric value");
	else if (!rc && mc_flag(q->r, 'v') && !mc_flag(q->r, 'q'))
		reply_value(q, q->s->fresh, q->it.len);
	else
		reply_status(q, rc, "EX", "NF", true);
}

/* ---- me ---- */

static void meta_debug(struct meta *q)
{
	struct item it;
	int rc = item_load(q->s, q->key, &it);

	if (rc == -ENOENT) {
		mc_line(q->out, "EN");
		return;
	}
	if (rc) {
		mc_failed(q->out, rc);
		return;
	}
	evbuffer_add(q->out, "ME ", 3);
	evbuffer_add(q->out, q->r->key.p, q->r->key.len);
	evbuffer_add_printf(q->out, " exp=%" PRId64 " cas=%" PRIu64 " size=%" PRIu32 "\r\n",
			    it.expires ? (int64_t)(it.expires - q->s->now) : -1, it.cas,
			    it.value_len);
}

void mc_meta(struct mc_session *m, const struct mc_request *r, const uint8_t *data,
	     struct evbuffer *out)
{
	struct meta q = {
		.m = m, .s = &m->items, .r = r, .out = out, .key = {r->meta_key, r->meta_key_len}};

	switch (r->command) {
	case MC_META_GET:
		meta_get(&q);
		break;
	case MC_META_SET:
		meta_set(&q, data);
		break;
	case MC_META_DELETE:
		meta_delete(&q);
		break;
	case MC_META_ARITHMETIC:
		meta_arithmetic(&q);
		break;
	case MC_META_DEBUG:
		meta_debug(&q);
		break;
	default:
		mc_line(out, "MN");
	}
}
