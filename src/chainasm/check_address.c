/* SPDX-License-Identifier: BSD-2-Clause */
/* The checker: addresses that are known before the program runs. */
#include <string.h>

#include "chainasm/check_inside.h"

static bool is_calc(uint16_t op)
{
	return op == ROOST_OP_FETCH_ADD || op == ROOST_OP_CMP_SWAP ||
	       (op >= ROOST_OP_MAX && op <= ROOST_OP_XOR);
}

static bool has_remote(uint16_t op)
{
	return is_calc(op) || op == ROOST_OP_WRITE || op == ROOST_OP_WRITE_IMM ||
	       op == ROOST_OP_READ;
}

/* Returns NULL, or the error of the location as text. */
static const char *location_error(const struct chain_program *p, uint64_t addr, uint32_t key,
				  uint64_t len, bool writes)
{
	int i = chain_region_of_key(p, key);
	const struct chain_region *r = &p->region[i < 0 ? 0 : i];

	if (i < 0)
		return "no region has the key";
	if (addr < r->addr || addr - r->addr > r->size || len > r->size - (addr - r->addr))
		return "it is outside of the region";
	if (writes && r->readonly)
		return "the region is read-only";
	return NULL;
}

static void check_location(struct checker *c, uint32_t line, const char *what, uint64_t addr,
			   uint32_t key, uint64_t len, bool writes)
{
	const char *why = location_error(c->p, addr, key, len, writes);
	int region = chain_region_of_key(c->p, key), at = chain_region_at(c->p, addr);
	char location[96] = "an address of no region";

	if (!why)
		return;
	if (at >= 0)
		chain_print_location(c->p, (unsigned)at, addr - c->p->region[at].addr, location,
				     sizeof(location));
	check_fault(c, CHAIN_FAULT_ADDRESS, line, "the %s, %s, %llu bytes: %s%s%s", what, location,
		    (unsigned long long)len, why, region >= 0 ? ": " : "",
		    region >= 0 ? c->p->region[region].name : "");
}

static void check_variant(struct checker *c, const struct variant *v)
{
	const struct chain_queue *q = &c->p->queue[v->queue];
	const uint32_t line = check_line(c, v->queue, v->slot);
	const uint16_t op = variant_op(v);
	const bool is_inline = v->w.flags & ROOST_WQE_INLINE, sge_known = !(v->computed & 1 << 6);
	const bool reads = op == ROOST_OP_READ || is_calc(op);
	uint64_t len = is_inline ? v->w.inline_len : 0;
	unsigned sges = v->w.num_sge < q->sges ? v->w.num_sge : q->sges;
	struct roost_sge sge = v->w.sge[0];

	if (!has_remote(op) && op != ROOST_OP_SEND && op != ROOST_OP_SEND_IMM)
		return;
	for (unsigned i = 0; i < sges && !is_inline; i++) {
		if (i)
			memcpy(&sge,
			       chain_slot(c->p, q, v->slot) + ROOST_WQE_SGE_OFFSET +
				       i * sizeof(sge),
			       sizeof(sge));
		if (sge_known && sge.len && (i == 0 || !v->computed))
			check_location(c, line, "local address", sge.addr, sge.lkey, sge.len,
				       reads);
		len += sge.len;
	}
	if (!has_remote(op) || v->computed & (1 << 2 | 1 << 3) || q->peer == CHAIN_PEER_OUTSIDE ||
	    (!len && !is_calc(op)) || v->computed & 1 << 7)
		return;
	check_location(c, line, "remote address", v->w.raddr, v->w.rkey, len, op != ROOST_OP_READ);
	if (is_calc(op) && v->w.raddr % 8)
		check_fault(c, CHAIN_FAULT_ADDRESS, line,
			    "the remote address of an atomic is not aligned to 8 bytes");
}

static void check_receives(struct checker *c, const struct chain_queue *q)
{
	for (uint32_t i = 0; i < q->recv; i++) {
		const uint8_t *slot = chain_recv_slot(c->p, q, i);
		struct roost_recv_wqe r;

		memcpy(&r, slot, sizeof(r));
		for (uint32_t k = 0; k < r.num_sge && k < q->recv_sges; k++) {
			const uint64_t at = (uint64_t)i * q->recv_stride + ROOST_RECV_SGE_OFFSET +
					    k * sizeof(struct roost_sge);
			struct roost_sge sge;

			memcpy(&sge, slot + ROOST_RECV_SGE_OFFSET + k * sizeof(sge), sizeof(sge));
			if (!c->computed[q->recv_region][at / 8] && sge.len)
				check_location(c, q->recv_lines ? q->recv_lines[i] : q->line,
					       "address of the receive", sge.addr, sge.lkey,
					       sge.len, true);
		}
	}
}

void check_addresses(struct checker *c)
{
	for (uint32_t i = 0; i < c->variants; i++) {
		const struct variant *v = &c->variant[i];
		const int faults = c->faults;
		bool told = false;

		/* one message for a WQE with any number of variants */
		for (const struct variant *k = check_first(c, v->queue, v->slot); k && !told;
		     k = check_next(c, k))
			told = k < v && variant_op(k) == variant_op(v) &&
			       !memcmp(&k->w.raddr, &v->w.raddr, 48);
		if (!told)
			check_variant(c, v);
		if (c->faults > faults + 8)
			return;
	}
	for (unsigned i = 0; i < c->p->queues; i++)
		check_receives(c, &c->p->queue[i]);
}
