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
#include "kernels/local_call.h"

struct local_call {
	struct roost_call c;
	struct kernel_wrs wrs;
	struct nic_stream_hook stream;
	struct kernel_runtime *rt;
	struct kernel_version *s;
	unsigned pu;	     /* the PU of its operations and turns */
	unsigned current_pu; /* the PU of the current piece */
	/* current_pu is not pu: it continues at `pu` after it has left the current one */
	bool moves_pu;
	struct local_call *next_handed;
	uint32_t pd, key;
	uint8_t *reply;
	struct nic_qp *qp; /* attached to a stream of this queue pair */
	bool on_region;	   /* attached to a region; pieces take `lock` */
	bool remote_pu;	   /* attached to a queue pair of another PU; pieces take `lock` too */
	bool detached;	   /* detached, but the region still counts it as a hook */
	bool finished, refused, replied;
	bool concluded; /* its stream has ended and is not paused any more */
	/* for a local call that the host runs */
	struct list_head link; /* in runtime_pu.runs: it can continue */
	bool runs;
	/* for one that the host runs, or that pauses its stream */
	bool pending;				     /* the request in c.ask is not done yet */
	enum roost_next (*fn)(struct roost_call *c); /* current function; NULL: none */
	const uint8_t *payload;			     /* NULL: no more */
	uint64_t fed, total;
	atomic_bool done; /* finished, for other threads */
	struct deferred_free deferred;
	/* for a kernel that changes lengths */
	bool busy;	      /* it is not done with its piece */
	const uint8_t *ready; /* output that was not taken yet */
	uint32_t num_ready;
	uint32_t left;	 /* steps left for the piece, or since the last wait */
	uint32_t passed; /* bytes that were passed on without the kernel */
	struct local_call_result result;
	struct spin lock; /* WRITEs from QPs of several PUs go to a region */
	uint8_t *body;	  /* parameters, state, scratch */
};

/* local_call.c */
int local_call_make(struct kernel_runtime *rt, unsigned pu, const struct local_call_attr *a,
		    struct local_call **out); /* runs no function yet */
void local_call_close(struct local_call *p);  /* no operation uses its memory any more */
void local_call_finish(struct local_call *p, uint32_t status, uint32_t len);
void local_call_show(struct local_call *p, const uint8_t *data, uint32_t off, uint32_t len,
		     uint32_t total, bool last);
/* Runs the kernel once. Within a guard's scope. */
enum roost_next local_call_step(struct local_call *p, enum roost_next (*fn)(struct roost_call *c),
				unsigned pu);
bool local_call_perform(struct local_call *p); /* does the request in c.ask; false: it waits */
void local_call_replied(struct local_call *p);
/* the running step was left by a signal */
void local_call_trapped(struct local_call *p, struct guard *g);

/* run.c */
void local_call_wake(struct kernel_wrs *a);
void local_call_hand_over(struct local_call *p);

#endif
