/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations of a store with a far tier. An operation in flight has an entry of the reservation
 * station. The first of its key runs as a transaction (near.h). If a line is missing, the
 * transaction is undone: the operation is parked, and others run. When the line is there, the
 * operation runs again from the start. An operation therefore takes effect at one moment, as in a
 * store without a far tier, and the index and the allocator need no code for the far tier.
 *
 * An operation on a long value is divided as in a store without a far tier (part.h): its
 * transaction is interrupted, and goes on in the next kv_poll(). Until it ends, no other operation
 * runs, and no line leaves. If a line is missing after all, the whole operation runs again.
 *
 * When an operation ends, the next operation on its key runs at once, with the lines of the first,
 * which are not written back in between (forwarding).
 */
#include <errno.h>
#include <stdlib.h>

#include "kv/flight.h"

#define GROWTH_STEPS 2u

/* ---- opening ---- */

static void make_ready(struct kv_flight *f, uint16_t e)
{
	if (f->entries[e].ready)
		return;
	f->entries[e].ready = true;
	f->ready[(f->first_ready + f->num_ready++) % STATION_ENTRIES] = e;
}

static void wake(void *ctx, unsigned id)
{
	struct kv_flight *f = ctx;

	if (id == GROWTH)
		f->growing = --f->growth.missing;
	else if (id >= FIRST_SCAN)
		f->scans[id - FIRST_SCAN].holds.missing--;
	else if (--f->entries[id].holds.missing == 0)
		make_ready(f, (uint16_t)id);
}

int kv_flight_open(struct kv *kv)
{
	const struct kv_config *c = &kv->config;
	struct kv_flight *f = calloc(1, sizeof(*f));
	int err;

	if (!f)
		return -ENOMEM;
	err = kv_near_open(kv->mem.base, kv->mem.size, c->near ? c->near : c->size / 16,
			   c->cacheable ? c->cacheable : 100, c->far, &f->near);
	kv->config.far = NULL;
	if (err) {
		free(f);
		return err;
	}
	station_init(&f->station);
	share_init(&f->shares, c->in_flight ? c->in_flight : KV_IN_FLIGHT);
	share_init(&f->scan_shares, SCANS);
	f->ahead_max = (c->near ? c->near : c->size / 16) / mem_page_size() / 2;
	kv_near_on_line(f->near, wake, f);
	kv->flight = f;
	kv->mem.near = f->near;
	return 0;
}

void kv_flight_close(struct kv *kv)
{
	struct kv_flight *f = kv->flight;

	if (kv->config.far)
		kv->config.far->close(kv->config.far);
	if (!f)
		return;
	kv_near_close(f->near);
	for (unsigned i = 0; i < STATION_ENTRIES; i++) {
		free(f->entries[i].holds.lines);
		free(f->entries[i].result);
	}
	for (unsigned i = 0; i < SCANS; i++)
		free(f->scans[i].holds.lines);
	free(f->growth.lines);
	free(f);
}

void kv_flight_stat(const struct kv *kv, struct kv_stat *stat)
{
	struct kv_near_stat s;

	if (!kv->flight)
		return;
	kv_near_get_stat(kv->flight->near, &s);
	stat->far_reads = s.far_reads;
	stat->far_writes = s.far_writes;
	stat->near_lines = s.lines;
	stat->merged = s.merged;
	stat->far_errors = s.far_errors;
	/*
	 * A line may have been read for an access that did not happen, for example of a cancelled
	 * operation.
	 */
	if (s.far_reads < stat->reads + stat->writes)
		stat->near_hits = stat->reads + stat->writes - s.far_reads;
	stat->parked = kv->flight->parked;
	stat->forwarded = kv->flight->forwarded;
}

/* ---- transactions ---- */

static void undo(struct kv *kv)
{
	uint64_t bytes = kv->bytes; /* they took time */
	uint32_t now = kv->now;	    /* of a divided operation; it may have changed meanwhile */

	kv_near_undo(kv->flight->near);
	*kv = kv->flight->saved;
	kv->bytes = bytes;
	kv->now = now;
}

static void do_op(struct kv *kv, void *arg)
{
	kv->divides = true;
	kv_execute(kv, arg);
	kv->divides = false;
}

static void grow_one(struct kv *kv, void *arg)
{
	kv_grow(kv, 1);
}

