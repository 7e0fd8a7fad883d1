/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What <infiniband/verbs.h> can't say, on the same objects: calls of kernels on an RC queue pair.
 * The functions are in Roost's libibverbs.so.1; link with `pkg-config --cflags --libs roost`.
 * Errors are the verbs': 0 or a positive errno, or NULL with errno.
 *
 * docs/kernels.md has the concept; roost/rpc.h what stands in parameters and replies;
 * roost/kernel.h how a kernel is written.
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
 * Gives an RC queue pair the op-codes 0x18 .. 0x1c of calls, until it goes back to RESET; both ends
 * need them. For programs that tell each other their queue pair numbers by themselves. In RESET or
 * INIT, else EINVAL; EOPNOTSUPP: not RC. Any thread.
 */
int roost_qp_enable_rpc(struct ibv_qp *qp);

/*
 * Offers them to the other end instead: both have them from the connection on if both offered them,
 * neither else. Before rdma_connect() or rdma_accept(); by hand before ibv_query_ece(), whose
 * result goes to the peer's ibv_set_ece(), and that one's answer back. One thread connects a queue
 * pair. Errors as above.
 */
int roost_qp_offer_rpc(struct ibv_qp *qp);
/* Has it the op-codes? Of one that connects: once it is connected. */
bool roost_qp_has_rpc(struct ibv_qp *qp);

/*
 * What the peer may take of this node's kernels through this queue pair: `calls` in flight, further
 * ones get RNR NAKs; `steps` in a turn of the NIC, further ones wait for the next. 0: as many as
 * there are (64 calls). Queue pairs have steps in turns, whatever this says. Until it goes back to
 * RESET. EINVAL: no roost_qp_enable_rpc() yet. Any thread.
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
 * Posts a call: struct roost_rpc_head and parameters, together at most a path MTU. Its completion
 * says that it has arrived; the reply comes into the memory that the head names. As
 * ibv_post_send(): ENOMEM: the queue is full; EINVAL. Any thread.
 */
int roost_post_rpc(struct ibv_qp *qp, const struct roost_rpc_wr *wr);
/* Posts payload for a kernel, up to 2^31 bytes. As above. */
int roost_post_rpc_write(struct ibv_qp *qp, const struct roost_rpc_wr *wr);

/* ---- kernels of this process's NIC ---- */

/*
 * Lets the peers of QPs that have the op-codes call a kernel. `self` is what its functions see as
 * theirs; k and what it points to must stay until it is undeployed, or the last context is closed.
 * EINVAL: a descriptor that makes no sense, EPROTO: of another ABI, EEXIST: its op-code is taken,
 * ENOSPC: 64 are deployed; or the error of its start(). Any thread.
 */
int roost_kernel_deploy(struct ibv_context *ctx, const struct roost_kernel *k, void *self);
/* ENOENT; EBUSY while calls run it: try again. */
int roost_kernel_undeploy(struct ibv_context *ctx, uint64_t op);
/* The kernel for calls that have no other; NULL: none any more. As deploy; EBUSY as undeploy. */
int roost_kernel_fallback(struct ibv_context *ctx, const struct roost_kernel *k, void *self);
/* "get" and such; NULL: there is none of this name. */
const struct roost_kernel *roost_kernel_builtin(const char *name);
/*
 * k takes the place of the kernel that has its op-code: calls from now on run it, those under way
 * go on with the old one, of which several versions may so be there at once. Nothing waits. The old
 * one's stop() comes after its last call, or k takes over its self (take_over() in roost/kernel.h);
 * descriptor and functions of the old one must stay until roost_kernel_list() does not show it any
 * more. Errors as of deploy; ENOENT: nothing has its op-code. Any thread.
 */
int roost_kernel_redeploy(struct ibv_context *ctx, const struct roost_kernel *k, void *self);

