/* SPDX-License-Identifier: BSD-2-Clause */
/* Local calls: begin, run functions of the kernel, end. */
#include "kernels/local_call_int.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/guarded.h"

/* ---- functions of the kernel ---- */

static void run_to_end(void *arg)
{
	struct local_call *p = arg;
	enum step_result r;

	do
		r = local_call_step(p);
	while (r == STEP_ASKED);
	if (likely(r != STEP_WAITS))
		return;
	/*
	 * The local call continues in turns of its PU (run.c). Its stream is paused until the
	 * kernel is done with this piece, or with its parameters.
	 */
	p->in_turns = true;
	p->moves_pu = p->i.pu->index != p->pu;
	atomic_store_explicit(&p->stream.paused, !p->stream_done, memory_order_relaxed);
}

void local_call_run_function(struct local_call *p, enum roost_next (*fn)(struct roost_call *c),
			     unsigned pu)
{
	int how;

	invocation_move(&p->i, &p->rt->pu[pu]);
	p->i.fn = fn;
	p->i.c.resume = 0;
	p->i.steps = p->rt->max_steps;
	how = guarded(&p->i.pu->guard, run_to_end, p);
	if (unlikely(how))
		invocation_trapped(&p->i, how);
}

void local_call_show(struct local_call *p, const uint8_t *data, uint32_t off, uint32_t len,
		     uint32_t total, bool last)
{
	struct roost_call *c = &p->i.c;

	c->data = data;
	c->offset = off;
	c->len = len;
	c->total = total;
	c->last = last;
	p->result.bytes += len;
}

/* ---- begin and end ---- */

static void free_local_call(struct deferred_free *o)
{
	struct local_call *p = container_of(o, struct local_call, deferred);

	mem_free_pages(p->body, CALL_BODY);
	free(p);
}

/* Frees a local call whose memory no operation uses any more. */
void local_call_close(struct local_call *p)
{
	invocation_move(&p->i, &p->rt->pu[p->pu]);
	if (!p->i.replied)
		invocation_cut(&p->i);
	version_count(p->i.s, p->pu, -1);
}

int local_call_make(struct kernel_runtime *rt, unsigned pu, const struct local_call_attr *a,
		    struct local_call **out)
{
	struct kernel_version *s = runtime_find(rt, a->op);
	struct local_call *p;

	if (!s)
		return -ENOENT;
	if (a->params_len > ROOST_RPC_MAX_PARAMS)
		return -EINVAL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->body = mem_alloc_pages(CALL_BODY);
	if (!p->body) {
		free(p);
		return -ENOMEM;
	}
	p->rt = rt;
	p->pu = pu;
	p->reply = a->reply;
	p->i = (struct invocation){.s = s,
				   .b = &host_backend,
				   .key = a->key ? NIC_RPC_GRANTED(a->pd, a->key) : 0,
				   .steps = rt->max_steps,
				   .c = {.op = a->op, .space = a->space},
				   .wrs = {.wake = local_call_wake, .blocks_output = a->out}};
	invocation_move(&p->i, &rt->pu[pu]);
	invocation_lay_out(&p->i, p->body, a->params, a->params_len);
	local_call_init_hook(p);
	version_count(s, pu, 1);
	p->i.ctr->calls++;
	*out = p;
	return 0;
}

int local_call_begin(struct kernel_runtime *rt, unsigned pu, const struct local_call_attr *a,
		     struct local_call **out)
{
	int rc = local_call_make(rt, pu, a, out);

	if (!rc && (*out)->i.s->k->params)
		local_call_run_function(*out, (*out)->i.s->k->params, pu);
	return rc;
}

bool local_call_busy(const struct local_call *p)
{
	return p->i.wrs.out || (!p->finished && p->in_turns);
}

bool local_call_finished(const struct local_call *p, struct local_call_result *out)
{
	*out = p->result;
	if (!p->finished)
		out->len = p->i.sent;
	return p->finished;
}

void local_call_free(struct local_call *p)
{
	local_call_take_handed(&p->rt->pu[p->pu]);
	if (list_linked(&p->link))
		list_del(&p->link);
	/*
	 * Detach the region here and not in local_call_detach(): operations in progress may use the
	 * region, which must not be deregistered meanwhile.
	 */
	if (p->on_region)
		nic_stream_detach_region(p->rt->nic, &p->stream);
	if (kernel_wrs_leave(&p->i.wrs)) {
		local_call_close(p);
		free_local_call(&p->deferred);
	} else {
		p->deferred.free = free_local_call;
		list_add_tail(&p->deferred.link, &p->rt->deferred_frees);
	}
}