bool kv_attempt(struct kv *kv, kv_transaction what, void *arg, bool keep)
{
	struct kv_flight *f = kv->flight;

	f->saved = *kv;
	if (setjmp(*kv_near_begin(f->near))) {
		undo(kv);
		return false;
	}
	what(kv, arg);
	if (!keep)
		undo(kv);
	else if (kv_divided(kv))
		kv_near_suspend(f->near);
	else
		kv_near_end(f->near);
	return true;
}

static void grow(struct kv *kv)
{
	struct kv_flight *f = kv->flight;

	for (unsigned i = 0; i < GROWTH_STEPS; i++) {
		if (kv->slots <= kv->grow_at || f->growing || kv_near_error(f->near))
			return;
		if (!kv_attempt(kv, grow_one, NULL, true)) {
			kv_near_fetch(f->near, GROWTH, &f->growth);
			f->growing = f->growth.missing;
			continue;
		}
		kv_near_release(f->near, GROWTH, &f->growth);
	}
}

/* ---- results ---- */

/*
 * Returns whether the operation waits for the operations before it in its batch. An update that
 * returns the old value must know whether the arena has space for the value.
 */
static bool needs_turn(const struct kv_op *op)
{
	return op->arena && op->fetch && op->code >= KV_UPDATE && op->code <= KV_UPDATE_VECTOR;
}

static bool has_turn(const struct entry *en)
{
	return en->op == &en->batch->ops[en->batch->ended];
}

static void leave_own_arena(struct kv_flight *f, struct entry *en)
{
	en->op->arena = f->arena;
	en->result_len = (uint32_t)(f->own.at - en->result);
	f->arena = NULL;
}

/* Executes an operation with an arena of its own. Returns false if lines are missing. */
static bool attempt_in_own_arena(struct kv *kv, struct entry *en, bool keep)
{
	struct kv_flight *f = kv->flight;
	bool done;

	f->own = (struct kv_arena){en->result, en->result + en->result_cap};
	f->arena = en->op->arena;
	en->op->arena = &f->own;
	done = kv_attempt(kv, do_op, en->op, keep);
	if (!kv_divided(kv))
		leave_own_arena(f, en);
	return done;
}

static bool enlarge(struct entry *en, uint32_t len)
{
	uint8_t *more = realloc(en->result, len);

	if (!more)
		return false;
	en->result = more;
	en->result_cap = len;
	return true;
}

/* Returns true if the result did not fit, and fits now. The operation has changed nothing. */
static bool fits_now(struct entry *en)
{
	struct kv_op *op = en->op;

	return op->status == -EMSGSIZE && op->out_len > en->result_cap && enlarge(en, op->out_len);
}

/* Executes an operation. Returns false if lines are missing. */
static bool execute(struct kv *kv, struct entry *en)
{
	struct kv_flight *f = kv->flight;
	struct kv_op *op = en->op;

	if (!op->arena)
		return kv_attempt(kv, do_op, op, true);
	if (has_turn(en)) {
		f->arena_at = op->arena->at;
		en->result_len = 0;
		if (kv_attempt(kv, do_op, op, true))
			return true;
		op->arena->at = f->arena_at;
		return false;
	}
	if (!attempt_in_own_arena(kv, en, true))
		return false;
	if (!kv_divided(kv) && fits_now(en))
		return attempt_in_own_arena(kv, en, true);
	return true;
}

/* Moves the result of an operation to the arena. */
static void copy_result(struct entry *en)
{
	struct kv_op *op = en->op;

	if (!en->result_len)
		return;
	if (kv_claim_result(op, en->result_len))
		op->status = -EMSGSIZE;
	else
		memcpy(op->out, en->result, en->result_len);
}

/* ---- ends ---- */

static void free_entry(struct kv_flight *f, uint16_t e)
{
	struct entry *en = &f->entries[e];

	if (en->result_cap > RESULT_KEPT) {
		free(en->result);
		en->result = NULL;
		en->result_cap = 0;
	}
	en->op = NULL;
	share_give(&f->shares, en->batch->client);
	f->may_admit = true;
	station_free(&f->station, e);
}

/* Ends the operations of a batch up to the first operation that is not finished. */
static void end_finished(struct kv_flight *f, struct kv_batch *b)
{
	for (; b->ended < b->begun; b->ended++) {
		struct kv_op *op = &b->ops[b->ended];
		uint16_t e = (uint16_t)op->entry;

		if (e == STATION_NONE)
			continue;
		if (!f->entries[e].ended) {
			if (f->entries[e].awaits_turn && !f->entries[e].holds.missing)
				make_ready(f, e);
			return;
		}
		if (op->arena)
			copy_result(&f->entries[e]);
		free_entry(f, e);
	}
}

