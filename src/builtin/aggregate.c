/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `aggregate`, described in roost/aggregate.h. It copies only the fields and spans of a
 * record as its bytes arrive, so that a record may have any size and lie across any number of
 * pieces.
 */
#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "builtin/builtin.h"
#include "roost/aggregate.h"
#include "roost/hll.h"

#define ROWS  8192 /* bytes of rows that are written or sent at once */
#define SLOTS 1024 /* slots of the index of groups: a power of two, four times the most groups */
/*
 * With a secret hash, the longest probe sequence for 256 groups in 1024 slots is about 10; a length
 * of 64 has a probability below 10^-14. If it occurs, the sender has probably guessed the seed, and
 * the kernel draws another seed, at most a few times.
 */
#define PROBES 64
#define SEEDS  4

__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 i128;

enum { WHERE, VALUE, GROUP, FIELDS };

/* The source of the seeds of all calls. Results do not depend on it. */
struct secret {
	uint64_t key[2];
	_Atomic uint64_t drawn;
};

struct sums {
	u128 sum;
	uint64_t count, min, max;
};

struct aggregate {
	struct roost_aggregate_params p;
	struct roost_aggregate_field field[FIELDS];
	struct sums all;
	uint64_t records, overflow;
	uint64_t capacity; /* bytes for rows */
	uint64_t placed;   /* bytes of rows so far, including those in the buffer */
	uint64_t flushed;
	uint32_t row, rows, groups;
	uint32_t used;	/* bytes of whole rows in the buffer */
	uint32_t pos;	/* position in the current record */
	uint32_t at;	/* position in the piece */
	uint32_t seeds; /* seeds that were drawn for the index of groups */
	uint64_t seed[2];
	uint8_t bytes[FIELDS][8];
};

/* Groups or rows, with space for the result behind them, so that one reply sends both. */
struct scratch {
	union {
		struct roost_aggregate_group group[ROOST_AGGREGATE_MAX_GROUPS];
		uint8_t rows[ROWS];
	};
	struct roost_aggregate_result behind;
	uint16_t slot[SLOTS]; /* number of the group, plus 1 */
};

/* ---- parameters ---- */

static bool take_field(struct roost_aggregate_field *to, const struct roost_aggregate_field *from,
		       uint32_t record)
{
	*to = *from;
	to->offset = le32toh(to->offset);
	if (to->reserved || to->is_signed > 1)
		return false;
	if (!to->width)
		return !to->offset && !to->is_signed;
	return to->width <= 8 && (uint64_t)to->offset + to->width <= record;
}

static bool take_spans(struct aggregate *a)
{
	struct roost_aggregate_params *p = &a->p;

	if (p->spans > ROOST_AGGREGATE_SPANS)
		return false;
	for (uint32_t i = 0; i < p->spans; i++) {
		struct roost_aggregate_span *s = &p->span[i];

		s->offset = le32toh(s->offset);
		s->len = le32toh(s->len);
		if (!s->len || s->len > ROOST_AGGREGATE_MAX_ROW ||
		    (uint64_t)s->offset + s->len > p->record)
			return false;
		a->row += s->len;
	}
	return a->row <= ROOST_AGGREGATE_MAX_ROW;
}

static bool take_params(struct aggregate *a, const struct roost_call *c)
{
	struct roost_aggregate_params *p = &a->p;

	if (c->params_len != sizeof(*p))
		return false;
	memcpy(p, c->params, sizeof(*p));
	p->record = le32toh(p->record);
	p->predicate = le32toh(p->predicate);
	p->operand = le64toh(p->operand);
	p->max_groups = le32toh(p->max_groups);
	p->spans = le32toh(p->spans);
	p->out = le64toh(p->out);
	p->out_len = le64toh(p->out_len);
	if (!p->record || !take_field(&a->field[WHERE], &p->where, p->record) ||
	    !take_field(&a->field[VALUE], &p->value, p->record) ||
	    !take_field(&a->field[GROUP], &p->group, p->record) || !take_spans(a))
		return false;
	return p->predicate <= ROOST_AGGREGATE_GREATER_THAN &&
	       (p->predicate != ROOST_AGGREGATE_ALL) == (a->field[WHERE].width != 0) &&
	       (p->max_groups != 0) == (a->field[GROUP].width != 0) &&
	       p->max_groups <= ROOST_AGGREGATE_MAX_GROUPS && !(p->spans && p->max_groups) &&
	       (p->spans || (!p->out && !p->out_len));
}

