/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls inside the core. */
#ifndef ROOST_NIC_RPC_H
#define ROOST_NIC_RPC_H

#include "nic/core.h"
#include "nic/nic_rpc.h"

uint8_t resp_rpc(struct nic_qp *qp, const struct pkt_view *v); /* as resp_write() */
/* false: not now; the caller has to deliver the piece again */
bool rpc_deliver(struct nic_qp *qp, const struct nic_rpc_piece *piece);
int rpc_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst, uint32_t n);
/* a reply has ended: acknowledged, or in error */
void rpc_retired(struct nic_qp *qp, const struct sq_entry *e);
void rpc_stop(struct nic_qp *qp); /* ends the QP's calls */
void rpc_detach(struct nic_qp *qp);
unsigned rpc_run(struct pu *pu);

#endif
