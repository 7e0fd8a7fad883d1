/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RoCE v2 headers on the wire, and their codec. A packet here starts at the BTH: the IP and UDP
 * headers before it belong to the port (and, for the ICRC, to icrc.h). All fields are big-endian.
 *
 * Source: InfiniBand Architecture Specification, volume 1, chapter 9; annex A17 (RoCE v2).
 */
#ifndef ROOST_PACKET_HEADERS_H
#define ROOST_PACKET_HEADERS_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "packet/opcode.h"

#define PKT_UDP_PORT	 4791
#define PKT_ICRC_LEN	 4
#define PKT_PSN_MASK	 0xffffffu
#define PKT_QPN_MASK	 0xffffffu
#define PKT_GSI_QPN	 1u /* the QP of management datagrams */
#define PKT_PKEY_DEFAULT 0xffff
#define PKT_MAX_PAYLOAD	 4096
/*
 * The longest BTH + extension headers of a supported op-code: BTH, RETH, ImmDt, or BTH, AtomicETH.
 */
#define PKT_MAX_HEADERS 48
#define PKT_MAX_LEN	(PKT_MAX_HEADERS + PKT_MAX_PAYLOAD + PKT_ICRC_LEN)

struct pkt_bth {
	uint8_t opcode;
	uint8_t flags; /* SE 0x80, MigReq 0x40, PadCnt 0x30, TVer 0x0f */
	uint16_t pkey;
	uint8_t resv8a; /* FECN 0x80, BECN 0x40; the whole byte counts as ones in the ICRC */
	uint8_t dqpn[3];
	uint8_t ackreq; /* AckReq 0x80 */
	uint8_t psn[3];
} __attribute__((packed));

struct pkt_deth {
	uint32_t qkey;
	uint8_t resv;
	uint8_t sqpn[3];
} __attribute__((packed));

struct pkt_reth {
	uint64_t va;
	uint32_t rkey;
	uint32_t len;
} __attribute__((packed));

struct pkt_atomic_eth {
	uint64_t va;
	uint32_t rkey;
	uint64_t swap_add;
	uint64_t compare;
} __attribute__((packed));

struct pkt_aeth {
	uint8_t syndrome;
	uint8_t msn[3];
} __attribute__((packed));

_Static_assert(sizeof(struct pkt_bth) == 12, "BTH");
_Static_assert(sizeof(struct pkt_deth) == 8, "DETH");
_Static_assert(sizeof(struct pkt_reth) == 16, "RETH");
_Static_assert(sizeof(struct pkt_atomic_eth) == 28, "AtomicETH");
_Static_assert(sizeof(struct pkt_aeth) == 4, "AETH");

#define PKT_BTH_SE	  0x80
#define PKT_BTH_MIGREQ	  0x40
#define PKT_BTH_PAD_SHIFT 4
#define PKT_BTH_FECN	  0x80
#define PKT_BTH_BECN	  0x40
#define PKT_BTH_ACKREQ	  0x80

/* AETH syndromes. */
#define PKT_AETH_ACK	    0x1f /* ACK, credits invalid: there is no end-to-end flow control */
#define PKT_AETH_TYPE(s)    ((s)&0x60)
#define PKT_AETH_TYPE_ACK   0x00
#define PKT_AETH_TYPE_RNR   0x20
#define PKT_AETH_TYPE_NAK   0x60
#define PKT_NAK_PSN_SEQ	    0x60
#define PKT_NAK_INVALID_REQ 0x61
#define PKT_NAK_REM_ACCESS  0x62
#define PKT_NAK_REM_OP	    0x63

static inline uint32_t pkt_get24(const uint8_t b[3])
{
	return (uint32_t)b[0] << 16 | (uint32_t)b[1] << 8 | b[2];
}

static inline void pkt_put24(uint8_t b[3], uint32_t v)
{
	b[0] = (uint8_t)(v >> 16);
	b[1] = (uint8_t)(v >> 8);
	b[2] = (uint8_t)v;
}

/* The parsed form, in host byte order. Only the fields that pkt_ops[opcode].flags names are set. */
struct pkt_view {
	const struct pkt_op *op;
	uint8_t opcode;
	uint8_t pad;	 /* bytes of padding after the payload, 0 .. 3 */
	uint8_t bth_ecn; /* PKT_BTH_FECN | PKT_BTH_BECN as received */
	bool solicited;
	bool ackreq;
	uint8_t syndrome; /* AETH */
	uint16_t pkey;
	uint32_t dqpn;
	uint32_t psn;
	uint32_t msn;	   /* AETH */
	uint32_t imm;	   /* ImmDt in network byte order, as the verbs hand it over */
	uint32_t inv_rkey; /* IETH */
	uint32_t qkey;	   /* DETH */
	uint32_t sqpn;	   /* DETH */
	uint32_t rkey;	   /* RETH, AtomicETH */
	uint32_t dmalen;   /* RETH */
	uint64_t va;	   /* RETH, AtomicETH */
	uint64_t swap_add; /* AtomicETH; AtomicAckETH's original value too */
	uint64_t compare;
	const uint8_t *payload; /* points into the packet */
	uint32_t payload_len;	/* without padding */
};

