/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls on the wire: the head of a call's parameters, and the tail of its reply. Numbers are
 * little-endian.
 *
 *	parameters	| struct roost_rpc_head | the kernel's parameters |            one packet
 *
 *	reply buffer	|   ...not written...   | data | struct roost_rpc_tail |      by RDMA WRITE
 *			^ reply_addr                                            ^ reply_addr +
 * 										reply_len
 *
 * The tail is the last 8 bytes of the buffer, and the data end where it begins. So one WRITE
 * carries both, and the caller polls one address for data of any length. A kernel that sends data
 * in several pieces writes them from the front of the buffer (ROOST_RPC_FRONT), and then the tail
 * by a WRITE of its own.
 *
 * The tail is written last, in one packet. A caller that clears the tail before the call and then
 * finds the mark has the whole reply, and no packet of the reply is still to come. A caller that
 * polls memory aligns the tail: reply_addr + reply_len is a multiple of 8.
 */
#ifndef ROOST_RPC_H
#define ROOST_RPC_H

#include <stdint.h>

/*
 * Bytes of parameters behind the head: a packet of the largest path MTU less the head. A queue
 * pair's path MTU may be smaller.
 */
#define ROOST_RPC_MAX_PARAMS (4096 - 24)

enum roost_rpc_flags {
	/* the tail is a WRITE with immediate: `mark`, in network byte order */
	ROOST_RPC_IMM = 1 << 0,
	/* the next RPC WRITE with the same op-code is the payload of this call */
	ROOST_RPC_STREAM = 1 << 1,
	/*
	 * The whole reply buffer may be written. If the buffers of several calls adjoin, one WRITE
	 * may carry their replies. The caller's NIC must make its bytes visible in ascending order.
	 */
	ROOST_RPC_JOIN = 1 << 2,
};

struct roost_rpc_head {
	uint64_t reply_addr; /* the caller's buffer */
	uint32_t reply_rkey;
	uint32_t reply_len; /* its bytes, 8 to 2^31; 0: no reply */
	uint16_t mark;	    /* returned in the tail; identifies the call */
	uint16_t flags;	    /* enum roost_rpc_flags */
	uint32_t reserved;  /* 0 */
};

enum roost_rpc_status {
	ROOST_RPC_OK = 0,
	ROOST_RPC_NO_KERNEL = 1, /* no kernel has this op-code, and no fallback is set */
	/* the kernel refused the parameters, or the payload was cut short */
	ROOST_RPC_BAD_PARAMS = 2,
	/* an access was outside of the region that the call names, or not permitted */
	ROOST_RPC_ACCESS = 3,
	ROOST_RPC_TOO_LONG = 4, /* the reply does not fit; `len` is its length */
	ROOST_RPC_BOUND = 5,	/* the call reached its limit of steps or elements */
	ROOST_RPC_MISS = 6,	/* not found */
	ROOST_RPC_BUSY = 7,	/* the queue pair has a call with payload in progress */
	ROOST_RPC_FAILED = 8,	/* the kernel failed */
	ROOST_RPC_FAULT = 9,	/* a step crashed; the kernel is disabled */
	ROOST_RPC_STUCK = 10,	/* a step did not return; the kernel is disabled */
	/* the kernel was disabled by another call */
	ROOST_RPC_DISABLED = 11,
	ROOST_RPC_IDLE = 12, /* no payload arrived for ten seconds */
};

#define ROOST_RPC_FRONT 1 /* in roost_rpc_tail.flags: the data begin at reply_addr */

struct roost_rpc_tail {
	uint32_t len;	/* bytes of data */
	uint8_t status; /* enum roost_rpc_status; from 128 on the kernel's own */
	uint8_t flags;
	uint16_t mark;
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_rpc_head) == 24, "head of a call");
_Static_assert(sizeof(struct roost_rpc_tail) == 8, "tail of a reply");
#endif

#endif
