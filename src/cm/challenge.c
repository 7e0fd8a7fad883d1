/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests from unknown peers, in any number, and from addresses that may be forged.
 *
 * While there are few, a request becomes a connection at once. If many unknown peers are not
 * connected yet, or many requests wait for the program (under_load()), a sender is challenged: it
 * must first show that it receives answers at its address. Its request is stored, and it gets a
 * DREQ of a connection that does not exist. Each connection manager answers this with a DREP of the
 * same transaction id (12.9.7.1; cm_issue_drep() of the Linux kernel). The id is random, and the
 * request continues when it comes back. Unknown peers therefore use neither the backlog of a
 * listener nor the time of its program. The challenges are a ring: the oldest is replaced. Its
 * length divided by the rate of requests is the longest round trip that works: docs/decisions.md.
 *
 * An address that completed a connection before has shown that it receives answers. It has credits
 * for a few REQs without a challenge, so that its connections need no second round trip during a
 * flood. Anybody may use up the credits by REQs in its name; then it is challenged like others, and
 * its next connection gives it new credits. Credits bring no more than KNOWN_MAX requests to the
 * programs, whatever addresses are forged.
 *
 * Each source of peers that answered has a share: it may take more while it holds less than three
 * times the free resources. A single source gets three quarters, and many sources leave some for
 * the next one (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998).
 */
#include "cm/core.h"

#include <string.h>
#include <xxhash.h>

/* unknown peers in UNVERIFIED_NS that are neither challenged nor connected yet */
#define UNVERIFIED_MAX 16
#define UNVERIFIED_NS  10000000000u
#define KNOWN_MAX      16 /* the same, in addition: requests that are not challenged by a credit */
#define CREDITS	       4  /* of an address, after each connection that it completes */
#define SHARE	       3
#define WINDOW_NS      100000000u
#define CHALLENGES_MAX 1024 /* per source in WINDOW_NS: the largest backlog of a listener */

/*
 * Returns the bytes of an address that identify its source. For IPv6 a network of 64 bits is one
 * source, because a host in it can use all its addresses.
 */
static size_t source_len(const struct pkt_addr *src)
{
	return pkt_addr_is_v4(src) ? sizeof(src->b) : sizeof(src->b) / 2;
}

bool cm_same_source(const struct pkt_addr *a, const struct pkt_addr *b)
{
	return memcmp(a->b, b->b, source_len(a)) == 0;
}

struct cm_share *cm_share_of(struct cm *cm, const struct pkt_addr *src)
{
	uint64_t h = XXH3_64bits_withSeed(src->b, source_len(src), cm->hash_seed + CHAINS);

	return &cm->shares[h % CM_SHARES];
}

static bool is_backlog_filling(const struct cm_listener *l)
{
	return l->waiting_count >= (l->backlog + 3) / 4;
}

static bool under_load(struct cm *cm, const struct cm_listener *l, uint64_t now)
{
	if (now - cm->unverified_since >= UNVERIFIED_NS) {
		cm->unverified_since = now;
		cm->num_unverified = 0;
	}
	return cm->num_unverified >= UNVERIFIED_MAX || is_backlog_filling(l);
}

static struct cm_known *known_slot(struct cm *cm, const struct pkt_addr *addr)
{
	uint64_t h = XXH3_64bits_withSeed(addr->b, sizeof(addr->b), cm->hash_seed + CHAINS + 1);

	return &cm->known[h % CM_KNOWN];
}

void cm_earn_credits(struct cm *cm, const struct pkt_addr *addr)
{
	*known_slot(cm, addr) = (struct cm_known){.addr = *addr, .credits = CREDITS};
}

/*
 * Returns true if the sender of a REQ has a credit, which is used up, and need not be challenged.
 */
static bool use_credit(struct cm *cm, const struct cm_listener *l, const struct cm_rx *rx)
{
	struct cm_known *k = known_slot(cm, &rx->src);

	if (rx->m.attr != CM_REQ || !k->credits || !pkt_addr_eq(&k->addr, &rx->src) ||
	    cm->num_unverified >= UNVERIFIED_MAX + KNOWN_MAX || is_backlog_filling(l))
		return false;
	k->credits--;
	cm->counters.known++;
	return true;
}

/* Returns false if this source was challenged too often recently. */
static bool may_challenge(struct cm *cm, const struct cm_rx *rx)
{
	struct cm_share *s = cm_share_of(cm, &rx->src);

	if (rx->now - s->since >= WINDOW_NS) {
		s->since = rx->now;
		s->challenges = 0;
	}
	return s->challenges++ < CHALLENGES_MAX;
}

/*
 * The DREQ names no connection of the peer, so that the peer answers it at once. If programs share
 * the peer's address, it goes to the slot in the remote id: without that of the sender it would
 * reach no program, or another one.
 */
static void send_challenge(struct cm *cm, const struct cm_rx *rx)
{
	uint32_t i = cm->next_challenge++ & (cm->config.max_challenges - 1);
	struct cm_challenge *h = &cm->challenges[i];
	struct cm_msg m = {.attr = CM_DREQ,
			   .local_id = cm_id(cm, i + 1),
			   .remote_id = cm_id_slot(rx->m.local_id)};

	do
		m.tid = secret_u64(&cm->secret);
	while (!m.tid);
	*h = (struct cm_challenge){.tid = m.tid, .src = rx->src, .dst = rx->dst};
	memcpy(h->mad, rx->mad, sizeof(h->mad));
	cm->counters.asked++;
	cm_answer(cm, &rx->dst, &rx->src, &m);
}

bool cm_challenged(struct cm *cm, const struct cm_listener *l, const struct cm_rx *rx)
{
	if (rx->src_verified || !under_load(cm, l, rx->now) || l->waiting_count >= l->backlog)
		return false;
	if (use_credit(cm, l, rx))
		return false;
	if (may_challenge(cm, rx))
		send_challenge(cm, rx);
	else
		cm->counters.source_full++;
	return true;
}

bool cm_challenge_answered(struct cm *cm, const struct cm_rx *rx)
{
	struct cm_challenge *h =
		&cm->challenges[(rx->m.remote_id - 1) & (cm->config.max_challenges - 1)];
	struct cm_rx again = {
		.now = rx->now, .src = h->src, .dst = h->dst, .mad = h->mad, .src_verified = true};

	if (!rx->m.tid || h->tid != rx->m.tid || !pkt_addr_eq(&h->src, &rx->src))
		return false;
	h->tid = 0;
	if (cm_parse(h->mad, sizeof(h->mad), &again.m) != CM_OK)
		return true;
	if (again.m.attr == CM_REQ)
		cm_rx_req(cm, &again);
	else
		cm_rx_sidr_req(cm, &again);
	return true;
}

bool cm_share_full(struct cm *cm, const struct cm_listener *l, const struct pkt_addr *src)
{
	const struct cm_share *s = cm_share_of(cm, src);
	uint32_t free_listener = l->backlog - l->waiting_count;
	uint32_t free_all = cm->config.max_half_open > cm->half_open
				    ? cm->config.max_half_open - cm->half_open
				    : 0;

	if (s->waiting < SHARE * free_listener && s->half_open < SHARE * free_all)
		return false;
	cm->counters.source_full++;
	return true;
}

bool cm_limit_half_open(struct cm *cm, uint64_t now)
{
	if (cm->half_open < cm->config.max_half_open || list_empty(&cm->replied))
		return false;
	cm->counters.half_open_cut++;
	cm_give_up(list_first_entry(&cm->replied, struct cm_conn, link), now);
	return true;
}
