/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of memcached's text protocol. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "memcached/session.h"

/* The version of memcached whose protocol this is. Clients take features from it. */
#define PROTOCOL "1.6.18"

#define HEAD_MAX 512 /* bytes of a reply to get, without the value */

void mc_line(struct evbuffer *out, const char *line)
{
	evbuffer_add(out, line, strlen(line));
	evbuffer_add(out, "\r\n", 2);
}

void mc_failed(struct evbuffer *out, int err)
{
	switch (err) {
	case -ENOSPC:
		mc_line(out, "SERVER_ERROR out of memory storing object");
		break;
	case -E2BIG:
		mc_line(out, "SERVER_ERROR object too large for cache");
		break;
	case -ECANCELED:
		mc_line(out, "SERVER_ERROR other clients change the item too often");
		break;
	default:
		evbuffer_add_printf(out, "SERVER_ERROR the store does not answer: %s\r\n",
				    strerror(-err));
	}
}

/* ---- changes of items ---- */

uint32_t mc_join(struct items *s, const struct item *old, const uint8_t *data, uint32_t len,
		 bool prepend)
{
	/* The value of a native client may be longer than that of an item. */
	if (old->len > ITEM_MAX || len > ITEM_MAX - old->len)
		return 0;
	memcpy(s->fresh + (prepend ? len : 0), old->value, old->len);
	if (len)
		memcpy(s->fresh + (prepend ? 0 : old->len), data, len);
	return old->len + len;
}

static bool is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

bool mc_add(const struct item *old, uint64_t delta, bool decr, uint64_t *value)
{
	struct mc_word w = {(const char *)old->value, old->len};

	/* memcached takes a number with white space around it, as of a file with one line */
	while (w.len && is_space(w.p[w.len - 1]))
		w.len--;
	for (; w.len && is_space(*w.p); w.p++)
		w.len--;
	if (w.len > 20 || !mc_number(w, value))
		return false;
	if (decr)
		*value = *value > delta ? *value - delta : 0;
	else
		*value += delta; /* the sum wraps at 64 bits */
	return true;
}

uint32_t mc_put_number(struct items *s, uint64_t value)
{
	return (uint32_t)snprintf((char *)s->fresh, 24, "%" PRIu64, value);
}

static struct item_key key_of(const struct mc_request *r)
{
	return (struct item_key){r->key.p, r->key.len};
}

/* ---- get, gets, gat, gats ---- */

/* Sets the time at which an item expires. Returns 0 or a negative errno. */
static int touch(struct mc_session *m, struct item_key key, uint32_t expires)
{
	struct items *s = &m->items;
	struct item old, it;
	int rc = -ECANCELED;

	m->touches++;
	for (unsigned i = 0; rc == -ECANCELED && i < MC_TRIES; i++) {
		rc = item_load(s, key, &old);
		if (rc)
			return rc;
		if (old.len > ITEM_MAX)
			return -E2BIG;
		memcpy(s->fresh, old.value, old.len);
		it = old;
		it.expires = expires;
		rc = item_store(s, ROOST_KV_PUT_COMPARE, key, old.len, &it, &old);
	}
	return rc;
}

/* Returns 0, or -ENOMEM without a part of the reply. */
static int put_value(struct mc_session *m, const struct mc_request *r, struct item_key key,
		     const struct item *it, struct evbuffer *out)
{
	if (evbuffer_expand(out, it->len + HEAD_MAX))
		return -ENOMEM;
	evbuffer_add(out, "VALUE ", 6);
	evbuffer_add(out, key.p, key.len);
	evbuffer_add_printf(out, " %" PRIu32 " %" PRIu32, it->flags, it->len);
	if (r->with_cas)
		evbuffer_add_printf(out, " %" PRIu64, it->cas);
	evbuffer_add(out, "\r\n", 2);
	evbuffer_add(out, it->value, it->len);
	evbuffer_add(out, "\r\n", 2);
	m->hits++;
	return 0;
}

/* Returns 0 or an error of the store. */
static int touch_some(struct mc_session *m, const struct item_key *key, unsigned n,
		      uint32_t expires)
{
	int rc = 0;

	for (unsigned i = 0; i < n && (!rc || rc == -ENOENT); i++)
		rc = touch(m, key[i], expires);
	return rc == -ENOENT ? 0 : rc;
}

/* Loads and replies with some items. Returns 0 or an error of the store. */
static int get_some(struct mc_session *m, const struct mc_request *r, const struct item_key *key,
		    unsigned n, struct evbuffer *out)
{
	struct item it[ITEM_BATCH];
	bool found[ITEM_BATCH];
	uint32_t expires = item_expires(&m->items, r->exptime);
	/* An item that expires at once is loaded before. */
	bool at_once = expires && expires <= m->items.now;
	int rc = 0;

	m->gets += n;
	if (r->touches && !at_once)
		rc = touch_some(m, key, n, expires);
	if (!rc)
		rc = item_load_all(&m->items, key, n, it, found);
	for (unsigned i = 0; !rc && i < n; i++) {
		if (found[i])
			rc = put_value(m, r, key[i], &it[i], out);
	}
	if (r->touches && at_once && !rc)
		rc = touch_some(m, key, n, expires);
	return rc;
}

