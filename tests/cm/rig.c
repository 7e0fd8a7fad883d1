/* SPDX-License-Identifier: BSD-2-Clause */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void on_send(void *ctx, const struct cm_datagram *d)
{
	struct end *e = ctx;
	struct sent *s = &e->sent[e->sent_head % KEEP];

	assert_true(pkt_addr_eq(&d->src, &e->addr));
	if (e->on_send) {
		e->on_send(e, d);
		return;
	}
	assert_true(e->sent_head++ - e->sent_tail < KEEP);
	s->src = d->src;
	s->dst = d->dst;
	s->tclass = d->tclass;
	memcpy(s->mad, d->mad, CM_MAD_LEN);
	assert_int_equal(cm_parse(s->mad, CM_MAD_LEN, &s->m), CM_OK);
}

static void on_event(void *ctx, const struct cm_event *ev)
{
	struct end *e = ctx;
	struct told *t = &e->told[e->told_head % KEEP];

	if (e->on_event) {
		e->on_event(e, ev);
		return;
	}
	assert_true(e->told_head++ - e->told_tail < KEEP);
	t->e = *ev;
	memset(t->data, 0, sizeof(t->data));
	memset(t->info, 0, sizeof(t->info));
	if (ev->data)
		memcpy(t->data, ev->data, ev->data_len);
	if (ev->info_len)
		memcpy(t->info, ev->info, ev->info_len);
}

void end_open(struct end *e, unsigned host, uint64_t *now, const struct cm_config *config)
{
	struct cm_config c = config ? *config : (struct cm_config){.max_conns = 64};
	struct cm_ops ops = {e, on_send, on_event, NULL};

	memset(e, 0, sizeof(*e));
	e->now = now;
	e->addr = (struct pkt_addr){{[10] = 0xff, 0xff, 10, 0, 0, (uint8_t)host}};
	c.guid = c.guid ? c.guid : GUID_OF(e);
	c.seed[0] = c.seed[0] ? c.seed[0] : host;
	e->cm = cm_new(&c, &ops, *now);
	assert_non_null(e->cm);
}

void end_close(struct end *e)
{
	end_quiet(e);
	cm_free(e->cm);
}

const struct sent *end_sent(struct end *e, enum cm_attr attr)
{
	const struct sent *s = &e->sent[e->sent_tail % KEEP];

	if (e->sent_tail == e->sent_head)
		fail_msg("sent nothing, should have sent %s", cm_attr_str(attr));
	e->sent_tail++;
	if (s->m.attr != attr)
		fail_msg("sent %s, %s was expected", cm_attr_str(s->m.attr), cm_attr_str(attr));
	return s;
}

const struct cm_event *end_told(struct end *e, enum cm_event_type type)
{
	if (e->told_tail == e->told_head)
		fail_msg("no event, %s was expected", cm_event_str(type));
	e->last = e->told[e->told_tail++ % KEEP];
	e->last.e.data = e->last.data;
	e->last.e.info = e->last.info;
	if (e->last.e.type != type)
		fail_msg("event %s, %s was expected", cm_event_str(e->last.e.type),
			 cm_event_str(type));
	return &e->last.e;
}

void end_quiet(struct end *e)
{
	if (e->sent_tail != e->sent_head)
		fail_msg("%s was sent, too", cm_attr_str(e->sent[e->sent_tail % KEEP].m.attr));
	if (e->told_tail != e->told_head)
		fail_msg("event %s is left", cm_event_str(e->told[e->told_tail % KEEP].e.type));
}

void end_take(struct end *e, const struct sent *s)
{
	assert_true(pkt_addr_eq(&s->dst, &e->addr));
	cm_input(e->cm, *e->now, &s->src, &s->dst, s->mad, CM_MAD_LEN);
}

const struct sent *pass(struct end *from, struct end *to, enum cm_attr attr)
{
	const struct sent *s = end_sent(from, attr);

	end_take(to, s);
	return s;
}

void end_play(struct end *e, const struct pkt_addr *src, const struct cm_msg *m)
{
	uint8_t mad[CM_MAD_LEN];

	cm_build(m, mad);
	cm_input(e->cm, *e->now, src, &e->addr, mad, CM_MAD_LEN);
}

uint64_t end_wait(struct end *e)
{
	uint64_t next = cm_next(e->cm), was = *e->now;

	assert_true(next != UINT64_MAX);
	if (next > *e->now)
		*e->now = next;
	cm_expire(e->cm, *e->now);
	return *e->now - was;
}

struct cm_connect connect_to(const struct end *from, const struct end *to, uint32_t qpn)
{
	static struct cm_ip ip;

	ip = (struct cm_ip){from->addr, to->addr, 50000, true};
	return (struct cm_connect){
		.service_id = SERVICE,
		.src = from->addr,
		.dst = to->addr,
		.flow_label = 0x12345,
		.tclass = 104,
		.hop_limit = 64,
		.sl = 3,
		.mtu = 3,
		.ack_timeout = 19,
		.response_timeout = 20,
		.max_retries = 3,
		.transport = CM_TRANSPORT_RC,
		.qpn = qpn,
		.psn = 0x111111,
		.responder_resources = 4,
		.initiator_depth = 5,
		.flow_control = 1,
		.retry_count = 6,
		.rnr_retry = 7,
		.srq = 1,
		.ece = {0xabcdef, 0x11223344},
		.ip = &ip,
		.data = "hello",
		.data_len = 5,
	};
}

struct cm_accept accept_with(uint32_t qpn)
{
	return (struct cm_accept){
		.qpn = qpn,
		.psn = 0x222222,
		.responder_resources = 3,
		.initiator_depth = 2,
		.rnr_retry = 1,
		.ece = {0xfedcba, 0x55667788},
		.data = "welcome",
		.data_len = 7,
	};
}

void pair_open(struct pair *p)
{
	memset(p, 0, sizeof(*p));
	p->now = 1000;
	end_open(&p->a, 1, &p->now, NULL);
	end_open(&p->b, 2, &p->now, NULL);
	assert_int_equal(cm_listen(p->b.cm, SERVICE, NULL, CM_LISTEN_CONN, 8, p, &p->l), 0);
}

void pair_close(struct pair *p)
{
	end_close(&p->a);
	end_close(&p->b);
}

void pair_request(struct pair *p)
{
	struct cm_connect c = connect_to(&p->a, &p->b, 0x11);

	assert_int_equal(cm_connect(p->a.cm, p->now, &c, &p->a, &p->ca), 0);
	pass(&p->a, &p->b, CM_REQ);
	p->cb = end_told(&p->b, CM_EV_REQUEST)->conn;
	cm_set_user(p->cb, &p->b);
}

void pair_reply(struct pair *p)
{
	struct cm_accept a = accept_with(0x22);

	pair_request(p);
	assert_int_equal(cm_accept(p->cb, p->now, &a), 0);
	pass(&p->b, &p->a, CM_REP);
	assert_ptr_equal(end_told(&p->a, CM_EV_REPLY)->conn, p->ca);
}

void pair_connect(struct pair *p)
{
	pair_reply(p);
	assert_int_equal(cm_ready(p->ca, "ready", 5), 0);
	pass(&p->a, &p->b, CM_RTU);
	assert_ptr_equal(end_told(&p->b, CM_EV_ESTABLISHED)->conn, p->cb);
	assert_int_equal(cm_conn_state(p->ca), CM_ESTABLISHED);
	assert_int_equal(cm_conn_state(p->cb), CM_ESTABLISHED);
}
