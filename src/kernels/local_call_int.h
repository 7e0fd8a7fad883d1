/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside of local calls: a kernel on a stream (local_call.c), or run by the host (run.c). All of
 * the owner of its PU, or the one that hands it bytes.
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
	unsigned pu;	     /* whose operations it has, and in whose turns it goes on */
	unsigned current_pu; /* where the piece came that it is in */
	/* that is another one: it goes on at `pu`, when it has left the current one */
	bool moves_pu;
	struct local_call *next_handed;
	uint32_t pd, key;
	uint8_t *reply;
	struct nic_qp *qp; /* to whose stream it is attached */
	bool on_region;	   /* or on that of a region: `lock` is taken */
	bool remote_pu;	   /* on one of another PU's: under `lock`, too */
	bool detached;	   /* it is there no more but for the region's sake */
	bool finished, refused, replied;
	bool concluded; /* its stream is at its end: the stream is not paused any more */
	/* of one that the host runs */
	struct list_head link; /* of the PU's: it can go on */
	bool runs;
	/* of that, or of one on a stream that it pauses */
	bool pending;				     /* what c.ask says is still to be done */
	enum roost_next (*fn)(struct roost_call *c); /* that it is in; NULL: done with that */
	const uint8_t *payload;			     /* NULL: no more */
	uint64_t fed, total;
	atomic_bool done; /* finished, for other threads */
	struct deferred_free deferred;
	/* of a kernel that changes lengths, and its piece */
	bool busy;	      /* it is not done with that */
	const uint8_t *ready; /* what it has made, and is not taken */
	uint32_t num_ready;
	uint32_t left;	 /* steps for that, or since it last waited */
	uint32_t passed; /* bytes that went on without it */
	struct local_call_result result;
	struct spin lock; /* WRITEs of several PUs' QPs come to a region */
	uint8_t *body;	  /* parameters, state, scratch */
};

/* local_call.c */
int local_call_make(struct kernel_runtime *rt, unsigned pu, const struct local_call_attr *a,
		    struct local_call **out); /* nothing is run yet */
void local_call_close(struct local_call *p);  /* nothing of it is in use any more */
void local_call_finish(struct local_call *p, uint32_t status, uint32_t len);
void local_call_show(struct local_call *p, const uint8_t *data, uint32_t off, uint32_t len,
		     uint32_t total, bool last);
/* Runs the kernel once. Within a guard's scope. */
enum roost_next local_call_step(struct local_call *p, enum roost_next (*fn)(struct roost_call *c),
				unsigned pu);
bool local_call_perform(struct local_call *p); /* what it has asked for. False: it waits */
void local_call_replied(struct local_call *p);
/* the step that was running has been left */
void local_call_trapped(struct local_call *p, struct guard *g);

/* run.c */
void local_call_wake(struct kernel_wrs *a);
void local_call_hand_over(struct local_call *p);

#endif
