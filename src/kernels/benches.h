/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for kernels whose calls need more than a call's state: a few benches of one size. A call takes one and gives it back; of what nobody ever
 * used no page is there.
 */
#ifndef ROOST_KERNELS_BENCHES_H
#define ROOST_KERNELS_BENCHES_H

#include <stddef.h>

struct benches;

#define BENCHES_MAX 31u /* a bit for each */

/*
 * `n` of `size` bytes, a multiple of 64, zeroed once, and aligned as their size is, up to a page: *self, for a kernel's start(). 0 or -ENOMEM. Control
 * path.
 */
int benches_start(unsigned n, size_t size, void **self);
/* A kernel's stop(): nobody has any. */
void benches_stop(void *self);

/* One that nobody has, with what its last user left in it; NULL: there is none. Any thread. */
void *benches_take(struct benches *b);
void benches_give(struct benches *b, const void *bench);

#endif
