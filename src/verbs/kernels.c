/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roost/verbs.h: loading and removing kernels of this process's NIC, grants and bound queue pairs.
 * The PUs continue while files are read and while start() and stop() of kernels run. They are owned
 * only while tables change.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "builtin/builtin.h"
#include "kernels/object.h"
#include "roost/verbs.h"
#include "verbs/kernel_runtime.h"

/* ---- counters for `roost stat` ---- */

static const char *stat_label(size_t i)
{
	return runtime_counter_info[i].name;
}

static void stat_read(const struct nic *nic, unsigned pu, uint64_t *values)
{
	runtime_pu_counters(runtime_of(nic), pu, (struct runtime_counters *)values);
}

static const struct drive_stat_group stat_group = {.name = "kernels",
						   .count = RUNTIME_COUNTER_COUNT,
						   .label = stat_label,
						   .read_pu = stat_read};

/*
 * Starts the thread that watches kernels. If it cannot be created, kernels are served without it.
 */
static void watch(struct verbs_ctx *ctx, struct kernel_runtime *rt)
{
	struct guard *guards[NIC_MAX_PUS];
	unsigned n = nic_pus(ctx->nic);
	int ret;

	for (unsigned i = 0; i < n; i++)
		guards[i] = runtime_guard(rt, i);
	ret = drive_watch(ctx->drive, guards, n);
	if (ret)
		log_warn(
			"can't start the thread that watches kernels (%s): a kernel that does not return stops the NIC",
			strerror(-ret));
}

int verbs_kernel_runtime(struct verbs_ctx *ctx, struct kernel_runtime **out)
{
	int ret = 0;

	*out = runtime_of(ctx->nic);
	if (!*out) {
		verbs_own_all(ctx->drive);
		ret = runtime_create(ctx->nic, &(struct runtime_config){.timed = true}, out);
		verbs_disown_all(ctx->drive);
		if (!ret) {
			drive_stat_show(ctx->drive, &stat_group);
			watch(ctx, *out);
		}
	}
	return ret;
}

/* ---- kernels in the host's memory ---- */

static int deploy(struct verbs_ctx *ctx, const struct runtime_registration *n)
{
	struct kernel_version *s;
	struct kernel_runtime *rt;
	int ret;

	drive_control_lock(ctx->drive);
	ret = verbs_kernel_runtime(ctx, &rt);
	if (!ret)
		ret = runtime_prepare(rt, n, &s);
	if (!ret) {
		verbs_own_all(ctx->drive);
		runtime_publish(rt, s);
		verbs_disown_all(ctx->drive);
		runtime_reap(rt);
	}
	drive_control_unlock(ctx->drive);
	return ret;
}

VERBS_EXPORT int roost_kernel_deploy(struct ibv_context *context, const struct roost_kernel *k,
				     void *self)
{
	return verbs_ret(
		deploy(verbs_ctx(context), &(struct runtime_registration){.k = k, .self = self}));
}

VERBS_EXPORT int roost_kernel_redeploy(struct ibv_context *context, const struct roost_kernel *k,
				       void *self)
{
	return verbs_ret(
		deploy(verbs_ctx(context),
		       &(struct runtime_registration){.k = k, .self = self, .replace = true}));
}

enum change { UNDEPLOY, UNLOAD, FALLBACK };

static int change(struct ibv_context *context, enum change what, const struct roost_kernel *k,
		  uint64_t op, void *self)
{
	struct verbs_ctx *ctx = verbs_ctx(context);
	struct kernel_runtime *rt;
	int ret;

	drive_control_lock(ctx->drive);
	ret = verbs_kernel_runtime(ctx, &rt);
	if (!ret) {
		verbs_own_all(ctx->drive);
		ret = what == UNDEPLOY ? runtime_undeploy(rt, op)
		      : what == UNLOAD ? runtime_unload(rt, op)
				       : runtime_set_fallback(rt, k, self);
		verbs_disown_all(ctx->drive);
		runtime_reap(rt);
	}
	drive_control_unlock(ctx->drive);
	return verbs_ret(ret);
}

