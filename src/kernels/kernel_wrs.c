/* SPDX-License-Identifier: BSD-2-Clause */
#include "kernels/kernel_wrs.h"

#include <errno.h>
#include <limits.h>

#include "base/assert.h"
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

/* Returns the bound queue pair with this number, or NULL if this PU has none. */
static struct bound_qp *find_bound(struct registered_kernel *st, const struct runtime_pu *pu,
				   uint32_t number)
{
	struct bound_qp *l;

	if (number < 1 || number > st->num_bound)
		return NULL;
	l = &st->bound[number - 1];
	/* A queue pair of another PU may be destroyed there meanwhile. */
	return l->pu == pu->index && bound_nic_qp(l) ? l : NULL;
}

/* Returns whether another operation of `len` bytes is within the limits. */
static bool fits(const struct bound_qp *l, uint32_t len)
{
	return (!l->limits.ops || l->ops < l->limits.ops) &&
	       (!l->limits.bytes || l->bytes + len <= l->limits.bytes);
}

/*
 * Reserves space for the requested operation, until the operation is posted, refused, or not
 * requested any more.
 */
static void reserve_space(struct kernel_wrs *a, struct bound_qp *l, struct runtime_pu *pu,
			  const struct nic_qp *qp)
{
	a->qp = qp;
	a->bound = l;
	a->pu = pu;
	a->reserved = true;
	a->bytes = a->c->ask_len;
	l->ops++;
	l->bytes += a->bytes;
}

static void unlink_waiting(struct kernel_wrs *a)
{
	if (!list_linked(&a->link))
		return;
	list_del(&a->link);
	ROOST_ASSERT(a->bound->waiting);
	a->bound->waiting--;
}

static void wake(struct kernel_wrs *a)
{
	unlink_waiting(a);
	if (!a->reserved)
		a->qp = NULL;
	a->waits = false;
	a->wake(a);
}

/*
 * Wakes invocations that wait for space at a queue pair, which has space for `most` operations.
 * Invocations of one binding get space in the order in which they came, so that small operations
 * cannot delay a large one forever. Invocations of a binding that has ended are woken too.
 */
static void wake_waiting(struct runtime_pu *pu, const struct nic_qp *qp, unsigned most)
{
	struct list_head *at, *next;

	pu->full_searches++;
	list_for_each_safe (at, next, &pu->full) {
		struct kernel_wrs *a = list_entry(at, struct kernel_wrs, link);
		struct bound_qp *l = a->bound;

		if (a->qp != qp)
			continue;
		if (bound_nic_qp(l) == qp) {
			if (!most || (!a->reserved && l->searched_at == pu->full_searches))
				continue;
			if (!a->reserved && !fits(l, a->c->ask_len)) {
				l->searched_at = pu->full_searches;
				continue;
			}
			if (!a->reserved)
				reserve_space(a, l, pu, qp);
			most--;
		}
		wake(a);
	}
}

/* Wakes all invocations that wait at a queue pair where all operations fail from now on. */
static void wake_all_waiting(struct runtime_pu *pu, const struct nic_qp *qp)
{
	struct list_head *at, *next;

	list_for_each_safe (at, next, &pu->full) {
		struct kernel_wrs *a = list_entry(at, struct kernel_wrs, link);

		if (a->qp == qp)
			wake(a);
	}
}

void kernel_wrs_stop(struct kernel_wrs *a)
{
	const struct nic_qp *qp = a->qp;

	unlink_waiting(a);
	a->waits = false;
	a->qp = NULL;
	if (a->reserved) {
		a->reserved = false;
		ROOST_ASSERT(a->bound->ops && a->bytes <= a->bound->bytes);
		a->bound->ops--;
		a->bound->bytes -= a->bytes;
	}
	/* Other invocations may have waited behind this one. */
	if (qp)
		wake_waiting(a->pu, qp, UINT_MAX);
}

/*
 * Invocations with a reservation wait only for the queue pair itself. They are ahead of the
 * invocations that wait for its limits.
 */
static void wait_for_space(struct kernel_wrs *a, struct bound_qp *l, struct runtime_pu *pu)
{
	struct list_head *behind = pu->full.next;

	a->qp = bound_nic_qp(l);
	a->bound = l;
	a->pu = pu;
	l->waiting++;
	if (!a->reserved)
		behind = &pu->full;
	while (behind != &pu->full && list_entry(behind, struct kernel_wrs, link)->reserved)
		behind = behind->next;
	list_insert(&a->link, behind->prev, behind);
}

/* The token of an operation, which the NIC returns: its bit and the number of the queue pair. */
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

/*
 * Hands the operation to the NIC. Returns 0, -EAGAIN if there is no space, or the errno of the
 * refusal.
 */
static int post_to_nic(struct kernel_wrs *a, struct bound_qp *l, struct runtime_pu *pu,
		       uint32_t bit, uint32_t key)
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
	 * The operation would wait behind outgoing messages, which may wait for this kernel, at
	 * this queue pair or through others.
	 */
	if (a->blocks_output && nic_stream_has_out(bound_nic_qp(l)))
		return -EINVAL;
	if (!a->reserved) {
		if (l->waiting || !fits(l, c->ask_len))
			return -EAGAIN;
		reserve_space(a, l, pu, bound_nic_qp(l));
	}
	rc = nic_post_kernel_wr(bound_nic_qp(l), &wr);
	if (!rc) {
		a->reserved = false;
		a->qp = NULL;
	}
	return rc;
}

/* Posts the requested operation. Returns false if there is no space. */
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
	rc = post_to_nic(a, l, pu, bit, key);
	if (rc == -EAGAIN) {
		wait_for_space(a, l, pu);
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

/* Returns whether the wait is over. Operations that were never posted are not waited for. */
static bool wait_is_over(const struct roost_call *c)
{
	return (int32_t)(c->qp_wait - c->qp_done) <= 0 || c->qp_done == c->qp_posted;
}

bool kernel_wrs_post(struct kernel_wrs *a, struct registered_kernel *st, struct runtime_pu *pu,
		     uint32_t key)
{
	if (!a->posted)
		a->posted = a->c->ask == ROOST_ASK_QP_WAIT || post(a, st, pu, key);
	if (!a->posted || !wait_is_over(a->c)) {
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
	ROOST_ASSERT(l->ops && len <= l->bytes);
	l->ops--;
	l->bytes -= len;
	if (unlikely(a->lock))
		spin_lock(a->lock);
	settle(a, TOKEN_BIT(token), status);
	a->out--;
	if (unlikely(a->lock))
		spin_unlock(a->lock);
	if (status != ROOST_QP_OK)
		wake_all_waiting(pu, qp);
	else if (!list_empty(&pu->full))
		wake_waiting(pu, qp, NIC_MAX_KERNEL_WRS - nic_kernel_wrs(qp));
	if (a->waits ? !a->qp && (!a->posted || wait_is_over(a->c)) : a->gone && !a->out)
		wake(a);
}

void kernel_wrs_qp_gone(struct kernel_runtime *rt, struct nic_qp *qp)
{
	registry_forget_qp(rt, qp);
	wake_all_waiting(&rt->pu[nic_qp_pu(qp)], qp);
}
