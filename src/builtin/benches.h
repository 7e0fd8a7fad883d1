/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for kernels whose calls need more than a call's state: a few benches of one size, each a
 * resource of the kernel's (roost_take()). A call takes one and gives it back; of what nobody ever
 * used no page is there.
 */
#ifndef ROOST_BUILTIN_BENCHES_H
#define ROOST_BUILTIN_BENCHES_H

#include <stddef.h>

#include "roost/kernel.h"

/*
 * `n` of `size` bytes, a multiple of 64, zeroed once, and aligned as their size is, up to a page:
 * *self, for a kernel's start(). 0 or -ENOMEM. Control path.
 */
int benches_start(unsigned n, size_t size, void **self);
/* A kernel's stop(): nobody has any. */
void benches_stop(void *self);

/*
 * One that nobody has, with what its last user left in it; NULL: there is none, or the connection
 * has its share.
 */
void *benches_take(struct roost_call *c);
void benches_give(struct roost_call *c, const void *bench);

#endif
