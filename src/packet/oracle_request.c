/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rules of requests. Each rule is checked at the packet that could break it, against the
 * earlier packets of the stream, as are the rules of responses (oracle_response.c).
 *
 *      answered        in flight                 new
 *   ------------|------------------------|------------------>  PSN
 *              una        expected       hi
 *
 * `expected` follows the responder: only a request with exactly that PSN moves it. `await` follows
 * the requester: only an answer in order moves it. Both are exact if the trace shows the packets
 * that this end received. Elsewhere they are upper bounds, because a loss after the point of
 * capture can only delay the real values.
 *
 * Source of the rules: InfiniBand Architecture Specification, volume 1, 9.7 (reliable service):
 * 9.7.1 to 9.7.5.
 */
#include "packet/oracle_int.h"

/* Checks a repeated READ request, which may start in the middle. */
static void check_reissue(struct oracle *o, struct stream *s, struct ask *a, uint64_t psn)
{
	const struct pkt_view *v = o->v;
	uint64_t k = psn - a->psn, skip = k * s->mtu;
	/*
	 * If an answer to an older request is missing, all answers of this READ were dropped or are
	 * still to come.
	 */
	uint64_t missing = MAX(a->psn, s->await);

	ask_note_start(a, psn);
	if (k && !s->mtu)
		return;
	if (v->rkey != a->rkey || v->va != a->va + skip || v->dmalen != a->len - skip)
		oracle_broken(
			o, ORACLE_READ_REISSUE,
			"READ of PSN %u, %u bytes at 0x%llx, again at %u as %u bytes at 0x%llx: another end",
			low24(a->psn), a->len, (unsigned long long)a->va, low24(psn), v->dmalen,
			(unsigned long long)v->va);
	else if (psn > missing)
		oracle_broken(o, ORACLE_READ_REISSUE,
			      "READ is requested again at PSN %u, but PSN %u is missing",
			      low24(psn), low24(missing));
	else if (s->local_req && psn != missing)
		oracle_broken(
			o, ORACLE_READ_REISSUE,
			"READ is requested again at PSN %u, though all before PSN %u is there",
			low24(psn), low24(missing));
}

/* Records READs and atomics. Returns the number of PSNs of the request, as far as it is known. */
static uint32_t note_request(struct oracle *o, struct stream *s, uint64_t psn)
{
	const struct pkt_view *v = o->v;
	struct ask *a;

	if (v->op->kind != PKT_KIND_READ_REQ && v->op->kind != PKT_KIND_ATOMIC)
		return 1;
	a = ask_find(o, s, psn);
	if (v->op->kind == PKT_KIND_READ_REQ) {
		s->c.reads++;
		s->c.reads_again += a != NULL;
	} else {
		s->c.atomics++;
		s->c.atomics_again += a != NULL;
	}
	if (!a) {
		a = ask_new(o, s, psn);
		if (!a->npsn) {
			s->has_unsized = true;
			if (psn >= s->hi)
				s->newest_unsized = a;
		}
		return a->npsn ? a->npsn : 1;
	}
	/*
	 * The requester goes back, so a responder need not finish the responses that it is sending.
	 */
	s->resp_cut = true;
	if (a->atomic)
		ask_note_start(a, psn);
	else
		check_reissue(o, s, a, psn);
	return a->npsn ? (uint32_t)(a->psn + a->npsn - psn) : 1;
}

/*
 * Checks, after a NAK, whether this request follows the NAK or may precede it. Away from the
 * requester's end a step back to another PSN proves nothing: the named packet may have been lost
 * before this place, or the NAK after it.
 */
static void check_turn(struct oracle *o, struct stream *s, uint64_t psn)
{
	if (psn == s->turn_psn || psn == s->await) {
		turn_settled(s);
	} else if (psn == s->run || (psn > s->run && psn >= s->hi)) {
		if (++s->turn_run <= o->opts.inflight)
			return;
		oracle_broken(o, ORACLE_NAK_RESUME,
			      "PSN %u was NAKed, and %u packets later still isn't sent again",
			      low24(s->turn_psn), s->turn_run);
		turn_settled(s);
	} else if (s->local_req) {
		oracle_broken(o, ORACLE_NAK_RESUME,
			      "PSN %u was NAKed, but the stream continues at PSN %u",
			      low24(s->turn_psn), low24(psn));
		turn_settled(s);
	} else if (psn > s->turn_psn) {
		turn_settled(s);
	}
}

/*
 * Notes that the stream began before its first packet in the trace: earlier packets were lost, or
 * the trace starts late.
 */
void stream_began_earlier(struct stream *s, uint64_t psn)
{
	s->base = s->una = s->await = psn;
	if (!s->local_resp)
		return;
	s->expected = s->gap_psn = psn;
	s->gap = true;
	s->counted = false;
}

/* Follows the state of the responder, and the requests that a requester may send. */
static void follow_expected(const struct pkt_view *v, struct stream *s, uint64_t psn, uint32_t n)
{
	if (s->has_unsized) {
		s->expected = MAX(s->hi, psn + n);
		s->counted = false;
		return;
	}
	if (psn == s->expected) {
		s->gap_sure = true;
		s->messages += v->op->flags & PKT_LAST || v->op->kind == PKT_KIND_READ_REQ ||
			       v->op->kind == PKT_KIND_ATOMIC;
	}
	if (psn > s->expected) {
		s->c.out_of_order++;
		if (!s->gap && s->gap_sure) {
			s->gap = true;
			s->gap_psn = s->expected;
			s->c.gaps++;
		}
		return;
	}
	s->c.duplicates += psn < s->expected;
	if (psn < s->expected && psn >= s->una)
		s->again = MAX(s->again, psn + n);
	if (psn == s->expected)
		s->gap = false;
	s->expected = MAX(s->expected, psn + n);
}

static void follow_psn(struct oracle *o, struct stream *s, uint64_t psn, uint32_t n)
{
	if (psn > s->hi && s->local_req && !s->has_unsized)
		oracle_broken(o, ORACLE_REQ_PSN, "PSN %u follows PSN %u", low24(psn),
			      low24(s->hi - 1));
	if (psn < s->hi) {
		s->c.retransmitted++;
		s->c.turns += psn != s->run;
	}
	follow_expected(o->v, s, psn, n);
	s->run = psn + n;
	s->hi = MAX(s->hi, psn + n);
}

void oracle_request(struct oracle *o, struct stream *s)
{
	const struct pkt_view *v = o->v;
	uint64_t psn = psn_near(s->hi, v->psn);

	s->c.requests++;
	if ((v->op->flags & (PKT_PAYLOAD | PKT_LAST)) == PKT_PAYLOAD)
		stream_learn_mtu(o, s, v->payload_len);
	if (s->newest_unsized && psn >= s->hi) {
		if (psn == s->hi)
			ask_settle(s, s->newest_unsized, 1);
		s->newest_unsized = NULL;
	}
	if (psn < s->base && !s->acked)
		stream_began_earlier(s, psn);
	if (s->turn)
		check_turn(o, s, psn);
	if (s->nak_seen && psn == s->nak_psn)
		s->nak_again = true;
	follow_psn(o, s, psn, note_request(o, s, psn));
}
