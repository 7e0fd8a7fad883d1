/* SPDX-License-Identifier: BSD-2-Clause */
#include "memcached/request.h"

#include <string.h>

#define ERROR	   "ERROR"
#define BAD_FORMAT "CLIENT_ERROR bad command line format"
#define BAD_CHUNK  "CLIENT_ERROR bad data chunk"
#define BAD_FLAG   "CLIENT_ERROR invalid flag"

/* Data of this length or more can never be stored: they are skipped. */
#define DATA_MAX (UINT64_C(1) << 31)

/* ---- words ---- */

static bool next_word(struct mc_word *rest, struct mc_word *w)
{
	const char *p = rest->p, *end = p + rest->len;

	while (p < end && *p == ' ')
		p++;
	w->p = p;
	while (p < end && *p != ' ')
		p++;
	w->len = (uint32_t)(p - w->p);
	rest->p = p;
	rest->len = (uint32_t)(end - p);
	return w->len;
}

static bool is(struct mc_word w, const char *text)
{
	return w.len == strlen(text) && !memcmp(w.p, text, w.len);
}

bool mc_number(struct mc_word w, uint64_t *v)
{
	*v = 0;
	if (!w.len)
		return false;
	for (uint32_t i = 0; i < w.len; i++) {
		unsigned digit = (unsigned char)w.p[i] - '0';

		if (digit > 9 || __builtin_mul_overflow(*v, 10, v) ||
		    __builtin_add_overflow(*v, digit, v))
			return false;
	}
	return true;
}

bool mc_signed(struct mc_word w, int64_t *v)
{
	bool minus = w.len && *w.p == '-';
	uint64_t u;

	if (!mc_number((struct mc_word){w.p + minus, w.len - minus}, &u) || u > INT64_MAX)
		return false;
	*v = minus ? -(int64_t)u : (int64_t)u;
	return true;
}

static bool is_key(struct mc_word w)
{
	if (!w.len || w.len > MC_KEY_MAX)
		return false;
	for (uint32_t i = 0; i < w.len; i++) {
		if ((unsigned char)w.p[i] < 0x20 || w.p[i] == 0x7f)
			return false;
	}
	return true;
}

bool mc_next_key(struct mc_word *keys, struct mc_word *key)
{
	return next_word(keys, key);
}

/* The reply to an error is sent even if the request asks for no reply. */
static void refuse(struct mc_request *r, const char *error)
{
	r->command = MC_INVALID;
	r->noreply = false;
	r->error = error;
}

/* Takes "noreply" at the end of the line, and nothing else. */
static bool take_end(struct mc_word *rest, struct mc_request *r)
{
	struct mc_word w;

	if (!next_word(rest, &w))
		return true;
	r->noreply = is(w, "noreply");
	return r->noreply && !next_word(rest, &w);
}

/* ---- text commands ---- */

static void parse_get(struct mc_word *rest, struct mc_request *r)
{
	struct mc_word w, keys;

	r->command = MC_GET;
	if (r->touches) {
		if (!next_word(rest, &w)) {
			refuse(r, ERROR);
			return;
		}
		if (!mc_signed(w, &r->exptime)) {
			refuse(r, "CLIENT_ERROR invalid exptime argument");
			return;
		}
	}
	r->keys = keys = *rest;
	if (!next_word(&keys, &w)) {
		refuse(r, ERROR);
		return;
	}
	do {
		if (!is_key(w))
			refuse(r, BAD_FORMAT);
	} while (next_word(&keys, &w));
}

static void parse_set(struct mc_word *rest, struct mc_request *r)
{
	struct mc_word w[5];
	unsigned n = 4 + (r->mode == MC_MODE_CAS), i;
	uint64_t flags = 0;
	bool ok;

	r->command = MC_SET;
	for (i = 0; i < n; i++) {
		if (!next_word(rest, &w[i])) {
			refuse(r, ERROR);
			return;
		}
	}
	r->key = w[0];
	ok = is_key(w[0]) && mc_number(w[1], &flags) && flags <= UINT32_MAX &&
	     mc_signed(w[2], &r->exptime) && (n == 4 || mc_number(w[4], &r->cas));
	r->flags = (uint32_t)flags;
	r->has_data = mc_number(w[3], &r->data_len) && r->data_len < DATA_MAX;
	if (!take_end(rest, r) || !ok || !r->has_data) {
		refuse(r, r->has_data || !ok ? BAD_FORMAT : BAD_CHUNK);
	}
}

static void parse_delete(struct mc_word *rest, struct mc_request *r)
{
	struct mc_word zero = *rest, w;

	r->command = MC_DELETE;
	if (!next_word(rest, &w)) {
		refuse(r, ERROR);
		return;
	}
	r->key = w;
	/* Old clients send a time, which must be 0. */
	zero = *rest;
	if (next_word(&zero, &w) && is(w, "0"))
		*rest = zero;
	if (!is_key(r->key) || !take_end(rest, r))
		refuse(r, "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]");
}

