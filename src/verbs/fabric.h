/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel fabric behind the verbs. */
#ifndef ROOST_VERBS_FABRIC_H
#define ROOST_VERBS_FABRIC_H

#include "kernels/fabric.h"
#include "kernels/place.h"
#include "roost/verbs.h"
#include "verbs/objects.h"

/* The NIC's fabric, made when it is first wanted. 0 or -errno. Control lock held, no PU owned. */
int verbs_fabric(struct verbs_ctx *ctx, struct fabric **out);

/* What the host says of a kernel without a caller, and what it gets from that. */
struct place_attr verbs_place_attr(const struct roost_place_attr *attr);
struct roost_result verbs_place_result(const struct place *place, const void *reply, uint32_t room);

#endif
