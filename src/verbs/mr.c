/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions. lkey, rkey and handle are the same number, the NIC's key. Registering touches no
 * memory and pins nothing.
 */
#include <stdlib.h>

#include "nic/nic_stream.h"
#include "verbs/objects.h"

#define MR_BASIC_ACCESS                                                                            \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)
/* Flags without effect: optional flags may be ignored, and huge pages need nothing here. */
#define MR_IGNORED_ACCESS (IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE)

static int mr_check_access(unsigned int access)
{
	if (access & IBV_ACCESS_ON_DEMAND)
		return -EOPNOTSUPP;
	if (access & ~(unsigned)(MR_BASIC_ACCESS | MR_IGNORED_ACCESS | IBV_ACCESS_ZERO_BASED))
		return -EINVAL;
	return 0;
}

static int mr_key_new(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
		      unsigned int access, uint32_t *key)
{
	struct verbs_ctx *ctx = verbs_ctx(pd->context);
	struct nic_mr_attr attr = {.pd = pd->handle,
				   .addr = addr,
				   .len = length,
				   .iova = iova,
				   .access = access & MR_BASIC_ACCESS};
	int ret = mr_check_access(access);

	if (ret)
		return ret;
	if (access & IBV_ACCESS_ZERO_BASED)
		attr.iova = 0;
	drive_control_lock(ctx->drive);
	ret = nic_mr_register(ctx->nic, &attr, key);
	drive_control_unlock(ctx->drive);
	return ret;
}

/*
 * Returns -EBUSY while a window is bound to the region or a hook is attached to it. After 0, no
 * access is in flight and the program may free the memory.
 */
static int mr_key_free(struct verbs_ctx *ctx, uint32_t key)
{
	int ret;

	drive_control_lock(ctx->drive);
	ret = nic_mr_deregister(ctx->nic, key);
	drive_control_unlock(ctx->drive);
	if (!ret)
		drive_quiesce(ctx->drive);
	return ret;
}

static void mr_set(struct verbs_mr *mr, struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
		   unsigned int access, uint32_t key)
{
	mr->mr.context = pd->context;
	mr->mr.pd = pd;
	mr->mr.addr = addr;
	mr->mr.length = length;
	mr->mr.handle = key;
	mr->mr.lkey = key;
	mr->mr.rkey = key;
	mr->iova = iova;
	mr->access = access;
}

static void mr_link(struct verbs_mr *mr)
{
	struct verbs_ctx *ctx = verbs_ctx(mr->mr.context);

	pthread_mutex_lock(&ctx->lock);
	list_add_tail(&mr->link, &ctx->mrs);
	pthread_mutex_unlock(&ctx->lock);
}

static void mr_delete(struct verbs_mr *mr)
{
	struct verbs_ctx *ctx = verbs_ctx(mr->mr.context);

	pthread_mutex_lock(&ctx->lock);
	list_del(&mr->link);
	pthread_mutex_unlock(&ctx->lock);
	free(mr);
}

VERBS_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
					     uint64_t iova, unsigned int access)
{
	struct verbs_mr *mr = verbs_new(sizeof(*mr));
	uint32_t key;
	int ret;

	if (!mr)
		return NULL;
	ret = mr_key_new(pd, addr, length, iova, access, &key);
	if (ret) {
		free(mr);
		return verbs_null(-ret);
	}
	mr_set(mr, pd, addr, length, iova, access, key);
	mr_link(mr);
	return &mr->mr;
}

VERBS_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

VERBS_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
					    uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

/*
 * Registers the new region first, then removes the old one: after a failure the old region is
 * unchanged. The keys change, which the verb allows. Fails while a window is bound to the region or
 * a hook is attached to it.
 */
VERBS_EXPORT int ibv_rereg_mr(struct ibv_mr *ibmr, int flags, struct ibv_pd *pd, void *addr,
			      size_t length, int access)
{
	struct verbs_mr *mr = (struct verbs_mr *)ibmr;
	uint32_t key, old = ibmr->lkey;
	uint64_t iova = (uintptr_t)addr;
	int ret;

	if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || mr->imported || mr->ring_of) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION)) {
		addr = ibmr->addr;
		length = ibmr->length;
		iova = mr->iova;
	}
	if (!(flags & IBV_REREG_MR_CHANGE_PD))
		pd = ibmr->pd;
	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		access = (int)mr->access;
	if (!pd || pd->context != ibmr->context) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	ret = mr_key_new(pd, addr, length, iova, (unsigned)access, &key);
	if (ret) {
		errno = -ret;
		return IBV_REREG_MR_ERR_INPUT;
	}
	ret = mr_key_free(verbs_ctx(pd->context), old);
	if (ret) {
		mr_key_free(verbs_ctx(pd->context), key);
		errno = -ret;
		return IBV_REREG_MR_ERR_INPUT;
	}
	mr_set(mr, pd, addr, length, iova, (unsigned)access, key);
	return 0;
}

VERBS_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct verbs_qp *ring_of = ((struct verbs_mr *)mr)->ring_of;
	int ret = mr_key_free(verbs_ctx(mr->context), mr->lkey);

	if (ret)
		return verbs_ret(ret);
	mr_delete((struct verbs_mr *)mr);
	if (ring_of)
		atomic_fetch_sub_explicit(&ring_of->ring_regions, 1, memory_order_relaxed);
	return 0;
}

struct mr_search {
	uint32_t handle, pd;
	struct verbs_mr found; /* a copy: the owner may free its region at any time */
};

static void *mr_find(struct verbs_ctx *ctx, void *arg)
{
	struct mr_search *s = arg;
	struct verbs_mr *mr;
	void *hit = NULL;

	pthread_mutex_lock(&ctx->lock);
	list_for_each_entry (mr, &ctx->mrs, link) {
		if (mr->mr.handle == s->handle && mr->mr.pd->handle == s->pd) {
			s->found = *mr;
			hit = s;
			break;
		}
	}
	pthread_mutex_unlock(&ctx->lock);
	return hit;
}

/* Imports a region. It has no address: the importer gets only keys (ibv_import_mr(3)). */
VERBS_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	struct mr_search s = {.handle = mr_handle, .pd = pd->handle};
	struct verbs_mr *mr;

	if (!verbs_each_context(mr_find, &s))
		return verbs_null(ENOENT);
	mr = verbs_new(sizeof(*mr));
	if (!mr)
		return NULL;
	mr_set(mr, pd, NULL, s.found.mr.length, s.found.iova, s.found.access, mr_handle);
	mr->imported = true;
	mr_link(mr);
	return &mr->mr;
}

VERBS_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
	mr_delete((struct verbs_mr *)mr);
}

/*
 * Removes the key even if hooks are still attached to the region, because the program may free the
 * memory next.
 */
static void mr_key_end(struct verbs_ctx *ctx, uint32_t key)
{
	if (mr_key_free(ctx, key) != -EBUSY)
		return;
	drive_control_lock(ctx->drive);
	verbs_own_all(ctx->drive);
	nic_stream_region_forget(ctx->nic, key);
	verbs_disown_all(ctx->drive);
	drive_control_unlock(ctx->drive);
	mr_key_free(ctx, key);
}

void verbs_mr_reap(struct verbs_ctx *ctx)
{
	struct verbs_mr *mr;

	while (!list_empty(&ctx->mrs)) {
		mr = list_first_entry(&ctx->mrs, struct verbs_mr, link);
		list_del(&mr->link);
		if (!mr->imported)
			mr_key_end(ctx, mr->mr.lkey);
	}
}