VERBS_EXPORT int roost_kernel_undeploy(struct ibv_context *context, uint64_t op)
{
	return change(context, UNDEPLOY, NULL, op, NULL);
}

VERBS_EXPORT int roost_kernel_fallback(struct ibv_context *context, const struct roost_kernel *k,
				       void *self)
{
	return change(context, FALLBACK, k, 0, self);
}

VERBS_EXPORT const struct roost_kernel *roost_kernel_builtin(const char *name)
{
	return kernels_builtin(name);
}

/* ---- files ---- */

static void __attribute__((format(printf, 3, 4)))
set_error(char *why, size_t len, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, len, format, args);
	va_end(args);
}

static void set_load_error(char *why, size_t len, const char *path, const struct roost_kernel *k,
			   int ret)
{
	unsigned long long op = k->op;

	switch (ret) {
	case -EINVAL:
		set_error(
			why, len,
			"%s: its descriptor is invalid: see struct roost_kernel in roost/kernel.h",
			path);
		break;
	case -EEXIST:
		set_error(why, len,
			  "%s: op-code 0x%llx has a kernel already: replace it, or unload it first",
			  path, op);
		break;
	case -ENOENT:
		set_error(why, len, "%s: no kernel has op-code 0x%llx: load it", path, op);
		break;
	case -ENOSPC:
		set_error(why, len, "%s: %u kernels are registered already: unload one first", path,
			  RUNTIME_MAX_KERNELS);
		break;
	default:
		set_error(why, len, "%s: %s did not start: %s", path, k->name, strerror(-ret));
	}
}

static int load(struct ibv_context *context, const char *path, bool replace, char *why, size_t len)
{
	char unwanted[1];
	struct object o;
	int ret;

	if (!why) {
		why = unwanted;
		len = sizeof(unwanted);
	}
	ret = object_open(path, &o, why, len);
	if (ret)
		return verbs_ret(ret);
	ret = deploy(verbs_ctx(context), &(struct runtime_registration){
						 .k = o.kernel, .object = &o, .replace = replace});
	if (ret) {
		set_load_error(why, len, path, o.kernel, ret);
		object_close(&o);
	}
	return verbs_ret(ret);
}

VERBS_EXPORT int roost_kernel_load(struct ibv_context *context, const char *path, char *why,
				   size_t len)
{
	return load(context, path, false, why, len);
}

VERBS_EXPORT int roost_kernel_replace(struct ibv_context *context, const char *path, char *why,
				      size_t len)
{
	return load(context, path, true, why, len);
}

VERBS_EXPORT int roost_kernel_unload(struct ibv_context *context, uint64_t op)
{
	return change(context, UNLOAD, NULL, op, NULL);
}

/* ---- changes of a kernel runtime that exists ---- */

/*
 * Takes the control lock and all PUs. Returns the kernel runtime, or NULL if there is none: no
 * kernel has the op-code then.
 */
static struct kernel_runtime *begin_change(struct verbs_ctx *ctx)
{
	drive_control_lock(ctx->drive);
	verbs_own_all(ctx->drive);
	return runtime_of(ctx->nic);
}

/* Releases the control lock and all PUs. Returns `ret` as a verb returns it. */
static int end_change(struct verbs_ctx *ctx, int ret)
{
	verbs_disown_all(ctx->drive);
	drive_control_unlock(ctx->drive);
	return verbs_ret(ret);
}

/* ---- grants ---- */

#define GRANTABLE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

VERBS_EXPORT int roost_kernel_grant(struct ibv_context *context, uint64_t op, struct ibv_mr *ibmr,
				    unsigned access, unsigned *number)
{
	struct verbs_ctx *ctx = verbs_ctx(context);
	struct verbs_mr *mr = (struct verbs_mr *)ibmr;
	struct roost_grant region = {.addr = mr->iova, .len = ibmr->length, .access = access};
	struct kernel_runtime *rt;

	if (!access || access & ~(unsigned)GRANTABLE ||
	    (access & ~(unsigned)IBV_ACCESS_REMOTE_READ && !(mr->access & IBV_ACCESS_LOCAL_WRITE)))
		return verbs_ret(-EINVAL);
	rt = begin_change(ctx);
	return end_change(ctx,
			  rt ? runtime_grant(rt, op, &region, ibmr->pd->handle, ibmr->lkey, number)
			     : -ENOENT);
}

