/* SPDX-License-Identifier: BSD-2-Clause */
#include "etcd/tenure.h"

#define NS	    UINT64_C(1000000000)
#define CERTAIN(ns) ((ns) / 5 * 4)
#define DUE(ns)	    ((ns) / 8)

void tenure_init(struct tenure *t, unsigned seconds, struct kv_fence *fence)
{
	*t = (struct tenure){.want_s = seconds, .fence = fence};
	if (fence)
		atomic_store(&fence->until_ns, 0);
}

enum tenure_step tenure_next(const struct tenure *t, uint64_t now_ns)
{
	if (!t->id)
		return TENURE_GRANT;
	if (t->doubt)
		return TENURE_RENEW;
	if (!t->registered)
		return TENURE_REGISTER;
	return now_ns < t->due_ns ? TENURE_REST : TENURE_RENEW;
}

/*
 * Sets the times of a lease. etcd may give less time than requested. If it gives more, the excess
 * is not used.
 */
static void set_times(struct tenure *t, uint64_t sent_ns, uint64_t seconds)
{
	uint64_t ns = (seconds < t->want_s ? seconds : t->want_s) * NS;

	t->end_ns = sent_ns + CERTAIN(ns);
	t->due_ns = sent_ns + DUE(ns);
	if (t->fence)
		atomic_store(&t->fence->until_ns, t->current ? t->end_ns : 0);
}

void tenure_granted(struct tenure *t, uint64_t sent_ns, uint64_t id, uint64_t seconds)
{
	t->id = id;
	set_times(t, sent_ns, seconds);
}

void tenure_registered(struct tenure *t)
{
	t->registered = true;
}

void tenure_refused(struct tenure *t)
{
	t->doubt = true;
}

void tenure_unregistered(struct tenure *t)
{
	t->registered = t->current = false;
	if (t->fence)
		atomic_store(&t->fence->until_ns, 0);
}

void tenure_renewed(struct tenure *t, uint64_t sent_ns, uint64_t seconds)
{
	t->doubt = false;
	if (seconds)
		set_times(t, sent_ns, seconds);
	else
		tenure_lost(t);
}

void tenure_read(struct tenure *t, uint64_t version)
{
	if (!t->registered || t->current)
		return;
	t->current = true;
	if (!t->fence)
		return;
	/*
	 * The fence is closed at this time. A store with an older version of the table will not
	 * serve.
	 */
	atomic_store(&t->fence->version, version);
	atomic_store(&t->fence->until_ns, t->end_ns);
}

void tenure_lost(struct tenure *t)
{
	tenure_init(t, t->want_s, t->fence);
}
