/* SPDX-License-Identifier: BSD-2-Clause */
#include "etcd/answer.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#define PAUSE_MS	50u
#define PAUSE_MOST_MS	1000u /* the longest pause, also without a watch */
#define PAUSE_WATCHED	5000u /* a connection may be dead although it has not ended */
#define PAUSE_DOUBLINGS 5u
#define SECONDS_MAX	86400u /* the most seconds of a lease */

unsigned etcd_pause_ms(unsigned failures, bool watched)
{
	unsigned ms;

	if (!failures)
		return watched ? PAUSE_WATCHED : PAUSE_MOST_MS;
	ms = PAUSE_MS << (failures < PAUSE_DOUBLINGS ? failures : PAUSE_DOUBLINGS);

	return ms < PAUSE_MOST_MS ? ms : PAUSE_MOST_MS;
}

/* ---- base64 ---- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Returns a string with base64, which jansson owns, or NULL if there is no memory. */
static json_t *encode(const char *data, size_t len)
{
	char *text = malloc((len + 2) / 3 * 4 + 1), *to = text;
	json_t *o;

	if (!text)
		return NULL;
	for (size_t i = 0; i < len; i += 3) {
		size_t left = len - i;
		uint32_t v = (uint32_t)(uint8_t)data[i] << 16;

		if (left > 1)
			v |= (uint32_t)(uint8_t)data[i + 1] << 8;
		if (left > 2)
			v |= (uint8_t)data[i + 2];
		*to++ = digits[v >> 18];
		*to++ = digits[v >> 12 & 63];
		*to++ = left > 1 ? digits[v >> 6 & 63] : '=';
		*to++ = left > 2 ? digits[v & 63] : '=';
	}
	*to = '\0';
	o = json_string(text);
	free(text);
	return o;
}

static int digit_of(char c)
{
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Decodes base64. Returns 0, -ENOMEM or -EBADMSG. */
static int decode(const char *text, char **out, size_t *out_len)
{
	size_t len = strlen(text), n = 0;
	uint32_t v = 0;
	char *data;

	if (len % 4)
		return -EBADMSG;
	if (len && text[len - 1] == '=')
		len -= text[len - 2] == '=' ? 2 : 1;
	data = malloc(len / 4 * 3 + 3);
	if (!data)
		return -ENOMEM;
	for (size_t i = 0; i < len; i++) {
		int d = digit_of(text[i]);

		if (d < 0) {
			free(data);
			return -EBADMSG;
		}
		v = v << 6 | (uint32_t)d;
		if (i % 4)
			data[n++] = (char)(v >> (6 - 2 * (i % 4)));
	}
	*out = data;
	*out_len = n;
	return 0;
}

/* ---- requests ---- */

/* Converts `o` to text, and drops the reference. */
static char *dump(json_t *o)
{
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	json_decref(o);
	return text;
}

static json_t *decimal(uint64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, number);
	return json_string(text);
}

static json_t *key_of(const char *key)
{
	return encode(key, strlen(key));
}

char *etcd_range_request(const char *key)
{
	return dump(json_pack("{s:o}", "key", key_of(key)));
}

static json_t *put(const char *key, json_t *value)
{
	return json_pack("{s:{s:o,s:o}}", "request_put", "key", key_of(key), "value", value);
}

static json_t *number_value(uint64_t number)
{
	char text[24];
	int len = snprintf(text, sizeof(text), "%" PRIx64, number);

	return encode(text, (size_t)len);
}

/*
 * Returns a condition of a transaction: the key does not exist. Takes over the reference to
 * `key`.
 */
static json_t *absent(json_t *key)
{
	return json_pack("{s:o,s:s,s:s,s:s}", "key", key, "target", "CREATE", "result", "EQUAL",
			 "create_revision", "0");
}

/*
 * A condition: the last change of the key has this revision; 0: there is no such key. Takes
 * `key`.
 */
static json_t *unchanged(json_t *key, uint64_t revision)
{
	return json_pack("{s:o,s:s,s:s,s:o}", "key", key, "target", "MOD", "result", "EQUAL",
			 "mod_revision", decimal(revision));
}

char *etcd_put_request(const char *key, uint64_t revision, const char *text, size_t len,
		       const char *mark, uint64_t number, const char *gone)
{
	json_t *o =
		json_pack("{s:[o],s:[o,o]}", "compare", unchanged(key_of(key), revision), "success",
			  put(key, encode(text, len)), put(mark, number_value(number)));

	if (o && gone &&
	    json_array_append_new(json_object_get(o, "compare"), absent(key_of(gone)))) {
		json_decref(o);
		return NULL;
	}
	return dump(o);
}

