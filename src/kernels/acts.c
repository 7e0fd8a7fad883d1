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

static struct nic_qp *lent_qp(const struct lent *l)
{
	return atomic_load_explicit(&((struct lent *)(uintptr_t)l)->qp, memory_order_relaxed);
}

/* NULL: none of this number that this PU runs. */
static struct lent *loan_of(struct standing *st, const struct fabric_pu *pu, uint32_t number)
{
	struct lent *l;

	if (number < 1 || number > st->num_lent)
		return NULL;
	l = &st->lent[number - 1];
	/* One of another PU may be destroyed there just now. */
	return l->pu == pu->index && lent_qp(l) ? l : NULL;
}

/* Is there room for one more of `len` bytes? */
static bool fits(const struct lent *l, uint32_t len)
{
	return (!l->bound.ops || l->ops < l->bound.ops) &&
	       (!l->bound.bytes || l->bytes + len <= l->bound.bytes);
}

/* What the NIC hands back of an operation: its bit, and the number of the queue pair. */
#define TOKEN(bit, qp) ((qp) << 8 | (bit))
#define TOKEN_BIT(t)   ((t)&0xff)
#define TOKEN_QP(t)    ((t) >> 8)

static void settle(struct acts *a, uint32_t bit, uint8_t status)
{
	struct roost_call *c = a->c;

	c->qp_status[bit] = status;
	c->qp_failed += status != ROOST_QP_OK;
	a->open &= ~(1u << bit);
	while (c->qp_done != c->qp_posted && !(a->open >> (c->qp_done + 1) % ROOST_QP_OPS & 1))
		c->qp_done++;
}

/* Hands it to the NIC: 0, -EAGAIN: there is no room, or why it is refused. */
static int hand_over(struct acts *a, struct lent *l, uint32_t bit, uint32_t key)
{
	const struct roost_call *c = a->c;
	const struct nic_act act = {.owner = a,
				    .number = TOKEN(bit, c->qp),
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
	int rc;

	if (!l)
		return -ENOENT;
	if (l->bound.bytes && c->ask_len > l->bound.bytes)
		return -EINVAL;
	/* It would wait behind messages that may wait for it: at the same queue pair, or around by others. */
	if (a->outward && nic_stream_leaves(lent_qp(l)))
		return -EINVAL;
	if (!fits(l, c->ask_len))
		return -EAGAIN;
	rc = nic_act(lent_qp(l), &act);
	if (rc)
		return rc;
	l->ops++;
	l->bytes += c->ask_len;
	return 0;
}

/* False: there is no room. */
static bool post(struct acts *a, struct standing *st, struct fabric_pu *pu, uint32_t key)
{
	struct roost_call *c = a->c;
	struct lent *l = loan_of(st, pu, c->qp);
	uint32_t bit = (c->qp_posted + 1) % ROOST_QP_OPS;
	int rc;

	if (c->qp_posted - c->qp_done == ROOST_QP_OPS)
		return false;
	a->st = st;
	rc = hand_over(a, l, bit, key);
	if (rc == -EAGAIN) {
		a->at = lent_qp(l);
		list_add_tail(&a->link, &pu->full);
		return false;
	}
	c->qp_posted++;
	c->qp_status[bit] = ROOST_QP_UNDER_WAY;
	a->open |= 1u << bit;
	a->out += !rc;
	pu->ctr.acts++;
	if (rc) {
		pu->ctr.acts_failed++;
		settle(a, bit, status_of(rc));
	}
	return true;
}

/* Is what it waits for done? What was never posted is not waited for. */
static bool come(const struct roost_call *c)
{
	return (int32_t)(c->qp_wait - c->qp_done) <= 0 || c->qp_done == c->qp_posted;
}

bool acts_go(struct acts *a, struct standing *st, struct fabric_pu *pu, uint32_t key)
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

/* Would it get what it waits for? Or be told that there is nothing to wait for. */
static bool could(const struct acts *a)
{
	const struct lent *l = &a->st->lent[a->c->qp - 1];

	return lent_qp(l) != a->at || fits(l, a->c->ask_len);
}

/* There is room for one. When nothing is under way there any more nobody is left to say so again; what failed makes all fail. */
static void room(struct fabric_pu *pu, const struct nic_qp *qp, bool all)
{
	struct list_head *at, *next;

	list_for_each_safe (at, next, &pu->full) {
		struct acts *a = list_entry(at, struct acts, link);

		if (a->at != qp || !(all || could(a)))
			continue;
		wake(a);
		if (!all)
			return;
	}
}

void acts_done(struct fabric *f, struct nic_qp *qp, struct acts *a, uint32_t token, uint32_t len,
	       uint8_t status)
{
	struct fabric_pu *pu = &f->pu[nic_qp_pu(qp)];
	struct lent *l = &a->st->lent[TOKEN_QP(token) - 1];

	pu->ctr.acts_failed += status != ROOST_QP_OK;
	l->ops--;
	l->bytes -= len;
	settle(a, TOKEN_BIT(token), status);
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
