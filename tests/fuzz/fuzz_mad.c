/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes connection management: the codec with each datagram of the input, and two state machines
 * with connections in any state. The input delivers, loses, repeats, changes and invents datagrams,
 * calls the functions of programs, and advances the time. A parsed datagram is built and parsed
 * again with the same result; each datagram of a machine is a message from its address; bounds
 * hold; after all connections are released and timers have ended, no object is left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cm/cm.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CONNS  12
#define FLIGHT 64

struct flight {
	struct pkt_addr src, dst;
	uint8_t mad[CM_MAD_LEN];
};

struct world;

struct side {
	struct world *w;
	struct cm *cm;
	struct pkt_addr addr;
	struct cm_conn *conn[CONNS]; /* owned by the program */
	uint32_t next_qpn;
	struct cm_listener *listener;
};

struct world {
	struct input in;
	uint64_t now;
	struct side s[2];
	struct flight air[FLIGHT];
	unsigned flying;
	bool closing; /* programs only release their connections */
};

static void try_codec(const uint8_t *mad, size_t len)
{
	uint8_t once[CM_MAD_LEN], twice[CM_MAD_LEN];
	struct cm_msg m, n;
	bool parsed = cm_parse(mad, len, &m) == CM_OK, request;
	uint64_t service;
	char text[80];
	int used;

	if (len == CM_MAD_LEN) {
		request = parsed && (m.attr == CM_REQ || m.attr == CM_SIDR_REQ);
		must(cm_is_request(mad, &service) == request, "a request, or none");
		must(!request || service == (m.attr == CM_REQ ? m.req.service_id
							      : m.sidr_req.service_id),
		     "another service");
	}
	if (!parsed)
		return;
	cm_build(&m, once);
	must(cm_parse(once, CM_MAD_LEN, &n) == CM_OK && memcmp(&m, &n, sizeof(m)) == 0,
	     "parsed otherwise again");
	cm_build(&n, twice);
	must(memcmp(once, twice, CM_MAD_LEN) == 0, "built otherwise again");
	used = cm_print(&m, text, sizeof(text));
	must(used > 0 && (size_t)used == strlen(text), "printed length");
}

static void on_send(void *ctx, const struct cm_datagram *d)
{
	struct side *s = ctx;
	struct world *w = s->w;
	struct cm_msg m;

	must(cm_parse(d->mad, CM_MAD_LEN, &m) == CM_OK, "sent what is no message");
	try_codec(d->mad, CM_MAD_LEN);
	must(pkt_addr_eq(&d->src, &s->addr), "sent from another address");
	if (w->flying == FLIGHT)
		return;
	w->air[w->flying].src = d->src;
	w->air[w->flying].dst = d->dst;
	memcpy(w->air[w->flying++].mad, d->mad, CM_MAD_LEN);
}

/* Calls a function as a program may, with valid or invalid arguments. */
static void operate(struct side *s, unsigned k, unsigned what)
{
	struct world *w = s->w;
	struct cm_accept a = {.qpn = ++s->next_qpn, .psn = 5, .data = "a", .data_len = 1};
	struct cm_conn *c = s->conn[k];
	struct cm_qp_attr attr;

	if (!c)
		return;
	cm_qp_attr(c, &attr);
	switch (what % 10) {
	case 0:
	case 1:
		cm_accept(c, w->now, &a);
		break;
	case 2:
	case 3:
		cm_ready(c, "r", 1);
		break;
	case 4:
		cm_disconnect(c, w->now, NULL, 0);
		break;
	case 5:
		cm_reject(c, w->now, CM_REJ_CONSUMER, NULL, 0, NULL, 0);
		break;
	case 6:
		cm_established(c);
		break;
	case 7:
		cm_delay(c, (uint8_t)(what % 32));
		break;
	case 8:
		cm_sidr_reply(c, w->now, CM_SIDR_OK, 1, 2, (struct cm_ece){0, 0}, NULL, 0);
		break;
	case 9:
		s->conn[k] = NULL;
		cm_release(c, w->now);
		break;
	}
}

