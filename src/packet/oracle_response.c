/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rules of responses: the requests that each response may answer, and the conclusions about the
 * packets that the responder received. Terms and source are as in oracle_request.c.
 */
#include "packet/oracle_int.h"

/* The most PSNs by which an answer may be below the first request of the trace. */
#define LATE 1024

/* Returns true if the PSN may belong to a READ of unknown size. */
static bool in_unsized_read(struct oracle *o, struct stream *s, uint64_t psn)
{
	for (uint32_t i = 0; s->has_unsized && i < o->opts.max_reads; i++) {
		const struct ask *a = &s->asks[i];

		if (a->used && !a->npsn && psn >= a->psn &&
		    psn < a->psn + read_packets(a->len, 256))
			return true;
	}
	return false;
}

enum oracle_match oracle_could_answer(struct oracle *o, struct stream *s)
{
	uint64_t psn = psn_near(s->hi, o->v->psn);
	const struct ask *a = ask_find(o, s, psn);
	bool there = psn >= s->una && psn < s->hi, match;

	switch (o->v->op->kind) {
	case PKT_KIND_READ_RESP:
		match = (there && a && !a->atomic) || in_unsized_read(o, s, psn);
		break;
	case PKT_KIND_ATOMIC_ACK:
		match = there && a && a->atomic;
		break;
	default:
		match = there || in_unsized_read(o, s, psn);
		/* The first requests may have been lost before this place. */
		if (!match && psn < s->base && psn + LATE >= s->base)
			return ORACLE_MAYBE;
	}
	return match ? ORACLE_MATCH : ORACLE_NO_MATCH;
}

/* Notes that everything below `end` is acknowledged or answered, as the requester sees it. */
static void acknowledged(struct oracle *o, struct stream *s, uint64_t end)
{
	struct ask *a = ask_first_open(o, s);

	if (end > s->una || !s->acked)
		s->una = end;
	s->acked = true;
	/*
	 * An acknowledgement beyond an unanswered READ or atomic does not replace the answer
	 * (9.7.5.1).
	 */
	if (a && a->psn < end)
		end = a->next;
	if (end > s->await)
		s->await = end;
	if (s->turn && s->una > s->turn_psn)
		turn_settled(s);
	if (s->has_unsized)
		stream_clear_unsized(s);
}

/*
 * Handles a READ or atomic response with this PSN. If the requester expects it, the requester
 * accepts it.
 */
static void answered(struct oracle *o, struct stream *s, struct ask *a, uint64_t psn)
{
	if (ask_first_open(o, s) == a && psn == a->next) {
		a->next = psn + 1;
		if (a->npsn && a->next == a->psn + a->npsn)
			ask_done(s, a);
		if (a->next > s->await)
			s->await = a->next;
	}
	acknowledged(o, s, psn + 1);
}

/* Returns the PSN after the last one that the responder can have accepted. */
static uint64_t accepted_end(const struct stream *s)
{
	if (s->has_unsized)
		return UINT64_MAX;
	return s->gap_sure ? s->expected : s->hi;
}

/*
 * Checks the MSN of an ACK. Messages count as they end in order. The MSN of an ACK that covers
 * fewer packets is from an earlier moment, and is not checked.
 */
static void check_msn(struct oracle *o, struct stream *s, uint64_t psn)
{
	uint32_t msn = o->v->msn;

	if (s->has_unsized || !s->gap_sure || psn + 1 != s->expected)
		return;
	if (s->counted && (s->messages & PKT_PSN_MASK) != msn)
		oracle_broken(o, ORACLE_MSN,
			      "ACK of PSN %u with MSN %u, but %u messages are complete", low24(psn),
			      msn, (unsigned)(s->messages & PKT_PSN_MASK));
	s->counted = s->counted || msn;
	s->messages = msn;
}

static void check_ack(struct oracle *o, struct stream *s, uint64_t psn)
{
	s->c.acks++;
	if (s->acked && psn + 1 < s->una)
		oracle_broken(o, ORACLE_ACK_BACK, "ACK of PSN %u after PSN %u", low24(psn),
			      low24(s->una - 1));
	else if (psn >= accepted_end(s))
		oracle_broken(o, ORACLE_ACK_UNSEEN, "ACK of PSN %u, but PSN %u is missing",
			      low24(psn), low24(accepted_end(s)));
	check_msn(o, s, psn);
	if (!s->gap_sure)
		s->expected = MAX(s->expected, psn + 1);
	acknowledged(o, s, psn + 1);
}

static void want_turn(struct stream *s, uint64_t psn)
{
	s->turn = true;
	s->turn_psn = psn;
	s->turn_run = 0;
}

/* Notes that the responder accepted neither this packet nor those after it. */
static void refused(struct stream *s, uint64_t psn)
{
	s->expected = psn;
	s->gap = s->gap_sure = s->counted = false;
}

