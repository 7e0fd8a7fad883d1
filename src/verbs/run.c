/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roost/verbs.h: kernels that the host runs as local calls. Turns of their PU run the steps. A
 * thread that waits here drives the PU.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "verbs/kernel_runtime.h"

#define SPIN_NS 50000u
#define NAP_NS	20000

struct roost_run {
	struct local_call *call;
	struct drive *drive;
	unsigned pu;
	void *reply;
	uint32_t space;
};

VERBS_EXPORT struct roost_run *roost_run_start(struct ibv_context *context,
					       const struct roost_invocation_attr *attr,
					       const void *payload, uint64_t len)
{
	struct verbs_ctx *ctx = verbs_ctx(context);
	struct local_call_attr a = verbs_local_call_attr(attr);
	struct roost_run *run = NULL;
	struct kernel_runtime *rt;
	int ret;

	if (len > NIC_MAX_MSG)
		return verbs_null(EMSGSIZE);
	run = malloc(sizeof(*run));
	if (!run)
		return verbs_null(ENOMEM);
	*run = (struct roost_run){.drive = ctx->drive, .reply = attr->reply, .space = attr->space};
	drive_control_lock(run->drive);
	ret = verbs_kernel_runtime(ctx, &rt);
	if (!ret) {
		run->pu = runtime_pu_of(rt, a.op);
		drive_own(run->drive, run->pu);
		ret = local_call_start(rt, run->pu, &a, payload, len, &run->call);
		drive_disown(run->drive, run->pu);
	}
	drive_control_unlock(run->drive);
	if (!ret)
		return run;
	free(run);
	return verbs_null(-ret);
}

static bool take(const struct roost_run *run, struct roost_result *result)
{
	if (!local_call_done(run->call))
		return false;
	*result = verbs_local_call_result(run->call, run->reply, run->space);
	return true;
}

VERBS_EXPORT int roost_run_poll(struct roost_run *run, struct roost_result *result)
{
	if (take(run, result))
		return 0;
	drive_progress(run->drive, run->pu);
	if (take(run, result))
		return 0;
	/* In a forked child there is no engine to run the call. */
	return drive_dead(run->drive) ? ENOTCONN : EAGAIN;
}

VERBS_EXPORT int roost_run_wait(struct roost_run *run, uint64_t timeout_ns,
				struct roost_result *result)
{
	uint64_t start = drive_now(run->drive), now;
	int ret;

	while ((ret = roost_run_poll(run, result)) == EAGAIN) {
		now = drive_now(run->drive);
		if (timeout_ns && now - start >= timeout_ns)
			return ETIMEDOUT;
		if (now - start > SPIN_NS)
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	}
	return ret;
}

VERBS_EXPORT void roost_run_end(struct roost_run *run)
{
	drive_control_lock(run->drive);
	drive_own(run->drive, run->pu);
	local_call_free(run->call);
	drive_disown(run->drive, run->pu);
	drive_control_unlock(run->drive);
	free(run);
}

VERBS_EXPORT int roost_kernel_run(struct ibv_context *context,
				  const struct roost_invocation_attr *attr, const void *payload,
				  uint64_t len, struct roost_result *result)
{
	struct roost_run *run = roost_run_start(context, attr, payload, len);
	int ret;

	if (!run)
		return errno;
	ret = roost_run_wait(run, 0, result);
	roost_run_end(run);
	return ret;
}
