/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations of kernels on queue pairs that the host binds to them (roost_kernel_bind_qp()). A
 * struct kernel_wrs has the operations of one invocation: a call, or a local call. Operations in
 * progress use the invocation's memory. Therefore the memory of an invocation that has ended
 * remains until all its operations are done.
 *
 *	post ----> in progress: a bit in `open`, counted in `out`
 *	  |		`----> kernel_wrs_done(): stores the status and advances qp_done
 *	  `-- no space: the invocation waits
 *
 * There is no space if the invocation has ROOST_QP_OPS operations in progress (until the oldest is
 * done), or if the queue pair has NIC_MAX_KERNEL_WRS or has reached its limits (until one of the
 * queue pair's operations is done).
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
	/*
	 * Called when the invocation can continue or, if `gone`, when its last operation is done.
	 * [owner of the PU]
	 */
	void (*wake)(struct kernel_wrs *a);
	/* protects the fields of c on operations if several PUs run the kernel; else NULL */
	struct spin *lock;
	struct registered_kernel *st; /* the kernel whose bound queue pairs are used */
	struct list_head link;	      /* in runtime_pu.full: waits for space at a queue pair */
	const struct nic_qp *qp; /* the queue pair with the wait or the reservation; else NULL */
	struct bound_qp *bound;	 /* the binding of `qp` */
	struct runtime_pu *pu;	 /* the PU of `qp` */
	uint32_t bytes;		 /* reserved bytes */
	uint32_t out;		 /* operations in progress */
	uint32_t open;		 /* bit n: operation n modulo ROOST_QP_OPS is in progress */
	bool reserved;		 /* the request counts in the limits as if it were posted */
	bool posted;		 /* the requested operation is posted */
	bool waits;
	bool gone;	    /* the invocation has ended */
	bool blocks_output; /* outgoing messages wait while the invocation waits */
};
_Static_assert(ROOST_QP_OPS == 32, "a bit for each");

/*
 * Posts the operation that c requests, or waits for operations. `key` is the key of the region of
 * its local memory. Returns true if the invocation continues. Returns false if it waits: call the
 * function again with the same arguments after wake(). [owner of its PU]
 */
bool kernel_wrs_post(struct kernel_wrs *a, struct registered_kernel *st, struct runtime_pu *pu,
		     uint32_t key);
/* Gives up the wait for space and the reservation, if there are any. [owner of its PU] */
void kernel_wrs_stop(struct kernel_wrs *a);
/*
 * Marks the invocation as ended. Returns true if no operation is in progress. Otherwise wake() is
 * called after the last operation, and the invocation's memory must remain until then. [owner of
 * its PU]
 */
bool kernel_wrs_leave(struct kernel_wrs *a);
/* Takes the completion of an operation: see struct nic_rpc_ops. */
void kernel_wrs_done(struct kernel_runtime *rt, struct nic_qp *qp, struct kernel_wrs *a,
		     uint32_t token, uint32_t len, uint8_t status);
void kernel_wrs_qp_gone(struct kernel_runtime *rt, struct nic_qp *qp);

#endif
