/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Parsing and printing of a packet, BTH .. ICRC. The table in opcode.c has the headers of each
 * op-code.
 */
#include <inttypes.h>
#include <stdio.h>

#include "packet/headers.h"

#include "base/mem.h"
#include "base/text.h"

/*
 * Big-endian loads. They are volatile, because a hostile peer may share the memory of the packet:
 * each field is loaded exactly once, so the checked value is the used one. Each load is a statement
 * of its own: gcc 14 for arm64 ends with an internal error where a volatile value of this type is
 * an argument (aarch64_function_arg_alignment).
 */
typedef uint32_t __attribute__((aligned(1), may_alias)) load32;
typedef uint64_t __attribute__((aligned(1), may_alias)) load64;

static inline uint32_t get32(const uint8_t *p)
{
	uint32_t v = *(const volatile load32 *)p;

	return be32toh(v);
}

static inline uint64_t get64(const uint8_t *p)
{
	uint64_t v = *(const volatile load64 *)p;

	return be64toh(v);
}

static inline const uint8_t *parse_reth(const uint8_t *p, struct pkt_view *v)
{
	v->va = get64(p);
	v->rkey = get32(p + 8);
	v->dmalen = get32(p + 12);
	return p + sizeof(struct pkt_reth);
}

static inline const uint8_t *parse_aeth(const uint8_t *p, struct pkt_view *v)
{
	uint32_t w = get32(p);

	v->syndrome = (uint8_t)(w >> 24);
	v->msn = w & 0xffffff;
	return p + sizeof(struct pkt_aeth);
}

/* The headers that WRITEs, READs, their responses and ACKs do not have. */
#define RARE_HEADERS                                                                               \
	(PKT_DETH | PKT_ATOMIC_ETH | PKT_ATOMIC_ACK_ETH | PKT_IMM | PKT_IETH | PKT_CNP_PAD)

/*
 * Fills *v from the extension headers at p; their length was checked. Returns the first byte after
 * them.
 */
static inline const uint8_t *parse_ext(const uint8_t *p, unsigned flags, struct pkt_view *v)
{
	if (likely(!(flags & RARE_HEADERS))) {
		if (flags & PKT_RETH)
			p = parse_reth(p, v);
		if (flags & PKT_AETH)
			p = parse_aeth(p, v);
		return p;
	}
	if (flags & PKT_DETH) {
		v->qkey = get32(p);
		v->sqpn = get32(p + 4) & PKT_QPN_MASK;
		p += sizeof(struct pkt_deth);
	}
	if (flags & PKT_RETH)
		p = parse_reth(p, v);
	if (flags & PKT_ATOMIC_ETH) {
		v->va = get64(p);
		v->rkey = get32(p + 8);
		v->swap_add = get64(p + 12);
		v->compare = get64(p + 20);
		p += sizeof(struct pkt_atomic_eth);
	}
	if (flags & PKT_AETH)
		p = parse_aeth(p, v);
	if (flags & PKT_ATOMIC_ACK_ETH) {
		v->swap_add = get64(p);
		p += 8;
	}
	if (flags & PKT_IMM) {
		v->imm = *(const volatile load32 *)p;
		p += 4;
	}
	if (flags & PKT_IETH) {
		v->inv_rkey = get32(p);
		p += 4;
	}
	if (flags & PKT_CNP_PAD)
		p += 16;
	return p;
}

enum pkt_error pkt_parse(const uint8_t *bth, size_t len, struct pkt_view *v)
{
	uint32_t w0, w1, w2;
	unsigned bth_flags;
	size_t rest;

	if (len < sizeof(struct pkt_bth) + PKT_ICRC_LEN)
		return PKT_ERR_SHORT;
	w0 = get32(bth);
	w1 = get32(bth + 4);
	w2 = get32(bth + 8);

	v->opcode = (uint8_t)(w0 >> 24);
	v->op = &pkt_ops[v->opcode];
	bth_flags = w0 >> 16 & 0xff;
	if (bth_flags & 0x0f)
		return PKT_ERR_VERSION;
	v->solicited = bth_flags & PKT_BTH_SE;
	v->pad = bth_flags >> PKT_BTH_PAD_SHIFT & 3;
	v->pkey = (uint16_t)w0;
	v->bth_ecn = w1 >> 24 & (PKT_BTH_FECN | PKT_BTH_BECN);
	v->dqpn = w1 & PKT_QPN_MASK;
	v->ackreq = w2 >> 31;
	v->psn = w2 & PKT_PSN_MASK;
	if (v->op->kind == PKT_KIND_NONE)
		return PKT_ERR_OPCODE;