bool mc_get(struct mc_session *m, const struct mc_request *r, uint32_t *done, struct evbuffer *out)
{
	struct mc_word rest = {r->keys.p + *done, r->keys.len - *done}, w;
	struct item_key key[ITEM_BATCH];
	unsigned n = 0;
	int rc = 0;

	while (n < ITEM_BATCH && mc_next_key(&rest, &w))
		key[n++] = (struct item_key){w.p, w.len};
	if (n)
		rc = get_some(m, r, key, n, out);
	*done = (uint32_t)(rest.p - r->keys.p);
	if (rc)
		mc_failed(out, rc);
	else if (n < ITEM_BATCH)
		mc_line(out, "END");
	else
		return false;
	*done = 0;
	return true;
}

/* ---- set and others ---- */

static int set_plain(struct mc_session *m, const struct mc_request *r, const uint8_t *data)
{
	struct items *s = &m->items;
	struct item it = {.flags = r->flags, .expires = item_expires(s, r->exptime)};
	uint32_t len = (uint32_t)r->data_len;
	struct item old;
	int rc;

	if (r->mode == MC_MODE_CAS) {
		rc = item_load(s, key_of(r), &old);
		if (rc)
			return rc;
		if (old.cas != r->cas)
			return -ECANCELED;
		memcpy(s->fresh, data, len);
		return item_store(s, ROOST_KV_PUT_COMPARE, key_of(r), len, &it, &old);
	}
	memcpy(s->fresh, data, len);
	if (r->mode == MC_MODE_ADD)
		return item_add(s, key_of(r), len, &it);
	if (r->mode == MC_MODE_REPLACE)
		return item_replace(s, key_of(r), len, &it);
	return item_store(s, ROOST_KV_PUT, key_of(r), len, &it, NULL);
}

static int set_joined(struct mc_session *m, const struct mc_request *r, const uint8_t *data)
{
	struct items *s = &m->items;
	struct item old, it;
	int rc = -ECANCELED;

	for (unsigned i = 0; rc == -ECANCELED && i < MC_TRIES; i++) {
		uint32_t len;

		rc = item_load(s, key_of(r), &old);
		if (rc)
			return rc;
		len = mc_join(s, &old, data, (uint32_t)r->data_len, r->mode == MC_MODE_PREPEND);
		if (!len && old.len + r->data_len)
			return -E2BIG;
		it = (struct item){.flags = old.flags, .expires = old.expires};
		rc = item_store(s, ROOST_KV_PUT_COMPARE, key_of(r), len, &it, &old);
	}
	return rc;
}

void mc_drop_stale(struct mc_session *m, const struct mc_request *r, int rc)
{
	if ((rc != -E2BIG && rc != -ENOSPC) || !mc_replaces(r))
		return;
	item_delete(&m->items, r->command == MC_SET
				       ? key_of(r)
				       : (struct item_key){r->meta_key, r->meta_key_len});
}

static void set(struct mc_session *m, const struct mc_request *r, const uint8_t *data,
		struct evbuffer *out)
{
	bool joins = r->mode == MC_MODE_APPEND || r->mode == MC_MODE_PREPEND;
	int rc = joins ? set_joined(m, r, data) : set_plain(m, r, data);

	m->sets++;
	mc_drop_stale(m, r, rc);
	if (!rc)
		mc_line(out, "STORED");
	else if (rc == -ECANCELED && r->mode == MC_MODE_CAS)
		mc_line(out, "EXISTS");
	else if (rc == -ENOENT && r->mode == MC_MODE_CAS)
		mc_line(out, "NOT_FOUND");
	else if (rc == -ENOENT || rc == -EEXIST)
		mc_line(out, "NOT_STORED");
	else
		mc_failed(out, rc);
}

static void arithmetic(struct mc_session *m, const struct mc_request *r, struct evbuffer *out)
{
	struct items *s = &m->items;
	struct item old, it;
	uint64_t value = 0;
	int rc = -ECANCELED;

	for (unsigned i = 0; rc == -ECANCELED && i < MC_TRIES; i++) {
		rc = item_load(s, key_of(r), &old);
		if (rc)
			break;
		if (!mc_add(&old, r->delta, r->decr, &value)) {
			mc_line(out,
				"CLIENT_ERROR cannot increment or decrement non-numeric value");
			return;
		}
		it = (struct item){.flags = old.flags, .expires = old.expires};
		rc = item_store(s, ROOST_KV_PUT_COMPARE, key_of(r), mc_put_number(s, value), &it,
				&old);
		if (rc == -ENOENT) /* the item was deleted meanwhile */
			break;
	}
	if (!rc)
		evbuffer_add_printf(out, "%" PRIu64 "\r\n", value);
	else if (rc == -ENOENT)
		mc_line(out, "NOT_FOUND");
	else
		mc_failed(out, rc);
}

