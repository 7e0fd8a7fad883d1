/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extensions of <infiniband/verbs.h>: calls of kernels on RC queue pairs, and the kernels of the
 * NIC of this process.
 *
 * The functions are in Roost's libibverbs.so.1. Link with `pkg-config --cflags --libs roost`.
 *
 * Unless a function says otherwise:
 *   - it returns 0 or a positive errno; functions that return a pointer return NULL and set errno;
 *   - any thread may call it, at any time;
 *   - outputs are set only on success;
 *   - lengths are in bytes, times in nanoseconds.
 *
 * docs/kernels.md explains the concept. roost/rpc.h describes parameters and replies,
 * roost/kernel.h describes how to write a kernel.
 */
#ifndef ROOST_VERBS_H
#define ROOST_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "roost/kernel.h"
#include "roost/rpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- queue pairs ---- */

/*
 * Enables the op-codes of calls (0x18 to 0x1c) on an RC queue pair, until the queue pair is moved
 * to RESET. Both ends must enable them. Use this function when the program exchanges queue pair
 * numbers by itself; with the connection manager, use roost_qp_offer_rpc().
 *
 * Errors:
 *   EINVAL	the queue pair is neither in RESET nor in INIT
 *   EOPNOTSUPP	the queue pair is not RC
 */
int roost_qp_enable_rpc(struct ibv_qp *qp);

/*
 * Offers the op-codes of calls to the peer in the ECE options of the connection. They are enabled
 * at both ends if both ends offered them, and at neither end otherwise.
 *
 * Call it before rdma_connect() or rdma_accept(). A program that connects by hand calls it before
 * ibv_query_ece(), passes the result to ibv_set_ece() at the peer, and passes the peer's answer to
 * ibv_set_ece() here. One thread at a time connects a queue pair.
 *
 * Errors: those of roost_qp_enable_rpc().
 */
int roost_qp_offer_rpc(struct ibv_qp *qp);

/*
 * Returns whether the op-codes of calls are enabled. After roost_qp_offer_rpc() the answer is valid
 * once the queue pair is connected.
 */
bool roost_qp_has_rpc(struct ibv_qp *qp);

/*
 * Limits the peer's use of this node's kernels through a queue pair, until the queue pair is moved
 * to RESET.
 *
 *   calls	calls in flight. One call that only waits for the ACK of its reply does not count.
 *		Further calls get RNR NAKs. 0: no limit but the 256 slots for calls
 *   steps	steps of kernels in one turn of the NIC. Further steps wait for the next turn. 0: no
 *		limit. Queue pairs take steps in rotation whatever the value is
 *
 * Errors:
 *   EINVAL	roost_qp_enable_rpc() was not called
 */
int roost_qp_set_quota(struct ibv_qp *qp, uint32_t calls, uint32_t steps);

#define ROOST_WC_RPC	   IBV_WC_DRIVER1
#define ROOST_WC_RPC_WRITE IBV_WC_DRIVER2

struct roost_rpc_wr {
	uint64_t wr_id;
	uint64_t op;   /* the kernel's op-code */
	uint32_t rkey; /* of the region that all accesses of the call must lie in */
	int num_sge;
	struct ibv_sge *sg_list;
	unsigned int send_flags; /* IBV_SEND_FENCE, SIGNALED, SOLICITED, INLINE */
};

/*
 * Posts a call. The scatter/gather list holds struct roost_rpc_head and the parameters, together at
 * most one path MTU. The completion reports that the call has arrived. The reply is written to the
 * memory that the head names.
 *
 * Errors, as of ibv_post_send():
 *   ENOMEM	the send queue is full
 *   EINVAL	the request or the state of the queue pair is invalid
 */
int roost_post_rpc(struct ibv_qp *qp, const struct roost_rpc_wr *wr);

/* Posts payload for a kernel, up to 2^31 bytes. Errors: those of roost_post_rpc(). */
int roost_post_rpc_write(struct ibv_qp *qp, const struct roost_rpc_wr *wr);

/* ---- kernels of this process's NIC ---- */

/*
 * Registers a kernel, so that peers can call it on queue pairs with the op-codes of calls. `self`
 * is passed to the kernel's functions. `k`, and all that it points to, must remain valid until the
 * kernel is undeployed or the last context is closed.
 *
 * Errors:
 *   EINVAL	the descriptor is invalid
 *   EPROTO	the descriptor is of another ABI
 *   EEXIST	a kernel with this op-code is registered
 *   ENOSPC	64 kernels are registered
 *   other	the error of the kernel's start()
 */
