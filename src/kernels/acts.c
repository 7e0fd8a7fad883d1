/* SPDX-License-Identifier: BSD-2-Clause */
#include "kernels/acts.h"

#include <errno.h>

#include "kernels/call.h"

static uint8_t op_of(const struct roost_call *c)
{
	switch ((enum roost_ask)c->ask) {
	case ROOST_ASK_QP_READ:
		return ROOST_OP_READ;
	case ROOST_ASK_QP_WRITE:
		return ROOST_OP_WRITE;
	case ROOST_ASK_QP_WRITE_IMM:
		return ROOST_OP_WRITE_IMM;
	case ROOST_ASK_QP_SEND_IMM:
		return ROOST_OP_SEND_IMM;
	case ROOST_ASK_QP_CAS:
		return ROOST_OP_CMP_SWAP;
	case ROOST_ASK_QP_FETCH_ADD:
		return ROOST_OP_FETCH_ADD;
	default:
		return ROOST_OP_SEND;
	}
}

static uint8_t status_of(int rc)
{
	switch (rc) {
	case -ENOENT:
		return ROOST_QP_NONE;
	case -ENOTCONN:
		return ROOST_QP_STATE;
	case -EACCES:
		return ROOST_QP_LOCAL;
	default:
		return ROOST_QP_INVALID;
	}
}

/* NULL: none of this number that this PU runs. */
static struct nic_qp *qp_of(const struct standing *st, const struct fabric_pu *pu, uint32_t number)
{
	const struct lent *l;

	if (number < 1 || number > st->num_lent)
		return NULL;
	l = &st->lent[number - 1];
	/* One of another PU may be destroyed there just now. */
	return l->pu == pu->index ? atomic_load_explicit(&l->qp, memory_order_relaxed) : NULL;
}

static void settle(struct acts *a, uint32_t number, uint8_t status)
{
	struct roost_call *c = a->c;

	c->qp_status[number % ROOST_QP_OPS] = status;
	c->qp_failed += status != ROOST_QP_OK;
	a->open &= ~(1u << number % ROOST_QP_OPS);
	while (c->qp_done != c->qp_posted && !(a->open >> (c->qp_done + 1) % ROOST_QP_OPS & 1))
		c->qp_done++;
}

/* False: there is no room. */
static bool post(struct acts *a, const struct standing *st, struct fabric_pu *pu, uint32_t key)
{
	struct roost_call *c = a->c;
	struct nic_qp *qp = qp_of(st, pu, c->qp);
	struct nic_act act = {.owner = a,
			      .number = c->qp_posted + 1,
			      .op = op_of(c),
			      .solicited = c->solicited,
			      .rkey = c->rkey,
			      .imm = c->imm,
			      .raddr = c->raddr,
			      .compare = c->compare,
			      .swap_add = c->swap_add,
			      .len = c->ask_len,
			      .key = key,
			      .buf = c->buf,
			      .va = c->va};
	int rc = -EAGAIN;

	if (c->qp_posted - c->qp_done == ROOST_QP_OPS)
		return false;
	rc = qp ? nic_act(qp, &act) : -ENOENT;
	if (rc == -EAGAIN) {
		a->at = qp;
		list_add_tail(&a->link, &pu->full);
		return false;
	}
	c->qp_posted++;
	c->qp_status[act.number % ROOST_QP_OPS] = ROOST_QP_UNDER_WAY;
	a->open |= 1u << act.number % ROOST_QP_OPS;
	a->out += !rc;
	pu->ctr.acts++;
	if (rc) {
		pu->ctr.acts_failed++;
		settle(a, act.number, status_of(rc));
	}
	return true;
}

/* Is what it waits for done? What was never posted is not waited for. */
static bool come(const struct roost_call *c)
{
	return (int32_t)(c->qp_wait - c->qp_done) <= 0 || c->qp_done == c->qp_posted;
}

bool acts_go(struct acts *a, const struct standing *st, struct fabric_pu *pu, uint32_t key)
{
	if (!a->posted)
		a->posted = a->c->ask == ROOST_ASK_QP_WAIT || post(a, st, pu, key);
	if (!a->posted || !come(a->c)) {
		a->waits = true;
		return false;
	}
	a->posted = false;
	return true;
}

static void unlink_room(struct acts *a)
{
	if (list_linked(&a->link))
		list_del(&a->link);
	a->at = NULL;
}

static void wake(struct acts *a)
{
	unlink_room(a);
	a->waits = false;
	a->wake(a);
}

bool acts_leave(struct acts *a)
{
	unlink_room(a);
	a->waits = false;
	a->gone = a->out > 0;
	return !a->gone;
}

/* There is room. When nothing is under way there any more nobody is left to say so again; what failed makes all fail. */
static void room(struct fabric_pu *pu, const struct nic_qp *qp, bool all)
{
	struct list_head *at, *next;

	list_for_each_safe (at, next, &pu->full) {
		struct acts *a = list_entry(at, struct acts, link);

		if (a->at != qp)
			continue;
		wake(a);
		if (!all)
			return;
	}
}

void acts_done(struct fabric *f, struct nic_qp *qp, struct acts *a, uint32_t number, uint8_t status)
{
	struct fabric_pu *pu = &f->pu[nic_qp_pu(qp)];

	pu->ctr.acts_failed += status != ROOST_QP_OK;
	settle(a, number, status);
	a->out--;
	if (!list_empty(&pu->full))
		room(pu, qp, status != ROOST_QP_OK || nic_acts(qp) == 0);
	if (a->waits ? !a->at && (!a->posted || come(a->c)) : a->gone && !a->out)
		wake(a);
}

void acts_gone(struct fabric *f, struct nic_qp *qp)
{
	standing_forget(f, qp);
	room(&f->pu[nic_qp_pu(qp)], qp, true);
}