static void check_nak_seq(struct oracle *o, struct stream *s, uint64_t psn)
{
	s->c.naks_seq++;
	if (psn < s->base && !s->acked)
		stream_began_earlier(s, psn);
	if (s->acked && psn < s->una)
		oracle_broken(o, ORACLE_NAK_PSN,
			      "sequence NAK names PSN %u, but PSN %u was acknowledged", low24(psn),
			      low24(s->una - 1));
	else if (psn > accepted_end(s))
		oracle_broken(o, ORACLE_NAK_PSN, "sequence NAK names PSN %u, but PSN %u is missing",
			      low24(psn), low24(accepted_end(s)));
	else if (psn >= s->hi && !s->has_unsized)
		oracle_broken(o, ORACLE_NAK_PSN,
			      "sequence NAK names PSN %u, and nothing behind it was sent",
			      low24(psn));
	else if (s->local_resp && psn < s->expected && s->again > s->una)
		/* the responder refused it with an RNR NAK, which this NAK replaces */
		refused(s, psn);
	else if (s->local_resp && s->gap_sure && !s->has_unsized && psn != s->gap_psn)
		oracle_broken(o, ORACLE_NAK_PSN,
			      "sequence NAK names PSN %u, but the gap is at PSN %u", low24(psn),
			      low24(s->gap_psn));
	if (s->nak_seen && psn == s->nak_psn && !s->nak_again)
		oracle_broken(o, ORACLE_NAK_TWICE, "a second sequence NAK for PSN %u", low24(psn));
	s->nak_seen = true;
	s->nak_again = false;
	s->nak_psn = psn;
	acknowledged(o, s, psn);
	/* The NAK shows the expected PSN, if it was unclear. */
	if (s->has_unsized && s->mtu && s->local_resp) {
		s->expected = s->gap_psn = psn;
		s->gap = s->gap_sure = true;
		s->has_unsized = s->counted = false;
	}
	/* A late NAK about a closed gap requires nothing. */
	if (psn >= s->una)
		want_turn(s, psn);
}

/* Checks RNR NAKs, and NAKs that end the connection: they must be about a packet that was sent. */
static void check_nak(struct oracle *o, struct stream *s, uint64_t psn)
{
	if (s->acked && psn < s->una)
		oracle_broken(o, ORACLE_ACK_BACK, "NAK of PSN %u, but PSN %u was acknowledged",
			      low24(psn), low24(s->una - 1));
	else if (psn >= accepted_end(s))
		oracle_broken(o, ORACLE_ACK_UNSEEN, "NAK of PSN %u, but PSN %u is missing",
			      low24(psn), low24(accepted_end(s)));
	acknowledged(o, s, psn);
	if (PKT_AETH_TYPE(o->v->syndrome) != PKT_AETH_TYPE_RNR)
		return;
	if (psn < s->una)
		return;
	want_turn(s, psn);
	/*
	 * The packet was there, so a gap that began with it has ended. The packets after it are
	 * another gap, which some responders report (rxe).
	 */
	if (s->nak_seen && psn == s->nak_psn)
		s->nak_again = true;
	/* This does not hold if the NAK was delayed and the packet came again meanwhile. */
	if (s->local_resp)
		refused(s, psn);
}

/* Begins a run of responses at psn. `lost`: the first packet of the run is missing. */
static void run_begin(struct oracle *o, struct stream *s, struct ask *a, bool lost)
{
	const struct pkt_view *v = o->v;

	s->resp = true;
	s->resp_cut = false;
	s->resp_ask = a;
	s->resp_has_msn = !lost && v->op->flags & PKT_AETH;
	s->resp_msn = v->msn;
	if (++a->answered > a->asked)
		oracle_broken(o, ORACLE_READ_RUN,
			      "READ of PSN %u was requested %u times, and is answered once more",
			      low24(a->psn), a->asked);
}

/* Checks the length of the packet and its place in the READ. */
static void check_read_shape(struct oracle *o, struct stream *s, const struct ask *a, uint64_t psn)
{
	const struct pkt_view *v = o->v;
	bool last = v->op->flags & PKT_LAST;
	uint64_t at = psn - a->psn, want;

	if (!s->mtu || !a->npsn)
		return;
	if (last != (at == a->npsn - 1)) {
		oracle_broken(o, ORACLE_READ_RUN, "%s at PSN %u, but the READ ends at PSN %u",
			      v->op->name, low24(psn), low24(a->psn + a->npsn - 1));
		return;
	}
	want = last ? a->len - at * s->mtu : s->mtu;
	if (v->payload_len != want)
		oracle_broken(o, ORACLE_READ_RUN,
			      "READ response of %u bytes at PSN %u, should be %u", v->payload_len,
			      low24(psn), (unsigned)want);
}

/*
 * Checks the order of READ responses. At the responder's end a run is complete, unless it answers a
 * repeated request, or a READ or atomic was requested again since it began. In these cases the
 * requester went back, or the network duplicated a request, and the rest may be missing.
 */
