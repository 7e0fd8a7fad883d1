/* SPDX-License-Identifier: BSD-2-Clause */
/* Options of an id, and the ECE of a QP that the program has created itself. */
#include "rdmacm/rdmacm.h"

#define ACK_TIMEOUT_MAX 31

static int set_flag(struct rdmacm_id *id, bool *flag, const void *value, size_t len)
{
	if (len != sizeof(int))
		return -EINVAL;
	/* These options affect binding, so they must be set before it. */
	if (id->state != RDMACM_IDLE && (id->state != RDMACM_BOUND || flag == &id->af_only))
		return -EINVAL;
	*flag = *(const int *)value != 0;
	id->af_only_set |= flag == &id->af_only;
	return 0;
}

static int set_id_option(struct rdmacm_id *id, int name, const void *value, size_t len)
{
	switch (name) {
	case RDMA_OPTION_ID_TOS:
		if (len != sizeof(uint8_t))
			return -EINVAL;
		id->tos = *(const uint8_t *)value;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
		return set_flag(id, &id->reuse_addr, value, len);
	case RDMA_OPTION_ID_AFONLY:
		return set_flag(id, &id->af_only, value, len);
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		if (len != sizeof(uint8_t) || *(const uint8_t *)value > ACK_TIMEOUT_MAX)
			return -EINVAL;
		id->ack_timeout = *(const uint8_t *)value;
		return 0;
	default:
		return -ENOSYS;
	}
}

/*
 * Takes a path that the program has found; the route is then resolved. Only the MTU and the traffic
 * class are used, because RoCE has no other attributes of a path.
 */
static int set_path(struct rdmacm_id *id, const struct ibv_path_data *path, size_t len)
{
	if (len == 0 || len % sizeof(*path))
		return -EINVAL;
	if (id->state != RDMACM_ADDR_RESOLVED)
		return -EINVAL;
	for (size_t i = 0; i < len / sizeof(*path); i++) {
		uint8_t mtu = path[i].path.mtu & 0x3f;

		if (!(path[i].flags & IBV_PATH_FLAG_PRIMARY))
			continue;
		id->tos = path[i].path.tclass;
		rdmacm_set_path(id);
		if (mtu >= IBV_MTU_256 && mtu < id->path.mtu)
			id->path.mtu = mtu;
		id->state = RDMACM_ROUTE_RESOLVED;
		return rdmacm_event_simple(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	}
	return -EINVAL;
}

ROOST_EXPORT int rdma_set_option(struct rdma_cm_id *pub, int level, int optname, void *optval,
				 size_t optlen)
{
	struct rdmacm_id *id = rdmacm_id(pub);
	int ret = -ENOSYS;

	rdmacm_lock();
	if (level == RDMA_OPTION_ID)
		ret = set_id_option(id, optname, optval, optlen);
	else if (level == RDMA_OPTION_IB && optname == RDMA_OPTION_IB_PATH)
		ret = set_path(id, optval, optlen);
	rdmacm_unlock();
	return rdmacm_ret(ret);
}

/*
 * Sets the ECE of a QP that the program has created itself. The library queries the QPs that it has
 * created.
 */
ROOST_EXPORT int rdma_set_local_ece(struct rdma_cm_id *pub, struct ibv_ece *ece)
{
	struct rdmacm_id *id = rdmacm_id(pub);

	if (!ece || !ece->vendor_id || ece->comp_mask || ece->vendor_id > 0xffffff || pub->qp)
		return rdmacm_ret(-EINVAL);
	rdmacm_lock();
	id->local_ece = *ece;
	rdmacm_unlock();
	return 0;
}

ROOST_EXPORT int rdma_get_remote_ece(struct rdma_cm_id *pub, struct ibv_ece *ece)
{
	struct rdmacm_id *id = rdmacm_id(pub);

	if (!ece || pub->qp)
		return rdmacm_ret(-EINVAL);
	rdmacm_lock();
	*ece = id->remote_ece;
	rdmacm_unlock();
	return 0;
}
