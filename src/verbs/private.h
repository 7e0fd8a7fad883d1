/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions of libibverbs.so.1 that the other libraries of Roost need. This library contains the
 * only engine of the process. The functions that src/drive/drive.h and src/verbs/evq.h mark with
 * ROOST_EXPORT belong to them too. They have the version node ROOST_PRIVATE. The two libraries must
 * come from the same build.
 */
#ifndef ROOST_VERBS_PRIVATE_H
#define ROOST_VERBS_PRIVATE_H

#include <infiniband/verbs.h>

#include "base/export.h"
#include "drive/drive.h"

/*
 * Returns the engine of a context of this library. It is valid as long as the context is open. Any
 * thread.
 */
ROOST_EXPORT struct drive *verbs_drive(struct ibv_context *context);

/*
 * Returns the GUID of this process's NIC in network byte order. No NIC of another process has the
 * same. Connection managers use it to distinguish communication ids. Any thread.
 */
ROOST_EXPORT uint64_t verbs_nic_guid(struct ibv_context *context);
/* Returns the slot of the processing unit that has QP 1, with which communication ids begin. */
ROOST_EXPORT unsigned verbs_nic_slot(struct ibv_context *context);

/*
 * Sets a function that is called when the first packet arrives at a QP in RTR or RTS. The packet
 * shows that the peer is connected, even if the message that says so is late or lost. fn is called
 * inside of a turn: it must not block or call the verbs. NULL ends the calls.
 */
ROOST_EXPORT void verbs_on_first_packet(void (*fn)(uint32_t qpn));

#endif
