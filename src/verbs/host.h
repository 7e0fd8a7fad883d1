/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For librdmacm.so.1, and programs of ours that open the engine themselves before they use the
 * verbs (the `roost` command: drive_get has a line that says what is wrong, where the verbs have
 * only errno). The first drive_get settles whom the engine calls.
 */
#ifndef ROOST_VERBS_HOST_H
#define ROOST_VERBS_HOST_H

#include "base/export.h"
#include "nic/nic.h"

ROOST_EXPORT extern const struct nic_host_ops verbs_host_ops; /* event.c */

#endif
