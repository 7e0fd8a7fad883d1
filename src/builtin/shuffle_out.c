/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `shuffle-out`, described in roost/shuffle.h. Each partition has two buffers in a
 * bench: one is filled while the other is written. A call takes one of ROOST_SHUFFLE_OUT_CALLS
 * benches, and gives it back when no operation uses it any more.
 *
 *	batch of tuples -> buffer of its partition -- full --> WRITE to the partition's queue pair
 */
#include <endian.h>
#include <string.h>

#include "base/mem.h"
#include "builtin/benches.h"
#include "builtin/builtin.h"
#include "builtin/shuffle_loop.h"

#define PARTS	  ROOST_SHUFFLE_PARTITIONS
#define CHUNK	  64u /* entries of the table that a step reads or writes */
#define BATCH	  64u /* tuples whose partitions are computed before the first is copied */
#define MIN_BYTES 256u
#define MAX_BYTES 4096u

struct target {
	/* remote address for the buffer that is being filled, and end of the partition */
	uint64_t addr, end;
	uint64_t tuples; /* tuples that were written */
	uint32_t rkey, qp;
	uint32_t op[2]; /* the last operation from each buffer; 0: none yet */
	uint32_t which; /* the buffer that is being filled */
};

/*
 * The data that each tuple uses: the address for the next tuple, and its limit, which is the end of
 * the buffer or the space of the partition.
 */
struct lane {
	uint8_t *at, *stop;
};

struct bench {
	struct lane lane[PARTS];
	uint8_t space[ROOST_SHUFFLE_OUT_SPACE];
	struct target target[PARTS];
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct bench) % 64 == 0, "benches.h");

struct shuffle_out {
	struct roost_shuffle_params how; /* as shuffle_loop.h takes it */
	uint64_t table;
	uint32_t bytes; /* bytes of a buffer */
	struct bench *bench;
	uint32_t out_part;	       /* the partition whose buffer is written */
	uint32_t before;	       /* the operation to wait for */
	uint32_t num_entries;	       /* number of partitions with known entries */
	uint32_t flushed, num_updated; /* at the end: partitions flushed, entries updated */
	uint32_t taken;		       /* bytes of the piece */
	uint32_t got, at, whole;       /* the batch: bytes, next tuple, number of its tuples */
	uint32_t status;	       /* status with which the call ends */
	struct roost_shuffle_out_result result;
	uint32_t part[BATCH];
	struct roost_shuffle_target entry[CHUNK];
};

/*
 * Gives the bench back. No operation uses it: payload() waits for its operations, and cut() runs
 * after them.
 */
static void give_back(struct roost_call *c)
{
	struct shuffle_out *s = c->state;

	if (s->bench)
		benches_give(c, s->bench);
	s->bench = NULL;
}

/* ---- parameters and table ---- */

static enum roost_next params(struct roost_call *c)
{
	struct shuffle_out *s = c->state;
	struct roost_shuffle_out_params p;

	if (c->params_len != sizeof(p))
		return roost_reply(c, ROOST_RPC_BAD_PARAMS, NULL, 0);
	memcpy(&p, c->params, sizeof(p));
	s->table = le64toh(p.table);
	s->bytes = le16toh(p.buffer);
	s->how = (struct roost_shuffle_params){.partitions = le32toh(p.partitions),
					       .tuple = le16toh(p.tuple),
					       .key = le16toh(p.key),
					       .how = p.how,
					       .shift = p.shift};
	if (!shuffle_ok(&s->how) || !is_pow2(s->bytes) || s->bytes < MIN_BYTES ||
	    s->bytes > MAX_BYTES || p.reserved ||
	    2ull * s->how.partitions * s->bytes > ROOST_SHUFFLE_OUT_SPACE)
		return roost_reply(c, ROOST_RPC_BAD_PARAMS, NULL, 0);
	return ROOST_DONE;
}

static uint64_t in_table(const struct shuffle_out *s, uint32_t part)
{
	return s->table + (uint64_t)part * sizeof(s->entry[0]);
}

static uint32_t chunk(const struct shuffle_out *s, uint32_t from)
{
	return s->how.partitions - from < CHUNK ? s->how.partitions - from : CHUNK;
}

static uint32_t chunk_bytes(const struct shuffle_out *s, uint32_t from)
{
	return chunk(s, from) * (uint32_t)sizeof(s->entry[0]);
}

/* Returns the buffer that is being filled. */
static uint8_t *buffer(const struct shuffle_out *s, uint32_t part)
{
	return s->bench->space + (2 * (size_t)part + s->bench->target[part].which) * s->bytes;
}

