/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside of the kernel runtime. The life of a call:
 *
 *	       params, or payload without any
 *	FREE ---------------------------------> READY <--------.
 *	  ^					  | run	       | acknowledged, or room for a WRITE
 *	  |					  |---------> WAITING
 *	  |					  |---------> STREAM	its parameters are done, payload is awaited
 *	  |	   reply acknowledged		  v
 *	  |----------------------------------- ENDING
 *	  `-- operations are done --- GONE <-----'	when some were under way at its end
 *							(kernel_wrs.h)
 */
#ifndef ROOST_KERNELS_CALL_H
#define ROOST_KERNELS_CALL_H

#include <stdatomic.h>

#include "base/guard.h"
#include "base/hist.h"
#include "base/list.h"
#include "base/mem.h"
#include "kernels/invocation.h"
#include "kernels/kernel_wrs.h"
#include "kernels/object.h"
#include "kernels/owners.h"
#include "kernels/runtime.h"

enum call_state { CALL_FREE, CALL_READY, CALL_WAITING, CALL_STREAM, CALL_ENDING, CALL_GONE };

/* A queue pair of the host's that a kernel may post to. */
struct bound_qp {
	/* NULL: none, any more. Written with its PU owned, or all of them */
	_Atomic(struct nic_qp *) qp;
	unsigned pu;			 /* written with all of them owned */
	struct runtime_qp_limits limits; /* likewise */
	/*
	 * under way, or promised; of the PU's owner. They outlive the binding: the number is given
	 * to no other before they are done
	 */
	uint32_t ops;
	uint64_t bytes;
	/*
	 * Invocations that wait for room, which nobody passes. There are none when nothing is under
	 * way, or promised
	 */
	uint32_t waiting;
	uint64_t stopped; /* the look at them in which one did not fit */
};

/* The kernel that is registered for an op-code, in one version or several. */
struct registered_kernel {
	/* counts the changes of the two numbers, which only grow; never 0 */
	uint32_t grown;
	uint32_t num_bound, num_grants;
	unsigned versions; /* that are there */
	struct roost_grant grants[ROOST_KERNEL_GRANTS];
	nic_rpc_key keys[ROOST_KERNEL_GRANTS]; /* theirs */
	struct bound_qp bound[ROOST_KERNEL_QPS];
	struct kernel_counters past; /* of those that have gone */
};

/* A `self`, and which versions of a kernel use it: the last of them that took it ends it. */
struct own {
	void *self;
	unsigned versions;
	const struct kernel_version *last;
	struct ledger *ledger; /* NULL: it has no resources */
};

struct version_pu {
	_Atomic uint32_t calls; /* that run it; written by the PU's owner alone */
	struct kernel_counters ctr;
} CACHE_ALIGNED;

/* A PU's own lines. */
struct timed_hist {
	struct hist h;
} CACHE_ALIGNED;

/* A kernel in one version. */
struct kernel_version {
	const struct roost_kernel *k;
	struct registered_kernel *registered;
	void *self;
	/* it crashed, or did not return: none of its functions is called any more */
	atomic_bool disabled;
	bool fallback;
	uint64_t op; /* what calls it: the descriptor's, but for the fallback */
	struct own *own;
	struct object object;	  /* that it came in; no handle: none */
	struct list_head link;	  /* of those that take no calls any more */
	struct timed_hist *times; /* one for each PU; NULL: nobody tells the time */
	struct version_pu pu[NIC_MAX_PUS];
};

/*
 * Invocations that run it, on a PU that the caller owns. Release: who finds none any more finds all
 * done that they did.
 */
static inline void version_count(struct kernel_version *s, unsigned pu, int by)
{
	_Atomic uint32_t *n = &s->pu[pu].calls;

	atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + (uint32_t)by,
			      memory_order_release);
}

static inline bool version_disabled(const struct kernel_version *s)
{
	return atomic_load_explicit(&s->disabled, memory_order_relaxed);
}

struct call {
	/* what each step touches stands first */
	struct list_head link; /* READY, but with payload, or WAITING for room: of the QP */
	struct call_qp *q;
	uint8_t state; /* enum call_state */
	bool ending;   /* it has replied, or is about to: the kernel is not run again */
	/* its payload stopped short: to end with this status as soon as it is run */
	uint8_t broken;
	/* the kernel is in payload(), run by the QP's next packet and by nobody else */
	bool payload;
	bool stream; /* payload belongs to it */
	bool lost;   /* what it has sent could not be read any more */
	bool put;    /* it has used roost_put(): that is in order with nothing yet */
	bool cut;    /* its kernel is to be told when nothing is under way any more */
	struct invocation i;
	struct roost_rpc_head head;
	struct roost_rpc_tail tail; /* ending */
	uint32_t id;		    /* this call's, for the core */
	uint64_t began;		    /* the turn that brought it */
} CACHE_ALIGNED;

/* Memory that is the NIC's until what is under way from there is done, though its owner is gone. */
struct deferred_free {
	struct list_head link;
	atomic_bool quiet; /* may go: the last thing that is written */
	void (*free)(struct deferred_free *o);
};

/*
 * What a turn of the PU is worth, in units: a step, or a KiB that is handed to a kernel or fetched
 * for one. As long as one QP alone has packets, who waits for the end of the turn is itself, and it
 * may take many. Beside others a turn takes no more than fits into TURN_NS, by what the turns
 * before have taken, and its QPs have equal parts. Parameters are always taken, up to the slots;
 * their calls wait then. Payload gets an RNR NAK.
 */
struct turn_units {
	uint64_t number; /* of the turn at hand, as the core counts */
	uint64_t began;
	bool shared;
	uint32_t spent;
	uint32_t allowed; /* a turn, beside others */
	/* QPs that had payload in this turn, and in the one before */
	uint32_t takers, takers_before;
};
/* A QP's part. */
struct share {
	uint64_t number; /* of the turn in which it has */
	uint32_t spent;
};

/* A QP that has the op-codes. */
struct call_qp {
	struct nic_qp *qp;
	struct kernel_runtime *rt;
	struct runtime_pu *pu;
	bool announced; /* payload was, and has not begun */
	uint64_t announced_op;
	struct call *stream; /* whose; NULL: its call is over already */
	/* the RPC WRITE in progress */
	bool in_msg;
	bool in_piece;	  /* its kernel has begun with the piece at msg_off, and waits */
	struct call *msg; /* whose payload it is; NULL: nobody's */
	uint64_t msg_op;
	uint32_t msg_total, msg_off;
	uint32_t piece_len;
	struct list_head waiting; /* calls that wait for room for a WRITE */
	/* its turns */
	struct list_head ready; /* calls */
	struct list_head link;	/* of the PU, while there are any */
	struct runtime_quota quota;
	uint32_t turn, used; /* steps in that turn */
	struct share share;
	/* its resources, and whether it uses them: owners.h, idle.c */
	uint64_t owner;
	bool holds; /* it may have some */
	/* with the calls whose operations are still under way, they go; it gets no others before */
	bool ends;
	uint64_t heard;		    /* when something of a stream came, or wanted to */
	struct list_head idle_link; /* of the PU: it has, or had, a stream open */
	uint64_t idle_due;
	unsigned slots;	 /* ever used: their memory is there */
	uint8_t *bodies; /* parameters, state and scratch of each slot */
	/* slots whose call has ended, but not its operations on bound queue pairs */
	unsigned wrs_pending;
	bool detached;
	struct deferred_free deferred; /* detached, and some are */
	uint32_t ids;
	unsigned num_free;
	uint8_t free[RUNTIME_MAX_CALLS];
	struct call calls[RUNTIME_MAX_CALLS];
};

struct ended;

struct runtime_pu {
	struct kernel_runtime *rt;
	/* QPs that have calls to run: one step each, round and round */
	struct list_head ready;
	struct list_head runs;		     /* of the host, which go on at the next turn */
	_Atomic(struct local_call *) handed; /* by other PUs: go on here (local_call_int.h) */
	/* invocations that wait for room of a queue pair that is bound to them */
	struct list_head full;
	uint64_t looks;		/* at these */
	struct list_head spent; /* those that have had all their steps of this turn */
	struct list_head idle;	/* QPs with streams, the one first that is looked at first */
	uint32_t turn;
	unsigned done, limit; /* steps in this turn */
	struct turn_units units;
	struct invocation *running;
	uint32_t hops, most; /* accesses that it has done at once, of so many that it may */
	struct guard guard;
	struct runtime_counters ctr;
	unsigned index;
	/* calls that did in this turn; NULL: nobody tells the time (times.c) */
	struct ended *ended;
	unsigned num_ended;
};

struct kernel_runtime {
	struct nic *nic;
	unsigned calls;
	uint32_t max_steps;
	uint64_t ops[RUNTIME_MAX_KERNELS];		     /* of kernels[], side by side */
	struct kernel_version *kernels[RUNTIME_MAX_KERNELS]; /* NULL: a free slot */
	unsigned num_kernels;				     /* slots ever used */
	struct kernel_version *fallback;		     /* NULL: none */
	/* versions that take no calls any more, and may have some under way */
	struct list_head leaving;
	struct list_head deferred_frees;
	uint64_t idle_ns;
	uint64_t owners; /* numbers given out */
	_Atomic(struct ledger *) ledgers;
	struct ended *ended;  /* of all PUs */
	struct guard control; /* of start(), stop() and take_over(), which nobody watches */
	struct runtime_pu pu[NIC_MAX_PUS];
};

/* Parameters, then state, then scratch, each aligned to a cache line. */
#define CALL_BODY (ROOST_RPC_MAX_PARAMS + 24 + ROOST_KERNEL_MAX_STATE + 2 * 64)

/* registry.c */
void registry_close(struct kernel_runtime *rt); /* ends all of them; there are no calls any more */
struct kernel_version *
runtime_find(struct kernel_runtime *rt,
	     uint64_t op); /* the fallback, if there is one, when nobody has it; or NULL */

bool registered_has_bound_qp(const struct registered_kernel *st); /* queue pairs. [control] */
/* A queue pair goes: nobody has it any more. [control, owner of its PU] */
void registry_forget_qp(struct kernel_runtime *rt, const struct nic_qp *qp);

/* run.c */
/* what other PUs have handed over is among its `runs` */
void local_call_take_handed(struct runtime_pu *pu);
/* the host's that can go on: some steps of each */
void local_call_run(struct runtime_pu *pu);

/* times.c; 0, or -1: no memory */
int times_create(struct kernel_runtime *rt);
void times_close(struct kernel_runtime *rt); /* before the kernels */
int times_open(const struct kernel_runtime *rt, struct kernel_version *s);
void times_end(const struct kernel_runtime *rt, struct kernel_version *s);
/* a call that ends */
void times_note(struct runtime_pu *pu, struct kernel_version *s, uint64_t began);
void times_turn_ended(struct runtime_pu *pu, uint64_t now); /* its turn */
struct runtime_times times_of(const struct kernel_runtime *rt, const struct kernel_version *s);

/* runtime.c */
void call_count_end(const struct call *call, uint32_t status);

/* deliver.c */
bool call_deliver(struct call_qp *q, const struct nic_rpc_piece *p);

/* units.c */
void units_begin(struct runtime_pu *pu); /* with the PU's state zeroed before */
void units_see(struct runtime_pu *pu);	 /* the turn at hand may be another one than before */
static inline void units_spend(struct runtime_pu *pu, uint32_t steps, uint32_t bytes)
{
	pu->units.spent += steps + (bytes >> 10);
}
/* How many of at most `most` may be spent by calls that have their turn now. */
uint32_t units_left(const struct runtime_pu *pu, uint32_t most);
/* May this QP hand over payload? How many steps for it; 0: not in this turn. */
uint32_t units_for_piece(struct call_qp *q, uint32_t most);
void units_charge(struct call_qp *q, uint32_t before); /* what was spent since then */
/* asks how long the turn takes, if it is worth it */
void units_ask(const struct runtime_pu *pu);
void units_turn_ended(struct runtime_pu *pu, uint64_t now); /* the turn, which was asked about */

/* call.c */
/*
 * A slot, for a call of this kernel that this piece begins (NULL: none is registered); NULL: there
 * is none free.
 */
struct call *call_take(struct call_qp *q, struct kernel_version *s, const struct nic_rpc_piece *p);
/* Lays out parameters, state and scratch. Its kernel's function is params(). */
void call_furnish(struct call *call, const void *params, uint32_t len);
/*
 * Runs it here and now, since a packet waits for it; with its quota of the turn used up it is left
 * for the next one. Lone: no packet is behind that one, so it may go on where it need not wait.
 */
void call_drive(struct call *call, unsigned budget, bool lone);
void call_sent(struct call_qp *q, uint64_t cookie);
/* What it has is its slot's no more. */
void call_release(struct call *call);

/* backend_wire.c */
/* It ends without further data. */
void call_end(struct call *call, uint32_t status, uint32_t len);
/* The same, and not by its kernel's will: which is told. */
void call_cut_off(struct call *call, uint32_t status, uint32_t len);
/* Of one that is ending: its reply, or it waits for room. */
void call_send_reply(struct call *call);

/* ends.c */
void call_lost(struct call_qp *q, uint32_t id);
void call_stop(struct call_qp *q);
/*
 * Tells the kernel that the call ends without it, when nothing is under way from its memory any
 * more.
 */
void call_tell(struct call *call);
/* Its payload stops short. What it has sent must be acknowledged before its slot can go. */
void call_break(struct call *call, uint32_t status);
/* The last call of a QP that has ended is over. */
void call_qp_over(struct call_qp *q);
/* A step of the kernel's has crashed, or did not return: that is the end of it. */
void version_disable(struct kernel_version *s, enum guard_end how);
/* The memory of one more slot. False: it is not to be had. */
bool slot_open(struct call_qp *q);

/* idle.c */
/* A stream has begun. */
static inline bool idle_watched(const struct call_qp *q)
{
	return list_linked(&q->idle_link);
}
void idle_watch(struct call_qp *q);
/* Ends some of the streams that nothing came of. True: there may be more. */
bool idle_look(struct runtime_pu *pu);
unsigned call_run(struct runtime_pu *pu, bool *more);

#endif
