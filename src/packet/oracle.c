/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state of the oracles: streams, their pairs, and findings. The rules are in oracle_request.c
 * and oracle_response.c.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "packet/oracle_int.h"

/* A packet whose PSN is this far away begins a new connection. */
#define FAR 65536

const struct oracle_options oracle_defaults = {
	.max_streams = 4096,
	.max_reads = 128,
	.max_findings = 64,
	.inflight =
		/*
		 * a full shm ring of 1,024 packets, and as many that were built before the NAK was
		 * read
		 */
	2048,
};

static const struct {
	const char *name, *text;
} rules[ORACLE_RULES] = {
	[ORACLE_ACK_BACK] = {"ack-back", "ACK PSNs never go back"},
	[ORACLE_ACK_UNSEEN] = {"ack-unseen", "an ACK or NAK covers only packets that were there"},
	[ORACLE_NAK_PSN] = {"nak-psn", "a sequence NAK names the first missing PSN"},
	[ORACLE_NAK_TWICE] = {"nak-twice", "one NAK per gap"},
	[ORACLE_NAK_RESUME] = {"nak-resume", "after a NAK the next packet is the one named"},
	[ORACLE_READ_RUN] = {"read-run", "READ responses run consecutively"},
	[ORACLE_READ_REISSUE] =
		{"read-reissue",
		 "a re-issued READ starts at the first missing PSN and keeps its end"},
	[ORACLE_REPLAY] = {"replay", "an atomic is answered once per request, with the same value"},
	[ORACLE_REQ_PSN] = {"req-psn", "a requester's PSNs are consecutive modulo 2^24"},
	[ORACLE_MSN] = {"msn", "an ACK's MSN counts the messages that are complete"},
};

const char *oracle_rule_name(enum oracle_rule r)
{
	return (unsigned)r < ORACLE_RULES ? rules[r].name : "?";
}

const char *oracle_rule_text(enum oracle_rule r)
{
	return (unsigned)r < ORACLE_RULES ? rules[r].text : "?";
}

struct oracle *oracle_new(const struct oracle_options *opts)
{
	struct oracle *o;
	uint32_t slots = 16;

	if (!opts->max_streams || opts->max_streams > 1u << 24 || !opts->max_reads ||
	    opts->max_reads > 1u << 16 || (opts->disorder && !opts->has_local))
		return NULL;
	while (slots < 2 * opts->max_streams)
		slots *= 2;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	o->opts = *opts;
	o->index_mask = slots - 1;
	o->streams = calloc(opts->max_streams, sizeof(*o->streams));
	o->index = calloc(slots, sizeof(*o->index));
	o->findings = calloc(opts->max_findings ? opts->max_findings : 1, sizeof(*o->findings));
	if (!o->streams || !o->index || !o->findings) {
		oracle_free(o);
		return NULL;
	}
	return o;
}

void oracle_free(struct oracle *o)
{
	if (!o)
		return;
	for (uint32_t i = 0; i < o->totals.streams; i++)
		free(o->streams[i]);
	free(o->streams);
	free(o->index);
	free(o->findings);
	free(o);
}

void oracle_broken(struct oracle *o, enum oracle_rule rule, const char *fmt, ...)
{
	struct oracle_finding *f;
	va_list ap;

	/*
	 * Each rule is judged at a packet of the end that broke the rule, or at a packet that the
	 * network moved.
	 */
	if (o->opts.disorder && !pkt_addr_eq(o->at_src, &o->opts.local))
		return;
	o->totals.broken[rule]++;
	o->totals.violations++;
	if (o->nfindings == o->opts.max_findings)
		return;
	f = &o->findings[o->nfindings++];
	f->rule = rule;
	f->index = o->at_index;
	f->time_ns = o->at_time;
	f->src = *o->at_src;
	f->dst = *o->at_dst;
	f->dqpn = o->v->dqpn;
	f->psn = o->v->psn;
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
}

/*
 * Returns the stream of requests from src to this QP at dst; makes it if it does not exist. NULL:
 * no space, or no memory.
 */
static struct stream *stream_get(struct oracle *o, const struct pkt_addr *src,
				 const struct pkt_addr *dst, uint32_t dqpn)
{
	uint8_t key[36];
	struct stream *s;
	uint32_t i;

	memcpy(key, src, 16);
	memcpy(key + 16, dst, 16);
	memcpy(key + 32, &dqpn, 4);
	for (i = (uint32_t)XXH3_64bits(key, sizeof(key)) & o->index_mask; o->index[i];
	     i = (i + 1) & o->index_mask) {
		s = o->streams[o->index[i] - 1];
		if (s->dqpn == dqpn && pkt_addr_eq(&s->src, src) && pkt_addr_eq(&s->dst, dst))
			return s;
	}
	if (o->totals.streams == o->opts.max_streams)
		return NULL;
	s = calloc(1, sizeof(*s) + o->opts.max_reads * sizeof(s->asks[0]));
	if (!s)
		return NULL;
	s->src = *src;
	s->dst = *dst;
	s->dqpn = dqpn;
	s->local_req = o->opts.has_local && pkt_addr_eq(src, &o->opts.local);
	s->local_resp = o->opts.has_local && pkt_addr_eq(dst, &o->opts.local);
	o->streams[o->totals.streams++] = s;
	o->index[i] = o->totals.streams;
	return s;
}

/*
 * Starts the stream with this PSN. All earlier state becomes void, except its counts and its peer.
 */
