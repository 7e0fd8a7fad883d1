/* SPDX-License-Identifier: BSD-2-Clause */
/* The fabric's tables: which kernels stand, which QPs may call. What becomes of a call is call.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/call.h"

#define DEFAULT_STEPS (1u << 20)

static int attach(void *ctx, struct nic_qp *qp, void **out)
{
	struct fabric *f = ctx;
	struct call_qp *q = calloc(1, sizeof(*q));

	if (!q)
		return -ENOMEM;
	/* Pages that no call has touched are not there. */
	q->bodies = mem_alloc_pages((size_t)f->calls * CALL_BODY);
	if (!q->bodies) {
		free(q);
		return -ENOMEM;
	}
	q->qp = qp;
	q->f = f;
	q->pu = &f->pu[nic_qp_pu(qp)];
	list_init(&q->waiting);
	for (unsigned i = f->calls; i-- > 0;) {
		q->calls[i].q = q;
		q->free[q->num_free++] = (uint8_t)i;
	}
	*out = q;
	return 0;
}

static void stop(void *ctx, void *qp_ctx)
{
	call_stop(qp_ctx);
}

static void detach(void *ctx, void *qp_ctx)
{
	struct fabric *f = ctx;
	struct call_qp *q = qp_ctx;

	call_stop(q);
	mem_free_pages(q->bodies, (size_t)f->calls * CALL_BODY);
	free(q);
}

static bool deliver(void *ctx, void *qp_ctx, const struct nic_rpc_piece *piece)
{
	return call_deliver(qp_ctx, piece);
}

static void sent(void *ctx, void *qp_ctx, uint64_t cookie)
{
	call_sent(qp_ctx, cookie);
}

static unsigned run(void *ctx, unsigned pu, bool *more)
{
	return call_run(&((struct fabric *)ctx)->pu[pu], more);
}

static void end_kernel(struct served *s)
{
	if (s->k && s->k->stop)
		s->k->stop(s->self);
	s->k = NULL;
}

static void close_fabric(void *ctx)
{
	struct fabric *f = ctx;

	for (unsigned i = 0; i < f->num_kernels; i++)
		end_kernel(&f->kernels[i]);
	end_kernel(&f->fallback);
	free(f);
}

static const struct nic_rpc_ops ops = {attach, detach, deliver, sent, stop, run, close_fabric};

struct fabric *fabric_of(const struct nic *nic)
{
	return nic_rpc_server(nic, &ops);
}

int fabric_create(struct nic *nic, const struct fabric_config *cfg, struct fabric **out)
{
	struct fabric *f;
	int rc;

	if (cfg && cfg->calls > FABRIC_MAX_CALLS)
		return -EINVAL;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->calls = cfg && cfg->calls ? cfg->calls : FABRIC_MAX_CALLS;
	f->max_steps = cfg && cfg->max_steps ? cfg->max_steps : DEFAULT_STEPS;
	for (unsigned i = 0; i < NIC_MAX_PUS; i++) {
		f->pu[i].index = i;
		list_init(&f->pu[i].ready);
	}
	rc = nic_rpc_serve(nic, &ops, f);
	if (rc) {
		free(f);
		return rc;
	}
	*out = f;
	return 0;
}

/* ---- kernels ---- */

static int check(const struct roost_kernel *k)
{
	if (k->abi != ROOST_KERNEL_ABI)
		return -EPROTO;
	if (!k->name || !*k->name || (!k->params && !k->payload) || k->state_size > ROOST_KERNEL_MAX_STATE ||
	    k->scratch_size > ROOST_KERNEL_MAX_STATE - k->state_size)
		return -EINVAL;
	return 0;
}

static int begin_kernel(struct served *s, const struct roost_kernel *k, void *self)
{
	int rc = k->start ? k->start(&self) : 0;

	if (rc)
		return rc < 0 ? rc : -EIO;
	*s = (struct served){.k = k, .self = self};
	return 0;
}

static bool busy(const struct served *s)
{
	for (unsigned i = 0; i < NIC_MAX_PUS; i++)
		if (s->calls[i])
			return true;
	return false;
}

static struct served *find(struct fabric *f, uint64_t op)
{
	for (unsigned i = 0; i < f->num_kernels; i++)
		if (f->ops[i] == op && f->kernels[i].k)
			return &f->kernels[i];
	return NULL;
}

/* Calls point to their kernel's place: nothing moves. */
static unsigned free_place(const struct fabric *f)
{
	unsigned i = 0;

	while (i < f->num_kernels && f->kernels[i].k)
		i++;
	return i;
}

struct served *fabric_find(struct fabric *f, uint64_t op)
{
	struct served *s = find(f, op);

	return s ? s : f->fallback.k ? &f->fallback : NULL;
}

int fabric_deploy(struct fabric *f, const struct roost_kernel *k, void *self)
{
	unsigned i = free_place(f);
	int rc = check(k);

	if (rc)
		return rc;
	if (find(f, k->op))
		return -EEXIST;
	if (i == FABRIC_MAX_KERNELS)
		return -ENOSPC;
	rc = begin_kernel(&f->kernels[i], k, self);
	if (rc)
		return rc;
	f->ops[i] = k->op;
	if (i == f->num_kernels)
		f->num_kernels++;
	return 0;
}

int fabric_undeploy(struct fabric *f, uint64_t op)
{
	struct served *s = find(f, op);

	if (!s)
		return -ENOENT;
	if (busy(s))
		return -EBUSY;
	end_kernel(s);
	return 0;
}

int fabric_set_fallback(struct fabric *f, const struct roost_kernel *k, void *self)
{
	struct served s = {0};
	int rc;

	if (busy(&f->fallback))
		return -EBUSY;
	rc = k ? check(k) : 0;
	if (!rc && k)
		rc = begin_kernel(&s, k, self);
	if (rc)
		return rc;
	end_kernel(&f->fallback);
	f->fallback = s;
	return 0;
}

const struct roost_kernel *fabric_kernel(const struct fabric *f, unsigned i)
{
	for (unsigned at = 0; at < f->num_kernels; at++)
		if (f->kernels[at].k && i-- == 0)
			return f->kernels[at].k;
	return NULL;
}

const struct fabric_counter_info fabric_counter_info[FABRIC_COUNTER_COUNT] = {
#define FABRIC_COUNTER_INFO(name, help) {#name, help},
	FABRIC_COUNTERS(FABRIC_COUNTER_INFO)
#undef FABRIC_COUNTER_INFO
};

void fabric_pu_counters(const struct fabric *f, unsigned pu, struct fabric_counters *out)
{
	*out = f->pu[pu].ctr;
}

void fabric_counters(const struct fabric *f, struct fabric_counters *out)
{
	memset(out, 0, sizeof(*out));
	for (unsigned i = 0; i < NIC_MAX_PUS; i++)
		for (size_t n = 0; n < sizeof(*out) / sizeof(uint64_t); n++)
			((uint64_t *)out)[n] += ((const uint64_t *)&f->pu[i].ctr)[n];
}
