/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes stream hooks: WRITEs and SENDs of any length and address leave through up to two kernels
 * that rewrite them, change their length or only read them, over a link with or without loss, or
 * over loop-back. At the other end two kernels read the bytes that arrive, one on the queue pair
 * and one on the region, which a window names too, and a third kernel forwards them to a replica. A
 * model does the same with bytes in memory. The memory of the receiver, and the bytes that each
 * kernel has seen, must equal the model's.
 *
 * The input is a byte for the shape, then commands: one byte of kind, and its arguments.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "kernels/local_call.h"
#include "world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEM 65536u
/* of the receiver's memory: where SENDs go, one behind the other; WRITEs stay before that */
#define RECVS	 49152u
#define RECV	 512u /* bytes of one */
#define MAX_LEN	 12000u
#define MAX_STEP 400000
#define CHAIN	 2
#define SEGMENT	 16384u /* nic/resize.c */

enum { XOR_OP = 0x1000, ADD_OP, STRETCH_OP, SEE_OP, FORWARD_OP, KERNELS = 5, OUTWARD = 4 };

/* ---- functions of both the kernels and the model ---- */

static uint8_t xor_byte(uint64_t at)
{
	return (uint8_t)(at * 0x9e3779b97f4a7c15ull >> 56);
}

static uint32_t stretched(uint8_t b)
{
	return b < 96 ? 2 : b < 200;
}

struct seen {
	uint64_t hash, bytes, messages;
};

static void see_byte(struct seen *s, uint8_t b)
{
	s->hash = (s->hash ^ b) * 0x100000001b3ull;
	s->bytes++;
}

/* ---- the kernels ---- */

static enum roost_next scramble(struct roost_call *c)
{
	uint64_t *at = c->state;

	for (uint32_t i = 0; i < c->len; i++, ++*at)
		c->rewrite[i] = c->op == XOR_OP ? c->rewrite[i] ^ xor_byte(*at)
						: (uint8_t)(c->rewrite[i] + *at);
	return ROOST_DONE;
}

struct stretch {
	uint32_t at, n;
	uint8_t out[700];
};

static enum roost_next stretch(struct roost_call *c)
{
	struct stretch *s = c->state;

	ROOST_STEPS(c);
	for (s->at = 0; s->at < c->len;) {
		for (s->n = 0; s->at < c->len && s->n + 2 <= sizeof(s->out); s->at++) {
			memset(s->out + s->n, c->data[s->at], 2);
			s->n += stretched(c->data[s->at]);
		}
		ROOST_SEND(c, s->out, s->n);
	}
	ROOST_STEPS_END;
}

static enum roost_next see(struct roost_call *c)
{
	struct seen *s = c->state;

	if (!c->total)
		return roost_reply(c, ROOST_RPC_OK, s, sizeof(*s));
	for (uint32_t i = 0; i < c->len; i++)
		see_byte(s, c->data[i]);
	s->messages += c->last;
	return ROOST_DONE;
}

/* Forwards the bytes that arrived, and waits if its limits require it. */
struct forward {
	uint64_t from, to;
	uint32_t rkey;
};

static enum roost_next forward_params(struct roost_call *c)
{
	memcpy(c->state, c->params, sizeof(struct forward));
	return ROOST_DONE;
}

static enum roost_next forward(struct roost_call *c)
{
	struct forward *f = c->state;

	ROOST_STEPS(c);
	if (!c->total)
		ROOST_FAIL(c, c->qp_failed ? ROOST_RPC_FAILED : ROOST_RPC_OK);
	if (c->where < f->from + RECVS)
		ROOST_QP_POST(c, roost_qp_write(c, 1, f->to + (c->where - f->from), f->rkey, NULL,
						c->where, c->len));
	ROOST_STEPS_END;
}

