/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions of kernels, run under a guard (base/guard.h). All that the runtime runs of a kernel's
 * code goes through here; no other file jumps.
 */
#ifndef ROOST_KERNELS_GUARDED_H
#define ROOST_KERNELS_GUARDED_H

#include "base/guard.h"

/*
 * Runs fn(arg), which runs steps of kernels between guard_step() and guard_stepped(). Returns 0, or
 * how the step ended that was left (enum guard_end): then fn has not returned.
 */
int guarded(struct guard *g, void (*fn)(void *arg), void *arg);
/* The same of an fn that is one step as a whole. */
int guarded_step(struct guard *g, void (*fn)(void *arg), void *arg);

#endif