/* Ends an operation. Returns the next operation on the key, or STATION_NONE. */
static uint16_t end(struct kv_flight *f, uint16_t e)
{
	struct entry *en = &f->entries[e];
	uint16_t next;

	en->ended = true;
	kv_near_release(f->near, e, &en->holds);
	next = station_end(&f->station, e);
	end_finished(f, en->batch);
	return next;
}

/* ---- running ---- */

static void park(struct kv_flight *f, uint16_t e)
{
	struct entry *en = &f->entries[e];

	en->op->status = -EINPROGRESS;
	en->waited = true;
	f->parked++;
	/* If there is no memory for the list of lines, the operation is tried again. */
	kv_near_fetch(f->near, e, &en->holds);
	if (!en->holds.missing)
		make_ready(f, e);
}

/* Ends the transaction of the divided operation without an effect. */
static void undo_divided(struct kv *kv)
{
	struct kv_flight *f = kv->flight;
	struct entry *en = &f->entries[f->divided];

	undo(kv);
	if (f->arena)
		leave_own_arena(f, en);
	else if (en->op->arena)
		en->op->arena->at = f->arena_at;
}

/* Continues the divided operation. Returns whether it is finished. */
static bool continue_divided(struct kv *kv, uint64_t until)
{
	struct kv_flight *f = kv->flight;
	struct entry *en = &f->entries[f->divided];

	if (setjmp(*kv_near_resume(f->near))) {
		undo_divided(kv);
		park(f, f->divided);
		return false;
	}
	kv->divides = true;
	if (kv_part_run(kv, until)) {
		kv->divides = false;
		kv_near_end(f->near);
		if (!f->arena)
			return true;
		leave_own_arena(f, en);
		if (!fits_now(en))
			return true;
		en->op->status = -EINPROGRESS;
		make_ready(f, f->divided);
		return false;
	}
	kv->divides = false;
	kv_near_suspend(f->near);
	if (kv_near_error(f->near)) {
		undo_divided(kv);
		en->op->status = -EINPROGRESS;
		make_ready(f, f->divided);
	}
	return false;
}

/* Runs an operation. Returns whether it is finished. */
static bool run(struct kv *kv, uint16_t e)
{
	struct kv_flight *f = kv->flight;
	struct entry *en = &f->entries[e];

	en->ready = false;
	if (kv_near_error(f->near)) {
		en->op->status = -EIO;
		en->result_len = 0;
		return true;
	}
	if (needs_turn(en->op) && !has_turn(en)) {
		/* This attempt only finds the missing lines. */
		if (attempt_in_own_arena(kv, en, false))
			en->awaits_turn = true;
		else
			park(f, e);
		en->op->status = -EINPROGRESS;
		return false;
	}
	if (!execute(kv, en)) {
		park(f, e);
		return false;
	}
	f->forwarded += en->follows && !en->waited;
	f->divided = e;
	return !kv_divided(kv);
}

/* Ends an operation. Returns the next operation on the key, or STATION_NONE. */
static uint16_t end_and_grow(struct kv *kv, uint16_t e)
{
	struct kv_flight *f = kv->flight;
	uint16_t next = end(f, e);

	if (next != STATION_NONE)
		f->entries[next].follows = true;
	grow(kv);
	return next;
}

/* Runs an operation, and those that follow on its key. */
static void run_chain(struct kv *kv, uint16_t e, uint64_t until)
{
	while (e != STATION_NONE) {
		if (kv->bytes >= until) {
			make_ready(kv->flight, e);
			return;
		}
		if (!run(kv, e))
			return;
		e = end_and_grow(kv, e);
	}
}

/*
 * Runs the operations that are ready, until kv->bytes has reached `until`. Returns false if writes
 * to the far tier must end before other operations run.
 */
static bool run_ready(struct kv *kv, uint64_t until)
{
	struct kv_flight *f = kv->flight;

	while (kv->bytes < until && (kv_divided(kv) || f->num_ready)) {
		uint16_t e;

		if (kv_divided(kv)) {
			if (continue_divided(kv, until))
				run_chain(kv, end_and_grow(kv, f->divided), until);
			continue;
		}
		e = f->ready[f->first_ready];
		f->first_ready = (uint16_t)((f->first_ready + 1) % STATION_ENTRIES);
		f->num_ready--;
		run_chain(kv, e, until);
		if (kv_divided(kv))
			continue;
		/* Lines that are not cacheable stay until the end of the turn. */
		if (++f->runs % 64 == 0 && !kv_near_trim(f->near))
			return false;
	}
	return true;
}

