/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The extended completion queue: start_poll, next_poll ..., end_poll, and functions that read the
 * fields of the current completion. The CQ is locked from start_poll to end_poll, unless the
 * program promised that only one thread uses it.
 */
#include <time.h>

#include "verbs/objects.h"

static struct verbs_cq *cq_of(struct ibv_cq_ex *ex)
{
	return (struct verbs_cq *)ex;
}

static void cq_ex_lock(struct verbs_cq *cq)
{
	if (!cq->single_threaded)
		spin_lock(&cq->lock);
}

static void cq_ex_unlock(struct verbs_cq *cq)
{
	if (!cq->single_threaded)
		spin_unlock(&cq->lock);
}

/* Makes the next completion the current one, if there is one. */
static bool cq_ex_advance(struct verbs_cq *cq)
{
	struct roost_cqe *cqe = &cq->ring[cq->cons & cq->mask];

	if (atomic_load_explicit(&cqe->seq, memory_order_acquire) != cq->cons + 1)
		return false;
	cq->cons++;
	cq->cur = cqe;
	cq->ex.status = (enum ibv_wc_status)cqe->status;
	cq->ex.wr_id = cqe->wr_id;
	return true;
}

static int cq_ex_start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct verbs_cq *cq = cq_of(ex);

	if (unlikely(attr->comp_mask))
		return EINVAL;
	cq_ex_lock(cq);
	if (cq_ex_advance(cq))
		return 0;
	cq_ex_unlock(cq);
	drive_progress(cq->drive, cq->pu);
	cq_ex_lock(cq);
	if (cq_ex_advance(cq))
		return 0;
	cq_ex_unlock(cq);
	return ENOENT;
}

static int cq_ex_next_poll(struct ibv_cq_ex *ex)
{
	return cq_ex_advance(cq_of(ex)) ? 0 : ENOENT;
}

/* The NIC may overwrite the completions that were read only after this store. */
static void cq_ex_end_poll(struct ibv_cq_ex *ex)
{
	struct verbs_cq *cq = cq_of(ex);

	atomic_store_explicit(&cq->index->cons, cq->cons, memory_order_release);
	cq_ex_unlock(cq);
	drive_cqes_taken(cq->drive, cq->pu);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return (enum ibv_wc_opcode)cq_of(ex)->cur->opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->cur->vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->cur->byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->cur->imm;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->cur->qpn;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->cur->src_qpn;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->cur->flags;
}

static uint8_t read_sl(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->cur->sl;
}

/* RoCE has no local identifiers and path bits, and this device no VLANs and flow tags. */
static uint32_t read_zero32(struct ibv_cq_ex *ex)
{
	return 0;
}

static uint16_t read_zero16(struct ibv_cq_ex *ex)
{
	return 0;
}

static uint8_t read_zero8(struct ibv_cq_ex *ex)
{
	return 0;
}

static void read_no_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
	info->tag = 0;
	info->priv = 0;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->cur->timestamp;
}

static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *ex)
{
	struct verbs_cq *cq = cq_of(ex);
	struct timespec ts;
	uint64_t age;

	clock_gettime(CLOCK_REALTIME, &ts);
	age = drive_now(cq->drive) - cq->cur->timestamp;
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec - age;
}

/* All readers are set for any wc_flags: programs call them without a check. */
void verbs_cq_ex_init(struct verbs_cq *cq)
{
	struct ibv_cq_ex *ex = &cq->ex;

	ex->start_poll = cq_ex_start_poll;
	ex->next_poll = cq_ex_next_poll;
	ex->end_poll = cq_ex_end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_byte_len = read_byte_len;
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = read_qp_num;
	ex->read_src_qp = read_src_qp;
	ex->read_wc_flags = read_wc_flags;
	ex->read_slid = read_zero32;
	ex->read_sl = read_sl;
	ex->read_dlid_path_bits = read_zero8;
	ex->read_completion_ts = read_completion_ts;
	ex->read_cvlan = read_zero16;
	ex->read_flow_tag = read_zero32;
	ex->read_tm_info = read_no_tm_info;
	ex->read_completion_wallclock_ns = read_completion_wallclock_ns;
}
