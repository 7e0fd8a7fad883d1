/* SPDX-License-Identifier: BSD-2-Clause */
#include "kernels/local_call_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the kernel asks for ---- */

void local_call_finish(struct local_call *p, uint32_t status, uint32_t len)
{
	p->finished = true;
	p->result.status = status;
	p->result.len = len;
}

/* Behind what is there. */
static void append(struct local_call *p, bool from)
{
	struct roost_call *c = &p->c;
	uint32_t at = p->result.len;
	int rc = 0;

	if (c->ask_len > c->room - at) {
		local_call_finish(p, ROOST_RPC_TOO_LONG, at + c->ask_len);
		return;
	}
	if (from)
		rc = nic_host_read(p->rt->nic, NIC_RPC_GRANTED(p->pd, p->key), c->from,
				   p->reply + at, c->ask_len);
	else if (c->ask_len)
		memcpy(p->reply + at, c->buf, c->ask_len);
	p->result.len += c->ask_len;
	if (rc)
		local_call_finish(p, ROOST_RPC_ACCESS, at);
}

/* An operation on a bound queue pair. False: it waits. */
static bool post_wr(struct local_call *p, bool granted)
{
	struct roost_call *c = &p->c;

	/* When it goes on behind this its packet may be gone: so it is always. */
	if (!p->runs && !p->stream.produce)
		c->data = c->rewrite = NULL;
	/* Operations are their PU's: there it is asked for again. */
	if (unlikely(p->current_pu != p->pu))
		return false;
	return kernel_wrs_post(&p->wrs, p->s->registered, &p->rt->pu[p->pu], granted ? 0 : p->key);
}

/* False: it waits. */
bool local_call_perform(struct local_call *p)
{
	struct roost_call *c = &p->c;
	struct nic *nic = p->rt->nic;
	nic_rpc_key key = NIC_RPC_GRANTED(p->pd, p->key);
	bool granted = c->va_in | c->from_in; /* it has no granted regions */
	int rc = 0;

	if (granted && (c->ask < ROOST_ASK_QP_READ || c->ask > ROOST_ASK_QP_FETCH_ADD)) {
		local_call_finish(p, ROOST_RPC_ACCESS, p->result.len);
		return true;
	}
	switch ((enum roost_ask)c->ask) {
	case ROOST_ASK_READ:
		rc = nic_host_read(nic, key, c->va, c->buf, c->ask_len);
		break;
	case ROOST_ASK_WRITE:
		rc = nic_host_write(nic, key, c->va, c->buf, c->ask_len);
		break;
	case ROOST_ASK_COPY:
		rc = nic_host_copy(nic, key, c->va, key, c->from, c->ask_len);
		break;
	case ROOST_ASK_CAS:
		rc = nic_host_cmp_swap(nic, key, c->va, c->buf, c->from);
		break;
	case ROOST_ASK_SEND:
	case ROOST_ASK_SEND_FROM:
		append(p, c->ask == ROOST_ASK_SEND_FROM);
		break;
	case ROOST_ASK_QP_READ ... ROOST_ASK_QP_FETCH_ADD:
		return post_wr(p, granted);
	case ROOST_ASK_NONE:
		break;
	default:
		local_call_finish(p, ROOST_RPC_FAILED, p->result.len);
	}
	if (rc)
		local_call_finish(p, ROOST_RPC_ACCESS, p->result.len);
	return true;
}

static int put(struct roost_call *c, uint64_t va, const void *buf, uint32_t len)
{
	struct local_call *p = container_of(c, struct local_call, c);
	int rc = nic_host_write(p->rt->nic, NIC_RPC_GRANTED(p->pd, p->key), va, buf, len);

	p->refused |= rc != 0;
	return rc;
}

void local_call_replied(struct local_call *p)
{
	struct roost_call *c = &p->c;
	uint32_t status = c->status;

	p->replied = true;
	if (c->ask_len && p->result.len) {
		local_call_finish(p, ROOST_RPC_FAILED,
				  p->result.len); /* data only where none was sent before */
		return;
	}
	if (c->ask == ROOST_ASK_REPLY_FROM && c->from_in)
		local_call_finish(p, ROOST_RPC_ACCESS, p->result.len);
	else
		append(p, c->ask == ROOST_ASK_REPLY_FROM);
	if (!p->finished)
		local_call_finish(p, status, p->result.len);
}