static void parse_arithmetic(struct mc_word *rest, struct mc_request *r)
{
	struct mc_word w;

	r->command = MC_ARITHMETIC;
	if (!next_word(rest, &r->key) || !next_word(rest, &w))
		refuse(r, ERROR);
	else if (!is_key(r->key))
		refuse(r, BAD_FORMAT);
	else if (!mc_number(w, &r->delta))
		refuse(r, "CLIENT_ERROR invalid numeric delta argument");
	else if (!take_end(rest, r))
		refuse(r, ERROR);
}

static void parse_touch(struct mc_word *rest, struct mc_request *r)
{
	struct mc_word w;

	r->command = MC_TOUCH;
	if (!next_word(rest, &r->key) || !next_word(rest, &w))
		refuse(r, ERROR);
	else if (!is_key(r->key))
		refuse(r, BAD_FORMAT);
	else if (!mc_signed(w, &r->exptime))
		refuse(r, "CLIENT_ERROR invalid exptime argument");
	else if (!take_end(rest, r))
		refuse(r, ERROR);
}

static void parse_flush_all(struct mc_word *rest, struct mc_request *r)
{
	struct mc_word one = *rest, w;

	r->command = MC_FLUSH_ALL;
	if (next_word(&one, &w) && !is(w, "noreply")) {
		if (!mc_signed(w, &r->exptime)) {
			refuse(r, "CLIENT_ERROR invalid exptime argument");
			return;
		}
		*rest = one;
	}
	if (!take_end(rest, r))
		refuse(r, ERROR);
}

static void parse_verbosity(struct mc_word *rest, struct mc_request *r)
{
	struct mc_word w;

	r->command = MC_VERBOSITY;
	if (!next_word(rest, &w)) {
		refuse(r, ERROR);
		return;
	}
	if (is(w, "noreply"))
		r->noreply = true;
	else if (!mc_number(w, &r->delta))
		refuse(r, BAD_FORMAT);
	else if (!take_end(rest, r))
		refuse(r, ERROR);
}

static void parse_stats(struct mc_word *rest, struct mc_request *r)
{
	static const char *const known[] = {"reset", "items",	 "slabs",
					    "sizes", "settings", "conns"};
	size_t i = 0;

	r->command = MC_STATS;
	if (!next_word(rest, &r->word))
		return;
	while (i < sizeof(known) / sizeof(known[0]) && !is(r->word, known[i]))
		i++;
	if (i == sizeof(known) / sizeof(known[0]))
		refuse(r, ERROR);
}

/* ---- meta commands ---- */

