/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Traces made by hand, for the oracles' tests: packets of a connection between two hosts, A and B.
 */
#ifndef ROOST_TESTS_PACKET_TRACE_H
#define ROOST_TESTS_PACKET_TRACE_H

#include "packet/headers.h"
#include "packet/oracle.h"

#define MTU	  256
#define MAX_STEPS 16

/*
 * One packet. Requests go from A to B's QP, responses from B to A's QP. `psn` counts from the
 * trace's first; `a` and `b`: SEND, WRITE: a bytes. READ request: a bytes at b. READ response: a
 * bytes, MSN b. ACK: syndrome a, MSN b. Atomic response: the value a.
 */
struct step {
	uint8_t op;
	uint32_t psn, a, b;
	uint32_t rkey;
};

#define STEP(...)                                                                                  \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}
#define SEND(psn)	   STEP(PKT_SEND_ONLY, psn, 64, 0, 0)
#define PART(psn)	   STEP(PKT_SEND_MIDDLE, psn, MTU, 0, 0)
#define ACK(psn)	   STEP(PKT_ACK, psn, PKT_AETH_ACK, 0, 0)
#define ACKM(psn, msn)	   STEP(PKT_ACK, psn, PKT_AETH_ACK, msn, 0)
#define NAK(psn)	   STEP(PKT_ACK, psn, PKT_NAK_PSN_SEQ, 0, 0)
#define RNR(psn)	   STEP(PKT_ACK, psn, 0x2c, 0, 0)
#define DENY(psn)	   STEP(PKT_ACK, psn, PKT_NAK_REM_ACCESS, 0, 0)
#define READ(psn, len, at) STEP(PKT_READ_REQUEST, psn, len, at, 7)
#define FIRST(psn)	   STEP(PKT_READ_RESP_FIRST, psn, MTU, 1, 0)
#define MIDDLE(psn)	   STEP(PKT_READ_RESP_MIDDLE, psn, MTU, 1, 0)
#define LAST(psn, len)	   STEP(PKT_READ_RESP_LAST, psn, len, 1, 0)
#define RONLY(psn, len)	   STEP(PKT_READ_RESP_ONLY, psn, len, 1, 0)
#define ADD(psn)	   STEP(PKT_FETCH_ADD, psn, 0, 0, 7)
#define VALUE(psn, value)  STEP(PKT_ATOMIC_ACK, psn, value, 0, 0)
#define END		   STEP(0, 0, 0, 0, 0)

/* Where a trace was taken. */
enum capture_point { ANYWHERE = 1, AT_A = 2, AT_B = 4, EVERYWHERE = 7 };

/* 10.0.0.1 and 10.0.0.2. */
static const struct pkt_addr addr_a = {{[10] = 0xff, 0xff, 10, 0, 0, 1}},
			     addr_b = {{[10] = 0xff, 0xff, 10, 0, 0, 2}};

static inline struct pkt_view view_of(const struct step *s, uint32_t qpn, uint32_t base)
{
	struct pkt_view v = {.op = &pkt_ops[s->op],
			     .opcode = s->op,
			     .dqpn = qpn,
			     .psn = (base + s->psn) & PKT_PSN_MASK};

	v.rkey = s->rkey;
	v.va = 0x1000 + s->b;
	v.msn = s->b;
	switch (v.op->kind) {
	case PKT_KIND_READ_REQ:
		v.dmalen = s->a;
		break;
	case PKT_KIND_ACK:
		v.syndrome = (uint8_t)s->a;
		break;
	case PKT_KIND_ATOMIC_ACK:
		v.syndrome = PKT_AETH_ACK;
		v.swap_add = s->a;
		break;
	case PKT_KIND_ATOMIC:
		break;
	default:
		v.payload_len = s->a;
	}
	return v;
}

/* Feeds one packet of the connection between QP qa at A and qb at B, whose requests A sends. */
static inline void feed(struct oracle *o, uint64_t index, const struct step *s, uint32_t qa,
			uint32_t qb, uint32_t base)
{
	bool request = pkt_ops[s->op].flags & PKT_REQUEST;
	struct pkt_view v = view_of(s, request ? qb : qa, base);

	if (request)
		oracle_feed(o, index, index * 1000, &addr_a, &addr_b, &v);
	else
		oracle_feed(o, index, index * 1000, &addr_b, &addr_a, &v);
}

static inline struct oracle_options options(enum capture_point point)
{
	struct oracle_options oo = oracle_defaults;

	oo.mtu = MTU;
	oo.inflight = 3;
	oo.max_streams = 8;
	oo.max_reads = 8;
	oo.has_local = point != ANYWHERE;
	oo.local = point == AT_A ? addr_a : addr_b;
	return oo;
}

#endif
