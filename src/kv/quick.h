/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The common case: a GET, PUT or update of a pair that is in the first bucket of its chain, or in
 * the record to which that bucket points, that does not expire, and that keeps its place.
 */
#ifndef ROOST_KV_QUICK_H
#define ROOST_KV_QUICK_H

#include "kv/store.h"

/*
 * Executes an operation that was checked and hashed. Returns false without a change if the
 * operation is no common case.
 */
bool kv_quick(struct kv *kv, struct kv_op *op);

#endif
