/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is unreliable. The model allows loss where the link, or a missing receive, makes it, and nothing else: what is delivered is whole and is a
 * message that was sent to that QP, comes once and in order unless the link repeats or reorders; the rest of the account (how many came, of
 * those that reached the NIC whole) is the trace's.
 */
#include "runner_int.h"

#include <stdlib.h>

#define GRH 40

static bool disorder(const struct run *u)
{
	return u->sp.dup > 0 || u->sp.reorder > 0;
}

/* Has the link taken all packets over as they were? Pauses may have filled a queue, a fast sender too. */
static bool all_came(const struct run *u)
{
	uint64_t out = 0, in = 0;

	for (unsigned n = 0; n < u->w.nics; n++) {
		out += u->t.seen[n].out;
		in += u->t.seen[n].in;
	}
	return !disorder(u) && u->sp.corrupt == 0 && out == in;
}

static bool takes_receive(const struct op *o)
{
	return !o->fault &&
	       (o->op == ROOST_OP_SEND || o->op == ROOST_OP_SEND_IMM || o->op == ROOST_OP_WRITE_IMM);
}

/* Is it this message that has come? `bytes`: what the receive holds. */
static bool is_message(const struct op *o, const struct side *from, const struct roost_cqe *cqe,
		       const uint8_t *bytes, uint32_t len)
{
	bool imm = o->op != ROOST_OP_SEND, same;
	uint8_t *want;

	if (!takes_receive(o) || len != o->len || imm != !!(cqe->flags & NIC_WC_WITH_IMM) ||
	    (imm && cqe->imm != o->imm) ||
	    cqe->opcode != (o->op == ROOST_OP_WRITE_IMM ? NIC_WC_RECV_WRITE_IMM : NIC_WC_RECV))
		return false;
	if (o->op == ROOST_OP_WRITE_IMM)
		return true;
	want = malloc(o->len + 1);
	if (!want)
		abort();
	gather(from, o, want);
	same = memcmp(want, bytes, o->len) == 0;
	free(want);
	return same;
}

/* The request that this was; NULL: none. The first that fits: where one order of losses explains what came, this one does. */
static const struct op *find(struct run *u, const struct direction *d, const struct side *from,
			     unsigned posted, unsigned to, unsigned *matched, const struct roost_cqe *cqe,
			     const uint8_t *bytes, uint32_t len)
{
	for (unsigned n = disorder(u) ? 0 : *matched; n < posted; n++)
		if (d->ops[n].to == to && is_message(&d->ops[n], from, cqe, bytes, len)) {
			*matched = n + 1;
			return &d->ops[n];
		}
	return NULL;
}

/* WRITEs of an unreliable connection have a place each. All of it, or packet by packet as it was sent? */
static bool check_written(struct run *u, struct conn *c, int i, const struct op *o, bool whole)
{
	const uint8_t *is = c->e[i].mem + o->roff;
	uint32_t mtu = c->e[i].p.mtu;
	uint8_t *want = malloc(o->len + 1), zero[4096] = {0};
	bool ok = true;

	if (!want)
		abort();
	gather(&c->s[1 - i], o, want);
	for (uint32_t at = 0; ok && at < o->len; at += mtu) {
		uint32_t n = o->len - at < mtu ? o->len - at : mtu;

		if (memcmp(is + at, want + at, n) && (whole || memcmp(is + at, zero, n)))
			ok = run_wrong(u, &c->e[i], "a WRITE of %u bytes is damaged in bytes %u to %u",
				       o->len, at, at + n);
	}
	free(want);
	return ok;
}

bool run_check_uc_recv(struct run *u, struct conn *c, int i, const struct roost_cqe *cqe)
{
	struct ep *e = &c->e[i];
	uint8_t *slot = pool_slot(c->pool[i], cqe->wr_id);
	const struct op *o;

	if (!slot || cqe->status || cqe->src_qpn != nic_qp_num(c->e[1 - i].qp))
		return run_wrong(u, e, "receive 0x%" PRIx64 ", status %u, from 0x%x", cqe->wr_id, cqe->status,
				 cqe->src_qpn);
	o = find(u, &c->d[1 - i], &c->s[1 - i], c->at[1 - i].posted, 0, &c->at[i].matched, cqe, slot,
		 cqe->byte_len);
	if (!o)
		return run_wrong(u, e, "%u bytes of no message that can come now", cqe->byte_len);
	pool_free(c->pool[i], cqe->wr_id);
	u->t.loose[e->nic_index].got++;
	return o->op == ROOST_OP_WRITE_IMM ? check_written(u, c, i, o, true) : true;
}

