/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registered kernels and their versions. A call keeps the version that it began with. A version
 * that was replaced or unloaded is leaving, and is freed after its last call. Calls do not wait for
 * a replacement, and a replacement does not wait for calls.
 *
 *	prepared -> published --- replaced, unloaded ---> leaving ---> reaped
 *
 * A leaving version is reaped when it has no calls, and no later version shares its `self`.
 *
 * The data path only reads the tables and counts calls. start(), stop() and the dynamic loader run
 * in control calls, while PUs run.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/call.h"
#include "kernels/guarded.h"

/* ---- search ---- */

static struct kernel_version *find(const struct kernel_runtime *rt, uint64_t op)
{
	for (unsigned i = 0; i < rt->num_kernels; i++)
		if (rt->ops[i] == op && rt->kernels[i])
			return rt->kernels[i];
	return NULL;
}

struct kernel_version *runtime_find(struct kernel_runtime *rt, uint64_t op)
{
	struct kernel_version *s = find(rt, op);

	return s ? s : rt->fallback;
}

static uint32_t calls(const struct kernel_version *s)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < NIC_MAX_PUS; i++)
		n += atomic_load_explicit(&s->pu[i].calls, memory_order_acquire);
	return n;
}

static bool busy(const struct kernel_version *s)
{
	return calls(s) > 0;
}

static unsigned free_slot(const struct kernel_runtime *rt)
{
	unsigned i = 0;

	while (i < rt->num_kernels && rt->kernels[i])
		i++;
	return i;
}

/* Names are printed, so they must consist of printable characters. */
static bool name_ok(const char *name)
{
	size_t n = name ? strnlen(name, ROOST_KERNEL_NAME) : 0;

	if (n == 0 || n == ROOST_KERNEL_NAME)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isgraph((unsigned char)name[i]) && name[i] != ' ')
			return false;
	return true;
}

static int check(const struct roost_kernel *k)
{
	if (k->abi != ROOST_KERNEL_ABI)
		return -EPROTO;
	if (!name_ok(k->name) || (!k->params && !k->payload && !k->stream) ||
	    (k->rewrites && k->resizes) || k->state_size > ROOST_KERNEL_MAX_STATE ||
	    k->scratch_size > ROOST_KERNEL_MAX_STATE - k->state_size ||
	    k->resources > ROOST_KERNEL_RESOURCES)
		return -EINVAL;
	return 0;
}

/* ---- ends ---- */

static void add(struct kernel_counters *to, const struct kernel_counters *from)
{
	for (size_t i = 0; i < sizeof(*to) / sizeof(uint64_t); i++)
		((uint64_t *)to)[i] += ((const uint64_t *)from)[i];
}

static void release_registered(struct registered_kernel *st)
{
	if (--st->versions == 0)
		free(st);
}

static void run_stop(void *arg)
{
	const struct kernel_version *s = arg;

	s->k->stop(s->shared_self->self);
}

/* A stop() that crashes counts as done. */
static void stop(struct kernel_runtime *rt, struct kernel_version *s)
{
	if (s->k->stop && guarded_step(&rt->control, run_stop, s))
		atomic_store_explicit(&s->disabled, true, memory_order_relaxed);
}

static void release_shared_self(struct kernel_runtime *rt, struct kernel_version *s)
{
	struct shared_self *shared_self = s->shared_self;

	if (shared_self->last == s && !version_disabled(s))
		stop(rt, s);
	if (--shared_self->versions == 0)
		free(shared_self);
}

/*
 * Frees a version that gets no new calls and has none. The state of a version that crashed or did
 * not return is unknown, so its object remains loaded in case a part of it is still in use.
 */
static void end(struct kernel_runtime *rt, struct kernel_version *s)
{
	for (unsigned i = 0; i < NIC_MAX_PUS; i++)
		add(&s->registered->past, &s->pu[i].ctr);
	release_shared_self(rt, s);
	release_registered(s->registered);
	times_end(rt, s);
	if (s->object.handle && !version_disabled(s))
		object_close(&s->object);
	free(s);
}

/*
 * Returns whether a leaving version can be freed. The last version that took a shared `self` ends
 * it, so it waits for the other versions, and for calls of ended().
 */
static bool may_end(struct kernel_runtime *rt, const struct kernel_version *s)
{
	if (busy(s))
		return false;
	if (s->shared_self->last != s)
		return true;
	return s->shared_self->versions == 1 &&
	       (!s->shared_self->ledger || ledger_close(rt, s->shared_self->ledger));
}

