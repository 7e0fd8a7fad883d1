/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The NIC, with the PUs and QPs that all files of src/nic need. Each other header of src/nic has
 * one concern: the send queue (sq.h), the requester, the responder, destinations, completion
 * queues, datagrams, streams. Other folders of src include only nic*.h and counters.h.
 *
 * Only the owner of the PU accesses the fields and calls the functions, unless a comment says
 * otherwise.
 */
#ifndef ROOST_NIC_CORE_H
#define ROOST_NIC_CORE_H

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "nic/mr.h"
#include "nic/nic_stream.h"
#include "nic/psn.h"
#include "nic/pu.h"
#include "nic/qp.h"

struct nic_ah;

#define NIC_GSI_DESTS 32
/*
 * The most datagrams of QP 1 that wait for space in the port, in total and to one destination. A
 * program may end a thousand connections to another one at once.
 */
#define NIC_GSI_WAITING	     4096
#define NIC_GSI_WAITING_DEST 2048

struct nic {
	/* cfg.ports is the number of port numbers; `ports` is the number of ports */
	struct nic_config cfg;
	atomic_uint ports; /* control calls write it; the ports below it are complete. [any] */
	struct pu *pus[NIC_MAX_PUS];
	struct mr_table mrs;
	_Atomic(struct nic_qp *) qps[NIC_MAX_QPS];
	/* the slot in QP numbers; without a pool all PUs have the same slot */
	uint8_t slot[NIC_MAX_PUS];
	/* for PUs whose QP numbers the host does not store */
	struct qp_numbers own_numbers;
	struct key_counts own_keys;
	_Atomic(struct nic_ah *) ahs[NIC_MAX_AHS];
	uint32_t ah_hint, num_ahs;
	uint32_t num_groups; /* number of groups; a group with members on several PUs counts once */
	struct list_head cqs, srqs;
	_Atomic uint32_t num_qps; /* control calls write it. [any] */
	uint32_t num_cqs, num_pds, num_srqs;
	uint64_t qp_bytes;
	_Atomic uint64_t memory, memory_limit, memory_refused; /* nic_memory_take() */
	/* memory of queue pairs; control */
	struct arena arena;
	struct spin dests_lock;
	/*
	 * The logical clock of alive_await_rx() and alive_rx(). The times of PUs (pu->now) differ.
	 */
	_Atomic uint64_t ticks;
	uint32_t *pd_refs; /* UINT32_MAX: free */
	uint32_t pd_cap;
	struct secret secret;
	uint32_t gsi_psn; /* PSN of QP 1's next datagram; PU 0's owner */
	/* QP 1's last destinations, with a reference each; PU 0's owner */
	struct dest *gsi_dests[NIC_GSI_DESTS];
	unsigned gsi_oldest;
	struct gsi_wait *gsi_wait; /* gsi_wait.c; NULL: no datagram has waited. PU 0's owner */
	unsigned num_region_hooks;
	struct {
		uint32_t key;
		struct nic_stream_hook *hook;
	} region_hooks[NIC_MAX_REGION_HOOKS];
	const struct nic_rpc_ops *rpc_ops; /* NULL: calls are not served */
	void *rpc_ctx;
};

/*
 * Returns the number of ports. A port is added while all PUs are owned, so the number is constant
 * within a turn.
 */
static inline unsigned port_count(const struct nic *nic)
{
	return atomic_load_explicit(&nic->ports, memory_order_acquire);
}

/* nic.c */
bool nic_pd_ref(struct nic *nic, uint32_t pd);
void nic_pd_unref(struct nic *nic, uint32_t pd);
/* Requests a turn of the PU. [any] */
void nic_kick(struct nic *nic, unsigned pu);
void nic_ring(struct nic_qp *qp);	   /* makes the QP's PU schedule the QP. [any] */
void nic_schedule(struct nic_qp *qp);	   /* the requester has work */
void nic_schedule_resp(struct nic_qp *qp); /* the responder has work */
/* Returns the QP that may have this number, for a prefetch, or NULL. Does not access the QP. */
static inline struct nic_qp *nic_peek_qp(struct nic *nic, uint32_t qpn)
{
	return atomic_load_explicit(&nic->qps[(qpn >> 4) & (NIC_MAX_QPS - 1)],
				    memory_order_relaxed);
}

/*
 * Memory order: a queue pair is written before the pointer to it is stored (release); a look-up
 * loads the pointer (acquire), then reads the queue pair. Address handles (ah.c) and the number of
 * ports (port_count()) are published in the same way. A queue pair is destroyed by the owner of its
 * PU.
 */
static inline struct nic_qp *nic_find_qp(struct nic *nic, uint32_t qpn)
{
	struct nic_qp *qp = atomic_load_explicit(&nic->qps[(qpn >> 4) & (NIC_MAX_QPS - 1)],
						 memory_order_acquire);

	return qp && qp->qpn == qpn ? qp : NULL;
}

/*
 * Resolves a key that a peer named. The key may be of a region or type 1 window of the QP's PD, or
 * of a type 2 window of the QP.
 */
static inline void *qp_resolve(const struct nic_qp *qp, uint32_t key, uint64_t va, uint64_t len,
			       uint32_t access)
{
	void *p = mr_resolve(&qp->nic->mrs, key, qp->pd, va, len, access);

	if (likely(p))
		return p;
	return mr_resolve(&qp->nic->mrs, key, MR_QP_DOMAIN(qp->qpn), va, len, access);
}

static inline void *qp_resolve_region_addr(const struct nic_qp *qp, uint32_t key, uint64_t va,
					   uint64_t len, uint32_t access,
					   struct mr_region_addr *out)
{
	void *p = mr_resolve_region_addr(&qp->nic->mrs, key, qp->pd, va, len, access, out);

	return p ? p
		 : mr_resolve_region_addr(&qp->nic->mrs, key, MR_QP_DOMAIN(qp->qpn), va, len,
					  access, out);
}

/*
 * memory.c: accounts for a change of one QP's memory from `before` to `now` bytes, even beyond the
 * limit. [control]
 */
void memory_of_qps(struct nic *nic, uint64_t before, uint64_t now);

#endif
