/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `kv`: executes batches of operations on a key-value store (docs/kv-wire.md). The store
 * is the kernel's own memory, and all connections share it. A step decodes a group of operations,
 * hands it to kv_run(), which overlaps its cache misses, and encodes the results. Values are copied
 * from the store into the reply, each behind the place of its result; then the results are moved
 * together.
 *
 * With a far tier the group is submitted. If the group is not finished at once, the call pauses,
 * and other calls and packets have their turns. Each turn of the call continues all groups in
 * flight.
 *
 * Operations on long values take long. After 256 KiB of values the step ends, also in the middle of
 * a group or of an operation, and the bytes are charged to the turn. The rest of the group then
 * waits in memory of its own for the call's next step. In the middle of an operation the call keeps
 * the store, so that operations are atomic: calls of `kv` wait, and all other work of the node
 * continues. With a far tier an operation is not divided.
 *
 * Calls of several processing units may run at the same time: a step owns the store alone, and a
 * call that finds the store taken tries again: at once, then in later turns.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "builtin/builtin.h"
#include "builtin/kv_group.h"
#include "builtin/kv_store.h"
#include "kv/kv.h"
#include "kvwire/kvwire.h"
#include "kvwire/number.h"
#include "roost/kv.h"

_Static_assert(KV_KEY_MAX == ROOST_KV_KEY_MAX && KV_VALUE_MAX == ROOST_KV_VALUE_MAX, "limits");

#define FEW	   4u  /* operations of a batch whose misses overlap those of other batches */
#define LONGS	   16u /* long batches and replies in progress */
#define LONGS_EACH 2u  /* long batches and replies of a connection */
#define TRIES	   64u /* steps in which a call tries to take the store before it pauses */
#define STATE_MAX  512u

/* `self` of the kernel. */
struct kernel {
	struct kv_store *store;
	bool owns_store;       /* stop() closes the store */
	uint8_t *long_buffers; /* LONGS of LONG_SIZE bytes */
	struct kv_ahead ahead; /* used by the owner of the store */
};

/* A long batch, or a long reply. A page that was not used has no memory. */
#define LONG_SIZE ALIGN_UP((size_t)KVWIRE_BATCH_MAX, (size_t)65536)
_Static_assert(KVWIRE_LONG_MAX <= KVWIRE_BATCH_MAX, "a buffer holds either");

struct call_state {
	struct kvwire_reader batch;
	struct kvwire_reply reply;
	uint32_t number; /* number of the long buffer; 0: none */
	uint8_t *buffer;
	uint32_t reply_number; /* the same, of a long reply to a batch that is payload */
	/* the group that is not finished; of the store's groups if it has a far tier; NULL: none */
	struct kv_group *parked;
	bool broken;
	bool divided;  /* an operation is divided: the call keeps the store until its next step */
	bool ahead;    /* `op` is the only operation of the batch, decoded and hashed */
	uint8_t tries; /* steps in succession that found the store taken */
	struct kv_op op;
};

_Static_assert(sizeof(struct call_state) <= STATE_MAX, "state and reply fit into a call");

/* ---- the store ---- */

static bool take_store(struct kv_store *st)
{
	if (!kv_store_try(st, KV_STORE_SERVES))
		return false;
	kv_set_time(st->kv, kv_store_now());
	return true;
}

/* ---- groups ---- */

/* Returns whether the result of the operation has data, given its status. */
static bool has_data(const struct kv_op *op)
{
	switch (op->code) {
	case KV_PUT_COMPARE:
		return op->status == -ECANCELED;
	case KV_UPDATE:
	case KV_UPDATE_EACH:
	case KV_UPDATE_VECTOR:
		return op->fetch && (op->status == 0 || op->status == -ECANCELED);
	case KV_GET:
	case KV_REDUCE:
	case KV_FILTER:
		return op->status == 0;
	default:
		return false;
	}
}

static void add_result(struct kvwire_reply *w, const struct kv_op *op)
{
	if (op->status == -EMSGSIZE) /* the operation changed nothing */
		kvwire_reply_add_cut(w, op->code == KV_PUT_COMPARE ? -ECANCELED : 0, op->out_len);
	else if (has_data(op))
		kvwire_reply_add(w, op->status, op->out, op->out_len);
	else
		kvwire_reply_add(w, op->status, NULL, 0);
}