static void run_deferred_frees(struct kernel_runtime *rt)
{
	struct list_head *at, *next;

	list_for_each_safe (at, next, &rt->deferred_frees) {
		struct deferred_free *o = list_entry(at, struct deferred_free, link);

		if (!atomic_load_explicit(&o->may_free, memory_order_acquire))
			continue;
		list_del(&o->link);
		o->free(o);
	}
}

void runtime_reap(struct kernel_runtime *rt)
{
	struct list_head *at, *next;
	bool again;

	run_deferred_frees(rt);
	do {
		again = false;
		list_for_each_safe (at, next, &rt->leaving) {
			struct kernel_version *s = list_entry(at, struct kernel_version, link);

			if (!may_end(rt, s))
				continue;
			list_del(&s->link);
			end(rt, s);
			again = true;
		}
	} while (again);
}

static void leave(struct kernel_runtime *rt, struct kernel_version *s)
{
	list_add_tail(&s->link, &rt->leaving);
}

void registry_close(struct kernel_runtime *rt)
{
	for (unsigned i = 0; i < rt->num_kernels; i++)
		if (rt->kernels[i])
			leave(rt, rt->kernels[i]);
	if (rt->fallback)
		leave(rt, rt->fallback);
	runtime_reap(rt);
}

/* ---- prepare and publish ---- */

struct start {
	const struct roost_kernel *k, *old; /* old: the descriptor that `k` replaces, or NULL */
	void *self;
	int rc;
};

static void run_begin(void *arg)
{
	struct start *a = arg;

	a->rc = a->old ? a->k->take_over(&a->self, a->old) : a->k->start(&a->self);
}

/* Runs start(), or take_over() if it replaces `old`. */
static int run_start(struct kernel_runtime *rt, const struct roost_kernel *k,
		     const struct roost_kernel *old, void **self)
{
	struct start a = {.k = k, .old = old, .self = *self};

	if (guarded_step(&rt->control, run_begin, &a))
		return -EFAULT;
	*self = a.self;
	return a.rc > 0 ? -EIO : a.rc;
}

/* Starts a version. The `self` of a disabled version is not taken over: its state is unknown. */
static int begin(struct kernel_runtime *rt, struct kernel_version *s,
		 const struct runtime_registration *n, const struct kernel_version *old)
{
	bool takes_over = old && n->k->take_over && !version_disabled(old);
	void *self = takes_over ? old->shared_self->self : n->self;
	int rc = 0;

	if (takes_over || n->k->start)
		rc = run_start(rt, n->k, takes_over ? old->k : NULL, &self);
	if (rc)
		return rc;
	if (takes_over && self == old->shared_self->self)
		s->shared_self = old->shared_self;
	else
		s->shared_self->self = self;
	return 0;
}

/* Frees a `self` that no version uses yet or any more. */
static void free_shared_self(struct kernel_runtime *rt, struct shared_self *shared_self)
{
	if (shared_self && shared_self->ledger)
		ledger_close(rt, shared_self->ledger);
	free(shared_self);
}

static struct registered_kernel *make_registered(void)
{
	struct registered_kernel *r = calloc(1, sizeof(*r));

	if (r)
		r->revision = 1;
	return r;
}

int runtime_prepare(struct kernel_runtime *rt, const struct runtime_registration *n,
		    struct kernel_version **out)
{
	struct kernel_version *s, *old = n->fallback ? rt->fallback : find(rt, n->k->op);
	struct shared_self *shared_self;
	int rc = check(n->k);

	runtime_reap(rt);
	if (rc)
		return rc;
	if (!n->fallback && n->replace != !!old)
		return old ? -EEXIST : -ENOENT;
	if (!old && !n->fallback && free_slot(rt) == RUNTIME_MAX_KERNELS)
		return -ENOSPC;
	s = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*s), (size_t)CACHE_LINE));
	shared_self = calloc(1, sizeof(*shared_self));
	if (shared_self && n->k->resources)
		shared_self->ledger = ledger_open(rt, n->k);
	if (s)
		*s = (struct kernel_version){.k = n->k,
					     .op = n->k->op,
					     .shared_self = shared_self,
					     .fallback = n->fallback};
	if (s && shared_self)
		s->registered = old ? old->registered : make_registered();
	rc = s && shared_self && s->registered && (!n->k->resources || shared_self->ledger) &&
			     !times_open(rt, s)
		     ? begin(rt, s, n, old)
		     : -ENOMEM;
	if (rc)
		goto fail;
	if (s->shared_self != shared_self)
		free_shared_self(rt, shared_self);
	s->self = s->shared_self->self;
	s->shared_self->versions++;
	s->shared_self->last = s;
	s->registered->versions++;
	if (n->object)
		s->object = *n->object;
	*out = s;
	return 0;
