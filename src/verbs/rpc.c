/* SPDX-License-Identifier: BSD-2-Clause */
/* roost/verbs.h: enables the op-codes of calls on a queue pair, and posts calls. */
#include "roost/verbs.h"
#include "verbs/kernel_runtime.h"
#include "verbs/post.h"

int verbs_enable_rpc(struct verbs_qp *qp)
{
	struct kernel_runtime *rt;
	int ret;

	drive_control_lock(qp->drive);
	ret = verbs_kernel_runtime(verbs_ctx(qp->qp.context), &rt);
	if (!ret) {
		drive_own(qp->drive, qp->pu);
		ret = nic_qp_set_rpc(drive_nic(qp->drive), qp->nic_qp);
		drive_disown(qp->drive, qp->pu);
	}
	drive_control_unlock(qp->drive);
	return ret;
}

VERBS_EXPORT int roost_qp_enable_rpc(struct ibv_qp *qp)
{
	return verbs_ret(verbs_enable_rpc(verbs_qp(qp)));
}

VERBS_EXPORT int roost_qp_set_quota(struct ibv_qp *ibqp, uint32_t calls, uint32_t steps)
{
	struct runtime_quota quota = {.calls = calls, .steps = steps};
	struct verbs_qp *qp = verbs_qp(ibqp);
	struct kernel_runtime *rt;
	int ret;

	drive_control_lock(qp->drive);
	rt = runtime_of(drive_nic(qp->drive));
	drive_own(qp->drive, qp->pu);
	ret = rt ? runtime_set_quota(rt, qp->nic_qp, &quota) : -EINVAL;
	drive_disown(qp->drive, qp->pu);
	drive_control_unlock(qp->drive);
	return verbs_ret(ret);
}

static int put(struct roost_wqe *w, const struct verbs_queue *sq, enum roost_op op,
	       const struct roost_rpc_wr *wr)
{
	if ((uint32_t)wr->num_sge > sq->max_sge || wr->send_flags & ~VERBS_SEND_FLAGS)
		return EINVAL;
	w->ctrl = ROOST_CTRL(op, 0);
	w->flags = post_flags(wr->send_flags);
	w->raddr = wr->op;
	w->rkey = wr->rkey;
	w->num_sge = 0;
	w->inline_len = 0;
	if (wr->send_flags & IBV_SEND_INLINE)
		return post_inline(w, sq, wr->sg_list, wr->num_sge);
	w->num_sge = (uint16_t)wr->num_sge;
	if (w->num_sge)
		memcpy(w->sge, wr->sg_list, w->num_sge * sizeof(w->sge[0]));
	return 0;
}

static int post(struct ibv_qp *ibqp, enum roost_op op, const struct roost_rpc_wr *wr)
{
	struct verbs_qp *qp = verbs_qp(ibqp);
	struct verbs_queue *sq = &qp->sq;
	uint32_t head;
	int ret = EINVAL;

	spin_lock(&sq->lock);
	head = sq->head;
	if (!post_send_allowed(qp) || !nic_qp_rpc(qp->nic_qp))
		goto unlock;
	ret = ENOMEM;
	if (!post_space(sq, head))
		goto unlock;
	ret = put(post_slot(sq, head), sq, op, wr);
	if (ret)
		goto unlock;
	sq->wr_id[head & sq->mask] = wr->wr_id;
	post_publish(sq, head + 1);
unlock:
	spin_unlock(&sq->lock);
	if (!ret)
		drive_doorbell(qp->drive, qp->nic_qp);
	return ret;
}

VERBS_EXPORT int roost_post_rpc(struct ibv_qp *qp, const struct roost_rpc_wr *wr)
{
	return post(qp, ROOST_OP_RPC, wr);
}

VERBS_EXPORT int roost_post_rpc_write(struct ibv_qp *qp, const struct roost_rpc_wr *wr)
{
	return post(qp, ROOST_OP_RPC_WRITE, wr);
}
