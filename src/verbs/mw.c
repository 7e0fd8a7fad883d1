/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows are allocated and deallocated here. Work requests bind them (post.c, qp_ex.c). The
 * NIC checks the rules.
 */
#include <stdlib.h>

#include "base/log.h"
#include "verbs/objects.h"

_Static_assert(IBV_MW_TYPE_1 == 1 && IBV_MW_TYPE_2 == 2, "the NIC's types of windows");

struct ibv_mw *verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct verbs_ctx *ctx = verbs_ctx(pd->context);
	struct verbs_mw *mw = verbs_new(sizeof(*mw));
	int ret;

	if (!mw)
		return NULL;
	drive_control_lock(ctx->drive);
	ret = nic_mw_alloc(ctx->nic, pd->handle, type, drive_now(ctx->drive), &mw->mw.rkey);
	drive_control_unlock(ctx->drive);
	if (ret == -EAGAIN)
		log_warn("verbs: no memory window: the keys of those that were freed return after "
			 "%d s; allocate fewer in this time, or keep them",
			 NUMBERS_REST_S);
	if (ret) {
		free(mw);
		return verbs_null(-ret);
	}
	mw->mw.context = pd->context;
	mw->mw.pd = pd;
	mw->mw.handle = mw->mw.rkey;
	mw->mw.type = type;
	pthread_mutex_lock(&ctx->lock);
	list_add_tail(&mw->link, &ctx->mws);
	pthread_mutex_unlock(&ctx->lock);
	return &mw->mw;
}

/* Removes a window. When the function returns, no access through the window is in flight. */
static int mw_end(struct verbs_ctx *ctx, struct verbs_mw *mw)
{
	int ret;

	drive_control_lock(ctx->drive);
	ret = nic_mw_dealloc(ctx->nic, mw->mw.handle);
	drive_control_unlock(ctx->drive);
	if (!ret)
		drive_quiesce(ctx->drive);
	return ret;
}

int verbs_dealloc_mw(struct ibv_mw *ibmw)
{
	struct verbs_ctx *ctx = verbs_ctx(ibmw->context);
	struct verbs_mw *mw = (struct verbs_mw *)ibmw;
	int ret = mw_end(ctx, mw);

	if (ret)
		return verbs_ret(ret);
	pthread_mutex_lock(&ctx->lock);
	list_del(&mw->link);
	pthread_mutex_unlock(&ctx->lock);
	free(mw);
	return 0;
}

/* Ends the windows. Their memory stays, because the program still has the objects (as in cq.c). */
void verbs_mw_reap(struct verbs_ctx *ctx)
{
	struct verbs_mw *mw;

	while (!list_empty(&ctx->mws)) {
		mw = list_first_entry(&ctx->mws, struct verbs_mw, link);
		list_del(&mw->link);
		mw_end(ctx, mw);
	}
}
