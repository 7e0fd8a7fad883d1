/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ENABLEs of queues of another PU. Only the owner of a PU accesses its queue pairs, and a control
 * call may destroy them meanwhile. So the ENABLE travels as a message. Each pair of PUs has a
 * mailbox in each direction, of two rings with one producer and one consumer, and a doorbell. A
 * message that names no managed queue of the sender's protection domain comes back in the ring of
 * refusals, and the sending queue pair fails.
 *
 *	sending PU				receiving PU
 *	slot, head (release)			take the doorbell, chain_mailed = false,
 *	exchange chain_mailed true, doorbell	head (acquire), slot, tail (release)
 *
 * The stores of the sender before the ENABLE are visible to the queue that it enables.
 *
 * No refusal is lost: a PU takes an ENABLE only while the ring for its refusal has space. Otherwise
 * the ENABLE stays in the mailbox; when the mailbox is full, the sender tries again in each turn.
 * The PU that takes refusals rings the doorbell of the PU that may wait for the space. If that PU
 * cleared chain_mailed before, it gets a doorbell and takes its mail again. If it clears
 * chain_mailed later, it sees the new tail.
 *
 * A message belongs to the queue pair that had the number when it was sent, and to its time between
 * two resets. The owner of the PU that a message has come to may change it until it takes it. So a
 * reset settles the messages under way to its queue pair, and so does the set-up of a queue pair,
 * whose number an earlier one may have had. A refusal names the life of its queue pair.
 *
 * There is no deadlock, even if all rings are full: taking a refusal needs no space, so each turn
 * that takes mail empties the rings of refusals, and the ENABLEs behind them continue.
 */
#include <stdlib.h>

#include "nic/chain.h"

#define SLOTS 64u /* a power of two */

enum mail_fate {
	MAIL_OPEN,    /* chain_enable() decides */
	MAIL_EXPIRED, /* its queue was reset since */
	MAIL_REFUSED, /* its queue has gone, and another one has its number */
};

struct chain_mail {
	uint64_t name;	/* raddr of the WQE */
	uint32_t count; /* swap_add of the WQE */
	uint32_t pd, from, index;
	uint32_t life; /* of the sending queue pair */
	uint8_t op;
	uint8_t fate;
};

struct mail_ring {
	_Atomic uint32_t head CACHE_ALIGNED;
	_Atomic uint32_t tail CACHE_ALIGNED;
	struct chain_mail slot[SLOTS] CACHE_ALIGNED;
};

struct chain_box {
	struct mail_ring enables;
	struct mail_ring refusals; /* refusals of ENABLEs of the PU that has the mailbox */
};

int chain_mail_init(struct nic *nic)
{
	for (unsigned to = 0; to < nic->cfg.pus; to++) {
		for (unsigned from = 0; from < nic->cfg.pus; from++) {
			struct chain_box **box = &nic->pus[to]->chain_box[from];

			if (from == to || *box)
				continue;
			*box = aligned_alloc(ROOST_CACHE_LINE, sizeof(**box));
			if (!*box)
				return -ENOMEM;
			memset(*box, 0, sizeof(**box));
		}
	}
	return 0;
}

void chain_mail_fini(struct pu *pu)
{
	for (unsigned i = 0; i < NIC_MAX_PUS; i++)
		free(pu->chain_box[i]);
}

/* The producer calls it. The space does not decrease before the producer's next put(). */
static bool has_space(struct mail_ring *ring)
{
	return atomic_load_explicit(&ring->head, memory_order_relaxed) -
		       atomic_load_explicit(&ring->tail, memory_order_acquire) <
	       SLOTS;
}

/* Makes the PU take its mail. */
static void ring_for_mail(struct nic *nic, unsigned index)
{
	struct pu *pu = nic->pus[index];

	if (!atomic_exchange_explicit(&pu->chain_mailed, true, memory_order_acq_rel))
		mpsc_push(&pu->doorbells, CHAIN_MAIL);
	nic_kick(nic, index);
}

/* Adds a message to a ring that has space. */
static void put(struct nic *nic, unsigned to, struct mail_ring *ring, const struct chain_mail *m)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	ring->slot[head % SLOTS] = *m;
	atomic_store_explicit(&ring->head, head + 1, memory_order_release);
	ring_for_mail(nic, to);
}