static unsigned index_of(const struct side *s, const struct cm_conn *c)
{
	unsigned k = 0;

	while (k < CONNS && s->conn[k] != c)
		k++;
	return k;
}

/* The call may also come from the callback. */
static void on_event(void *ctx, const struct cm_event *e)
{
	struct side *s = ctx;
	unsigned k;

	must((unsigned)e->type < CM_EVENTS && e->conn, "no event");
	must(e->data_len <= CM_DATA_MAX && e->info_len <= CM_ARI_LEN, "an event's lengths");
	if (e->type == CM_EV_REQUEST || e->type == CM_EV_SIDR_REQUEST) {
		must(index_of(s, e->conn) == CONNS, "a connection asked for twice");
		k = index_of(s, NULL);
		must(k < CONNS, "more connections than there may be");
		s->conn[k] = e->conn;
	} else {
		k = index_of(s, e->conn);
		must(k < CONNS, "an event of a released connection");
	}
	if (s->w->closing)
		operate(s, k, 9);
	else if (u8(&s->w->in) & 1)
		operate(s, k, u8(&s->w->in));
}

/* The QP is new, or, with `stale`, one that the peer may consider connected. */
static void connect_one(struct side *s, const struct side *to, bool sidr, bool stale)
{
	struct cm_ip ip = {s->addr, to->addr, 5, true};
	struct cm_connect c = {.service_id = cm_service_id(CM_PS_TCP, 7471),
			       .src = s->addr,
			       .dst = to->addr,
			       .mtu = 5,
			       .ack_timeout = 14,
			       .response_timeout = 14,
			       .max_retries = 2,
			       .qpn = stale ? 1 : ++s->next_qpn,
			       .ip = &ip};
	struct cm_sidr q = {.service_id = cm_service_id(CM_PS_UDP, 7174),
			    .src = s->addr,
			    .dst = to->addr,
			    .response_timeout = 14,
			    .max_retries = 2,
			    .ip = &ip};
	unsigned k = index_of(s, NULL);

	if (k == CONNS)
		return;
	if (sidr)
		cm_sidr(s->cm, s->w->now, &q, NULL, &s->conn[k]);
	else
		cm_connect(s->cm, s->w->now, &c, NULL, &s->conn[k]);
}

static void deliver(struct world *w, const struct flight *f)
{
	for (int i = 0; i < 2; i++) {
		if (pkt_addr_eq(&f->dst, &w->s[i].addr))
			cm_input(w->s[i].cm, w->now, &f->src, &f->dst, f->mad, CM_MAD_LEN);
	}
}

static void pass_time(struct world *w, uint64_t ns)
{
	w->now += ns;
	for (int i = 0; i < 2; i++)
		cm_expire(w->s[i].cm, w->now);
}

/*
 * A datagram from the input, from one side to the other: whole, cut off, or with the ids and
 * addresses of a datagram in flight.
 */
static void make_up(struct world *w, unsigned how)
{
	struct side *from = &w->s[how & 1], *to = &w->s[!(how & 1)];
	size_t left = (size_t)(w->in.end - w->in.p), len = left < CM_MAD_LEN ? left : CM_MAD_LEN;
	uint8_t mad[CM_MAD_LEN];

	memcpy(mad, w->in.p, len);
	w->in.p += len;
	if (how & 2 && w->flying && len >= 32)
		memcpy(mad + 24, w->air[w->flying - 1].mad + 24, 8);
	if (how & 4 && len == CM_MAD_LEN) {
		memcpy(mad, (uint8_t[]){1, 7, 2, 3}, 4);
		mad[16] = 0;
		mad[17] = (uint8_t)(CM_ATTR_FIRST + mad[17] % CM_ATTRS);
	}
	try_codec(mad, len);
	cm_input(to->cm, w->now, &from->addr, &to->addr, mad, len);
}

