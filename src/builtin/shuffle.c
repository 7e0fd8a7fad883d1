/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `shuffle`, described in roost/shuffle.h. The lines and positions of a call are in the
 * kernel's own memory, because those of 1024 partitions exceed a call's state. A call takes one of
 * ROOST_SHUFFLE_CALLS benches. Only the used parts of a bench have physical pages.
 */
#include <endian.h>
#include <string.h>

#include "base/mem.h"
#include "builtin/benches.h"
#include "builtin/builtin.h"
#include "builtin/shuffle_loop.h"

#define PARTS ROOST_SHUFFLE_PARTITIONS
#define CHUNK 256u /* partitions that a step reads, writes or flushes */

/* The memory of a call. */
struct bench {
	uint8_t lines[PARTS * ROOST_SHUFFLE_LINE];
	uint64_t at[PARTS];
	struct shuffle_bounds bounds[PARTS];
} __attribute__((aligned(ROOST_SHUFFLE_LINE)));

_Static_assert(sizeof(struct bench) % 64 == 0, "benches.h");

struct shuffle {
	struct shuffle_work w;
	struct bench *bench;
	shuffle_fn *move;
	uint32_t num_bounds; /* number of partitions with known bounds */
	uint32_t done;	     /* number of partitions that are flushed, or whose entry is updated */
	uint32_t carry_len;
	uint64_t tuples;
	struct roost_shuffle_result result;
	/* the first bytes of a tuple or table entry that continues in the next piece */
	uint8_t carry[ROOST_SHUFFLE_LINE];
	struct roost_shuffle_part part[CHUNK]; /* entries of the table in the region */
};

static void give_back(struct roost_call *c)
{
	struct shuffle *s = c->state;

	if (s->bench)
		benches_give(c, s->bench);
	s->bench = NULL;
}

/* Gives the bench back and replies. */
static enum roost_next end_with(struct roost_call *c, uint32_t status)
{
	struct shuffle *s = c->state;

	give_back(c);
	return roost_reply(c, status, &s->result, status ? 0 : sizeof(s->result));
}

/* ---- parameters ---- */

static bool take_params(struct shuffle *s, const struct roost_call *c)
{
	struct roost_shuffle_params *p = &s->w.p;

	if (c->params_len != sizeof(*p))
		return false;
	memcpy(p, c->params, sizeof(*p));
	p->table = le64toh(p->table);
	p->partitions = le32toh(p->partitions);
	p->tuple = le16toh(p->tuple);
	p->key = le16toh(p->key);
	p->flags = le16toh(p->flags);
	if (p->flags & ~ROOST_SHUFFLE_ADVANCE || (p->flags && !p->table))
		return false;
	return shuffle_ok(p) && !p->reserved;
}

static int put(void *ctx, uint64_t va, const void *buf, uint32_t len)
{
	return roost_put(ctx, va, buf, len);
}

/* Takes the next entry of the table. Returns false if it is invalid. */
static bool take_entry(struct shuffle *s, const struct roost_shuffle_part *part)
{
	uint64_t addr = le64toh(part->addr), len = le64toh(part->len);

	if (addr % s->w.p.tuple || len % s->w.p.tuple || addr + len < addr)
		return false;
	s->w.at[s->num_bounds] = s->w.bounds[s->num_bounds].from = addr;
	s->w.bounds[s->num_bounds].end = addr + len;
	s->num_bounds++;
	return true;
}

static uint32_t chunk(const struct shuffle *s, uint32_t from)
{
	return s->w.p.partitions - from < CHUNK ? s->w.p.partitions - from : CHUNK;
}

static uint64_t in_table(const struct shuffle *s, uint32_t part)
{
	return s->w.p.table + (uint64_t)part * sizeof(s->part[0]);
}

static enum roost_next params(struct roost_call *c)
{
	struct shuffle *s = c->state;

	if (!take_params(s, c))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	s->move = shuffle_best(&s->w.p);
	return ROOST_DONE;
}

/* ---- payload ---- */

static void set_up(struct shuffle *s)
{
	s->w.at = s->bench->at;
	s->w.bounds = s->bench->bounds;
	s->w.lines = s->bench->lines;
	s->w.put = put;
}

/*
 * Returns *n whole items of `size` bytes: first the item that began in the previous piece, then the
 * items of this piece. Advances *data and *len past them. If no whole item is left it keeps the
 * rest, and returns NULL.
 */
static const uint8_t *next_whole(struct shuffle *s, uint32_t size, const uint8_t **data,
				 uint32_t *len, uint32_t *n)
{
	const uint8_t *from = *data;
	uint32_t some;

	if (s->carry_len || *len < size) {
		some = size - s->carry_len < *len ? size - s->carry_len : *len;
		memcpy(s->carry + s->carry_len, from, some);
		s->carry_len += some;
		*data += some;
		*len -= some;
		if (s->carry_len < size)
			return NULL;
		s->carry_len = 0;
		*n = 1;
		return s->carry;
	}
	*n = *len / size;
	*data += *n * size;
	*len -= *n * size;
	return from;
}

