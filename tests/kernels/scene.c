/* SPDX-License-Identifier: BSD-2-Clause */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct scene scene;
struct scene *const s = &scene;
unsigned cuts;

struct script {
	uint32_t next;
	struct told told;
};

static enum roost_next obey(struct roost_call *c, const struct cmd *cmd)
{
	uint8_t *scratch = c->scratch, *buf = cmd->region ? NULL : scratch + cmd->at;
	enum roost_next next;

	switch ((enum what)cmd->what) {
	case READ:
		next = roost_qp_read(c, cmd->qp, cmd->raddr, cmd->rkey, buf, cmd->at, cmd->len);
		break;
	case WRITE:
		next = roost_qp_write(c, cmd->qp, cmd->raddr, cmd->rkey, buf, cmd->at, cmd->len);
		break;
	case SEND:
		next = roost_qp_send(c, cmd->qp, buf, cmd->at, cmd->len);
		break;
	case FILL:
		memset(scratch + cmd->at, cmd->fill, cmd->len);
		return ROOST_AGAIN;
	default:
		return roost_qp_wait(c, cmd->what == SLEEPY ? c->qp_done + 1 : c->qp_posted);
	}
	return cmd->then ? roost_qp_then(c, next) : next;
}

static enum roost_next script(struct roost_call *c)
{
	struct script *t = c->state;
	const struct cmd *cmds = c->params;

	if (t->next < c->params_len / sizeof(*cmds))
		return obey(c, &cmds[t->next++]);
	t->told.posted = c->qp_posted;
	t->told.done = c->qp_done;
	t->told.failed = c->qp_failed;
	t->told.qps = c->num_qps;
	for (uint32_t i = 0; i < ROOST_QP_OPS; i++)
		t->told.status[i] = (uint8_t)roost_qp_status(c, i + 1);
	return roost_reply(c, ROOST_RPC_OK, &t->told, sizeof(t->told));
}

static void script_cut(struct roost_call *c)
{
	cuts++;
}

const struct roost_kernel script_kernel = {.abi = ROOST_KERNEL_ABI,
					   .version = 1,
					   .name = "script",
					   .op = SCRIPT_OP,
					   .state_size = sizeof(struct script),
					   .scratch_size = 12288,
					   .params = script,
					   .cut = script_cut};

const struct shape plain = {.sp = {.delay_ns = 2000}}, over_loop = {.loop = true};

void bind_qp(uint64_t op, struct ep *e, unsigned want)
{
	unsigned number;

	assert_int_equal(runtime_bind_qp(s->f, op, e->qp, &(struct runtime_qp_limits){0}, &number),
			 0);
	assert_int_equal(number, want);
}

void open_scene(uint64_t seed, const struct shape *shape)
{
	struct ep_params p = {.rpc = true,
			      .mem = MEM,
			      .psn = 0xfffff8,
			      .retry_cnt = shape->retry_cnt,
			      .rnr_retry = shape->rnr_retry,
			      .timeout = shape->timeout};

	world_init(&s->w, shape->loop ? 1 : PEERS + 1, seed, &shape->sp);
	assert_int_equal(runtime_create(s->w.nic[0], NULL, &s->f), 0);
	assert_int_equal(runtime_deploy(s->f, &script_kernel, NULL), 0);
	ep_init(&s->called, &s->w, 0, &p);
	ep_init(&s->caller, &s->w, shape->loop ? 0 : 1, &p);
	ep_connect(&s->caller, &s->called);
	p.rpc = false;
	for (unsigned i = 0; i < PEERS; i++) {
		ep_init(&s->bound[i], &s->w, 0, &p);
		ep_init(&s->peer[i], &s->w, shape->loop ? 0 : i + 1, &p);
		ep_connect(&s->bound[i], &s->peer[i]);
		bind_qp(SCRIPT_OP, &s->bound[i], i + 1);
	}
	cuts = 0;
}

void close_scene(void)
{
	for (unsigned i = 0; i < PEERS; i++) {
		if (s->bound[i].qp)
			ep_fini(&s->bound[i]);
		ep_fini(&s->peer[i]);
	}
	ep_fini(&s->caller);
	ep_fini(&s->called);
	world_fini(&s->w);
}

bool turn(void)
{
	return world_step(&s->w, world_now(&s->w) + 100 * SEC);
}

struct local_call *start(uint64_t op, const void *params, uint32_t len, const struct ep *region,
			 void *reply, uint32_t space)
{
	struct local_call_attr a = {.op = op,
				    .params = params,
				    .params_len = len,
				    .pd = region ? region->pd : 0,
				    .key = region ? region->key : 0,
				    .reply = reply,
				    .space = space};
	struct local_call *p;

	assert_int_equal(local_call_start(s->f, runtime_pu_of(s->f, op), &a, NULL, 0, &p), 0);
	return p;
}

void finish(struct local_call *p, uint32_t status)
{
	struct local_call_result result;

	while (!local_call_done(p))
		assert_true(turn());
	assert_true(local_call_finished(p, &result));
	assert_int_equal(result.status, status);
	local_call_free(p);
}

struct told play(const struct cmd *cmds, unsigned n, const struct ep *region)
{
	struct told told = {0};

	finish(start(SCRIPT_OP, cmds, n * (uint32_t)sizeof(*cmds), region, &told, sizeof(told)),
	       ROOST_RPC_OK);
	return told;
}
struct cmd rdma(enum what what, unsigned peer, uint64_t roff, uint32_t at, uint32_t len)
{
	return (struct cmd){.what = (uint8_t)what,
			    .then = 1,
			    .qp = peer + 1,
			    .raddr = (uintptr_t)s->peer[peer].mem + roff,
			    .rkey = s->peer[peer].key,
			    .at = at,
			    .len = len};
}

struct cmd fill(uint32_t at, uint8_t byte, uint32_t len)
{
	return (struct cmd){.what = FILL, .at = at, .fill = byte, .len = len};
}

struct cmd with(struct cmd c, bool then, bool region, uint64_t at)
{
	c.then = then;
	c.region = region;
	if (region)
		c.at = at;
	return c;
}

void filled(const uint8_t *p, uint8_t byte, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(p[i], byte);
}
