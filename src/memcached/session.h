/* SPDX-License-Identifier: BSD-2-Clause */
/* Execution of requests: the state that the connections of a front end share. */
#ifndef ROOST_MEMCACHED_SESSION_H
#define ROOST_MEMCACHED_SESSION_H

#include <event2/buffer.h>

#include "memcached/item.h"
#include "memcached/request.h"

#define MC_TRIES 1000 /* tries of a change, if other clients are faster */

struct mc_session {
	struct items items;
	const char *version;
	uint64_t started; /* Unix time */
	uint64_t connections, connected;
	uint64_t gets, hits, sets, touches;
	uint64_t flush_at; /* Unix time at which all pairs are deleted; 0: never */
};

/*
 * Executes a request other than MC_GET and appends the reply. `data` are the data of a command that
 * has data. Returns false if the connection ends.
 */
bool mc_execute(struct mc_session *m, const struct mc_request *r, const uint8_t *data,
		struct evbuffer *out);
/*
 * Executes MC_GET for up to ITEM_BATCH keys, from byte *done of the keys on, and advances *done.
 * Returns true at the end of the reply; *done is then 0.
 */
bool mc_get(struct mc_session *m, const struct mc_request *r, uint32_t *done, struct evbuffer *out);
/*
 * Deletes the item that a request should have replaced, if the new value was too long or there was
 * no memory for it: a client must not get the old value. `rc`: the result of the request.
 */
void mc_drop_stale(struct mc_session *m, const struct mc_request *r, int rc);
/*
 * Reads the clock, and executes a flush_all whose time has come. If the store does not answer, the
 * next call tries again. Call it before the requests of an event.
 */
void mc_session_tick(struct mc_session *m);

/* ---- for text.c and meta.c ---- */

void mc_text(struct mc_session *m, const struct mc_request *r, const uint8_t *data,
	     struct evbuffer *out);
void mc_meta(struct mc_session *m, const struct mc_request *r, const uint8_t *data,
	     struct evbuffer *out);
/* Appends a line and its end. */
void mc_line(struct evbuffer *out, const char *line);
/* Appends the line for an error of the store. */
void mc_failed(struct evbuffer *out, int err);

/* Appends or prepends data to *old, in s->fresh. Returns the new length, or 0 if it is too long. */
uint32_t mc_join(struct items *s, const struct item *old, const uint8_t *data, uint32_t len,
		 bool prepend);
/* Adds or subtracts. Returns false if the item is not a decimal number. */
bool mc_add(const struct item *old, uint64_t delta, bool decr, uint64_t *value);
/* Writes a number to s->fresh. Returns its length. */
uint32_t mc_put_number(struct items *s, uint64_t value);

#endif
