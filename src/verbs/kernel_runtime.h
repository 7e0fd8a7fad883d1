/* SPDX-License-Identifier: BSD-2-Clause */
/* The NIC's kernel runtime, for the files of src/verbs. */
#ifndef ROOST_VERBS_KERNEL_RUNTIME_H
#define ROOST_VERBS_KERNEL_RUNTIME_H

#include "kernels/runtime.h"
#include "kernels/local_call.h"
#include "roost/verbs.h"
#include "verbs/objects.h"

/*
 * Stores the NIC's kernel runtime in *out. The first call creates it. Returns 0 or -errno. Control
 * lock held, no PU owned.
 */
int verbs_kernel_runtime(struct verbs_ctx *ctx, struct kernel_runtime **out);

/* Convert the program's description of a local call, and the result of that call. */
struct local_call_attr verbs_local_call_attr(const struct roost_invocation_attr *attr);
struct roost_result verbs_local_call_result(const struct local_call *call, const void *reply,
					    uint32_t space);

#endif
