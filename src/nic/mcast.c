/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast (IBA 10.5): groups, and the UD QPs attached to them. A packet to a group has a reserved
 * QP number. Each QP attached to its destination address gets a copy, the sender's own QP too (as
 * in rxe: rxe_rcv_mcast_pkt()).
 *
 * Each PU has a table for its own QPs, and its lanes of the ports join the groups in it. Every lane
 * gets its own copies from the network, so no PU accesses another PU. If several addresses of a
 * port number are on the same network, one of them joins. Tables change on the control path, with
 * the PU owned.
 */
#include <stdlib.h>

#include "nic/datagram.h"

static struct list_head *bucket(struct pu *pu, const struct pkt_addr *a)
{
	uint64_t w[2];

	memcpy(w, a->b, sizeof(w));
	w[0] = (w[0] ^ w[1]) * 0x9e3779b97f4a7c15ull;
	return &pu->groups[w[0] >> 58 & (GROUP_BUCKETS - 1)];
}

static struct nic_group *group_find(struct pu *pu, uint8_t port_num, const struct pkt_addr *addr)
{
	struct list_head *head = bucket(pu, addr), *l;

	list_for_each (l, head) {
		struct nic_group *g = list_entry(l, struct nic_group, link);

		if (pkt_addr_eq(&g->addr, addr) && g->port_num == port_num)
			return g;
	}
	return NULL;
}

/* ---- receiving ---- */

static bool can_receive(const struct nic_qp *qp)
{
	return qp->state >= NIC_QPS_RTR && qp->state != NIC_QPS_ERR;
}

enum pkt_error mcast_rx(struct pu *pu, struct pu_port *pp, struct port_pkt *pkt,
			const struct pkt_view *v)
{
	struct nic_group *g = group_find(pu, pp->num, pkt->dst);

	if (v->op->service != PKT_UD)
		return PKT_ERR_SERVICE;
	if (!g)
		return PKT_ERR_GROUP;
	if (!rx_icrc_right(rx_ud_flow(pp, pkt), pkt))
		return PKT_ERR_ICRC;
	for (uint32_t i = 0; i < g->count; i++) {
		struct nic_qp *qp = g->qp[i];

		if (!can_receive(qp) || qp->attr.port != pp->num)
			continue;
		pu->ctr.rx_multicast++;
		ud_rx(qp, v, pkt);
	}
	return PKT_OK;
}

/* ---- attaching ---- */

/* Returns the number of members on all PUs; 0: the group does not exist. */
static uint32_t members(struct nic *nic, uint8_t port_num, const struct pkt_addr *addr)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < nic->cfg.pus; i++) {
		struct nic_group *g = group_find(nic->pus[i], port_num, addr);

		n += g ? g->count : 0;
	}
	return n;
}

static int index_of(const struct nic_group *g, const struct nic_qp *qp)
{
	for (uint32_t i = 0; i < g->count; i++)
		if (g->qp[i] == qp)
			return (int)i;
	return -1;
}

/*
 * Returns the ports that must join: the ports of the group's port number and family, one for each
 * medium.
 */
static uint32_t ports_to_join(struct pu *pu, const struct nic_group *g)
{
	uint32_t ports = 0;

	for (unsigned p = 0; p < port_count(pu->nic); p++) {
		const struct port *port = pu->ports[p].port;
		bool covered = false;

		if (pu->ports[p].num != g->port_num ||
		    pkt_addr_is_v4(&port->addr) != pkt_addr_is_v4(&g->addr))
			continue;
		for (unsigned q = 0; q < p && port->medium; q++)
			covered |= ports >> q & 1 && pu->ports[q].port->medium == port->medium;
		if (!covered)
			ports |= 1u << p;
	}
	return ports;
}

static void leave(struct pu *pu, struct nic_group *g, uint32_t ports)
{
	for (unsigned p = 0; p < NIC_MAX_PORTS; p++) {
		if (ports >> p & 1)
			pu->ports[p].port->ops->leave(pu->ports[p].port, &g->addr);
	}
	g->joined &= ~ports;
}

/* Joins with all ports that are not yet members, or with none if one fails. */
static int join(struct pu *pu, struct nic_group *g)
{
	uint32_t want = ports_to_join(pu, g), done = 0;

	if (!want)
		return -EAFNOSUPPORT;
	for (unsigned p = 0; p < NIC_MAX_PORTS; p++) {
		int rc;

		if (!(want >> p & 1) || g->joined >> p & 1)
			continue;
		rc = pu->ports[p].port->ops->join(pu->ports[p].port, &g->addr);
		if (rc) {
			leave(pu, g, done);
			return rc;
		}
		done |= 1u << p;
		g->joined |= 1u << p;
	}
	return 0;
}

static struct nic_group *group_new(struct pu *pu, uint8_t port_num, const struct pkt_addr *addr)
{
	struct nic_group *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->addr = *addr;
	g->port_num = port_num;
	list_add_tail(&g->link, bucket(pu, addr));
	return g;
}

static void group_drop(struct pu *pu, struct nic_group *g)
{
	leave(pu, g, g->joined);
	list_del(&g->link);
	free(g);
}

int nic_qp_attach(struct nic *nic, struct nic_qp *qp, const struct pkt_addr *addr)
{
	uint8_t port_num = qp->attr.port ? qp->attr.port : 1;
	struct nic_group *g;
	uint32_t there;
	int rc;

	if (qp->type != NIC_QPT_UD || !pkt_addr_is_group(addr))
		return -EINVAL;
	g = group_find(qp->pu, port_num, addr);
	if (g && index_of(g, qp) >= 0)
		return join(qp->pu, g);
	there = members(nic, port_num, addr);
	if (there == NIC_MAX_GROUP_QPS || (!there && nic->num_groups == NIC_MAX_GROUPS))
		return -ENOSPC;
	if (!g)
		g = group_new(qp->pu, port_num, addr);
	if (!g)
		return -ENOMEM;
	rc = join(qp->pu, g);
	if (rc) {
		if (!g->count)
			group_drop(qp->pu, g);
		return rc;
	}
	nic->num_groups += !there;
	g->qp[g->count++] = qp;
	qp->groups++;
	return 0;
}

static void detach(struct nic_qp *qp, struct nic_group *g, int i)
{
	struct nic *nic = qp->nic;

	g->qp[i] = g->qp[--g->count];
	qp->groups--;
	if (g->count)
		return;
	nic->num_groups -= !members(nic, g->port_num, &g->addr);
	group_drop(qp->pu, g);
}

int nic_qp_detach(struct nic *nic, struct nic_qp *qp, const struct pkt_addr *addr)
{
	/* The QP may have had another port number when it was attached. */
	for (unsigned num = 1; num <= nic->cfg.ports; num++) {
		struct nic_group *g = group_find(qp->pu, (uint8_t)num, addr);
		int i = g ? index_of(g, qp) : -1;

		if (i < 0)
			continue;
		detach(qp, g, i);
		return 0;
	}
	return -ENOENT;
}

void mcast_detach_all(struct nic_qp *qp)
{
	for (unsigned b = 0; qp->groups && b < GROUP_BUCKETS; b++) {
		struct list_head *l = qp->pu->groups[b].next, *next;

		for (; l != &qp->pu->groups[b]; l = next) {
			struct nic_group *g = list_entry(l, struct nic_group, link);
			int i = index_of(g, qp);

			next = l->next;
			if (i >= 0)
				detach(qp, g, i);
		}
	}
}

uint32_t nic_qp_groups(const struct nic_qp *qp)
{
	return qp->groups;
}