static void make_space(struct kvwire_reply *w, struct kv_group *g)
{
	size_t space;

	g->arena.at = kvwire_reply_space(w, g->n, &space);
	g->arena.end = g->arena.at + space;
}

/*
 * If the fence closed while the group ran, another node may own the partitions and lack the changes
 * of the group.
 */
static void add_results(struct kv_store *st, struct kvwire_reply *w, struct kv_group *g)
{
	bool late = false;

	st->operations += g->n;
	if (g->n && st->fence)
		late = !kv_fence_open(st->fence, g->version, kv_fence_now());
	for (unsigned i = 0; i < g->n; i++) {
		if (late)
			g->op[i].status = -ETIMEDOUT;
		if (g->op[i].status == -EREMCHG)
			kv_group_add_not_owned(st, w);
		else
			add_result(w, &g->op[i]);
	}
}

/* ---- steps ---- */

enum progress { PARKED, MORE, COMPLETE };

/*
 * Encodes the results of a group that is finished, and runs the operation behind it. PARKED: that
 * operation is not finished, and the caller calls again.
 */
static enum progress end_group(struct kv_store *st, struct call_state *s, struct kv_group *g)
{
	int rc = g->read;

	add_results(st, &s->reply, g);
	g->n = 0;
	if (g->has_alone)
		return kv_group_run_alone(st, &s->reply, g) ? MORE : PARKED;
	if (g->has_foreign) {
		kv_group_add_not_owned(st, &s->reply);
		return MORE;
	}
	if (!s->batch.left)
		rc = kvwire_next(&s->batch, &g->alone); /* the end, or bytes behind it */
	s->broken = rc < 0;
	st->batches += rc != 1;
	return rc == 1 ? MORE : COMPLETE;
}

/* Begins the reply in `len` bytes at buf. Returns false if not even empty results fit. */
static bool begin_reply(struct call_state *s, const struct roost_call *c, void *buf, size_t len)
{
	if (len > c->space)
		len = c->space;
	return kvwire_reply_begin(&s->reply, buf, len, s->batch.count);
}

static uint8_t *buffer_at(const struct roost_call *c, uint32_t number)
{
	const struct kernel *k = c->self;

	return k->long_buffers + (number - 1) * LONG_SIZE;
}

static bool take_buffer(struct roost_call *c)
{
	struct call_state *s = c->state;

	s->number = roost_take(c);
	if (!s->number)
		return false;
	s->buffer = buffer_at(c, s->number);
	return true;
}

static void give_back(struct roost_call *c)
{
	struct call_state *s = c->state;

	if (s->number)
		roost_give(c, s->number);
	if (s->reply_number)
		roost_give(c, s->reply_number);
	s->number = s->reply_number = 0;
}

static void cut(struct roost_call *c)
{
	struct call_state *s = c->state;
	const struct kernel *k = c->self;

	if (s->divided) {
		kv_end_divided(k->store->kv);
		kv_store_leave(k->store);
		s->divided = false;
	}
	if (s->parked && k->store->groups)
		kv_store_drop_group(k->store, s->parked);
	else
		free(s->parked);
	s->parked = NULL;
	give_back(c);
}

static enum roost_next end_with(struct roost_call *c, uint32_t status)
{
	give_back(c);
	return roost_reply(c, status, NULL, 0);
}

/* Ends a call whose reply was not begun: the runtime returns the least length to the caller. */
static enum roost_next no_space(struct roost_call *c)
{
	const struct call_state *s = c->state;
	size_t least = kvwire_least(s->batch.count);

	give_back(c);
	if (least <= c->space)
		return roost_reply(c, ROOST_RPC_BAD_PARAMS, NULL, 0);
	return roost_reply(c, ROOST_RPC_OK, c->scratch, (uint32_t)least);
}

