/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of kernels by `roost perf rpc`. Both sides compute the layout of the target's tx from the
 * job:
 *
 *	get		| table: a power of two of entries, as many for chains | values |
 *			every key is used in turn
 *	traversal	| elements of one list, in a mixed order | value |
 *			the key is the one of the last element
 *	echo, hll	nothing
 *
 * A call counts as completed when its reply has arrived, so the calls of a queue are waited for in
 * the order in which they began.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cli/perf/perf.h"
#include "roost/get.h"
#include "roost/hll.h"
#include "roost/traversal.h"
#include "roost/verbs.h"

#define MAX_KEYS 1024u
/* fewer keys if values are large: the job measures the call */
#define VALUES_LEN    (UINT64_C(16) << 20)
#define ECHO_OP	      0x1000u
#define HLL_NAME      1u
#define HLL_PRECISION 14u
#define HLL_SPACE     64u

const char *const perf_kernel_names[] = {"get", "traversal", "echo", "hll", NULL};

struct element {
	uint64_t key, next, value, rest[5];
};

/* Calls in progress on one queue pair, oldest first. */
struct calls {
	struct roost_caller *caller;
	unsigned id[PERF_MAX_CALLS];
	uint64_t begun, done;
};

struct perf_rpc {
	uint64_t op;
	struct calls *calls; /* calls of each queue pair; NULL at the target */
	bool deployed;
};

/* ---- layout ---- */

static uint64_t stride(const struct perf_job *job)
{
	return job->size ? ALIGN_UP(job->size, (uint64_t)CACHE_LINE) : CACHE_LINE;
}

static uint64_t num_keys(const struct perf_job *job)
{
	uint64_t fit = VALUES_LEN / stride(job);

	return fit > MAX_KEYS ? MAX_KEYS : fit ? fit : 1;
}

static uint64_t num_entries(const struct perf_job *job)
{
	return pow2_ceil(num_keys(job));
}

static uint64_t table_len(const struct perf_job *job)
{
	return 2 * num_entries(job) * sizeof(struct roost_get_entry);
}

uint64_t perf_rpc_memory(const struct perf_job *job)
{
	switch (job->kernel) {
	case PERF_GET:
		return table_len(job) + num_keys(job) * stride(job);
	case PERF_TRAVERSAL:
		return job->hops * sizeof(struct element) + stride(job);
	default:
		return stride(job); /* the memory of the initiator has the payload */
	}
}

/* ---- the target ---- */

static int build_table(struct perf_link *l)
{
	const struct perf_job *job = &l->job;
	uint8_t *values = l->tx + table_len(job);
	uint32_t more = (uint32_t)num_entries(job), used = 0;

	for (uint64_t i = 0; i < num_keys(job); i++)
		if (roost_get_insert((void *)l->tx, num_entries(job), more, &used, i + 1,
				     (uintptr_t)(values + i * stride(job)), (uint32_t)job->size, 0))
			return perf_fail(l, -ENOSPC, "the table of %u keys is full",
					 (unsigned)num_keys(job));
	return 0;
}

/*
 * Returns the index of element n: n times an odd number, modulo the largest power of two that is
 * not above the number of elements. Elements from this power on keep their index. No prefetcher
 * follows this walk.
 */
static uint64_t position_of(const struct perf_job *job, uint64_t n)
{
	uint64_t mixed = pow2_ceil(job->hops) == job->hops ? job->hops : pow2_ceil(job->hops) / 2;

	return n < mixed ? (n * 0x9e3779b1u & (mixed - 1)) : n;
}

static void build_list(struct perf_link *l)
{
	const struct perf_job *job = &l->job;
	struct element *e = (void *)l->tx;

	for (uint64_t n = 0; n < job->hops; n++)
		e[position_of(job, n)] = (struct element){
			.key = n + 1,
			.next = n + 1 < job->hops ? (uintptr_t)&e[position_of(job, n + 1)] : 0,
			.value = (uintptr_t)&e[job->hops],
		};
}

/* Sends the payload back. */
static enum roost_next echo(struct roost_call *c)
{
	memcpy(c->scratch, c->params, c->params_len);
	ROOST_REPLY(c, c->scratch, c->params_len);
}

static const struct roost_kernel echo_kernel = {
	.abi = ROOST_KERNEL_ABI,
	.version = 1,
	.name = "echo",
	.op = ECHO_OP,
	.scratch_size = ROOST_RPC_MAX_PARAMS,
	.params = echo,
};

static const struct roost_kernel *kernel_of(const struct perf_job *job)
{
	return job->kernel == PERF_ECHO ? &echo_kernel
					: roost_kernel_builtin(perf_kernel_names[job->kernel]);
}

int perf_rpc_offer(struct perf_link *l)
{
	const struct roost_kernel *k = kernel_of(&l->job);
	int rc = 0;

	l->rpc = calloc(1, sizeof(*l->rpc));
	if (!l->rpc)
		return perf_fail(l, -ENOMEM, "out of memory");
	l->rpc->op = k->op;
	if (l->job.kernel == PERF_GET || l->job.kernel == PERF_TRAVERSAL)
		memset(l->tx, 0, perf_rpc_memory(&l->job) - stride(&l->job));
	if (l->job.kernel == PERF_GET)
		rc = build_table(l);
	else if (l->job.kernel == PERF_TRAVERSAL)
		build_list(l);
	if (rc < 0)
		return rc;
	rc = roost_kernel_deploy(l->nic->ctx, k, NULL);
	if (rc)
		return perf_fail(l, -rc, "can't deploy the kernel %s: %s", k->name, strerror(rc));
	l->rpc->deployed = true;
	return 0;
}

/* ---- the initiator ---- */

