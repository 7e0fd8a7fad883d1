/* SPDX-License-Identifier: BSD-2-Clause */
/* An end: a connection manager whose datagrams and events are kept until a test takes them. */
#ifndef TESTS_CM_RIG_H
#define TESTS_CM_RIG_H

#include "cm/cm.h"

#define KEEP 64

struct sent {
	struct pkt_addr src, dst;
	uint8_t tclass;
	uint8_t mad[CM_MAD_LEN];
	struct cm_msg m; /* the same, parsed */
};

struct told {
	struct cm_event e; /* e.data and e.info point to the next two */
	uint8_t data[CM_DATA_MAX], info[CM_ARI_LEN];
};

struct end {
	struct cm *cm;
	struct pkt_addr addr;
	uint64_t *now; /* shared by the ends of a test */
	struct sent sent[KEEP];
	struct told told[KEEP];
	unsigned sent_head, sent_tail, told_head, told_tail;
	struct told last; /* what end_told() returned */
	/* In place of keeping. */
	void (*on_send)(struct end *e, const struct cm_datagram *d);
	void (*on_event)(struct end *e, const struct cm_event *ev);
	void *user;
};

#define GUID_OF(e) (0x1000u + (e)->addr.b[15])

/* At 10.0.0.host; config may be NULL. Its guid and seed are filled in if they are 0. */
void end_open(struct end *e, unsigned host, uint64_t *now, const struct cm_config *config);
/* Checks that nothing is left that the test has not taken, then frees. */
void end_close(struct end *e);

/* The oldest datagram that was sent, which must be of that kind; valid until 64 more are sent. */
const struct sent *end_sent(struct end *e, enum cm_attr attr);
/* The oldest event, which must be of that type; valid until the next call. */
const struct cm_event *end_told(struct end *e, enum cm_event_type type);
/* Neither is there. */
void end_quiet(struct end *e);

/* Hands a datagram to the end it is for. */
void end_take(struct end *e, const struct sent *s);
/* The oldest sent by `from`, of that kind, handed to `to`. */
const struct sent *pass(struct end *from, struct end *to, enum cm_attr attr);
/* A message made by hand, from that address. */
void end_play(struct end *e, const struct pkt_addr *src, const struct cm_msg *m);
/* Time goes on to the end's next time-out, which runs; returns by how much. */
uint64_t end_wait(struct end *e);

/* Ordinary parameters. */
#define SERVICE cm_service_id(CM_PS_TCP, 7471)
struct cm_connect connect_to(const struct end *from, const struct end *to, uint32_t qpn);
struct cm_accept accept_with(uint32_t qpn);

struct pair {
	uint64_t now;
	struct end a, b;
	struct cm_listener *l;
	struct cm_conn *ca, *cb;
};

/* Two ends, b listens to SERVICE. */
void pair_open(struct pair *p);
void pair_close(struct pair *p);
/* Each step of the way to a connection; a's QP is 0x11, b's 0x22. */
void pair_request(struct pair *p); /* a's REQ is with b */
void pair_reply(struct pair *p);   /* b's REP is with a */
void pair_connect(struct pair *p); /* a's RTU is with b */

#endif
