/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Internals of the oracles: oracle.c (streams, pairing, findings), oracle_ask.c (READs and
 * atomics), oracle_request.c and oracle_response.c (the rules).
 */
#ifndef ROOST_PACKET_ORACLE_INT_H
#define ROOST_PACKET_ORACLE_INT_H

#include "packet/oracle.h"

#define STARTS 4

#define MAX(a, b) ((a) > (b) ? (a) : (b))

/*
 * PSNs have 64 bits here, and the lower 24 are as on the wire, so that comparisons need not handle
 * wrapping. They begin at 2^24 or above.
 */

/* A READ or an atomic, and the answers seen so far. It covers the PSNs psn .. psn + npsn - 1. */
struct ask {
	uint64_t psn;
	uint64_t next; /* the first PSN that was not answered in order */
	uint64_t va;
	uint64_t value;		/* the answer of an atomic */
	uint64_t start[STARTS]; /* the most recent PSNs at which it was requested */
	uint32_t npsn;		/* 0: a READ whose size is unknown, because the path MTU is */
	uint32_t len, rkey;
	uint32_t asked, answered; /* requests seen, and responses begun */
	uint32_t starts;	  /* number of PSNs ever stored in start[] */
	bool used, atomic, done, has_value;
};

struct stream {
	/* the key, from the requester's point of view */
	struct pkt_addr src, dst;
	uint32_t dqpn;
	/* the other stream of the connection; responses to this stream go to its QP */
	struct stream *peer;
	/* the trace was taken at the requester's end, at the responder's end */
	bool local_req, local_resp;

	bool started;
	uint32_t mtu;
	uint64_t base; /* first PSN seen */
	uint64_t hi;   /* PSN after the highest one seen */
	/*
	 * first PSN missing from the trace: the upper bound of the PSN that the responder expects
	 */
	uint64_t expected;
	uint64_t una;	/* the PSN after the highest one that was answered or acknowledged */
	uint64_t await; /* first PSN for whose answer the requester waits, at most */
	/*
	 * the PSN after the highest one that came again below `expected` and was not acknowledged
	 * then
	 */
	uint64_t again;
	/* the PSN after the last request, at which the stream continues if it does not go back */
	uint64_t run;
	bool acked; /* una comes from an answer or acknowledgement, and is not a guess */

	bool gap;	  /* a request above `expected` was seen */
	uint64_t gap_psn; /* value of `expected` at that time */
	/* at the responder's end, no RNR NAK has come since; one would make `expected` doubtful */
	bool gap_sure;
	/* the size of a READ is or was unknown, so the missing PSNs are unknown too */
	bool has_unsized;

	bool counted;	   /* `messages` is the MSN of an ACK up to `expected` */
	uint32_t messages; /* messages that ended before `expected` */

	bool nak_seen, nak_again; /* a NAK named nak_psn; a request with nak_psn was seen since */
	uint64_t nak_psn;

	bool turn; /* a NAK requested turn_psn, and the stream has not gone back yet */
	uint64_t turn_psn;
	uint32_t turn_run; /* packets that continued forward since then */

	/* the READ response that is being sent */
	bool resp, resp_cut; /* a response is under way; it may end early */
	uint64_t resp_next;
	uint32_t resp_msn;
	bool resp_has_msn;
	struct ask *resp_ask;

	/* the newest request if its npsn is unknown; `hi` is then provisional */
	struct ask *newest_unsized;
	uint32_t asks_at, open;
	bool ask_dropped; /* an unanswered READ or atomic was dropped from the ring */

	struct oracle_counts c;
	struct ask asks[]; /* ring of max_reads */
};

struct oracle {
	struct oracle_options opts;
	struct oracle_totals totals;
	struct stream **streams; /* max_streams, NULL from totals.streams on */
	uint32_t *index;	 /* hash table of stream numbers + 1 */
	uint32_t index_mask;
	struct oracle_finding *findings;
	size_t nfindings;

	/* the packet that is being fed, for findings */
	uint64_t at_index, at_time;
	const struct pkt_addr *at_src, *at_dst;
	const struct pkt_view *v;
};

/* Returns the PSN of the wire with 64 bits that is nearest to `ours`. */
static inline uint64_t psn_near(uint64_t ours, uint32_t psn)
{
	int32_t d = (int32_t)((psn - (uint32_t)ours) << 8) >> 8;

	return ours + (uint64_t)(int64_t)d;
}

/* Returns a PSN as it is on the wire. */
static inline unsigned low24(uint64_t psn)
{
	return (unsigned)(psn & PKT_PSN_MASK);
}

/* Returns the number of packets of a READ of `len` bytes. */
static inline uint32_t read_packets(uint32_t len, uint32_t mtu)
{
	return len ? (uint32_t)(((uint64_t)len + mtu - 1) / mtu) : 1;
}

static inline void turn_settled(struct stream *s)
{
	s->turn = false;
	s->turn_run = 0;
}

/* Notes that the rule has been broken. */
void oracle_broken(struct oracle *o, enum oracle_rule rule, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Starts the stream with this PSN, as a new connection. */
void stream_begin(struct oracle *o, struct stream *s, uint32_t psn);
/* Notes that the stream began at an earlier PSN, whose packets were not seen. */
void stream_began_earlier(struct stream *s, uint64_t psn);

/*
 * Takes the payload of a packet that is not the last of its message as the path MTU, if it can be
 * one.
 */
void stream_learn_mtu(struct oracle *o, struct stream *s, uint32_t mtu);
void stream_clear_unsized(struct stream *s);

/* Returns the READ or atomic that has this PSN, or NULL. */
struct ask *ask_find(struct oracle *o, struct stream *s, uint64_t psn);
/* Records a READ or atomic (o->v), which is new or a repetition. */
struct ask *ask_new(struct oracle *o, struct stream *s, uint64_t psn);
/* Notes that the READ was requested from this PSN on. */
void ask_note_start(struct ask *a, uint64_t psn);
/*
 * Returns true if the READ was requested from this PSN on, or if there were too many such PSNs to
 * remember.
 */
bool ask_named(const struct ask *a, uint64_t psn);
/* Returns the oldest unanswered READ or atomic, or NULL. */
struct ask *ask_first_open(struct oracle *o, struct stream *s);
/* Notes that the READ or atomic was answered completely. */
void ask_done(struct stream *s, struct ask *a);
/* Sets the size of a READ, which has become known. */
void ask_settle(struct stream *s, struct ask *a, uint32_t npsn);

/*
 * Returns whether this response (o->v) may answer a request of s, or a request from before the
 * trace. It is used for pairing.
 */
enum oracle_match { ORACLE_NO_MATCH, ORACLE_MAYBE, ORACLE_MATCH };
enum oracle_match oracle_could_answer(struct oracle *o, struct stream *s);
void oracle_request(struct oracle *o, struct stream *s);
void oracle_response(struct oracle *o, struct stream *s);

#endif
