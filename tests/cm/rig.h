/* SPDX-License-Identifier: BSD-2-Clause */
/* An end is a connection manager whose datagrams and events are kept until a test takes them. */
#ifndef TESTS_CM_RIG_H
#define TESTS_CM_RIG_H

#include "cm/cm.h"

#define KEEP 64

struct sent {
	struct pkt_addr src, dst;
	uint8_t tclass;
	uint8_t mad[CM_MAD_LEN];
	struct cm_msg m; /* the datagram, parsed */
};

struct told {
	struct cm_event e; /* e.data and e.info point to the next two members */
	uint8_t data[CM_DATA_MAX], info[CM_ARI_LEN];
};

struct end {
	struct cm *cm;
	struct pkt_addr addr;
	uint64_t *now; /* shared by the ends of a test */
	struct sent sent[KEEP];
	struct told told[KEEP];
	unsigned sent_head, sent_tail, told_head, told_tail;
	struct told last; /* the last result of end_told() */
	/* If set, they are called, and nothing is kept. */
	void (*on_send)(struct end *e, const struct cm_datagram *d);
	void (*on_event)(struct end *e, const struct cm_event *ev);
	void *user;
};

#define GUID_OF(e) (0x1000u + (e)->addr.b[15])

/*
 * Creates an end at 10.0.0.host. config may be NULL. If its guid and seed are 0, they are filled
 * in.
 */
void end_open(struct end *e, unsigned host, uint64_t *now, const struct cm_config *config);
/* Checks that the test has taken everything, then frees the end. */
void end_close(struct end *e);

/*
 * Returns the oldest sent datagram, which must be of that kind. It is valid until 64 more are sent.
 */
const struct sent *end_sent(struct end *e, enum cm_attr attr);
/* Returns the oldest event, which must be of that type. It is valid until the next call. */
const struct cm_event *end_told(struct end *e, enum cm_event_type type);
/* Checks that no datagram and no event is left. */
void end_quiet(struct end *e);

/* Delivers a datagram to the end. */
void end_take(struct end *e, const struct sent *s);
/* Takes the oldest datagram sent by `from`, which must be of that kind, and delivers it to `to`. */
const struct sent *pass(struct end *from, struct end *to, enum cm_attr attr);
/* Delivers a message that the test has made, from that address. */
void end_play(struct end *e, const struct pkt_addr *src, const struct cm_msg *m);
/* Advances time to the end's next time-out and runs it. Returns how far time advanced. */
uint64_t end_wait(struct end *e);

/* Returns ordinary parameters. */
#define SERVICE cm_service_id(CM_PS_TCP, 7471)
struct cm_connect connect_to(const struct end *from, const struct end *to, uint32_t qpn);
struct cm_accept accept_with(uint32_t qpn);

struct pair {
	uint64_t now;
	struct end a, b;
	struct cm_listener *l;
	struct cm_conn *ca, *cb;
};

/* Creates two ends. b listens for SERVICE. */
void pair_open(struct pair *p);
void pair_close(struct pair *p);
/* The steps of a connection. a's QP is 0x11, b's 0x22. */
void pair_request(struct pair *p); /* a's REQ is at b */
void pair_reply(struct pair *p);   /* b's REP is at a */
void pair_connect(struct pair *p); /* a's RTU is at b */

#endif
