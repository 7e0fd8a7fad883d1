/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Internals of the kernel runtime. The states of a call:
 *
 *	    parameters, or payload without any
 *	FREE ---------------------------------> READY <--------.
 *	  ^					  | run	       | acknowledged, or space for a WRITE
 *	  |					  |---------> WAITING
 *	  |					  |---------> STREAM	waits for payload
 *	  |	   reply acknowledged		  v
 *	  |----------------------------------- ENDING
 *	  `-- operations are done --- GONE <-----'	ended with operations in progress
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
#include "kernels/join.h"
#include "kernels/kernel_wrs.h"
#include "kernels/object.h"
#include "kernels/owners.h"
#include "kernels/runtime.h"

enum call_state { CALL_FREE, CALL_READY, CALL_WAITING, CALL_STREAM, CALL_ENDING, CALL_GONE };

/* A queue pair that a kernel may post to. */
struct bound_qp {
	/* NULL: not bound any more. Written by the owner of its PU, or of all PUs */
	_Atomic(struct nic_qp *) qp;
	unsigned pu;			 /* written by the owner of all PUs */
	struct runtime_qp_limits limits; /* written by the owner of all PUs */
	/*
	 * Operations in progress or reserved, and their bytes. [owner of the PU] Operations outlive
	 * the binding: the number of the binding is not reused before they are done.
	 */
	uint32_t ops;
	uint64_t bytes;
	/*
	 * Invocations that wait for space. No other invocation overtakes them. If no operation of
	 * the binding is in progress or reserved, those of other bindings have taken all slots of
	 * the queue pair. The number of the binding is not reused before all are woken.
	 */
	uint32_t waiting;
	/* value of runtime_pu.full_searches when one of these invocations did not fit */
	uint64_t searched_at;
};

/* The kernel that is registered for an op-code, in one or several versions. */
struct registered_kernel {
	/* counts the changes of num_bound and num_grants, which only grow; never 0 */
	uint32_t revision;
	uint32_t num_bound, num_grants;
	unsigned versions; /* number of versions */
	struct roost_grant grants[ROOST_KERNEL_GRANTS];
	nic_rpc_key keys[ROOST_KERNEL_GRANTS]; /* keys of the granted regions */
	struct bound_qp bound[ROOST_KERNEL_QPS];
	struct kernel_counters past; /* counters of versions that were freed */
};

/* A `self`, and the versions of a kernel that share it. The last version that took it ends it. */
struct shared_self {
	void *self;
	unsigned versions;
	const struct kernel_version *last;
	struct ledger *ledger; /* NULL: the kernel has no resources */
};

struct version_pu {
	_Atomic uint32_t calls; /* invocations in progress; written by the PU's owner only */
	struct kernel_counters ctr;
} CACHE_ALIGNED;

/* Aligned so that PUs do not share cache lines. */
struct timed_hist {
	struct hist h;
} CACHE_ALIGNED;

/* One version of a kernel. */
struct kernel_version {
	const struct roost_kernel *k;
	struct registered_kernel *registered;
	void *self;
	/* the version crashed or did not return: none of its functions is called any more */
	atomic_bool disabled;
	bool fallback;
	uint64_t op; /* op-code of its calls: that of the descriptor, except for the fallback */
	struct shared_self *shared_self;
	struct object object;	  /* shared object that contains it; without a handle: none */
	struct list_head link;	  /* in kernel_runtime.leaving */
	struct timed_hist *times; /* one for each PU; NULL: the kernel runtime is not `timed` */
	struct version_pu pu[NIC_MAX_PUS];
};

/*
 * Adds `by` to the invocations of a version on a PU that the caller owns. Release order: a thread
 * that reads 0 sees all effects of these invocations.
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
	/* the fields that each step uses come first */
	/*
	 * in call_qp.ready or runtime_pu.paused (READY without `payload`), or call_qp.waiting
	 * (WAITING for space)
	 */
	struct list_head link;
	struct call_qp *q;
	uint8_t state; /* enum call_state */
	bool ending;   /* the call has replied or is about to reply: the kernel is not run again */
	/* the payload was cut short: the call ends with this status when it is run next */
	uint8_t broken;
	/* the kernel is in payload(), and only the QP's next packet runs it */
	bool payload;
	bool stream; /* the call takes payload */
	bool lost;   /* data that the call sent could not be read any more */
	bool put;    /* the call used roost_put(); these stores are not ordered yet */
	bool cut;    /* cut() is called when no operation is in progress any more */
	bool paused; /* runs again in a later turn: in runtime_pu.paused, unless `payload` */
	struct invocation i;
	struct roost_rpc_head head;
	uint64_t tail;	/* when ending: the bytes of struct roost_rpc_tail */
	uint32_t id;	/* identifies the call to the core; its lower 8 bits are the slot */
	uint64_t began; /* time of the turn in which the call began */
} CACHE_ALIGNED;
_Static_assert(RUNTIME_MAX_CALLS == UINT8_MAX + 1, "call.id has the slot in its lower 8 bits");

/* Returns the number of the call's slot in call_qp.calls. */
static inline uint8_t call_slot(const struct call *call)
{
	return (uint8_t)call->id;
}

/* Memory whose owner is gone, freed when no operation uses it any more. */
struct deferred_free {
	struct list_head link;
	/*
	 * The memory may be freed: the owner of the PU stores it (release) after its last access,
	 * and the control call loads it (acquire) before it frees the memory.
	 */
	atomic_bool may_free;
	void (*free)(struct deferred_free *o);
};

/*
 * The budget of a PU's turn for kernels. A unit is a step, or a KiB that is handed to a kernel or
 * fetched for one. If only one QP has packets it may use many units, since it delays only itself.
 * If several QPs have packets, a turn uses as many units as fit into TURN_NS by the measurement of
 * previous turns, and QPs have equal shares. Beyond the budget, parameters are still taken, up to
 * the slots, and their calls wait; payload gets an RNR NAK.
 */
struct turn_units {
	uint64_t number; /* the core's number of the current turn */
	uint64_t began;
	bool shared; /* several QPs had packets or calls lately: struct nic_rpc_turn */
	uint32_t spent;
	uint32_t allowed; /* units of a shared turn */
	/* QPs with payload in this turn, and in the previous one */
	uint32_t payload_qps, payload_qps_before;
};
/* The units of a QP. */
struct share {
	uint64_t number; /* the turn of `spent` */
	uint32_t spent;
};

/* A QP that has the op-codes of calls. */
struct call_qp {
	struct nic_qp *qp;
	struct kernel_runtime *rt;
	struct runtime_pu *pu;
	bool announced; /* a call announced payload that has not begun */
	uint64_t announced_op;
	struct call *stream; /* the call of this payload; NULL: it has ended already */
	/* the RPC WRITE in progress */
	bool in_msg;
	bool in_piece;	  /* the kernel has begun with the piece at msg_off, and waits */
	struct call *msg; /* the call that takes this message; NULL: none */
	uint64_t msg_op;
	uint32_t msg_total, msg_off;
	uint32_t piece_len;
	struct list_head waiting; /* calls, and `join`, that wait for space for a WRITE */
	struct join join;
	/* turns */
	struct list_head ready; /* calls that can run */
	struct list_head link;	/* in runtime_pu.ready or .spent, if `ready` is not empty */
	struct runtime_quota quota;
	uint32_t turn, used; /* steps used in turn number `turn` */
	struct share share;
	/* resources (owners.h), and streams without data (idle.c) */
	uint64_t owner;
	bool has_resources; /* the QP may have resources */
	/* the QP has ended: its resources end after its last operation, and it takes no others */
	bool ends;
	uint64_t last_rx;	    /* time of the last packet of a stream, taken or not */
	struct list_head idle_link; /* in runtime_pu.idle: the QP has, or had, a stream open */
	uint64_t idle_due;
	unsigned slots;	    /* slots that were ever used and have memory */
	struct call *calls; /* one for each slot */
	uint8_t *bodies;    /* parameters, state and scratch of each slot */
	/* slots of ended calls with operations on bound queue pairs in progress */
	unsigned wrs_pending;
	bool detached;
	struct deferred_free deferred; /* used if the QP is detached while wrs_pending is not 0 */
	uint32_t ids;
	unsigned ending; /* calls that only wait for the ACK of their reply */
	unsigned num_free;
	uint8_t free[RUNTIME_MAX_CALLS];
} CACHE_ALIGNED;

struct ended;

struct runtime_pu {
	struct kernel_runtime *rt;
	/* QPs with calls that can run, round-robin: one step each */
	struct list_head ready;
	struct list_head paused;	     /* calls that continue in a later turn */
	uint64_t resumes_at;		     /* time from which these calls may continue */
	struct list_head local_calls;	     /* local calls that continue in the next turn */
	_Atomic(struct local_call *) handed; /* local calls handed over by other PUs */
	/* invocations that wait for space at a bound queue pair */
	struct list_head full;
	uint64_t full_searches;	    /* number of searches of `full` for an invocation that fits */
	struct list_head spent;	    /* QPs that have used all their steps of this turn */
	struct list_head joins;	    /* QPs with joined replies that leave at the end of the turn */
	struct list_head due_joins; /* the same, after a wait for space in their send queues */
	struct list_head idle;	    /* QPs with streams, in order of idle_due */
	uint32_t turn;
	bool in_run;	      /* in call_run(), at whose end joined replies leave */
	unsigned done, limit; /* steps in this turn */
	struct turn_units units;
	struct invocation *running;
	/* at_once(): accesses in the running step, and their limit if the step has at_once() */
	uint32_t accesses, max_accesses;
	struct guard guard;
	struct runtime_counters ctr;
	unsigned index;
	/* calls that ended in this turn; NULL: the kernel runtime is not `timed` (times.c) */
	struct ended *ended;
	unsigned num_ended;
};

struct kernel_runtime {
	struct nic *nic;
	unsigned calls;
	uint32_t max_steps;
	uint64_t ops[RUNTIME_MAX_KERNELS];		     /* op-codes of kernels[] */
	struct kernel_version *kernels[RUNTIME_MAX_KERNELS]; /* NULL: a free slot */
	unsigned num_kernels;				     /* slots ever used */
	struct kernel_version *fallback;		     /* NULL: none */
	/* versions that get no new calls, and may have some in progress */
	struct list_head leaving;
	struct list_head deferred_frees;
	uint64_t idle_ns;
	uint64_t owners; /* the last owner number that was given out */
	_Atomic(struct ledger *) ledgers;
	struct ended *ended;  /* arrays for all PUs */
	struct guard control; /* runs start(), stop() and take_over(); has no watchdog */
	struct runtime_pu pu[NIC_MAX_PUS];
};

/* Parameters, then state, then scratch, each aligned to a cache line. */
#define CALL_BODY (ROOST_RPC_MAX_PARAMS + 24 + ROOST_KERNEL_MAX_STATE + 2 * 64)
/* Memory of a slot, as the limit of nic_memory_limit() counts it. */
#define CALL_SLOT (sizeof(struct call) + CALL_BODY)
_Static_assert(RUNTIME_MAX_CALLS <= UINT8_MAX + 1, "call_qp.free has slots in bytes");

/* registry.c */
void registry_close(struct kernel_runtime *rt); /* ends all kernels; there are no calls any more */
/* Returns the active version for an op-code, or the fallback, or NULL. */
struct kernel_version *runtime_find(struct kernel_runtime *rt, uint64_t op);

/* Returns whether the kernel has bound queue pairs. [control] */
bool registered_has_bound_qp(const struct registered_kernel *st);
/* Unbinds a queue pair that is destroyed from all kernels. [control, owner of its PU] */
void registry_forget_qp(struct kernel_runtime *rt, const struct nic_qp *qp);

/* run.c */
/* moves local calls that other PUs have handed over to local_calls */
void local_call_take_handed(struct runtime_pu *pu);
/* runs some steps of each local call in local_calls */
void local_call_run(struct runtime_pu *pu);

/* times.c; functions that return int: 0, or -1 if there is no memory */
int times_create(struct kernel_runtime *rt);
void times_close(struct kernel_runtime *rt); /* must be called before the kernels are closed */
int times_open(const struct kernel_runtime *rt, struct kernel_version *s);
void times_end(const struct kernel_runtime *rt, struct kernel_version *s);
/* records a call that ends */
void times_note(struct runtime_pu *pu, struct kernel_version *s, uint64_t began);
void times_turn_ended(struct runtime_pu *pu, uint64_t now); /* adds the calls of the turn */
struct runtime_times times_of(const struct kernel_runtime *rt, const struct kernel_version *s);

/* runtime.c */
void call_count_end(const struct call *call, uint32_t status);

/* deliver.c */
bool call_deliver(struct call_qp *q, const struct nic_rpc_piece *p);

/* units.c */
void units_begin(struct runtime_pu *pu);      /* initialises; the PU's state is zeroed before */
void units_begin_turn(struct runtime_pu *pu); /* starts a new budget if the turn is a new one */
static inline void units_spend(struct runtime_pu *pu, uint32_t steps, uint32_t bytes)
{
	pu->units.spent += steps + (bytes >> 10);
}
/* Returns the units that calls may spend now, at most `most`. */
uint32_t units_left(const struct runtime_pu *pu, uint32_t most);
/* Returns the steps that the QP may use for a piece of payload; 0: none in this turn. */
uint32_t units_for_piece(struct call_qp *q, uint32_t most);
/* charges the QP for the units since the PU's `spent` was `before` */
void units_charge(struct call_qp *q, uint32_t before);
/* requests the end time of the turn, if its units are worth the measurement */
void units_request_time(const struct runtime_pu *pu);
/* adapts `allowed` to the time that the turn took */
void units_turn_ended(struct runtime_pu *pu, uint64_t now);

/* call.c */
/*
 * Takes a slot for a call that begins with this piece. `s` is the kernel's version (NULL: no kernel
 * is registered). Returns NULL if no slot is free.
 */
struct call *call_take(struct call_qp *q, struct kernel_version *s, const struct nic_rpc_piece *p);
/* Lays out parameters, state and scratch of a call. The kernel's next function is params(). */
void call_lay_out(struct call *call, const void *params, uint32_t len);
/*
 * Runs a call that a packet waits for, for at most `budget` > 0 steps. If the QP's quota of the
 * turn is used up, the call continues in the next turn. `ends_burst`: no packet follows, so
 * accesses may be done at once.
 */
void call_drive(struct call *call, unsigned budget, bool ends_burst);
/*
 * Pauses a call at its last piece of payload: the call continues in turns, and its QP takes other
 * packets.
 */
void call_pause_without_data(struct call *call);
void call_sent(struct call_qp *q, uint64_t cookie);
/* Frees the slot of a call, after its operations are done. */
void call_release(struct call *call);

/* backend_wire.c */
/* Ends a call without further data. */
void call_end(struct call *call, uint32_t status, uint32_t len);
/*
 * Counts KiB of memory as steps of the turn, and the part beyond the remaining steps as units,
 * which count against the PU's next turns.
 */
void call_charge(struct runtime_pu *pu, uint32_t kib);
/* Ends a call that its kernel did not end, and calls the kernel's cut(). */
void call_cut_off(struct call *call, uint32_t status, uint32_t len);
/*
 * Sends the reply of a call that is ending; the call waits if there is no space. Returns true if
 * the reply has joined others (join.h), so that it takes no space of its own.
 */
bool call_send_reply(struct call *call);

/* ends.c */
void call_lost(struct call_qp *q, uint32_t id);
void call_stop(struct call_qp *q);
/*
 * Calls the kernel's cut() for a call that the kernel did not end, as soon as no operation uses the
 * call's memory.
 */
void call_run_cut(struct call *call);
/* Ends a call whose payload was cut short. Data that it sent must be acknowledged before. */
void call_break(struct call *call, uint32_t status);
/*
 * Ends the resources of a QP that has ended, after the last operation of its calls. Does nothing if
 * the QP has not ended.
 */
void call_qp_ended(struct call_qp *q);
/* Disables a version after a step crashed or did not return. */
void version_disable(struct kernel_version *s, enum guard_end how);
/* Reserves the memory of another slot. Returns false if there is no memory. */
bool slot_open(struct call_qp *q);

/* idle.c */
/* Returns whether the QP is in the PU's list of QPs with streams. */
static inline bool idle_watched(const struct call_qp *q)
{
	return list_linked(&q->idle_link);
}
void idle_watch(struct call_qp *q);
/* Ends some of the streams that got no data for idle_ns. Returns true if there may be more. */
bool idle_look(struct runtime_pu *pu);
unsigned call_run(struct runtime_pu *pu, bool *more);

#endif
