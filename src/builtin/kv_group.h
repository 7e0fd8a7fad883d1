/* SPDX-License-Identifier: BSD-2-Clause */
/* Groups of the kernel `kv`: decoding, and operations that kv_run() does not execute. */
#ifndef ROOST_BUILTIN_KV_GROUP_H
#define ROOST_BUILTIN_KV_GROUP_H

#include "builtin/kv_store.h"
#include "kv/kv.h"
#include "kvwire/kvwire.h"
#include "roost/kv.h"

/* Sets all fields for a GET, whose result goes into the arena, or to op->out. */
static inline void kv_group_set_get(struct kv_op *op, const void *key, uint32_t key_len,
				    struct kv_arena *arena)
{
	*op = (struct kv_op){.code = KV_GET, .key = key, .key_len = key_len, .arena = arena};
}

/* Sets the fields that describe the operation. The store sets the others. */
void kv_group_convert_op(struct kv_op *to, const struct roost_kv_op *op, struct kv_arena *arena);

/*
 * Decodes the next operations: a group, and the operation behind it if that operation runs alone or
 * another node owns its key.
 */
void kv_group_read(const struct kv_store *st, struct kvwire_reader *batch, struct kv_group *g);

/* Adds the result of an operation on a key of another node: the version of this node's table. */
void kv_group_add_not_owned(struct kv_store *st, struct kvwire_reply *w);

/*
 * Runs the operation behind a group, which kv_run() does not execute. Returns false if the
 * operation continues later.
 */
bool kv_group_run_alone(struct kv_store *st, struct kvwire_reply *w, struct kv_group *g);

#endif