/* Keeps a group for the next step. Without memory, runs the rest of it instead. */
static struct kv_group *keep_group(struct kv_store *st, struct kv_group *g)
{
	struct kv_group *kept = malloc(sizeof(*kept));

	if (!kept) {
		while (!kv_run_on(st->kv, g->op, g->n))
			;
		return NULL;
	}
	*kept = *g;
	for (unsigned i = 0; i < g->n; i++)
		kept->op[i].arena = &kept->arena;
	kv_moved_ops(st->kv, g->op, kept->op, g->n);
	return kept;
}

/*
 * If the table of partitions has changed since the group began, another node may own the keys of
 * the operations that are left. The table does not change while an operation is divided.
 */
static void refuse_rest(const struct kv_store *st, struct kv_group *g)
{
	if (!st->parts || st->parts->version == g->version)
		return;
	for (unsigned i = 0; i < g->n; i++) {
		if (g->op[i].status == -EINPROGRESS)
			g->op[i].status = -EREMCHG;
	}
}

/* Continues a group in a store without a far tier. */
static enum progress continue_group(struct kv_store *st, struct call_state *s)
{
	struct kv_group *g = s->parked;
	enum progress next;

	refuse_rest(st, g);
	if (!kv_run_on(st->kv, g->op, g->n))
		return MORE;
	s->parked = NULL;
	next = end_group(st, s, g);
	free(g);
	return next;
}

/* Executes a group in a store without a far tier, or a part of it. Does not return PARKED. */
static enum progress run_group(struct kv_store *st, struct call_state *s)
{
	struct kv_group g;

	kv_parts_begin(st->parts, st->fence);
	if (unlikely(s->parked != NULL))
		return continue_group(st, s);
	g.client = 0;
	g.version = st->parts ? st->parts->version : 0;
	kv_group_read(st, &s->batch, &g);
	if (g.n) {
		make_space(&s->reply, &g);
		if (unlikely(!kv_run_some(st->kv, g.op, g.n))) {
			s->parked = keep_group(st, &g);
			if (s->parked)
				return MORE;
		}
	}
	return end_group(st, s, &g);
}

/* Executes a group in a store with a far tier. Returns PARKED if the group is not finished. */
static enum progress run_parked(struct kv_store *st, struct call_state *s, uint64_t client)
{
	struct kv_group *g = s->parked;
	enum progress next;

	kv_parts_begin(st->parts, st->fence);
	if (!g) {
		g = kv_store_take_group(st, client);
		if (!g)
			return PARKED;
		s->parked = g;
		kv_group_read(st, &s->batch, g);
		kv_store_begin_group(st, g);
		make_space(&s->reply, g);
		g->batch = (struct kv_batch){.ops = g->op, .n = g->n, .client = client};
		if (g->n)
			kv_submit(st->kv, &g->batch);
	}
	if (!kv_finished(&g->batch) || g->scan.data)
		kv_poll(st->kv, false);
	if (!kv_finished(&g->batch))
		return PARKED;
	next = end_group(st, s, g);
	if (next == PARKED)
		return PARKED;
	s->parked = NULL;
	kv_scan_end(st->kv, &g->scan.state);
	kv_store_give_group(st, g);
	return next;
}

/*
 * The store is taken, usually for a step of another processing unit. If it is taken for longer, the
 * call pauses: the time must not count as steps of the call.
 */
static enum roost_next try_again(struct roost_call *c, struct kv_store *st)
{
	struct call_state *s = c->state;

	if (st->groups || kv_store_is_kept(st) || s->tries == TRIES)
		return roost_pause(c);
	s->tries++;
	return ROOST_AGAIN;
}

/* Runs a step of a batch that was opened; results go into a reply that was begun. */
static enum roost_next run_step(struct roost_call *c)
{
	struct call_state *s = c->state;
	struct kernel *k = c->self;
	struct kv_store *st = k->store;
	enum progress next;
	uint64_t before, did;

