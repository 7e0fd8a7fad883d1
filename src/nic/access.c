/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory accesses of the layer that serves calls. Accesses for a call have the rights of the queue
 * pair's peer, or of a granted region. Accesses for the host have the rights of the host.
 */
#include "nic/access.h"
#include "nic/dma.h"

/*
 * The most cache lines that are prefetched for one access. The CPU's prefetcher handles longer
 * accesses.
 */
#define PREFETCH_LINES 16

/* ---- for a call ---- */

void *access_resolve_slow(const struct nic_qp *qp, nic_rpc_key key, uint64_t va, uint32_t n,
			  uint32_t access)
{
	struct mr_table *mrs = &qp->nic->mrs;
	void *p;

	if (key >> 32)
		return mr_resolve(mrs, (uint32_t)key, (uint32_t)(key >> 32) - 1, va, n,
				  access == NIC_ACCESS_REMOTE_READ ? 0 : NIC_ACCESS_LOCAL_WRITE);
	if ((qp->access & access) != access)
		return NULL;
	p = mr_resolve_keep(mrs, (uint32_t)key, qp->pd, va, n, access, &qp->pu->rpc_last);
	return p ? p : mr_resolve(mrs, (uint32_t)key, MR_QP_DOMAIN(qp->qpn), va, n, access);
}

static int copied(struct nic_qp *qp, int rc)
{
	if (unlikely(rc))
		qp->pu->ctr.memory_faults++;
	return rc;
}

/*
 * Reads after a look-up in the table. It is a function of its own, so that the usual READ below
 * does not have to keep its arguments.
 */
static __attribute__((noinline)) int read_slow(struct nic_qp *qp, nic_rpc_key key, uint64_t va,
					       void *dst, uint32_t n)
{
	const void *src = access_resolve_slow(qp, key, va, n, NIC_ACCESS_REMOTE_READ);

	return src ? copied(qp, dma_load_up(dst, src, n)) : -EACCES;
}

int nic_rpc_read(struct nic_qp *qp, nic_rpc_key key, uint64_t va, void *dst, uint32_t n)
{
	const void *src;

	if (!n)
		return 0;
	src = access_resolve_last(qp, key, va, n, NIC_ACCESS_REMOTE_READ);
	return likely(src) ? copied(qp, dma_load_up(dst, src, n)) : read_slow(qp, key, va, dst, n);
}

int nic_rpc_write(struct nic_qp *qp, nic_rpc_key key, uint64_t va, const void *src, uint32_t n)
{
	void *dst;

	if (!n)
		return 0;
	dst = access_resolve(qp, key, va, n, NIC_ACCESS_REMOTE_WRITE);
	return dst ? copied(qp, dma_copy(dst, src, n)) : -EACCES;
}

int nic_rpc_put(struct nic_qp *qp, nic_rpc_key key, uint64_t va, const void *src, uint32_t n)
{
	void *dst = n ? access_resolve(qp, key, va, n, NIC_ACCESS_REMOTE_WRITE) : NULL;

	if (unlikely(!dst))
		return n ? -EACCES : 0;
	return copied(qp, dma_stream(dst, src, n));
}

void nic_rpc_put_done(void)
{
	dma_fence();
}

int nic_rpc_copy(struct nic_qp *qp, nic_rpc_key dst_key, uint64_t dst_va, nic_rpc_key src_key,
		 uint64_t src_va, uint32_t n)
{
	void *dst, *src;

	if (!n)
		return 0;
	dst = access_resolve(qp, dst_key, dst_va, n, NIC_ACCESS_REMOTE_WRITE);
	src = access_resolve(qp, src_key, src_va, n, NIC_ACCESS_REMOTE_READ);
	return dst && src ? copied(qp, dma_copy(dst, src, n)) : -EACCES;
}

int nic_rpc_cmp_swap(struct nic_qp *qp, nic_rpc_key key, uint64_t va, uint64_t *value,
		     uint64_t swap)
{
	void *p = access_resolve(qp, key, va, 8, NIC_ACCESS_REMOTE_ATOMIC);

	return p && !((va | (uintptr_t)p) & 7) ? copied(qp, dma_cmp_swap(p, *value, swap, value))
					       : -EACCES;
}

static void prefetch(const char *p, uint32_t n)
{
	uint32_t end = (uint32_t)((uintptr_t)p % ROOST_CACHE_LINE) + n;

	end = end > PREFETCH_LINES * ROOST_CACHE_LINE ? PREFETCH_LINES * ROOST_CACHE_LINE : end;
	__builtin_prefetch(p);
	for (uint32_t i = ROOST_CACHE_LINE; unlikely(i < end); i += ROOST_CACHE_LINE)
		__builtin_prefetch(p + i);
}

bool nic_rpc_prefetch(const struct nic_qp *qp, nic_rpc_key key, uint64_t va, uint32_t n,
		      uint32_t access)
{
	const void *p;

	if (!n)
		return true;
	p = access_resolve(qp, key, va, n, access);
	if (p)
		prefetch(p, n);
	return p;
}

/* ---- for the host ---- */

static void *host_resolve(struct nic *nic, nic_rpc_key key, uint64_t va, uint32_t n,
			  uint32_t access)
{
	return key >> 32 ? mr_resolve(&nic->mrs, (uint32_t)key, (uint32_t)(key >> 32) - 1, va, n,
				      MR_LOCAL | access)
			 : NULL;
}

int nic_host_read(struct nic *nic, nic_rpc_key key, uint64_t va, void *dst, uint32_t n)
{
	const void *src = n ? host_resolve(nic, key, va, n, 0) : NULL;

	return !n ? 0 : src ? dma_load_up(dst, src, n) : -EACCES;
}

int nic_host_write(struct nic *nic, nic_rpc_key key, uint64_t va, const void *src, uint32_t n)
{
	void *dst = n ? host_resolve(nic, key, va, n, NIC_ACCESS_LOCAL_WRITE) : NULL;

	return !n ? 0 : dst ? dma_copy(dst, src, n) : -EACCES;
}

int nic_host_copy(struct nic *nic, nic_rpc_key dst_key, uint64_t dst_va, nic_rpc_key src_key,
		  uint64_t src_va, uint32_t n)
{
	const void *src = n ? host_resolve(nic, src_key, src_va, n, 0) : NULL;

	return !n ? 0 : src ? nic_host_write(nic, dst_key, dst_va, src, n) : -EACCES;
}

int nic_host_cmp_swap(struct nic *nic, nic_rpc_key key, uint64_t va, uint64_t *value, uint64_t swap)
{
	void *p = host_resolve(nic, key, va, 8, NIC_ACCESS_LOCAL_WRITE);

	return p && !((va | (uintptr_t)p) & 7) ? dma_cmp_swap(p, *value, swap, value) : -EACCES;
}
