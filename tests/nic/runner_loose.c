/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable connections. The model allows loss only by the link or because of a missing receive. A
 * delivered message must be whole and must have been sent, and it arrives once and in order unless
 * the link repeats or reorders. The trace checks the number of messages, among those that reached
 * the NIC whole.
 */
#include "runner_int.h"

#include <stdlib.h>

bool run_disorder(const struct run *u)
{
	return u->sp.dup > 0 || u->sp.reorder > 0;
}

bool run_all_came(const struct run *u)
{
	return !run_disorder(u) && sim_lost(u->w.sim) == 0;
}

bool run_takes_receive(const struct op *o)
{
	return !o->fault && (o->op == ROOST_OP_SEND || o->op == ROOST_OP_SEND_IMM ||
			     o->op == ROOST_OP_WRITE_IMM);
}

bool run_is_message(const struct op *o, const struct side *from, const struct roost_cqe *cqe,
		    const uint8_t *bytes, uint32_t len)
{
	bool imm = o->op != ROOST_OP_SEND, same;
	uint8_t *want;

	if (!run_takes_receive(o) || len != o->len || imm != !!(cqe->flags & NIC_WC_WITH_IMM) ||
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

/*
 * Returns the request of a message; NULL: none. It is the first request that fits: if any order of
 * losses explains the messages, this one does.
 */
static const struct op *find(struct run *u, struct conn *c, int i, const struct roost_cqe *cqe,
			     const uint8_t *bytes)
{
	const struct direction *d = &c->d[1 - i];
	unsigned *matched = &c->at[i].matched;

	for (unsigned n = run_disorder(u) ? 0 : *matched; n < c->at[1 - i].posted; n++)
		if (run_is_message(&d->ops[n], &c->s[1 - i], cqe, bytes, cqe->byte_len)) {
			*matched = n + 1;
			return &d->ops[n];
		}
	return NULL;
}

/*
 * Each WRITE of an unreliable connection has a target of its own. Checks that the target is
 * complete, or that each of its packets is.
 */
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
			ok = run_wrong(u, &c->e[i],
				       "a WRITE of %u bytes is damaged in bytes %u to %u", o->len,
				       at, at + n);
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
		return run_wrong(u, e, "receive 0x%" PRIx64 ", status %u, from 0x%x", cqe->wr_id,
				 cqe->status, cqe->src_qpn);
	o = find(u, c, i, cqe, slot);
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

		u->t.loose[c->e[1 - i].nic_index].sent += run_takes_receive(o);
		if (o->fault || (o->op != ROOST_OP_WRITE && o->op != ROOST_OP_WRITE_IMM))
			continue;
		if (!check_written(u, c, i, o, run_all_came(u) && o->op == ROOST_OP_WRITE))
			return false;
		memcpy(c->s[i].model + o->roff, c->e[i].mem + o->roff, o->len);
	}
	return true;
}

bool run_check_loose_end(struct run *u)
{
	uint64_t sent = 0, came = 0;

	for (unsigned n = 0; n < u->w.nics; n++) {
		sent += u->t.loose[n].sent;
		came += u->t.loose[n].whole;
	}
	if (run_all_came(u) && sent != came)
		return run_wrong(
			u, NULL,
			"%" PRIu64 " of %" PRIu64
			" messages of unreliable connections came over a link without faults",
			came, sent);
	return true;
}
