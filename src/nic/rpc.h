/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls inside the core. */
#ifndef ROOST_NIC_RPC_H
#define ROOST_NIC_RPC_H

#include "nic/core.h"
#include "nic/nic_rpc.h"

uint8_t resp_rpc(struct nic_qp *qp, const struct pkt_view *v); /* handles a call as resp_write() */
/* Returns false if the server cannot take the piece now; the caller must deliver it again. */
bool rpc_deliver(struct nic_qp *qp, const struct nic_rpc_piece *piece);
int rpc_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst, uint32_t n);
/* Called when an entry of a reply has been acknowledged, or has ended in error. */
void rpc_retired(struct nic_qp *qp, const struct sq_entry *e);
void rpc_stop(struct nic_qp *qp); /* ends the QP's calls */
void rpc_detach(struct nic_qp *qp);
unsigned rpc_run(struct pu *pu);

#endif