static const struct roost_kernel kernels[KERNELS] = {
	{.abi = ROOST_KERNEL_ABI,
	 .version = 1,
	 .name = "xor",
	 .op = XOR_OP,
	 .state_size = 8,
	 .stream = scramble,
	 .rewrites = true},
	{.abi = ROOST_KERNEL_ABI,
	 .version = 1,
	 .name = "add",
	 .op = ADD_OP,
	 .state_size = 8,
	 .stream = scramble,
	 .rewrites = true},
	{.abi = ROOST_KERNEL_ABI,
	 .version = 1,
	 .name = "stretch",
	 .op = STRETCH_OP,
	 .state_size = sizeof(struct stretch),
	 .stream = stretch,
	 .resizes = true},
	{.abi = ROOST_KERNEL_ABI,
	 .version = 1,
	 .name = "see",
	 .op = SEE_OP,
	 .state_size = sizeof(struct seen),
	 .stream = see},
	{.abi = ROOST_KERNEL_ABI,
	 .version = 1,
	 .name = "forward",
	 .op = FORWARD_OP,
	 .state_size = sizeof(struct forward),
	 .params = forward_params,
	 .stream = forward},
};

/* ---- the world, and the model ---- */

struct attached {
	struct local_call *call;
	uint64_t op, at;
	struct seen model, told;
};

struct rig {
	struct world w;
	struct kernel_runtime *from_f, *to_f;
	struct ep from, to, bound, replica;
	struct attached out[CHAIN], in, region, forward;
	uint32_t key; /* to's memory, for forwarded bytes */
	unsigned num_out, posted, recvs;
	uint32_t window; /* a key for all of the region */
	uint8_t model[MEM];
	uint8_t bytes[CHAIN + 1][4 * MAX_LEN]; /* a message, as each hook receives it */
};

static void attach(struct rig *r, struct attached *s, bool out, bool region, uint64_t op)
{
	const struct forward f = {.from = (uintptr_t)r->to.mem,
				  .to = (uintptr_t)r->replica.mem,
				  .rkey = r->replica.key};
	struct local_call_attr a = {.op = op,
				    .params = op == FORWARD_OP ? &f : NULL,
				    .params_len = op == FORWARD_OP ? sizeof(f) : 0,
				    .pd = r->bound.pd,
				    .key = r->key,
				    .reply = (uint8_t *)&s->told,
				    .space = sizeof(s->told)};

	*s = (struct attached){.op = op};
	must(local_call_begin(out ? r->from_f : r->to_f, 0, &a, &s->call) == 0, "no call");
	must((out      ? local_call_attach_out(s->call, r->from.qp)
	      : region ? local_call_attach_region(s->call, r->to.key)
		       : local_call_attach_in(s->call, r->to.qp)) == 0,
	     "not attached");
}

static void take_off(struct rig *r, struct attached *s)
{
	struct local_call_result result;

	must(local_call_detach(s->call) == 0, "in flight");
	for (unsigned i = 0; local_call_busy(s->call); i++) {
		must(i < MAX_STEP, "it waits for ever");
		world_step(&r->w, world_now(&r->w) + SEC);
	}
	local_call_end_stream(s->call);
	must(local_call_finished(s->call, &result) && result.status == ROOST_RPC_OK, "it gave up");
	if (s->op == SEE_OP)
		must(!memcmp(&s->told, &s->model, sizeof(s->told)), "it saw something else");
	local_call_free(s->call);
}

static void drain(struct rig *r)
{
	struct roost_cqe c;

	for (unsigned i = 0; r->posted; i++) {
		must(i < MAX_STEP, "requests that do not end");
		world_step(&r->w, world_now(&r->w) + SEC);
		while (ep_poll_send(&r->from, &c)) {
			must(c.status == NIC_WC_SUCCESS, "a request failed");
			r->posted--;
		}
	}
	/* Waits until the last message has arrived everywhere. */
	while (world_step(&r->w, world_now(&r->w) + 100 * MSEC))
		;
}

static void look(struct seen *s, const uint8_t *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		see_byte(s, p[i]);
	s->messages += n > 0;
}