/*
 * The same with kernels out of files: shared objects with ROOST_KERNEL_EXPORT (roost/kernel.h). The
 * file is copied, and is not needed afterwards: a new version may have the same path. An object
 * goes when its last call has ended: with this, the next one of these functions, or the next list.
 * 0 or an errno, with one line that says what is wrong in why[len] (NULL: unwanted), and nothing
 * changed: ENOEXEC: no shared object, not all of one, or symbols are missing; EINVAL: no kernel in
 * it, or one that makes no sense; EPROTO: of another ABI; else as above. Any thread.
 *
 * A kernel is code in this process: load what you trust as you trust your program.
 */
int roost_kernel_load(struct ibv_context *ctx, const char *path, char *why, size_t len);
int roost_kernel_replace(struct ibv_context *ctx, const char *path, char *why, size_t len);
/*
 * Calls with this op-code find no kernel from now on; those under way go on. Of kernels that were
 * deployed, too. ENOENT. Any thread.
 */
int roost_kernel_unload(struct ibv_context *ctx, uint64_t op);

/*
 * Grants a region of this node's to the kernel with this op-code, in all its versions, until it is
 * unloaded: its calls may use it beside the one that their caller names, by number (roost_in() in
 * roost/kernel.h). access: IBV_ACCESS_REMOTE_READ, _WRITE, _ATOMIC, what it may; the region needs
 * local write for the last two, and no remote right, so that no peer reaches it but by the kernel.
 * EINVAL: other rights; ENOENT; ENOSPC: it has 8. When mr is deregistered its grants are void. Any
 * thread.
 */
int roost_kernel_grant(struct ibv_context *ctx, uint64_t op, struct ibv_mr *mr, unsigned access,
		       unsigned *number);
/* Takes it back: ENOENT. Replies that come from there may still be sent. Any thread. */
int roost_kernel_revoke(struct ibv_context *ctx, uint64_t op, unsigned number);

/*
 * Binds a queue pair to the kernel with this op-code, in all its versions: it may post READs,
 * WRITEs, SENDs and atomics of its own to it, by number (roost_qp_post() in roost/kernel.h). They
 * have 64 slots of their own in the send queue, complete nowhere but in the kernel, and go in the
 * order in which the NIC takes them: the program may go on posting, and what it posts is not in
 * order with what the kernel does. One that fails takes the queue pair to the error state, as any,
 * with IBV_EVENT_QP_FATAL; destroying the queue pair ends the binding, resetting it does not.
 * ENOENT; ENOSPC: it has 64; EOPNOTSUPP: not RC; EXDEV: another processing unit runs it than those
 * that the kernel has; ENOMEM. Any thread.
 *
 * limits says how much of it: a work request of the program's waits for those of kernels that were
 * there before. NULL: all there is room for.
 */
struct roost_qp_limits {
	/*
	 * of the kernel, by whatever invocations, under way there at once; 0: 64, with those of
	 * other kernels
	 */
	uint32_t ops;
	/* of these together; an operation with more is refused, ROOST_QP_INVALID; 0: any */
	uint64_t bytes;
};
int roost_kernel_bind_qp(struct ibv_context *ctx, uint64_t op, struct ibv_qp *qp,
			 const struct roost_qp_limits *limits, unsigned *number);
/* Takes it back: ENOENT. What is under way goes on. Any thread. */
int roost_kernel_unbind_qp(struct ibv_context *ctx, uint64_t op, unsigned number);

enum roost_kernel_state {
	ROOST_KERNEL_ACTIVE,
	ROOST_KERNEL_LEAVING, /* replaced or unloaded: has calls under way */
	/*
	 * a step of it crashed, or did not return: calls get ROOST_RPC_DISABLED until it is
	 * replaced
	 */
	ROOST_KERNEL_DISABLED,
};

enum roost_kernel_flags {
	ROOST_KERNEL_FALLBACK = 1 << 0,
	ROOST_KERNEL_LOADED = 1 << 1, /* out of a file */
};

