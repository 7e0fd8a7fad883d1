/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roost/chain_verbs.h: the calls by which the owner of a running program changes its limits, stops
 * it, or removes it.
 */
#include "nic/nic_chain.h"
#include "roost/chain_verbs.h"
#include "verbs/objects.h"

VERBS_EXPORT int roost_qp_limit_chain(struct ibv_qp *ibqp, const struct roost_chain_limit *limit)
{
	const struct nic_chain_limit l = {.rate_limit = limit->rate_limit,
					  .rate_burst = limit->rate_burst,
					  .turn_limit = limit->turn_limit};
	struct verbs_qp *qp = verbs_qp(ibqp);
	int ret;

	drive_own(qp->drive, qp->pu);
	ret = nic_qp_limit_chain(qp->nic_qp, &l, drive_now(qp->drive));
	drive_disown(qp->drive, qp->pu);
	return verbs_ret(ret);
}

VERBS_EXPORT int roost_pd_stop_chains(struct ibv_pd *pd)
{
	struct verbs_ctx *ctx = verbs_ctx(pd->context);

	drive_control_lock(ctx->drive);
	verbs_own_all(ctx->drive);
	nic_pd_stop_chains(ctx->nic, pd->handle);
	verbs_disown_all(ctx->drive);
	drive_control_unlock(ctx->drive);
	return 0;
}

/*
 * Returns a queue pair of the program, or NULL. Sets *ring to a region of the queue pair's rings,
 * or NULL. The control lock keeps the NIC's queue pairs, some of which may have ended (qp_end()).
 */
static struct ibv_qp *next_of(struct verbs_ctx *ctx, const struct ibv_pd *pd, struct ibv_mr **ring)
{
	struct verbs_qp *found = NULL;
	struct list_head *at;
	struct verbs_mr *mr;

	*ring = NULL;
	drive_control_lock(ctx->drive);
	pthread_mutex_lock(&ctx->lock);
	list_for_each (at, &ctx->qps) {
		struct verbs_qp *qp = list_entry(at, struct verbs_qp, link);

		if (qp->qp.pd->handle == pd->handle && !qp->ended && nic_qp_has_chain(qp->nic_qp)) {
			found = qp;
			break;
		}
	}
	list_for_each_entry (mr, &ctx->mrs, link)
		if (found && mr->ring_of == found)
			*ring = &mr->mr;
	pthread_mutex_unlock(&ctx->lock);
	drive_control_unlock(ctx->drive);
	return found ? &found->qp : NULL;
}

VERBS_EXPORT int roost_pd_remove_chains(struct ibv_pd *pd)
{
	struct verbs_ctx *ctx = verbs_ctx(pd->context);
	struct ibv_mr *ring;
	struct ibv_qp *qp;
	int ret;

	roost_pd_stop_chains(pd);
	while ((qp = next_of(ctx, pd, &ring)) != NULL) {
		ret = ring ? ibv_dereg_mr(ring) : ibv_destroy_qp(qp);
		if (ret)
			return ret;
	}
	return 0;
}
