/* SPDX-License-Identifier: BSD-2-Clause */
/* Is a peer there (alive.c)? All by the owner of the destination's PU. */
#ifndef ROOST_NIC_ALIVE_H
#define ROOST_NIC_ALIVE_H

#include "nic/core.h"

void alive_hints(struct pu *pu, struct port *port); /* takes those that the port has */
void alive_heard(struct dest *d);
/* port_reader_of(); an answer from after `since` serves again. */
enum port_reader alive_reader(struct dest *d, uint64_t since);
/* On all lanes and PUs to that address, for alive_heard_since() with what this returns. */
uint64_t alive_listen(const struct dest *d);
bool alive_heard_since(const struct dest *d, uint64_t tick);
/* it goes: what was heard there stays known; dests_lock held */
void alive_bequeath(struct dest *d);
void alive_fire(struct dest *d);
void alive_attach(struct nic_qp *qp); /* to qp->dest */
void alive_detach(struct nic_qp *qp);

#endif