/*
 * Fills the payload with different items. With equal items hll would find one register in the
 * cache.
 */
static void fill_payload(struct perf_link *l)
{
	uint64_t *item = (void *)l->tx;
	struct rng rng;

	rng_seed(&rng, l->job.seed);
	for (uint64_t i = 0; i < l->job.size / sizeof(*item); i++)
		item[i] = rng_u64(&rng);
}

int perf_rpc_open(struct perf_link *l)
{
	uint32_t most = (uint32_t)l->job.mtu - (uint32_t)sizeof(struct roost_rpc_head);
	uint32_t space = l->job.kernel == PERF_HLL ? HLL_SPACE : (uint32_t)l->job.size;

	if (l->job.kernel == PERF_ECHO && l->job.size > most)
		return perf_fail(l, -EINVAL,
				 "an echo's bytes come in one packet: the ports carry --size %u",
				 most);
	l->rpc = calloc(1, sizeof(*l->rpc));
	if (l->rpc)
		l->rpc->calls = calloc(l->num_qps, sizeof(*l->rpc->calls));
	if (!l->rpc || !l->rpc->calls)
		return perf_fail(l, -ENOMEM, "out of memory");
	l->calls = true;
	l->rpc->op = kernel_of(&l->job)->op;
	fill_payload(l);
	for (unsigned i = 0; i < l->num_qps; i++) {
		l->rpc->calls[i].caller =
			roost_caller_create(l->qps[i].qp, (unsigned)l->job.depth, space);
		if (!l->rpc->calls[i].caller)
			return perf_fail(
				l, -errno,
				"no memory for replies: take a smaller --size, --depth or --qps");
	}
	return 0;
}

void perf_rpc_close(struct perf_link *l)
{
	struct perf_rpc *rpc = l->rpc;

	if (!rpc)
		return;
	for (unsigned i = 0; rpc->calls && i < l->num_qps; i++)
		if (rpc->calls[i].caller)
			roost_caller_destroy(rpc->calls[i].caller);
	if (rpc->deployed)
		roost_kernel_unload(l->nic->ctx, rpc->op);
	free(rpc->calls);
	free(rpc);
	l->rpc = NULL;
}

union params {
	struct roost_get_params get;
	struct roost_traversal_params traversal;
	struct roost_hll_params hll;
};

/* Builds the parameters of the n-th call and returns their address. */
static const void *params_of(const struct perf_link *l, uint64_t n, union params *p, uint32_t *len)
{
	const struct perf_job *job = &l->job;

	switch (job->kernel) {
	case PERF_GET:
		p->get = roost_get_params(l->remote_tx, num_entries(job), n % num_keys(job) + 1, 0);
		*len = sizeof(p->get);
		return p;
	case PERF_TRAVERSAL:
		p->traversal = roost_traversal_list(l->remote_tx, sizeof(struct element), job->hops,
						    0, 4, 2, (uint32_t)job->size);
		*len = sizeof(p->traversal);
		return p;
	case PERF_HLL:
		p->hll = roost_hll_params(HLL_NAME, ROOST_HLL_ADD, HLL_PRECISION);
		*len = sizeof(p->hll);
		return p;
	default:
		*len = (uint32_t)job->size;
		return l->tx;
	}
}

static int post_payload(struct perf_link *l, unsigned q)
{
	struct ibv_sge sge = {(uintptr_t)l->tx, (uint32_t)l->job.size, l->mr->lkey};
	struct roost_rpc_wr wr = {
		.op = l->rpc->op, .rkey = l->remote_rkey, .num_sge = 1, .sg_list = &sge};

	return roost_post_rpc_write(l->qps[q].qp, &wr);
}

int perf_rpc_post(struct perf_link *l, unsigned q)
{
	struct calls *c = &l->rpc->calls[q];
	bool stream = l->job.kernel == PERF_HLL;
	union params params;
	uint32_t len;
	const void *at = params_of(l, c->begun, &params, &len);
	int rc = roost_call_begin(c->caller, l->rpc->op, l->remote_rkey, at, len,
				  stream ? ROOST_RPC_STREAM : 0, &c->id[c->begun % PERF_MAX_CALLS]);

	if (rc == 0 && stream)
		rc = post_payload(l, q);
	c->begun += rc == 0;
	return rc;
}

/* The completions tell why a queue pair is in the error state. */
static int ended(struct perf_link *l)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(l->cq, 1, &wc) == 1 && wc.status != IBV_WC_SUCCESS)
		return perf_wc_failed(l, &wc);
	return perf_fail(l, -ENOTCONN, "the other side ended a queue pair");
}

static int check_reply(struct perf_link *l, const struct roost_result *r)
{
	uint32_t wanted = l->job.kernel == PERF_HLL ? r->len : (uint32_t)l->job.size;

	if (r->status == ROOST_RPC_OK && r->len == wanted)
		return 0;
	return perf_fail(l, -EIO, "a call of %s ended with status %u and %u bytes",
			 perf_kernel_names[l->job.kernel], r->status, r->len);
}

int perf_rpc_reap(struct perf_link *l)
{
	struct roost_result r;
	int n = 0, rc = 0;

	for (unsigned i = 0; i < l->num_qps; i++) {
		struct calls *c = &l->rpc->calls[i];

		for (; c->done < c->begun; c->done++, n++) {
			unsigned id = c->id[c->done % PERF_MAX_CALLS];

			rc = roost_call_poll(c->caller, id, &r);
			if (rc == EAGAIN)
				break;
			rc = rc ? ended(l) : check_reply(l, &r);
			if (rc < 0)
				return rc;
			roost_call_end(c->caller, id);
			l->qps[i].completed++;
		}
	}
	return n;
}