static bool to_region(const struct aggregate *a)
{
	return a->p.out || a->p.out_len;
}

static void draw_seed(struct aggregate *a, void *self)
{
	struct secret *secret = self;
	uint64_t n = atomic_fetch_add_explicit(&secret->drawn, 1, memory_order_relaxed);

	a->seeds++;
	a->seed[0] = roost_hll_hash(secret->key[0] + n);
	a->seed[1] = roost_hll_hash(secret->key[1] + n) | 1;
}

static enum roost_next params(struct roost_call *c)
{
	struct aggregate *a = c->state;
	struct scratch *s = c->scratch;
	uint32_t behind = sizeof(struct roost_aggregate_result);

	if (!take_params(a, c))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	memset(s->slot, 0, sizeof(s->slot));
	draw_seed(a, c->self);
	a->capacity = to_region(a) ? a->p.out_len : c->space > behind ? c->space - behind : 0;
	return ROOST_DONE;
}

/* ---- one record ---- */

/* Copies the part of the n bytes at `pos` of a record that belongs to the `len` bytes at `off`. */
static void keep(uint8_t *to, uint32_t off, uint32_t len, uint32_t pos, const uint8_t *data,
		 uint32_t n)
{
	uint32_t from = off > pos ? off : pos;
	uint32_t end = (uint64_t)off + len < (uint64_t)pos + n ? off + len : pos + n;

	if (from < end)
		memcpy(to + (from - off), data + (from - pos), end - from);
}

/*
 * Most records lie in one piece. In this case one load of 8 bytes reads a field; field_of() ignores
 * the bytes behind it.
 */
static void keep_fields(struct aggregate *a, const uint8_t *data, uint32_t n, uint32_t piece)
{
	bool whole = n == a->p.record;

	for (unsigned i = 0; i < FIELDS; i++) {
		const struct roost_aggregate_field *f = &a->field[i];

		if (likely(whole && (uint64_t)f->offset + 8 <= piece))
			memcpy(a->bytes[i], data + f->offset, 8);
		else
			keep(a->bytes[i], f->offset, f->width, a->pos, data, n);
	}
}

/* Keeps n bytes of the record. The piece has `piece` bytes from `data` on. */
static void keep_all(struct aggregate *a, uint8_t *row, const uint8_t *data, uint32_t n,
		     uint32_t piece)
{
	keep_fields(a, data, n, piece);
	for (uint32_t i = 0; i < a->p.spans; i++) {
		keep(row, a->p.span[i].offset, a->p.span[i].len, a->pos, data, n);
		row += a->p.span[i].len;
	}
}

/* Returns the field extended to 64 bits. */
static uint64_t field_of(const struct aggregate *a, unsigned i)
{
	unsigned unused = 64 - 8u * a->field[i].width;
	uint64_t x;

	if (!a->field[i].width)
		return 0;
	memcpy(&x, a->bytes[i], 8);
	x = le64toh(x) << unused;
	return a->field[i].is_signed ? (uint64_t)((int64_t)x >> unused) : x >> unused;
}

static bool field_less(const struct roost_aggregate_field *f, uint64_t x, uint64_t y)
{
	uint64_t sign = (uint64_t)f->is_signed << 63;

	return (x ^ sign) < (y ^ sign);
}

static bool matches(const struct aggregate *a)
{
	uint64_t x = field_of(a, WHERE);

	switch ((enum roost_aggregate_predicate)a->p.predicate) {
	case ROOST_AGGREGATE_EQUAL:
		return x == a->p.operand;
	case ROOST_AGGREGATE_NOT_EQUAL:
		return x != a->p.operand;
	case ROOST_AGGREGATE_LESS_THAN:
		return field_less(&a->field[WHERE], x, a->p.operand);
	case ROOST_AGGREGATE_GREATER_THAN:
		return field_less(&a->field[WHERE], a->p.operand, x);
	case ROOST_AGGREGATE_ALL:
		break;
	}
	return true;
}

