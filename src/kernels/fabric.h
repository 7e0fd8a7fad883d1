/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel fabric: serves the calls that the core carries (struct nic_rpc_ops) by running kernels (roost/kernel.h). One for each NIC.
 *
 * A call holds one of its QP's slots from its first packet until its reply is acknowledged; when all are held, the QP alone gets RNR NAKs.
 * Nothing is allocated for a call. Thread rules as in nic/nic.h.
 */
#ifndef ROOST_KERNELS_FABRIC_H
#define ROOST_KERNELS_FABRIC_H

#include "nic/nic.h"
#include "roost/kernel.h"

#define FABRIC_MAX_KERNELS 64
#define FABRIC_MAX_CALLS   64 /* slots of a QP */

struct fabric;

struct fabric_config {
	unsigned calls;	    /* slots of a QP, 1 .. FABRIC_MAX_CALLS; 0: all */
	uint32_t max_steps; /* of a call, then it ends with ROOST_RPC_BOUND; 0: 2^20 */
};

#define FABRIC_COUNTERS(X)                                                                                   \
	X(calls, "calls begun")                                                                              \
	X(steps, "times a kernel was run")                                                                   \
	X(payload_bytes, "bytes of payload handed to kernels")                                               \
	X(ended_ok, "calls ended with status 0")                                                             \
	X(ended_other, "calls ended with a status of their kernel's")                                        \
	X(no_kernel, "calls and payloads for which no kernel stands")                                        \
	X(bad_params, "calls whose parameters were refused")                                                 \
	X(access, "calls ended by an access that was refused")                                               \
	X(too_long, "calls whose reply did not fit")                                                         \
	X(bound, "calls ended because they went on for too long")                                            \
	X(malformed, "calls without a head that makes sense: dropped, nobody to tell")                       \
	X(refused, "packets of calls that found no room: RNR NAKs")                                          \
	X(dropped, "calls in progress when their QP ended")

struct fabric_counters {
#define FABRIC_COUNTER_FIELD(name, help) uint64_t name;
	FABRIC_COUNTERS(FABRIC_COUNTER_FIELD)
#undef FABRIC_COUNTER_FIELD
};
#define FABRIC_COUNTER_COUNT (sizeof(struct fabric_counters) / sizeof(uint64_t))

struct fabric_counter_info {
	const char *name, *help;
};
extern const struct fabric_counter_info fabric_counter_info[FABRIC_COUNTER_COUNT]; /* as in the struct */

/*
 * Serves `nic` until that ends, and goes with it; for QPs that are given the op-codes of calls from now on. cfg may be NULL. 0, -EINVAL, -ENOMEM,
 * -EEXIST. [control+owner of all PUs]
 */
int fabric_create(struct nic *nic, const struct fabric_config *cfg, struct fabric **out);
/* The NIC's; NULL: it has none. [control] */
struct fabric *fabric_of(const struct nic *nic);

/*
 * A kernel for calls with its op-code; `self` is what its functions see first as theirs. k stays. 0; -EINVAL: a descriptor that makes no
 * sense; -EPROTO: of another ABI; -EEXIST: the op-code is taken; -ENOSPC; or what its start() says. [control+owner of all PUs]
 */
int fabric_deploy(struct fabric *f, const struct roost_kernel *k, void *self);
/* -ENOENT, -EBUSY while calls run it. What is not undeployed ends with the NIC. [control+owner of all PUs] */
int fabric_undeploy(struct fabric *f, uint64_t op);
/* For calls whose op-code nobody has: as fabric_deploy(), its own op-code does not count. NULL: none. -EBUSY. [control+owner of all PUs] */
int fabric_set_fallback(struct fabric *f, const struct roost_kernel *k, void *self);
/* Deployed kernels, first to last; NULL behind them. [control] */
const struct roost_kernel *fabric_kernel(const struct fabric *f, unsigned i);

/* The sum over all PUs. [owner of all PUs] */
void fabric_counters(const struct fabric *f, struct fabric_counters *out);
/* Of one. [owner of the PU] */
void fabric_pu_counters(const struct fabric *f, unsigned pu, struct fabric_counters *out);

/* Built-in kernels, by name; NULL: no such one. Any thread. */
const struct roost_kernel *kernels_builtin(const char *name);
/* The same by number, for lists. */
const struct roost_kernel *kernels_builtin_at(unsigned i);

#endif
