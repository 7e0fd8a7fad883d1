/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups by IP address. RoCE has no subnet manager to ask. A group is its IP address, and
 * a join attaches the QP. The result comes as an event, as programs expect.
 */
#include <stdlib.h>
#include <string.h>

#include "rdmacm/rdmacm.h"

#define MCAST_QPN 0xffffff
#define MCAST_LID 0xc000 /* RoCE has no LIDs; the API requires one of the multicast range */

struct group {
	struct list_head link;
	struct pkt_addr addr;
	void *context;
	bool attached;
};

static bool is_multicast(const struct pkt_addr *a)
{
	return pkt_addr_is_v4(a) ? a->b[12] >> 4 == 0xe : a->b[0] == 0xff;
}

static struct group *find(struct rdmacm_id *id, const struct pkt_addr *addr)
{
	struct group *g;

	list_for_each_entry (g, &id->groups, link) {
		if (pkt_addr_eq(&g->addr, addr))
			return g;
	}
	return NULL;
}

static int attach(struct rdmacm_id *id, struct group *g)
{
	union ibv_gid gid;
	int ret;

	memcpy(gid.raw, g->addr.b, sizeof(gid.raw));
	ret = ibv_attach_mcast(id->id.qp, &gid, MCAST_LID);
	g->attached = ret == 0;
	return -ret;
}

static void leave(struct rdmacm_id *id, struct group *g)
{
	union ibv_gid gid;

	memcpy(gid.raw, g->addr.b, sizeof(gid.raw));
	if (g->attached && id->id.qp && id->state != RDMACM_DEAD)
		ibv_detach_mcast(id->id.qp, &gid, MCAST_LID);
	list_del(&g->link);
	free(g);
}

static int report_join(struct rdmacm_id *id, const struct group *g, int status)
{
	struct rdmacm_event *e = rdmacm_event_new(
		id, id, status ? RDMA_CM_EVENT_MULTICAST_ERROR : RDMA_CM_EVENT_MULTICAST_JOIN);
	struct rdma_ud_param *ud;

	if (!e)
		return -ENOMEM;
	ud = &e->event.param.ud;
	e->event.status = status;
	ud->private_data = g->context;
	rdmacm_fill_ah(id, &ud->ah_attr);
	memcpy(ud->ah_attr.grh.dgid.raw, g->addr.b, sizeof(ud->ah_attr.grh.dgid.raw));
	ud->qp_num = MCAST_QPN;
	ud->qkey = RDMA_UDP_QKEY;
	rdmacm_event_raise(e);
	return 0;
}

static int join(struct rdmacm_id *id, const struct sockaddr *sa, uint32_t flags, void *context)
{
	struct pkt_addr addr;
	struct group *g;
	uint16_t port;
	int ret = rdmacm_addr_from(sa, &addr, &port);

	if (ret)
		return ret;
	if (!id->id.verbs || !rdmacm_is_ud(id) || id->state == RDMACM_DEAD ||
	    !is_multicast(&addr) || flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return -EINVAL;
	if (find(id, &addr))
		return -EADDRINUSE;
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	g->addr = addr;
	g->context = context;
	/* A member that only sends attaches no QP, and an id without a QP has none to attach. */
	if (id->id.qp && flags == RDMA_MC_JOIN_FLAG_FULLMEMBER)
		ret = attach(id, g);
	list_add_tail(&g->link, &id->groups);
	return report_join(id, g, ret);
}

static int join_and_wait(struct rdma_cm_id *pub, const struct sockaddr *sa, uint32_t flags,
			 void *context)
{
	struct rdmacm_id *id = rdmacm_id(pub);
	int ret;

	rdmacm_lock();
	ret = join(id, sa, flags, context);
	rdmacm_unlock();
	if (ret == 0)
		ret = rdmacm_complete(id);
	return rdmacm_ret(ret);
}

ROOST_EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	return join_and_wait(id, addr, RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
}

ROOST_EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
					void *context)
{
	const uint32_t both = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

	if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED || (attr->comp_mask & both) != both)
		return rdmacm_ret(-EINVAL);
	return join_and_wait(id, attr->addr, attr->join_flags, context);
}

ROOST_EXPORT int rdma_leave_multicast(struct rdma_cm_id *pub, struct sockaddr *sa)
{
	struct rdmacm_id *id = rdmacm_id(pub);
	struct pkt_addr addr;
	struct group *g;
	uint16_t port;
	int ret = rdmacm_addr_from(sa, &addr, &port);

	if (ret)
		return rdmacm_ret(ret);
	rdmacm_lock();
	g = find(id, &addr);
	if (g) {
		/* The program may free the context of the group, which its event names. */
		rdmacm_events_drop_group(id, &addr);
		leave(id, g);
	}
	rdmacm_unlock();
	return rdmacm_ret(g ? 0 : -EADDRNOTAVAIL);
}

void rdmacm_leave_all(struct rdmacm_id *id)
{
	struct group *g, *tmp;

	list_for_each_entry_safe (g, tmp, &id->groups, link)
		leave(id, g);
}
