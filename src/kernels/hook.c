/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels on streams. The PU that receives or sends a piece runs the kernel on it to the end of the
 * piece. If the kernel waits, the stream is paused and the kernel continues in turns of its PU
 * (run.c). A kernel that changes lengths runs when its queue pair requests output: produce().
 */
#include <errno.h>
#include <string.h>

#include "kernels/guarded.h"
#include "kernels/local_call_int.h"

/* ---- pieces ---- */

/* Begins a piece of a region. Returns false if the kernel is not done with another piece. */
static bool begin_piece(struct nic_stream_hook *stream)
{
	struct local_call *p = container_of(stream, struct local_call, stream);

	spin_lock(&p->lock);
	if (likely(!atomic_load_explicit(&stream->paused, memory_order_acquire)))
		return true;
	spin_unlock(&p->lock);
	return false;
}

static void end_piece(struct nic_stream_hook *stream)
{
	struct local_call *p = container_of(stream, struct local_call, stream);
	bool moves_pu = p->moves_pu;

	p->moves_pu = false;
	spin_unlock(&p->lock);
	if (unlikely(moves_pu))
		local_call_pass_on(p);
}

static void bytes(struct nic_stream_hook *stream, const struct nic_stream_piece *piece)
{
	struct local_call *p = container_of(stream, struct local_call, stream);

	if (unlikely(p->remote_pu))
		spin_lock(&p->lock);
	if (likely(!p->detached && !p->finished)) {
		local_call_show(p, piece->data, piece->off, piece->len, piece->total, piece->last);
		p->i.c.where = piece->va;
		p->i.c.rewrite = stream->rewrites ? piece->data : NULL;
		local_call_run_function(p, p->i.s->k->stream, piece->pu);
	}
	if (unlikely(p->remote_pu))
		end_piece(stream);
}

/*
 * Drops the pending request, because its piece is gone. Space at a bound queue pair that it waits
 * for, or has reserved, goes to others.
 */
static void abandon(struct local_call *p)
{
	kernel_wrs_stop(&p->i.wrs);
	p->i.wrs.posted = p->i.pending = false;
}

static void drop(struct nic_stream_hook *stream)
{
	struct local_call *p = container_of(stream, struct local_call, stream);

	if (!p->i.pending)
		return;
	abandon(p);
	nic_stream_resume(stream, NULL);
}

/*
 * Hands bytes to a kernel that changes lengths. The kernel runs in produce(). Output that is left
 * belongs to a message that the end of the connection has cut short.
 */
static void feed(struct nic_stream_hook *stream, const struct nic_stream_piece *piece)
{
	struct local_call *p = container_of(stream, struct local_call, stream);

	local_call_show(p, piece->data, piece->off, piece->len, piece->total, piece->last);
	p->i.c.where = piece->va;
	p->i.c.resume = 0;
	p->bytes_bypassed = p->num_ready = 0;
	p->busy = true;
	p->i.fn = p->i.s->k->stream;
	p->i.steps = p->rt->max_steps;
}

static void make(void *arg)
{
	struct local_call *p = arg;
	enum step_result r = local_call_step(p);

	/* The kernel waits for an operation; after it the queue pair requests output again. */
	if (r == STEP_WAITS && p->i.pending)
		atomic_store_explicit(&p->stream.paused, true, memory_order_relaxed);
	if (r == STEP_DONE)
		p->busy = false;
}

/* Runs a step of a kernel that changes lengths. */
static void run_produce_step(struct local_call *p)
{
	int how;

	p->producing = true;
	how = guarded(&p->i.pu->guard, make, p);
	p->producing = false;
	if (unlikely(how))
		invocation_trapped(&p->i, how);
	/* Releases the space that the kernel waits for. */
	if (unlikely(p->finished && p->i.pending))
		abandon(p);
}

/* Takes n bytes of the kernel's output. Returns false if the region cannot be read any more. */
static bool take_ready(struct local_call *p, uint8_t *to, uint32_t n)
{
	if (!p->ready) {
		if (nic_host_read(p->rt->nic, p->ready_key, p->ready_va, to, n)) {
			local_call_finish(p, ROOST_RPC_ACCESS, p->i.sent);
			p->num_ready = 0;
			return false;
		}
		p->ready_va += n;
	} else {
		memcpy(to, p->ready, n);
		p->ready += n;
	}
	p->num_ready -= n;
	return true;
}