/* Passes a message through the hooks on its way. Returns its length behind them. */
static uint32_t through(struct rig *r, const uint8_t *from, uint32_t n, bool send)
{
	memcpy(r->bytes[0], from, n);
	for (unsigned k = 0; k < r->num_out; k++) {
		struct attached *s = &r->out[k];
		const uint8_t *in = r->bytes[k];
		uint8_t *out = r->bytes[k + 1];
		uint32_t m = 0;

		for (uint32_t i = 0; i < n; i++) {
			uint32_t times = s->op == STRETCH_OP && !send ? stretched(in[i]) : 1;
			uint8_t b = in[i];

			if (s->op == XOR_OP)
				b ^= xor_byte(s->at++);
			if (s->op == ADD_OP)
				b = (uint8_t)(b + s->at++);
			while (times--)
				out[m++] = b;
		}
		if (s->op == SEE_OP) {
			look(&s->model, in, n);
			s->model.messages +=
				k && !send && r->out[0].op == STRETCH_OP && n > SEGMENT;
		}
		n = m;
	}
	return n;
}

static bool stretches(const struct rig *r)
{
	for (unsigned k = 0; k < r->num_out; k++)
		if (r->out[k].op == STRETCH_OP)
			return true;
	return false;
}

static void write_some(struct rig *r, uint32_t off, uint32_t n, uint32_t to, bool inl, bool window)
{
	uint32_t space = stretches(r) ? 2 * n : n, m;
	struct wr wr;

	off %= MEM - MAX_LEN;
	to %= RECVS - space;
	wr = wr_rdma(ROOST_OP_WRITE, &r->from, off, n, &r->to, to);
	if (window)
		wr.rkey = r->window;
	if (inl && n <= 64) {
		wr.inl = r->from.mem + off;
		wr.inline_len = n;
		wr.num_sge = 0;
	}
	ep_post(&r->from, &wr);
	r->posted++;
	m = through(r, r->from.mem + off, n, false);
	memcpy(r->model + to, r->bytes[r->num_out], m);
	look(&r->in.model, r->bytes[r->num_out], m);
	look(&r->region.model, r->bytes[r->num_out], m);
	/* A kernel that changes lengths makes two WRITEs of more than a segment. */
	r->in.model.messages += stretches(r) && m > SEGMENT;
	r->region.model.messages += stretches(r) && m > SEGMENT;
}

static void send_some(struct rig *r, uint32_t off, uint32_t n)
{
	uint32_t to = RECVS + r->recvs++ * RECV;
	struct roost_sge sge;
	struct wr wr;

	if (to + RECV > MEM)
		return;
	off %= MEM - MAX_LEN;
	n %= RECV + 1;
	sge = ep_sge(&r->to, to, RECV);
	ep_post_recv(&r->to, 0, &sge, 1);
	wr = (struct wr){.op = ROOST_OP_SEND, .sge = {ep_sge(&r->from, off, n)}, .num_sge = 1};
	ep_post(&r->from, &wr);
	r->posted++;
	through(r, r->from.mem + off, n, true);
	memcpy(r->model + to, r->bytes[r->num_out], n);
}

static void change(struct rig *r, uint8_t which)
{
	drain(r);
	if (which & 128 && r->num_out) {
		take_off(r, &r->out[--r->num_out]);
	} else if (r->num_out < CHAIN) {
		uint64_t op = XOR_OP + which % OUTWARD;

		if (op == STRETCH_OP && stretches(r))
			return; /* one of them at a time */
		attach(r, &r->out[r->num_out++], true, false, op);
	}
}

static void command(struct input *in, struct rig *r)
{
	uint8_t kind = u8(in);
	uint32_t off, n, to;

	if (r->posted == 32)
		drain(r);
	switch (kind % 8) {
	case 0:
	case 1:
	case 2:
	case 3:
		off = u16(in);
		n = kind & 8 ? u8(in) : u16(in) % (MAX_LEN + 1);
		to = u16(in);
		write_some(r, off, n, to, kind & 16, kind & 32);
		break;
	case 4:
		off = u16(in);
		send_some(r, off, u16(in));
		break;
	case 5:
		change(r, u8(in));
		break;
	default:
		for (unsigned i = 0; i <= kind >> 3; i++)
			world_step(&r->w, world_now(&r->w) + MSEC);
	}
}

static void fill(struct rig *r, uint8_t seed)
{
	for (uint32_t i = 0; i < MEM; i++)
		r->from.mem[i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 13);
}

