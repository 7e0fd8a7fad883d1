/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel runtime runs kernels (roost/kernel.h) for the calls that the core receives (struct
 * nic_rpc_ops). There is one for each NIC.
 *
 * A call holds one of its QP's slots from its first packet until its reply is acknowledged. When
 * all slots of a QP are held, this QP gets RNR NAKs. Nothing is allocated for a call. Thread rules
 * are as in nic/nic.h.
 */
#ifndef ROOST_KERNELS_RUNTIME_H
#define ROOST_KERNELS_RUNTIME_H

#include "nic/nic_kernel_wr.h"
#include "nic/nic_rpc.h"
#include "nic/nic_stream.h"
#include "roost/kernel.h"

#define RUNTIME_MAX_KERNELS 64
#define RUNTIME_MAX_CALLS   256 /* slots of a QP, a power of two */

struct kernel_runtime;
struct kernel_version;

struct runtime_config {
	unsigned calls;	    /* slots of a QP, 1 .. RUNTIME_MAX_CALLS; 0: all */
	uint32_t max_steps; /* a call with more steps ends with ROOST_RPC_BOUND; 0: 2^20 */
	/* a stream without data for this time ends its call with ROOST_RPC_IDLE; 0: 10 s */
	uint64_t idle_ns;
	bool timed; /* the drive reports the ends of turns: nic_turn_end_requested() */
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
	X(bound, "calls ended at their limit of steps or elements")                                \
	X(faults, "calls ended by a crash of their kernel")                                        \
	X(stuck, "calls ended because a step of their kernel did not return")                      \
	X(disabled, "calls of kernels that are disabled")                                          \
	X(lost, "replies whose data were deregistered before: ROOST_RPC_ACCESS")                   \
	X(malformed, "calls dropped: without a valid head, so no reply is possible")               \
	X(work_requests,                                                                           \
	  "READs, WRITEs, SENDs and atomics of kernels on queue pairs that are bound to them")     \
	X(work_requests_failed, "such operations that ended with another status than ROOST_QP_OK") \
	X(refused, "packets of calls that found no space: RNR NAKs")                               \
	X(idle, "calls ended because no payload came: ROOST_RPC_IDLE")                             \
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
/* rows in the order of the struct's fields */
extern const struct runtime_counter_info runtime_counter_info[RUNTIME_COUNTER_COUNT];

/*
 * Creates the kernel runtime of `nic`. It ends with the NIC. It serves QPs to which the op-codes of
 * calls are given from now on. cfg may be NULL. Returns 0, -EINVAL, -ENOMEM or -EEXIST.
 * [control+owner of all PUs]
 */
int runtime_create(struct nic *nic, const struct runtime_config *cfg, struct kernel_runtime **out);
/* Returns the NIC's kernel runtime, or NULL. [control] */
struct kernel_runtime *runtime_of(const struct nic *nic);

/*
 * Limits of a QP. `calls` is the number of calls in flight, without one that only waits for the ACK
 * of its reply; beyond it the QP gets RNR NAKs. `steps` is the number of steps in a turn of the PU;
 * beyond it the QP's calls wait for the next turn. 0 means no limit. The QPs of a PU take steps
 * round-robin, whatever their quotas.
 */
struct runtime_quota {
	uint32_t calls, steps;
};
/* Returns 0, or -EINVAL if the QP has no calls. [control+owner] */
int runtime_set_quota(struct kernel_runtime *rt, struct nic_qp *qp,
		      const struct runtime_quota *quota);

struct guard;
/* Returns the guard of PU i's steps, for the watchdog: base/guard.h. */
struct guard *runtime_guard(struct kernel_runtime *rt, unsigned i);

/* Counters of one kernel. */
#define KERNEL_COUNTERS(X)                                                                         \
	X(calls, "calls begun")                                                                    \
	X(steps, "times it was run")                                                               \
	X(payload_bytes, "bytes of payload handed to it")                                          \
	X(ended_ok, "calls ended with status 0")                                                   \
	X(ended_other, "calls ended with a status of its own")                                     \
	X(bad_params, "calls whose parameters were refused")                                       \
	X(access, "calls ended by an access that was refused")                                     \
	X(too_long, "calls whose reply did not fit")                                               \
	X(bound, "calls ended at their limit of steps or elements")                                \
	X(faults, "calls ended by a crash")                                                        \
	X(stuck, "calls ended by a step that did not return")                                      \
	X(disabled, "calls refused because it is disabled")                                        \
	X(dropped, "calls in progress when their QP ended")

struct kernel_counters {
#define KERNEL_COUNTER_FIELD(name, help) uint64_t name;
	KERNEL_COUNTERS(KERNEL_COUNTER_FIELD)
#undef KERNEL_COUNTER_FIELD
};

struct object;

/* A kernel to register, or to replace the registered one. */
struct runtime_registration {
	const struct roost_kernel *k; /* remains valid while the kernel is registered */
	/* initial `self`; unused if the kernel takes over that of the replaced version */
	void *self;
	struct object *object; /* shared object with the kernel, closed with it; NULL: none */
	bool replace;	       /* replaces the kernel that has its op-code, which must exist */
	/* serves calls with an unknown op-code; k->op and `replace` are ignored */
	bool fallback;
};

/*
 * Prepares a version: checks the descriptor and runs the kernel's start() or take_over(). PUs
 * continue to run meanwhile. Stores the version in *out for runtime_publish(). [control]
 *
 * Returns 0, an error of start() or take_over(), or
 *	-EINVAL	invalid descriptor
 *	-EPROTO	the descriptor has another ABI
 *	-EEXIST	the op-code is taken
 *	-ENOENT	there is no kernel to replace
 *	-ENOSPC
 *	-ENOMEM
 */
int runtime_prepare(struct kernel_runtime *rt, const struct runtime_registration *n,
		    struct kernel_version **out);
/*
 * Makes a prepared version the active one. Calls in progress continue with their version. Must be
 * in the same control call as runtime_prepare(). [control+owner of all PUs]
 */
void runtime_publish(struct kernel_runtime *rt, struct kernel_version *s);
/* Prepares and publishes a kernel. [control+owner of all PUs] */
int runtime_deploy(struct kernel_runtime *rt, const struct roost_kernel *k, void *self);
/*
 * Unloads the kernel: it gets no new calls, and calls in progress continue. Returns 0 or -ENOENT.
 * [control+owner of all PUs]
 */
int runtime_unload(struct kernel_runtime *rt, uint64_t op);
/*
 * Unloads the kernel and frees it before it returns. Returns 0, -ENOENT, or -EBUSY while calls run
 * this or an older version of it. [control+owner of all PUs]
 */
int runtime_undeploy(struct kernel_runtime *rt, uint64_t op);
/*
 * Sets the kernel for calls with an unknown op-code; NULL: none. k->op is ignored. Errors are those
 * of runtime_deploy(), and -EBUSY while calls run the previous fallback. [control+owner of all PUs]
 */
int runtime_set_fallback(struct kernel_runtime *rt, const struct roost_kernel *k, void *self);
/*
 * Frees versions that get no new calls and have none in progress. Their functions and memory are
 * not used afterwards. The functions above also free such versions. [control]
 */
void runtime_reap(struct kernel_runtime *rt);

/*
 * Grants a region to the kernel with this op-code, in all its versions. The region is `key` of
 * protection domain pd, and *region as kernels see it. *number is the number by which kernels name
 * it, from 1. A grant ends if the key is deregistered. Returns 0, -ENOENT, or -ENOSPC if the kernel
 * has ROOST_KERNEL_GRANTS grants. [control+owner of all PUs]
 */
int runtime_grant(struct kernel_runtime *rt, uint64_t op, const struct roost_grant *region,
		  uint32_t pd, uint32_t key, unsigned *number);
/*
 * Revokes a grant. Its number may be reused. Returns 0 or -ENOENT. [control+owner of all PUs]
 */
int runtime_revoke(struct kernel_runtime *rt, uint64_t op, unsigned number);

/*
 * Limits of a bound queue pair: the kernel's operations in progress there, and their bytes. 0 means
 * no limit but that of the queue pair.
 */
struct runtime_qp_limits {
	uint32_t ops;
	uint64_t bytes;
};
/*
 * Binds a QP to the kernel with this op-code: all its versions may post to the QP until it is
 * destroyed. *number is the number by which kernels name it, from 1. [control+owner of all PUs]
 *
 * Returns 0, an error of nic_qp_enable_kernel_wrs(), or
 *	-ENOENT	no such kernel
 *	-ENOSPC	the kernel has ROOST_KERNEL_QPS bound queue pairs
 *	-EXDEV	the QP belongs to another PU than the kernel's other bound queue pairs
 */
int runtime_bind_qp(struct kernel_runtime *rt, uint64_t op, struct nic_qp *qp,
		    const struct runtime_qp_limits *limits, unsigned *number);
/*
 * Unbinds a QP. Operations in progress continue. Returns 0 or -ENOENT. [control+owner of all PUs]
 */
int runtime_unbind_qp(struct kernel_runtime *rt, uint64_t op, unsigned number);
/* Returns the PU of the kernel's bound queue pairs, or 0 if there are none. [control] */
unsigned runtime_pu_of(struct kernel_runtime *rt, uint64_t op);

enum runtime_kernel_state {
	RUNTIME_KERNEL_ACTIVE,
	RUNTIME_KERNEL_LEAVING,	 /* replaced or unloaded, with calls in progress */
	RUNTIME_KERNEL_DISABLED, /* the version crashed, or did not return */
};

/*
 * Durations of calls in ns. A call begins with the turn in which its parameters arrive (for payload
 * without parameters: its first piece). It ends with the turn in which its reply is handed to the
 * NIC, or in which it ends without a reply. Calls whose QP ended are not counted. The percentiles
 * are exact to 1.6%, the maximum is exact.
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
	/* the counters of the active version include older versions that were freed */
	struct kernel_counters ctr;
	/* of this version only; zero if the kernel runtime is not `timed` */
	struct runtime_times times;
	/* resources taken now, and in total; all versions that share them count together */
	uint32_t resources, resources_max;
};
/*
 * Describes version number i; active versions come first. Returns false if there is none.
 * [control+owner of all PUs]
 */
bool runtime_kernel_info(const struct kernel_runtime *rt, unsigned i,
			 struct runtime_kernel_info *out);

/* Returns the sum of the counters of all PUs. [owner of all PUs] */
void runtime_counters(const struct kernel_runtime *rt, struct runtime_counters *out);
/* Returns the counters of one PU. [owner of the PU] */
void runtime_pu_counters(const struct kernel_runtime *rt, unsigned pu,
			 struct runtime_counters *out);

#endif
