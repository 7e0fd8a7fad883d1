/* SPDX-License-Identifier: BSD-2-Clause */
/* The text of a table of partitions. */
#include "kvwire/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

static const char head[] = "roost-kv-partitions";

unsigned kv_table_partition(uint64_t seed, unsigned partitions, const void *key, size_t len)
{
	return (unsigned)((XXH3_64bits_withSeed(key, len, seed) >> 32) & (partitions - 1));
}

int kv_table_find(const struct kv_table *t, const char *address, uint16_t service)
{
	for (unsigned i = 0; i < t->nodes; i++) {
		if (t->node[i].service == service && !strcmp(t->node[i].address, address))
			return (int)i;
	}
	return -1;
}

bool kv_table_follows(const struct kv_table *next, const struct kv_table *t)
{
	return next->version > t->version && next->seed == t->seed &&
	       next->partitions == t->partitions;
}

/* ---- reading ---- */

struct word {
	const char *at;
	size_t len;
};

struct text {
	const char *at, *end; /* the rest of the line */
	const char *next, *last;
	unsigned line;
	char *why;
	size_t why_len;
};

static int __attribute__((format(printf, 2, 3))) fail(struct text *x, const char *fmt, ...)
{
	va_list args;
	int n = snprintf(x->why, x->why_len, "line %u: ", x->line);

	if (n > 0 && (size_t)n < x->why_len) {
		va_start(args, fmt);
		vsnprintf(x->why + n, x->why_len - (size_t)n, fmt, args);
		va_end(args);
	}
	return -EBADMSG;
}

/*
 * Advances to the next line. Returns false at the end of the text. Each line ends with a
 * newline.
 */
static bool next_line(struct text *x)
{
	x->line++;
	x->at = x->end = x->next;
	if (x->next == x->last)
		return false;
	x->end = memchr(x->at, '\n', (size_t)(x->last - x->at));
	if (!x->end) {
		x->end = x->at;
		return false;
	}
	x->next = x->end + 1;
	return true;
}

/* Takes the next word of the line. It is empty at the end of the line. */
static struct word next_word(struct text *x)
{
	struct word w;

	while (x->at < x->end && *x->at == ' ')
		x->at++;
	w.at = x->at;
	while (x->at < x->end && *x->at != ' ')
		x->at++;
	w.len = (size_t)(x->at - w.at);
	return w;
}