static int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool decode_key(struct mc_request *r)
{
	const struct mc_word k = r->key;
	uint32_t bits = 0, pad = 0;

	if (k.len % 4 || k.len < 4)
		return false;
	pad = k.p[k.len - 1] == '=' ? 1 + (k.p[k.len - 2] == '=') : 0;
	for (uint32_t i = 0; i < k.len - pad; i++) {
		int digit = base64_digit(k.p[i]);

		if (digit < 0)
			return false;
		bits = bits << 6 | (uint32_t)digit;
		if (i % 4) {
			if (r->meta_key_len == MC_KEY_MAX)
				return false;
			r->meta_key[r->meta_key_len++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
		}
	}
	return r->meta_key_len;
}

const struct mc_flag *mc_flag(const struct mc_request *r, char name)
{
	for (unsigned i = 0; i < r->num_flags; i++) {
		if (r->flag[i].name == name)
			return &r->flag[i];
	}
	return NULL;
}

bool mc_replaces(const struct mc_request *r)
{
	const struct mc_flag *mode = mc_flag(r, 'M');

	if (r->command == MC_SET)
		return r->mode == MC_MODE_SET;
	return r->command == MC_META_SET &&
	       (!mode || (mode->arg.len == 1 && (*mode->arg.p | 0x20) == 's'));
}

static bool take_flags(struct mc_word *rest, struct mc_request *r, const char *known)
{
	struct mc_word w;

	while (next_word(rest, &w)) {
		if (!strchr(known, *w.p) || !*w.p || mc_flag(r, *w.p) ||
		    r->num_flags == MC_FLAGS_MAX)
			return false;
		r->flag[r->num_flags++] = (struct mc_flag){*w.p, {w.p + 1, w.len - 1}};
	}
	return true;
}

/* Checks the arguments of flags that have a number. */
static bool check_flags(const struct mc_request *r, const char *numbers)
{
	for (unsigned i = 0; i < r->num_flags; i++) {
		const struct mc_flag *f = &r->flag[i];
		bool is_time = f->name == 'T' || f->name == 'N' || f->name == 'R';
		int64_t v;
		uint64_t u = 0;

		if (strchr(numbers, f->name) &&
		    !(is_time ? mc_signed(f->arg, &v) : mc_number(f->arg, &u)))
			return false;
		if (f->name == 'F' && u > UINT32_MAX)
			return false;
		if (f->name == 'O' && f->arg.len > 32)
			return false;
	}
	return true;
}

static void parse_meta(struct mc_word *rest, struct mc_request *r)
{
	const char *known = "", *numbers = "";
	struct mc_word w;

	if (r->command == MC_META_NOOP)
		return;
	if (!next_word(rest, &r->key)) {
		refuse(r, ERROR);
		return;
	}
	switch (r->command) {
	case MC_META_GET:
		known = "bcfkqstuvONRTE"; /* u: the item stays at its place for the eviction */
		numbers = "NRTE";
		break;
	case MC_META_SET:
		known = "bcfkqsCEFIMNOTS";
		numbers = "CEFNTS";
		r->has_data =
			next_word(rest, &w) && mc_number(w, &r->data_len) && r->data_len < DATA_MAX;
		if (!r->has_data) {
			refuse(r, BAD_FORMAT);
			return;
		}
		break;
	case MC_META_DELETE:
		known = "bkqxCEIOT";
		numbers = "CET";
		break;
	case MC_META_ARITHMETIC:
		known = "bcfkqstvCDEJMNOT";
		numbers = "CDEJNT";
		break;
	default:
		known = "b";
		break;
	}
	if (!take_flags(rest, r, known) || !check_flags(r, numbers)) {
		refuse(r, BAD_FLAG);
		return;
	}
	if (mc_flag(r, 'b') ? !decode_key(r) : !is_key(r->key)) {
		refuse(r, BAD_FORMAT);
		return;
	}
	if (!r->meta_key_len) {
		memcpy(r->meta_key, r->key.p, r->key.len);
		r->meta_key_len = r->key.len;
	}
}

/* ---- lines ---- */

static const struct command {
	const char *name;
	enum mc_command command;
	void (*parse)(struct mc_word *rest, struct mc_request *r);
	enum mc_mode mode;
	bool with_cas, touches, decr;
} commands[] = {
	{"get", MC_GET, parse_get, 0, false, false, false},
	{"gets", MC_GET, parse_get, 0, true, false, false},
	{"gat", MC_GET, parse_get, 0, false, true, false},
	{"gats", MC_GET, parse_get, 0, true, true, false},
	{"set", MC_SET, parse_set, MC_MODE_SET, false, false, false},
	{"add", MC_SET, parse_set, MC_MODE_ADD, false, false, false},
	{"replace", MC_SET, parse_set, MC_MODE_REPLACE, false, false, false},
	{"append", MC_SET, parse_set, MC_MODE_APPEND, false, false, false},
	{"prepend", MC_SET, parse_set, MC_MODE_PREPEND, false, false, false},
	{"cas", MC_SET, parse_set, MC_MODE_CAS, false, false, false},
	{"delete", MC_DELETE, parse_delete, 0, false, false, false},
	{"incr", MC_ARITHMETIC, parse_arithmetic, 0, false, false, false},
	{"decr", MC_ARITHMETIC, parse_arithmetic, 0, false, false, true},
	{"touch", MC_TOUCH, parse_touch, 0, false, false, false},
	{"stats", MC_STATS, parse_stats, 0, false, false, false},
	{"flush_all", MC_FLUSH_ALL, parse_flush_all, 0, false, false, false},
	{"version", MC_VERSION, NULL, 0, false, false, false},
	{"verbosity", MC_VERBOSITY, parse_verbosity, 0, false, false, false},
	{"quit", MC_QUIT, NULL, 0, false, false, false},
	{"mg", MC_META_GET, parse_meta, 0, false, false, false},
	{"ms", MC_META_SET, parse_meta, 0, false, false, false},
	{"md", MC_META_DELETE, parse_meta, 0, false, false, false},
	{"ma", MC_META_ARITHMETIC, parse_meta, 0, false, false, false},
	{"mn", MC_META_NOOP, parse_meta, 0, false, false, false},
	{"me", MC_META_DEBUG, parse_meta, 0, false, false, false},
};

static void parse_line(struct mc_word rest, struct mc_request *r)
{
	struct mc_word name;

	refuse(r, ERROR);
	if (!next_word(&rest, &name))
		return;
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		const struct command *c = &commands[i];

		if (!is(name, c->name))
			continue;
		r->command = c->command;
		r->error = NULL;
		r->mode = c->mode;
		r->with_cas = c->with_cas;
		r->touches = c->touches;
		r->decr = c->decr;
		if (c->parse)
			c->parse(&rest, r);
		return;
	}
}

static size_t line_max(const char *bytes, size_t len)
{
	return (len >= 4 && !memcmp(bytes, "get ", 4)) || (len >= 5 && !memcmp(bytes, "gets ", 5))
		       ? MC_GET_MAX
		       : MC_LINE_MAX;
}

bool mc_parse(const char *bytes, size_t len, struct mc_request *r)
{
	size_t line, most = line_max(bytes, len);
	const char *end;

	*r = (struct mc_request){.command = MC_INVALID};
	if (len && (uint8_t)*bytes == 0x80) {
		r->command = MC_BINARY;
		return true;
	}
	end = memchr(bytes, '\n', len < most ? len : most);
	if (!end) {
		if (len < most)
			return false;
		refuse(r, "CLIENT_ERROR line too long");
		r->line_len = 0;
		return true;
	}
	line = (size_t)(end - bytes);
	r->line_len = (uint32_t)line + 1;
	if (line && bytes[line - 1] == '\r')
		line--;
	parse_line((struct mc_word){bytes, (uint32_t)line}, r);
	return true;
}