VERBS_EXPORT int roost_kernel_revoke(struct ibv_context *context, uint64_t op, unsigned number)
{
	struct verbs_ctx *ctx = verbs_ctx(context);
	struct kernel_runtime *rt = begin_change(ctx);

	return end_change(ctx, rt ? runtime_revoke(rt, op, number) : -ENOENT);
}

/* ---- bound queue pairs ---- */

VERBS_EXPORT int roost_kernel_bind_qp(struct ibv_context *context, uint64_t op, struct ibv_qp *qp,
				      const struct roost_qp_limits *limits, unsigned *number)
{
	struct verbs_ctx *ctx = verbs_ctx(context);
	struct runtime_qp_limits copy = {.ops = limits ? limits->ops : 0,
					 .bytes = limits ? limits->bytes : 0};
	struct kernel_runtime *rt;

	if (verbs_ctx(qp->context)->drive != ctx->drive)
		return verbs_ret(-EINVAL);
	rt = begin_change(ctx);
	return end_change(ctx, rt ? runtime_bind_qp(rt, op, verbs_qp(qp)->nic_qp, &copy, number)
				  : -ENOENT);
}

VERBS_EXPORT int roost_kernel_unbind_qp(struct ibv_context *context, uint64_t op, unsigned number)
{
	struct verbs_ctx *ctx = verbs_ctx(context);
	struct kernel_runtime *rt = begin_change(ctx);

	return end_change(ctx, rt ? runtime_unbind_qp(rt, op, number) : -ENOENT);
}

/* ---- queries ---- */

static void fill(struct roost_kernel_info *to, const struct runtime_kernel_info *from)
{
	memset(to, 0, sizeof(*to));
	snprintf(to->name, sizeof(to->name), "%s", from->k->name);
	to->op = from->op;
	to->version = from->k->version;
	to->state = from->state == RUNTIME_KERNEL_ACTIVE    ? ROOST_KERNEL_ACTIVE
		    : from->state == RUNTIME_KERNEL_LEAVING ? ROOST_KERNEL_LEAVING
							    : ROOST_KERNEL_DISABLED;
	to->flags = (from->fallback ? ROOST_KERNEL_FALLBACK : 0) |
		    (from->loaded ? ROOST_KERNEL_LOADED : 0);
	to->in_flight = from->in_flight;
	to->calls = from->ctr.calls;
	to->steps = from->ctr.steps;
	to->payload_bytes = from->ctr.payload_bytes;
	to->ended_ok = from->ctr.ended_ok;
	to->ended_other = from->ctr.ended_other;
	to->bad_params = from->ctr.bad_params;
	to->access = from->ctr.access;
	to->too_long = from->ctr.too_long;
	to->bound = from->ctr.bound;
	to->faults = from->ctr.faults;
	to->stuck = from->ctr.stuck;
	to->disabled = from->ctr.disabled;
	to->dropped = from->ctr.dropped;
	to->timed = from->times.count;
	to->p50_ns = from->times.p50;
	to->p99_ns = from->times.p99;
	to->max_ns = from->times.max;
	to->resources = from->resources;
	to->resources_max = from->resources_max;
}

VERBS_EXPORT unsigned roost_kernel_list(struct ibv_context *context, struct roost_kernel_info *info,
					unsigned max)
{
	struct verbs_ctx *ctx = verbs_ctx(context);
	struct runtime_kernel_info one;
	struct kernel_runtime *rt;
	unsigned n = 0;

	drive_control_lock(ctx->drive);
	rt = runtime_of(ctx->nic);
	if (rt) {
		runtime_reap(rt);
		verbs_own_all(ctx->drive);
		for (; runtime_kernel_info(rt, n, &one); n++)
			if (n < max)
				fill(&info[n], &one);
		verbs_disown_all(ctx->drive);
	}
	drive_control_unlock(ctx->drive);
	return n;
}
