/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes kernels' operations on queue pairs that are bound to them: READs, WRITEs, SENDs,
 * immediates and atomics of any length and address, with right and wrong keys, from the kernel's
 * memory and from a region. Several runs are in progress at a time, with the program's own work
 * requests between them, over a link with or without loss, or over loop-back. No memory outside of
 * the regions changes; each run ends with a status for each operation; limits hold; each addition
 * has its effect once.
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

#define PAIRS	 2
#define RUNS	 4
#define OPS	 40 /* of a run */
#define MEM	 16384u
#define GUARD	 1024u /* bytes in front of a region, and behind it */
#define SCRATCH	 4096u
#define MAX_STEP 200000
#define SCRIPT	 0x1000ull

/* ---- the kernel, which executes the input ---- */

struct op {
	uint8_t kind, qp, how;
	uint16_t remote, local, len;
};

struct script {
	uint64_t raddr[PAIRS], va, counter[PAIRS];
	uint32_t rkey[PAIRS], counter_key[PAIRS];
	uint32_t num;
	struct op op[OPS];
};

/* For each queue pair's counter: the sum of sure additions, and of possible ones. */
struct told {
	uint32_t added[PAIRS], perhaps[PAIRS];
	uint32_t posted, failed, counted;
};

struct state {
	uint32_t at;
	struct told told;
	/* of the operation in that slot: 1 + the counter that it adds to */
	uint32_t slot[ROOST_QP_OPS];
	uint64_t old[ROOST_QP_OPS];
};

/* Runs that have ended and are not checked yet. */
static void look(struct roost_call *c, struct state *s)
{
	while (s->told.counted != c->qp_done) {
		uint32_t n = ++s->told.counted, adds = s->slot[n % ROOST_QP_OPS];
		enum roost_qp_status status = roost_qp_status(c, n);

		must(status != ROOST_QP_UNDER_WAY, "done, and under way");
		if (adds && status == ROOST_QP_OK)
			s->told.added[adds - 1]++;
		else if (adds && status < ROOST_QP_NONE && status != ROOST_QP_INVALID)
			s->told.perhaps[adds - 1]++;
		s->slot[n % ROOST_QP_OPS] = 0;
	}
}

static enum roost_next ask(struct roost_call *c, struct state *s, const struct script *p,
			   const struct op *o)
{
	uint32_t i = o->qp % PAIRS, qp = o->qp % (PAIRS + 2), n = (c->qp_posted + 1) % ROOST_QP_OPS;
	uint32_t rkey = p->rkey[i] ^ (o->how & 1 && o->how & 2 ? 0x100 : 0);
	uint64_t raddr = p->raddr[i] + o->remote, va = p->va + o->local;
	uint32_t len = o->len;
	void *buf = o->how & 4 ? NULL : (uint8_t *)c->scratch + o->local % SCRATCH;

	if (buf && len > SCRATCH - o->local % SCRATCH)
		len = SCRATCH - o->local % SCRATCH;
	switch (o->kind % 10) {
	case 0:
		return roost_qp_read(c, qp, raddr, rkey, buf, va, len);
	case 1:
		return roost_qp_write(c, qp, raddr, rkey, buf, va, len);
	case 2:
		return roost_qp_send(c, qp, buf, va, len);
	case 3:
		return roost_qp_write_imm(c, qp, raddr, rkey, buf, va, len, o->remote);
	case 4:
		return roost_qp_send_imm(c, qp, buf, va, len, o->remote);
	case 5:
		return roost_qp_cas(c, qp, raddr, rkey, buf ? &s->old[n] : NULL, va, o->len,
				    o->local);
	case 6:
		return roost_qp_fetch_add(c, qp, raddr, rkey, buf ? &s->old[n] : NULL, va, o->len);
	case 7:
	case 8:
		s->slot[n] = i + 1;
		return roost_qp_fetch_add(c, i + 1, p->counter[i], p->counter_key[i], &s->old[n], 0,
					  1);
	default:
		return roost_qp_wait(c, c->qp_done + 1 + o->len % ROOST_QP_OPS);
	}
}

static enum roost_next script(struct roost_call *c)
{
	const struct script *p = c->self;
	struct state *s = c->state;
	const struct op *o;

	p += *(const uint32_t *)c->params;
	ROOST_STEPS(c);
	for (; s->at < p->num; s->at++) {
		look(c, s);
		/* The slot of the run is free, and its former contents were checked. */
		if (c->qp_posted - c->qp_done == ROOST_QP_OPS)
			ROOST_QP_WAIT(c, c->qp_done + 1);
		look(c, s);
		o = &p->op[s->at];
		if (o->how & 8)
			ROOST_QP_DO(c, roost_qp_solicit(c, ask(c, s, p, &p->op[s->at])));
		else
			ROOST_WAIT(c, ask(c, s, p, &p->op[s->at]));
	}
	ROOST_QP_WAIT_ALL(c);
	look(c, s);
	must(c->qp_done == c->qp_posted, "not all is done");
	s->told.posted = c->qp_posted;
	s->told.failed = c->qp_failed;
	ROOST_REPLY(c, &s->told, sizeof(s->told));
	ROOST_STEPS_END;
}