void stream_begin(struct oracle *o, struct stream *s, uint32_t psn)
{
	struct stream fresh = {
		.src = s->src,
		.dst = s->dst,
		.dqpn = s->dqpn,
		.peer = s->peer,
		.local_req = s->local_req,
		.local_resp = s->local_resp,
		.c = s->c,
		.started = true,
		.mtu = o->opts.mtu,
		.gap_sure = true,
	};

	fresh.base = fresh.hi = fresh.expected = fresh.una = fresh.await = fresh.run =
		(1u << 24) + psn;
	memset(s->asks, 0, o->opts.max_reads * sizeof(*s->asks));
	*s = fresh;
}

static void unpair(struct stream *s)
{
	if (s->peer) {
		s->peer->peer = NULL;
		s->peer = NULL;
	}
}

int oracle_pair(struct oracle *o, const struct pkt_addr *a, uint32_t qpn_a,
		const struct pkt_addr *b, uint32_t qpn_b)
{
	struct stream *ab = stream_get(o, a, b, qpn_b), *ba = stream_get(o, b, a, qpn_a);

	if (!ab || !ba)
		return -ENOSPC;
	if (ab->peer == ba)
		return 0;
	if (ab->peer || ba->peer)
		return -EEXIST;
	ab->peer = ba;
	ba->peer = ab;
	return 0;
}

int oracle_begins(struct oracle *o, const struct pkt_addr *src, const struct pkt_addr *dst,
		  uint32_t dqpn, uint32_t psn)
{
	struct stream *s = stream_get(o, src, dst, dqpn);

	if (!s)
		return -ENOSPC;
	stream_begin(o, s, psn & PKT_PSN_MASK);
	return 0;
}

/*
 * Finds the stream whose responses go to the QP that `back` sends requests to: the only stream of
 * the reverse addresses that has no partner and that this response can answer.
 */
static void guess_peer(struct oracle *o, struct stream *back)
{
	struct stream *found[ORACLE_MATCH + 1] = {NULL};
	unsigned count[ORACLE_MATCH + 1] = {0};
	enum oracle_match best;

	for (uint32_t i = 0; i < o->totals.streams; i++) {
		struct stream *s = o->streams[i];
		enum oracle_match m;

		if (s->peer || !s->started || !pkt_addr_eq(&s->src, &back->dst) ||
		    !pkt_addr_eq(&s->dst, &back->src))
			continue;
		m = oracle_could_answer(o, s);
		found[m] = s;
		count[m]++;
	}
	best = count[ORACLE_MATCH] ? ORACLE_MATCH : ORACLE_MAYBE;
	if (count[best] != 1)
		return;
	found[best]->peer = back;
	back->peer = found[best];
}

static void feed_rc(struct oracle *o, struct stream *s, const struct pkt_view *v)
{
	if (v->op->flags & PKT_REQUEST) {
		if (s->started) {
			uint64_t psn = psn_near(s->hi, v->psn);
			uint64_t far = FAR + (s->newest_unsized ? s->newest_unsized->len / 256 : 0);

			if (psn > s->hi + far || psn + far < s->una) {
				o->totals.connections_anew++;
				unpair(s);
				s->started = false;
			}
		}
		if (!s->started)
			stream_begin(o, s, v->psn);
		s->c.payload += v->payload_len;
		oracle_request(o, s);
		return;
	}
	if (!s->peer)
		guess_peer(o, s);
	if (!s->peer || !s->peer->started) {
		o->totals.unpaired++;
		return;
	}
	s->peer->c.payload += v->payload_len;
	oracle_response(o, s->peer);
}

void oracle_feed(struct oracle *o, uint64_t index, uint64_t time_ns, const struct pkt_addr *src,
		 const struct pkt_addr *dst, const struct pkt_view *v)
{
	struct stream *s;

	o->totals.packets++;
	if (v->op->kind == PKT_KIND_CNP) {
		o->totals.cnps++;
		return;
	}
	if (v->op->service != PKT_RC) {
		o->totals.unreliable++;
		return;
	}
	s = stream_get(o, src, dst, v->dqpn);
	if (!s) {
		o->totals.unfollowed++;
		return;
	}
	o->at_index = index;
	o->at_time = time_ns;
	o->at_src = src;
	o->at_dst = dst;
	o->v = v;
	feed_rc(o, s, v);
}

const struct oracle_totals *oracle_totals(struct oracle *o)
{
	uint64_t *sum = (uint64_t *)&o->totals.c;

	_Static_assert(sizeof(o->totals.c) % sizeof(uint64_t) == 0, "counts are 64-bit words");
	memset(&o->totals.c, 0, sizeof(o->totals.c));
	for (uint32_t i = 0; i < o->totals.streams; i++) {
		const uint64_t *c = (const uint64_t *)&o->streams[i]->c;

		for (size_t k = 0; k < sizeof(o->totals.c) / sizeof(*c); k++)
			sum[k] += c[k];
	}
	return &o->totals;
}

const struct oracle_finding *oracle_findings(const struct oracle *o, size_t *n)
{
	*n = o->nfindings;
	return o->findings;
}

bool oracle_stream_get(const struct oracle *o, uint32_t i, struct oracle_stream *out)
{
	const struct stream *s;

	if (i >= o->totals.streams)
		return false;
	s = o->streams[i];
	*out = (struct oracle_stream){
		.src = s->src,
		.dst = s->dst,
		.dqpn = s->dqpn,
		.sqpn = s->peer ? s->peer->dqpn : 0,
		.paired = s->peer != NULL,
		.mtu = s->mtu,
		.c = s->c,
	};
	return true;
}