static bool is(struct word w, const char *text)
{
	return w.len == strlen(text) && !memcmp(w.at, text, w.len);
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

/* Parses a number. Returns false if the word is no number up to `max`. */
static bool number(struct word w, unsigned base, uint64_t max, uint64_t *out)
{
	uint64_t v = 0;

	for (size_t i = 0; i < w.len; i++) {
		unsigned d = (unsigned)digit(w.at[i]);

		if (d >= base || d > max || v > (max - d) / base)
			return false;
		v = v * base + d;
	}
	*out = v;
	return w.len;
}

/* Reads a line that has a name and a number. */
static int take_number(struct text *x, const char *name, unsigned base, uint64_t max, uint64_t *out)
{
	if (!next_line(x) || !is(next_word(x), name))
		return fail(x, "'%s' is missing", name);
	if (!number(next_word(x), base, max, out) || next_word(x).len)
		return fail(x, "'%s' takes a number up to %" PRIu64, name, max);
	return 0;
}

/* The attributes that a line gives to its partitions. */
enum line { LINE_NODE, LINE_FROM, LINE_LOST };

struct ranges {
	enum line line;
	unsigned node;	  /* the owner, or the node that the partitions move from */
	uint64_t version; /* version in which the partitions were lost */
};

static int take_lost(struct text *x, struct kv_table *t, uint64_t i, uint64_t version)
{
	if (t->lost[i])
		return fail(x, "partition %" PRIu64 " is lost twice", i);
	t->lost[i] = version;
	return 0;
}

/* Takes the attributes of partition i from a line. */
static int take_one(struct text *x, struct kv_table *t, uint64_t i, const struct ranges *r)
{
	bool from = r->line == LINE_FROM;
	uint16_t *to = from ? &t->from[i] : &t->owner[i];
	unsigned node = r->node;

	if (r->line == LINE_LOST)
		return take_lost(x, t, i, r->version);
	if (*to != KV_TABLE_NOBODY)
		return fail(x, "partition %" PRIu64 " %s already", i,
			    from ? "moves" : "has an owner");
	if (from && (t->owner[i] == KV_TABLE_NOBODY || t->owner[i] == node))
		return fail(x, "partition %" PRIu64 " moves to no other node", i);
	*to = (uint16_t)node;
	return 0;
}

static int take_range(struct text *x, struct kv_table *t, struct word w, const struct ranges *r)
{
	const char *dash = memchr(w.at, '-', w.len);
	struct word first = {w.at, dash ? (size_t)(dash - w.at) : w.len}, last = first;
	uint64_t from, to;
	int rc = 0;

	if (dash)
		last = (struct word){dash + 1, w.len - first.len - 1};
	if (!number(first, 10, t->partitions - 1, &from) ||
	    !number(last, 10, t->partitions - 1, &to) || from > to)
		return fail(x, "partitions are numbers below %u: 0-3,7", t->partitions);
	for (uint64_t i = from; i <= to && !rc; i++)
		rc = take_one(x, t, i, r);
	return rc;
}

static int take_ranges(struct text *x, struct kv_table *t, struct word all, const struct ranges *r)
{
	int rc = 0;

	while (!rc) {
		const char *comma = memchr(all.at, ',', all.len);
		struct word one = {all.at, comma ? (size_t)(comma - all.at) : all.len};

		rc = take_range(x, t, one, r);
		if (!comma)
			break;
		all.at += one.len + 1;
		all.len -= one.len + 1;
	}
	return rc;
}

/* Reads ADDRESS SERVICE RANGES, to the end of the line. */
static int take_line(struct text *x, struct kv_table_node *n, struct word *ranges)
{
	struct word address = next_word(x), service = next_word(x);
	uint64_t value;

	*n = (struct kv_table_node){.address = ""};
	*ranges = next_word(x);
	if (!address.len || address.len >= sizeof(n->address) || memchr(address.at, 0, address.len))
		return fail(x, "a node has an address of up to %zu characters",
			    sizeof(n->address) - 1);
	memcpy(n->address, address.at, address.len);
	if (!number(service, 10, UINT16_MAX, &value) || !value)
		return fail(x, "a node has a service from 1 to 65535");
	n->service = (uint16_t)value;
	if (!ranges->len || next_word(x).len)
		return fail(x, "a node has one list of partitions, or none");
	return 0;
}

/* Reads "node ADDRESS SERVICE RANGES"; RANGES may be "none". */
static int take_node(struct text *x, struct kv_table *t)
{
	struct kv_table_node n;
	struct word ranges;
	int rc = take_line(x, &n, &ranges);

	if (rc)
		return rc;
	if (kv_table_find(t, n.address, n.service) >= 0)
		return fail(x, "the node is in the table already");
	if (t->nodes == KV_TABLE_NODES)
		return fail(x, "a table has at most %u nodes", KV_TABLE_NODES);
	t->node[t->nodes++] = n;
	return is(ranges, "none")
		       ? 0
		       : take_ranges(x, t, ranges, &(struct ranges){.node = t->nodes - 1});
}

/* Reads "from ADDRESS SERVICE RANGES": the partitions move from this node to their owners. */
static int take_from(struct text *x, struct kv_table *t)
{
	struct kv_table_node n;
	struct word ranges;
	int rc = take_line(x, &n, &ranges), node;

	if (rc)
		return rc;
	node = kv_table_find(t, n.address, n.service);
	if (node < 0)
		return fail(x, "the table does not have this node");
	return take_ranges(x, t, ranges,
			   &(struct ranges){.line = LINE_FROM, .node = (unsigned)node});
}

/* Reads "lost VERSION RANGES": the pairs that the partitions had before this version are lost. */
static int take_losses(struct text *x, struct kv_table *t)
{
	struct word version = next_word(x), ranges = next_word(x);
	struct ranges r = {.line = LINE_LOST};

	if (!number(version, 10, t->version, &r.version) || !r.version)
		return fail(x, "partitions are lost in a version up to that of the table");
	if (!ranges.len || next_word(x).len)
		return fail(x, "one list of partitions is lost");
	return take_ranges(x, t, ranges, &r);
}

static int take_nodes(struct text *x, struct kv_table *t)
{
	while (next_line(x)) {
		struct word w = next_word(x);
		int rc;

		if (is(w, "end"))
			return next_word(x).len || x->next != x->last
				       ? fail(x, "text behind the end")
				       : 0;
		if (is(w, "node"))
			rc = take_node(x, t);
		else if (is(w, "from"))
			rc = take_from(x, t);
		else if (is(w, "lost"))
			rc = take_losses(x, t);
		else
			rc = fail(x, "neither 'node' nor 'from' nor 'lost' nor 'end'");
		if (rc)
			return rc;
	}
	return fail(x, "'end' is missing");
}

int kv_table_parse(struct kv_table *t, const char *text, size_t len, char *why, size_t why_len)
{
	struct text x = {.next = text, .last = text + len, .why = why, .why_len = why_len};
	uint64_t format, partitions;
	int rc = take_number(&x, head, 10, UINT32_MAX, &format);

	memset(t, 0, sizeof(*t));
	memset(t->owner, 0xff, sizeof(t->owner));
	memset(t->from, 0xff, sizeof(t->from));
	if (rc)
		return rc;
	if (format != 1)
		return fail(&x, "this is a table of another format");
	rc = take_number(&x, "version", 10, UINT64_MAX - 1, &t->version);
	if (!rc && !t->version)
		return fail(&x, "versions count from 1");
	if (!rc)
		rc = take_number(&x, "seed", 16, UINT64_MAX, &t->seed);
	if (!rc)
		rc = take_number(&x, "partitions", 10, KV_TABLE_PARTITIONS, &partitions);
	if (rc)
		return rc;
	if (!partitions || partitions & (partitions - 1))
		return fail(&x, "the number of partitions is a power of two");
	t->partitions = (unsigned)partitions;
	return take_nodes(&x, t);
}

/* ---- writing ---- */

struct out {
	char *text;
	size_t cap, len;
};

static void __attribute__((format(printf, 2, 3))) add(struct out *o, const char *fmt, ...)
{
	bool space = o->len < o->cap;
	va_list args;

	va_start(args, fmt);
	o->len += (size_t)vsnprintf(space ? o->text + o->len : NULL, space ? o->cap - o->len : 0,
				    fmt, args);
	va_end(args);
}

/* Adds the partitions that have this node in `of`. Returns whether there is such a partition. */
static bool add_ranges(struct out *o, const struct kv_table *t, const uint16_t *of, unsigned node)
{
	const char *before = " ";
	unsigned first, last;

	for (first = 0; first < t->partitions; first = last + 1) {
		last = first;
		if (of[first] != node)
			continue;
		while (last + 1 < t->partitions && of[last + 1] == node)
			last++;
		add(o, "%s%u", before, first);
		if (last > first)
			add(o, "-%u", last);
		before = ",";
	}
	return *before == ',';
}

static bool is_move_source(const struct kv_table *t, unsigned node)
{
	for (unsigned i = 0; i < t->partitions; i++) {
		if (t->from[i] == node)
			return true;
	}
	return false;
}

/*
 * Adds the partitions that were lost in the same version as `first`, if `first` is the first of
 * them.
 */
static void add_lost(struct out *o, const struct kv_table *t, unsigned first)
{
	uint16_t same[KV_TABLE_PARTITIONS];

	for (unsigned i = 0; i < t->partitions; i++) {
		same[i] = t->lost[i] != t->lost[first];
		if (!same[i] && i < first)
			return;
	}
	add(o, "lost %" PRIu64, t->lost[first]);
	add_ranges(o, t, same, 0);
	add(o, "\n");
}

size_t kv_table_format(const struct kv_table *t, char *text, size_t cap)
{
	struct out o = {.text = text, .cap = cap};

	add(&o, "%s 1\nversion %" PRIu64 "\nseed %016" PRIx64 "\npartitions %u\n", head, t->version,
	    t->seed, t->partitions);
	for (unsigned i = 0; i < t->nodes; i++) {
		add(&o, "node %s %u", t->node[i].address, t->node[i].service);
		if (!add_ranges(&o, t, t->owner, i))
			add(&o, " none");
		add(&o, "\n");
	}
	for (unsigned i = 0; i < t->nodes; i++) {
		if (!is_move_source(t, i))
			continue;
		add(&o, "from %s %u", t->node[i].address, t->node[i].service);
		add_ranges(&o, t, t->from, i);
		add(&o, "\n");
	}
	for (unsigned i = 0; i < t->partitions; i++) {
		if (t->lost[i])
			add_lost(&o, t, i);
	}
	add(&o, "end\n");
	return o.len;
}