/* Begins the next operation of a batch. Returns false if its client has its share. */
static bool admit_one(struct kv *kv, struct kv_batch *b)
{
	struct kv_flight *f = kv->flight;
	struct kv_op *op = &b->ops[b->begun];
	struct entry *en;
	bool ready;

	if (!share_take(&f->shares, b->client))
		return false;
	kv_begin(kv, op);
	b->begun++;
	if (op->status) {
		share_give(&f->shares, b->client);
		op->entry = STATION_NONE;
		end_finished(f, b);
		return true;
	}
	op->status = -EINPROGRESS;
	op->entry = station_add(&f->station, op->hash, &ready);
	en = &f->entries[op->entry];
	en->op = op;
	en->batch = b;
	en->result_len = 0;
	en->ready = en->ended = en->awaits_turn = en->follows = en->waited = false;
	if (ready)
		make_ready(f, (uint16_t)op->entry);
	return true;
}

/*
 * Begins operations as long as their clients have places. The batches of a client are in order: if
 * a client has its share at one batch, it also has its share at its later batches. Returns whether
 * an operation was begun.
 */
static bool admit(struct kv *kv)
{
	struct kv_flight *f = kv->flight;
	struct kv_batch **at = &f->first, *before = NULL;
	bool any = false;

	if (!f->may_admit)
		return false;
	f->may_admit = false;
	while (*at && !share_is_full(&f->shares)) {
		struct kv_batch *b = *at;

		while (b->begun < b->n && admit_one(kv, b))
			any = true;
		if (b->begun < b->n) {
			before = b;
			at = &b->next;
			continue;
		}
		*at = b->next;
		if (f->last == b)
			f->last = before;
	}
	return any;
}

void kv_submit(struct kv *kv, struct kv_batch *b)
{
	struct kv_flight *f = kv->flight;

	b->begun = b->ended = 0;
	b->next = NULL;
	if (f->first)
		f->last->next = b;
	else
		f->first = b;
	f->last = b;
	f->may_admit = true;
}

void kv_poll(struct kv *kv, bool wait)
{
	struct kv_flight *f = kv->flight;
	bool divided = kv_divided(kv), moved = kv_near_poll(f->near, false) || divided;
	bool space = divided || kv_near_trim(f->near);
	uint64_t until = kv->bytes + KV_RUN_BYTES;

	if (space && !divided)
		grow(kv);
	while (space && kv->bytes < until && (admit(kv) || f->num_ready || kv_divided(kv))) {
		moved = true;
		space = run_ready(kv, until);
	}
	if (moved && !kv_divided(kv))
		kv_near_trim(f->near);
	if (wait && !moved)
		kv_near_poll(f->near, true);
}

static void cancel_ready(struct kv_flight *f, uint16_t e)
{
	unsigned num = f->num_ready;

	f->num_ready = 0;
	for (unsigned i = 0; i < num; i++) {
		uint16_t other = f->ready[(f->first_ready + i) % STATION_ENTRIES];

		if (other != e)
			f->ready[(f->first_ready + f->num_ready++) % STATION_ENTRIES] = other;
	}
}

void kv_cancel(struct kv *kv, struct kv_batch *b)
{
	struct kv_flight *f = kv->flight;
	struct kv_batch **at = &f->first, *before = NULL;

	if (kv_divided(kv) && f->entries[f->divided].batch == b)
		undo_divided(kv);
	while (*at && *at != b) {
		before = *at;
		at = &before->next;
	}
	if (*at) {
		*at = b->next;
		if (f->last == b)
			f->last = before;
	}
	for (; b->ended < b->begun; b->ended++) {
		uint16_t e = (uint16_t)b->ops[b->ended].entry, next = STATION_NONE;

		if (e == STATION_NONE)
			continue;
		if (!f->entries[e].ended) {
			cancel_ready(f, e);
			kv_near_release(f->near, e, &f->entries[e].holds);
			next = station_end(&f->station, e);
		}
		free_entry(f, e);
		if (next != STATION_NONE)
			make_ready(f, next);
	}
	b->ended = b->n;
}

void kv_flight_run(struct kv *kv, struct kv_op *ops, unsigned n)
{
	struct kv_batch b = {.ops = ops, .n = n};

	kv_submit(kv, &b);
	while (!kv_finished(&b))
		kv_poll(kv, true);
}
