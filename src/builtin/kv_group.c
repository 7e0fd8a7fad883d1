/* SPDX-License-Identifier: BSD-2-Clause */
#include "builtin/kv_group.h"

#include <endian.h>
#include <errno.h>

#include "base/mem.h"
#include "kvwire/number.h"

static const uint8_t codes[ROOST_KV_CODES] = {
	[ROOST_KV_GET] = KV_GET,
	[ROOST_KV_PUT] = KV_PUT,
	[ROOST_KV_PUT_ABSENT] = KV_PUT_ABSENT,
	[ROOST_KV_PUT_PRESENT] = KV_PUT_PRESENT,
	[ROOST_KV_PUT_COMPARE] = KV_PUT_COMPARE,
	[ROOST_KV_DELETE] = KV_DELETE,
	[ROOST_KV_TOUCH] = KV_TOUCH,
	[ROOST_KV_UPDATE] = KV_UPDATE,
	[ROOST_KV_UPDATE_EACH] = KV_UPDATE_EACH,
	[ROOST_KV_UPDATE_VECTOR] = KV_UPDATE_VECTOR,
	[ROOST_KV_REDUCE] = KV_REDUCE,
	[ROOST_KV_FILTER] = KV_FILTER,
	[ROOST_KV_MOVE_PUT] = KV_PUT,
	[ROOST_KV_MOVE_DELETE] = KV_DELETE,
};
_Static_assert((int)ROOST_KV_DOUBLE == (int)KV_DOUBLE && (int)ROOST_KV_TYPES == (int)KV_TYPES &&
		       (int)ROOST_KV_U32 == (int)KV_U32 && (int)ROOST_KV_I8 == (int)KV_I8,
	       "types have the numbers of the store");
_Static_assert((int)ROOST_KV_SWAP == (int)KV_SWAP && (int)ROOST_KV_ASSIGN == (int)KV_ASSIGN &&
		       (int)ROOST_KV_GE == (int)KV_GE && (int)ROOST_KV_FUNCTIONS == (int)KV_FNS &&
		       (int)ROOST_KV_MUL_SAT == (int)KV_MUL_SAT,
	       "functions have the numbers of the store");

/* ---- decoding ---- */

static uint32_t expiry(uint32_t ttl)
{
	uint32_t now;

	if (!ttl)
		return 0;
	now = kv_store_now();
	return ttl > UINT32_MAX - now ? UINT32_MAX : now + ttl;
}

void kv_group_convert_op(struct kv_op *to, const struct roost_kv_op *op, struct kv_arena *arena)
{
	to->code = codes[op->code];
	to->type = op->type;
	to->fetch = op->fetch;
	to->fn = op->function;
	to->key_len = op->key_len;
	to->value_len = op->value_len;
	to->expect_len = op->expect_len;
	to->param_len = op->param_len;
	to->expires = expiry(op->ttl);
	to->key = op->key;
	to->value = op->value;
	to->expect = op->expect;
	to->param = op->param;
	to->arena = arena;
}

static bool is_move(const struct roost_kv_op *op)
{
	return op->code == ROOST_KV_MOVE_PUT || op->code == ROOST_KV_MOVE_DELETE;
}

/*
 * Returns whether the node may execute an operation of a move. A move that has lost its lock has
 * another version of the table than the node.
 */
static bool may_move(const struct kv_parts *p, const struct roost_kv_op *op)
{
	unsigned at = kv_table_partition(p->seed, p->partitions, op->key, op->key_len);

	return op->cursor == p->version &&
	       (op->code == ROOST_KV_MOVE_PUT ? p->moving_in[at] : kv_parts_stray(p, at));
}

