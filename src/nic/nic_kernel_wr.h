/* SPDX-License-Identifier: BSD-2-Clause */
/* Kernel work requests, beside the work requests of the program. */
#ifndef ROOST_NIC_NIC_KERNEL_WR_H
#define ROOST_NIC_NIC_KERNEL_WR_H

#include "nic/nic.h"

/* Outstanding per QP, at most. They take no space from the program's work requests. */
#define NIC_MAX_KERNEL_WRS 64

/*
 * Lets kernels post to an RC QP, in any state, with work in flight or not; it stays enabled. 0,
 * -EOPNOTSUPP, -ENOMEM. [control+owner]
 */
int nic_qp_enable_kernel_wrs(struct nic *nic, struct nic_qp *qp);

struct nic_kernel_wr {
	void *owner; /* owner and number are passed to kernel_wr_done() */
	uint32_t number;
	/* ROOST_OP_READ, _WRITE, _SEND, _WRITE_IMM, _SEND_IMM, _CMP_SWAP, _FETCH_ADD */
	uint8_t op;
	bool solicited; /* the solicited event bit */
	uint32_t rkey;
	uint32_t imm; /* in network byte order */
	uint64_t raddr;
	uint64_t compare, swap_add;
	uint32_t len; /* 8 for an atomic, which stores the old value */
	uint32_t key;
	/*
	 * unchanged until kernel_wr_done(); NULL: va in a region of the QP's protection domain,
	 * with the rights of a work request
	 */
	void *buf;
	uint64_t va;
};
/*
 * Posts a work request behind those that the NIC has taken. After 0, kernel_wr_done() is called
 * once; after an error it is not. [owner] Errors:
 *  -EAGAIN    NIC_MAX_KERNEL_WRS are outstanding
 *  -ENOTCONN  the QP does not send in its state
 *  -EACCES    the region does not allow the access
 *  -EINVAL    not enabled; too long; unaligned atomic; READ or atomic with max_rd_atomic 0
 */
int nic_post_kernel_wr(struct nic_qp *qp, const struct nic_kernel_wr *a);
unsigned nic_kernel_wrs(const struct nic_qp *qp); /* outstanding ones. [owner] */

#endif
