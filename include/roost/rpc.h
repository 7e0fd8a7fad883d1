/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls on the wire: what stands at the head of a call's parameters, and at the end of its reply.
 * All little-endian.
 *
 *	parameters	| struct roost_rpc_head | what the kernel wants to know |      one packet
 *
 *	reply buffer	|   ...not touched...   | data | struct roost_rpc_tail |      by RDMA WRITE
 *			^ reply_addr                                            ^ reply_addr +
 * 										reply_len
 *
 * The data of a reply end where its last 8 bytes begin, so that one WRITE carries both and the
 * caller looks at one place, whatever the length. A kernel that sends its data in several pieces
 * puts them at the front of the buffer (ROOST_RPC_FRONT), and the tail in a WRITE of its own behind
 * them.
 *
 * The tail comes last, and in one packet, so whoever finds the mark in a tail that was without has
 * the whole reply, and nothing of it is still to come. Polled memory wants a tail that is aligned:
 * reply_addr + reply_len a multiple of 8.
 */
#ifndef ROOST_RPC_H
#define ROOST_RPC_H

#include <stdint.h>

/*
 * Parameters behind the head: a packet of the largest path MTU less the head. A QP's own path MTU
 * may be smaller.
 */
#define ROOST_RPC_MAX_PARAMS (4096 - 24)

enum roost_rpc_flags {
	/* the tail comes as WRITE with immediate: `mark`, in network byte order */
	ROOST_RPC_IMM = 1 << 0,
	/* payload follows: the next RPC WRITE with the same op-code belongs to this call */
	ROOST_RPC_STREAM = 1 << 1,
};

struct roost_rpc_head {
	uint64_t reply_addr; /* the caller's buffer; its end is best aligned to 8 */
	uint32_t reply_rkey;
	uint32_t reply_len; /* bytes of it, 8 to 2^31; 0: no reply is wanted */
	uint16_t mark;	    /* comes back in the tail: tells this call's reply from others */
	uint16_t flags;	    /* enum roost_rpc_flags */
	uint32_t reserved;  /* 0 */
};

enum roost_rpc_status {
	ROOST_RPC_OK = 0,
	ROOST_RPC_NO_KERNEL = 1, /* no kernel has this op-code, and there is no fallback */
	/* they make no sense to the kernel; or a stream that was broken off */
	ROOST_RPC_BAD_PARAMS = 2,
	/* an access outside of the region that the call names, or without the right to it */
	ROOST_RPC_ACCESS = 3,
	ROOST_RPC_TOO_LONG = 4, /* the reply does not fit: `len` is what there was to send */
	ROOST_RPC_BOUND = 5,	/* the call, or what it walked along, went on for too long */
	ROOST_RPC_MISS = 6,	/* what was looked for is not there */
	ROOST_RPC_BUSY = 7,	/* the QP has a stream open already */
	ROOST_RPC_FAILED = 8,	/* the kernel gave up */
	ROOST_RPC_FAULT = 9,	/* a step of the kernel crashed: it is out of service */
	ROOST_RPC_STUCK = 10,	/* a step of the kernel did not return: it is out of service */
	/* the kernel is out of service, since another call had one of the two above */
	ROOST_RPC_DISABLED = 11,
	ROOST_RPC_IDLE = 12, /* nothing came of its payload for ten seconds */
};

#define ROOST_RPC_FRONT 1 /* of roost_rpc_tail.flags: the data begin at reply_addr */

struct roost_rpc_tail {
	uint32_t len;	/* bytes of data */
	uint8_t status; /* enum roost_rpc_status, or a kernel's own from 128 on */
	uint8_t flags;
	uint16_t mark;
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_rpc_head) == 24, "head of a call");
_Static_assert(sizeof(struct roost_rpc_tail) == 8, "tail of a reply");
#endif

#endif
