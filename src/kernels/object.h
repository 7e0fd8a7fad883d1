/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared objects that hold a kernel (ROOST_KERNEL_EXPORT in roost/kernel.h). A file is copied when
 * it is loaded: each loading is one of its own, whatever becomes of the file, and the same path may
 * be loaded again when it has changed.
 *
 * No code of a file runs before it is known to be a whole shared object of this machine with a
 * kernel in it.
 */
#ifndef ROOST_KERNELS_OBJECT_H
#define ROOST_KERNELS_OBJECT_H

#include <stdbool.h>
#include <stddef.h>

#include "roost/kernel.h"

#define OBJECT_MAX (64u << 20) /* bytes of a file */

struct object {
	const struct roost_kernel *kernel;
	void *handle;
	int fd; /* the copy: open as long as it is loaded */
};

/*
 * 0; or -errno, with what is wrong in `why`, one line without its end: -ENOEXEC: no shared object
 * of this machine, or not all of one; -EINVAL: no kernel in it, or one that makes no sense;
 * -EPROTO: a kernel of another ABI; -EFBIG; or why it can't be read. Allocates; runs the object's
 * constructors. Any thread that holds no lock.
 */
int object_open(const char *path, struct object *out, char *why, size_t why_len);
/* Nothing of it is used any more. Runs its destructors. */
void object_close(struct object *o);

/*
 * True: `n` bytes are the file of a whole shared object of this machine that has the symbol of a
 * kernel; else why not. Trusts none of them.
 */
bool object_sound(const unsigned char *file, size_t n, const char **why);

#endif