/* A version of a kernel. The active version counts what older versions have that are gone. */
struct roost_kernel_info {
	char name[ROOST_KERNEL_NAME];
	uint64_t op;
	uint32_t version;
	uint32_t state;	    /* enum roost_kernel_state */
	uint32_t flags;	    /* enum roost_kernel_flags */
	uint32_t in_flight; /* calls */
	uint64_t calls;	    /* begun */
	uint64_t steps;	    /* times its functions were run */
	uint64_t payload_bytes;
	uint64_t ended_ok, ended_other; /* calls ended with status 0, with one of its own */
	uint64_t bad_params, access, too_long, bound;
	uint64_t faults, stuck; /* calls that made it crash, or not return */
	uint64_t disabled;	/* calls that found it out of service */
	uint64_t dropped;	/* in progress when their queue pair ended */
	/*
	 * How long calls of this version took on the node, `timed` of them: from the beginning of
	 * the turn of the NIC in which their parameters came to the end of that in which their
	 * reply was posted. Percentiles are within 1.6%.
	 */
	uint64_t timed, p50_ns, p99_ns, max_ns;
	uint32_t resources, resources_max; /* that are taken now (roost_take()), and that it has */
};
/*
 * Fills info[max]; returns how many there are, which may be more. Active versions come first. Any
 * thread.
 */
unsigned roost_kernel_list(struct ibv_context *ctx, struct roost_kernel_info *info, unsigned max);

/* ---- calls, with all that belongs to them ---- */

/*
 * A caller has memory for parameters and replies of several calls on one queue pair, posts them and
 * looks for their replies. One thread at a time. Its work requests have wr_id 0 and ask for no
 * completion; a failed one completes in the queue pair's CQ, as any.
 */
struct roost_caller;

struct roost_result {
	unsigned status; /* enum roost_rpc_status, or the kernel's own */
	uint32_t len;	 /* bytes of the reply */
	/* NULL when they did not fit (ROOST_RPC_TOO_LONG); stays until roost_call_end() */
	const void *data;
};

/*
 * For `calls` (1 .. 64) at once, each with `room` bytes for the data of its reply. The queue pair
 * must outlive it, and leave room for them in its send queue. NULL with errno.
 */
struct roost_caller *roost_caller_create(struct ibv_qp *qp, unsigned calls, uint32_t room);
/*
 * The queue pair sends nothing to its memory any more: it was reset or destroyed, or each call has
 * its reply.
 */
void roost_caller_destroy(struct roost_caller *caller);

/*
 * Begins a call. flags: enum roost_rpc_flags; with ROOST_RPC_STREAM its payload is the next
 * roost_post_rpc_write() with this op-code. *id names the call. EAGAIN: `calls` are under way;
 * EMSGSIZE: parameters too long; else as roost_post_rpc().
 */
int roost_call_begin(struct roost_caller *caller, uint64_t op, uint32_t rkey, const void *params,
		     uint32_t len, unsigned flags, unsigned *id);
/*
 * 0 and *result, when the reply is there. EAGAIN: not yet; ENOTCONN: the queue pair has ended.
 * Drives the NIC.
 */
int roost_call_poll(struct roost_caller *caller, unsigned id, struct roost_result *result);
/* Waits for it. ETIMEDOUT after timeout_ns: call again, or give it up; 0: for ever. */
int roost_call_wait(struct roost_caller *caller, unsigned id, uint64_t timeout_ns,
		    struct roost_result *result);
/*
 * Done with the call's data. One without a reply is given up: its slot is used again when the
 * reply, which may still come, has come.
 */
void roost_call_end(struct roost_caller *caller, unsigned id);

/*
 * begin, wait, copy the data (at most `room` bytes, result->data then is `reply`), end. Errors as
 * of all of these.
 */
int roost_call(struct roost_caller *caller, uint64_t op, uint32_t rkey, const void *params,
	       uint32_t len, void *reply, uint32_t room, uint64_t timeout_ns,
	       struct roost_result *result);

/* ---- kernels without a peer that calls them ---- */

/* A deployed kernel, and what it begins with. */
struct roost_invocation_attr {
	uint64_t op;
	const void *params; /* what a call has behind its head */
	uint32_t params_len;
	/* the region of all its accesses, with the rights of a work request's; NULL: none */
	struct ibv_mr *mr;
	void *reply;   /* where its reply goes; must stay */
	uint32_t room; /* bytes of it */
};