static const struct roost_kernel kernel = {.abi = ROOST_KERNEL_ABI,
					   .version = 1,
					   .name = "script",
					   .op = SCRIPT,
					   .state_size = sizeof(struct state),
					   .scratch_size = SCRATCH,
					   .params = script};

/* ---- the world ---- */

struct run {
	struct local_call *call;
	struct told told;
};

struct rig {
	struct world w;
	struct kernel_runtime *f;
	struct ep_params p;
	struct ep bound[PAIRS], peer[PAIRS];
	struct runtime_qp_limits limits;
	bool loop;
	struct script scripts[RUNS];
	struct run runs[RUNS];
	uint32_t counter_key[PAIRS], pd, region;
	uint64_t counter[PAIRS];
	uint64_t added[PAIRS], perhaps[PAIRS];
	uint8_t local[MEM]; /* whose middle is the region of the runs */
};

static uint32_t reg(struct nic *nic, uint32_t pd, void *addr, uint64_t len)
{
	struct nic_mr_attr m = {
		.pd = pd, .addr = addr, .len = len, .iova = (uintptr_t)addr, .access = 15};
	uint32_t key;

	must(nic_mr_register(nic, &m, &key) == 0, "no region");
	return key;
}

static void connect(struct rig *r, unsigned i)
{
	struct ep *e = &r->peer[i];
	unsigned number;

	ep_init(&r->bound[i], &r->w, 0, &r->p);
	ep_init(e, &r->w, r->loop ? 0 : 1, &r->p);
	must(nic_mr_deregister(e->nic, e->key) == 0, "no region");
	memset(e->mem, 0, MEM);
	e->key = reg(e->nic, e->pd, e->mem + GUARD, MEM - 2 * GUARD);
	r->counter_key[i] = reg(e->nic, e->pd, &r->counter[i], 8);
	ep_connect(&r->bound[i], e);
	must(runtime_bind_qp(r->f, SCRIPT, r->bound[i].qp, &r->limits, &number) == 0 &&
		     number == i + 1,
	     "not bound");
	if (i == 0)
		r->region = reg(r->bound[0].nic, r->bound[0].pd, r->local + GUARD, MEM - 2 * GUARD);
}

static void all_zero(const uint8_t *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		must(!p[i], "a byte outside of its region has changed");
}

static void disconnect(struct rig *r, unsigned i)
{
	struct ep *e = &r->peer[i];

	all_zero(e->mem, GUARD);
	all_zero(e->mem + MEM - GUARD, GUARD);
	must(nic_mr_deregister(e->nic, r->counter_key[i]) == 0, "no region");
	if (i == 0)
		must(nic_mr_deregister(r->bound[0].nic, r->region) == 0, "no region");
	ep_fini(&r->bound[i]);
	ep_fini(e);
}

static void step(struct rig *r, uint64_t ns)
{
	struct roost_cqe c;

	world_step(&r->w, world_now(&r->w) + ns);
	for (unsigned i = 0; i < PAIRS; i++) {
		must(!r->limits.ops || nic_kernel_wrs(r->bound[i].qp) <= r->limits.ops,
		     "more than the limits");
		while (ep_poll_send(&r->bound[i], &c))
			must(c.wr_id == 99, "a completion of nobody's");
		while (ep_poll_recv(&r->peer[i], &c))
			;
	}
}

static void finish(struct rig *r, struct run *run)
{
	struct local_call_result result;

	if (!run->call)
		return;
	for (unsigned i = 0; !local_call_done(run->call); i++) {
		must(i < MAX_STEP, "a run that does not end");
		step(r, SEC);
	}
	must(local_call_finished(run->call, &result) && result.status == ROOST_RPC_OK,
	     "it ended otherwise");
	for (unsigned i = 0; i < PAIRS; i++) {
		r->added[i] += run->told.added[i];
		r->perhaps[i] += run->told.perhaps[i];
	}
	local_call_free(run->call);
	run->call = NULL;
}

