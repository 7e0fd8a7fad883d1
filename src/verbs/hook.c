/* SPDX-License-Identifier: BSD-2-Clause */
/* roost/verbs.h: kernels that the host attaches to the streams of a queue pair or to a region. */
#include <errno.h>
#include <stdlib.h>

#include "verbs/kernel_runtime.h"

struct roost_hook {
	struct local_call *call;
	struct verbs_ctx *ctx;
	unsigned pu;
	/*
	 * other PUs run the kernel too: the hook is on a region, or a queue pair bound to the
	 * kernel belongs to another PU than the hook's queue pair
	 */
	bool all_pus;
	void *reply;
	uint32_t space;
};

struct local_call_attr verbs_local_call_attr(const struct roost_invocation_attr *attr)
{
	return (struct local_call_attr){
		.op = attr->op,
		.params = attr->params,
		.params_len = attr->params_len,
		.pd = attr->mr ? attr->mr->pd->handle : 0,
		.key = attr->mr ? attr->mr->lkey : 0,
		.reply = attr->reply,
		.space = attr->space,
	};
}

struct roost_result verbs_local_call_result(const struct local_call *call, const void *reply,
					    uint32_t space)
{
	struct local_call_result r;

	local_call_finished(call, &r);
	return (struct roost_result){
		.status = r.status, .len = r.len, .data = r.len <= space ? reply : NULL};
}

static int error_of(uint32_t status)
{
	switch (status) {
	case ROOST_RPC_BAD_PARAMS:
		return -EINVAL;
	case ROOST_RPC_ACCESS:
		return -EFAULT;
	case ROOST_RPC_MISS:
		return -ENOENT;
	default:
		return -EIO;
	}
}

static void own(const struct roost_hook *p)
{
	if (p->all_pus)
		verbs_own_all(p->ctx->drive);
	else
		drive_own(p->ctx->drive, p->pu);
}

static void disown(const struct roost_hook *p)
{
	if (p->all_pus)
		verbs_disown_all(p->ctx->drive);
	else
		drive_disown(p->ctx->drive, p->pu);
}

/* Begins a hook. Control lock held, the hook's PUs owned. */
static int begin(struct roost_hook *p, struct kernel_runtime *rt,
		 const struct roost_invocation_attr *attr, bool out)
{
	struct local_call_attr a = verbs_local_call_attr(attr);

	a.out = out;
	p->reply = attr->reply;
	p->space = attr->space;
	return local_call_begin(rt, p->pu, &a, &p->call);
}

static void get_result(const struct roost_hook *p, struct roost_result *out)
{
	*out = verbs_local_call_result(p->call, p->reply, p->space);
}

static struct roost_hook *attach(struct verbs_ctx *ctx, struct verbs_qp *qp, enum roost_side side,
				 const struct ibv_mr *mr, const struct roost_invocation_attr *attr)
{
	struct roost_hook *p = calloc(1, sizeof(*p));
	struct local_call_result r;
	struct kernel_runtime *rt;
	int ret;

	if (!p) {
		errno = ENOMEM;
		return NULL;
	}
	p->ctx = ctx;
	drive_control_lock(ctx->drive);
	ret = verbs_kernel_runtime(ctx, &rt);
	if (!ret) {
		p->pu = local_call_pu(rt, attr->op, qp ? qp->pu : 0);
		p->all_pus = !qp || p->pu != qp->pu;
		own(p);
		ret = begin(p, rt, attr, side == ROOST_OUT);
		if (!ret && local_call_finished(p->call, &r))
			ret = error_of(r.status);
		else if (!ret)
			ret = !qp		  ? local_call_attach_region(p->call, mr->rkey)
			      : side == ROOST_OUT ? local_call_attach_out(p->call, qp->nic_qp)
						  : local_call_attach_in(p->call, qp->nic_qp);
		if (ret && p->call)
			local_call_free(p->call);
		disown(p);
	}
	drive_control_unlock(ctx->drive);
	if (!ret)
		return p;
	free(p);
	errno = -ret;
	return NULL;
}

VERBS_EXPORT struct roost_hook *roost_qp_attach(struct ibv_qp *qp, enum roost_side side,
						const struct roost_invocation_attr *attr)
{
	return attach(verbs_ctx(qp->context), verbs_qp(qp), side, NULL, attr);
}

VERBS_EXPORT struct roost_hook *roost_mr_attach(struct ibv_mr *mr,
						const struct roost_invocation_attr *attr)
{
	return attach(verbs_ctx(mr->context), NULL, ROOST_IN, mr, attr);
}

VERBS_EXPORT int roost_hook_query(struct roost_hook *p, uint64_t *bytes)
{
	struct local_call_result r;
	bool finished;

	drive_control_lock(p->ctx->drive);
	own(p);
	finished = local_call_finished(p->call, &r);
	disown(p);
	drive_control_unlock(p->ctx->drive);
	if (bytes)
		*bytes = r.bytes;
	return finished ? -error_of(r.status) : 0;
}

VERBS_EXPORT int roost_hook_detach(struct roost_hook *p, struct roost_result *result)
{
	struct verbs_ctx *ctx = p->ctx;
	int ret;

	drive_control_lock(ctx->drive);
	own(p);
	ret = local_call_detach(p->call);
	if (!ret && !local_call_busy(p->call))
		local_call_end_stream(p->call);
	if (!ret && local_call_busy(p->call))
		ret = -EBUSY;
	if (!ret) {
		if (result)
			get_result(p, result);
		local_call_free(p->call);
	}
	disown(p);
	drive_control_unlock(ctx->drive);
	if (!ret)
		free(p);
	return verbs_ret(ret);
}
