/* SPDX-License-Identifier: BSD-2-Clause */
/* What the core asks of calls: a part of core.h, which includes it. */
#ifndef ROOST_NIC_RPC_H
#define ROOST_NIC_RPC_H

uint8_t resp_rpc(struct nic_qp *qp, const struct pkt_view *v); /* as resp_write() */
/* false: it is to come again later */
bool rpc_deliver(struct nic_qp *qp, const struct nic_rpc_piece *piece);
int rpc_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst, uint32_t n);
/* a reply is acknowledged, or was not */
void rpc_retired(struct nic_qp *qp, const struct sq_entry *e);
void rpc_stop(struct nic_qp *qp); /* the QP ends: so do its calls */
void rpc_detach(struct nic_qp *qp);
unsigned rpc_run(struct pu *pu);

/*
 * memory.c: what all QPs have in the core was `before`, of one of them, and is `now`. Beyond the
 * limit, too. [control]
 */
void memory_of_qps(struct nic *nic, uint64_t before, uint64_t now);

#endif
