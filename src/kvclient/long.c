/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations that do not fit into a packet, or whose replies do not: calls of their own. */
#include <errno.h>

#include "base/mem.h"
#include "kvclient/client.h"

static int open_lane(struct roost_kv *kv)
{
	struct long_lane *l = &kv->lane;
	struct ibv_qp *qp = kv->node->id->qp;

	if (l->caller)
		return 0;
	l->batch = mem_alloc_pages(KVWIRE_BATCH_MAX);
	if (!l->batch)
		return -ENOMEM;
	l->mr = ibv_reg_mr(qp->pd, l->batch, KVWIRE_BATCH_MAX, IBV_ACCESS_LOCAL_WRITE);
	if (l->mr)
		l->caller = roost_caller_create(qp, 1, KVWIRE_LONG_MAX);
	if (l->caller)
		return 0;
	kvc_long_close(kv);
	return -ENOMEM;
}

void kvc_long_close(struct roost_kv *kv)
{
	struct long_lane *l = &kv->lane;

	if (l->caller)
		roost_caller_destroy(l->caller);
	if (l->mr)
		ibv_dereg_mr(l->mr);
	if (l->batch)
		mem_free_pages(l->batch, KVWIRE_BATCH_MAX);
	*l = (struct long_lane){0};
}

/* Sends the payload of the call. If the send queue is full, kvc_long_poll() tries again. */
static void send_payload(struct roost_kv *kv)
{
	struct long_lane *l = &kv->lane;
	struct ibv_sge sge = {(uintptr_t)l->batch, l->unsent, l->mr->lkey};
	struct roost_rpc_wr wr = {
		.op = ROOST_KV_OP, .rkey = NO_REGION, .sg_list = &sge, .num_sge = 1};
	int rc = roost_post_rpc_write(kv->node->id->qp, &wr);

	if (rc == ENOMEM)
		return;
	l->unsent = 0;
	if (rc) /* the call would take the payload of the next one */
		kv->err = -ENOTCONN;
}

int kvc_long_start(struct roost_kv *kv, struct roost_kv_op *op)
{
	struct long_lane *l = &kv->lane;
	struct kvwire_writer w;
	bool payload;
	uint32_t len;
	int rc = open_lane(kv);

	if (rc)
		return rc;
	kvwire_begin(&w, l->batch, KVWIRE_BATCH_MAX);
	if (!kvwire_add(&w, op))
		return -E2BIG;
	payload = w.at - w.start > (ptrdiff_t)kv->batch_max;
	/* With payload a long reply takes a second buffer of the node. */
	len = (uint32_t)kvwire_finish(&w, payload && !op->out_cap ? 0 : KVWIRE_LONG);
	rc = -roost_call_begin(l->caller, ROOST_KV_OP, NO_REGION, payload ? NULL : l->batch,
			       payload ? 0 : len, payload ? ROOST_RPC_STREAM : 0, &l->id);
	if (rc)
		return rc == -ENOMEM ? -EAGAIN : rc; /* the send queue is full */
	l->op = op;
	l->unsent = payload ? len : 0;
	if (payload)
		send_payload(kv);
	return 0;
}

struct roost_kv_op *kvc_long_poll(struct roost_kv *kv)
{
	struct long_lane *l = &kv->lane;
	struct roost_kv_op *op = l->op;
	struct roost_result result;
	int rc;

	if (!op)
		return NULL;
	if (l->unsent)
		send_payload(kv);
	rc = roost_call_poll(l->caller, l->id, &result);
	if (rc) {
		if (rc != EAGAIN)
			kv->err = -rc;
		return NULL;
	}
	op->next = NULL;
	kvc_take_reply(op, &result);
	roost_call_end(l->caller, l->id);
	l->op = NULL;
	if (op->status == -EAGAIN) /* an old node, or the value is longer than `out` by now */
		op->status = -EMSGSIZE;
	return op;
}
