/* SPDX-License-Identifier: BSD-2-Clause */
#include "kernels/kernel_wrs.h"

#include <errno.h>
#include <limits.h>

#include "kernels/asks.h"
#include "kernels/call.h"

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

static struct nic_qp *bound_nic_qp(const struct bound_qp *l)
{
	return atomic_load_explicit(&((struct bound_qp *)(uintptr_t)l)->qp, memory_order_relaxed);
}

/* NULL: none of this number that this PU runs. */
static struct bound_qp *find_bound(struct registered_kernel *st, const struct runtime_pu *pu,
				   uint32_t number)
{
	struct bound_qp *l;

	if (number < 1 || number > st->num_bound)
		return NULL;
	l = &st->bound[number - 1];
	/* One of another PU may be destroyed there just now. */
	return l->pu == pu->index && bound_nic_qp(l) ? l : NULL;
}

/* Is there room for one more of `len` bytes? */
static bool fits(const struct bound_qp *l, uint32_t len)
{
	return (!l->limits.ops || l->ops < l->limits.ops) &&
	       (!l->limits.bytes || l->bytes + len <= l->limits.bytes);
}

/*
 * Room for what it asks for, which nobody else gets before it is posted, refused, or not asked for
 * any more.
 */
static void promise(struct kernel_wrs *a, struct bound_qp *l, struct runtime_pu *pu,
		    const struct nic_qp *qp)
{
	a->at = qp;
	a->bound = l;
	a->pu = pu;
	a->promised = true;
	a->bytes = a->c->ask_len;
	l->ops++;
	l->bytes += a->bytes;
}

static void unlink_room(struct kernel_wrs *a)
{
	if (!list_linked(&a->link))
		return;
	list_del(&a->link);
	a->bound->waiting--;
}

static void wake(struct kernel_wrs *a)
{
	unlink_room(a);
	if (!a->promised)
		a->at = NULL;
	a->waits = false;
	a->wake(a);
}

/*
 * There is room at a queue pair, for `most` more. Those of one binding get it in the order in which
 * they came: small ones must not keep a large one waiting for ever. A binding that has ended has
 * nothing to wait for.
 */
static void room(struct runtime_pu *pu, const struct nic_qp *qp, unsigned most)
{
	struct list_head *at, *next;

	pu->looks++;
	list_for_each_safe (at, next, &pu->full) {
		struct kernel_wrs *a = list_entry(at, struct kernel_wrs, link);
		struct bound_qp *l = a->bound;

		if (a->at != qp)
			continue;
		if (bound_nic_qp(l) == qp) {
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
		struct kernel_wrs *a = list_entry(at, struct kernel_wrs, link);

		if (a->at == qp)
			wake(a);
	}
}

void kernel_wrs_stop(struct kernel_wrs *a)
{
	const struct nic_qp *qp = a->at;

	unlink_room(a);
	a->waits = false;
	a->at = NULL;
	if (a->promised) {
		a->promised = false;
		a->bound->ops--;
		a->bound->bytes -= a->bytes;
	}
	/* It may have been in the way of others. */
	if (qp)
		room(a->pu, qp, UINT_MAX);
}

/*
 * Those that have a promise wait for the queue pair alone, ahead of all that wait for its limits.
 */
static void wait_for_room(struct kernel_wrs *a, struct bound_qp *l, struct runtime_pu *pu)
{
	struct list_head *behind = pu->full.next;

	a->at = bound_nic_qp(l);
	a->bound = l;
	a->pu = pu;
	l->waiting++;
	if (!a->promised)
		behind = &pu->full;
	while (behind != &pu->full && list_entry(behind, struct kernel_wrs, link)->promised)
		behind = behind->next;
	list_insert(&a->link, behind->prev, behind);
}

/* What the NIC hands back of an operation: its bit, and the number of the queue pair. */
#define TOKEN(bit, qp) ((qp) << 8 | (bit))
#define TOKEN_BIT(t)   ((t)&0xff)
#define TOKEN_QP(t)    ((t) >> 8)

static void settle(struct kernel_wrs *a, uint32_t bit, uint8_t status)
{
	struct roost_call *c = a->c;

	c->qp_status[bit] = status;
	c->qp_failed += status != ROOST_QP_OK;
	a->open &= ~(1u << bit);
	while (c->qp_done != c->qp_posted && !(a->open >> (c->qp_done + 1) % ROOST_QP_OPS & 1))
		c->qp_done++;
}

/* Hands it to the NIC: 0, -EAGAIN: there is no room, or why it is refused. */
static int hand_over(struct kernel_wrs *a, struct bound_qp *l, struct runtime_pu *pu, uint32_t bit,
		     uint32_t key)
{
	const struct roost_call *c = a->c;
	const struct nic_kernel_wr wr = {.owner = a,
					 .number = TOKEN(bit, c->qp),
					 .op = ask_rules[c->ask].op,
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
	if (l->limits.bytes && c->ask_len > l->limits.bytes)
		return -EINVAL;
	/*
	 * It would wait behind messages that may wait for it: at the same queue pair, or around by
	 * others.
	 */
	if (a->outward && nic_stream_leaves(bound_nic_qp(l)))
		return -EINVAL;
	if (!a->promised) {
		if (l->waiting || !fits(l, c->ask_len))
			return -EAGAIN;
		promise(a, l, pu, bound_nic_qp(l));
	}
	rc = nic_post_kernel_wr(bound_nic_qp(l), &wr);
	if (!rc) {
		a->promised = false;
		a->at = NULL;
	}
	return rc;
}

/* False: there is no room. */
static bool post(struct kernel_wrs *a, struct registered_kernel *st, struct runtime_pu *pu,
		 uint32_t key)
{
	struct roost_call *c = a->c;
	struct bound_qp *l = find_bound(st, pu, c->qp);
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
		kernel_wrs_stop(a);
	c->qp_posted++;
	c->qp_status[bit] = ROOST_QP_UNDER_WAY;
	a->open |= 1u << bit;
	a->out += !rc;
	pu->ctr.work_requests++;
	if (rc) {
		pu->ctr.work_requests_failed++;
		settle(a, bit, status_of(rc));
	}
	return true;
}

/* Is what it waits for done? What was never posted is not waited for. */
static bool come(const struct roost_call *c)
{
	return (int32_t)(c->qp_wait - c->qp_done) <= 0 || c->qp_done == c->qp_posted;
}

bool kernel_wrs_post(struct kernel_wrs *a, struct registered_kernel *st, struct runtime_pu *pu,
		     uint32_t key)
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

bool kernel_wrs_leave(struct kernel_wrs *a)
{
	kernel_wrs_stop(a);
	a->gone = a->out > 0;
	return !a->gone;
}

void kernel_wrs_done(struct kernel_runtime *rt, struct nic_qp *qp, struct kernel_wrs *a,
		     uint32_t token, uint32_t len, uint8_t status)
{
	struct runtime_pu *pu = &rt->pu[nic_qp_pu(qp)];
	struct bound_qp *l = &a->st->bound[TOKEN_QP(token) - 1];

	pu->ctr.work_requests_failed += status != ROOST_QP_OK;
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
		room(pu, qp, NIC_MAX_KERNEL_WRS - nic_kernel_wrs(qp));
	if (a->waits ? !a->at && (!a->posted || come(a->c)) : a->gone && !a->out)
		wake(a);
}

void kernel_wrs_qp_gone(struct kernel_runtime *rt, struct nic_qp *qp)
{
	registry_forget_qp(rt, qp);
	all_fails(&rt->pu[nic_qp_pu(qp)], qp);
}