enum roost_side {
	ROOST_IN, /* WRITEs of the peer, as they reach memory. Of RC and UC queue pairs */
	/*
	 * WRITEs and SENDs before they leave, which a kernel with `rewrites` changes in place. Of
	 * RC queue pairs
	 */
	ROOST_OUT,
};

struct roost_hook;

/*
 * Attaches a kernel with a stream() to one side of a queue pair, behind the one that may be
 * attached there: two make a chain. It sees each byte once, in order; what it rewrites is kept
 * until it is acknowledged, so copies on the wire are equal, and at most 128 packets of such a
 * queue pair are in flight. The kernel stays in the version that it has now. NULL with errno:
 * ENOENT: no kernel; EOPNOTSUPP: it has no stream(), or rewrites what came in, or the queue pair is
 * of another type; EBUSY: OUT, while something is in flight; ENOSPC: two are attached there;
 * EINVAL, EFAULT, EIO: the kernel refused its parameters (what it refuses after it has waited for
 * operations of its own says roost_hook_query(); the stream waits until then). Any thread.
 */
struct roost_hook *roost_qp_attach(struct ibv_qp *qp, enum roost_side side,
				   const struct roost_invocation_attr *attr);
/*
 * The same on the WRITEs of all peers into a region, by its rkey or that of a window which is bound
 * to it; another region that the same memory has is another one. Messages of several queue pairs
 * come piece by piece, mixed. Eight regions. ibv_dereg_mr() says EBUSY before it has ended.
 */
struct roost_hook *roost_mr_attach(struct ibv_mr *mr, const struct roost_invocation_attr *attr);
/*
 * 0; or an errno: the kernel gave up, and the stream goes on without it. *bytes (may be NULL): what
 * it has seen. Any thread.
 */
int roost_hook_query(struct roost_hook *hook, uint64_t *bytes);
/*
 * Detaches it: the kernel sees the end of its stream, and its reply, if it has one, is *result (may
 * be NULL; ->data is attr->reply). A queue pair may be
 * gone before; the context not. EBUSY: it rewrites, and something is in flight; or it waits for
 * what it has under way on queue pairs that are bound to it, be it at the end, or that is not done:
 * it sees no more of the stream, and all of that is done when a later call says 0. Any thread.
 */
int roost_hook_detach(struct roost_hook *hook, struct roost_result *result);

/*
 * Starts a kernel of this process's own NIC, without a peer that calls it: it goes on in turns of
 * the NIC, whoever drives that, and may wait for what it does on queue pairs that are bound to it.
 * `payload` (NULL: none) is handed over as that of an RPC WRITE, of up to 2^31 bytes; it,
 * attr->reply and the region must stay until the end. Accesses are done at once, so a remote
 * caller's are hidden better. NULL with errno: ENOENT, EINVAL, EMSGSIZE, ENOMEM. Any thread but the
 * NIC's.
 */
struct roost_run;
struct roost_run *roost_run_start(struct ibv_context *ctx, const struct roost_invocation_attr *attr,
				  const void *payload, uint64_t len);
/*
 * 0 when it is done, with its reply; EAGAIN: not yet; ENOTCONN: never, in the child of a fork. A
 * kernel that waits for more payload when there is none has status 0 and no data. Drives the NIC.
 * Any thread.
 */
int roost_run_poll(struct roost_run *run, struct roost_result *result);
/* Waits for it. ETIMEDOUT after timeout_ns, 0: for ever; or ENOTCONN. */
int roost_run_wait(struct roost_run *run, uint64_t timeout_ns, struct roost_result *result);
/*
 * Done with it. One that is still running is given up: its kernel is not run again, and told by
 * cut() when what it has under way on queue pairs is done; until then that goes on, and the kernel
 * counts as in use.
 */
void roost_run_end(struct roost_run *run);
/*
 * All of these, for ever: 0, ENOTCONN, or the errors of the first. For the host's own use of
 * registered kernels, as hll's estimates.
 */
int roost_kernel_run(struct ibv_context *ctx, const struct roost_invocation_attr *attr,
		     const void *payload, uint64_t len, struct roost_result *result);

#ifdef __cplusplus
}
#endif
#endif
