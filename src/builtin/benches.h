/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for kernels whose calls need more than a call's state: a few benches of one size. Each
 * bench is a resource of the kernel (roost_take()). A call takes a bench and gives it back. A bench
 * that was never used has no physical pages.
 */
#ifndef ROOST_BUILTIN_BENCHES_H
#define ROOST_BUILTIN_BENCHES_H

#include <stddef.h>

#include "roost/kernel.h"

/*
 * Creates `n` benches of `size` bytes, a multiple of 64, for a kernel's start(). They are zeroed
 * once. Their alignment is that of their size, at most a page. Stores them in *self. Returns 0 or
 * -ENOMEM. Control path.
 */
int benches_start(unsigned n, size_t size, void **self);
/* Frees the benches, for a kernel's stop(). No call has a bench. */
void benches_stop(void *self);

/*
 * Takes a free bench, with the contents that its last user left. Returns NULL if none is free or
 * the connection has its share.
 */
void *benches_take(struct roost_call *c);
void benches_give(struct roost_call *c, const void *bench);

#endif
