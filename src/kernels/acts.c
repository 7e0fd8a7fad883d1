/* SPDX-License-Identifier: BSD-2-Clause */
#include "kernels/acts.h"

#include <errno.h>
#include <limits.h>

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
static struct lent *loan_of(struct standing *st, const struct runtime_pu *pu, uint32_t number)
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

/* Room for what it asks for, which nobody else gets before it is posted, refused, or not asked for any more. */
static void promise(struct acts *a, struct lent *l, struct runtime_pu *pu, const struct nic_qp *qp)
{
	a->at = qp;
	a->loan = l;
	a->pu = pu;
	a->promised = true;
	a->bytes = a->c->ask_len;
	l->ops++;
	l->bytes += a->bytes;
}

static void unlink_room(struct acts *a)
{
	if (!list_linked(&a->link))
		return;
	list_del(&a->link);
	a->loan->waiting--;
}

static void wake(struct acts *a)
{
	unlink_room(a);
	if (!a->promised)
		a->at = NULL;
	a->waits = false;
	a->wake(a);
}

/*
 * There is room at a queue pair, for `most` more. Those of one loan get it in the order in which they came: small ones must not keep a large one waiting for
 * ever. A loan that has ended has nothing to wait for.
 */
static void room(struct runtime_pu *pu, const struct nic_qp *qp, unsigned most)
{
	struct list_head *at, *next;

	pu->looks++;
	list_for_each_safe (at, next, &pu->full) {
		struct acts *a = list_entry(at, struct acts, link);
		struct lent *l = a->loan;

		if (a->at != qp)
			continue;
		if (lent_qp(l) == qp) {
			if (!most || (!a->promised && l->stopped == pu->looks))
				continue;
			if (!a->promised && !fits(l, a->c->ask_len)) {
				l->stopped = pu->looks;
				continue;
			}
			if (!a->promised)
				promise(a, l, pu, qp);
			most--;
		}
		wake(a);
	}
}

/* All fails there from now on. */
static void all_fails(struct runtime_pu *pu, const struct nic_qp *qp)
{
	struct list_head *at, *next;

	list_for_each_safe (at, next, &pu->full) {
		struct acts *a = list_entry(at, struct acts, link);

		if (a->at == qp)
			wake(a);
	}
}

void acts_stop(struct acts *a)
{
	const struct nic_qp *qp = a->at;

	unlink_room(a);
	a->waits = false;
	a->at = NULL;
	if (a->promised) {
		a->promised = false;
		a->loan->ops--;
		a->loan->bytes -= a->bytes;
	}
	/* It may have been in the way of others. */
	if (qp)
		room(a->pu, qp, UINT_MAX);
}

/* Those that have a promise wait for the queue pair alone, ahead of all that wait for a loan. */
static void wait_for_room(struct acts *a, struct lent *l, struct runtime_pu *pu)
{
	struct list_head *behind = pu->full.next;

	a->at = lent_qp(l);
	a->loan = l;
	a->pu = pu;
	l->waiting++;
	if (!a->promised)
		behind = &pu->full;
	while (behind != &pu->full && list_entry(behind, struct acts, link)->promised)
		behind = behind->next;
	list_insert(&a->link, behind->prev, behind);
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
static int hand_over(struct acts *a, struct lent *l, struct runtime_pu *pu, uint32_t bit, uint32_t key)
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
	if (!a->promised) {
		if (l->waiting || !fits(l, c->ask_len))
			return -EAGAIN;
		promise(a, l, pu, lent_qp(l));
	}
	rc = nic_act(lent_qp(l), &act);
	if (!rc) {
		a->promised = false;
		a->at = NULL;
	}
	return rc;
}

/* False: there is no room. */
static bool post(struct acts *a, struct standing *st, struct runtime_pu *pu, uint32_t key)
{
	struct roost_call *c = a->c;
	struct lent *l = loan_of(st, pu, c->qp);
	uint32_t bit = (c->qp_posted + 1) % ROOST_QP_OPS;
	int rc;

	if (c->qp_posted - c->qp_done == ROOST_QP_OPS)
		return false;
	a->st = st;
	rc = hand_over(a, l, pu, bit, key);
	if (rc == -EAGAIN) {
		wait_for_room(a, l, pu);
		return false;
	}
	if (rc)
		acts_stop(a);
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

bool acts_go(struct acts *a, struct standing *st, struct runtime_pu *pu, uint32_t key)
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

bool acts_leave(struct acts *a)
{
	acts_stop(a);
	a->gone = a->out > 0;
	return !a->gone;
}

void acts_done(struct kernel_runtime *rt, struct nic_qp *qp, struct acts *a, uint32_t token, uint32_t len,
	       uint8_t status)
{
	struct runtime_pu *pu = &rt->pu[nic_qp_pu(qp)];
	struct lent *l = &a->st->lent[TOKEN_QP(token) - 1];

	pu->ctr.acts_failed += status != ROOST_QP_OK;
	l->ops--;
	l->bytes -= len;
	if (unlikely(a->lock))
		spin_lock(a->lock);
	settle(a, TOKEN_BIT(token), status);
	a->out--;
	if (unlikely(a->lock))
		spin_unlock(a->lock);
	if (status != ROOST_QP_OK)
		all_fails(pu, qp);
	else if (!list_empty(&pu->full))
		room(pu, qp, NIC_ACTS - nic_acts(qp));
	if (a->waits ? !a->at && (!a->posted || come(a->c)) : a->gone && !a->out)
		wake(a);
}

void acts_gone(struct kernel_runtime *rt, struct nic_qp *qp)
{
	standing_forget(rt, qp);
	all_fails(&rt->pu[nic_qp_pu(qp)], qp);
}
