/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that a call names by a key: see struct nic_rpc_send and nic_rpc_key in nic/nic.h. */
#ifndef ROOST_NIC_ACCESS_H
#define ROOST_NIC_ACCESS_H

#include "nic/core.h"

/* The whole look-up. */
void *access_resolve_anew(const struct nic_qp *qp, nic_rpc_key key, uint64_t va, uint32_t n,
			  uint32_t access);

/*
 * The n > 0 bytes at va, for an access of a call of this queue pair; NULL: refused. The region that
 * the PU's calls named last is found without a look at the table. [owner]
 */
static inline void *access_resolve(const struct nic_qp *qp, nic_rpc_key key, uint64_t va,
				   uint32_t n, uint32_t access)
{
	void *p = NULL;

	if (likely(key <= UINT32_MAX && (qp->access & access) == access))
		p = mr_resolve_last(&qp->pu->rpc_last, (uint32_t)key, qp->pd, va, n, access);
	return likely(p) ? p : access_resolve_anew(qp, key, va, n, access);
}

#endif
