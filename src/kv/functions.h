/* SPDX-License-Identifier: BSD-2-Clause */
/* Registered functions of a store: code of other authors, which runs guarded (base/guard.h). */
#ifndef ROOST_KV_FUNCTIONS_H
#define ROOST_KV_FUNCTIONS_H

#include "base/guard.h"
#include "kv/kv.h"
#include "roost/kv_function.h"

#define KV_FUNCTIONS_MAX 64u
#define KV_FUNCTION_NAME 32u /* bytes of a name with its final 0 */

/*
 * Registers a function, which must remain loaded until kv_close(). The first one allocates 2 MiB
 * and installs the signal handlers of guards. Returns its number for the field `fn` of operations,
 * or an error:
 *	-EINVAL	no name or a long one, an unknown type, or not one of the three functions
 *	-EEXIST	the name is in use
 *	-ENOSPC	KV_FUNCTIONS_MAX are registered
 *	-ENOMEM	no memory, or the error of guard_init()
 */
int kv_register(struct kv *kv, const struct roost_kv_function *f);

/* Returns the number of the function with this name, or -ENOENT. */
int kv_function(const struct kv *kv, const char *name);

/*
 * Returns the guard for functions, for a watchdog; NULL if there is no function. If the thread of
 * the store has an open guard, functions run in that guard. Without a watchdog a function that does
 * not return stops the store.
 */
struct guard *kv_guard(struct kv *kv);

#endif
