/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An invocation: one run of a kernel, for a call from the wire (call.h) or for the host, which runs
 * kernels by themselves and on streams (local_call_int.h). This is what they have in common; what a
 * request means to each is its backend's: backend_wire.c, backend_host.c.
 *
 *	begin ---> a step: fn() runs once, until it asks for something
 *		    ^	|---> STEP_ASKED   the step that follows does it first
 *		    |	|---> STEP_WAITS   for room, an acknowledgement or a work request
 *		    |	|---> STEP_DONE	   fn has done its part: parameters, or a piece
 *		    |	`---> STEP_ENDED   it has replied or failed, or the runtime has ended it
 *		    `---'
 *
 * The step loop is step.h. A step that waits is run again by its owner, with the same request.
 */
#ifndef ROOST_KERNELS_INVOCATION_H
#define ROOST_KERNELS_INVOCATION_H

#include "base/guard.h"
#include "kernels/asks.h"
#include "kernels/kernel_wrs.h"
#include "kernels/runtime.h"

struct ask_backend;
struct kernel_counters;
struct ledger;
struct registered_kernel;

struct invocation {
	/* the function of its kernel that runs: params(), payload() or stream() */
	enum roost_next (*fn)(struct roost_call *c);
	struct kernel_version *s; /* NULL: none is registered */
	struct runtime_pu *pu;	  /* that runs it now */
	struct kernel_counters *ctr;
	nic_rpc_key key; /* the region that addresses without a number lie in; 0: none */
	uint32_t steps;	 /* left */
	uint32_t sent;	 /* bytes of data, ahead of the reply */
	uint32_t grown;	 /* as registered_kernel.grown, when c was told */
	bool pending;	 /* what c.ask says is still to be done */
	bool refused;	 /* an access by roost_put() was, or one done at once */
	bool silent;	 /* nobody reads what it sends */
	bool replied;	 /* its end is its kernel's will */
	struct roost_call c;
	struct kernel_wrs wrs;
	const struct ask_backend *b;
};

enum step_result { STEP_ASKED, STEP_WAITS, STEP_DONE, STEP_ENDED };

/*
 * What requests mean. All of the owner of the PU that runs the invocation, or the one that hands it
 * bytes. Regions are named by nic_rpc_key, 0 if the kernel may not: then it is refused.
 */
struct ask_backend {
	/* True: the access would be granted now. It sends for the lines, or does nothing at all. */
	bool (*may)(const struct invocation *i, nic_rpc_key key, uint64_t va, uint32_t n,
		    uint32_t access);
	/* Accesses. 0, or it is refused. */
	int (*read)(const struct invocation *i, nic_rpc_key key, uint64_t va, void *dst,
		    uint32_t n);
	int (*write)(const struct invocation *i, nic_rpc_key key, uint64_t va, const void *src,
		     uint32_t n);
	int (*copy)(const struct invocation *i, nic_rpc_key dst_key, uint64_t dst,
		    nic_rpc_key src_key, uint64_t src, uint32_t n);
	int (*cmp_swap)(const struct invocation *i, nic_rpc_key key, uint64_t va, uint64_t *old,
			uint64_t swap);
	/* Bytes that may still be sent. */
	uint32_t (*room)(const struct invocation *i);
	/*
	 * Sends c.ask_len bytes of c.buf or, with a key, at c.from. STEP_ASKED: it goes on;
	 * STEP_WAITS: it is woken, and does this again if it is still `pending`; or STEP_ENDED.
	 */
	enum step_result (*send)(struct invocation *i, bool from, nic_rpc_key key);
	/* A kernel work request; rule->va: the rights that it needs. False: it waits. */
	bool (*post)(struct invocation *i, const struct ask_rule *rule);
	/* Ends it with c.ask_len bytes of c.buf or at c.from, as c.ask says, and `len` of them. */
	void (*reply)(struct invocation *i, uint32_t status, uint32_t len);
	/* Ends it without data, and not by its kernel's will. */
	void (*cut_off)(struct invocation *i, uint32_t status, uint32_t len);
	/* Around each step: what it may do at once, and what it has taken. */
	void (*before)(struct invocation *i);
	void (*count)(struct invocation *i);
	/* A resource of its kernel; 0: it gets none. */
	uint32_t (*take)(struct invocation *i, struct ledger *l);
	/* roost_put() */
	int (*put)(struct roost_call *c, uint64_t va, const void *buf, uint32_t len);
};

static inline struct invocation *invocation_of(const struct roost_call *c)
{
	return (struct invocation *)(uintptr_t)container_of(c, struct invocation, c);
}

/* Lays out parameters, state and scratch in `body` (CALL_BODY bytes), and sets what c is given. */
void invocation_lay_out(struct invocation *i, uint8_t *body, const void *params, uint32_t len);
/* It runs on this PU from now on. */
void invocation_move(struct invocation *i, struct runtime_pu *pu);
/* A granted region; 0: it has no such, or may not. */
nic_rpc_key invocation_granted(const struct invocation *i, uint32_t n, uint32_t access);
/*
 * Runs the kernel's cut(), if it has one: the invocation has ended without it. Nothing is under way
 * from its memory any more.
 */
void invocation_cut(struct invocation *i);
/* Its step has been left: its kernel is disabled, and it ends. */
void invocation_trapped(struct invocation *i, int how);

/* The region that a request names by number, for this kind of access. */
static inline nic_rpc_key invocation_region(const struct invocation *i, uint32_t n, uint32_t access)
{
	return likely(!n) ? i->key : invocation_granted(i, n, access);
}

#endif