/* A window has the addresses of its region. */
static void bind(struct rig *r)
{
	struct ep *e = &r->to;
	struct roost_cqe c;
	uint32_t key;

	must(nic_mw_alloc(e->nic, e->pd, 1, 0, &key) == 0, "no window");
	r->window = key ^ 1;
	ep_post(e, &(struct wr){.op = ROOST_OP_BIND_MW,
				.raddr = (uintptr_t)e->mem,
				.rkey = key,
				.imm = r->window,
				.swap_add = MEM,
				.compare = ROOST_BIND(e->key, NIC_ACCESS_REMOTE_WRITE)});
	must(ep_wait_send(e, &c, SEC) && c.status == NIC_WC_SUCCESS, "not bound");
}

/* A replica gets a copy of all data, by a queue pair with a limit of operations. */
static void replicate(struct rig *r, const struct ep_params *p, bool loop, unsigned ops)
{
	const struct runtime_qp_limits limits = {.ops = ops};
	struct nic_mr_attr m = {.addr = r->to.mem, .len = MEM, .iova = (uintptr_t)r->to.mem};
	unsigned number;

	ep_init(&r->bound, &r->w, loop ? 0 : 1, p);
	ep_init(&r->replica, &r->w, 0, p);
	ep_connect(&r->bound, &r->replica);
	m.pd = r->bound.pd;
	must(nic_mr_register(r->bound.nic, &m, &r->key) == 0, "no region");
	must(runtime_bind_qp(r->to_f, FORWARD_OP, r->bound.qp, &limits, &number) == 0 &&
		     number == 1,
	     "not bound");
	attach(r, &r->forward, false, false, FORWARD_OP);
}

static struct kernel_runtime *serve(struct nic *nic)
{
	struct kernel_runtime *f;

	must(runtime_create(nic, NULL, &f) == 0, "no kernel runtime");
	for (unsigned i = 0; i < KERNELS; i++)
		must(runtime_deploy(f, &kernels[i], NULL) == 0, "no kernel");
	return f;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct rig rig;
	struct input in = {data, data + size};
	uint8_t shape = u8(&in);
	struct sim_params sp = {
		.delay_ns = 2000, .loss = shape & 1 ? 0.05 : 0, .dup = shape & 1 ? 0.02 : 0};
	struct ep_params p = {.access = 15 | NIC_ACCESS_MW_BIND,
			      .depth = 64,
			      .mem = MEM,
			      .max_inline = 64,
			      .psn = 0xfffff0,
			      .mtu = 256u << (shape >> 1) % 5};
	bool loop = shape & 64;
	struct rig *r = &rig;

	memset(r, 0, sizeof(*r));
	world_init(&r->w, loop ? 1 : 2, 1 + shape, &sp);
	r->from_f = serve(r->w.nic[0]);
	r->to_f = loop ? r->from_f : serve(r->w.nic[1]);
	ep_init(&r->from, &r->w, 0, &p);
	ep_init(&r->to, &r->w, loop ? 0 : 1, &p);
	ep_connect(&r->from, &r->to);
	fill(r, shape);
	bind(r);
	replicate(r, &p, loop, shape >> 3 & 7);
	attach(r, &r->in, false, false, SEE_OP);
	attach(r, &r->region, false, true, SEE_OP);
	while (in.p < in.end)
		command(&in, r);
	drain(r);
	must(!memcmp(r->to.mem, r->model, MEM), "other bytes have arrived");
	while (r->num_out)
		take_off(r, &r->out[--r->num_out]);
	take_off(r, &r->in);
	take_off(r, &r->region);
	take_off(r, &r->forward);
	must(!memcmp(r->replica.mem, r->to.mem, RECVS), "the replica has other bytes");
	must(nic_mr_deregister(r->bound.nic, r->key) == 0, "no region");
	must(nic_mw_dealloc(r->to.nic, r->window) == 0, "the window has gone");
	ep_fini(&r->from);
	ep_fini(&r->to);
	ep_fini(&r->bound);
	ep_fini(&r->replica);
	world_fini(&r->w);
	return 0;
}
