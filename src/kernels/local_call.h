/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Local calls: kernels that the host runs, or that are attached to a stream and process its bytes.
 *
 * A kernel on a stream runs in the PU that handles the bytes, to the end of each piece. If it waits
 * for operations on bound queue pairs it pauses the stream, and continues in turns of its own PU.
 * Accesses to memory are done at once. Data that the kernel sends or replies goes to the host.
 */
#ifndef ROOST_KERNELS_LOCAL_CALL_H
#define ROOST_KERNELS_LOCAL_CALL_H

#include "kernels/runtime.h"

struct local_call;

struct local_call_attr {
	uint64_t op; /* op-code of a registered kernel; the local call keeps its active version */
	const void *params;
	uint32_t params_len; /* at most ROOST_RPC_MAX_PARAMS */
	uint32_t pd, key;    /* the region of all its accesses; key 0: none */
	uint8_t *reply;	     /* buffer for its data; must remain valid */
	uint32_t space;	     /* bytes of the buffer */
	/* the local call will be attached to outgoing messages; it may wait before that */
	bool out;
};

/*
 * Creates a local call of PU `pu` and runs the kernel's params(). If the kernel waits for
 * operations on bound queue pairs it continues in turns of the PU; a stream that it is attached to
 * meanwhile is paused. Returns 0 or
 *	-ENOENT	no kernel has this op-code
 *	-EINVAL	too many parameters
 *	-ENOMEM
 * The call may be finished already (local_call_finished()) if the kernel has replied.
 * [control+owner of `pu`]
 */
int local_call_begin(struct kernel_runtime *rt, unsigned pu, const struct local_call_attr *a,
		     struct local_call **out);
/*
 * Returns the PU for a local call that will be attached to a stream of PU `at`: the PU of the queue
 * pairs that are bound to the kernel, or `at` if there are none. A kernel that changes lengths must
 * belong to `at`. [control]
 */
unsigned local_call_pu(struct kernel_runtime *rt, uint64_t op, unsigned at);
/*
 * Creates a local call that the host runs, with payload of `len` bytes, which must remain valid
 * (NULL: none). The kernel runs in turns of its PU. It may wait for operations on bound queue
 * pairs. Errors and threads as for local_call_begin().
 */
int local_call_start(struct kernel_runtime *rt, unsigned pu, const struct local_call_attr *a,
		     const void *payload, uint64_t len, struct local_call **out);
/*
 * Returns whether the local call is finished. Its reply is then visible to the caller. Any
 * thread.
 */
bool local_call_done(const struct local_call *p);

/*
 * Attaches a local call to a stream: the incoming or outgoing messages of a queue pair, or the
 * WRITEs to a region. A local call has at most one stream. Returns 0, an error of
 * nic_stream_attach_in(), nic_stream_attach_out() or nic_stream_attach_region(), or
 *	-EOPNOTSUPP	the kernel has no stream(), or the QP does not support it
 *	-EXDEV		the kernel changes lengths, and belongs to another PU
 * Thread rules are those of these functions.
 */
int local_call_attach_in(struct local_call *p, struct nic_qp *qp);
int local_call_attach_out(struct local_call *p, struct nic_qp *qp);
int local_call_attach_region(struct local_call *p, uint32_t key);
/*
 * Detaches a local call from its stream. Returns 0 or -EBUSY. A region counts as having a hook
 * until local_call_free(). Thread rules are those of local_call_attach_in() etc.
 */
int local_call_detach(struct local_call *p);
/*
 * Returns whether the local call is in the middle of a piece, waits, or has operations in progress,
 * finished or not. After local_call_detach() this becomes false eventually. [owner of its PU]
 */
bool local_call_busy(const struct local_call *p);
/*
 * Runs the kernel for the end of the stream, to which it may reply. Must not be called while
 * local_call_busy(). If the kernel waits or posts an operation, local_call_busy() is true again;
 * call this function once more when it is false. [owner of its PU]
 */
void local_call_end_stream(struct local_call *p);

struct local_call_result {
	uint32_t status; /* enum roost_rpc_status or the kernel's own */
	uint32_t len;	 /* bytes of data; if more than `space`, the data did not fit */
	uint64_t bytes;	 /* bytes that the kernel has processed */
};
/*
 * Returns whether the kernel has replied or failed; it is not run again then. *out gets the result,
 * or the state so far.
 */
bool local_call_finished(const struct local_call *p, struct local_call_result *out);
/*
 * Frees a local call that is detached from its stream. Its operations on bound queue pairs
 * continue; its memory is freed when they are done. [control+owner of its PU; of all PUs if it was
 * attached to a region]
 */
void local_call_free(struct local_call *p);

#endif