static void begin_buffer(struct shuffle_out *s, uint32_t part)
{
	const struct target *t = &s->bench->target[part];
	uint64_t left = t->end - t->addr;
	uint8_t *at = buffer(s, part);

	s->bench->lane[part] = (struct lane){at, at + (left < s->bytes ? left : s->bytes)};
}

/* Takes the entries that were read. Returns false if they are invalid. */
static bool take_entries(struct shuffle_out *s)
{
	uint32_t n = chunk(s, s->num_entries);

	for (uint32_t i = 0; i < n; i++) {
		const struct roost_shuffle_target *e = &s->entry[i];
		uint64_t addr = le64toh(e->addr), len = le64toh(e->len);

		if (len % s->how.tuple || addr + len < addr)
			return false;
		s->bench->target[s->num_entries] = (struct target){.addr = addr,
								   .end = addr + len,
								   .rkey = le32toh(e->rkey),
								   .qp = le32toh(e->qp)};
		begin_buffer(s, s->num_entries++);
	}
	return true;
}

/* Makes the updated entries of the next CHUNK partitions. */
static void update_entries(struct shuffle_out *s)
{
	for (uint32_t i = 0, n = chunk(s, s->num_updated); i < n; i++) {
		const struct target *t = &s->bench->target[s->num_updated + i];

		s->entry[i] = (struct roost_shuffle_target){.addr = htole64(t->addr),
							    .len = htole64(t->end - t->addr),
							    .rkey = htole32(t->rkey),
							    .qp = htole32(t->qp),
							    .tuples = htole64(t->tuples)};
	}
}

/* ---- tuples ---- */

/* Takes the next batch of the piece; reads each byte once. Returns false if no tuple is whole. */
static bool next_batch(struct shuffle_out *s, const struct roost_call *c)
{
	uint32_t size = s->how.tuple, some = BATCH * size - s->got;
	uint8_t *own = c->scratch;

	if (some > c->len - s->taken)
		some = c->len - s->taken;
	memcpy(own + s->got, c->data + s->taken, some);
	s->got += some;
	s->taken += some;
	s->at = 0;
	s->whole = s->got / size;
	shuffle_parts(&s->how, own, s->whole, s->part);
	return s->whole;
}

/* Keeps the rest of the batch: the first bytes of a tuple that continues in the next piece. */
static void end_batch(struct shuffle_out *s, const struct roost_call *c)
{
	uint32_t used = s->whole * s->how.tuple;
	uint8_t *own = c->scratch;

	memmove(own, own + used, s->got - used);
	s->got -= used;
	s->whole = 0;
}

/*
 * Copies tuples of the batch until a buffer is full; s->out_part is its partition. Returns false if
 * the batch ends, or if s->status is set.
 */
static inline __attribute__((always_inline)) bool move(struct shuffle_out *s, const uint8_t *own,
						       uint32_t size)
{
	struct lane *lanes = s->bench->lane;
	uint32_t at = s->at, whole = s->whole;

	for (; at < whole; at++) {
		struct lane *l = &lanes[s->part[at]];
		uint8_t *to = l->at;

		if (unlikely(to == l->stop)) {
			s->status = ROOST_SHUFFLE_FULL;
			break;
		}
		memcpy(to, own + (size_t)at * size, size);
		l->at = to += size;
		if (unlikely(to == l->stop) && to == buffer(s, s->part[at]) + s->bytes) {
			s->out_part = s->part[at];
			s->at = at + 1;
			return true;
		}
	}
	s->at = at;
	return false;
}

/* Calls move() for any size of tuples. The compiler specialises it for size 8. */
static bool move_on(struct shuffle_out *s, const struct roost_call *c)
{
	return s->how.tuple == 8 ? move(s, c->scratch, 8) : move(s, c->scratch, s->how.tuple);
}

/* Returns whether another operation would overwrite the status of an operation in progress. */
static bool full(const struct roost_call *c)
{
	return c->qp_posted - c->qp_done == ROOST_QP_OPS;
}

static uint32_t filled(const struct shuffle_out *s, uint32_t part)
{
	return (uint32_t)(s->bench->lane[part].at - buffer(s, part));
}

static enum roost_next send(const struct shuffle_out *s, struct roost_call *c)
{
	const struct target *t = &s->bench->target[s->out_part];

	return roost_qp_write(c, t->qp, t->addr, t->rkey, buffer(s, s->out_part), 0,
			      filled(s, s->out_part));
}

/*
 * Changes buffers after the buffer of s->out_part was posted. Returns the last operation from the
 * other buffer, which is filled next.
 */