int roost_kernel_deploy(struct ibv_context *ctx, const struct roost_kernel *k, void *self);

/*
 * Removes a kernel.
 *
 * Errors:
 *   ENOENT	no kernel has this op-code
 *   EBUSY	calls of the kernel are in progress; try again
 */
int roost_kernel_undeploy(struct ibv_context *ctx, uint64_t op);

/*
 * Sets the kernel that serves calls of unknown op-codes. k = NULL removes it. Errors: those of
 * roost_kernel_deploy(), and EBUSY as of roost_kernel_undeploy().
 */
int roost_kernel_fallback(struct ibv_context *ctx, const struct roost_kernel *k, void *self);

/* Returns the built-in kernel of this name ("get", for example), or NULL if there is none. */
const struct roost_kernel *roost_kernel_builtin(const char *name);

/*
 * Replaces the kernel that has the op-code of `k`. New calls run the new version. Calls in progress
 * finish on the version on which they began, so several versions may exist at a time. The function
 * does not wait for calls.
 *
 * The old version's stop() runs after its last call, unless the new version takes over its `self`
 * (take_over() in roost/kernel.h). The descriptor and the functions of the old version must remain
 * valid until roost_kernel_list() no longer shows it.
 *
 * Errors: those of roost_kernel_deploy(), and
 *   ENOENT	no kernel has this op-code
 */
int roost_kernel_redeploy(struct ibv_context *ctx, const struct roost_kernel *k, void *self);

/*
 * Registers the kernel in a shared object with ROOST_KERNEL_EXPORT (roost/kernel.h).
 *
 * The file is copied and is not needed afterwards, so a new version may have the same path. The
 * object is unloaded after its last call, by the next of these functions or the next
 * roost_kernel_list().
 *
 * On failure nothing has changed, and why[len] holds one line that states the cause. why may be
 * NULL. A kernel is code in this process: load only files that you trust like the program
 * itself.
 *
 * Errors: those of roost_kernel_deploy() and roost_kernel_redeploy(), and
 *   ENOEXEC	the file is not a complete shared object, or symbols are missing
 *   EINVAL	the object contains no kernel, or an invalid one
 */
int roost_kernel_load(struct ibv_context *ctx, const char *path, char *why, size_t len);
/*
 * Replaces the kernel that has the same op-code by the kernel in a shared object. The rules and
 * errors are those of roost_kernel_load() and roost_kernel_redeploy().
 */
int roost_kernel_replace(struct ibv_context *ctx, const char *path, char *why, size_t len);

/*
 * Removes a kernel, also one that was registered by roost_kernel_deploy(). New calls find no
 * kernel. Calls in progress finish.
 *
 * Errors:
 *   ENOENT	no kernel has this op-code
 */
int roost_kernel_unload(struct ibv_context *ctx, uint64_t op);

/*
 * Grants a kernel, in all its versions, access to a region of this node until the kernel is
 * unloaded. Calls of the kernel may then use the region by *number, beside the region that their
 * caller names (roost_in() in roost/kernel.h). Deregistering the region voids the grant.
 *
 * `access` is a combination of IBV_ACCESS_REMOTE_READ, _WRITE and _ATOMIC and limits the kernel.
 * The region needs local write access for the last two. It needs no remote access: without it,
 * peers reach the region through the kernel only.
 *
 * Errors:
 *   EINVAL	other access flags, or the region lacks local write access
 *   ENOENT	no kernel has this op-code
 *   ENOSPC	the kernel has ROOST_KERNEL_GRANTS regions
 */
int roost_kernel_grant(struct ibv_context *ctx, uint64_t op, struct ibv_mr *mr, unsigned access,
		       unsigned *number);

/*
 * Revokes a grant. Replies that are sent from the region may still be in progress.
 *
 * Errors:
 *   ENOENT	there is no such kernel or grant
 */
int roost_kernel_revoke(struct ibv_context *ctx, uint64_t op, unsigned number);

/*
 * Limits of a bound queue pair. A work request of the program waits for the kernel work requests
 * that were posted before it.
 */
struct roost_qp_limits {
	/*
	 * operations that the kernel, in all its invocations, may have in progress; 0: 64, shared
	 * with other kernels
	 */
	uint32_t ops;
	/*
	 * bytes of these operations together; a larger operation fails with ROOST_QP_INVALID; 0: no
	 * limit
	 */
	uint64_t bytes;
};

