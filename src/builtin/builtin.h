/* SPDX-License-Identifier: BSD-2-Clause */
/* The built-in kernels, one file each. They use only the public interface, roost/kernel.h. */
#ifndef ROOST_BUILTIN_BUILTIN_H
#define ROOST_BUILTIN_BUILTIN_H

#include <stdbool.h>

#include "roost/kernel.h"

extern const struct roost_kernel kernel_aggregate;
extern const struct roost_kernel kernel_consistency;
extern const struct roost_kernel kernel_get;
extern const struct roost_kernel kernel_hll;
extern const struct roost_kernel kernel_kv;
extern const struct roost_kernel kernel_prism;
extern const struct roost_kernel kernel_shuffle;
extern const struct roost_kernel kernel_shuffle_out;
extern const struct roost_kernel kernel_traversal;

/* Returns the built-in kernel of this name, or NULL. Any thread. */
const struct roost_kernel *kernels_builtin(const char *name);
/* Returns a built-in kernel by its number, for lists. */
const struct roost_kernel *kernels_builtin_at(unsigned i);

#endif
