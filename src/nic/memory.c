/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The limit on the memory of connections and kernels. Peers create connections and calls, so
 * without a limit they could exhaust the memory.
 */
#include "nic/core.h"

void nic_memory_limit(struct nic *nic, uint64_t bytes)
{
	atomic_store_explicit(&nic->memory_limit, bytes, memory_order_relaxed);
}

bool nic_memory_take(struct nic *nic, uint64_t bytes)
{
	uint64_t limit = atomic_load_explicit(&nic->memory_limit, memory_order_relaxed);
	uint64_t used = atomic_load_explicit(&nic->memory, memory_order_relaxed);

	do {
		if (limit && (bytes > limit || used > limit - bytes)) {
			atomic_fetch_add_explicit(&nic->memory_refused, 1, memory_order_relaxed);
			return false;
		}
	} while (!atomic_compare_exchange_weak_explicit(
		&nic->memory, &used, used + bytes, memory_order_relaxed, memory_order_relaxed));
	return true;
}

void nic_memory_give(struct nic *nic, uint64_t bytes)
{
	atomic_fetch_sub_explicit(&nic->memory, bytes, memory_order_relaxed);
}

void memory_of_qps(struct nic *nic, uint64_t before, uint64_t now)
{
	nic->qp_bytes += now - before;
	atomic_fetch_add_explicit(&nic->memory, now - before, memory_order_relaxed);
}