/*
 * Binds a queue pair to a kernel, in all its versions. The kernel may post READs, WRITEs, SENDs and
 * atomics to it by *number (roost_qp_post() in roost/kernel.h).
 *
 *   - Kernel work requests use 64 slots of their own in the send queue.
 *   - Their completions are reported to the kernel only.
 *   - They are sent in the order in which the NIC takes them. The program may continue to post; its
 *     requests have no order relative to those of the kernel.
 *   - An operation that fails moves the queue pair to the error state, with IBV_EVENT_QP_FATAL.
 *   - Destroying the queue pair ends the binding. Resetting it does not.
 *
 * `limits` may be NULL: the kernel may use all 64 slots.
 *
 * Errors:
 *   ENOENT	no kernel has this op-code
 *   ENOSPC	the kernel has ROOST_KERNEL_QPS queue pairs
 *   EOPNOTSUPP	the queue pair is not RC
 *   EXDEV	the queue pair belongs to another processing unit than those already bound
 *   ENOMEM	out of memory
 */
int roost_kernel_bind_qp(struct ibv_context *ctx, uint64_t op, struct ibv_qp *qp,
			 const struct roost_qp_limits *limits, unsigned *number);

/*
 * Unbinds a queue pair. Operations in progress continue.
 *
 * Errors:
 *   ENOENT	there is no such kernel or binding
 */
int roost_kernel_unbind_qp(struct ibv_context *ctx, uint64_t op, unsigned number);

enum roost_kernel_state {
	ROOST_KERNEL_ACTIVE,
	ROOST_KERNEL_LEAVING, /* replaced or unloaded, with calls in progress */
	/*
	 * a step crashed or did not return; calls get ROOST_RPC_DISABLED until the kernel is
	 * replaced
	 */
	ROOST_KERNEL_DISABLED,
};

enum roost_kernel_flags {
	ROOST_KERNEL_FALLBACK = 1 << 0,
	ROOST_KERNEL_LOADED = 1 << 1, /* from a file */
};

/*
 * One version of a kernel. The counters of the active version include those of older versions that
 * have ended.
 */
struct roost_kernel_info {
	char name[ROOST_KERNEL_NAME];
	uint64_t op;
	uint32_t version;
	uint32_t state;	    /* enum roost_kernel_state */
	uint32_t flags;	    /* enum roost_kernel_flags */
	uint32_t in_flight; /* calls in progress */
	uint64_t calls;	    /* calls begun */
	uint64_t steps;	    /* times a function of the kernel was run */
	uint64_t payload_bytes;
	uint64_t ended_ok, ended_other; /* calls that ended with status 0; with a kernel's status */
	uint64_t bad_params, access, too_long, bound;
	uint64_t faults, stuck; /* calls in which the kernel crashed; did not return */
	uint64_t disabled;	/* calls refused because the kernel was disabled */
	uint64_t dropped;	/* calls in progress when their queue pair ended */
	/*
	 * Time that `timed` calls of this version took on the node: from the start of the turn in
	 * which the parameters arrived to the end of the turn in which the reply was posted.
	 * Percentiles have an error of at most 1.6%.
	 */
	uint64_t timed, p50_ns, p99_ns, max_ns;
	uint32_t resources, resources_max; /* in use (roost_take()), and the limit */
};

/*
 * Lists the versions of all registered kernels, active versions first. Fills at most info[max], and
 * returns the number of versions, which may exceed `max`.
 */
unsigned roost_kernel_list(struct ibv_context *ctx, struct roost_kernel_info *info, unsigned max);

/* ---- calls with buffers and matching of replies ---- */

/*
 * A caller owns the memory for parameters and replies of several calls on one queue pair, posts the
 * calls and matches the replies. One thread at a time may use it. Its work requests have wr_id 0
 * and are unsignaled; a request that fails completes with an error in the queue pair's CQ.
 */
struct roost_caller;

struct roost_result {
	unsigned status; /* enum roost_rpc_status, or the kernel's own */
	uint32_t len;	 /* bytes of the reply */
	/* valid until roost_call_end(); NULL if the data did not fit (ROOST_RPC_TOO_LONG) */
	const void *data;
};

/*
 * Creates a caller for `calls` (1 to 256) concurrent calls, each with `space` bytes for the data of
 * its reply. The queue pair must outlive the caller and keep enough of its send queue free for
 * these calls.
 */
