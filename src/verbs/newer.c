/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small verbs that are newer than rdma-core 44, with whose headers this library is built. Programs
 * built elsewhere call them. This file declares their types as newer headers do, but under other
 * names, because the headers of the machine may have them too.
 */
#include "verbs/objects.h"

/*
 * struct ibv_mr_init_attr of rdma-core 60. Members whose bit is not in comp_mask are not read; they
 * may lie outside of older structs.
 */
struct verbs_mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};

#define REG_MR_IOVA (1u << 0)
#define REG_MR_ADDR (1u << 1)

struct ibv_mr *verbs_reg_mr_ex(struct ibv_pd *pd,
			       struct verbs_mr_init_attr *attr) __asm__("ibv_reg_mr_ex");
int verbs_query_port_speed(struct ibv_context *context, uint32_t port_num,
			   uint64_t *port_speed) __asm__("ibv_query_port_speed");

/*
 * Registers memory by address, optionally with an iova that the program chooses. Fails with
 * EOPNOTSUPP for a DMA-buf (fd), a DMA handle, or a buffer of the provider.
 */
VERBS_EXPORT struct ibv_mr *verbs_reg_mr_ex(struct ibv_pd *pd, struct verbs_mr_init_attr *attr)
{
	uint64_t iova;

	if (attr->comp_mask & ~(uint64_t)(REG_MR_IOVA | REG_MR_ADDR))
		return verbs_null(EOPNOTSUPP);
	if (!(attr->comp_mask & REG_MR_ADDR))
		return verbs_null(EINVAL);
	iova = attr->comp_mask & REG_MR_IOVA ? attr->iova : (uintptr_t)attr->addr;
	return ibv_reg_mr_iova2(pd, attr->addr, attr->length, iova, (unsigned)attr->access);
}

#define PORT_SPEED 400 /* units of 100 Mbit/s; 4 lanes of 10 Gbit/s, as ibv_query_port() reports */

VERBS_EXPORT int verbs_query_port_speed(struct ibv_context *context, uint32_t port_num,
					uint64_t *port_speed)
{
	if (!port_num || port_num > nic_port_nums(verbs_ctx(context)->nic))
		return verbs_ret(-EINVAL);
	*port_speed = PORT_SPEED;
	return 0;
}