/* Queue pairs in the error state begin anew. */
static void mend(struct rig *r)
{
	bool broken = false;

	for (unsigned i = 0; i < PAIRS; i++)
		broken |= nic_qp_state(r->bound[i].qp) == NIC_QPS_ERR;
	if (!broken)
		return;
	for (unsigned k = 0; k < RUNS; k++)
		finish(r, &r->runs[k]);
	for (unsigned i = 0; i < PAIRS; i++)
		disconnect(r, i);
	for (unsigned i = 0; i < PAIRS; i++)
		connect(r, i);
}

static void start(struct rig *r, struct input *in)
{
	uint32_t which = u8(in) % RUNS;
	struct script *s = &r->scripts[which];
	struct local_call_attr a = {.op = SCRIPT,
				    .params = &which,
				    .params_len = sizeof(which),
				    .pd = r->bound[0].pd,
				    .key = r->region,
				    .reply = (uint8_t *)&r->runs[which].told,
				    .space = sizeof(struct told)};

	finish(r, &r->runs[which]);
	mend(r);
	a.pd = r->bound[0].pd;
	a.key = r->region;
	s->va = (uintptr_t)r->local + GUARD;
	for (unsigned i = 0; i < PAIRS; i++) {
		s->raddr[i] = (uintptr_t)r->peer[i].mem + GUARD;
		s->rkey[i] = r->peer[i].key;
		s->counter[i] = (uintptr_t)&r->counter[i];
		s->counter_key[i] = r->counter_key[i];
	}
	s->num = 1 + u8(in) % OPS;
	for (uint32_t i = 0; i < s->num; i++) {
		struct op *o = &s->op[i];

		o->kind = u8(in);
		o->qp = u8(in);
		o->how = u8(in);
		o->remote = u16(in);
		o->local = u16(in);
		o->len = u16(in);
		/* Most addresses are in the region, and aligned for atomics. */
		if (!(o->how & 16)) {
			o->remote = o->remote % (MEM / 2) & ~7u;
			o->local = o->local % (MEM / 4) & ~7u;
			o->len %= 4096;
		}
	}
	must(local_call_start(r->f, 0, &a, NULL, 0, &r->runs[which].call) == 0, "no run");
}

static void own(struct rig *r, struct input *in)
{
	unsigned i = u8(in) % PAIRS;
	uint32_t len = u16(in) % 4096;
	struct wr wr;

	mend(r);
	wr = wr_rdma(ROOST_OP_WRITE, &r->bound[i], 0, len, &r->peer[i], GUARD);
	wr.wr_id = 99;
	ep_post(&r->bound[i], &wr);
}

static void command(struct input *in, struct rig *r)
{
	uint8_t kind = u8(in);
	struct roost_sge sge;
	unsigned i;

	switch (kind % 6) {
	case 0:
	case 1:
		start(r, in);
		break;
	case 2:
		i = u8(in) % PAIRS;
		sge = (struct roost_sge){(uintptr_t)r->peer[i].mem + GUARD, 4096, r->peer[i].key};
		ep_post_recv(&r->peer[i], 0, &sge, 1);
		break;
	case 3:
		own(r, in);
		break;
	default:
		for (i = 0; i <= kind >> 3; i++)
			step(r, MSEC);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct rig rig;
	struct input in = {data, data + size};
	uint8_t shape = u8(&in);
	struct sim_params sp = {
		.delay_ns = 2000, .loss = shape & 1 ? 0.03 : 0, .dup = shape & 1 ? 0.02 : 0};
	struct rig *r = &rig;

	memset(r, 0, sizeof(*r));
	r->loop = shape & 2;
	r->limits =
		(struct runtime_qp_limits){.ops = shape >> 2 & 7, .bytes = shape & 32 ? 9000 : 0};
	r->p = (struct ep_params){.depth = 256,
				  .mem = MEM,
				  .psn = 0xfffff0,
				  .rnr_retry = 2,
				  .rd_atomic = shape & 64 ? 1 : 16};
	world_init(&r->w, r->loop ? 1 : 2, 1 + shape, &sp);
	must(runtime_create(r->w.nic[0], NULL, &r->f) == 0, "no kernel runtime");
	must(runtime_deploy(r->f, &kernel, r->scripts) == 0, "no kernel");
	for (unsigned i = 0; i < PAIRS; i++)
		connect(r, i);
	/* No input is long enough to fill a queue. */
	for (unsigned n = 0; in.p < in.end && n < 200; n++)
		command(&in, r);
	for (unsigned k = 0; k < RUNS; k++)
		finish(r, &r->runs[k]);
	for (unsigned i = 0; i < PAIRS; i++) {
		must(r->counter[i] >= r->added[i] && r->counter[i] <= r->added[i] + r->perhaps[i],
		     "added twice, or not at all");
		disconnect(r, i);
	}
	all_zero(r->local, GUARD);
	all_zero(r->local + MEM - GUARD, GUARD);
	world_fini(&r->w);
	return 0;
}