/* The reasons why a packet is refused. These values index the counters of malformed packets. */
enum pkt_error {
	PKT_OK = 0,
	PKT_ERR_SHORT,	 /* shorter than its headers and ICRC */
	PKT_ERR_OPCODE,	 /* the op-code does not exist */
	PKT_ERR_VERSION, /* TVer is not 0 */
	/*
	 * the padding is longer than the payload, the length is not a multiple of 4, or a response
	 * has payload that its op-code does not have
	 */
	PKT_ERR_PAD,
	PKT_ERR_ICRC,
	PKT_ERR_PKEY,
	PKT_ERR_QPN,	 /* the QP does not exist, or its state receives nothing */
	PKT_ERR_SOURCE,	 /* the source is not the peer of the QP */
	PKT_ERR_SERVICE, /* the op-code belongs to another service than the QP */
	PKT_ERR_QKEY,	 /* the Q_Key is not that of the QP */
	/*
	 * the destination is a multicast group without an attached QP, or the packet is not valid
	 * for multicast
	 */
	PKT_ERR_GROUP,
	PKT_ERR_COUNT
};

/* Returns a short text about the error. */
const char *pkt_error_str(enum pkt_error e);

/*
 * Parses BTH .. ICRC of `len` bytes. Copies every header field before it examines the field,
 * because a peer may change the memory. Reads no payload, does not verify the ICRC, and never reads
 * past `len`. Returns PKT_OK and fills *v, or returns the cause. With PKT_ERR_OPCODE the fields of
 * the BTH are filled.
 */
enum pkt_error pkt_parse(const uint8_t *bth, size_t len, struct pkt_view *v);

static inline void pkt_put_be32(uint8_t *p, uint32_t v)
{
	uint32_t be = htobe32(v);

	memcpy(p, &be, 4);
}

/* The builders write one header at `p` and return the first byte after it. */
static inline uint8_t *pkt_put_bth(uint8_t *p, uint8_t opcode, uint8_t flags, uint32_t dqpn,
				   bool ackreq, uint32_t psn)
{
	struct pkt_bth *h = (struct pkt_bth *)p;

	h->opcode = opcode;
	h->flags = flags;
	h->pkey = htobe16(PKT_PKEY_DEFAULT);
	/* the reserved byte and the number share a word */
	pkt_put_be32(p + 4, dqpn & PKT_QPN_MASK);
	pkt_put_be32(p + 8, (ackreq ? 0x80000000u : 0) | (psn & PKT_PSN_MASK));
	return p + sizeof(*h);
}

static inline uint8_t *pkt_put_reth(uint8_t *p, uint64_t va, uint32_t rkey, uint32_t len)
{
	struct pkt_reth *h = (struct pkt_reth *)p;

	h->va = htobe64(va);
	h->rkey = htobe32(rkey);
	h->len = htobe32(len);
	return p + sizeof(*h);
}

static inline uint8_t *pkt_put_atomic(uint8_t *p, uint64_t va, uint32_t rkey, uint64_t swap_add,
				      uint64_t compare)
{
	struct pkt_atomic_eth *h = (struct pkt_atomic_eth *)p;

	h->va = htobe64(va);
	h->rkey = htobe32(rkey);
	h->swap_add = htobe64(swap_add);
	h->compare = htobe64(compare);
	return p + sizeof(*h);
}

static inline uint8_t *pkt_put_aeth(uint8_t *p, uint8_t syndrome, uint32_t msn)
{
	struct pkt_aeth *h = (struct pkt_aeth *)p;

	h->syndrome = syndrome;
	pkt_put24(h->msn, msn);
	return p + sizeof(*h);
}

static inline uint8_t *pkt_put_be64(uint8_t *p, uint64_t v)
{
	uint64_t be = htobe64(v);

	memcpy(p, &be, 8);
	return p + 8;
}

/* Writes an ImmDt. `imm` is in network byte order, as in struct ibv_send_wr. */
static inline uint8_t *pkt_put_imm(uint8_t *p, uint32_t imm)
{
	memcpy(p, &imm, 4);
	return p + 4;
}

static inline uint8_t *pkt_put_ieth(uint8_t *p, uint32_t rkey)
{
	uint32_t be = htobe32(rkey);

	memcpy(p, &be, 4);
	return p + 4;
}

static inline uint8_t *pkt_put_deth(uint8_t *p, uint32_t qkey, uint32_t sqpn)
{
	struct pkt_deth *h = (struct pkt_deth *)p;

	h->qkey = htobe32(qkey);
	h->resv = 0;
	pkt_put24(h->sqpn, sqpn);
	return p + sizeof(*h);
}

/*
 * Prints one line without a newline, at most n bytes: op-code, QP, PSN, and the fields of the
 * extension headers. Returns the length of the whole line, as snprintf(3) does.
 */
int pkt_print(const struct pkt_view *v, char *buf, size_t n);

#endif
