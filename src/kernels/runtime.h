/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel runtime: serves the calls that the core carries (struct nic_rpc_ops) by running
 * kernels (roost/kernel.h). One for each NIC.
 *
 * A call holds one of its QP's slots from its first packet until its reply is acknowledged; when
 * all are held, the QP alone gets RNR NAKs. Nothing is allocated for a call. Thread rules as in
 * nic/nic.h.
 */
#ifndef ROOST_KERNELS_RUNTIME_H
#define ROOST_KERNELS_RUNTIME_H

#include "nic/nic.h"
#include "roost/kernel.h"

#define RUNTIME_MAX_KERNELS 64
#define RUNTIME_MAX_CALLS   64 /* slots of a QP */

struct kernel_runtime;
struct kernel_version;

struct runtime_config {
	unsigned calls;	    /* slots of a QP, 1 .. RUNTIME_MAX_CALLS; 0: all */
	uint32_t max_steps; /* of a call, then it ends with ROOST_RPC_BOUND; 0: 2^20 */
	/* nothing of a stream for so long ends its call with ROOST_RPC_IDLE; 0: 10 s */
	uint64_t idle_ns;
	bool timed; /* who drives the NIC says when turns are over: nic_wants_time() */
};

#define RUNTIME_COUNTERS(X)                                                                        \
	X(calls, "calls begun")                                                                    \
	X(steps, "times a kernel was run")                                                         \
	X(payload_bytes, "bytes of payload handed to kernels")                                     \
	X(ended_ok, "calls ended with status 0")                                                   \
	X(ended_other, "calls ended with a status of their kernel's")                              \
	X(no_kernel, "calls and payloads for which no kernel is registered")                       \
	X(bad_params, "calls whose parameters were refused")                                       \
	X(access, "calls ended by an access that was refused")                                     \
	X(too_long, "calls whose reply did not fit")                                               \
	X(bound, "calls ended because they went on for too long")                                  \
	X(faults, "calls ended by a crash of their kernel")                                        \
	X(stuck, "calls ended since a step of their kernel did not return")                        \
	X(disabled, "calls of kernels that are out of service")                                    \
	X(lost, "replies out of memory that was gone before they were sent: ROOST_RPC_ACCESS")     \
	X(malformed, "calls without a head that makes sense: dropped, nobody to tell")             \
	X(work_requests,                                                                           \
	  "READs, WRITEs, SENDs and atomics of kernels on queue pairs that are bound to them")     \
	X(work_requests_failed, "of these, that ended with another status than ROOST_QP_OK")       \
	X(refused, "packets of calls that found no room: RNR NAKs")                                \
	X(idle, "calls ended since nothing came of their payload: ROOST_RPC_IDLE")                 \
	X(resources_refused, "resources of kernels that calls did not get")                        \
	X(resources_ended, "resources of kernels whose connection ended")                          \
	X(dropped, "calls in progress when their QP ended")

struct runtime_counters {
#define RUNTIME_COUNTER_FIELD(name, help) uint64_t name;
	RUNTIME_COUNTERS(RUNTIME_COUNTER_FIELD)
#undef RUNTIME_COUNTER_FIELD
};
#define RUNTIME_COUNTER_COUNT (sizeof(struct runtime_counters) / sizeof(uint64_t))

struct runtime_counter_info {
	const char *name, *help;
};
/* as in the struct */
extern const struct runtime_counter_info runtime_counter_info[RUNTIME_COUNTER_COUNT];

/*
 * Serves `nic` until that ends, and goes with it; for QPs that are given the op-codes of calls from
 * now on. cfg may be NULL. 0, -EINVAL, -ENOMEM, -EEXIST. [control+owner of all PUs]
 */
int runtime_create(struct nic *nic, const struct runtime_config *cfg, struct kernel_runtime **out);
/* The NIC's; NULL: it has none. [control] */
struct kernel_runtime *runtime_of(const struct nic *nic);

/*
 * What a QP may take, so that others have their share: calls in flight, beyond which it gets RNR
 * NAKs; and steps a turn of its PU, beyond which its calls wait for the next turn. 0: as many as
 * there are. QPs of a PU take steps in turns, whatever their quotas.
 */
struct runtime_quota {
	uint32_t calls, steps;
};
/* 0; -EINVAL: no QP of calls. [control+owner] */
int runtime_set_quota(struct kernel_runtime *rt, struct nic_qp *qp,
		      const struct runtime_quota *quota);

struct guard;
/* That under which PU i's steps are run, to be watched: base/guard.h. */
struct guard *runtime_guard(struct kernel_runtime *rt, unsigned i);

/* Of one kernel. */
#define KERNEL_COUNTERS(X)                                                                         \
	X(calls, "calls begun")                                                                    \
	X(steps, "times it was run")                                                               \
	X(payload_bytes, "bytes of payload handed to it")                                          \
	X(ended_ok, "calls ended with status 0")                                                   \
	X(ended_other, "calls ended with a status of its own")                                     \
	X(bad_params, "calls whose parameters were refused")                                       \
	X(access, "calls ended by an access that was refused")                                     \
	X(too_long, "calls whose reply did not fit")                                               \
	X(bound, "calls ended because they went on for too long")                                  \
	X(faults, "calls ended by a crash")                                                        \
	X(stuck, "calls ended by a step that did not return")                                      \
	X(disabled, "calls that found it out of service")                                          \
	X(dropped, "calls in progress when their QP ended")

struct kernel_counters {
#define KERNEL_COUNTER_FIELD(name, help) uint64_t name;
	KERNEL_COUNTERS(KERNEL_COUNTER_FIELD)
#undef KERNEL_COUNTER_FIELD
};

