/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions that our other libraries need from libibverbs.so.1, where the process's one engine
 * lives. The functions that src/drive/drive.h and src/verbs/evq.h mark with ROOST_EXPORT belong to
 * them too. They have the version node ROOST_PRIVATE. The two libraries must come from the same
 * build.
 */
#ifndef ROOST_VERBS_PRIVATE_H
#define ROOST_VERBS_PRIVATE_H

#include <infiniband/verbs.h>

#include "base/export.h"
#include "drive/drive.h"

/*
 * Returns the engine of one of our contexts. It is valid as long as the context is open. Any
 * thread.
 */
ROOST_EXPORT struct drive *verbs_drive(struct ibv_context *context);

/*
 * Returns the GUID of this process's NIC, which other processes' NICs do not share, in network byte
 * order. Connection managers tell apart communication ids by it. Any thread.
 */
ROOST_EXPORT uint64_t verbs_nic_guid(struct ibv_context *context);
/* Returns the slot of the processing unit that has QP 1. Communication ids begin with it. */
ROOST_EXPORT unsigned verbs_nic_slot(struct ibv_context *context);

/*
 * Sets a function that is called when the first packet arrives at a QP in RTR or RTS. The packet
 * shows that the peer is connected, even if the message that says so is late or lost. fn is called
 * inside of a turn: it must not block or call the verbs. NULL ends the calls.
 */
ROOST_EXPORT void verbs_on_first_packet(void (*fn)(uint32_t qpn));

#endif