struct roost_caller *roost_caller_create(struct ibv_qp *qp, unsigned calls, uint32_t space);

/*
 * Frees a caller. No message may still be written to its memory: either the queue pair was reset or
 * destroyed, or each call has its reply.
 */
void roost_caller_destroy(struct roost_caller *caller);

/* The most bytes of data in the reply to a call with ROOST_RPC_JOIN. */
#define ROOST_CALL_SHORT 120

/*
 * Begins a call and returns its number in *id. `flags` are of enum roost_rpc_flags. With
 * ROOST_RPC_STREAM, the next roost_post_rpc_write() with this op-code is the payload of the call.
 * With ROOST_RPC_JOIN, the reply has space for ROOST_CALL_SHORT bytes only. The replies to such
 * calls that follow each other may come in one packet, which takes less work at both ends.
 *
 * Errors: those of roost_post_rpc(), and
 *   EAGAIN	all `calls` are in progress
 *   EMSGSIZE	the parameters are too long
 */
int roost_call_begin(struct roost_caller *caller, uint64_t op, uint32_t rkey, const void *params,
		     uint32_t len, unsigned flags, unsigned *id);

/*
 * Returns the result of a call if its reply has arrived. Drives the NIC.
 *
 * Errors:
 *   EAGAIN	the reply has not arrived yet
 *   EINVAL	no call has this id
 *   ENOTCONN	the queue pair is in the error state, or was reset
 */
int roost_call_poll(struct roost_caller *caller, unsigned id, struct roost_result *result);
/*
 * Returns the result of a call as roost_call_poll() does, but does not drive the NIC: it only reads
 * the memory of the reply. A program that takes all arrived replies, begins the next calls and then
 * drives the NIC sends these calls together. Errors: EAGAIN, EINVAL.
 */
int roost_call_look(struct roost_caller *caller, unsigned id, struct roost_result *result);

/*
 * Waits for the reply of a call, at most timeout_ns (0: without limit). After ETIMEDOUT the call is
 * still in progress: wait again, or end it. Errors: those of roost_call_poll(), with ETIMEDOUT
 * instead of EAGAIN.
 */
int roost_call_wait(struct roost_caller *caller, unsigned id, uint64_t timeout_ns,
		    struct roost_result *result);

/*
 * Ends a call and releases its data. A call without a reply is abandoned: its slot is reused after
 * the reply has arrived.
 */
void roost_call_end(struct roost_caller *caller, unsigned id);

/*
 * Performs a call: begins it, waits for the reply, copies at most `space` bytes of data to `reply`,
 * and ends it. result->data then points to `reply`. Errors: those of the functions above.
 */
int roost_call(struct roost_caller *caller, uint64_t op, uint32_t rkey, const void *params,
	       uint32_t len, void *reply, uint32_t space, uint64_t timeout_ns,
	       struct roost_result *result);

/* ---- kernels that the host runs: on streams, and by itself ---- */

/* An invocation of a registered kernel by the host. */
struct roost_invocation_attr {
	uint64_t op;
	const void *params; /* the parameters of a call, behind its head */
	uint32_t params_len;
	/* the region of all accesses, with the rights of the host's work requests; NULL: none */
	struct ibv_mr *mr;
	void *reply;	/* buffer for the reply; must remain valid until the invocation ends */
	uint32_t space; /* bytes of it */
};

enum roost_side {
	ROOST_IN, /* WRITEs of the peer, as they reach memory; RC and UC queue pairs */
	/*
	 * WRITEs and SENDs before they leave; a kernel with `rewrites` changes them in place; RC
	 * queue pairs
	 */
	ROOST_OUT,
};

struct roost_hook;

/*
 * Attaches a kernel that has a stream() to one side of a queue pair. Two kernels on one side form a
 * chain, in the order in which they were attached.
 *
 *   - The kernel sees each byte once, in order.
 *   - Rewritten bytes are kept until they are acknowledged, so that retransmissions are identical.
 *     A queue pair with such a kernel has at most 128 packets in flight.
 *   - The version that is active now stays attached when the kernel is replaced.
 *   - If the kernel waits for operations before it accepts its parameters, the stream waits too,
 *     and a refusal is reported by roost_hook_query().
 *
 * Errors:
 *   ENOENT	no kernel has this op-code
 *   EOPNOTSUPP	the kernel has no stream(), or it rewrites and the side is ROOST_IN, or the queue
 *		pair is of another type
 *   EBUSY	ROOST_OUT: messages are in flight
 *   ENOSPC	two kernels are attached
 *   EXDEV	the kernel changes lengths, and the queue pair is on another processing unit than
 *		the kernel
 *   EINVAL	the kernel refused its parameters, or they are too long
 *   EFAULT, ENOENT, EIO	it ended with ROOST_RPC_ACCESS, ROOST_RPC_MISS, or another status
 */