bool chain_send_mail(struct nic_qp *qp, const struct sq_entry *e, unsigned pu)
{
	struct mail_ring *ring = &qp->nic->pus[pu]->chain_box[qp->pu_index]->enables;

	if (!has_space(ring))
		return false;
	put(qp->nic, pu, ring,
	    &(struct chain_mail){.name = e->wqe.raddr,
				 .count = (uint32_t)e->wqe.swap_add,
				 .pd = qp->pd,
				 .from = qp->qpn,
				 .index = e->index,
				 .life = qp->chain->life,
				 .op = e->op});
	return true;
}

/* Returns the entry of the WQE that the message came from. */
static struct sq_entry entry_of(const struct chain_mail *m)
{
	return (struct sq_entry){
		.op = m->op,
		.index = m->index,
		.wqe = {.ctrl = ROOST_CTRL(m->op, 0), .raddr = m->name, .swap_add = m->count}};
}

/*
 * Handles a refused message. Its WQE has completed already, so its queue pair ends with the error.
 */
static void refused(struct pu *pu, const struct chain_mail *m)
{
	struct nic_qp *qp = nic_find_qp(pu->nic, m->from);
	struct sq_entry e = entry_of(m);

	if (!qp || qp->pu != pu || !qp->chain || qp->chain->life != m->life ||
	    (qp->state != NIC_QPS_RTS && qp->state != NIC_QPS_SQD))
		return;
	e.status = NIC_WC_LOC_QP_OP_ERR;
	chain_failed(qp, &e);
	pu->ctr.req_local_qp_op_error++;
	qp_error(qp);
}

/* Copies the oldest message, if it is not the one at `end`. */
static bool take(struct mail_ring *ring, uint32_t end, struct chain_mail *m)
{
	uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);

	if (tail == end)
		return false;
	*m = ring->slot[tail % SLOTS];
	atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
	return true;
}

static void take_refusals(struct pu *pu, unsigned from, struct mail_ring *ring)
{
	uint32_t end = atomic_load_explicit(&ring->head, memory_order_acquire);
	struct chain_mail m;
	bool any = false;

	for (; take(ring, end, &m); any = true)
		refused(pu, &m);
	if (any)
		ring_for_mail(pu->nic, from); /* the sender may wait for the space */
}

static void take_enables(struct pu *pu, unsigned from, struct mail_ring *ring)
{
	struct mail_ring *answers = &pu->nic->pus[from]->chain_box[pu->index]->refusals;
	uint32_t end = atomic_load_explicit(&ring->head, memory_order_acquire);
	struct chain_mail m;

	while (has_space(answers) && take(ring, end, &m)) {
		struct sq_entry e = entry_of(&m);

		if (m.fate == MAIL_REFUSED ||
		    (m.fate == MAIL_OPEN && !chain_enable(pu, m.pd, NULL, &e)))
			put(pu->nic, from, answers, &m);
	}
}

/* Returns the next open message to the queue pair in a ring, from *at on, or NULL. */
static struct chain_mail *next_to(const struct nic_qp *qp, struct mail_ring *ring, uint32_t *at)
{
	uint32_t end = atomic_load_explicit(&ring->head, memory_order_acquire);

	while (*at != end) {
		struct chain_mail *m = &ring->slot[(*at)++ % SLOTS];

		if (m->fate == MAIL_OPEN && (uint32_t)m->name == qp->qpn)
			return m;
	}
	return NULL;
}

static void settle(struct nic_qp *qp, bool was_reset)
{
	for (unsigned from = 0; from < qp->nic->cfg.pus; from++) {
		struct chain_box *box = qp->pu->chain_box[from];
		uint32_t at;
		struct chain_mail *m;

		if (!box)
			continue;
		at = atomic_load_explicit(&box->enables.tail, memory_order_relaxed);
		while ((m = next_to(qp, &box->enables, &at)) != NULL) {
			if (!was_reset)
				m->fate = MAIL_REFUSED;
			else if (chain_enables(qp, m->pd, m->op))
				m->fate = MAIL_EXPIRED;
		}
	}
}

void chain_expire_mail(struct nic_qp *qp)
{
	settle(qp, true);
}

void chain_refuse_mail(struct nic_qp *qp)
{
	settle(qp, false);
}

/* This function is not inlined, so that turns without mail do not set up its large frame. */
__attribute__((noinline)) void chain_take_mail(struct pu *pu)
{
	atomic_exchange_explicit(&pu->chain_mailed, false, memory_order_acq_rel);
	for (unsigned from = 0; from < pu->nic->cfg.pus; from++) {
		struct chain_box *box = pu->chain_box[from];

		if (!box)
			continue;
		take_refusals(pu, from, &box->refusals);
		take_enables(pu, from, &box->enables);
	}
}
