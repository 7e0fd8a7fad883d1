/* SPDX-License-Identifier: BSD-2-Clause */
/* Inside of places: a kernel on a stream (place.c), or run by the host (run.c). All of the owner of its PU, or the one that hands it bytes. */
#ifndef ROOST_KERNELS_PLACE_INT_H
#define ROOST_KERNELS_PLACE_INT_H

#include "base/mem.h"
#include "base/spin.h"
#include "kernels/call.h"
#include "kernels/place.h"

struct place {
	struct roost_call c;
	struct acts acts;
	struct nic_place stream;
	struct kernel_runtime *rt;
	struct served *s;
	unsigned pu;	 /* whose operations it has, and in whose turns it goes on */
	unsigned here;	 /* where the piece came that it is in */
	bool hands_over; /* that is another one: it goes on at `pu`, when it has left here */
	struct place *next_handed;
	uint32_t pd, key;
	uint8_t *reply;
	struct nic_qp *qp; /* on whose stream it stands */
	bool on_region;	   /* or on that of a region: `lock` is taken */
	bool abroad;	   /* on one of another PU's: under `lock`, too */
	bool deaf;	   /* it is there no more but for the region's sake */
	bool over, refused, replied;
	bool concluded; /* its stream is at its end: nothing is held up any more */
	/* of one that the host runs */
	struct list_head link; /* of the PU's: it can go on */
	bool runs;
	/* of that, or of one on a stream that it holds up */
	bool pending;				     /* what c.ask says is still to be done */
	enum roost_next (*fn)(struct roost_call *c); /* that it is in; NULL: done with that */
	const uint8_t *payload;			     /* NULL: no more */
	uint64_t fed, total;
	atomic_bool done; /* over, for other threads */
	struct orphan orphan;
	/* of a kernel that changes lengths, and its piece */
	bool busy;	      /* it is not done with that */
	const uint8_t *ready; /* what it has made, and is not taken */
	uint32_t num_ready;
	uint32_t left;	 /* steps for that, or since it last waited */
	uint32_t passed; /* bytes that went on without it */
	struct place_result result;
	struct spin lock; /* WRITEs of several PUs' QPs come to a region */
	uint8_t *body;	  /* parameters, state, scratch */
};

/* place.c */
int place_make(struct kernel_runtime *rt, unsigned pu, const struct place_attr *a,
	       struct place **out); /* nothing is run yet */
void place_end(struct place *p);    /* nothing of it is in use any more */
void place_finish(struct place *p, uint32_t status, uint32_t len);
void place_show(struct place *p, const uint8_t *data, uint32_t off, uint32_t len, uint32_t total, bool last);
/* Runs the kernel once. Within a guard's scope. */
enum roost_next place_step(struct place *p, enum roost_next (*fn)(struct roost_call *c), unsigned pu);
bool place_perform(struct place *p); /* what it has asked for. False: it waits */
void place_replied(struct place *p);
void place_struck(struct place *p, struct guard *g); /* the step that was running has been left */

/* run.c */
void place_wake(struct acts *a);
void place_hand_over(struct place *p);

#endif
