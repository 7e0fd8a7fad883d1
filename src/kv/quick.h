/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The common case: a GET, PUT or update of a pair that is in the first bucket of its chain, or in
 * the record to which that points, does not expire, and keeps its place.
 */
#ifndef ROOST_KV_QUICK_H
#define ROOST_KV_QUICK_H

#include "kv/store.h"

/*
 * Executes an operation that was checked and hashed. Returns false, with nothing changed, if it is
 * not a common case.
 */
bool kv_quick(struct kv *kv, struct kv_op *op);

#endif
