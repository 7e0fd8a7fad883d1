/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Steers a datagram by its first bytes, which are those of the UDP payload:
 *
 *	destination QP above 1			slot in the QP number
 *	QP 0 or 1, connection management:
 *	    REQ, SIDR_REQ			slot that listens on the service id
 *	    SIDR_REP				slot in the request id, which is ours
 *	    other messages			slot in the remote communication id, which is ours
 *	anything else				`otherwise`, or any slot if services are left out
 *
 * If only one slot is in use, it gets all datagrams.
 *
 * The service ids of IP ports have zeros in the upper word. Their part of the program loads the
 * lower word once, and needs only two instructions per service.
 */
#include "pool/filter.h"

#include "packet/headers.h"

/* Offsets in the UDP payload: BTH (12), DETH (8), then the datagram (IBA 13.4.2, 12.6). */
#define AT_DQPN	   4 /* a reserved byte, then the number */
#define AT_CLASS   21
#define AT_ATTR	   36
#define AT_LOCAL   44 /* communication id of the sender; request id of SIDR messages */
#define AT_REMOTE  48 /* communication id of the receiver */
#define AT_SERVICE 52 /* service id of REQ and SIDR_REQ */

#define CLASS_CM 7
#define REQ	 0x10
#define SIDR_REQ 0x17
#define SIDR_REP 0x18

#define SLOT_SHIFT_QPN 18
#define SLOT_SHIFT_ID  26

_Static_assert(sizeof(struct pkt_bth) + sizeof(struct pkt_deth) == 20, "offsets above");

struct writer {
	struct sock_filter *code;
	unsigned n;
};

static void put(struct writer *w, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
	w->code[w->n++] = (struct sock_filter){code, jt, jf, k};
}

static void load(struct writer *w, uint16_t size, uint32_t at)
{
	put(w, BPF_LD | size | BPF_ABS, at, 0, 0);
}

/* Skips `jt` instructions if A equals k, or else `jf`. */
static void if_eq(struct writer *w, uint32_t k, uint8_t jt, uint8_t jf)
{
	put(w, BPF_JMP | BPF_JEQ | BPF_K, k, jt, jf);
}

static void give(struct writer *w, uint8_t slot)
{
	put(w, BPF_RET | BPF_K, slot % POOL_SLOTS, 0, 0);
}

static void give_shifted(struct writer *w, unsigned shift)
{
	put(w, BPF_ALU | BPF_RSH | BPF_K, shift, 0, 0);
	put(w, BPF_RET | BPF_A, 0, 0, 0);
}

/* Gives one of several slots at random, by Linux's random number in a load's address. */
static void give_any(struct writer *w, uint64_t slots)
{
	unsigned num = (unsigned)__builtin_popcountll(slots);

	load(w, BPF_W, (uint32_t)(SKF_AD_OFF + SKF_AD_RANDOM));
	put(w, BPF_ALU | BPF_MOD | BPF_K, num, 0, 0);
	for (unsigned i = 0; i < num; i++, slots &= slots - 1) {
		if (i < num - 1)
			if_eq(w, i, 0, 1);
		give(w, (uint8_t)__builtin_ctzll(slots));
	}
}

static void services(struct writer *w, const struct pool_table *t)
{
	unsigned jump;

	/* services of other kinds than IP ports; A is overwritten */
	for (unsigned i = 0; i < t->num; i++) {
		const struct pool_route *r = &t->route[i];

		if (!(r->service >> 32))
			continue;
		load(w, BPF_W, AT_SERVICE);
		if_eq(w, (uint32_t)(r->service >> 32), 0, 3);
		load(w, BPF_W, AT_SERVICE + 4);
		if_eq(w, (uint32_t)r->service, 0, 1);
		give(w, r->slot);
	}
	load(w, BPF_W, AT_SERVICE);
	if_eq(w, 0, 1, 0);
	jump = w->n;
	put(w, BPF_JMP | BPF_JA, 0, 0, 0); /* over the services of IP ports */
	load(w, BPF_W, AT_SERVICE + 4);
	for (unsigned i = 0; i < t->num; i++) {
		if (t->route[i].service >> 32)
			continue;
		if_eq(w, (uint32_t)t->route[i].service, 0, 1);
		give(w, t->route[i].slot);
	}
	w->code[jump].k = w->n - jump - 1;
	if (t->cut)
		give_any(w, t->any);
	else
		give(w, t->otherwise);
}

unsigned pool_filter(const struct pool_table *t, struct sock_filter code[POOL_FILTER_MAX])
{
	struct writer w = {code, 0};

	if (t->single) {
		give(&w, t->otherwise);
		return w.n;
	}
	load(&w, BPF_W, AT_DQPN);
	put(&w, BPF_ALU | BPF_AND | BPF_K, PKT_QPN_MASK, 0, 0);
	put(&w, BPF_JMP | BPF_JGT | BPF_K, 1, 0, 2);
	give_shifted(&w, SLOT_SHIFT_QPN);
	load(&w, BPF_B, AT_CLASS);
	if_eq(&w, CLASS_CM, 1, 0);
	give(&w, t->otherwise);
	load(&w, BPF_H, AT_ATTR);
	if_eq(&w, REQ, 8, 0);
	if_eq(&w, SIDR_REQ, 7, 0);
	if_eq(&w, SIDR_REP, 3, 0);
	load(&w, BPF_W, AT_REMOTE);
	give_shifted(&w, SLOT_SHIFT_ID);
	load(&w, BPF_W, AT_LOCAL);
	give_shifted(&w, SLOT_SHIFT_ID);
	services(&w, t); /* REQ and SIDR_REQ jump here */
	return w.n;
}

static uint32_t word_at(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/*
 * Returns true if a datagram is a message of connection management. `len` covers all bytes that the
 * rules use.
 */
static bool is_cm(const uint8_t *bth, uint32_t len, unsigned *attr)
{
	if (len < AT_SERVICE + 8 || (word_at(bth + AT_DQPN) & PKT_QPN_MASK) > PKT_GSI_QPN ||
	    bth[AT_CLASS] != CLASS_CM)
		return false;
	*attr = (unsigned)(bth[AT_ATTR] << 8 | bth[AT_ATTR + 1]);
	return true;
}

bool pool_filter_service(const uint8_t *bth, uint32_t len, uint64_t *service)
{
	unsigned attr;

	if (!is_cm(bth, len, &attr) || (attr != REQ && attr != SIDR_REQ))
		return false;
	*service = (uint64_t)word_at(bth + AT_SERVICE) << 32 | word_at(bth + AT_SERVICE + 4);
	return true;
}

int pool_filter_id_slot(const uint8_t *bth, uint32_t len)
{
	unsigned attr;

	if (!is_cm(bth, len, &attr) || attr == REQ || attr == SIDR_REQ)
		return -1;
	return (int)(word_at(bth + (attr == SIDR_REP ? AT_LOCAL : AT_REMOTE)) >> SLOT_SHIFT_ID);
}