static void add(const struct aggregate *a, struct sums *s, uint64_t x)
{
	const struct roost_aggregate_field *f = &a->field[VALUE];

	if (!s->count || field_less(f, x, s->min))
		s->min = x;
	if (!s->count || field_less(f, s->max, x))
		s->max = x;
	s->sum += f->is_signed ? (u128)(i128)(int64_t)x : x;
	s->count++;
}

/*
 * Senders choose the keys and must not be able to make them collide. Therefore each call has its
 * own seed.
 */
static uint32_t slot_of(const struct aggregate *a, uint64_t key)
{
	uint64_t x = (key ^ a->seed[0]) * a->seed[1];

	return (uint32_t)((x ^ x >> 32) * 0x9e3779b97f4a7c15ull >> 54) % SLOTS;
}

/*
 * Returns the slot with the key, or a free slot for the key, or SLOTS if PROBES slots have
 * neither.
 */
static uint32_t probe(const struct aggregate *a, const struct scratch *s, uint64_t key)
{
	uint32_t i = slot_of(a, key);

	for (unsigned n = 0; n < PROBES; n++, i = (i + 1) % SLOTS)
		if (!s->slot[i] || s->group[s->slot[i] - 1].key == key)
			return i;
	return SLOTS;
}

/* Rebuilds the index with a new seed. Returns false if a group finds no slot. */
static bool index_again(struct aggregate *a, struct scratch *s, void *self)
{
	draw_seed(a, self);
	memset(s->slot, 0, sizeof(s->slot));
	for (uint32_t g = 0; g < a->groups; g++) {
		uint32_t i = probe(a, s, s->group[g].key);

		if (i == SLOTS)
			return false;
		s->slot[i] = (uint16_t)(g + 1);
	}
	return true;
}

/* Finds or makes the group of a key. Returns NULL if there is no space. */
static struct roost_aggregate_group *group_of(struct aggregate *a, struct scratch *s, void *self,
					      uint64_t key)
{
	struct roost_aggregate_group *g;
	uint32_t i = probe(a, s, key);

	while (unlikely(i == SLOTS) && a->seeds < SEEDS)
		i = index_again(a, s, self) ? probe(a, s, key) : SLOTS;
	if (unlikely(i == SLOTS))
		return NULL;
	if (s->slot[i])
		return &s->group[s->slot[i] - 1];
	if (a->groups == a->p.max_groups)
		return NULL;
	g = &s->group[a->groups++];
	*g = (struct roost_aggregate_group){.key = key};
	s->slot[i] = (uint16_t)a->groups;
	return g;
}

static void add_to_group(struct aggregate *a, struct scratch *s, void *self, uint64_t x)
{
	struct roost_aggregate_group *g = group_of(a, s, self, field_of(a, GROUP));
	struct sums t;

	if (!g) {
		a->overflow++;
		return;
	}
	t = (struct sums){(u128)g->sum_high << 64 | g->sum, g->count, g->min, g->max};
	add(a, &t, x);
	g->sum = (uint64_t)t.sum;
	g->sum_high = (uint64_t)(t.sum >> 64);
	g->count = t.count;
	g->min = t.min;
	g->max = t.max;
}

/* Ends a record whose bytes have all arrived. Its row is in the buffer, behind previous rows. */
static void finish(struct aggregate *a, struct scratch *s, void *self)
{
	uint64_t x = field_of(a, VALUE);

	a->pos = 0;
	a->records++;
	if (!matches(a))
		return;
	add(a, &a->all, x);
	if (a->p.max_groups)
		add_to_group(a, s, self, x);
	if (!a->p.spans)
		return;
	if (a->row > a->capacity - a->placed) {
		a->overflow++;
		return;
	}
	a->placed += a->row;
	a->used += a->row;
	a->rows++;
}

