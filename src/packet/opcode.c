/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The op-code table. It has a row for each value of the op-code byte of a BTH; op-codes without a
 * name are refused.
 *
 * Sources: InfiniBand Architecture Specification, volume 1, table of BTH op-codes (9.2.1), annex
 * A17 (CNP); StRoM (EuroSys '20), section 5, for 0x18..0x1c; docs/wire.md for 0x1e.
 */
#include "packet/headers.h"

#define HDR_LEN(f)                                                                                 \
	(sizeof(struct pkt_bth) + ((f)&PKT_DETH ? sizeof(struct pkt_deth) : 0) +                   \
	 ((f)&PKT_RETH ? sizeof(struct pkt_reth) : 0) +                                            \
	 ((f)&PKT_ATOMIC_ETH ? sizeof(struct pkt_atomic_eth) : 0) +                                \
	 ((f)&PKT_AETH ? sizeof(struct pkt_aeth) : 0) + ((f)&PKT_ATOMIC_ACK_ETH ? 8 : 0) +         \
	 ((f)&PKT_IMM ? 4 : 0) + ((f)&PKT_IETH ? 4 : 0) + ((f)&PKT_CNP_PAD ? 16 : 0))

#define ROW(n, k, s, f)                                                                            \
	{                                                                                          \
		.name = n, .flags = (f), .kind = PKT_KIND_##k, .service = PKT_##s,                 \
		.hdr_len = HDR_LEN(f)                                                              \
	}

#define ONLY (PKT_FIRST | PKT_LAST)
/* Requests and responses with payload. */
#define REQ  (PKT_REQUEST | PKT_PAYLOAD)
#define RESP (PKT_RESPONSE | PKT_PAYLOAD)

/* RC and UC share the rows of SEND and WRITE. */
#define SEND_AND_WRITE(S)                                                                          \
	[PKT_##S + PKT_SEND_FIRST] = ROW(#S "_SEND_FIRST", SEND, S, REQ | PKT_FIRST),              \
		   [PKT_##S + PKT_SEND_MIDDLE] = ROW(#S "_SEND_MIDDLE", SEND, S, REQ),             \
		   [PKT_##S + PKT_SEND_LAST] = ROW(#S "_SEND_LAST", SEND, S, REQ | PKT_LAST),      \
		   [PKT_##S + PKT_SEND_LAST_IMM] =                                                 \
			   ROW(#S "_SEND_LAST_IMM", SEND, S, REQ | PKT_LAST | PKT_IMM),            \
		   [PKT_##S + PKT_SEND_ONLY] = ROW(#S "_SEND_ONLY", SEND, S, REQ | ONLY),          \
		   [PKT_##S + PKT_SEND_ONLY_IMM] =                                                 \
			   ROW(#S "_SEND_ONLY_IMM", SEND, S, REQ | ONLY | PKT_IMM),                \
		   [PKT_##S + PKT_WRITE_FIRST] =                                                   \
			   ROW(#S "_WRITE_FIRST", WRITE, S, REQ | PKT_FIRST | PKT_RETH),           \
		   [PKT_##S + PKT_WRITE_MIDDLE] = ROW(#S "_WRITE_MIDDLE", WRITE, S, REQ),          \
		   [PKT_##S + PKT_WRITE_LAST] = ROW(#S "_WRITE_LAST", WRITE, S, REQ | PKT_LAST),   \
		   [PKT_##S + PKT_WRITE_LAST_IMM] =                                                \
			   ROW(#S "_WRITE_LAST_IMM", WRITE, S, REQ | PKT_LAST | PKT_IMM),          \
		   [PKT_##S + PKT_WRITE_ONLY] =                                                    \
			   ROW(#S "_WRITE_ONLY", WRITE, S, REQ | ONLY | PKT_RETH),                 \
		   [PKT_##S + PKT_WRITE_ONLY_IMM] =                                                \
			   ROW(#S "_WRITE_ONLY_IMM", WRITE, S, REQ | ONLY | PKT_RETH | PKT_IMM)

const struct pkt_op pkt_ops[256] = {
	SEND_AND_WRITE(RC),
	[PKT_READ_REQUEST] = ROW("RC_READ_REQ", READ_REQ, RC, PKT_REQUEST | ONLY | PKT_RETH),
	[PKT_READ_RESP_FIRST] =
		ROW("RC_READ_RESP_FIRST", READ_RESP, RC, RESP | PKT_FIRST | PKT_AETH),
	[PKT_READ_RESP_MIDDLE] = ROW("RC_READ_RESP_MIDDLE", READ_RESP, RC, RESP),
	[PKT_READ_RESP_LAST] = ROW("RC_READ_RESP_LAST", READ_RESP, RC, RESP | PKT_LAST | PKT_AETH),
	[PKT_READ_RESP_ONLY] = ROW("RC_READ_RESP_ONLY", READ_RESP, RC, RESP | ONLY | PKT_AETH),
	[PKT_ACK] = ROW("RC_ACK", ACK, RC, PKT_RESPONSE | ONLY | PKT_AETH),
	[PKT_ATOMIC_ACK] = ROW("RC_ATOMIC_ACK", ATOMIC_ACK, RC,
			       PKT_RESPONSE | ONLY | PKT_AETH | PKT_ATOMIC_ACK_ETH),
	[PKT_CMP_SWAP] = ROW("RC_CMP_SWAP", ATOMIC, RC, PKT_REQUEST | ONLY | PKT_ATOMIC_ETH),
	[PKT_FETCH_ADD] = ROW("RC_FETCH_ADD", ATOMIC, RC, PKT_REQUEST | ONLY | PKT_ATOMIC_ETH),
	[PKT_SEND_LAST_INV] = ROW("RC_SEND_LAST_INV", SEND, RC, REQ | PKT_LAST | PKT_IETH),
	[PKT_SEND_ONLY_INV] = ROW("RC_SEND_ONLY_INV", SEND, RC, REQ | ONLY | PKT_IETH),

	[PKT_RPC_PARAMS] = ROW("RC_RPC_PARAMS", RPC, RC, REQ | ONLY | PKT_RETH | PKT_NEEDS_RPC),
	[PKT_RPC_WRITE_FIRST] = ROW("RC_RPC_WRITE_FIRST", RPC_WRITE, RC,
				    REQ | PKT_FIRST | PKT_RETH | PKT_NEEDS_RPC),
	[PKT_RPC_WRITE_MIDDLE] = ROW("RC_RPC_WRITE_MIDDLE", RPC_WRITE, RC, REQ | PKT_NEEDS_RPC),
	[PKT_RPC_WRITE_LAST] =
		ROW("RC_RPC_WRITE_LAST", RPC_WRITE, RC, REQ | PKT_LAST | PKT_NEEDS_RPC),
	[PKT_RPC_WRITE_ONLY] =
		ROW("RC_RPC_WRITE_ONLY", RPC_WRITE, RC, REQ | ONLY | PKT_RETH | PKT_NEEDS_RPC),
	[PKT_CALC] =
		ROW("RC_CALC", ATOMIC, RC, PKT_REQUEST | ONLY | PKT_ATOMIC_ETH | PKT_NEEDS_CALC),

	SEND_AND_WRITE(UC),

	[PKT_UD + PKT_SEND_ONLY] = ROW("UD_SEND_ONLY", SEND, UD, REQ | ONLY | PKT_DETH),
	[PKT_UD + PKT_SEND_ONLY_IMM] =
		ROW("UD_SEND_ONLY_IMM", SEND, UD, REQ | ONLY | PKT_DETH | PKT_IMM),

	/*
	 * A CNP is neither request nor response: it has no PSN of a stream and is never answered.
	 */
	[PKT_CNP] = ROW("CNP", CNP, CNP_SERVICE, ONLY | PKT_CNP_PAD),
};