char *etcd_check_request(const char *key, const char *mark, uint64_t number)
{
	return dump(json_pack("{s:[{s:o,s:s,s:s,s:o}],s:[{s:{s:o}}]}", "compare", "key",
			      key_of(mark), "target", "VALUE", "result", "EQUAL", "value",
			      number_value(number), "success", "request_range", "key",
			      key_of(key)));
}

/* Returns a string with base64 of KEY/NAME. */
static json_t *below(const char *key, char slash, const char *name)
{
	char *text;
	json_t *o;
	int len = asprintf(&text, "%s%c%s", key, slash, name);

	if (len < 0)
		return NULL;
	o = encode(text, (size_t)len);
	free(text);
	return o;
}

char *etcd_below_request(const char *key)
{
	/* The range ends before the first key with the character after '/'. */
	return dump(json_pack("{s:o,s:o}", "key", below(key, '/', ""), "range_end",
			      below(key, '/' + 1, "")));
}

char *etcd_member_request(const char *key, const char *name, uint64_t revision, uint64_t lease,
			  unsigned seconds)
{
	char value[16];
	int len = snprintf(value, sizeof(value), "%u", seconds);

	return dump(json_pack("{s:[o],s:[{s:{s:o,s:o,s:o}}]}", "compare",
			      unchanged(below(key, '/', name), revision), "success", "request_put",
			      "key", below(key, '/', name), "value", encode(value, (size_t)len),
			      "lease", decimal(lease)));
}

char *etcd_lock_request(const char *key, const char *name, uint64_t lease)
{
	return dump(json_pack("{s:[o],s:[{s:{s:o,s:s,s:o}}]}", "compare",
			      absent(below(key, '/', name)), "success", "request_put", "key",
			      below(key, '/', name), "value", "", "lease", decimal(lease)));
}

char *etcd_watch_request(const char *key)
{
	return dump(json_pack("{s:{s:o}}", "create_request", "key", key_of(key)));
}

char *etcd_grant_request(unsigned seconds)
{
	return dump(json_pack("{s:o}", "TTL", decimal(seconds)));
}

char *etcd_lease_request(uint64_t lease)
{
	return dump(json_pack("{s:o}", "ID", decimal(lease)));
}

/* ---- answers ---- */

static int bad(char *why, size_t why_len, const char *what)
{
	snprintf(why, why_len, "the answer is not that of etcd: %s", what);
	return -EBADMSG;
}

static json_t *parse(const char *body, size_t len, char *why, size_t why_len)
{
	json_t *o = json_loadb(body, len, 0, NULL);

	if (json_is_object(o))
		return o;
	json_decref(o);
	bad(why, why_len, "it is no JSON object");
	return NULL;
}

