/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For librdmacm.so.1, and for our programs that open the engine before they use the verbs. The
 * `roost` command does: drive_get() reports an error as a line of text, the verbs report only
 * errno. The first call of drive_get() sets the functions that the engine calls.
 */
#ifndef ROOST_VERBS_HOST_H
#define ROOST_VERBS_HOST_H

#include "base/export.h"
#include "nic/nic.h"

ROOST_EXPORT extern const struct nic_host_ops verbs_host_ops; /* event.c */

#endif
