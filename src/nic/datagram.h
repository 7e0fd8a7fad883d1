/* SPDX-License-Identifier: BSD-2-Clause */
/* Services without a connection: address handles, datagrams, QP 1, multicast groups; and UC. */
#ifndef ROOST_NIC_DATAGRAM_H
#define ROOST_NIC_DATAGRAM_H

#include "nic/core.h"

struct nic_ah {
	uint32_t handle, pd;
	uint8_t port_num, tos;
	uint32_t mtu;
	struct dest *dest[NIC_MAX_PUS]; /* by PU; dest_of_datagram() finds that of a QP number */
};

/* A multicast group of a port number, with one PU's attached QPs (mcast.c). */
struct nic_group {
	struct list_head link; /* in pu->groups, by hash */
	struct pkt_addr addr;
	uint8_t port_num;
	uint32_t joined; /* bit mask of the ports that are members */
	uint32_t count;
	struct nic_qp *qp[NIC_MAX_GROUP_QPS];
};

/* ah.c */
/* Finds an address handle. Returns NULL if there is none. [owner of a PU] */
struct nic_ah *ah_find(struct nic *nic, uint32_t handle);
void ah_table_fini(struct nic *nic);

/* ud.c */
/*
 * Finds the address handle of a WQE. Returns 0 and sets *out, or returns the WQE's completion
 * status.
 */
uint8_t ud_address(const struct nic_qp *qp, const struct sq_entry *e, struct nic_ah **out);
int ud_send_packet(struct nic_qp *qp, struct sq_entry *e, const struct nic_ah *ah, struct dest *d);
void ud_rx(struct nic_qp *qp, const struct pkt_view *v, const struct port_pkt *pkt);

/* uc.c */
void uc_rx(struct nic_qp *qp, const struct pkt_view *v);

/* gsi.c: releases the destinations of QP 1 */
void gsi_forget(struct nic *nic);
/* gsi.c: puts a datagram into the port. Returns 0, or the port's error. */
int gsi_put(struct pu *pu, struct dest *d, uint8_t tclass, const uint8_t *mad);

/* gsi_wait.c */
/*
 * Keeps a datagram for which the port had no space. Returns 0, or -EAGAIN without memory.
 * [owner of PU 0]
 */
int gsi_wait(struct pu *pu, struct dest *d, uint8_t tclass, const uint8_t *mad);
/* Sends datagrams that wait, as far as there is space. Returns their number. [owner of the PU] */
unsigned gsi_resume(struct pu *pu);
/* Drops the datagrams that wait. */
void gsi_wait_end(struct nic *nic);

/* gsi.c: does the remaining checks of a packet for QP 1 and delivers the packet */
enum pkt_error gsi_rx(struct pu *pu, const struct pu_port *pp, const struct port_pkt *pkt,
		      const struct pkt_view *v);

/* mcast.c */
/* Does the remaining checks of a multicast packet and delivers the packet. */
enum pkt_error mcast_rx(struct pu *pu, struct pu_port *pp, struct port_pkt *pkt,
			const struct pkt_view *v);
void mcast_detach_all(struct nic_qp *qp);

#endif