bool run_check_uc_end(struct run *u, struct conn *c, int i)
{
	struct direction *d = &c->d[1 - i];

	for (unsigned k = 0; k < d->num_ops; k++) {
		const struct op *o = &d->ops[k];

		u->t.loose[c->e[1 - i].nic_index].sent += takes_receive(o);
		if (o->fault || (o->op != ROOST_OP_WRITE && o->op != ROOST_OP_WRITE_IMM))
			continue;
		if (!check_written(u, c, i, o, all_came(u) && o->op == ROOST_OP_WRITE))
			return false;
		memcpy(c->s[i].model + o->roff, c->e[i].mem + o->roff, o->len);
	}
	return true;
}

static bool check_grh(const struct ep *from, const struct ep *to, const uint8_t *grh, uint32_t len)
{
	const struct pkt_addr *src = &nic_port(from->nic, 0, 0)->addr, *dst = &nic_port(to->nic, 0, 0)->addr;

	if (!pkt_addr_is_v4(dst))
		return grh[0] >> 4 == 6 && memcmp(grh + 8, src->b, 16) == 0 &&
		       memcmp(grh + 24, dst->b, 16) == 0 &&
		       (grh[4] << 8 | grh[5]) >= (int)(8 + 12 + 8 + len + 4);
	/* IPv4: in the last 20 bytes, addresses last; the length is of IP, UDP, BTH, DETH, the payload and its ICRC at least. */
	return memcmp(grh + 32, src->b + 12, 4) == 0 && memcmp(grh + 36, dst->b + 12, 4) == 0 &&
	       grh[20] == 0x45 && (grh[22] << 8 | grh[23]) >= (int)(20 + 8 + 12 + 8 + len + 4);
}

static bool check_datagram(struct run *u, unsigned i, const struct roost_cqe *cqe)
{
	struct crowd *k = &u->crowd;
	struct ep *e = &k->e[i];
	uint8_t *slot = pool_slot(k->pool[i], cqe->wr_id);
	unsigned from = 0;

	while (from < k->n && nic_qp_num(k->e[from].qp) != cqe->src_qpn)
		from++;
	if (!slot || cqe->status || from == k->n || !(cqe->flags & NIC_WC_GRH) || cqe->byte_len < GRH)
		return run_wrong(u, e, "datagram 0x%" PRIx64 ", status %u, from 0x%x, flags %u, %u bytes",
				 cqe->wr_id, cqe->status, cqe->src_qpn, cqe->flags, cqe->byte_len);
	if (!find(u, &k->d[from], &k->s[from], k->at[from].posted, i, &k->matched[i][from], cqe, slot + GRH,
		  cqe->byte_len - GRH))
		return run_wrong(u, e, "%u bytes of no datagram that can come now", cqe->byte_len);
	if (!check_grh(&k->e[from], e, slot, cqe->byte_len - GRH) ||
	    !pool_rest_untouched(slot, cqe->byte_len))
		return run_wrong(u, e,
				 "the route header is wrong, or what is behind the datagram has changed");
	pool_free(k->pool[i], cqe->wr_id);
	u->t.loose[e->nic_index].got++;
	return true;
}

bool run_poll_datagrams(struct run *u, unsigned i)
{
	struct crowd *k = &u->crowd;
	struct progress *at = &k->at[i];
	struct roost_cqe cqe;

	while (ep_poll_send(&k->e[i], &cqe)) {
		while (at->completed < at->posted && !k->e[i].p.sig_all &&
		       !(k->d[i].ops[at->completed].flags & ROOST_WQE_SIGNALED))
			at->completed++;
		if (at->completed == at->posted)
			return run_wrong(u, &k->e[i], "a completion too many: 0x%" PRIx64, cqe.wr_id);
		if (!run_check_sent(u, &k->e[i], &k->d[i].ops[at->completed], at->completed, &cqe))
			return false;
		at->completed++;
	}
	while (ep_poll_recv(&k->e[i], &cqe))
		if (!check_datagram(u, i, &cqe))
			return false;
	return true;
}

bool run_check_loose_end(struct run *u)
{
	struct crowd *k = &u->crowd;
	uint64_t sent = 0, came = 0;

	for (unsigned i = 0; i < k->n; i++) {
		for (unsigned n = 0; n < k->d[i].num_ops; n++)
			u->t.loose[k->e[i].nic_index].sent += takes_receive(&k->d[i].ops[n]);
		if (nic_qp_state(k->e[i].qp) != NIC_QPS_RTS || k->e[i].events & ~(1u << NIC_EVENT_COMM_EST))
			return run_wrong(u, &k->e[i], "state %u, events 0x%x", nic_qp_state(k->e[i].qp),
					 k->e[i].events);
		if (memcmp(k->e[i].mem, k->s[i].model, AREA_LEN))
			return run_wrong(u, &k->e[i], "what it sends from has changed");
	}
	for (unsigned n = 0; n < u->w.nics; n++) {
		sent += u->t.loose[n].sent;
		came += u->t.loose[n].whole;
	}
	if (all_came(u) && sent != came)
		return run_wrong(u, NULL,
				 "%" PRIu64 " of %" PRIu64
				 " unreliable messages came over a link without faults",
				 came, sent);
	return true;
}
