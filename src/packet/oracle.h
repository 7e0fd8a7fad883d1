/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Oracles: rules of the RC transport that a packet trace must obey, whatever implementation sent
 * it, as in Lumina (Yu et al., SIGCOMM '23). The caller feeds a trace packet by packet, then asks
 * for violations.
 *
 * A *stream* is the requests that one QP sends to another, (source, destination, destination QP),
 * together with the responses. A connection is two streams. The BTH names the destination QP only,
 * so the oracle learns which responses answer which requests: a response belongs to the stream of
 * the reverse addresses that has its PSN outstanding. If there are several, the response is counted
 * and not judged. oracle_pair() gives the pairing instead.
 *
 * What a trace shows depends on where it was taken. There are three cases:
 *
 *   unknown place  Packets may have been lost before and after that place. A rule then judges only
 *                  what holds in either case: a hole in the trace is a loss, and never a fault of
 *                  the sender. Packets must be in order.
 *   at one end     `local` is the address of that end. The trace is what its NIC sent and received,
 *                  in that order (between NIC and network: losses and changes happen outside). The
 *                  rules are exact for what it sent.
 *   disorder       As before, with a network that may reorder and duplicate. Packets from outside
 *                  are believed, not judged.
 *
 * Feed only packets with a right ICRC: a receiver ignores others. Feed all packets of a connection
 * from its beginning, or from any point on: rules that need missing packets do not judge.
 *
 * A PSN that is far (2^16) from what a stream has outstanding starts a new connection on reused QP
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
	 * An ACK or NAK covers only packets that were sent: PSNs up to the first one that is
	 * missing from the trace.
	 */
	ORACLE_ACK_UNSEEN,
	/*
	 * A sequence NAK names the first missing PSN, and only if a later one was sent: not below
	 * what was acknowledged, not above the first hole. At the responder's end it is exactly the
	 * PSN that the responder expected when the gap began. It may be a lower one if requests
	 * have come again: the responder had refused them, and the sequence NAK replaces its RNR
	 * NAK.
	 */
	ORACLE_NAK_PSN,
	/*
	 * One NAK for each gap. The same PSN is named again only after a request with that PSN came
	 * by, or was refused by an RNR NAK. The packets after it are then another gap, which rxe
	 * reports.
	 */
	ORACLE_NAK_TWICE,
	/*
	 * After a sequence or RNR NAK of PSN n the requester goes back to n, or to the first
	 * unanswered PSN of an older READ or atomic. Before that, packets in flight may come by:
	 * those that continue the stream forward, at most `inflight`. An acknowledgement of n or
	 * beyond ends the matter. At the requester's end a step back to any other PSN is a fault.
	 * Elsewhere it is not (n was lost before it came here, or the NAK after), and only the
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
	 * The response of an atomic answers a request, once per request, and a repeated one has the
	 * same value.
	 */
	ORACLE_REPLAY,
	/*
	 * A requester's new PSNs are consecutive modulo 2^24. At the requester's end only:
	 * elsewhere a hole is a loss.
	 */
	ORACLE_REQ_PSN,
	/*
	 * MSNs count messages: an ACK of all packets so far has the number of the ACK before, plus
	 * the messages that ended since. Not judged before a number other than 0 was seen.
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
 * The counts of a stream, or of the whole trace. Requests are counted on their stream, responses on
 * the stream that they answer. A counter of the NIC is named if a trace of the right end gives the
 * same number: the end of the requester for sent packets, and that of the responder for received
 * ones, if the path MTU is given and the first PSN known (oracle_begins). Requests that the
 * responder dropped after one without a receive count as in order if they came before the RNR NAK.
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

/* The public description of a stream. */
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
 * Makes an oracle. All memory is allocated here, max_streams x (about 500 bytes + max_reads x 96).
 * NULL: no memory, or options of 0.
 */
struct oracle *oracle_new(const struct oracle_options *opts);
void oracle_free(struct oracle *o);

/*
 * Pairs the QP qpn_a at a with qpn_b at b, which are connected. Returns 0, -ENOSPC, or -EEXIST if
 * one of them is paired already.
 */
int oracle_pair(struct oracle *o, const struct pkt_addr *a, uint32_t qpn_a,
		const struct pkt_addr *b, uint32_t qpn_b);

/*
 * Sets the first PSN of the stream from src to the QP dqpn at dst. Losses before the first packet
 * of the trace are then counted too. To be called before that packet. Returns 0 or -ENOSPC.
 */
int oracle_begins(struct oracle *o, const struct pkt_addr *src, const struct pkt_addr *dst,
		  uint32_t dqpn, uint32_t psn);

/*
 * Feeds the next packet of the trace, as pkt_parse() gave it. `index` and time_ns are for reports
 * only. One thread at a time.
 */
void oracle_feed(struct oracle *o, uint64_t index, uint64_t time_ns, const struct pkt_addr *src,
		 const struct pkt_addr *dst, const struct pkt_view *v);

/* Results, valid until the next call that is not one of these. */
const struct oracle_totals *oracle_totals(struct oracle *o);
const struct oracle_finding *oracle_findings(const struct oracle *o, size_t *n);
/*
 * Streams are numbered from 0 in the order of their first packets. Returns false after the last
 * one.
 */
bool oracle_stream_get(const struct oracle *o, uint32_t i, struct oracle_stream *s);

/* The name of a rule ("ack-back"), and a short text of it. */
const char *oracle_rule_name(enum oracle_rule r);
const char *oracle_rule_text(enum oracle_rule r);

#endif
