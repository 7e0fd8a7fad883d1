/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The op-code table, the only definition of RoCE v2 op-codes. The code that builds, parses, prints
 * and checks packets uses it, and so do the tests.
 */
#ifndef ROOST_PACKET_OPCODE_H
#define ROOST_PACKET_OPCODE_H

#include <stdint.h>

/* Upper three bits of the op-code: the transport service. */
enum pkt_service {
	PKT_RC = 0x00,
	PKT_UC = 0x20,
	PKT_RD = 0x40,
	PKT_UD = 0x60,
	PKT_CNP_SERVICE = 0x80,
};

#define PKT_SERVICE_MASK 0xe0

/* Lower five bits. Add a service to get the byte on the wire (PKT_RC is 0). */
enum pkt_opcode {
	PKT_SEND_FIRST = 0x00,
	PKT_SEND_MIDDLE = 0x01,
	PKT_SEND_LAST = 0x02,
	PKT_SEND_LAST_IMM = 0x03,
	PKT_SEND_ONLY = 0x04,
	PKT_SEND_ONLY_IMM = 0x05,
	PKT_WRITE_FIRST = 0x06,
	PKT_WRITE_MIDDLE = 0x07,
	PKT_WRITE_LAST = 0x08,
	PKT_WRITE_LAST_IMM = 0x09,
	PKT_WRITE_ONLY = 0x0a,
	PKT_WRITE_ONLY_IMM = 0x0b,
	PKT_READ_REQUEST = 0x0c,
	PKT_READ_RESP_FIRST = 0x0d,
	PKT_READ_RESP_MIDDLE = 0x0e,
	PKT_READ_RESP_LAST = 0x0f,
	PKT_READ_RESP_ONLY = 0x10,
	PKT_ACK = 0x11,
	PKT_ATOMIC_ACK = 0x12,
	PKT_CMP_SWAP = 0x13,
	PKT_FETCH_ADD = 0x14,
	PKT_SEND_LAST_INV = 0x16,
	PKT_SEND_ONLY_INV = 0x17,
	/*
	 * The op-codes of StRoM. They are valid only on a QP whose two ends agreed to them
	 * (docs/kernels.md).
	 */
	PKT_RPC_PARAMS = 0x18,
	PKT_RPC_WRITE_FIRST = 0x19,
	PKT_RPC_WRITE_MIDDLE = 0x1a,
	PKT_RPC_WRITE_LAST = 0x1b,
	PKT_RPC_WRITE_ONLY = 0x1c,
	/*
	 * An op-code of Roost: a calculation on 8 bytes, valid only on a QP whose two ends agreed
	 * to it (docs/wire.md). Its AtomicETH has an enum pkt_calc in the field `compare`.
	 */
	PKT_CALC = 0x1e,
	/*
	 * The congestion notification packet. This is a whole byte, not a service plus five bits.
	 */
	PKT_CNP = 0x81,
};

/* The function of a PKT_CALC. The responder stores function(value, swap) and returns the value. */
enum pkt_calc {
	PKT_CALC_ADD = 0,
	PKT_CALC_MAX = 1, /* unsigned */
	PKT_CALC_MIN = 2,
	PKT_CALC_MAX_SIGNED = 3,
	PKT_CALC_MIN_SIGNED = 4,
	PKT_CALC_AND = 5,
	PKT_CALC_OR = 6,
	PKT_CALC_XOR = 7,
	PKT_CALCS
};

/* The kind of a packet, regardless of its place in the message. */
enum pkt_kind {
	PKT_KIND_NONE = 0, /* op-code unknown */
	PKT_KIND_SEND,
	PKT_KIND_WRITE,
	PKT_KIND_READ_REQ,
	PKT_KIND_READ_RESP,
	PKT_KIND_ACK,
	PKT_KIND_ATOMIC,
	PKT_KIND_ATOMIC_ACK,
	PKT_KIND_RPC,
	PKT_KIND_RPC_WRITE,
	PKT_KIND_CNP,
};

enum pkt_op_flags {
	PKT_FIRST = 1 << 0, /* the packet starts a message (ONLY has both) */
	PKT_LAST = 1 << 1,  /* the packet ends a message */
	PKT_REQUEST = 1 << 2,
	PKT_RESPONSE = 1 << 3,
	PKT_PAYLOAD = 1 << 4, /* the packet may carry payload */
	/* extension headers, in the order on the wire */
	PKT_DETH = 1 << 5,
	PKT_RETH = 1 << 6,
	PKT_ATOMIC_ETH = 1 << 7,
	PKT_AETH = 1 << 8,
	PKT_ATOMIC_ACK_ETH = 1 << 9,
	PKT_IMM = 1 << 10,
	PKT_IETH = 1 << 11,
	PKT_CNP_PAD = 1 << 12,	  /* 16 reserved bytes of a CNP */
	PKT_NEEDS_RPC = 1 << 13,  /* only valid on a QP with RPC */
	PKT_NEEDS_CALC = 1 << 14, /* only valid on a QP with calculations */
};

struct pkt_op {
	const char *name; /* "RC_SEND_FIRST", the spelling of tshark and rxe; NULL: unknown */
	uint16_t flags;	  /* enum pkt_op_flags */
	uint8_t kind;	  /* enum pkt_kind */
	uint8_t service;  /* enum pkt_service */
	uint8_t hdr_len;  /* BTH and extension headers, bytes */
};

/* The op-codes, by the op-code byte of the BTH. Undefined entries have the kind PKT_KIND_NONE. */
extern const struct pkt_op pkt_ops[256];

#endif
