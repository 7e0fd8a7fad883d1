/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Creation of the kernel runtime, its QPs, and its counters. The registered kernels are in
 * registry.c, calls in call.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/call.h"

#define DEFAULT_STEPS (1u << 20)
#define DEFAULT_IDLE  10000000000ull

static void free_slots(struct call_qp *q)
{
	mem_free_pages(q->bodies, (size_t)q->rt->calls * CALL_BODY + JOIN_MEM);
	mem_free_pages(q->calls, (size_t)q->rt->calls * sizeof(struct call));
}

/*
 * Pages are allocated when a call first writes to them. A huge page would be a hundred times what
 * is counted for the first slot (CALL_SLOT).
 */
static bool make_slots(struct call_qp *q)
{
	q->calls = mem_alloc_pages((size_t)q->rt->calls * sizeof(struct call));
	q->bodies = mem_alloc_small_pages((size_t)q->rt->calls * CALL_BODY + JOIN_MEM);
	if (q->calls && q->bodies) {
		q->join.mem = q->bodies + (size_t)q->rt->calls * CALL_BODY;
		return true;
	}
	free_slots(q);
	return false;
}

static int attach(void *ctx, struct nic_qp *qp, void **out)
{
	struct kernel_runtime *rt = ctx;
	struct call_qp *q;

	if (!nic_memory_take(rt->nic, sizeof(*q) + CALL_SLOT))
		return -ENOMEM;
	q = aligned_alloc(CACHE_LINE, sizeof(*q));
	if (!q)
		goto give_memory;
	memset(q, 0, sizeof(*q));
	q->rt = rt;
	if (!make_slots(q)) {
		free(q);
		goto give_memory;
	}
	q->slots = 1;
	q->owner = ++rt->owners;
	q->qp = qp;
	q->pu = &rt->pu[nic_qp_pu(qp)];
	list_init(&q->waiting);
	list_init(&q->ready);
	for (unsigned i = rt->calls; i-- > 0;)
		q->free[q->num_free++] = (uint8_t)i;
	*out = q;
	return 0;
give_memory:
	nic_memory_give(rt->nic, sizeof(*q) + CALL_SLOT);
	return -ENOMEM;
}

static void stop(void *ctx, void *qp_ctx)
{
	call_stop(qp_ctx);
}

static void free_qp(struct deferred_free *o)
{
	struct call_qp *q = container_of(o, struct call_qp, deferred);

	free_slots(q);
	nic_memory_give(q->rt->nic,
			sizeof(*q) + q->slots * CALL_SLOT + (q->join.counted ? JOIN_MEM : 0));
	free(q);
}