struct roost_hook *roost_qp_attach(struct ibv_qp *qp, enum roost_side side,
				   const struct roost_invocation_attr *attr);

/*
 * Attaches a kernel to the WRITEs of all peers into a region, by its rkey or by that of a window
 * that is bound to it. Another region over the same memory is not included. Pieces of messages on
 * different queue pairs are interleaved. At most eight regions of a NIC have a hook. ibv_dereg_mr()
 * fails with EBUSY while a hook is attached. Errors: those of roost_qp_attach().
 */
struct roost_hook *roost_mr_attach(struct ibv_mr *mr, const struct roost_invocation_attr *attr);

/*
 * Returns 0 while the kernel runs on the stream, or the errno with which it failed; the stream then
 * continues without it. *bytes (may be NULL) is the number of bytes that the kernel has seen.
 */
int roost_hook_query(struct roost_hook *hook, uint64_t *bytes);

/*
 * Detaches a kernel from its stream and frees the hook. The kernel is told the end of the stream.
 * *result (may be NULL) is its reply, if any, with its data in attr->reply. The queue pair may have
 * been destroyed before; the context must still be open.
 *
 * Errors:
 *   EBUSY	not yet. The hook, its reply buffer and its region stay in use: call again until
 *		the result is 0. The NIC runs meanwhile, sooner if the program polls a CQ. Either
 *		the kernel waits, or its operations on bound queue pairs are in progress; then it
 *		sees no more of the stream. Or the kernel changes outgoing messages (`rewrites`,
 *		`resizes`) and some are in flight; then the hook is still attached, also for
 *		messages that are posted now. Post no more before the result is 0. If they do not
 *		end, take the queue pair to the error state, or destroy it
 */
int roost_hook_detach(struct roost_hook *hook, struct roost_result *result);

struct roost_run;

/*
 * Starts an invocation of a kernel on this process's own NIC, without a peer. The kernel runs in
 * turns of the NIC, and may wait for its operations on bound queue pairs. Accesses to memory are
 * done at once, so their latency is hidden less well than in calls from peers.
 *
 * `payload` (NULL: none) is passed like that of an RPC WRITE, up to 2^31 bytes. The payload,
 * attr->reply and the region must remain valid until the end. Any thread may call it except one
 * that runs a turn of the NIC, such as a kernel's function.
 *
 * Errors:
 *   ENOENT	no kernel has this op-code
 *   EINVAL	the parameters are invalid, or too long
 *   EMSGSIZE	the payload is too long
 *   ENOMEM	out of memory
 */
struct roost_run *roost_run_start(struct ibv_context *ctx, const struct roost_invocation_attr *attr,
				  const void *payload, uint64_t len);

/*
 * Returns the result of an invocation if it has ended. Drives the NIC. A kernel that waits for more
 * payload when there is none ends with status 0 and without data.
 *
 * Errors:
 *   EAGAIN	the invocation is in progress
 *   ENOTCONN	the process is the child of a fork: the invocation never ends
 */
int roost_run_poll(struct roost_run *run, struct roost_result *result);

/*
 * Waits for the end of an invocation, at most timeout_ns (0: without limit). Errors: ETIMEDOUT, and
 * ENOTCONN as of roost_run_poll().
 */
int roost_run_wait(struct roost_run *run, uint64_t timeout_ns, struct roost_result *result);

/*
 * Frees an invocation. If the kernel is still running it is not run again. Its operations on bound
 * queue pairs continue; when they are done the kernel's cut() is called. Until then the kernel
 * counts as in use.
 */
void roost_run_end(struct roost_run *run);

/*
 * Runs a kernel to its end: roost_run_start(), roost_run_wait() without limit, roost_run_end().
 * Meant for the host's own use of registered kernels, such as the estimates of `hll`. Errors: those
 * of roost_run_start(), and ENOTCONN.
 */
int roost_kernel_run(struct ibv_context *ctx, const struct roost_invocation_attr *attr,
		     const void *payload, uint64_t len, struct roost_result *result);

#ifdef __cplusplus
}
#endif
#endif
