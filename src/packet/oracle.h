/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Oracles check a packet trace against rules of the RC transport, which hold for every
 * implementation, as in Lumina (Yu et al., SIGCOMM '23). The caller feeds a trace packet by packet,
 * and then reads the violations.
 *
 * A stream consists of the requests that one QP sends to another (source, destination, destination
 * QP), and the responses to them. A connection is two streams. The BTH names only the destination
 * QP, so the oracle must learn which responses answer which requests: a response belongs to the
 * stream of the reverse addresses that has its PSN outstanding. If there are several such streams,
 * the response is counted but not judged. oracle_pair() tells the oracle which streams belong
 * together.
 *
 * The rules depend on the place where the trace was taken. There are three cases:
 *
 *   unknown place  Packets may have been lost before and after that place. A rule then judges only
 *                  what holds in either case: a hole in the trace is a loss, and never a fault of
 *                  the sender. Packets must be in order.
 *   at one end     `local` is the address of that end. The trace is what its NIC sent and received,
 *                  in that order (between NIC and network: losses and changes happen outside). The
 *                  rules are exact for the packets that it sent.
 *   disorder       As at one end, with a network that may reorder and duplicate. Packets from
 *   outside
 *                  are believed, not judged.
 *
 * Feed only packets with a right ICRC, because a receiver ignores others. Feed all packets of a
 * connection from its beginning, or from any later point; rules that would need earlier packets are
 * then not checked.
 *
 * A PSN that is far (2^16) from the outstanding PSNs of a stream starts a new connection on reused
 * QP numbers.
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
	 * PSNs of ACKs never decrease: an ACK names no PSN below one that an earlier ACK, NAK
	 * (minus one), READ response or atomic response covered. Repeated READ and atomic responses
	 * may have lower PSNs: see READ_RUN and REPLAY.
	 */
	ORACLE_ACK_BACK,
	/*
	 * An ACK or NAK covers only packets that were sent: PSNs up to the first one that is
	 * missing from the trace.
	 */
	ORACLE_ACK_UNSEEN,
	/*
	 * A sequence NAK names the first missing PSN, and is sent only after a later PSN was: it is
	 * not below the acknowledged PSNs and not above the first hole. At the responder's end it
	 * is exactly the PSN that the responder expected when the gap began. It may be a lower one
	 * if requests have come again: the responder had refused them, and the sequence NAK
	 * replaces its RNR NAK.
	 */
	ORACLE_NAK_PSN,
	/*
	 * Each gap has one NAK. Another NAK names the same PSN only after a request with this PSN
	 * was seen, or an RNR NAK refused it. The packets after it are then another gap, which rxe
	 * reports.
	 */
	ORACLE_NAK_TWICE,
	/*
	 * After a sequence or RNR NAK of PSN n the requester goes back to n, or to the first
	 * unanswered PSN of an older READ or atomic. Before that, packets in flight may follow: at
	 * most `inflight`, which continue the stream forward. An acknowledgement of n or beyond
	 * makes the NAK void. At the requester's end a step back to any other PSN is a violation.
	 * At other places it is none (the packet n may have been lost before this place, or the NAK
	 * after it), and only the limit is checked.
	 */
	ORACLE_NAK_RESUME,
	/*
	 * READ responses run consecutively: FIRST or ONLY at a PSN that a request named, then PSN
	 * by PSN to LAST at the request's last PSN. Every packet but the last has a full path MTU,
	 * all have one MSN, and no response comes without a request for it. Holes are losses,
	 * except at the responder's end.
	 */
	ORACLE_READ_RUN,
	/*
	 * A repeated READ request starts no later than at its first missing PSN. At the requester's
	 * end it starts exactly there, or at its own first PSN if an older response is missing. Its
	 * address moves accordingly, and key and end stay the same.
	 */
	ORACLE_READ_REISSUE,
	/*
	 * Each response of an atomic answers a request. There is at most one response per request,
	 * and a repeated response has the same value.
	 */
	ORACLE_REPLAY,
	/*
	 * New PSNs of a requester are consecutive modulo 2^24. This is checked only at the
	 * requester's end, because elsewhere a hole is a loss.
	 */
	ORACLE_REQ_PSN,
	/*
	 * MSNs count messages: the MSN of an ACK of all packets so far is the previous ACK's MSN
	 * plus the messages that ended since. This is checked only after an MSN other than 0 was
	 * seen.
	 */
	ORACLE_MSN,
	ORACLE_RULES
};

struct oracle_options {
	uint32_t max_streams; /* further streams are counted but not followed */
	/* READs and atomics remembered per stream, including answered ones */
	uint32_t max_reads;
	uint32_t max_findings; /* findings kept with text; further ones are counted */
	uint32_t inflight;     /* packets that may still continue forward after a NAK */
	uint32_t mtu;	       /* path MTU; 0: it is learned for each stream */
	bool has_local;
	bool disorder; /* needs has_local */
	struct pkt_addr local;
};

