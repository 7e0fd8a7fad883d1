/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the memory of an access that names its region by a nic_rpc_key. */
#ifndef ROOST_NIC_ACCESS_H
#define ROOST_NIC_ACCESS_H

#include "nic/core.h"
#include "nic/nic_rpc.h"

/* Looks the region up in the table of regions. */
void *access_resolve_slow(const struct nic_qp *qp, nic_rpc_key key, uint64_t va, uint32_t n,
			  uint32_t access);

/*
 * Returns the address if the bytes are in the region of the PU's last access. Otherwise it returns
 * NULL, and access_resolve_slow() decides. [owner]
 */
static inline void *access_resolve_last(const struct nic_qp *qp, nic_rpc_key key, uint64_t va,
					uint32_t n, uint32_t access)
{
	if (unlikely((qp->access & access) != access))
		return NULL;
	return mr_resolve_last(&qp->pu->rpc_last, key, qp->pd, va, n, access);
}

/*
 * Returns the address of the n > 0 bytes at va, for an access of a call of this queue pair, or NULL
 * if the access is refused. The region of the PU's last access is found without a look-up in the
 * table. [owner]
 */
static inline void *access_resolve(const struct nic_qp *qp, nic_rpc_key key, uint64_t va,
				   uint32_t n, uint32_t access)
{
	void *p = access_resolve_last(qp, key, va, n, access);

	return likely(p) ? p : access_resolve_slow(qp, key, va, n, access);
}

#endif
