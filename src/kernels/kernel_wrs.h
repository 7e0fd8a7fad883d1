/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations of kernels on queue pairs that the host binds to them (roost_kernel_bind_qp()): what
 * an invocation has under way, be it a call or a run of the host's. They and its memory are the
 * NIC's until they are done, so an invocation that ends before stays until then.
 *
 *	post ----> under way: a bit of `open`, `out` counts them ----> kernel_wr_done(): status, qp_done moves on to the oldest that is not done
 *	  `-- no room: ROOST_QP_OPS of its own (until the oldest is done), the queue pair has NIC_MAX_KERNEL_WRS, or its limits are reached (until one of those is)
 */
#ifndef ROOST_KERNELS_KERNEL_WRS_H
#define ROOST_KERNELS_KERNEL_WRS_H

#include "base/list.h"
#include "base/spin.h"
#include "kernels/runtime.h"

struct registered_kernel;
struct runtime_pu;
struct bound_qp;

struct kernel_wrs {
	struct roost_call *c;
	/* What it waits for has come; or, when it has gone, all is done. Of the PU's owner. */
	void (*wake)(struct kernel_wrs *a);
	/* of what c says of operations, where other PUs run the kernel, too; NULL: none do */
	struct spin *lock;
	struct registered_kernel *st; /* whose bound queue pairs it uses */
	struct list_head link;	      /* of those that wait for room of a queue pair */
	const struct nic_qp *at;      /* which, or where it has a promise of it; else NULL */
	struct bound_qp *bound;	      /* by which */
	struct runtime_pu *pu;	      /* likewise */
	uint32_t bytes;		      /* that it is promised */
	uint32_t out;		      /* not done */
	uint32_t open;		      /* which ones: a bit for each number, modulo ROOST_QP_OPS */
	bool promised;		      /* counts in its limits as if it were posted */
	bool posted;		      /* what is asked for */
	bool waits;
	bool gone;    /* it has ended */
	bool outward; /* what waits with it are messages that leave */
};
_Static_assert(ROOST_QP_OPS == 32, "a bit for each");

/*
 * Does what c asks for. key: of the region that it names. True: it goes on; false: it is woken, and
 * then this is to be called again, with the same. [owner of its PU]
 */
bool kernel_wrs_post(struct kernel_wrs *a, struct registered_kernel *st, struct runtime_pu *pu,
		     uint32_t key);
/* It does not go on with what it waits for. [owner of its PU] */
void kernel_wrs_stop(struct kernel_wrs *a);
/*
 * The invocation has ended. True: nothing is under way; false: it is woken when that is so, and its
 * memory stays until then. [owner of its PU]
 */
bool kernel_wrs_leave(struct kernel_wrs *a);
/* See struct nic_rpc_ops. */
void kernel_wrs_done(struct kernel_runtime *rt, struct nic_qp *qp, struct kernel_wrs *a,
		     uint32_t token, uint32_t len, uint8_t status);
void kernel_wrs_qp_gone(struct kernel_runtime *rt, struct nic_qp *qp);

#endif