	if (len < v->op->hdr_len + (size_t)PKT_ICRC_LEN)
		return PKT_ERR_SHORT;
	rest = len - v->op->hdr_len - PKT_ICRC_LEN;
	/*
	 * Headers and padded payload are whole words, and only payload is padded. A request that
	 * has payload although its op-code has none passes here: the responder refuses it with an
	 * answer (IBA 9.7.4.1).
	 */
	if (len & 3 || v->pad > rest || rest - v->pad > PKT_MAX_PAYLOAD ||
	    (rest && !(v->op->flags & (PKT_PAYLOAD | PKT_REQUEST))))
		return PKT_ERR_PAD;
	v->payload = parse_ext(bth + sizeof(struct pkt_bth), v->op->flags, v);
	v->payload_len = (uint32_t)rest - v->pad;
	return PKT_OK;
}

const char *pkt_error_str(enum pkt_error e)
{
	static const char *const text[PKT_ERR_COUNT] = {
		[PKT_OK] = "ok",
		[PKT_ERR_SHORT] = "shorter than its headers",
		[PKT_ERR_OPCODE] = "unknown op-code",
		[PKT_ERR_VERSION] = "transport version not 0",
		[PKT_ERR_PAD] = "length and padding contradict the op-code",
		[PKT_ERR_ICRC] = "wrong ICRC",
		[PKT_ERR_PKEY] = "wrong P_Key",
		[PKT_ERR_QPN] = "no such QP",
		[PKT_ERR_SOURCE] = "not from the QP's peer",
		[PKT_ERR_SERVICE] = "op-code of another service",
		[PKT_ERR_QKEY] = "Q_Key of another QP",
		[PKT_ERR_GROUP] = "multicast without a member",
	};

	return (unsigned)e < PKT_ERR_COUNT ? text[e] : "unknown error";
}

static void put_aeth(struct text *o, const struct pkt_view *v)
{
	static const char *const nak[] = {"psn_seq", "invalid_req", "remote_access", "remote_op",
					  "invalid_rd_req"};

	switch (PKT_AETH_TYPE(v->syndrome)) {
	case PKT_AETH_TYPE_ACK:
		if (v->syndrome != PKT_AETH_ACK)
			text_put(o, " credits %u", v->syndrome);
		break;
	case PKT_AETH_TYPE_RNR:
		text_put(o, " rnr_nak timer %u", v->syndrome & 0x1f);
		break;
	case PKT_AETH_TYPE_NAK:
		if ((v->syndrome & 0x1f) < sizeof(nak) / sizeof(*nak))
			text_put(o, " nak %s", nak[v->syndrome & 0x1f]);
		else
			text_put(o, " nak 0x%02x", v->syndrome);
		break;
	default:
		text_put(o, " syndrome 0x%02x", v->syndrome);
	}
	text_put(o, " msn %u", v->msn);
}

int pkt_print(const struct pkt_view *v, char *buf, size_t n)
{
	struct text o = {buf, n, 0};
	unsigned flags = v->op->flags;

	text_put(&o, "%s qp 0x%06x psn %u", v->op->name, v->dqpn, v->psn);
	if (v->ackreq)
		text_put(&o, " ackreq");
	if (v->solicited)
		text_put(&o, " se");
	if (v->bth_ecn & PKT_BTH_FECN)
		text_put(&o, " fecn");
	if (v->bth_ecn & PKT_BTH_BECN)
		text_put(&o, " becn");
	if (v->pkey != PKT_PKEY_DEFAULT)
		text_put(&o, " pkey 0x%04x", v->pkey);
	if (flags & PKT_DETH)
		text_put(&o, " from 0x%06x qkey 0x%08x", v->sqpn, v->qkey);
	/* The address field of a call is the op-code of a kernel. */
	if (flags & (PKT_RETH | PKT_ATOMIC_ETH))
		text_put(&o, " %s 0x%" PRIx64 " rkey 0x%08x",
			 flags & PKT_NEEDS_RPC ? "kernel" : "va", v->va, v->rkey);
	if (flags & PKT_RETH)
		text_put(&o, " len %u", v->dmalen);
	if (v->opcode == PKT_CMP_SWAP)
		text_put(&o, " compare 0x%" PRIx64 " swap 0x%" PRIx64, v->compare, v->swap_add);
	if (v->opcode == PKT_FETCH_ADD)
		text_put(&o, " add 0x%" PRIx64, v->swap_add);
	if (v->opcode == PKT_CALC)
		text_put(&o, " function %" PRIu64 " operand 0x%" PRIx64, v->compare, v->swap_add);
	if (flags & PKT_AETH)
		put_aeth(&o, v);
	if (flags & PKT_ATOMIC_ACK_ETH)
		text_put(&o, " original 0x%" PRIx64, v->swap_add);
	if (flags & PKT_IMM)
		text_put(&o, " imm 0x%08x", be32toh(v->imm));
	if (flags & PKT_IETH)
		text_put(&o, " invalidate 0x%08x", v->inv_rkey);
	if (flags & PKT_PAYLOAD)
		text_put(&o, " payload %u", v->payload_len);
	if (v->pad)
		text_put(&o, " pad %u", v->pad);
	if (n == 0)
		return 0;
	return (int)(o.used < n ? o.used : n - 1);
}
