/* SPDX-License-Identifier: BSD-2-Clause */
/* Kernel work requests, beside the work requests of the program. */
#ifndef ROOST_NIC_NIC_KERNEL_WR_H
#define ROOST_NIC_NIC_KERNEL_WR_H

#include "nic/nic.h"

/*
 * The most kernel work requests outstanding per QP. They take no space from the program's work
 * requests.
 */
#define NIC_MAX_KERNEL_WRS 64

/*
 * Lets kernels post to an RC QP for the rest of its life. The QP may be in any state and have work
 * in flight. Returns 0, -EOPNOTSUPP or -ENOMEM. [control+owner]
 */
int nic_qp_enable_kernel_wrs(struct nic *nic, struct nic_qp *qp);

struct nic_kernel_wr {
	void *owner; /* owner and number are passed to kernel_wr_done() */
	uint32_t number;
	/* ROOST_OP_READ, _WRITE, _SEND, _WRITE_IMM, _SEND_IMM, _CMP_SWAP, _FETCH_ADD */
	uint8_t op;
	bool solicited; /* the solicited event bit */
	uint32_t rkey;
	uint32_t imm; /* network byte order */
	uint64_t raddr;
	uint64_t compare, swap_add;
	uint32_t len; /* 8 for an atomic, which stores the old value in buf or at va */
	uint32_t key;
	/*
	 * The kernel's memory. It must not change until kernel_wr_done(). NULL: the data are at va
	 * in the region with this key, which is in the QP's protection domain and needs the rights
	 * of a work request.
	 */
	void *buf;
	uint64_t va;
};
/*
 * Posts a work request behind the work requests that the NIC has taken. If it returns 0,
 * kernel_wr_done() is called once. [owner] Errors, after which kernel_wr_done() is not called:
 *  -EAGAIN    NIC_MAX_KERNEL_WRS are outstanding
 *  -ENOTCONN  the QP does not send in its state
 *  -EACCES    the region does not allow the access
 *  -EINVAL    not enabled; too long; unaligned atomic; READ or atomic with max_rd_atomic 0
 */
int nic_post_kernel_wr(struct nic_qp *qp, const struct nic_kernel_wr *a);
/* Returns the number of kernel work requests outstanding. [owner] */
unsigned nic_kernel_wrs(const struct nic_qp *qp);

#endif