/* Processes a piece of payload. Returns 0 or the status to end with. */
static uint32_t take_piece(struct shuffle *s, const uint8_t *data, uint32_t len)
{
	const uint8_t *at;
	uint32_t n;

	while (len && s->num_bounds < s->w.p.partitions) {
		struct roost_shuffle_part part;

		uint32_t one = len < sizeof(part) - s->carry_len
				       ? len
				       : (uint32_t)sizeof(part) - s->carry_len;

		len -= one;
		at = next_whole(s, sizeof(part), &data, &one, &n);
		if (!at)
			break;
		mem_copy_in(&part, at, sizeof(part));
		if (!take_entry(s, &part))
			return ROOST_RPC_BAD_PARAMS;
	}
	while (len && (at = next_whole(s, s->w.p.tuple, &data, &len, &n))) {
		enum shuffle_end end = s->move(&s->w, at, n);

		if (unlikely(end))
			return end == SHUFFLE_FULL ? ROOST_SHUFFLE_FULL : ROOST_RPC_ACCESS;
		s->tuples += n;
	}
	return 0;
}

/* Returns whether the length of the payload is valid. */
static bool fits(const struct shuffle *s, uint32_t total)
{
	uint32_t table = s->w.p.table ? 0 : s->w.p.partitions * (uint32_t)sizeof(s->part[0]);

	return s->move && total >= table && (total - table) % s->w.p.tuple == 0;
}

/* Flushes the lines of the next CHUNK partitions. */
static enum shuffle_end flush_chunk(struct shuffle *s)
{
	enum shuffle_end end = SHUFFLE_OK;

	for (uint32_t i = 0, n = chunk(s, s->done); i < n && !end; i++)
		end = shuffle_flush(&s->w, s->done++);
	return end;
}

/* Makes the updated entries of the next CHUNK partitions. */
static void update_entries(struct shuffle *s)
{
	for (uint32_t i = 0, n = chunk(s, s->done); i < n; i++) {
		uint32_t part = s->done + i;

		s->part[i].addr = htole64(s->w.at[part]);
		s->part[i].len = htole64(s->w.bounds[part].end - s->w.at[part]);
	}
}

static enum roost_next payload(struct roost_call *c)
{
	struct shuffle *s = c->state;
	enum shuffle_end end;
	uint32_t status;

	s->w.ctx = c;
	ROOST_STEPS(c);
	if (!fits(s, c->total))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	if (!s->bench) {
		s->bench = benches_take(c);
		if (!s->bench)
			ROOST_FAIL(c, ROOST_SHUFFLE_BUSY);
		set_up(s);
	}
	while (s->w.p.table && s->num_bounds < s->w.p.partitions) {
		ROOST_READ(c, in_table(s, s->num_bounds), s->part,
			   chunk(s, s->num_bounds) * (uint32_t)sizeof(s->part[0]));
		for (uint32_t i = 0, n = chunk(s, s->num_bounds); i < n; i++)
			if (!take_entry(s, &s->part[i]))
				return end_with(c, ROOST_RPC_BAD_PARAMS);
	}
	status = take_piece(s, c->data, c->len);
	if (status)
		return end_with(c, status);
	if (!c->last)
		return ROOST_DONE;
	while (s->done < s->w.p.partitions) {
		end = flush_chunk(s);
		if (end)
			return end_with(c, end == SHUFFLE_FULL ? ROOST_SHUFFLE_FULL
							       : ROOST_RPC_ACCESS);
		ROOST_WAIT(c, ROOST_AGAIN);
	}
	s->done = 0;
	while (s->w.p.flags & ROOST_SHUFFLE_ADVANCE && s->done < s->w.p.partitions) {
		update_entries(s);
		ROOST_WRITE(c, in_table(s, s->done), s->part,
			    chunk(s, s->done) * (uint32_t)sizeof(s->part[0]));
		s->done += chunk(s, s->done);
	}
	s->result.tuples = htole64(s->tuples);
	return end_with(c, ROOST_RPC_OK);
	ROOST_STEPS_END;
}

/* ---- start and stop ---- */

static int start(void **self)
{
	return benches_start(ROOST_SHUFFLE_CALLS, sizeof(struct bench), self);
}

const struct roost_kernel kernel_shuffle = {
	.abi = ROOST_KERNEL_ABI,
	.version = 1,
	.name = "shuffle",
	.op = ROOST_SHUFFLE_OP,
	.state_size = sizeof(struct shuffle),
	.resources = ROOST_SHUFFLE_CALLS,
	.resources_each = ROOST_SHUFFLE_SHARE,
	.resource_bytes = sizeof(struct bench),
	.start = start,
	.stop = benches_stop,
	.params = params,
	.payload = payload,
	.cut = give_back,
};
