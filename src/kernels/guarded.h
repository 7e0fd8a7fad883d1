/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs functions of kernels under a guard (base/guard.h). The runtime calls all code of kernels
 * through these two functions. No other file uses sigsetjmp().
 */
#ifndef ROOST_KERNELS_GUARDED_H
#define ROOST_KERNELS_GUARDED_H

#include "base/guard.h"

/*
 * Runs fn(arg), which runs steps of kernels between guard_step() and guard_stepped(). Returns 0, or
 * an enum guard_end if a signal left a step; fn has not returned then.
 */
int guarded(struct guard *g, void (*fn)(void *arg), void *arg);
/* Runs fn(arg) as guarded() does, for an fn that is one step as a whole. */
int guarded_step(struct guard *g, void (*fn)(void *arg), void *arg);

#endif
