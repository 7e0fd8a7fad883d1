/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of partitions in etcd: etcd:http://HOST:PORT/KEY. */
#ifndef ROOST_ETCD_TABLE_H
#define ROOST_ETCD_TABLE_H

#include "kvwire/remote.h"

/* Returns the functions that the module exports. */
const struct kv_table_remote *roost_etcd_tables(void);

#endif