/* Runs the kernel once. Within a guard's scope. */
enum roost_next local_call_step(struct local_call *p, enum roost_next (*fn)(struct roost_call *c),
				unsigned pu)
{
	struct roost_call *c = &p->c;
	struct guard *g = &p->rt->pu[pu].guard;
	enum roost_next next;

	c->ask = ROOST_ASK_NONE;
	c->va_in = c->from_in = 0;
	c->num_qps = p->s->registered->num_bound;
	p->s->pu[pu].ctr.steps++;
	guard_step(g);
	next = fn(c);
	guard_stepped(g);
	return next;
}

/*
 * It waits: it goes on in turns of its PU (run.c), and what comes by does not, until it is done
 * with this piece; nor does what will, when these are its parameters.
 */
static void pause_stream(struct local_call *p, enum roost_next (*fn)(struct roost_call *c))
{
	p->fn = fn;
	p->pending = true;
	p->moves_pu = p->current_pu != p->pu;
	atomic_store_explicit(&p->stream.paused, !p->concluded, memory_order_relaxed);
}

/* What it waits for does not matter any more: its piece is gone. */
static void abandon(struct local_call *p)
{
	kernel_wrs_stop(&p->wrs);
	p->wrs.posted = p->pending = false;
}

static void __attribute__((noinline))
steps(struct local_call *p, enum roost_next (*fn)(struct roost_call *c), unsigned pu)
{
	struct roost_call *c = &p->c;

	c->resume = 0;
	for (uint32_t left = p->rt->max_steps; !p->finished; left--) {
		enum roost_next next;

		if (unlikely(!left)) {
			local_call_finish(p, ROOST_RPC_BOUND, p->result.len);
			break;
		}
		next = local_call_step(p, fn, pu);
		if (unlikely(p->refused)) {
			local_call_finish(p, ROOST_RPC_ACCESS, p->result.len);
		} else if (next == ROOST_AGAIN) {
			if (!local_call_perform(p)) {
				pause_stream(p, fn);
				break;
			}
		} else if (c->ask == ROOST_ASK_REPLY || c->ask == ROOST_ASK_REPLY_FROM) {
			local_call_replied(p);
		} else {
			break;
		}
	}
}

/* The step that was running has been left. */
void local_call_trapped(struct local_call *p, struct guard *g)
{
	enum guard_end how = guard_trapped(g);

	version_disable(p->s, how);
	local_call_finish(p, how == GUARD_STUCK ? ROOST_RPC_STUCK : ROOST_RPC_FAULT, p->result.len);
}

/* One of the kernel's functions, to its end, on a PU that the caller owns. */
static void run(struct local_call *p, enum roost_next (*fn)(struct roost_call *c), unsigned pu)
{
	struct guard *g = &p->rt->pu[pu].guard;
	struct guard_scope scope;

	if (unlikely(version_disabled(p->s))) {
		local_call_finish(p, ROOST_RPC_DISABLED, p->result.len);
		return;
	}
	guard_open(g, &scope);
	if (!sigsetjmp(scope.env, 0))
		steps(p, fn, pu);
	else
		local_call_trapped(p, g);
	guard_close(g, &scope);
}

/* ---- pieces ---- */

void local_call_show(struct local_call *p, const uint8_t *data, uint32_t off, uint32_t len,
		     uint32_t total, bool last)
{
	struct roost_call *c = &p->c;

	c->data = data;
	c->offset = off;
	c->len = len;
	c->total = total;
	c->last = last;
	p->result.bytes += len;
}

/* A piece on a region begins, whose bytes must not come there while it is at another one. */
static bool enter(struct nic_stream_hook *stream)
{
	struct local_call *p = container_of(stream, struct local_call, stream);

	spin_lock(&p->lock);
	if (likely(!atomic_load_explicit(&stream->paused, memory_order_acquire)))
		return true;
	spin_unlock(&p->lock);
	return false;
}

static void leave(struct nic_stream_hook *stream)
{
	struct local_call *p = container_of(stream, struct local_call, stream);
	bool moves_pu = p->moves_pu;

	p->moves_pu = false;
	spin_unlock(&p->lock);
	if (unlikely(moves_pu))
		local_call_hand_over(p);
}

static void bytes(struct nic_stream_hook *stream, const struct nic_stream_piece *piece)
{
	struct local_call *p = container_of(stream, struct local_call, stream);

	if (unlikely(p->remote_pu))
		spin_lock(&p->lock);
	if (likely(!p->detached && !p->finished)) {
		p->current_pu = piece->pu;
		local_call_show(p, piece->data, piece->off, piece->len, piece->total, piece->last);
		p->c.where = piece->va;
		p->c.rewrite = stream->rewrites ? piece->data : NULL;
		run(p, p->s->k->stream, piece->pu);
	}
	if (unlikely(p->remote_pu))
		leave(stream);
}

