/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared objects that contain a kernel (ROOST_KERNEL_EXPORT in roost/kernel.h). A file is copied
 * when it is loaded. Later changes of the file do not affect the loaded object, and the same path
 * can be loaded again.
 *
 * No code of a file runs before the file is checked: it must be a complete shared object for this
 * machine that contains a kernel.
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
 * Loads the shared object at `path` and runs its constructors. Allocates. Any thread that holds no
 * lock. Returns 0, or a negative errno and a reason in `why`, one line without a newline:
 *	-ENOEXEC	not a shared object for this machine, or not a complete one
 *	-EINVAL		it contains no kernel, or an invalid descriptor
 *	-EPROTO		the kernel has another ABI
 *	-EFBIG		the file exceeds OBJECT_MAX
 *	other		the file cannot be read
 */
int object_open(const char *path, struct object *out, char *why, size_t why_len);
/* Unloads it and runs its destructors. None of its code or data may be in use. */
void object_close(struct object *o);

/*
 * Returns whether the `n` bytes are a complete shared object for this machine that has the symbol
 * of a kernel; if not, *why is the reason. The bytes are untrusted input.
 */
bool object_sound(const unsigned char *file, size_t n, const char **why);

#endif
