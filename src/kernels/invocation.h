/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An invocation: one run of a kernel, for a call from the wire (call.h) or for the host, which runs
 * kernels directly and on streams (local_call_int.h). This header has the common part. A backend
 * performs the requests of each kind: backend_wire.c, backend_host.c.
 *
 *	begin ---> a step: fn() runs once, until it makes a request
 *		    ^	|---> STEP_ASKED   the next step performs the request first
 *		    |	|---> STEP_WAITS   for space, an acknowledgement or a work request
 *		    |	|---> STEP_PAUSED  runs again in a later turn
 *		    |	|---> STEP_DONE	   fn is done with the parameters or the piece
 *		    |	`---> STEP_ENDED   it replied, failed, or was ended by the runtime
 *		    `---'
 *
 * The step loop is step.h. The owner repeats a step that waits, with the same request.
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
	/* the kernel's current function: params(), payload() or stream() */
	enum roost_next (*fn)(struct roost_call *c);
	struct kernel_version *s; /* NULL: no kernel is registered */
	struct runtime_pu *pu;	  /* the PU that runs the invocation now */
	struct kernel_counters *ctr;
	nic_rpc_key key;    /* the region of addresses without a number; 0: none */
	uint32_t steps;	    /* steps left */
	uint32_t sent;	    /* bytes of data sent before the reply */
	uint32_t revision;  /* registered_kernel.revision when c was updated */
	bool pending;	    /* the request in c.ask is not done yet */
	bool refused;	    /* an access was refused: roost_put(), or at_once() */
	bool discards_data; /* the data that the invocation sends are dropped */
	bool replied;	    /* the kernel ended the invocation */
	struct roost_call c;
	struct kernel_wrs wrs;
	const struct ask_backend *b;
};

enum step_result { STEP_ASKED, STEP_WAITS, STEP_PAUSED, STEP_DONE, STEP_ENDED };

/*
 * Performs requests. The owner of the PU that runs the invocation calls all functions, or the owner
 * of the PU that hands it bytes. A nic_rpc_key names the region. A key of 0 is refused: the kernel
 * has no right to the region.
 */
struct ask_backend {
	/* Returns whether the access would be granted now. May prefetch the memory. */
	bool (*may)(const struct invocation *i, nic_rpc_key key, uint64_t va, uint32_t n,
		    uint32_t access);
	/* Perform an access. Return 0, or another value if the access is refused. */
	int (*read)(const struct invocation *i, nic_rpc_key key, uint64_t va, void *dst,
		    uint32_t n);
	int (*write)(const struct invocation *i, nic_rpc_key key, uint64_t va, const void *src,
		     uint32_t n);
	int (*copy)(const struct invocation *i, nic_rpc_key dst_key, uint64_t dst,
		    nic_rpc_key src_key, uint64_t src, uint32_t n);
	int (*cmp_swap)(const struct invocation *i, nic_rpc_key key, uint64_t va, uint64_t *old,
			uint64_t swap);
	/* Returns the number of bytes that may still be sent. */
	uint32_t (*space)(const struct invocation *i);
	/*
	 * Sends c.ask_len bytes from c.buf, or from c.from of the region `key`. STEP_ASKED: the
	 * invocation continues; STEP_WAITS: it is woken later, and sends again if it is still
	 * `pending`; or STEP_ENDED.
	 */
	enum step_result (*send)(struct invocation *i, bool from, nic_rpc_key key);
	/*
	 * Posts a kernel work request that needs the rights rule->va. Returns false if it has to
	 * wait.
	 */
	bool (*post)(struct invocation *i, const struct ask_rule *rule);
	/* Ends the invocation with c.ask_len bytes of data and `len` in its result. */
	void (*reply)(struct invocation *i, uint32_t status, uint32_t len);
	/* Ends the invocation without data, in place of its kernel. */
	void (*cut_off)(struct invocation *i, uint32_t status, uint32_t len);
	/* Called around each step: they set the limits of the step, and count it. */
	void (*before)(struct invocation *i);
	void (*count)(struct invocation *i);
	/* Takes a resource of the kernel. Returns 0 if none is available. */
	uint32_t (*take)(struct invocation *i, struct ledger *l);
	/* roost_put() */
	int (*put)(struct roost_call *c, uint64_t va, const void *buf, uint32_t len);
};

static inline struct invocation *invocation_of(const struct roost_call *c)
{
	return (struct invocation *)(uintptr_t)container_of(c, struct invocation, c);
}

/* Lays out parameters, state and scratch in `body` (CALL_BODY bytes), and sets the fields of c. */
void invocation_lay_out(struct invocation *i, uint8_t *body, const void *params, uint32_t len);
/* Moves the invocation to another PU. */
void invocation_move(struct invocation *i, struct runtime_pu *pu);
/*
 * Returns the key of granted region number n, or 0 if there is no such region or it lacks the
 * right.
 */
nic_rpc_key invocation_granted(const struct invocation *i, uint32_t n, uint32_t access);
/*
 * Calls the kernel's cut(), if it has one, after the invocation was ended in place of its kernel.
 * Call it when no operation uses the invocation's memory any more.
 */
void invocation_cut(struct invocation *i);
/* Disables the kernel and ends the invocation after a signal has left its step. */
void invocation_trapped(struct invocation *i, int how);

/* Returns the key of the region that a request names by number, or 0. */
static inline nic_rpc_key invocation_region(const struct invocation *i, uint32_t n, uint32_t access)
{
	return likely(!n) ? i->key : invocation_granted(i, n, access);
}

#endif
