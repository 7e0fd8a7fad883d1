/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Local calls that run in turns of their PU, and may wait for operations on bound queue pairs.
 * These are kernels that the host runs, and kernels on a stream from their first wait in a piece to
 * the end of the piece.
 *
 *	local_call_start() --> turn --.--> finished: local_call_done()
 *			   ^	 |--> its steps of the turn are used up: among the PU's local_calls
 *			   |	 `--> waits: kernel_wrs.h wakes it
 *			   `------------------'
 *
 * Pieces of a region come from all PUs, pieces of a queue pair from its PU. A kernel's bound queue
 * pairs all belong to one PU. A kernel that requests an operation on another PU is handed over to
 * this PU in the middle of its piece. Its stream is paused, so that no other PU runs it.
 *
 *	bytes() --> request --> end_piece() --> local_call_pass_on() --- nic_rpc_ring() --->
 *		local_call_take_handed(): adds it to the local_calls of the other PU
 */
#include "kernels/guarded.h"
#include "kernels/local_call_int.h"

/*
 * TURN_STEPS: steps of all local calls in a turn. STEP_BYTES: bytes of payload that count as a
 * step. PIECE: the most bytes of a piece of payload.
 */
#define TURN_STEPS 256
#define STEP_BYTES 1024
#define PIECE	   (256u * 1024)

/* After a function has returned: begins the next piece of payload, or ends the local call. */
static void begin_next(struct local_call *p)
{
	uint32_t len;

	if (!p->payload) {
		local_call_finish(p, ROOST_RPC_OK, p->i.sent);
		return;
	}
	if (!p->i.s->k->payload) {
		local_call_finish(p, ROOST_RPC_BAD_PARAMS, p->i.sent);
		return;
	}
	len = p->total - p->bytes_fed < PIECE ? (uint32_t)(p->total - p->bytes_fed) : PIECE;
	local_call_show(p, p->payload + p->bytes_fed, (uint32_t)p->bytes_fed, len,
			(uint32_t)p->total, p->bytes_fed + len == p->total);
	p->bytes_fed += len;
	if (p->bytes_fed == p->total)
		p->payload = NULL;
	p->i.c.resume = 0;
	p->i.steps = p->rt->max_steps;
	p->i.fn = p->i.s->k->payload;
	p->in_turns = true;
}

/*
 * Returns whether the local call can continue. A kernel on a stream continues to the end of its
 * piece.
 */
static bool can_continue(const struct local_call *p)
{
	return !p->finished && (p->by_host || p->in_turns);
}

struct turn {
	struct local_call *p;
	unsigned until; /* the local call runs until the PU has done this number of steps */
};

/* Runs one step, or begins the next piece. Returns false if the local call waits. */
static bool advance(struct local_call *p)
{
	if (!p->in_turns) {
		begin_next(p);
		return true;
	}
	switch (local_call_step(p)) {
	case STEP_WAITS:
		return false;
	case STEP_DONE:
		p->in_turns = false;
		/* fall through */
	case STEP_ENDED:
		/* Payload counts as steps, because packets of the PU wait meanwhile. */
		p->i.pu->done += p->i.c.len / STEP_BYTES;
		return true;
	case STEP_ASKED:
	case STEP_PAUSED:
		return true;
	}
	return true;
}

/* Runs steps while the PU has done fewer than `until`. */
static void run_steps(void *arg)
{
	const struct turn *t = arg;
	struct local_call *p = t->p;
	struct runtime_pu *pu = p->i.pu;

	while (pu->done < t->until && can_continue(p)) {
		pu->done++;
		if (!advance(p))
			return;
	}
	if (can_continue(p))
		list_add_tail(&p->link, &pu->local_calls);
}

/* Resumes the stream after the kernel is done with its piece. */
static void resume_stream(struct local_call *p)
{
	p->in_turns = false;
	p->i.pending = false;
	if (likely(!p->remote_pu)) {
		nic_stream_resume(&p->stream, p->qp);
		return;
	}
	/* The queue pair belongs to another PU, which may destroy it. */
	spin_lock(&p->lock);
	if (p->qp)
		nic_stream_resume_remote(&p->stream, p->qp);
	spin_unlock(&p->lock);
}

static void run_turn(struct local_call *p, unsigned until)
{
	struct turn t = {p, until};
	int how;

	invocation_move(&p->i, &p->rt->pu[p->pu]);
	how = guarded(&p->i.pu->guard, run_steps, &t);
	if (unlikely(how))
		invocation_trapped(&p->i, how);
	if (p->finished) {
		kernel_wrs_stop(&p->i.wrs);
		atomic_store_explicit(&p->done, true, memory_order_release);
	}
	if (!p->by_host && !can_continue(p))
		resume_stream(p);
}

/*
 * Memory order: the PU that hands a local call over writes it, then makes it the top of the list
 * (release), then rings. The other PU takes the doorbell, then the whole list (acquire), then reads
 * the local calls.
 */
void local_call_pass_on(struct local_call *p)
{
	_Atomic(struct local_call *) *top = &p->rt->pu[p->pu].handed;
	struct kernel_runtime *rt = p->rt;
	unsigned pu = p->pu;

	p->next_handed = atomic_load_explicit(top, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(top, &p->next_handed, p, memory_order_release,
						      memory_order_relaxed))
		;
	nic_rpc_ring(rt->nic, pu);
}

void local_call_take_handed(struct runtime_pu *pu)
{
	struct local_call *p = atomic_exchange_explicit(&pu->handed, NULL, memory_order_acquire),
			  *next;

	for (; p; p = next) {
		next = p->next_handed;
		p->i.steps = p->rt->max_steps;
		list_add_tail(&p->link, &pu->local_calls);
	}
}

void local_call_run(struct runtime_pu *pu)
{
	/*
	 * Local calls have steps beside those of calls; otherwise calls could use all steps of a
	 * turn.
	 */
	unsigned until = pu->done + TURN_STEPS;

	while (pu->done < until && !list_empty(&pu->local_calls)) {
		struct local_call *p = list_first_entry(&pu->local_calls, struct local_call, link);

		list_del(&p->link);
		run_turn(p, until);
	}
}

bool local_call_done(const struct local_call *p)
{
	return atomic_load_explicit(&((struct local_call *)(uintptr_t)p)->done,
				    memory_order_acquire);
}

void local_call_wake(struct kernel_wrs *a)
{
	struct local_call *p = container_of(a, struct local_call, i.wrs);

	if (a->gone) {
		local_call_close(p);
		atomic_store_explicit(&p->deferred.may_free, true, memory_order_release);
		return;
	}
	p->i.steps = p->rt->max_steps;
	/* The queue pair of a kernel that changes lengths runs it. */
	if (p->stream.produce && !p->in_turns) {
		nic_stream_resume(&p->stream, p->qp);
		return;
	}
	list_add_tail(&p->link, &p->rt->pu[p->pu].local_calls);
	nic_rpc_wake(p->rt->nic, p->pu);
}

int local_call_start(struct kernel_runtime *rt, unsigned pu, const struct local_call_attr *a,
		     const void *payload, uint64_t len, struct local_call **out)
{
	int rc = local_call_make(rt, pu, a, out);
	struct local_call *p = *out;

	if (rc)
		return rc;
	p->by_host = true;
	p->payload = payload;
	p->total = len;
	p->i.fn = p->i.s->k->params;
	p->in_turns = p->i.fn;
	run_turn(p, rt->pu[pu].done + TURN_STEPS);
	if (list_linked(&p->link))
		nic_rpc_wake(rt->nic, pu);
	return 0;
}
