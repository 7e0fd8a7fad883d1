/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What other libraries of ours need of libibverbs.so.1, where the process's one engine lives: this,
 * and what src/drive/drive.h and src/verbs/evq.h mark with ROOST_EXPORT. It goes by the version
 * node ROOST_PRIVATE; the two libraries are of one build.
 */
#ifndef ROOST_VERBS_PRIVATE_H
#define ROOST_VERBS_PRIVATE_H

#include <infiniband/verbs.h>

#include "base/export.h"
#include "drive/drive.h"

/* The engine of a context of ours; valid as long as the context is open. Any thread. */
ROOST_EXPORT struct drive *verbs_drive(struct ibv_context *context);

/*
 * Of this process's NIC alone, network byte order: connection managers tell ids by it. Any thread.
 */
ROOST_EXPORT uint64_t verbs_nic_guid(struct ibv_context *context);
/* The slot of the processing unit that has QP 1: communication ids begin with it. */
ROOST_EXPORT unsigned verbs_nic_slot(struct ibv_context *context);

/*
 * Calls fn when the first packet has come to a QP, in RTR or RTS: its peer is connected, whatever
 * has become of the message that says so. From inside a turn: it must not block, nor call the
 * verbs. NULL: no more.
 */
ROOST_EXPORT void verbs_on_first_packet(void (*fn)(uint32_t qpn));

#endif
