/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keeps requests that come before their listener. There are two cases. First, a server that serves
 * one client after the other destroys its listener and creates the next one (perftest with -R does
 * this twice for a test), and a client on a fast NIC connects in between. Second, a server sends
 * its client the port that it has bound, and listens only afterwards (qperf). Without this code the
 * client would be refused, and most clients then give up.
 *
 * A request is kept for WAIT_NS if its service had a listener within the last MEMORY_NS, or if its
 * port is bound. Requests to other services are refused at once, and so are requests without a free
 * slot. One source may have at most three times as many slots as are free, as at a listener
 * (cm/challenge.c).
 */
#include <string.h>

#include "rdmacm/rdmacm.h"

#define MAX_EARLY  32
#define REMEMBERED 16
#define MEMORY_NS  2000000000u /* time for which a service is remembered after its listener's end */
#define WAIT_NS	   1000000000u
#define SHARE	   3

static struct {
	uint64_t service_id, until;
} ended[REMEMBERED];
static unsigned next_ended;

static struct early {
	uint64_t service_id, until; /* `until` is 0 if the slot is free */
	struct pkt_addr src, dst;
	uint8_t mad[CM_MAD_LEN];
} early[MAX_EARLY];

void rdmacm_early_forget(void)
{
	memset(ended, 0, sizeof(ended));
	memset(early, 0, sizeof(early));
}

void rdmacm_early_unlisten(uint64_t service_id)
{
	ended[next_ended].service_id = service_id;
	ended[next_ended].until = rdmacm_now() + MEMORY_NS;
	next_ended = (next_ended + 1) % REMEMBERED;
}

/*
 * Compares only the port, not the port space: perftest's first listener is for connections, the
 * second one for datagrams if it tests datagrams.
 */
static bool ended_recently(uint64_t service_id, uint64_t now)
{
	for (unsigned i = 0; i < REMEMBERED; i++) {
		bool same = ((ended[i].service_id ^ service_id) & RDMA_IB_IP_PORT_MASK) == 0;

		if (same && now < ended[i].until)
			return true;
	}
	return false;
}

/* Returns a free slot, or NULL if this source gets none. */
static struct early *slot_for(const struct pkt_addr *src)
{
	unsigned its = 0, num_free = 0;
	struct early *slot = NULL;

	for (unsigned i = 0; i < MAX_EARLY; i++) {
		if (!early[i].until) {
			slot = &early[i];
			num_free++;
		} else {
			its += cm_same_source(&early[i].src, src);
		}
	}
	return its < SHARE * num_free ? slot : NULL;
}

bool rdmacm_early_keep(const struct pkt_addr *src, const struct pkt_addr *dst, const uint8_t *mad)
{
	uint64_t now = rdmacm_now(), service_id;
	struct early *h;

	if (!cm_is_request(mad, &service_id) || rdmacm_any_in(RDMACM_LISTEN, service_id))
		return false;
	if (!ended_recently(service_id, now) && !rdmacm_any_in(RDMACM_BOUND, service_id))
		return false;
	h = slot_for(src);
	if (!h)
		return false;
	h->service_id = service_id;
	h->until = now + WAIT_NS;
	h->src = *src;
	h->dst = *dst;
	memcpy(h->mad, mad, CM_MAD_LEN);
	return true;
}

static void hand_to_listener(struct early *h, uint64_t now)
{
	h->until = 0;
	cm_input(agent.cm, now, &h->src, &h->dst, h->mad, CM_MAD_LEN);
}

void rdmacm_early_listen(uint64_t service_id)
{
	for (unsigned i = 0; i < MAX_EARLY; i++) {
		if (early[i].until && early[i].service_id == service_id)
			hand_to_listener(&early[i], rdmacm_now());
	}
}

uint64_t rdmacm_early_expire(uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (unsigned i = 0; i < MAX_EARLY; i++) {
		if (early[i].until && early[i].until <= now)
			hand_to_listener(&early[i], now);
		else if (early[i].until && early[i].until < next)
			next = early[i].until;
	}
	return next;
}
