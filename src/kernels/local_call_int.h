/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Internals of local calls: kernels on a stream (local_call.c), or run by the host (run.c). The
 * functions are called by the owner of the local call's PU, or of the PU that hands it bytes.
 */
#ifndef ROOST_KERNELS_LOCAL_CALL_INT_H
#define ROOST_KERNELS_LOCAL_CALL_INT_H

#include "base/mem.h"
#include "base/spin.h"
#include "kernels/call.h"
#include "kernels/invocation.h"
#include "kernels/local_call.h"

struct local_call {
	struct invocation i;
	struct nic_stream_hook stream;
	struct kernel_runtime *rt;
	unsigned pu; /* the PU of its operations and turns */
	/* i.pu is not `pu`: the local call continues there when it has left the current PU */
	bool moves_pu;
	struct local_call *next_handed;
	uint8_t *reply;
	struct nic_qp *qp; /* attached to a stream of this queue pair */
	bool on_region;	   /* attached to a region; pieces take `lock` */
	bool remote_pu;	   /* attached to a queue pair of another PU; pieces take `lock` too */
	bool detached;	   /* detached, but the region still counts it as a hook */
	bool finished;
	bool stream_done; /* the stream has ended and is not paused any more */
	/* for a local call that the host runs */
	struct list_head link; /* in runtime_pu.local_calls while the local call can continue */
	bool by_host;
	const uint8_t *payload; /* NULL: no more */
	uint64_t bytes_fed, total;
	/* finished: stored (release) after the reply; other threads load it (acquire) before */
	atomic_bool done;
	/*
	 * i.fn is not done and continues in turns of `pu`: the host runs it, or its stream is
	 * paused
	 */
	bool in_turns;
	struct deferred_free deferred;
	/* for a kernel that changes lengths */
	bool busy;	/* the kernel is not done with its piece */
	bool producing; /* data that the kernel sends are output for the stream */
	/* output that was not taken yet: num_ready bytes here or, if NULL, at ready_va */
	const uint8_t *ready;
	nic_rpc_key ready_key;
	uint64_t ready_va;
	uint32_t num_ready;
	uint32_t bytes_bypassed; /* bytes that were passed on without the kernel */
	struct local_call_result result;
	struct spin lock; /* WRITEs from QPs of several PUs go to a region */
	uint8_t *body;	  /* parameters, state, scratch */
};

static inline struct local_call *local_call_of(const struct invocation *i)
{
	return (struct local_call *)(uintptr_t)container_of(i, struct local_call, i);
}

/* backend_host.c */
extern const struct ask_backend host_backend;
/* Runs a step. Within a guard's scope. */
enum step_result local_call_step(struct local_call *p);
void local_call_finish(struct local_call *p, uint32_t status, uint32_t len);

/* local_call.c */
int local_call_make(struct kernel_runtime *rt, unsigned pu, const struct local_call_attr *a,
		    struct local_call **out); /* runs no function yet */
void local_call_close(struct local_call *p);  /* call it when no operation uses the memory */
void local_call_show(struct local_call *p, const uint8_t *data, uint32_t off, uint32_t len,
		     uint32_t total, bool last);
/* Runs a function of the kernel until it ends or waits, on a PU that the caller owns. */
void local_call_run_function(struct local_call *p, enum roost_next (*fn)(struct roost_call *c),
			     unsigned pu);

/* hook.c */
void local_call_init_hook(struct local_call *p);

/* run.c */
void local_call_wake(struct kernel_wrs *a);
void local_call_pass_on(struct local_call *p);

#endif
