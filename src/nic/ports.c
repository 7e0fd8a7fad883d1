/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ports of the NIC, and the GID tables of programs. A port of the core is one address with
 * lanes. A port number of the verbs has a table of such addresses:
 *
 *	ports	0: 10.0.0.1   1: fd00::1   2: 10.0.0.2   3: 10.0.0.3
 *	port 1	GID 0 ----------------------> GID 1 -----> GID 2
 *	port 2		      GID 0
 *
 * The first entry of each table is from the configuration. Later entries are appended, and none is
 * removed. A GID index therefore means the same address for the life of the NIC.
 */
#include "nic/core.h"

void pu_add_port(struct pu *pu, unsigned at, unsigned port_num, struct port *port)
{
	pu->ports[at].port = port;
	pu->ports[at].num = (uint8_t)port_num;
	list_init(&pu->ports[at].read_waiters);
}

unsigned nic_ports(const struct nic *nic)
{
	return port_count(nic);
}

struct port *nic_port(const struct nic *nic, unsigned port, unsigned pu)
{
	return port < port_count(nic) && pu < nic->cfg.pus ? nic->pus[pu]->ports[port].port : NULL;
}

unsigned nic_port_nums(const struct nic *nic)
{
	return nic->cfg.ports;
}

unsigned nic_gids(const struct nic *nic, unsigned port_num)
{
	unsigned n = 0;

	for (unsigned p = 0; p < port_count(nic); p++)
		n += nic->pus[0]->ports[p].num == port_num;
	return n;
}

bool nic_gid(const struct nic *nic, unsigned port_num, unsigned index, struct nic_gid *out)
{
	unsigned n = 0;

	for (unsigned p = 0; p < port_count(nic); p++) {
		if (nic->pus[0]->ports[p].num != port_num || n++ != index)
			continue;
		*out = (struct nic_gid){p, port_num, index};
		return true;
	}
	return false;
}

bool nic_gid_of(const struct nic *nic, const struct pkt_addr *addr, struct nic_gid *out)
{
	unsigned n[NIC_MAX_PORT_NUMS + 1] = {0};

	for (unsigned p = 0; p < port_count(nic); p++) {
		const struct pu_port *pp = &nic->pus[0]->ports[p];

		if (pkt_addr_eq(&pp->port->addr, addr)) {
			*out = (struct nic_gid){p, pp->num, n[pp->num]};
			return true;
		}
		n[pp->num]++;
	}
	return false;
}

int nic_port_add(struct nic *nic, unsigned port_num, struct port *const lane[NIC_MAX_PUS])
{
	unsigned at = port_count(nic);

	if (port_num < 1 || port_num > nic->cfg.ports)
		return -EINVAL;
	if (at == NIC_MAX_PORTS)
		return -ENOSPC;
	for (unsigned i = 0; i < nic->cfg.pus; i++)
		if (lane[i]->shared && lane[i]->slot != nic->slot[i])
			return -EINVAL;
	for (unsigned i = 0; i < nic->cfg.pus; i++)
		pu_add_port(nic->pus[i], at, port_num, lane[i]);
	atomic_store_explicit(&nic->ports, at + 1, memory_order_release);
	return 0;
}
