/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel runtime behind the verbs. */
#ifndef ROOST_VERBS_KERNEL_RUNTIME_H
#define ROOST_VERBS_KERNEL_RUNTIME_H

#include "kernels/runtime.h"
#include "kernels/local_call.h"
#include "roost/verbs.h"
#include "verbs/objects.h"

/*
 * The NIC's kernel runtime, made when it is first wanted. 0 or -errno. Control lock held, no PU
 * owned.
 */
int verbs_kernel_runtime(struct verbs_ctx *ctx, struct kernel_runtime **out);

/* What the host says of a kernel without a caller, and what it gets from that. */
struct local_call_attr verbs_local_call_attr(const struct roost_invocation_attr *attr);
struct roost_result verbs_local_call_result(const struct local_call *call, const void *reply,
					    uint32_t room);

#endif