/* Passes the piece on unchanged after the kernel has ended. */
static uint32_t pass_on(struct local_call *p, uint8_t *to, uint32_t space)
{
	uint32_t n = p->i.c.len - p->bytes_bypassed;

	if (n > space)
		n = space;
	memcpy(to, p->i.c.data + p->bytes_bypassed, n);
	p->bytes_bypassed += n;
	p->busy = p->bytes_bypassed < p->i.c.len;
	return n;
}

static uint32_t produce(struct nic_stream_hook *stream, uint8_t *to, uint32_t space,
			bool *needs_input)
{
	struct local_call *p = container_of(stream, struct local_call, stream);
	uint32_t done = 0, n;

	while (p->num_ready || p->busy) {
		if (done == space)
			return done;
		if (p->finished && !p->num_ready) {
			done += pass_on(p, to + done, space - done);
		} else if (p->num_ready) {
			n = p->num_ready < space - done ? p->num_ready : space - done;
			if (take_ready(p, to + done, n))
				done += n;
		} else {
			run_produce_step(p);
			if (p->stream.paused)
				return done;
		}
	}
	*needs_input = true;
	return done;
}

static void gone(struct nic_stream_hook *stream)
{
	struct local_call *p = container_of(stream, struct local_call, stream);

	spin_lock(&p->lock);
	p->qp = NULL;
	spin_unlock(&p->lock);
}

void local_call_end_stream(struct local_call *p)
{
	if (!p->finished && !p->stream_done) {
		p->stream_done = true;
		local_call_show(p, NULL, 0, 0, 0, true);
		p->i.c.rewrite = NULL;
		local_call_run_function(p, p->i.s->k->stream, p->pu);
	}
	if (!p->finished && !p->in_turns)
		local_call_finish(p, ROOST_RPC_OK, p->i.sent);
}

/* ---- attaching ---- */

/*
 * Returns whether the kernel can be attached to incoming bytes. They are in memory already, so a
 * kernel that changes them cannot.
 */
static bool can_attach_in(const struct local_call *p)
{
	return p->i.s->k->stream && !p->i.s->k->rewrites && !p->i.s->k->resizes;
}

unsigned local_call_pu(struct kernel_runtime *rt, uint64_t op, unsigned at)
{
	const struct kernel_version *s = runtime_find(rt, op);

	return !s || s->k->resizes || !registered_has_bound_qp(s->registered)
		       ? at
		       : runtime_pu_of(rt, op);
}

static void attached_to(struct local_call *p, struct nic_qp *qp)
{
	p->qp = qp;
	p->remote_pu = nic_qp_pu(qp) != p->pu;
	if (p->remote_pu)
		p->i.wrs.lock = &p->lock;
}

int local_call_attach_in(struct local_call *p, struct nic_qp *qp)
{
	int rc = can_attach_in(p) ? nic_stream_attach_in(qp, &p->stream) : -EOPNOTSUPP;

	if (!rc)
		attached_to(p, qp);
	return rc;
}

int local_call_attach_out(struct local_call *p, struct nic_qp *qp)
{
	int rc;

	p->stream.rewrites = p->i.s->k->rewrites;
	if (p->i.s->k->resizes) {
		if (nic_qp_pu(qp) != p->pu)
			return -EXDEV;
		p->stream.bytes = feed;
		p->stream.produce = produce;
		p->stream.drop = drop;
	}
	p->i.wrs.blocks_output = true;
	rc = p->i.s->k->stream ? nic_stream_attach_out(qp, &p->stream) : -EOPNOTSUPP;
	if (!rc)
		attached_to(p, qp);
	return rc;
}

int local_call_attach_region(struct local_call *p, uint32_t key)
{
	int rc = can_attach_in(p) ? nic_stream_attach_region(p->rt->nic, key, &p->stream)
				  : -EOPNOTSUPP;

	p->on_region = !rc;
	p->i.wrs.lock = &p->lock;
	return rc;
}

int local_call_detach(struct local_call *p)
{
	int rc = p->qp ? nic_stream_detach(p->qp, &p->stream) : 0;

	if (rc)
		return rc;
	p->qp = NULL;
	if (p->on_region) {
		p->detached = true;
		atomic_store_explicit(&p->stream.paused, false, memory_order_relaxed);
	}
	return 0;
}

void local_call_init_hook(struct local_call *p)
{
	p->stream = (struct nic_stream_hook){
		.bytes = bytes, .gone = gone, .begin_piece = begin_piece, .end_piece = end_piece};
}
