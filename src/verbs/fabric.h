/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel fabric behind the verbs. */
#ifndef ROOST_VERBS_FABRIC_H
#define ROOST_VERBS_FABRIC_H

#include "kernels/fabric.h"
#include "verbs/objects.h"

/* The NIC's fabric, made when it is first wanted. 0 or -errno. Control lock held, no PU owned. */
int verbs_fabric(struct verbs_ctx *ctx, struct fabric **out);

#endif
