/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Oracles: rules of the RC transport that a packet trace must obey, whoever made it. After the
 * manner of Lumina (Yu et al., SIGCOMM '23): feed a trace packet by packet, then ask what was
 * wrong.
 *
 * A *stream* is the requests that one QP sends to another, (source, destination, destination QP),
 * together with the responses that come back. A connection is two streams. The BTH names the
 * destination QP only, so which responses answer which requests is learnt: a response belongs to
 * the one stream of the reverse addresses that has its PSN outstanding; as long as there are
 * several, it is counted and not judged. oracle_pair() tells instead of letting guess.
 *
 * What a trace shows depends on where it was taken. Three cases:
 *
 *   unknown place  Loss may have happened before and after. A rule then says only what holds in
 *                  either
 * case: a hole in the trace is a loss, and never a fault of whoever sent. Packets must be
 *                  in order.
 *   at one end     `local` is that end's address, the trace is what its NIC sent and took in, in
 *                  that order
 * (between NIC and network: what is lost or changed must be so outside). The rules are
 *                  exact for what it sent.
 *   disorder       As before, with a network that may reorder and duplicate: what came from outside
 *                  is
 *                  believed, not judged.
 *
 * Feed only packets whose ICRC is right: others did not happen for the receiver. Feed all packets
 * of a connection from its beginning, or from any point on: rules that need what was missed stay
 * silent.
 *
 * A PSN far (2^16) outside of what a stream has outstanding starts a new connection on reused QP
 * numbers.
 */
#ifndef ROOST_PACKET_ORACLE_H
#define ROOST_PACKET_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "packet/headers.h"
#include "packet/icrc.h"

enum oracle_rule {
	/*
	 * ACK PSNs never go back: an ACK names no PSN below one that an ACK, a NAK (less one), a
	 * READ response or an atomic response covered before. Repeated READ and atomic responses
	 * may: see READ_RUN, REPLAY.
	 */
	ORACLE_ACK_BACK,
	/*
	 * An ACK or NAK covers only what was there: PSNs up to the first that is missing from the
	 * trace.
	 */
	ORACLE_ACK_UNSEEN,
	/*
	 * A sequence NAK names the first missing PSN, and only when a later one was sent: not below
	 * what was acknowledged, not above the first hole. At the responder's end: exactly the PSN
	 * that it awaited when the gap began; or a lower one, when requests have come again: it had
	 * refused them, and this leaves in the place of its RNR NAK.
	 */
	ORACLE_NAK_PSN,
	/*
	 * One NAK a gap: the same PSN is named again only after a request with that PSN came by, or
	 * was refused by an RNR NAK: what follows it is another gap, of which rxe tells.
	 */
	ORACLE_NAK_TWICE,
	/*
	 * After a sequence or RNR NAK of PSN n the requester goes back to n, or to the first
	 * unanswered PSN of an older READ or atomic. Before that, packets in flight may come by:
	 * those that continue the stream forward, at most `inflight`. An acknowledgement of n or
	 * beyond settles the matter. At the requester's end a turn to any other PSN is a fault;
	 * elsewhere it is not (n was lost before it came here, or the NAK after), and only the
	 * limit is judged.
	 */
	ORACLE_NAK_RESUME,
	/*
	 * READ responses run consecutively: FIRST or ONLY at a PSN that a request named, then PSN
	 * by PSN to LAST at the request's last PSN, every packet but the last of a full path MTU,
	 * one MSN, no response run without a request for it. Holes are losses, except at the
	 * responder's end.
	 */
	ORACLE_READ_RUN,
	/*
	 * A READ requested again starts no later than at its first missing PSN (at the requester's
	 * end: exactly there, or at its own first PSN when an older response is missing), with the
	 * address moved accordingly, the same key and the same end.
	 */
	ORACLE_READ_REISSUE,
	/*
	 * An atomic's response answers a request, once per request, and a repeated one gives the
	 * same value.
	 */
	ORACLE_REPLAY,
	/*
	 * A requester's new PSNs are consecutive modulo 2^24. At the requester's end only:
	 * elsewhere a hole is a loss.
	 */
	ORACLE_REQ_PSN,
	/*
	 * MSNs count messages: an ACK of everything that was there has the number of the one
	 * before, plus the messages that ended since. Not judged before a number other than 0 was
	 * seen.
	 */
	ORACLE_MSN,
	ORACLE_RULES
};

struct oracle_options {
	uint32_t max_streams;  /* further ones are counted, not followed */
	uint32_t max_reads;    /* READs and atomics remembered per stream, answered ones included */
	uint32_t max_findings; /* kept with text; the rest is counted */
	uint32_t inflight;     /* packets that may still run forward after a NAK */
	uint32_t mtu;	       /* path MTU; 0: learn it, per stream */
	bool has_local;
	bool disorder; /* needs has_local */
	struct pkt_addr local;
};

/* 4096 streams, 128 READs, 64 findings, 1024 in flight, all else off. */
extern const struct oracle_options oracle_defaults;

/*
 * What a stream, or the whole trace, held. Requests are counted on their stream, responses on the
 * one they answer. A NIC's counter is named where a trace of the right end has the same number: the
 * requester's end for what was sent, the responder's for what came in, and there only if the path
 * MTU is given and the first PSN known (oracle_begins). Requests that the responder dropped behind
 * one without a receive count as in order if they were there before the RNR NAK.
 */
struct oracle_counts {
	uint64_t requests;  /* request packets */
	uint64_t responses; /* response packets */
	uint64_t acks;	    /* positive ACKs, READ and atomic responses not counted */
	uint64_t naks_seq;  /* packet_seq_err */
	uint64_t naks_invalid;
	uint64_t naks_access;
	uint64_t naks_op;
	uint64_t naks_other; /* reserved syndromes */
	uint64_t naks_rnr;   /* rnr_nak_retry_err */
	/* below the highest PSN seen: retransmitted_pkts + tail_loss_probe */
	uint64_t retransmitted;
	uint64_t turns;	       /* times a stream went back */
	uint64_t gaps;	       /* holes that began: out_of_sequence */
	uint64_t out_of_order; /* requests above the first missing PSN */
	uint64_t duplicates;   /* requests below it: duplicate_request */
	uint64_t reads;	       /* READ requests, repeated ones included */
	uint64_t reads_again;
	uint64_t read_responses;
	uint64_t atomics;
	uint64_t atomics_again;
	uint64_t payload; /* bytes, both ways, repeated ones included */
};

struct oracle_totals {
	struct oracle_counts c; /* sum over all streams */
	uint64_t packets;	/* fed */
	uint64_t unreliable;	/* UC, UD: no rule is about them */
	uint64_t cnps;
	/* responses not judged, because it is unclear what they answer */
	uint64_t unpaired;
	uint64_t unfollowed;	   /* packets of streams beyond max_streams */
	uint64_t connections_anew; /* times a stream began again with other PSNs */
	uint32_t streams;
	uint64_t broken[ORACLE_RULES];
	uint64_t violations; /* sum of broken[] */
};

/* A stream from outside. */
struct oracle_stream {
	struct pkt_addr src, dst; /* requester, responder */
	uint32_t dqpn;		  /* responder's QP */
	uint32_t sqpn;		  /* requester's QP, where `paired` */
	bool paired;
	uint32_t mtu; /* 0: not known */
	struct oracle_counts c;
};

struct oracle_finding {
	enum oracle_rule rule;
	uint64_t index; /* of the packet, as fed */
	uint64_t time_ns;
	struct pkt_addr src, dst; /* of the packet */
	uint32_t dqpn, psn;
	char text[160];
};

struct oracle;

/*
 * Allocates all it will ever need, max_streams x (about 500 bytes + max_reads x 96). NULL: no
 * memory, or options of 0.
 */
struct oracle *oracle_new(const struct oracle_options *opts);
void oracle_free(struct oracle *o);

/*
 * The QP qpn_a at a and qpn_b at b are connected. 0, -ENOSPC, or -EEXIST when one of them is paired
 * already.
 */
int oracle_pair(struct oracle *o, const struct pkt_addr *a, uint32_t qpn_a,
		const struct pkt_addr *b, uint32_t qpn_b);

/*
 * The first PSN of the stream from src to the QP dqpn at dst is known: losses before the first
 * packet that is seen are then counted too. To be called before it. 0 or -ENOSPC.
 */
int oracle_begins(struct oracle *o, const struct pkt_addr *src, const struct pkt_addr *dst,
		  uint32_t dqpn, uint32_t psn);

/*
 * The next packet of the trace, as pkt_parse() gave it. `index` and time_ns are for reports only.
 * One thread at a time.
 */
void oracle_feed(struct oracle *o, uint64_t index, uint64_t time_ns, const struct pkt_addr *src,
		 const struct pkt_addr *dst, const struct pkt_view *v);

/* Results, valid until the next call that is not one of these. */
const struct oracle_totals *oracle_totals(struct oracle *o);
const struct oracle_finding *oracle_findings(const struct oracle *o, size_t *n);
/* Streams are numbered from 0 in the order in which they appeared; false behind the last. */
bool oracle_stream_get(const struct oracle *o, uint32_t i, struct oracle_stream *s);

/* "ack-back", and what it says in half a line. */
const char *oracle_rule_name(enum oracle_rule r);
const char *oracle_rule_text(enum oracle_rule r);

#endif
