/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Protection domains. The handle is the NIC's number, so that a PD can be imported by its handle.
 */
#include <stdlib.h>

#include "verbs/objects.h"

static struct ibv_pd *pd_new(struct verbs_ctx *ctx, uint32_t handle, bool imported)
{
	struct verbs_pd *pd = verbs_new(sizeof(*pd));

	if (!pd)
		return NULL;
	pd->pd.context = &ctx->vctx.context;
	pd->pd.handle = handle;
	pd->imported = imported;
	pthread_mutex_lock(&ctx->lock);
	list_add_tail(&pd->link, &ctx->pds);
	pthread_mutex_unlock(&ctx->lock);
	return &pd->pd;
}

static int pd_number_free(struct verbs_ctx *ctx, uint32_t number)
{
	int ret;

	drive_control_lock(ctx->drive);
	ret = nic_pd_free(ctx->nic, number);
	drive_control_unlock(ctx->drive);
	return ret;
}

VERBS_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct verbs_ctx *ctx = verbs_ctx(context);
	struct ibv_pd *pd;
	uint32_t number;
	int ret;

	drive_control_lock(ctx->drive);
	ret = nic_pd_alloc(ctx->nic, &number);
	drive_control_unlock(ctx->drive);
	if (ret)
		return verbs_null(-ret);
	pd = pd_new(ctx, number, false);
	if (!pd)
		pd_number_free(ctx, number);
	return pd;
}

static void pd_delete(struct verbs_ctx *ctx, struct verbs_pd *pd)
{
	pthread_mutex_lock(&ctx->lock);
	list_del(&pd->link);
	pthread_mutex_unlock(&ctx->lock);
	free(pd);
}

VERBS_EXPORT int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
	struct verbs_ctx *ctx = verbs_ctx(ibpd->context);
	struct verbs_pd *pd = (struct verbs_pd *)ibpd;
	int ret = pd_number_free(ctx, ibpd->handle);

	if (ret)
		return verbs_ret(ret);
	pd_delete(ctx, pd);
	return 0;
}

static void *pd_find(struct verbs_ctx *ctx, void *arg)
{
	struct verbs_pd *pd, *found = NULL;

	pthread_mutex_lock(&ctx->lock);
	list_for_each_entry (pd, &ctx->pds, link)
		if (pd->pd.handle == *(uint32_t *)arg)
			found = pd;
	pthread_mutex_unlock(&ctx->lock);
	return found;
}

VERBS_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	if (!verbs_each_context(pd_find, &pd_handle))
		return verbs_null(ENOENT);
	return pd_new(verbs_ctx(context), pd_handle, true);
}

VERBS_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	pd_delete(verbs_ctx(pd->context), (struct verbs_pd *)pd);
}

void verbs_pd_reap(struct verbs_ctx *ctx)
{
	struct verbs_pd *pd;

	while (!list_empty(&ctx->pds)) {
		pd = list_first_entry(&ctx->pds, struct verbs_pd, link);
		list_del(&pd->link);
		/*
		 * A PD that another context has imported and uses stays, and is freed with the NIC.
		 */
		if (!pd->imported)
			pd_number_free(ctx, pd->pd.handle);
	}
}
