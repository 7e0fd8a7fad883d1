/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Durations of calls on the node: from the beginning of the turn in which the parameters arrived to
 * the end of the turn in which the reply was handed to the NIC. No clock is read for a call. The
 * core knows the beginning of each turn, and the drive reports the end of turns in which calls
 * ended.
 */
#include "kernels/call.h"

#include <stdlib.h>

/*
 * Calls that end in one turn are few more than the turn's steps. If each of them is a group of its
 * own, further ones are not timed.
 */
#define ENDED_MAX 512

/* Calls that ended one after the other, and therefore have the same duration. */
struct ended {
	struct kernel_version *s; /* counted as in use until the end of the turn */
	uint64_t began, calls;
};

static size_t hists_size(const struct kernel_runtime *rt)
{
	return nic_pus(rt->nic) * sizeof(struct timed_hist);
}

int times_create(struct kernel_runtime *rt)
{
	unsigned n = nic_pus(rt->nic);

	rt->ended = calloc((size_t)n * ENDED_MAX, sizeof(*rt->ended));
	if (!rt->ended)
		return -1;
	for (unsigned i = 0; i < n; i++)
		rt->pu[i].ended = rt->ended + (size_t)i * ENDED_MAX;
	return 0;
}

void times_close(struct kernel_runtime *rt)
{
	for (unsigned i = 0; i < NIC_MAX_PUS; i++)
		for (unsigned k = 0; k < rt->pu[i].num_ended; k++)
			version_count(rt->pu[i].ended[k].s, i, -1);
	free(rt->ended);
}

int times_open(const struct kernel_runtime *rt, struct kernel_version *s)
{
	/* Pages are allocated when they are first written. */
	if (rt->ended)
		s->times = mem_alloc_pages(hists_size(rt));
	return rt->ended && !s->times ? -1 : 0;
}

void times_end(const struct kernel_runtime *rt, struct kernel_version *s)
{
	if (s->times)
		mem_free_pages(s->times, hists_size(rt));
}

void times_note(struct runtime_pu *pu, struct kernel_version *s, uint64_t began)
{
	struct ended *last = pu->num_ended ? &pu->ended[pu->num_ended - 1] : NULL;

	if (likely(last && last->s == s && last->began == began)) {
		last->calls++;
		return;
	}
	if (pu->num_ended == ENDED_MAX)
		return;
	if (!last)
		nic_rpc_request_turn_end(pu->rt->nic, pu->index);
	pu->ended[pu->num_ended++] = (struct ended){s, began, 1};
	version_count(s, pu->index, 1);
}

void times_turn_ended(struct runtime_pu *pu, uint64_t now)
{
	for (unsigned i = 0; i < pu->num_ended; i++) {
		struct ended *e = &pu->ended[i];

		hist_add_equal(&e->s->times[pu->index].h, now > e->began ? now - e->began : 0,
			       e->calls);
		version_count(e->s, pu->index, -1);
	}
	pu->num_ended = 0;
}

struct runtime_times times_of(const struct kernel_runtime *rt, const struct kernel_version *s)
{
	struct hist sum;

	hist_reset(&sum);
	for (unsigned i = 0; s->times && i < nic_pus(rt->nic); i++)
		hist_merge(&sum, &s->times[i].h);
	return (struct runtime_times){.count = sum.count,
				      .p50 = hist_percentile(&sum, 50),
				      .p99 = hist_percentile(&sum, 99),
				      .max = hist_max(&sum)};
}