	if (!s->divided && !take_store(st))
		return try_again(c, st);
	s->tries = 0;
	before = kv_bytes(st->kv);
	if (st->groups) {
		next = run_parked(st, s, c->owner);
	} else {
		kv_ahead_end(st->kv, &k->ahead);
		next = run_group(st, s);
	}
	did = kv_bytes(st->kv) - before;
	roost_charge(c, (uint32_t)(did < INT32_MAX ? did : INT32_MAX));
	/* With a far tier each call that polls continues the divided operation. */
	if (unlikely(kv_divided(st->kv) && st->groups && next == PARKED))
		next = MORE;
	s->divided = kv_divided(st->kv) && !st->groups;
	if (unlikely(s->divided))
		kv_store_keep(st);
	else
		kv_store_leave(st);
	if (next == PARKED)
		return roost_pause(c);
	return next == MORE ? ROOST_AGAIN : ROOST_DONE;
}

/* Decodes the only operation of a batch. Returns false if it is none that kv_run() executes. */
static bool decode_single(struct kv_store *st, struct call_state *s, struct kvwire_reader batch)
{
	struct roost_kv_op op;
	const void *key;
	uint32_t len;

	if (st->parts)
		return false;
	if (likely(kvwire_next_get(&batch, &key, &len))) {
		/* The state of a call is zeroed when it begins. */
		s->op.code = KV_GET;
		s->op.key = key;
		s->op.key_len = len;
	} else if (kvwire_next(&batch, &op) == 1 && op.code <= ROOST_KV_FILTER) {
		kv_group_convert_op(&s->op, &op, NULL);
	} else {
		return false;
	}
	return batch.at == batch.end;
}

/*
 * Notes the keys of a small batch. The batch runs in its next step. Until then other calls begin,
 * and the cache misses of all these batches overlap. The bucket of a call without company is
 * prefetched here, and its ACK leaves meanwhile. A batch with many operations overlaps its own
 * misses. Returns whether the call waits.
 */
static bool look_ahead(struct roost_call *c)
{
	struct call_state *s = c->state;
	struct kvwire_reader batch = s->batch;
	struct kernel *k = c->self;
	struct roost_kv_op op;

	if (batch.count > FEW || k->store->groups || !kv_store_try(k->store, KV_STORE_SERVES))
		return false;
	s->ahead = batch.count == 1 && decode_single(k->store, s, batch);
	if (likely(s->ahead))
		kv_ahead_op(k->store->kv, &k->ahead, &s->op, c->at_once);
	else
		while (kvwire_next(&batch, &op) == 1)
			kv_ahead_key(k->store->kv, &k->ahead, op.key, op.key_len);
	kv_store_leave(k->store);
	return true;
}

/*
 * Executes a batch of one operation that look_ahead() has decoded, if it is one of the common cases
 * of kv_run_ahead(). These need neither the time nor a table of partitions. Returns false without a
 * change otherwise: run_step() executes the batch.
 */
static bool run_single(struct roost_call *c)
{
	struct call_state *s = c->state;
	struct kernel *k = c->self;
	struct kv_store *st = k->store;
	struct kv_op *op = &s->op;
	size_t space;
	bool done;

	if (!s->ahead || !kv_store_try(st, KV_STORE_SERVES))
		return false;
	kv_ahead_end(st->kv, &k->ahead);
	op->out = kvwire_reply_space(&s->reply, 1, &space);
	op->out_cap = (uint32_t)space;
	done = likely(!st->parts && !st->fence) && kv_run_ahead(st->kv, &k->ahead, op);
	st->operations += done;
	st->batches += done;
	kv_store_leave(st);
	if (done)
		add_result(&s->reply, op);
	return done;
}

static uint32_t finish(struct call_state *s)
{
	return (uint32_t)kvwire_reply_finish(&s->reply, s->broken ? KVWIRE_BROKEN : 0);
}

static enum roost_next params(struct roost_call *c)
{
	struct call_state *s = c->state;