/* Reads a positive number in a string. */
static bool take_number(const json_t *o, const char *name, uint64_t *out)
{
	const char *text = json_string_value(json_object_get(o, name));
	char *end;

	if (!text || !isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*out = strtoull(text, &end, 10);
	return !*end && !errno && *out;
}

/* Takes the key and value of a range, which may be empty. */
static int take_pair(const json_t *range, struct etcd_value *v, char *why, size_t why_len)
{
	const json_t *pair = json_array_get(json_object_get(range, "kvs"), 0);
	const char *text = json_string_value(json_object_get(pair, "value"));
	int rc;

	if (!pair)
		return 0;
	if (!take_number(pair, "mod_revision", &v->revision))
		return bad(why, why_len, "a pair has no revision");
	if (!take_number(pair, "lease", &v->lease))
		v->lease = 0; /* etcd leaves it out if there is none */
	/* etcd leaves out an empty value. */
	rc = decode(text ? text : "", &v->text, &v->len);
	if (rc == -ENOMEM)
		snprintf(why, why_len, "%s", strerror(ENOMEM));
	return rc == -EBADMSG ? bad(why, why_len, "a value is not base64") : rc;
}

int etcd_range_answer(const char *body, size_t len, struct etcd_value *v, char *why, size_t why_len)
{
	json_t *o = parse(body, len, why, why_len);
	int rc;

	*v = (struct etcd_value){0};
	if (!o)
		return -EBADMSG;
	/* Each answer has a head. Other JSON must not be taken for a key that does not exist. */
	rc = json_is_object(json_object_get(o, "header")) ? take_pair(o, v, why, why_len)
							  : bad(why, why_len, "it has no header");
	json_decref(o);
	return rc;
}

static int take_txn(const json_t *o, bool *done, uint64_t *revision, char *why, size_t why_len)
{
	const json_t *first = json_array_get(json_object_get(o, "responses"), 0);
	const json_t *range = json_object_get(first, "response_range");
	struct etcd_value v = {0};
	int rc = 0;

	if (!take_number(json_object_get(o, "header"), "revision", revision))
		return bad(why, why_len, "it has no revision");
	*done = json_is_true(json_object_get(o, "succeeded"));
	if (!*done || !range)
		return 0;
	rc = take_pair(range, &v, why, why_len);
	free(v.text);
	if (rc)
		return rc;
	*revision = v.revision;
	*done = v.revision > 0;
	return 0;
}

int etcd_txn_answer(const char *body, size_t len, bool *done, uint64_t *revision, char *why,
		    size_t why_len)
{
	json_t *o = parse(body, len, why, why_len);
	int rc = o ? take_txn(o, done, revision, why, why_len) : -EBADMSG;

	json_decref(o);
	return rc;
}

int etcd_lease_answer(const char *body, size_t len, uint64_t *lease, uint64_t *seconds, char *why,
		      size_t why_len)
{
	json_t *o = parse(body, len, why, why_len);
	const json_t *result = json_object_get(o, "result"), *from = result ? result : o;
	int rc = 0;

	if (!o)
		return -EBADMSG;
	if (!take_number(from, "ID", lease))
		rc = bad(why, why_len, "a lease has no number");
	else if (!take_number(from, "TTL", seconds))
		*seconds = 0; /* etcd leaves out the time of a lease that has ended */
	json_decref(o);
	return rc;
}

/* Returns the value of a pair if it is a number of seconds, or 0. */
static unsigned seconds_of(const json_t *pair)
{
	const char *text = json_string_value(json_object_get(pair, "value"));
	unsigned long seconds = 0;
	char *value, *end;
	size_t len;

	if (!text || decode(text, &value, &len))
		return 0;
	value[len] = '\0';
	if (isdigit((unsigned char)*value))
		seconds = strtoul(value, &end, 10);
	if (!seconds || *end || seconds > SECONDS_MAX)
		seconds = 0;
	free(value);
	return (unsigned)seconds;
}

static int take_name(const json_t *pair, const char *key,
		     void (*found)(void *ctx, const char *name, unsigned seconds), void *ctx)
{
	const char *text = json_string_value(json_object_get(pair, "key"));
	size_t len, skip = strlen(key) + 1;
	char *name;
	int rc = decode(text ? text : "", &name, &len);

	if (rc)
		return rc;
	name[len] = '\0';
	if (len >= skip && !memcmp(name, key, skip - 1) && name[skip - 1] == '/')
		found(ctx, name + skip, seconds_of(pair));
	else
		rc = -EBADMSG;
	free(name);
	return rc;
}

int etcd_below_answer(const char *body, size_t len, const char *key,
		      void (*found)(void *ctx, const char *name, unsigned seconds), void *ctx,
		      char *why, size_t why_len)
{
	json_t *o = parse(body, len, why, why_len);
	const json_t *pairs = json_object_get(o, "kvs");
	int rc = 0;

	if (!o)
		return -EBADMSG;
	if (!json_is_object(json_object_get(o, "header")))
		rc = bad(why, why_len, "it has no header");
	for (size_t i = 0; i < json_array_size(pairs) && !rc; i++) {
		rc = take_name(json_array_get(pairs, i), key, found, ctx);
		if (rc)
			bad(why, why_len, "a key has another prefix");
	}
	json_decref(o);
	return rc;
}

static int take_watch(const char *line, size_t len, bool *changed)
{
	json_t *o = json_loadb(line, len, 0, NULL);
	const json_t *result = json_object_get(o, "result");
	int rc = 0;

	if (!json_is_object(result) || json_is_true(json_object_get(result, "canceled")))
		rc = -EBADMSG;
	else if (json_is_true(json_object_get(result, "created")) ||
		 json_array_size(json_object_get(result, "events")))
		*changed = true;
	json_decref(o);
	return rc;
}

int etcd_watch_lines(const char *text, size_t len, size_t *used, bool *changed)
{
	const char *end;
	int rc = 0;

	*used = 0;
	*changed = false;
	while (!rc && (end = memchr(text + *used, '\n', len - *used)) != NULL) {
		size_t at = *used;

		*used = (size_t)(end - text) + 1;
		if (*used > at + 1) /* empty lines are skipped */
			rc = take_watch(text + at, *used - at - 1, changed);
	}
	return rc;
}

void etcd_error_answer(const char *body, size_t len, char *why, size_t why_len)
{
	json_t *o = json_loadb(body, len, 0, NULL);
	const char *text = json_string_value(json_object_get(o, "message"));

	if (!text)
		text = json_string_value(json_object_get(o, "error"));
	if (text) {
		snprintf(why, why_len, "%s", text);
		for (char *c = why; *c; c++)
			*c = iscntrl((unsigned char)*c) ? ' ' : *c;
	}
	json_decref(o);
}