static void detach(void *ctx, void *qp_ctx)
{
	struct kernel_runtime *rt = ctx;
	struct call_qp *q = qp_ctx;

	call_stop(q);
	if (q->wrs_pending) {
		q->detached = true;
		q->deferred.free = free_qp;
		list_add_tail(&q->deferred.link, &rt->deferred_frees);
	} else {
		free_qp(&q->deferred);
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

static void kernel_wr_done(void *ctx, struct nic_qp *qp, void *owner, uint32_t number, uint32_t len,
			   enum nic_wc_status status)
{
	kernel_wrs_done(ctx, qp, owner, number, len, (uint8_t)status);
}

static void gone(void *ctx, struct nic_qp *qp)
{
	kernel_wrs_qp_gone(ctx, qp);
}

static unsigned run(void *ctx, unsigned pu, bool *more)
{
	return call_run(&((struct kernel_runtime *)ctx)->pu[pu], more);
}

static void turn_ended(void *ctx, unsigned pu, uint64_t now)
{
	struct runtime_pu *p = &((struct kernel_runtime *)ctx)->pu[pu];

	times_turn_ended(p, now);
	units_turn_ended(p, now);
}

static void close_runtime(void *ctx)
{
	struct kernel_runtime *rt = ctx;

	times_close(rt);
	registry_close(rt);
	ledgers_free(rt);
	free(rt);
}

static const struct nic_rpc_ops ops = {
	.attach = attach,
	.detach = detach,
	.deliver = deliver,
	.sent = sent,
	.lost = lost,
	.stop = stop,
	.kernel_wr_done = kernel_wr_done,
	.gone = gone,
	.run = run,
	.turn_ended = turn_ended,
	.close = close_runtime,
};

struct kernel_runtime *runtime_of(const struct nic *nic)
{
	return nic_rpc_server(nic, &ops);
}

int runtime_create(struct nic *nic, const struct runtime_config *cfg, struct kernel_runtime **out)
{
	struct kernel_runtime *rt;
	int rc;

	if (cfg && cfg->calls > RUNTIME_MAX_CALLS)
		return -EINVAL;
	rc = guard_init();
	if (rc)
		return rc;
	rt = calloc(1, sizeof(*rt));
	if (!rt)
		return -ENOMEM;
	rt->nic = nic;
	rt->calls = cfg && cfg->calls ? cfg->calls : RUNTIME_MAX_CALLS;
	rt->max_steps = cfg && cfg->max_steps ? cfg->max_steps : DEFAULT_STEPS;
	list_init(&rt->leaving);
	list_init(&rt->deferred_frees);
	rt->idle_ns = cfg && cfg->idle_ns ? cfg->idle_ns : DEFAULT_IDLE;
	for (unsigned i = 0; i < NIC_MAX_PUS; i++) {
		rt->pu[i].rt = rt;
		rt->pu[i].index = i;
		list_init(&rt->pu[i].ready);
		list_init(&rt->pu[i].paused);
		list_init(&rt->pu[i].local_calls);
		list_init(&rt->pu[i].full);
		list_init(&rt->pu[i].spent);
		list_init(&rt->pu[i].joins);
		list_init(&rt->pu[i].due_joins);
		list_init(&rt->pu[i].idle);
		units_begin(&rt->pu[i]);
	}
	if (cfg && cfg->timed && times_create(rt)) {
		free(rt);
		return -ENOMEM;
	}
	rc = nic_rpc_serve(nic, &ops, rt);
	if (rc) {
		times_close(rt);
		free(rt);
		return rc;
	}
	*out = rt;
	return 0;
}

const struct runtime_counter_info runtime_counter_info[RUNTIME_COUNTER_COUNT] = {
#define RUNTIME_COUNTER_INFO(name, help) {#name, help},
	RUNTIME_COUNTERS(RUNTIME_COUNTER_INFO)
#undef RUNTIME_COUNTER_INFO
};

void runtime_pu_counters(const struct kernel_runtime *rt, unsigned pu, struct runtime_counters *out)
{
	*out = rt->pu[pu].ctr;
}

int runtime_set_quota(struct kernel_runtime *rt, struct nic_qp *qp,
		      const struct runtime_quota *quota)
{
	struct call_qp *q = nic_rpc_ctx(qp);

	if (!q)
		return -EINVAL;
	q->quota = *quota;
	return 0;
}

struct guard *runtime_guard(struct kernel_runtime *rt, unsigned i)
{
	return &rt->pu[i].guard;
}

void runtime_counters(const struct kernel_runtime *rt, struct runtime_counters *out)
{
	memset(out, 0, sizeof(*out));
	for (unsigned i = 0; i < NIC_MAX_PUS; i++)
		for (size_t n = 0; n < sizeof(*out) / sizeof(uint64_t); n++)
			((uint64_t *)out)[n] += ((const uint64_t *)&rt->pu[i].ctr)[n];
}

/* Counts an end other than ROOST_RPC_OK, in the counters of the PU or in those of the kernel. */
#define COUNT_END(ctr, status)                                                                     \
	do {                                                                                       \
		switch (status) {                                                                  \
		case ROOST_RPC_BAD_PARAMS:                                                         \
			(ctr)->bad_params++;                                                       \
			break;                                                                     \
		case ROOST_RPC_ACCESS:                                                             \
			(ctr)->access++;                                                           \
			break;                                                                     \
		case ROOST_RPC_TOO_LONG:                                                           \
			(ctr)->too_long++;                                                         \
			break;                                                                     \
		case ROOST_RPC_BOUND:                                                              \
			(ctr)->bound++;                                                            \
			break;                                                                     \
		case ROOST_RPC_FAULT:                                                              \
			(ctr)->faults++;                                                           \
			break;                                                                     \
		case ROOST_RPC_STUCK:                                                              \
			(ctr)->stuck++;                                                            \
			break;                                                                     \
		case ROOST_RPC_DISABLED:                                                           \
			(ctr)->disabled++;                                                         \
			break;                                                                     \
		default:                                                                           \
			(ctr)->ended_other++;                                                      \
		}                                                                                  \
	} while (0)

void call_count_end(const struct call *call, uint32_t status)
{
	struct runtime_pu *pu = call->q->pu;

	if (likely(status == ROOST_RPC_OK)) {
		pu->ctr.ended_ok++;
		call->i.ctr->ended_ok++;
		return;
	}
	if (status == ROOST_RPC_NO_KERNEL) {
		pu->ctr.no_kernel++;
		return;
	}
	COUNT_END(&pu->ctr, status);
	COUNT_END(call->i.ctr, status);
}