	ROOST_STEPS(c);
	if (!c->params_len)
		return ROOST_DONE; /* the batch is payload */
	if (kvwire_open(&s->batch, c->params, c->params_len))
		ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
	if (s->batch.flags & KVWIRE_LONG && !take_buffer(c))
		ROOST_FAIL(c, ROOST_KV_BUSY);
	if (!(s->number ? begin_reply(s, c, s->buffer, KVWIRE_LONG_MAX)
			: begin_reply(s, c, c->scratch, KVWIRE_REPLY_MAX)))
		return no_space(c);
	if (look_ahead(c))
		ROOST_WAIT(c, ROOST_AGAIN);
	if (!run_single(c))
		while (run_step(c) == ROOST_AGAIN)
			ROOST_WAIT(c, ROOST_AGAIN);
	if (!s->number)
		ROOST_REPLY(c, c->scratch, finish(s));
	/* The buffer is free for others when the reply has arrived. */
	ROOST_SEND(c, s->buffer, finish(s));
	return end_with(c, ROOST_RPC_OK);
	ROOST_STEPS_END;
}

/* Begins the reply to a batch that is payload: in the call's own memory, unless it may be long. */
static bool begin_payload_reply(struct call_state *s, struct roost_call *c)
{
	if (s->reply_number)
		return begin_reply(s, c, buffer_at(c, s->reply_number), KVWIRE_LONG_MAX);
	return begin_reply(s, c, c->scratch, KVWIRE_REPLY_MAX);
}

/* Takes a piece of the payload, which is the batch. No piece waits for a buffer. */
static enum roost_next payload(struct roost_call *c)
{
	struct call_state *s = c->state;

	ROOST_STEPS(c);
	if (c->total > KVWIRE_BATCH_MAX)
		return end_with(c, ROOST_RPC_BAD_PARAMS);
	if (!s->number && !take_buffer(c))
		ROOST_FAIL(c, ROOST_KV_BUSY);
	mem_copy_in(s->buffer + c->offset, c->data, c->len);
	if (!c->last)
		return ROOST_DONE;
	if (kvwire_open(&s->batch, s->buffer, c->total))
		return end_with(c, ROOST_RPC_BAD_PARAMS);
	if (s->batch.flags & KVWIRE_LONG) {
		s->reply_number = roost_take(c);
		if (!s->reply_number)
			return end_with(c, ROOST_KV_BUSY);
	}
	if (!begin_payload_reply(s, c))
		return no_space(c);
	/* A call that pauses has taken the piece. Otherwise the piece would get an RNR NAK. */
	while (run_step(c) == ROOST_AGAIN)
		ROOST_PAUSE(c);
	if (!s->reply_number) {
		give_back(c);
		ROOST_REPLY(c, c->scratch, finish(s));
	}
	ROOST_PAUSE(c); /* takes the piece, as above */
	ROOST_SEND(c, buffer_at(c, s->reply_number), finish(s));
	return end_with(c, ROOST_RPC_OK);
	ROOST_STEPS_END;
}

/* ---- start and stop ---- */

static void stop(void *self)
{
	struct kernel *k = self;

	if (k->owns_store)
		kv_store_close(k->store);
	mem_free_pages(k->long_buffers, LONGS * LONG_SIZE);
	free(k);
}

static int start(void **self)
{
	const struct roost_kv_config *want = *self;
	struct kernel *k = calloc(1, sizeof(*k));
	int rc = k ? 0 : -ENOMEM;

	if (rc)
		return rc;
	k->long_buffers = mem_alloc_pages(LONGS * LONG_SIZE);
	k->owns_store = !want || !want->store;
	if (!k->long_buffers)
		rc = -ENOMEM;
	else if (k->owns_store)
		rc = kv_store_open(want, NULL, &k->store);
	else
		k->store = want->store;
	if (!rc) {
		*self = k;
		return 0;
	}
	if (k->long_buffers)
		mem_free_pages(k->long_buffers, LONGS * LONG_SIZE);
	free(k);
	return rc;
}

const struct roost_kernel kernel_kv = {
	.abi = ROOST_KERNEL_ABI,
	.version = 1,
	.name = "kv",
	.op = ROOST_KV_OP,
	.state_size = sizeof(struct call_state),
	.scratch_size = KVWIRE_REPLY_MAX,
	.resources = LONGS,
	.resources_each = LONGS_EACH,
	.resource_bytes = LONG_SIZE,
	.start = start,
	.stop = stop,
	.params = params,
	.payload = payload,
	.cut = cut,
};
