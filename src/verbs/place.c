/* SPDX-License-Identifier: BSD-2-Clause */
/* roost/verbs.h: kernels that the host places on the streams of a queue pair or a region. */
#include <errno.h>
#include <stdlib.h>

#include "verbs/kernel_runtime.h"

struct roost_place {
	struct place *place;
	struct verbs_ctx *ctx;
	unsigned pu;
	bool many; /* other PUs run it too: on a region, or where queue pairs are another one's that its kernel was lent */
	void *reply;
	uint32_t room;
};

struct place_attr verbs_place_attr(const struct roost_place_attr *attr)
{
	return (struct place_attr){
		.op = attr->op,
		.params = attr->params,
		.params_len = attr->params_len,
		.pd = attr->mr ? attr->mr->pd->handle : 0,
		.key = attr->mr ? attr->mr->lkey : 0,
		.reply = attr->reply,
		.room = attr->room,
	};
}

struct roost_result verbs_place_result(const struct place *place, const void *reply, uint32_t room)
{
	struct place_result r;

	place_over(place, &r);
	return (struct roost_result){.status = r.status, .len = r.len, .data = r.len <= room ? reply : NULL};
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

static void own(const struct roost_place *p)
{
	if (p->many)
		verbs_own_all(p->ctx->drive);
	else
		drive_own(p->ctx->drive, p->pu);
}

static void disown(const struct roost_place *p)
{
	if (p->many)
		verbs_disown_all(p->ctx->drive);
	else
		drive_disown(p->ctx->drive, p->pu);
}

/* Control lock held, its PUs owned. */
static int begin(struct roost_place *p, struct kernel_runtime *rt, const struct roost_place_attr *attr,
		 bool out)
{
	struct place_attr a = verbs_place_attr(attr);

	a.out = out;
	p->reply = attr->reply;
	p->room = attr->room;
	return place_begin(rt, p->pu, &a, &p->place);
}

static void tell(const struct roost_place *p, struct roost_result *out)
{
	*out = verbs_place_result(p->place, p->reply, p->room);
}

static struct roost_place *stand(struct verbs_ctx *ctx, struct verbs_qp *qp, enum roost_side side,
				 const struct ibv_mr *mr, const struct roost_place_attr *attr)
{
	struct roost_place *p = calloc(1, sizeof(*p));
	struct place_result r;
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
		p->pu = place_pu(rt, attr->op, qp ? qp->pu : 0);
		p->many = !qp || p->pu != qp->pu;
		own(p);
		ret = begin(p, rt, attr, side == ROOST_OUT);
		if (!ret && place_over(p->place, &r))
			ret = error_of(r.status);
		else if (!ret)
			ret = !qp		  ? place_on_region(p->place, mr->rkey)
			      : side == ROOST_OUT ? place_on_out(p->place, qp->nic_qp)
						  : place_on_in(p->place, qp->nic_qp);
		if (ret && p->place)
			place_free(p->place);
		disown(p);
	}
	drive_control_unlock(ctx->drive);
	if (!ret)
		return p;
	free(p);
	errno = -ret;
	return NULL;
}

VERBS_EXPORT struct roost_place *roost_qp_place(struct ibv_qp *qp, enum roost_side side,
						const struct roost_place_attr *attr)
{
	return stand(verbs_ctx(qp->context), verbs_qp(qp), side, NULL, attr);
}

VERBS_EXPORT struct roost_place *roost_mr_place(struct ibv_mr *mr, const struct roost_place_attr *attr)
{
	return stand(verbs_ctx(mr->context), NULL, ROOST_IN, mr, attr);
}

VERBS_EXPORT int roost_place_query(struct roost_place *p, uint64_t *bytes)
{
	struct place_result r;
	bool over;

	drive_control_lock(p->ctx->drive);
	own(p);
	over = place_over(p->place, &r);
	disown(p);
	drive_control_unlock(p->ctx->drive);
	if (bytes)
		*bytes = r.bytes;
	return over ? -error_of(r.status) : 0;
}

VERBS_EXPORT int roost_place_end(struct roost_place *p, struct roost_result *result)
{
	struct verbs_ctx *ctx = p->ctx;
	int ret;

	drive_control_lock(ctx->drive);
	own(p);
	ret = place_off(p->place);
	if (!ret && !place_acts(p->place))
		place_conclude(p->place);
	if (!ret && place_acts(p->place))
		ret = -EBUSY;
	if (!ret) {
		if (result)
			tell(p, result);
		place_free(p->place);
	}
	disown(p);
	drive_control_unlock(ctx->drive);
	if (!ret)
		free(p);
	return verbs_ret(ret);
}
