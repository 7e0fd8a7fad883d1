/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts: opening the device. All contexts share the process's one engine. Each has its own
 * asynchronous events.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "verbs/objects.h"
#include "verbs/private.h"

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list_head contexts = LIST_HEAD_INIT(contexts);

void *verbs_new(size_t size)
{
	void *p;

	size = ALIGN_UP(size, CACHE_LINE);
	p = aligned_alloc(CACHE_LINE, size);
	if (!p)
		return verbs_null(ENOMEM);
	memset(p, 0, size);
	return p;
}

void *verbs_each_context(void *(*fn)(struct verbs_ctx *ctx, void *arg), void *arg)
{
	struct verbs_ctx *ctx;
	void *ret = NULL;

	pthread_mutex_lock(&contexts_lock);
	list_for_each_entry (ctx, &contexts, link) {
		ret = fn(ctx, arg);
		if (ret)
			break;
	}
	pthread_mutex_unlock(&contexts_lock);
	return ret;
}

/*
 * Removes the parent's contexts from the list, so that closing one only frees its memory. The child
 * inherits the memory of the parent's engine, but not its NIC; it opens its own engine.
 */
static void after_fork_in_child(void)
{
	struct verbs_ctx *ctx, *tmp;

	pthread_mutex_init(&contexts_lock, NULL);
	list_for_each_entry_safe (ctx, tmp, &contexts, link) {
		pthread_mutex_init(&ctx->lock, NULL); /* a thread of the parent may have held it */
		list_del(&ctx->link);
	}
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, after_fork_in_child);
}

static void set_ops(struct verbs_ctx *ctx)
{
	struct verbs_context *v = &ctx->vctx;

	verbs_unsupported_init(v);
	v->sz = sizeof(*v);
	v->query_port = verbs_query_port;
	v->query_device_ex = verbs_query_device_ex;
	v->query_rt_values = verbs_query_rt_values;
	v->create_cq_ex = verbs_create_cq_ex;
	v->create_qp_ex = verbs_create_qp_ex;
	v->context.ops.poll_cq = verbs_poll_cq;
	v->context.ops.req_notify_cq = verbs_req_notify_cq;
	v->context.ops.post_send = verbs_post_send;
	v->context.ops.post_recv = verbs_post_recv;
	v->context.ops.post_srq_recv = verbs_post_srq_recv;
	v->context.ops.alloc_mw = verbs_alloc_mw;
	v->context.ops.bind_mw = verbs_bind_mw;
	v->context.ops.dealloc_mw = verbs_dealloc_mw;
	v->get_srq_num = verbs_get_srq_num;
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
}

/*
 * Opens the descriptors of a context. cmd_fd is an empty file; programs dup() it and pass it to
 * ibv_import_device().
 */
static int open_fds(struct verbs_ctx *ctx)
{
	struct ibv_context *c = &ctx->vctx.context;
	struct stat st;
	int ret;

	c->cmd_fd = memfd_create("roost0", MFD_CLOEXEC);
	if (c->cmd_fd < 0)
		return -errno;
	if (fstat(c->cmd_fd, &st)) {
		ret = -errno;
		goto close_cmd;
	}
	ctx->cmd_ino = st.st_ino;
	ret = evq_init(&ctx->async);
	if (ret)
		goto close_cmd;
	c->async_fd = ctx->async.fd;
	return 0;

close_cmd:
	sys_close(c->cmd_fd);
	return ret;
}

static struct ibv_context *context_open(struct ibv_device *device, struct drive *d)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct verbs_ctx *ctx = verbs_new(sizeof(*ctx));
	int ret;

	if (!ctx)
		return NULL;
	ctx->drive = d;
	ctx->nic = drive_nic(d);
	pthread_mutex_init(&ctx->lock, NULL);
	list_init(&ctx->pds);
	list_init(&ctx->ahs);
	list_init(&ctx->mrs);
	list_init(&ctx->mws);
	list_init(&ctx->cqs);
	list_init(&ctx->srqs);
	list_init(&ctx->qps);
	arena_init(&ctx->queues);
	set_ops(ctx);
	ret = open_fds(ctx);
	if (ret) {
		free(ctx);
		return verbs_null(-ret);
	}
	ctx->vctx.context.device = device;
	ctx->vctx.context.num_comp_vectors = (int)nic_pus(ctx->nic);
	pthread_mutex_init(&ctx->vctx.context.mutex, NULL);

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&contexts_lock);
	list_add_tail(&ctx->link, &contexts);
	pthread_mutex_unlock(&contexts_lock);
	return &ctx->vctx.context;
}

VERBS_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *ctx;
	struct drive *d;
	char err[256] = "";
	int ret;

	ret = drive_get(&verbs_host_ops, &d, err, sizeof(err));
	if (ret) {
		log_error("%s", err[0] ? err : strerror(-ret));
		return verbs_null(-ret);
	}
	ctx = context_open(device, d);
	if (!ctx) {
		ret = errno;
		log_error("can't open %s: %s", device->name, strerror(ret));
		drive_put(d);
		errno = ret;
	}
	return ctx;
}

struct drive *verbs_drive(struct ibv_context *context)
{
	return verbs_ctx(context)->drive;
}

static void *same_file(struct verbs_ctx *ctx, void *arg)
{
	return ctx->cmd_ino == *(ino_t *)arg ? ctx->vctx.context.device : NULL;
}

/* Imports only contexts of this process, because the NIC lives in the process. */
VERBS_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct ibv_device *device;
	struct stat st;

	if (fstat(cmd_fd, &st))
		return NULL;
	device = verbs_each_context(same_file, &st.st_ino);
	if (!device)
		return verbs_null(EINVAL);
	return ibv_open_device(device);
}

/*
 * Frees the objects that the program has left on this context, as the Linux kernel does when the
 * last descriptor is closed.
 */
VERBS_EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct verbs_ctx *ctx = verbs_ctx(context);
	bool ours;

	pthread_mutex_lock(&contexts_lock);
	ours = list_linked(&ctx->link);
	if (ours)
		list_del(&ctx->link);
	pthread_mutex_unlock(&contexts_lock);
	if (ours) {
		verbs_qp_reap(ctx);
		verbs_srq_reap(ctx);
		verbs_cq_reap(ctx);
		verbs_mw_reap(ctx);
		verbs_ah_reap(ctx);
		verbs_mr_reap(ctx);
		verbs_pd_reap(ctx);
		drive_put(ctx->drive);
	}
	evq_destroy(&ctx->async);
	sys_close(context->cmd_fd);
	pthread_mutex_destroy(&context->mutex);
	pthread_mutex_destroy(&ctx->lock);
	arena_fini(&ctx->queues);
	free(ctx);
	return 0;
}

/* Has nothing to do: fork() breaks DMA into pinned pages, and this device has no such DMA. */
VERBS_EXPORT int ibv_fork_init(void)
{
	return 0;
}

VERBS_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

VERBS_EXPORT int ibv_dontfork_range(void *base, size_t size);
VERBS_EXPORT int ibv_dofork_range(void *base, size_t size);

int ibv_dontfork_range(void *base, size_t size)
{
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	return 0;
}