/* 4096 streams, 128 READs, 64 findings, 2048 packets in flight; all other options are off. */
extern const struct oracle_options oracle_defaults;

/*
 * The counts of a stream, or of the whole trace. Requests are counted on their stream, responses on
 * the stream that they answer. Where a counter of the NIC is named, a trace of one end gives the
 * same number, if the path MTU is given and the first PSN is known (oracle_begins): the requester's
 * end for sent packets, and the responder's end for received packets. Requests that the responder
 * dropped after a request without a receive count as in order if they came before the RNR NAK.
 */
struct oracle_counts {
	uint64_t requests;  /* request packets */
	uint64_t responses; /* response packets */
	uint64_t acks;	    /* positive ACKs, without READ and atomic responses */
	uint64_t naks_seq;  /* packet_seq_err */
	uint64_t naks_invalid;
	uint64_t naks_access;
	uint64_t naks_op;
	uint64_t naks_other; /* reserved syndromes */
	uint64_t naks_rnr;   /* rnr_nak_retry_err */
	/* PSNs below the highest one seen: retransmitted_pkts + tail_loss_probe */
	uint64_t retransmitted;
	uint64_t turns;	       /* times a stream went back */
	uint64_t gaps;	       /* number of holes: out_of_sequence */
	uint64_t out_of_order; /* requests above the first missing PSN */
	uint64_t duplicates;   /* requests below the first missing PSN: duplicate_request */
	uint64_t reads;	       /* READ requests, including repeated ones */
	uint64_t reads_again;
	uint64_t read_responses;
	uint64_t atomics;
	uint64_t atomics_again;
	uint64_t payload; /* bytes of both directions, including repeated ones */
};

struct oracle_totals {
	struct oracle_counts c; /* sum over all streams */
	uint64_t packets;	/* packets fed */
	uint64_t unreliable;	/* packets of UC and UD, which have no rules */
	uint64_t cnps;
	/* responses that were not judged, because the request that they answer is not clear */
	uint64_t unpaired;
	uint64_t unfollowed;	   /* packets of streams beyond max_streams, or without memory */
	uint64_t connections_anew; /* times a stream began again with other PSNs */
	uint32_t streams;
	uint64_t broken[ORACLE_RULES];
	uint64_t violations; /* sum of broken[] */
};

/* The public description of a stream. */
struct oracle_stream {
	struct pkt_addr src, dst; /* requester, responder */
	uint32_t dqpn;		  /* QP of the responder */
	uint32_t sqpn;		  /* QP of the requester, if `paired` */
	bool paired;
	uint32_t mtu; /* 0: unknown */
	struct oracle_counts c;
};

struct oracle_finding {
	enum oracle_rule rule;
	uint64_t index; /* index of the packet, as given to oracle_feed() */
	uint64_t time_ns;
	struct pkt_addr src, dst; /* addresses of the packet */
	uint32_t dqpn, psn;
	char text[160];
};

struct oracle;

/*
 * Makes an oracle. Each stream that it follows later takes about 500 bytes + max_reads x 96.
 * Returns NULL if there is no memory, or if the options are invalid.
 */
struct oracle *oracle_new(const struct oracle_options *opts);
/* Frees an oracle. `o` may be NULL. */
void oracle_free(struct oracle *o);

/*
 * Pairs the QP qpn_a at `a` with the QP qpn_b at `b`, which are connected. Returns 0, -ENOSPC, or
 * -EEXIST if one of them is already paired.
 */
int oracle_pair(struct oracle *o, const struct pkt_addr *a, uint32_t qpn_a,
		const struct pkt_addr *b, uint32_t qpn_b);

/*
 * Sets the first PSN of the stream from src to the QP dqpn at dst, so that losses before the first
 * packet of the trace are counted too. To be called before that packet. Returns 0 or -ENOSPC.
 */
int oracle_begins(struct oracle *o, const struct pkt_addr *src, const struct pkt_addr *dst,
		  uint32_t dqpn, uint32_t psn);

/*
 * Feeds the next packet of the trace, as pkt_parse() returned it. `index` and time_ns are only for
 * reports. One thread at a time.
 */
void oracle_feed(struct oracle *o, uint64_t index, uint64_t time_ns, const struct pkt_addr *src,
		 const struct pkt_addr *dst, const struct pkt_view *v);

/* Return the results. They are valid until the next call of a function that is not one of these. */
const struct oracle_totals *oracle_totals(struct oracle *o);
const struct oracle_finding *oracle_findings(const struct oracle *o, size_t *n);
/*
 * Gets stream number i. Streams are numbered from 0 in the order of their first packets. Returns
 * false after the last one.
 */
bool oracle_stream_get(const struct oracle *o, uint32_t i, struct oracle_stream *s);

/* Return the name of a rule ("ack-back"), and a short text about it. */
const char *oracle_rule_name(enum oracle_rule r);
const char *oracle_rule_text(enum oracle_rule r);

#endif
