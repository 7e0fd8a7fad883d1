/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests that come too early. There are two cases. A server that serves one client after the
 * other destroys its listener and creates the next one (perftest with -R does this twice for a
 * test), and a client on a fast NIC asks in between. Or a server tells its client the port that it
 * has bound, and listens only then (qperf). The client would be refused, and most clients give up
 * then.
 *
 * So a request is held for a moment if its service had a listener a moment ago, or if its port is
 * bound. Requests to other services are refused at once, and so are requests that find no free
 * place. One source may occupy at most three times as many places as are free, as at a listener
 * (cm/stranger.c).
 */
#include <string.h>

#include "rdmacm/rdmacm.h"

#define HELD	   32
#define REMEMBERED 16
#define MEMORY_NS  2000000000u /* a service is remembered for so long after its listener's end */
#define HOLD_NS	   1000000000u
#define SHARE	   3

static struct {
	uint64_t service_id, until;
} served[REMEMBERED];
static unsigned next_served;

static struct held {
	uint64_t service_id, until; /* until 0: the place is free */
	struct pkt_addr src, dst;
	uint8_t mad[CM_MAD_LEN];
} held[HELD];

void rdmacm_early_forget(void)
{
	memset(served, 0, sizeof(served));
	memset(held, 0, sizeof(held));
}

void rdmacm_early_unlisten(uint64_t service_id)
{
	served[next_served].service_id = service_id;
	served[next_served].until = rdmacm_now() + MEMORY_NS;
	next_served = (next_served + 1) % REMEMBERED;
}

/*
 * Compares only the port, not the port space: perftest's first listener is for connections, the
 * second one for datagrams if it tests datagrams.
 */
static bool was_served(uint64_t service_id, uint64_t now)
{
	for (unsigned i = 0; i < REMEMBERED; i++) {
		bool same = ((served[i].service_id ^ service_id) & RDMA_IB_IP_PORT_MASK) == 0;

		if (same && now < served[i].until)
			return true;
	}
	return false;
}

static bool is_request(const uint8_t *mad, uint64_t *service_id)
{
	struct cm_msg m;

	if (cm_parse(mad, CM_MAD_LEN, &m) != CM_OK)
		return false;
	*service_id = m.attr == CM_REQ ? m.req.service_id : m.sidr_req.service_id;
	return m.attr == CM_REQ || m.attr == CM_SIDR_REQ;
}

/* Returns a free place, or NULL if this source gets none. */
static struct held *place_for(const struct pkt_addr *src)
{
	unsigned its = 0, num_free = 0;
	struct held *place = NULL;

	for (unsigned i = 0; i < HELD; i++) {
		if (!held[i].until) {
			place = &held[i];
			num_free++;
		} else {
			its += cm_same_source(&held[i].src, src);
		}
	}
	return its < SHARE * num_free ? place : NULL;
}

bool rdmacm_early_hold(const struct pkt_addr *src, const struct pkt_addr *dst, const uint8_t *mad)
{
	uint64_t now = rdmacm_now(), service_id;
	struct held *h;

	if (!is_request(mad, &service_id) || rdmacm_any_in(RDMACM_LISTEN, service_id))
		return false;
	if (!was_served(service_id, now) && !rdmacm_any_in(RDMACM_BOUND, service_id))
		return false;
	h = place_for(src);
	if (!h)
		return false;
	h->service_id = service_id;
	h->until = now + HOLD_NS;
	h->src = *src;
	h->dst = *dst;
	memcpy(h->mad, mad, CM_MAD_LEN);
	return true;
}

static void let_go(struct held *h, uint64_t now)
{
	h->until = 0;
	cm_input(agent.cm, now, &h->src, &h->dst, h->mad, CM_MAD_LEN);
}

void rdmacm_early_listen(uint64_t service_id)
{
	for (unsigned i = 0; i < HELD; i++) {
		if (held[i].until && held[i].service_id == service_id)
			let_go(&held[i], rdmacm_now());
	}
}

uint64_t rdmacm_early_expire(uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (unsigned i = 0; i < HELD; i++) {
		if (held[i].until && held[i].until <= now)
			let_go(&held[i], now);
		else if (held[i].until && held[i].until < next)
			next = held[i].until;
	}
	return next;
}
