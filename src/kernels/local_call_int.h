/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside of local calls: a kernel on a stream (hook.c), or run by the host (run.c); the life of
 * both is local_call.c. All of the owner of its PU, or the one that hands it bytes.
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
	unsigned pu; /* whose operations it has, and in whose turns it goes on */
	/*
	 * The PU that runs it now is another one, where its piece came: it goes on at `pu`, when it
	 * has left that one.
	 */
	bool moves_pu;
	struct local_call *next_handed;
	uint8_t *reply;
	struct nic_qp *qp; /* to whose stream it is attached */
	bool on_region;	   /* or on that of a region: `lock` is taken */
	bool remote_pu;	   /* on one of another PU's: under `lock`, too */
	bool detached;	   /* it is there no more but for the region's sake */
	bool finished;
	bool concluded; /* its stream is at its end: the stream is not paused any more */
	/* of one that the host runs */
	struct list_head link; /* of the PU's: it can go on */
	bool runs;
	const uint8_t *payload; /* NULL: no more */
	uint64_t fed, total;
	atomic_bool done; /* finished, for other threads */
	/*
	 * i.fn is not done, and goes on in turns of `pu`: of one that the host runs, or of one on a
	 * stream that it pauses
	 */
	bool in_turns;
	struct deferred_free deferred;
	/* of a kernel that changes lengths, and its piece */
	bool busy;	/* it is not done with that */
	bool producing; /* what it sends goes to the stream */
	/* what it has made, and is not taken: num_ready bytes there or, NULL, at ready_va */
	const uint8_t *ready;
	nic_rpc_key ready_key;
	uint64_t ready_va;
	uint32_t num_ready;
	uint32_t passed; /* bytes that went on without it */
	struct local_call_result result;
	struct spin lock; /* WRITEs of several PUs' QPs come to a region */
	uint8_t *body;	  /* parameters, state, scratch */
};

static inline struct local_call *local_call_of(const struct invocation *i)
{
	return (struct local_call *)(uintptr_t)container_of(i, struct local_call, i);
}

/* backend_host.c */
extern const struct ask_backend host_backend;
/* A step. Within a guard's scope. */
enum step_result local_call_step(struct local_call *p);
void local_call_finish(struct local_call *p, uint32_t status, uint32_t len);

/* local_call.c */
int local_call_make(struct kernel_runtime *rt, unsigned pu, const struct local_call_attr *a,
		    struct local_call **out); /* nothing is run yet */
void local_call_close(struct local_call *p);  /* nothing of it is in use any more */
void local_call_show(struct local_call *p, const uint8_t *data, uint32_t off, uint32_t len,
		     uint32_t total, bool last);
/* One of the kernel's functions, to its end or until it waits, on a PU that the caller owns. */
void local_call_run_function(struct local_call *p, enum roost_next (*fn)(struct roost_call *c),
			     unsigned pu);

/* hook.c */
void local_call_init_hook(struct local_call *p);

/* run.c */
void local_call_wake(struct kernel_wrs *a);
void local_call_hand_over(struct local_call *p);

#endif