struct object;

/* A kernel to register, or to replace the registered one. */
struct runtime_registration {
	const struct roost_kernel *k; /* stays as long as it is there */
	/* what its functions see first as theirs; not of one that takes over its forerunner's */
	void *self;
	struct object *object; /* that it came in: ends with it. NULL: none */
	bool replace;	       /* the kernel that has its op-code, which must be there */
	/* for calls whose op-code nobody has; its own does not count, `replace` says nothing */
	bool fallback;
};

/*
 * Makes ready: looks at the descriptor, and runs the kernel's start() or take_over(), while PUs go
 * on. 0 and *out, for runtime_publish(); -EINVAL: a descriptor that makes no sense; -EPROTO: of
 * another ABI; -EEXIST: the op-code is taken; -ENOENT: there is nothing to replace; -ENOSPC;
 * -ENOMEM; or what its function says. [control]
 */
int runtime_prepare(struct kernel_runtime *rt, const struct runtime_registration *n,
		    struct kernel_version **out);
/*
 * Calls that come from now on run it. Those that run what it replaces go on with that. In the same
 * control call as runtime_prepare(). [control+owner of all PUs]
 */
void runtime_publish(struct kernel_runtime *rt, struct kernel_version *s);
/* Both. [control+owner of all PUs] */
int runtime_deploy(struct kernel_runtime *rt, const struct roost_kernel *k, void *self);
/* Takes no new calls; those under way go on. -ENOENT. [control+owner of all PUs] */
int runtime_unload(struct kernel_runtime *rt, uint64_t op);
/*
 * The same, and it is gone when this returns. -EBUSY while calls run it, or an older version of it.
 * [control+owner of all PUs]
 */
int runtime_undeploy(struct kernel_runtime *rt, uint64_t op);
/*
 * For calls whose op-code nobody has: as runtime_deploy(), its own op-code does not count. NULL:
 * none. -EBUSY while calls run the one before. [control+owner of all PUs]
 */
int runtime_set_fallback(struct kernel_runtime *rt, const struct roost_kernel *k, void *self);
/*
 * Ends what takes no calls any more and has none under way; its functions and memory are not used
 * again. Any of these do it too. [control]
 */
void runtime_reap(struct kernel_runtime *rt);

/*
 * Grants a region to the kernel that has this op-code, in all its versions: `key` of protection
 * domain pd, as kernels see it. *number is how they name it, from 1. -ENOENT, -ENOSPC: it has
 * ROOST_KERNEL_GRANTS. A key that is deregistered grants nothing any more. [control+owner of all
 * PUs]
 */
int runtime_grant(struct kernel_runtime *rt, uint64_t op, const struct roost_grant *region,
		  uint32_t pd, uint32_t key, unsigned *number);
/* Takes it back; its number may be given to another region. -ENOENT. [control+owner of all PUs] */
int runtime_revoke(struct kernel_runtime *rt, uint64_t op, unsigned number);

/*
 * How much of a QP: operations of the kernel's, and their bytes, that may be under way there at
 * once. 0: as much as there is room for.
 */
struct runtime_qp_limits {
	uint32_t ops;
	uint64_t bytes;
};
/*
 * Binds a QP to it, to it may post, in all its versions, until the QP is destroyed. *number is how
 * kernels name it, from 1. -ENOENT, -ENOSPC: it has ROOST_KERNEL_QPS; -EXDEV: another PU runs it
 * than those it has; or what nic_qp_enable_kernel_wrs() says. [control+owner of all PUs]
 */
int runtime_bind_qp(struct kernel_runtime *rt, uint64_t op, struct nic_qp *qp,
		    const struct runtime_qp_limits *limits, unsigned *number);
/* Takes it back: what is under way goes on. -ENOENT. [control+owner of all PUs] */
int runtime_unbind_qp(struct kernel_runtime *rt, uint64_t op, unsigned number);
/* The PU that runs those; 0: none are bound. [control] */
unsigned runtime_pu_of(struct kernel_runtime *rt, uint64_t op);

enum runtime_kernel_state {
	RUNTIME_KERNEL_ACTIVE,
	RUNTIME_KERNEL_LEAVING,	 /* replaced or unloaded: has calls under way */
	RUNTIME_KERNEL_DISABLED, /* it crashed, or did not return */
};

/*
 * How long its calls took, in ns: from the beginning of the turn in which their parameters came (of
 * payload that nobody announced: its first piece) to the end of that in which their reply was
 * handed to the NIC, or they ended without. Nothing of calls whose QP ended. Within 1.6%, the
 * largest exact.
 */
struct runtime_times {
	uint64_t count, p50, p99, max;
};

struct runtime_kernel_info {
	const struct roost_kernel *k;
	uint64_t op;
	enum runtime_kernel_state state;
	bool fallback, loaded;
	uint32_t in_flight;
	/* of the active version: with those of older versions that have gone */
	struct kernel_counters ctr;
	/* of this version alone; none of a kernel runtime that is not `timed` */
	struct runtime_times times;
	uint32_t resources,
		resources_max; /* taken now, and that there are, of all versions that share them */
};
/* What is there, number i: active versions first. False: no more. [control+owner of all PUs] */
bool runtime_kernel_info(const struct kernel_runtime *rt, unsigned i,
			 struct runtime_kernel_info *out);

/* The sum over all PUs. [owner of all PUs] */
void runtime_counters(const struct kernel_runtime *rt, struct runtime_counters *out);
/* Of one. [owner of the PU] */
void runtime_pu_counters(const struct kernel_runtime *rt, unsigned pu,
			 struct runtime_counters *out);

#endif
