/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups of UD queue pairs. A group's GID is its IP address, as in the Linux kernel's
 * RDMA CM (drivers/infiniband/core/cma.c, cma_iboe_set_mgid): ::ffff:a.b.c.d for IPv4, the address
 * itself for IPv6. RoCE does not use the LID.
 */
#include <string.h>

#include "verbs/objects.h"

static int call(struct ibv_qp *ibqp, const union ibv_gid *gid,
		int (*fn)(struct nic *nic, struct nic_qp *qp, const struct pkt_addr *group))
{
	struct verbs_qp *qp = verbs_qp(ibqp);
	struct pkt_addr group;
	int ret;

	memcpy(group.b, gid->raw, sizeof(group.b));
	drive_control_lock(qp->drive);
	drive_own(qp->drive, qp->pu);
	ret = fn(drive_nic(qp->drive), qp->nic_qp, &group);
	drive_disown(qp->drive, qp->pu);
	drive_control_unlock(qp->drive);
	return ret;
}

/* A second attach has no effect, as in the Linux kernel (ib_uverbs_attach_mcast()). */
VERBS_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return verbs_ret(call(qp, gid, nic_qp_attach));
}

VERBS_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	int ret = call(qp, gid, nic_qp_detach);

	return verbs_ret(ret == -ENOENT ? -EINVAL : ret); /* the Linux kernel's error */
}