static void put_result(struct evbuffer *out, int rc, const char *done)
{
	if (!rc)
		mc_line(out, done);
	else if (rc == -ENOENT)
		mc_line(out, "NOT_FOUND");
	else
		mc_failed(out, rc);
}

/* ---- about the server ---- */

static void stats(struct mc_session *m, const struct mc_request *r, struct evbuffer *out)
{
	struct roost_kv_stat st;
	int rc;

	if (r->word.len == 5 && !memcmp(r->word.p, "reset", 5)) {
		m->gets = m->hits = m->sets = m->touches = 0;
		mc_line(out, "RESET");
		return;
	}
	if (r->word.len) { /* "items", "slabs", "sizes" and others have no statistics */
		mc_line(out, "END");
		return;
	}
	rc = items_stat(&m->items, &st);
	if (rc) {
		mc_failed(out, rc);
		return;
	}
	const struct {
		const char *name;
		uint64_t value;
	} rows[] = {
		{"pid", (uint64_t)getpid()},
		{"uptime", m->items.now - m->started},
		{"time", m->items.now},
		{"pointer_size", 8 * sizeof(void *)},
		{"curr_connections", m->connections},
		{"total_connections", m->connected},
		{"cmd_get", m->gets},
		{"cmd_set", m->sets},
		{"cmd_touch", m->touches},
		{"get_hits", m->hits},
		{"get_misses", m->gets - m->hits},
		{"limit_maxbytes", st.limit},
		{"bytes", st.used},
		{"curr_items", st.pairs},
		{"evictions", st.evicted},
		{"threads", 1},
	};

	evbuffer_add_printf(out, "STAT version " PROTOCOL "-roost-%s\r\n", m->version);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		evbuffer_add_printf(out, "STAT %s %" PRIu64 "\r\n", rows[i].name, rows[i].value);
	mc_line(out, "END");
}

static void flush_all(struct mc_session *m, const struct mc_request *r, struct evbuffer *out)
{
	uint32_t at = item_expires(&m->items, r->exptime);
	int rc = 0;

	/* This request replaces one with a later time. */
	m->flush_at = at > m->items.now ? at : 0;
	if (!m->flush_at)
		rc = items_flush(&m->items);
	put_result(out, rc, "OK");
}

void mc_session_tick(struct mc_session *m)
{
	items_tick(&m->items);
	if (m->flush_at && m->flush_at <= m->items.now && !items_flush(&m->items))
		m->flush_at = 0;
}

void mc_text(struct mc_session *m, const struct mc_request *r, const uint8_t *data,
	     struct evbuffer *out)
{
	switch (r->command) {
	case MC_SET:
		set(m, r, data, out);
		break;
	case MC_DELETE:
		put_result(out, item_delete(&m->items, key_of(r)), "DELETED");
		break;
	case MC_ARITHMETIC:
		arithmetic(m, r, out);
		break;
	case MC_TOUCH:
		put_result(out, touch(m, key_of(r), item_expires(&m->items, r->exptime)),
			   "TOUCHED");
		break;
	case MC_STATS:
		stats(m, r, out);
		break;
	case MC_FLUSH_ALL:
		flush_all(m, r, out);
		break;
	case MC_VERSION:
		evbuffer_add_printf(out, "VERSION " PROTOCOL "-roost-%s\r\n", m->version);
		break;
	case MC_VERBOSITY:
		mc_line(out, "OK");
		break;
	default:
		mc_line(out, r->error);
	}
}

bool mc_execute(struct mc_session *m, const struct mc_request *r, const uint8_t *data,
		struct evbuffer *out)
{
	struct evbuffer *ignored;

	switch (r->command) {
	case MC_QUIT:
		return false;
	case MC_BINARY:
		mc_line(out, "SERVER_ERROR no binary protocol here: use the text or meta protocol");
		return false;
	case MC_META_GET ... MC_META_DEBUG:
		mc_meta(m, r, data, out);
		return true;
	default:
		break;
	}
	if (!r->noreply) {
		mc_text(m, r, data, out);
		return r->command != MC_INVALID || r->line_len;
	}
	ignored = evbuffer_new();
	if (!ignored)
		return false;
	mc_text(m, r, data, ignored);
	evbuffer_free(ignored);
	return true;
}
