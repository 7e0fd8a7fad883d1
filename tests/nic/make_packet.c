/* SPDX-License-Identifier: BSD-2-Clause */
#include "make_packet.h"

#define MAKE_QKEY 0x11111111

uint32_t pkt_make_raw(uint8_t *out, const struct pkt_make *m, uint32_t dqpn)
{
	const struct pkt_op *op = &pkt_ops[m->opcode];
	uint32_t n = op->flags & PKT_PAYLOAD ? m->len : 0, pad = -n & 3;
	uint8_t flags = (uint8_t)(PKT_BTH_MIGREQ | pad << PKT_BTH_PAD_SHIFT |
				  (m->solicited ? PKT_BTH_SE : 0));
	uint8_t *p = pkt_put_bth(out, m->opcode, flags, dqpn, m->ackreq, m->psn & PKT_PSN_MASK);

	if (op->flags & PKT_DETH)
		p = pkt_put_deth(p, m->qkey ? m->qkey : MAKE_QKEY, m->sqpn ? m->sqpn : 0x777);
	if (op->flags & PKT_RETH)
		p = pkt_put_reth(p, m->va, m->rkey, m->dmalen);
	if (op->flags & PKT_ATOMIC_ETH)
		p = pkt_put_atomic(p, m->va, m->rkey, m->swap_add, m->compare);
	if (op->flags & PKT_AETH)
		p = pkt_put_aeth(p, m->syndrome, m->msn);
	if (op->flags & PKT_ATOMIC_ACK_ETH)
		p = pkt_put_be64(p, m->swap_add);
	if (op->flags & PKT_IMM)
		p = pkt_put_imm(p, m->imm);
	if (op->flags & PKT_IETH)
		p = pkt_put_ieth(p, m->inv_rkey);
	if (op->flags & PKT_CNP_PAD) {
		memset(p, 0, 16);
		p += 16;
	}
	for (uint32_t i = 0; i < n; i++)
		*p++ = m->payload ? ((const uint8_t *)m->payload)[i] : pkt_pattern(i);
	memset(p, 0, pad);
	return (uint32_t)(p + pad - out) + PKT_ICRC_LEN;
}

void pkt_seal(uint8_t *p, uint32_t len, const struct pkt_addr *src, const struct pkt_addr *dst)
{
	struct icrc_flow f;

	icrc_flow_init(&f, src, dst, PKT_UDP_PORT, PKT_UDP_PORT);
	icrc_store(p + len - PKT_ICRC_LEN, icrc_compute(&f, 0, p, len));
}