/*
 * Returns the position in the piece from which on the kernel processes it. A message of a stream
 * may have been cut short, or have begun before the kernel was attached. Its incomplete record is
 * left out.
 */
static uint32_t begin_piece(struct aggregate *a, const struct roost_call *c)
{
	uint32_t pos = c->offset % a->p.record, rest;

	if (likely(pos == a->pos))
		return 0;
	a->pos = 0;
	rest = pos ? a->p.record - pos : 0;
	return rest < c->len ? rest : c->len;
}

/* Processes the piece until it ends, or the buffer has no space for a row. */
static void run(struct aggregate *a, struct scratch *s, const struct roost_call *c)
{
	while (a->at < c->len && a->used + a->row <= ROWS) {
		uint32_t n = a->p.record - a->pos;

		if (n > c->len - a->at)
			n = c->len - a->at;
		keep_all(a, s->rows + a->used, c->data + a->at, n, c->len - a->at);
		a->at += n;
		a->pos += n;
		if (a->pos == a->p.record)
			finish(a, s, c->self);
	}
}

/* ---- result ---- */

/* Appends the result to the buffer. Returns the bytes of both. */
static uint32_t append_result(const struct aggregate *a, struct scratch *s)
{
	uint32_t at = a->p.max_groups ? a->groups * (uint32_t)sizeof(s->group[0]) : a->used;
	struct roost_aggregate_result r = {
		.records = htole64(a->records),
		.matched = htole64(a->all.count),
		.sum = htole64((uint64_t)a->all.sum),
		.sum_high = htole64((uint64_t)(a->all.sum >> 64)),
		.min = htole64(a->all.min),
		.max = htole64(a->all.max),
		.overflow = htole64(a->overflow),
		.groups = htole32(a->groups),
		.rows = htole32(a->rows),
	};

	for (uint32_t i = 0; i < a->groups; i++) {
		uint64_t *words = (uint64_t *)&s->group[i];

		for (unsigned k = 0; k < sizeof(s->group[0]) / 8; k++)
			words[k] = htole64(words[k]);
	}
	memcpy((uint8_t *)s + at, &r, sizeof(r));
	return at + (uint32_t)sizeof(r);
}

static enum roost_next payload(struct roost_call *c)
{
	struct aggregate *a = c->state;
	struct scratch *s = c->scratch;
	uint32_t n;

	ROOST_STEPS(c);
	if (!a->p.record || c->total % a->p.record)
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	a->at = begin_piece(a, c);
	for (;;) {
		run(a, s, c);
		if (a->used && (a->at < c->len || (c->last && to_region(a)))) {
			if (to_region(a))
				ROOST_WRITE(c, a->p.out + a->flushed, s->rows, a->used);
			else
				ROOST_SEND(c, s->rows, a->used);
			a->flushed += a->used;
			a->used = 0;
		}
		if (a->at == c->len)
			break;
	}
	if (!c->last)
		return ROOST_DONE;
	n = append_result(a, s);
	if (to_region(a) || !a->flushed)
		ROOST_REPLY(c, s, n);
	ROOST_SEND(c, s, n);
	return roost_reply(c, ROOST_RPC_OK, NULL, 0);
	ROOST_STEPS_END;
}

/* Each message of the stream has whole records. The result is made at the end of the stream. */
static enum roost_next stream(struct roost_call *c)
{
	if (c->total)
		c->last = 0;
	return payload(c);
}

/* ---- start and stop ---- */

static int start(void **self)
{
	struct secret *secret = calloc(1, sizeof(*secret));

	if (!secret)
		return -ENOMEM;
	secret->key[0] = rng_entropy();
	secret->key[1] = rng_entropy();
	*self = secret;
	return 0;
}

const struct roost_kernel kernel_aggregate = {
	.abi = ROOST_KERNEL_ABI,
	.version = 1,
	.name = "aggregate",
	.op = ROOST_AGGREGATE_OP,
	.state_size = sizeof(struct aggregate),
	.scratch_size = sizeof(struct scratch),
	.start = start,
	.stop = free,
	.params = params,
	.payload = payload,
	.stream = stream,
};