static uint32_t change_buffers(struct shuffle_out *s, const struct roost_call *c)
{
	struct target *t = &s->bench->target[s->out_part];
	uint32_t len = filled(s, s->out_part);

	t->op[t->which] = c->qp_posted;
	t->addr += len;
	t->tuples += len / s->how.tuple;
	s->result.writes++;
	t->which ^= 1;
	begin_buffer(s, s->out_part);
	return t->op[t->which];
}

/* Finds the next partition, from s->flushed on, whose buffer is not empty. */
static bool next_rest(struct shuffle_out *s)
{
	while (s->flushed < s->how.partitions) {
		s->out_part = s->flushed++;
		if (filled(s, s->out_part))
			return true;
	}
	return false;
}

/*
 * Notes the status of the first failed operation, when no operation is in progress any more. It is
 * among the last ROOST_QP_OPS operations, because no operation is posted after a failure is known.
 */
static void note_failure(struct shuffle_out *s, const struct roost_call *c)
{
	uint32_t n = c->qp_posted < ROOST_QP_OPS ? c->qp_posted : ROOST_QP_OPS;

	for (uint32_t i = n; i-- > 0 && !s->result.qp_status;)
		s->result.qp_status = roost_qp_status(c, c->qp_posted - i);
}

static enum roost_next payload(struct roost_call *c)
{
	struct shuffle_out *s = c->state;

	ROOST_STEPS(c);
	if (!s->bench) {
		if (!s->bytes || c->total % s->how.tuple) /* payload without parameters */
			ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
		s->bench = benches_take(c);
		if (!s->bench)
			ROOST_FAIL(c, ROOST_SHUFFLE_BUSY);
	}
	while (s->num_entries < s->how.partitions) {
		ROOST_READ(c, in_table(s, s->num_entries), s->entry,
			   chunk_bytes(s, s->num_entries));
		if (!take_entries(s)) {
			give_back(c);
			ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
		}
	}
	s->taken = 0;
	while (!s->status && next_batch(s, c)) {
		while (move_on(s, c)) {
			if (full(c))
				ROOST_QP_WAIT(c, c->qp_done + 1);
			if (!c->qp_failed) {
				ROOST_WAIT(c, send(s, c));
				s->before = change_buffers(s, c);
				/* The other buffer must have arrived before it is filled again. */
				if (s->before)
					ROOST_QP_WAIT(c, s->before);
			}
			if (c->qp_failed) {
				s->status = ROOST_SHUFFLE_LOST;
				break;
			}
		}
		end_batch(s, c);
	}
	if (!s->status && !c->last)
		return ROOST_DONE;
	while (!s->status && !c->qp_failed && next_rest(s)) {
		if (full(c))
			ROOST_QP_WAIT(c, c->qp_done + 1);
		if (c->qp_failed)
			break;
		ROOST_WAIT(c, send(s, c));
		change_buffers(s, c);
	}
	ROOST_QP_WAIT_ALL(c);
	if (c->qp_failed) {
		s->status = ROOST_SHUFFLE_LOST;
		note_failure(s, c);
	}
	for (; !s->status && s->num_updated < s->how.partitions; s->num_updated += CHUNK) {
		update_entries(s);
		ROOST_WRITE(c, in_table(s, s->num_updated), s->entry,
			    chunk_bytes(s, s->num_updated));
	}
	for (uint32_t i = 0; i < s->how.partitions; i++)
		s->result.tuples += s->bench->target[i].tuples;
	give_back(c);
	s->result = (struct roost_shuffle_out_result){.tuples = htole64(s->result.tuples),
						      .writes = htole32(s->result.writes),
						      .qp_status = htole32(s->result.qp_status)};
	return roost_reply(c, s->status, &s->result, sizeof(s->result));
	ROOST_STEPS_END;
}

/* ---- start and stop ---- */

static int start(void **self)
{
	return benches_start(ROOST_SHUFFLE_OUT_CALLS, sizeof(struct bench), self);
}

const struct roost_kernel kernel_shuffle_out = {
	.abi = ROOST_KERNEL_ABI,
	.version = 1,
	.name = "shuffle-out",
	.op = ROOST_SHUFFLE_OUT_OP,
	.state_size = sizeof(struct shuffle_out),
	.scratch_size = BATCH * ROOST_SHUFFLE_LINE,
	.resources = ROOST_SHUFFLE_OUT_CALLS,
	.resources_each = ROOST_SHUFFLE_OUT_SHARE,
	.resource_bytes = sizeof(struct bench),
	.start = start,
	.stop = benches_stop,
	.params = params,
	.payload = payload,
	.cut = give_back,
};