static void listen_on(struct side *s)
{
	cm_listen(s->cm, cm_service_id(CM_PS_TCP, 7471), NULL, CM_LISTEN_CONN, 4, NULL,
		  &s->listener);
}

static void step(struct world *w)
{
	unsigned op = u8(&w->in), k;
	struct flight f;

	if (op >= 0x80) {
		make_up(w, op);
		return;
	}
	k = w->flying ? u8(&w->in) % w->flying : 0;
	switch (op % 8) {
	case 0:
	case 1: /* deliver one; it may stay for a second time, and may be changed on the way */
	case 2:
		if (!w->flying)
			return;
		f = w->air[k];
		if (op % 8 != 1)
			w->air[k] = w->air[--w->flying];
		if (op % 8 == 2) {
			unsigned at = u8(&w->in);

			f.mad[at] = u8(&w->in);
		}
		deliver(w, &f);
		break;
	case 3:
		if (w->flying)
			w->air[k] = w->air[--w->flying];
		break;
	case 4:
		connect_one(&w->s[op >> 3 & 1], &w->s[op >> 4 & 1], op >> 5 & 1, op >> 6 & 1);
		break;
	case 5:
		k = u8(&w->in) % CONNS;
		operate(&w->s[op >> 3 & 1], k, u8(&w->in));
		break;
	case 7:
		/* the next listener gets the waiting requests, or no listener does */
		if (op >> 6 & 1) {
			cm_unlisten(w->s[op >> 3 & 1].listener);
			listen_on(&w->s[op >> 3 & 1]);
			break;
		}
		/* fall through */
	default:
		pass_time(w, (uint64_t)u8(&w->in) << 24);
	}
}

/* Releases all connections, and waits until the timers have ended. */
static void finish(struct world *w)
{
	w->closing = true;
	for (int i = 0; i < 2; i++) {
		for (unsigned k = 0; k < CONNS; k++)
			operate(&w->s[i], k, 9);
	}
	for (int n = 0; n < 2000; n++) {
		uint64_t a = cm_next(w->s[0].cm), b = cm_next(w->s[1].cm), next = a < b ? a : b;

		if (next == UINT64_MAX)
			break;
		w->flying = 0;
		pass_time(w, next > w->now ? next - w->now : 0);
	}
	for (int i = 0; i < 2; i++)
		must(cm_in_use(w->s[i].cm) == 0, "something is left");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world w;
	struct cm_listener *l;

	memset(&w, 0, sizeof(w));
	w.in = (struct input){data, data + size};
	for (unsigned i = 0; i < 2; i++) {
		struct cm_config c = {.seed = {1},
				      .guid = 1 + i,
				      .max_conns = CONNS,
				      .max_half_open = 6,
				      .max_listeners = 4};
		struct cm_ops ops = {&w.s[i], on_send, on_event, NULL};

		w.s[i].w = &w;
		w.s[i].addr = (struct pkt_addr){{[10] = 0xff, 0xff, 10, 77, 0, (uint8_t)(2 - i)}};
		w.s[i].cm = cm_new(&c, &ops, 0);
		must(w.s[i].cm, "no memory");
		listen_on(&w.s[i]);
		cm_listen(w.s[i].cm, cm_service_id(CM_PS_TCP, 7174), NULL, CM_LISTEN_CONN, 0, NULL,
			  &l);
		cm_listen(w.s[i].cm, cm_service_id(CM_PS_UDP, 7174), NULL, CM_LISTEN_UD, 0, NULL,
			  &l);
	}
	try_codec(data, size);
	while (w.in.p < w.in.end)
		step(&w);
	for (int i = 0; i < 2; i++)
		must(cm_in_use(w.s[i].cm) <= CONNS, "more than the bound");
	finish(&w);
	for (int i = 0; i < 2; i++)
		cm_free(w.s[i].cm);
	return 0;
}