static void check_read_order(struct oracle *o, struct stream *s, struct ask *a, uint64_t psn)
{
	const struct pkt_view *v = o->v;
	bool holes = !s->local_resp;

	if (v->op->flags & PKT_FIRST) {
		if (!ask_named(a, psn))
			oracle_broken(o, ORACLE_READ_RUN,
				      "READ response begins at PSN %u, which no request named",
				      low24(psn));
		else if (!holes && s->resp && a != s->resp_ask && !s->resp_cut &&
			 s->resp_ask->answered == 1)
			oracle_broken(o, ORACLE_READ_RUN,
				      "READ response begins at PSN %u, but PSN %u was to follow",
				      low24(psn), low24(s->resp_next));
		run_begin(o, s, a, false);
	} else if (s->resp && psn == s->resp_next) {
		if (v->op->flags & PKT_AETH && s->resp_has_msn && v->msn != s->resp_msn)
			oracle_broken(o, ORACLE_READ_RUN,
				      "READ response began with MSN %u and ends with %u",
				      s->resp_msn, v->msn);
	} else if (holes && s->resp && a == s->resp_ask && psn > s->resp_next) {
		/* a packet between was lost */
	} else if (holes && a->answered < a->asked) {
		run_begin(o, s, a, true);
	} else {
		oracle_broken(o, ORACLE_READ_RUN, "%s at PSN %u out of turn", v->op->name,
			      low24(psn));
		s->resp = true;
		s->resp_ask = a;
		s->resp_has_msn = false;
	}
}

static void check_read_response(struct oracle *o, struct stream *s, uint64_t psn)
{
	const struct pkt_view *v = o->v;
	struct ask *a;

	s->c.read_responses++;
	if (!(v->op->flags & PKT_LAST))
		stream_learn_mtu(o, s, v->payload_len);
	a = ask_find(o, s, psn);
	if (!a || a->atomic) {
		if (!s->ask_dropped && psn >= s->base && s->mtu)
			oracle_broken(o, ORACLE_READ_RUN,
				      "READ response at PSN %u, where no READ was requested",
				      low24(psn));
		return;
	}
	if (!a->npsn && v->op->flags & PKT_FIRST && v->op->flags & PKT_LAST)
		ask_settle(s, a, 1);
	check_read_order(o, s, a, psn);
	check_read_shape(o, s, a, psn);
	s->resp_next = psn + 1;
	if (v->op->flags & PKT_LAST)
		s->resp = false;
	answered(o, s, a, psn);
}

static void check_atomic_response(struct oracle *o, struct stream *s, uint64_t psn)
{
	struct ask *a = ask_find(o, s, psn);

	if (!a || !a->atomic) {
		if (!s->ask_dropped && psn >= s->base)
			oracle_broken(o, ORACLE_REPLAY,
				      "atomic response at PSN %u, where no atomic was requested",
				      low24(psn));
		return;
	}
	if (++a->answered > a->asked)
		oracle_broken(o, ORACLE_REPLAY,
			      "atomic of PSN %u was requested %u times, and is answered once more",
			      low24(psn), a->asked);
	if (a->has_value && a->value != o->v->swap_add)
		oracle_broken(o, ORACLE_REPLAY,
			      "atomic of PSN %u is answered 0x%llx, before it was 0x%llx",
			      low24(psn), (unsigned long long)o->v->swap_add,
			      (unsigned long long)a->value);
	a->has_value = true;
	a->value = o->v->swap_add;
	answered(o, s, a, psn);
}

static void follow_aeth(struct oracle *o, struct stream *s, uint64_t psn)
{
	switch (PKT_AETH_TYPE(o->v->syndrome)) {
	case PKT_AETH_TYPE_ACK:
		check_ack(o, s, psn);
		break;
	case PKT_AETH_TYPE_RNR:
		s->c.naks_rnr++;
		check_nak(o, s, psn);
		break;
	case PKT_AETH_TYPE_NAK:
		switch (o->v->syndrome) {
		case PKT_NAK_PSN_SEQ:
			check_nak_seq(o, s, psn);
			return;
		case PKT_NAK_INVALID_REQ:
			s->c.naks_invalid++;
			break;
		case PKT_NAK_REM_ACCESS:
			s->c.naks_access++;
			break;
		case PKT_NAK_REM_OP:
			s->c.naks_op++;
			break;
		default:
			s->c.naks_other++;
		}
		check_nak(o, s, psn);
		break;
	default:
		s->c.naks_other++;
	}
}

void oracle_response(struct oracle *o, struct stream *s)
{
	uint64_t psn = psn_near(s->hi, o->v->psn);

	s->c.responses++;
	switch (o->v->op->kind) {
	case PKT_KIND_READ_RESP:
		check_read_response(o, s, psn);
		break;
	case PKT_KIND_ATOMIC_ACK:
		check_atomic_response(o, s, psn);
		break;
	default:
		follow_aeth(o, s, psn);
	}
}