/* The same of a kernel that changes lengths: it runs in produce(). */
static void feed(struct nic_stream_hook *stream, const struct nic_stream_piece *piece)
{
	struct local_call *p = container_of(stream, struct local_call, stream);

	local_call_show(p, piece->data, piece->off, piece->len, piece->total, piece->last);
	if (unlikely(p->pending))
		abandon(p);
	p->c.where = piece->va;
	p->c.resume = 0;
	p->passed = 0;
	p->busy = true;
	p->left = p->rt->max_steps;
}

/*
 * What it has asked for, but to send. Where it waits its queue pair asks for more when it has come.
 */
static void make_come(struct local_call *p)
{
	p->pending = !local_call_perform(p);
	atomic_store_explicit(&p->stream.paused, p->pending, memory_order_relaxed);
}

/* A step of it. */
static void __attribute__((noinline)) make(struct local_call *p)
{
	struct roost_call *c = &p->c;
	enum roost_next next;

	if (p->pending) {
		make_come(p);
		return;
	}
	next = local_call_step(p, p->s->k->stream, p->pu);
	if (unlikely(p->refused)) {
		local_call_finish(p, ROOST_RPC_ACCESS, p->result.len);
	} else if (next == ROOST_AGAIN && c->ask == ROOST_ASK_SEND) {
		p->ready = c->buf;
		p->num_ready = c->ask_len;
	} else if (next == ROOST_AGAIN && c->ask == ROOST_ASK_SEND_FROM) {
		local_call_finish(p, ROOST_RPC_FAILED, p->result.len);
	} else if (next == ROOST_AGAIN) {
		make_come(p);
	} else if (c->ask == ROOST_ASK_REPLY || c->ask == ROOST_ASK_REPLY_FROM) {
		local_call_replied(p);
	} else {
		p->busy = false;
	}
}

static void make_more(struct local_call *p)
{
	struct guard *g = &p->rt->pu[p->pu].guard;
	struct guard_scope scope;
	bool broken = version_disabled(p->s);

	if (unlikely(broken || !p->left--)) {
		if (p->pending) /* what it was promised is for others */
			abandon(p);
		local_call_finish(p, broken ? ROOST_RPC_DISABLED : ROOST_RPC_BOUND, p->result.len);
		return;
	}
	guard_open(g, &scope);
	if (!sigsetjmp(scope.env, 0))
		make(p);
	else
		local_call_trapped(p, g);
	guard_close(g, &scope);
}

/* Of a kernel that gave up: the piece as it came. */
static uint32_t pass_on(struct local_call *p, uint8_t *to, uint32_t room)
{
	uint32_t n = p->c.len - p->passed;

	if (n > room)
		n = room;
	memcpy(to, p->c.data + p->passed, n);
	p->passed += n;
	p->busy = p->passed < p->c.len;
	return n;
}