void kv_group_read(const struct kv_store *st, struct kvwire_reader *batch, struct kv_group *g)
{
	g->n = 0;
	g->has_alone = g->has_foreign = g->moves = false;
	g->scan.data = NULL;
	g->scan.state.waiting = 0;
	g->read = 1;
	while (g->n < KV_STORE_GROUP) {
		const void *key;
		uint32_t len;
		bool moves;

		if (likely(!st->parts) && kvwire_next_get(batch, &key, &len)) {
			kv_group_set_get(&g->op[g->n++], key, len, &g->arena);
			continue;
		}
		g->read = kvwire_next(batch, &g->alone);
		if (g->read != 1)
			return;
		moves = is_move(&g->alone);
		g->has_alone = moves ? !st->parts : g->alone.code > ROOST_KV_FILTER;
		if (g->has_alone)
			return;
		g->has_foreign = moves ? !may_move(st->parts, &g->alone)
				       : !kv_parts_count(st->parts, g->alone.key, g->alone.key_len);
		if (g->has_foreign)
			return;
		g->moves |= moves;
		kv_group_convert_op(&g->op[g->n++], &g->alone, &g->arena);
	}
}

/* ---- operations that run alone ---- */

void kv_group_add_not_owned(struct kv_store *st, struct kvwire_reply *w)
{
	uint64_t version = htole64(st->parts->version);

	kvwire_reply_add(w, -EREMCHG, &version, sizeof(version));
}

static void run_stat(struct kv_store *st, struct kvwire_reply *w)
{
	struct kv_stat s;
	struct roost_kv_stat out;

	kv_get_stat(st->kv, &s);
	out = (struct roost_kv_stat){.pairs = htole64(s.pairs),
				     .inline_pairs = htole64(s.inline_pairs),
				     .buckets = htole64(s.buckets),
				     .chained = htole64(s.chained),
				     .slots = htole64(s.slots),
				     .used = htole64(s.used),
				     .limit = htole64(s.limit),
				     .evicted = htole64(s.evicted),
				     .expired = htole64(s.expired),
				     .operations = htole64(st->operations),
				     .batches = htole64(st->batches),
				     .accesses = htole64(s.reads + s.writes),
				     .far_reads = htole64(s.far_reads),
				     .far_writes = htole64(s.far_writes),
				     .parked = htole64(s.parked),
				     .forwarded = htole64(s.forwarded),
				     .merged = htole64(s.merged),
				     .near_hits = htole64(s.near_hits),
				     .far_errors = htole64(s.far_errors),
				     .now = htole64(kv_store_now())};
	if (st->parts) {
		unsigned hottest, owned = kv_parts_owned(st->parts, &hottest);

		out.table_version = htole64(kv_store_version(st));
		out.partitions = htole64(owned);
		out.hottest = htole64(hottest);
		out.hottest_operations = htole64(st->parts->operations[hottest]);
	}
	kvwire_reply_add(w, 0, &out, sizeof(out));
}

static void run_partitions(struct kv_store *st, struct kvwire_reply *w)
{
	const struct kv_parts *p = st->parts;
	uint32_t len = p ? 8 + 8 * p->partitions : 8;
	uint8_t *data;
	size_t space;

	data = kvwire_reply_space(w, 1, &space);
	if (space < len) {
		kvwire_reply_add_cut(w, 0, len);
		return;
	}
	put_u64(data, p ? p->version : 0);
	for (unsigned i = 0; p && i < p->partitions; i++)
		put_u64(data + 8 + 8 * i,
			kv_parts_serve(p, i) ? p->operations[i] : ROOST_KV_NOT_OWNED);
	kvwire_reply_add(w, 0, data, len);
}

static void run_function(struct kv_store *st, struct kvwire_reply *w, const struct roost_kv_op *op)
{
	struct roost_kv_function_info info;
	int rc = kv_store_find(st, op->key, op->key_len, &info);

	if (!rc)
		info.number = htole16(info.number);
	kvwire_reply_add(w, rc, rc ? NULL : &info, rc ? 0 : sizeof(info));
}

bool kv_group_run_alone(struct kv_store *st, struct kvwire_reply *w, struct kv_group *g)
{
	if (g->alone.code == ROOST_KV_SCAN)
		return kv_store_scan(st, w, g);
	if (is_move(&g->alone))
		kvwire_reply_add(w, -EOPNOTSUPP, NULL, 0); /* no partitions */
	else if (g->alone.code == ROOST_KV_STAT)
		run_stat(st, w);
	else if (g->alone.code == ROOST_KV_PARTITIONS)
		run_partitions(st, w);
	else
		run_function(st, w, &g->alone);
	return true;
}
