/* SPDX-License-Identifier: BSD-2-Clause */
/* The fabric as a whole, and which QPs may call. Which kernels stand is standing.c, what becomes of a call call.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/call.h"

#define DEFAULT_STEPS (1u << 20)
#define DEFAULT_IDLE  10000000000ull

static int attach(void *ctx, struct nic_qp *qp, void **out)
{
	struct fabric *f = ctx;
	struct call_qp *q;

	if (!nic_memory_take(f->nic, sizeof(*q) + CALL_BODY))
		return -ENOMEM;
	q = calloc(1, sizeof(*q));
	if (!q)
		goto give_memory;
	/* Pages that no call has touched are not there. */
	q->bodies = mem_alloc_pages((size_t)f->calls * CALL_BODY);
	if (!q->bodies) {
		free(q);
		goto give_memory;
	}
	q->slots = 1;
	q->owner = ++f->owners;
	q->qp = qp;
	q->f = f;
	q->pu = &f->pu[nic_qp_pu(qp)];
	list_init(&q->waiting);
	list_init(&q->ready);
	for (unsigned i = f->calls; i-- > 0;) {
		q->calls[i].q = q;
		q->free[q->num_free++] = (uint8_t)i;
	}
	*out = q;
	return 0;
give_memory:
	nic_memory_give(f->nic, sizeof(*q) + CALL_BODY);
	return -ENOMEM;
}

static void stop(void *ctx, void *qp_ctx)
{
	call_stop(qp_ctx);
}

static void free_qp(struct orphan *o)
{
	struct call_qp *q = container_of(o, struct call_qp, orphan);

	mem_free_pages(q->bodies, (size_t)q->f->calls * CALL_BODY);
	nic_memory_give(q->f->nic, sizeof(*q) + q->slots * CALL_BODY);
	free(q);
}

static void detach(void *ctx, void *qp_ctx)
{
	struct fabric *f = ctx;
	struct call_qp *q = qp_ctx;

	call_stop(q);
	if (q->acting) {
		q->detached = true;
		q->orphan.free = free_qp;
		list_add_tail(&q->orphan.link, &f->orphans);
	} else {
		free_qp(&q->orphan);
	}
}

static bool deliver(void *ctx, void *qp_ctx, const struct nic_rpc_piece *piece)
{
	return call_deliver(qp_ctx, piece);
}

static void sent(void *ctx, void *qp_ctx, uint64_t cookie)
{
	call_sent(qp_ctx, cookie);
}

static void lost(void *ctx, void *qp_ctx, uint32_t call)
{
	call_lost(qp_ctx, call);
}

static void acted(void *ctx, struct nic_qp *qp, void *owner, uint32_t number, uint32_t len,
		  enum nic_wc_status status)
{
	acts_done(ctx, qp, owner, number, len, (uint8_t)status);
}

static void gone(void *ctx, struct nic_qp *qp)
{
	acts_gone(ctx, qp);
}

static unsigned run(void *ctx, unsigned pu, bool *more)
{
	return call_run(&((struct fabric *)ctx)->pu[pu], more);
}

static void over(void *ctx, unsigned pu, uint64_t now)
{
	struct fabric_pu *p = &((struct fabric *)ctx)->pu[pu];

	times_over(p, now);
	units_over(p, now);
}

static void close_fabric(void *ctx)
{
	struct fabric *f = ctx;

	times_close(f);
	standing_close(f);
	ledgers_free(f);
	free(f);
}

static const struct nic_rpc_ops ops = {
	.attach = attach,
	.detach = detach,
	.deliver = deliver,
	.sent = sent,
	.lost = lost,
	.stop = stop,
	.acted = acted,
	.gone = gone,
	.run = run,
	.over = over,
	.close = close_fabric,
};

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
	rc = guard_init();
	if (rc)
		return rc;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->nic = nic;
	f->calls = cfg && cfg->calls ? cfg->calls : FABRIC_MAX_CALLS;
	f->max_steps = cfg && cfg->max_steps ? cfg->max_steps : DEFAULT_STEPS;
	list_init(&f->leaving);
	list_init(&f->orphans);
	f->idle_ns = cfg && cfg->idle_ns ? cfg->idle_ns : DEFAULT_IDLE;
	for (unsigned i = 0; i < NIC_MAX_PUS; i++) {
		f->pu[i].f = f;
		f->pu[i].index = i;
		list_init(&f->pu[i].ready);
		list_init(&f->pu[i].runs);
		list_init(&f->pu[i].full);
		list_init(&f->pu[i].spent);
		list_init(&f->pu[i].idle);
		units_begin(&f->pu[i]);
	}
	if (cfg && cfg->timed && times_create(f)) {
		free(f);
		return -ENOMEM;
	}
	rc = nic_rpc_serve(nic, &ops, f);
	if (rc) {
		times_close(f);
		free(f);
		return rc;
	}
	*out = f;
	return 0;
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

int fabric_set_quota(struct fabric *f, struct nic_qp *qp, const struct fabric_quota *quota)
{
	struct call_qp *q = nic_rpc_ctx(qp);

	if (!q)
		return -EINVAL;
	q->quota = *quota;
	return 0;
}

struct guard *fabric_guard(struct fabric *f, unsigned i)
{
	return &f->pu[i].guard;
}

void fabric_counters(const struct fabric *f, struct fabric_counters *out)
{
	memset(out, 0, sizeof(*out));
	for (unsigned i = 0; i < NIC_MAX_PUS; i++)
		for (size_t n = 0; n < sizeof(*out) / sizeof(uint64_t); n++)
			((uint64_t *)out)[n] += ((const uint64_t *)&f->pu[i].ctr)[n];
}

/* Of the PU, and of the kernel. */
#define COUNT_END(ctr, status)                                                                               \
	do {                                                                                                 \
		switch (status) {                                                                            \
		case ROOST_RPC_OK:                                                                           \
			(ctr)->ended_ok++;                                                                   \
			break;                                                                               \
		case ROOST_RPC_BAD_PARAMS:                                                                   \
			(ctr)->bad_params++;                                                                 \
			break;                                                                               \
		case ROOST_RPC_ACCESS:                                                                       \
			(ctr)->access++;                                                                     \
			break;                                                                               \
		case ROOST_RPC_TOO_LONG:                                                                     \
			(ctr)->too_long++;                                                                   \
			break;                                                                               \
		case ROOST_RPC_BOUND:                                                                        \
			(ctr)->bound++;                                                                      \
			break;                                                                               \
		case ROOST_RPC_FAULT:                                                                        \
			(ctr)->faults++;                                                                     \
			break;                                                                               \
		case ROOST_RPC_STUCK:                                                                        \
			(ctr)->stuck++;                                                                      \
			break;                                                                               \
		case ROOST_RPC_DISABLED:                                                                     \
			(ctr)->disabled++;                                                                   \
			break;                                                                               \
		default:                                                                                     \
			(ctr)->ended_other++;                                                                \
		}                                                                                            \
	} while (0)

void call_count_end(const struct call *call, uint32_t status)
{
	struct fabric_pu *pu = call->q->pu;

	if (status == ROOST_RPC_NO_KERNEL) {
		pu->ctr.no_kernel++;
		return;
	}
	COUNT_END(&pu->ctr, status);
	COUNT_END(&call->s->pu[pu->index].ctr, status);
}