static uint32_t produce(struct nic_stream_hook *stream, uint8_t *to, uint32_t room,
			bool *needs_input)
{
	struct local_call *p = container_of(stream, struct local_call, stream);
	uint32_t done = 0, n;

	while (p->num_ready || p->busy) {
		if (done == room)
			return done;
		if (p->finished && !p->num_ready) {
			done += pass_on(p, to + done, room - done);
		} else if (p->num_ready) {
			n = p->num_ready < room - done ? p->num_ready : room - done;
			memcpy(to + done, p->ready, n);
			p->ready += n;
			p->num_ready -= n;
			done += n;
		} else {
			make_more(p);
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
	if (p->pending)
		abandon(p);
	p->current_pu = p->pu;
	if (!p->finished && !p->concluded) {
		p->concluded = true;
		local_call_show(p, NULL, 0, 0, 0, true);
		p->c.rewrite = NULL;
		run(p, p->s->k->stream, p->pu);
	}
	if (!p->finished && !p->fn)
		local_call_finish(p, ROOST_RPC_OK, p->result.len);
}

/* ---- where it is attached ---- */

/* What comes in is in memory already: nobody rewrites it. */
static bool sees(const struct local_call *p)
{
	return p->s->k->stream && !p->s->k->rewrites && !p->s->k->resizes;
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
		p->wrs.lock = &p->lock;
}

int local_call_attach_in(struct local_call *p, struct nic_qp *qp)
{
	int rc = sees(p) ? nic_stream_attach_in(qp, &p->stream) : -EOPNOTSUPP;

	if (!rc)
		attached_to(p, qp);
	return rc;
}

int local_call_attach_out(struct local_call *p, struct nic_qp *qp)
{
	int rc;

	p->stream.rewrites = p->s->k->rewrites;
	if (p->s->k->resizes) {
		if (nic_qp_pu(qp) != p->pu)
			return -EXDEV;
		p->stream.bytes = feed;
		p->stream.produce = produce;
	}
	p->wrs.outward = true;
	rc = p->s->k->stream ? nic_stream_attach_out(qp, &p->stream) : -EOPNOTSUPP;
	if (!rc)
		attached_to(p, qp);
	return rc;
}

int local_call_attach_region(struct local_call *p, uint32_t key)
{
	int rc = sees(p) ? nic_stream_attach_region(p->rt->nic, key, &p->stream) : -EOPNOTSUPP;

	p->on_region = !rc;
	p->wrs.lock = &p->lock;
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

/* ---- its life ---- */

/* What the host's invocations take is the host's. */
static uint32_t take(struct roost_call *c)
{
	struct local_call *p = container_of(c, struct local_call, c);
	struct guard *g = &p->rt->pu[p->current_pu].guard;
	struct ledger *l = p->s->own->ledger;
	uint32_t number;

	guard_stepped(g);
	number = l ? ledger_take(p->rt, l, OWNER_HOST, NULL) : 0;
	guard_step(g);
	return number;
}

static void give(struct roost_call *c, uint32_t number)
{
	struct local_call *p = container_of(c, struct local_call, c);
	struct guard *g = &p->rt->pu[p->current_pu].guard;

	guard_stepped(g);
	if (p->s->own->ledger)
		ledger_give(p->s->own->ledger, number);
	guard_step(g);
}

static void lay_out(struct local_call *p, const struct local_call_attr *a)
{
	const struct roost_kernel *k = p->s->k;
	struct roost_call *c = &p->c;
	uint8_t *at = p->body;

	if (a->params_len)
		memcpy(at, a->params, a->params_len);
	c->params = at;
	c->params_len = a->params_len;
	at += ALIGN_UP(a->params_len, 64u);
	c->state = at;
	c->scratch = at + ALIGN_UP(k->state_size, 64u);
	c->self = p->s->self;
	c->put = put;
	c->take = take;
	c->give = give;
	c->room = a->room;
	c->op = a->op;
}

static void free_local_call(struct deferred_free *o)
{
	struct local_call *p = container_of(o, struct local_call, deferred);

	mem_free_pages(p->body, CALL_BODY);
	free(p);
}

/* As a step: it may crash as any. */
static enum roost_next cut(struct roost_call *c)
{
	container_of(c, struct local_call, c)->s->k->cut(c);
	return ROOST_DONE;
}

/* Nothing of it is in use any more. */
void local_call_close(struct local_call *p)
{
	if (!p->replied && p->s->k->cut) {
		p->current_pu = p->pu;
		p->finished = p->refused = false;
		run(p, cut, p->pu);
	}
	version_count(p->s, p->pu, -1);
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
	p->s = s;
	p->pu = pu;
	p->pd = a->pd;
	p->key = a->key;
	p->reply = a->reply;
	p->current_pu = pu;
	p->stream = (struct nic_stream_hook){
		.bytes = bytes, .gone = gone, .enter = enter, .leave = leave};
	p->wrs = (struct kernel_wrs){.c = &p->c, .wake = local_call_wake, .outward = a->out};
	lay_out(p, a);
	version_count(s, pu, 1);
	s->pu[pu].ctr.calls++;
	*out = p;
	return 0;
}

int local_call_begin(struct kernel_runtime *rt, unsigned pu, const struct local_call_attr *a,
		     struct local_call **out)
{
	int rc = local_call_make(rt, pu, a, out);

	if (!rc && (*out)->s->k->params)
		run(*out, (*out)->s->k->params, pu);
	return rc;
}

bool local_call_busy(const struct local_call *p)
{
	return p->wrs.out || (!p->finished && p->fn);
}

bool local_call_finished(const struct local_call *p, struct local_call_result *out)
{
	*out = p->result;
	return p->finished;
}

void local_call_free(struct local_call *p)
{
	local_call_take_handed(&p->rt->pu[p->pu]);
	if (list_linked(&p->link))
		list_del(&p->link);
	/*
	 * Not before: what it has under way may be out of that region, which is not deregistered
	 * meanwhile.
	 */
	if (p->on_region)
		nic_stream_detach_region(p->rt->nic, &p->stream);
	if (kernel_wrs_leave(&p->wrs)) {
		local_call_close(p);
		free_local_call(&p->deferred);
	} else {
		p->deferred.free = free_local_call;
		list_add_tail(&p->deferred.link, &p->rt->deferred_frees);
	}
}