fail:
	if (s)
		times_end(rt, s);
	if (s && !old)
		free(s->registered);
	free_shared_self(rt, shared_self);
	free(s);
	return rc;
}

void runtime_publish(struct kernel_runtime *rt, struct kernel_version *s)
{
	struct kernel_version **slot = &rt->fallback;
	unsigned i;

	if (!s->fallback) {
		for (i = 0; i < rt->num_kernels && !(rt->kernels[i] && rt->ops[i] == s->op); i++)
			;
		if (i == rt->num_kernels)
			i = free_slot(rt);
		if (i == rt->num_kernels)
			rt->num_kernels++;
		rt->ops[i] = s->op;
		slot = &rt->kernels[i];
	}
	if (*slot)
		leave(rt, *slot);
	*slot = s;
	if (s->shared_self->ledger)
		ledger_serve(s->shared_self->ledger, s);
}

int runtime_deploy(struct kernel_runtime *rt, const struct roost_kernel *k, void *self)
{
	struct kernel_version *s;
	int rc = runtime_prepare(rt, &(struct runtime_registration){.k = k, .self = self}, &s);

	if (!rc)
		runtime_publish(rt, s);
	return rc;
}

/* ---- unload ---- */

static int remove_version(struct kernel_runtime *rt, struct kernel_version **slot, bool whole)
{
	struct kernel_version *going = *slot;
	const struct list_head *at;

	runtime_reap(rt);
	if (!going)
		return -ENOENT;
	if (whole && busy(going))
		return -EBUSY;
	list_for_each (at, &rt->leaving)
		if (whole &&
		    list_entry(at, struct kernel_version, link)->registered == going->registered)
			return -EBUSY;
	*slot = NULL;
	leave(rt, going);
	return 0;
}

static struct kernel_version **slot_of(struct kernel_runtime *rt, uint64_t op)
{
	unsigned i = 0;

	while (i < rt->num_kernels && !(rt->ops[i] == op && rt->kernels[i]))
		i++;
	return i < rt->num_kernels ? &rt->kernels[i] : NULL;
}

int runtime_unload(struct kernel_runtime *rt, uint64_t op)
{
	struct kernel_version **slot = slot_of(rt, op);

	return slot ? remove_version(rt, slot, false) : -ENOENT;
}

int runtime_undeploy(struct kernel_runtime *rt, uint64_t op)
{
	struct kernel_version **slot = slot_of(rt, op);
	int rc = slot ? remove_version(rt, slot, true) : -ENOENT;

	if (!rc)
		runtime_reap(rt);
	return rc;
}

int runtime_set_fallback(struct kernel_runtime *rt, const struct roost_kernel *k, void *self)
{
	struct kernel_version *s;
	int rc;

	if (!k)
		rc = rt->fallback ? remove_version(rt, &rt->fallback, true) : 0;
	else if (rt->fallback && busy(rt->fallback))
		rc = -EBUSY;
	else
		rc = runtime_prepare(
			rt, &(struct runtime_registration){.k = k, .self = self, .fallback = true},
			&s);
	if (!rc && k)
		runtime_publish(rt, s);
	runtime_reap(rt);
	return rc;
}

/* ---- grants ---- */

int runtime_grant(struct kernel_runtime *rt, uint64_t op, const struct roost_grant *region,
		  uint32_t pd, uint32_t key, unsigned *number)
{
	const struct kernel_version *s = find(rt, op);
	struct registered_kernel *st;
	unsigned i = 0;

	if (!s)
		return -ENOENT;
	st = s->registered;
	while (i < st->num_grants && st->keys[i])
		i++;
	if (i == ROOST_KERNEL_GRANTS)
		return -ENOSPC;
	if (i == st->num_grants) {
		st->num_grants++;
		st->revision++;
	}
	st->grants[i] = *region;
	st->keys[i] = NIC_RPC_GRANTED(pd, key);
	*number = i + 1;
	return 0;
}

int runtime_revoke(struct kernel_runtime *rt, uint64_t op, unsigned number)
{
	const struct kernel_version *s = find(rt, op);
	struct registered_kernel *st = s ? s->registered : NULL;

	if (!st || number < 1 || number > st->num_grants || !st->keys[number - 1])
		return -ENOENT;
	st->grants[number - 1] = (struct roost_grant){0};
	st->keys[number - 1] = 0;
	return 0;
}

/* ---- queue pairs ---- */

