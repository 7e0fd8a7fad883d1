/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * READs and atomics of a stream, in a ring of the last ones. The number of PSNs of a READ depends
 * on the path MTU. The first packet that is not the last of its message shows the path MTU; until
 * then it is unknown which PSNs are missing.
 */
#include "packet/oracle_int.h"

struct ask *ask_find(struct oracle *o, struct stream *s, uint64_t psn)
{
	for (uint32_t i = 0; i < o->opts.max_reads; i++) {
		struct ask *a = &s->asks[i];

		if (a->used && psn >= a->psn && psn < a->psn + (a->npsn ? a->npsn : 1))
			return a;
	}
	return NULL;
}

/*
 * Sets the size of a READ. If the READ is the newest request, its end is the end of the sent PSNs.
 */
void ask_settle(struct stream *s, struct ask *a, uint32_t npsn)
{
	a->npsn = npsn;
	if (s->newest_unsized != a)
		return;
	if (s->run == s->hi)
		s->run = a->psn + npsn;
	s->hi = s->expected = MAX(s->hi, a->psn + npsn);
	s->newest_unsized = NULL;
}

/*
 * While READs of unknown size are outstanding, missing requests cannot be found. Away from the
 * responder's end it is enough to know their sizes, because `expected` may be too high there.
 */
void stream_clear_unsized(struct stream *s)
{
	if (!s->mtu || (s->local_resp && s->una != s->hi))
		return;
	s->expected = s->hi;
	s->gap = s->has_unsized = false;
	s->gap_sure = true;
}

void stream_learn_mtu(struct oracle *o, struct stream *s, uint32_t mtu)
{
	if (s->mtu || mtu < 256 || mtu > PKT_MAX_PAYLOAD || mtu & (mtu - 1))
		return;
	s->mtu = mtu;
	for (uint32_t i = 0; i < o->opts.max_reads; i++) {
		if (s->asks[i].used && !s->asks[i].npsn)
			ask_settle(s, &s->asks[i], read_packets(s->asks[i].len, mtu));
	}
	stream_clear_unsized(s);
	if (s->peer && s->peer->started)
		stream_learn_mtu(o, s->peer, mtu);
}

void ask_note_start(struct ask *a, uint64_t psn)
{
	a->asked++;
	a->start[a->starts++ % STARTS] = psn;
}

bool ask_named(const struct ask *a, uint64_t psn)
{
	if (a->starts > STARTS)
		return true;
	for (uint32_t i = 0; i < a->starts; i++) {
		if (a->start[i] == psn)
			return true;
	}
	return false;
}

struct ask *ask_first_open(struct oracle *o, struct stream *s)
{
	struct ask *first = NULL;

	for (uint32_t i = 0, left = s->open; left && i < o->opts.max_reads; i++) {
		struct ask *a = &s->asks[i];

		if (!a->used || a->done)
			continue;
		left--;
		if (!first || a->psn < first->psn)
			first = a;
	}
	return first;
}

void ask_done(struct stream *s, struct ask *a)
{
	if (!a->done) {
		a->done = true;
		s->open--;
	}
}

struct ask *ask_new(struct oracle *o, struct stream *s, uint64_t psn)
{
	const struct pkt_view *v = o->v;
	struct ask *a = &s->asks[s->asks_at];

	s->asks_at = (s->asks_at + 1) % o->opts.max_reads;
	if (a->used && !a->done) {
		s->ask_dropped = true;
		s->open--;
	}
	if (s->newest_unsized == a)
		s->newest_unsized = NULL;
	if (s->resp_ask == a)
		s->resp = false;
	*a = (struct ask){.psn = psn, .next = psn, .va = v->va, .rkey = v->rkey, .used = true};
	a->atomic = v->op->kind == PKT_KIND_ATOMIC;
	a->len = a->atomic ? 8 : v->dmalen;
	if (a->atomic || a->len <= 256)
		a->npsn = 1;
	else if (s->mtu)
		a->npsn = read_packets(a->len, s->mtu);
	s->open++;
	ask_note_start(a, psn);
	return a;
}
