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

/* Built-in kernels, by name; NULL: no such one. Any thread. */
const struct roost_kernel *kernels_builtin(const char *name);
/* The same by number, for lists. */
const struct roost_kernel *kernels_builtin_at(unsigned i);

#endif
