/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared objects that contain a kernel (ROOST_KERNEL_EXPORT in roost/kernel.h) or functions for
 * the key-value store (ROOST_KV_EXPORT in roost/kv_function.h). A file is copied
 * when it is loaded. Later changes of the file do not affect the loaded object, and the same path
 * can be loaded again.
 *
 * No code of a file runs before the file is checked: it must be a complete shared object for this
 * machine that contains the symbol.
 */
#ifndef ROOST_KERNELS_OBJECT_H
#define ROOST_KERNELS_OBJECT_H

#include <stdbool.h>
#include <stddef.h>

#include "roost/kernel.h"
#include "roost/kv_function.h"

#define OBJECT_MAX (64u << 20) /* bytes of a file */

/* The data symbol that an object must export; for messages, its contents and its macro. */
struct object_symbol {
	const char *name;
	size_t size;
	const char *what, *macro;
};
extern const struct object_symbol object_kernel, object_functions;

struct object {
	const struct roost_kernel *kernel;	    /* set by object_open() */
	const struct roost_kv_functions *functions; /* set by object_open_functions() */
	const void *symbol;
	void *handle;
	int fd; /* descriptor of the copy, open as long as the object is loaded */
};

/*
 * Loads the shared object at `path` and runs its constructors. Allocates. Any thread that holds no
 * lock. Returns 0, or a negative errno and a reason in `why`, one line without a newline:
 *	-ENOEXEC	not a shared object for this machine, or not a complete one
 *	-EINVAL		it does not contain the symbol, or an invalid descriptor
 *	-EPROTO		it has another ABI
 *	-EFBIG		the file exceeds OBJECT_MAX
 *	other		the file cannot be read
 */
int object_open(const char *path, struct object *out, char *why, size_t why_len);
/* Loads a shared object as object_open() does, for functions of the key-value store. */
int object_open_functions(const char *path, struct object *out, char *why, size_t why_len);
/* Unloads an object and runs its destructors. None of its code or data may be in use. */
void object_close(struct object *o);

/*
 * Returns whether the `n` bytes are a complete shared object for this machine that has the symbol
 * `want`; if not, *why is the reason, or NULL if only the symbol is missing. The bytes are
 * untrusted input.
 */
bool object_sound(const unsigned char *file, size_t n, const struct object_symbol *want,
		  const char **why);

#endif
