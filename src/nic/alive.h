/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Detection of dead peers (alive.c). Only the owner of the destination's PU calls these functions.
 */
#ifndef ROOST_NIC_ALIVE_H
#define ROOST_NIC_ALIVE_H

#include "nic/core.h"
#include "nic/dest.h"

void alive_hints(struct pu *pu, struct port *port); /* handles the hints in the port */
void alive_rx(struct dest *d);
/* Returns the result of port_reader_of(); reuses a result that is later than `since`. */
enum port_reader alive_reader(struct dest *d, uint64_t since);
/* Starts to wait for packets of the peer, on all PUs. Returns a tick for alive_rx_since(). */
uint64_t alive_await_rx(const struct dest *d);
bool alive_rx_since(const struct dest *d, uint64_t tick);
/* Copies `rx_tick` to the peer's other destinations before d is freed. dests_lock is held. */
void alive_copy_rx_tick(struct dest *d);
void alive_fire(struct dest *d);
void alive_attach(struct nic_qp *qp); /* attaches it to qp->dest */
void alive_detach(struct nic_qp *qp);

#endif