static struct nic_qp *bound_at(const struct registered_kernel *st, unsigned i)
{
	return atomic_load_explicit(&((struct registered_kernel *)(uintptr_t)st)->bound[i].qp,
				    memory_order_relaxed);
}

static const struct bound_qp *first_bound(const struct registered_kernel *st)
{
	for (unsigned i = 0; i < st->num_bound; i++)
		if (bound_at(st, i))
			return &st->bound[i];
	return NULL;
}

/* Returns whether number i + 1 is bound, or an invocation still uses the former binding. */
static bool in_use(const struct registered_kernel *st, unsigned i)
{
	return bound_at(st, i) || st->bound[i].ops || st->bound[i].waiting;
}

int runtime_bind_qp(struct kernel_runtime *rt, uint64_t op, struct nic_qp *qp,
		    const struct runtime_qp_limits *limits, unsigned *number)
{
	const struct kernel_version *s = find(rt, op);
	const struct bound_qp *first;
	struct registered_kernel *st;
	unsigned i = 0;
	int rc;

	if (!s)
		return -ENOENT;
	st = s->registered;
	first = first_bound(st);
	if (first && first->pu != nic_qp_pu(qp))
		return -EXDEV;
	while (i < st->num_bound && in_use(st, i))
		i++;
	if (i == ROOST_KERNEL_QPS)
		return -ENOSPC;
	rc = nic_qp_enable_kernel_wrs(rt->nic, qp);
	if (rc)
		return rc;
	if (i == st->num_bound) {
		st->num_bound++;
		st->revision++;
	}
	st->bound[i].pu = nic_qp_pu(qp);
	st->bound[i].limits = *limits;
	atomic_store_explicit(&st->bound[i].qp, qp, memory_order_relaxed);
	*number = i + 1;
	return 0;
}

int runtime_unbind_qp(struct kernel_runtime *rt, uint64_t op, unsigned number)
{
	const struct kernel_version *s = find(rt, op);
	struct registered_kernel *st = s ? s->registered : NULL;

	if (!st || number < 1 || number > st->num_bound || !bound_at(st, number - 1))
		return -ENOENT;
	atomic_store_explicit(&st->bound[number - 1].qp, NULL, memory_order_relaxed);
	return 0;
}

bool registered_has_bound_qp(const struct registered_kernel *st)
{
	return first_bound(st);
}

unsigned runtime_pu_of(struct kernel_runtime *rt, uint64_t op)
{
	const struct kernel_version *s = runtime_find(rt, op);
	const struct bound_qp *first = s ? first_bound(s->registered) : NULL;

	return first ? first->pu : 0;
}

/* ---- lists ---- */

static const struct kernel_version *at(const struct kernel_runtime *rt, unsigned i)
{
	const struct list_head *pos;

	for (unsigned k = 0; k < rt->num_kernels; k++)
		if (rt->kernels[k] && i-- == 0)
			return rt->kernels[k];
	if (rt->fallback && i-- == 0)
		return rt->fallback;
	list_for_each (pos, &rt->leaving)
		if (i-- == 0)
			return list_entry(pos, struct kernel_version, link);
	return NULL;
}

void registry_forget_qp(struct kernel_runtime *rt, const struct nic_qp *qp)
{
	const struct kernel_version *s;

	for (unsigned i = 0; (s = at(rt, i)); i++)
		for (unsigned n = 0; n < s->registered->num_bound; n++)
			if (bound_at(s->registered, n) == qp)
				atomic_store_explicit(&s->registered->bound[n].qp, NULL,
						      memory_order_relaxed);
}

bool runtime_kernel_info(const struct kernel_runtime *rt, unsigned i,
			 struct runtime_kernel_info *out)
{
	const struct kernel_version *s = at(rt, i);

	if (!s)
		return false;
	*out = (struct runtime_kernel_info){.k = s->k,
					    .op = s->op,
					    .state = list_linked(&s->link) ? RUNTIME_KERNEL_LEAVING
						     : version_disabled(s) ? RUNTIME_KERNEL_DISABLED
									   : RUNTIME_KERNEL_ACTIVE,
					    .fallback = s->fallback,
					    .loaded = s->object.handle != NULL,
					    .in_flight = calls(s),
					    .times = times_of(rt, s)};
	if (s->shared_self->ledger) {
		out->resources = ledger_taken(s->shared_self->ledger);
		out->resources_max = ledger_size(s->shared_self->ledger);
	}
	for (unsigned p = 0; p < NIC_MAX_PUS; p++)
		add(&out->ctr, &s->pu[p].ctr);
	if (out->state != RUNTIME_KERNEL_LEAVING)
		add(&out->ctr, &s->registered->past);
	return true;
}
