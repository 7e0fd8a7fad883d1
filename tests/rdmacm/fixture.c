/* SPDX-License-Identifier: BSD-2-Clause */
#include "fixture.h"
#include "../common/network.h"

#include <arpa/inet.h>
#include <poll.h>
#include <unistd.h>

#define NOBODY6 "fd79::9"

static uint32_t address(void)
{
	unsigned pid = (unsigned)getpid();

	return 127u << 24 | (64 + (pid >> 16 & 63)) << 16 | (pid & 0xffff);
}

static bool v6(void)
{
	return getenv("RDMACM_TEST_V6") != NULL;
}

bool network_ready(void)
{
	if (!v6() || (network_own() && network_add6("lo", NOBODY6)))
		return true;
	fprintf(stderr, "SKIPPED: no network namespace with an IPv6 loopback\n");
	return false;
}

void choose_port(bool again)
{
	const char *kind = getenv("RDMACM_TEST_PORT");
	uint32_t a = address();
	char spec[64];

	if (!kind)
		kind = "udp";
	if (v6())
		snprintf(spec, sizeof(spec), "%s:::1", kind);
	else
		snprintf(spec, sizeof(spec), "%s:%u.%u.%u.%u", kind, a >> 24, a >> 16 & 255,
			 a >> 8 & 255, a & 255);
	setenv("ROOST_PORT", spec, again);
}

union address at4(uint32_t number, uint16_t port)
{
	return (union address){.in = {.sin_family = AF_INET,
				      .sin_port = htons(port),
				      .sin_addr.s_addr = htonl(number)}};
}

union address at6(uint16_t port)
{
	union address a = any6(port);

	a.in6.sin6_addr = in6addr_loopback;
	return a;
}

union address any4(uint16_t port)
{
	return at4(INADDR_ANY, port);
}

union address any6(uint16_t port)
{
	return (union address){.in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)}};
}

union address ours(uint16_t port)
{
	return v6() ? at6(port) : at4(address(), port);
}

union address nobody(uint16_t port)
{
	union address a = v6() ? any6(port)
			       : at4(address() ^ 1 << 22, port); /* tests use 127.64.0.0 and up */

	if (v6())
		inet_pton(AF_INET6, NOBODY6, &a.in6.sin6_addr);
	return a;
}

union address any(uint16_t port)
{
	return v6() ? any6(port) : any4(port);
}

struct rdma_cm_event *next_event(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};
	struct rdma_cm_event *e;

	if (poll(&p, 1, WAIT_MS) != 1)
		fail_msg("no event in %d ms, waiting for %s", WAIT_MS, rdma_event_str(type));
	assert_int_equal(rdma_get_cm_event(ch, &e), 0);
	if (e->event != type)
		fail_msg("%s (%d), waiting for %s", rdma_event_str(e->event), e->status,
			 rdma_event_str(type));
	return e;
}

int expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e = next_event(ch, type);
	int status = e->status;

	assert_int_equal(rdma_ack_cm_event(e), 0);
	return status;
}

bool quiet(struct rdma_event_channel *ch)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};

	return poll(&p, 1, 0) == 0;
}

struct rdma_event_channel *channel(void)
{
	struct rdma_event_channel *ch;

	choose_port(false);
	ch = rdma_create_event_channel();
	assert_non_null(ch);
	return ch;
}

struct rdma_cm_id *listener(struct rdma_event_channel *ch, enum rdma_port_space ps,
			    union address at, int backlog)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(ch, &id, NULL, ps), 0);
	if (rdma_bind_addr(id, &at.sa))
		fail_msg("rdma_bind_addr: %s", strerror(errno));
	if (rdma_listen(id, backlog))
		fail_msg("rdma_listen: %s", strerror(errno));
	return id;
}

struct rdma_cm_id *resolved_to(struct rdma_event_channel *ch, enum rdma_port_space ps,
			       union address to)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(ch, &id, NULL, ps), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, &to.sa, 1000), 0);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	return id;
}

struct rdma_cm_id *resolved(struct rdma_event_channel *ch, enum rdma_port_space ps, uint16_t port)
{
	return resolved_to(ch, ps, ours(port));
}

uint16_t port_of(struct rdma_cm_id *id)
{
	return ntohs(rdma_get_src_port(id));
}

void make_qp(struct rdma_cm_id *id, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = type,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.sq_sig_all = 1,
	};

	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
	assert_non_null(id->qp);
	assert_non_null(id->send_cq);
	assert_non_null(id->recv_cq_channel);
}

void connect_more(struct pair *p, struct rdma_cm_id **active, struct rdma_cm_id **passive)
{
	struct rdma_conn_param param = {
		.responder_resources = 2, .initiator_depth = 2, .retry_count = 7};
	struct rdma_cm_event *e;

	*active = resolved(p->ach, p->listen->ps, port_of(p->listen));
	make_qp(*active, (*active)->qp_type);
	assert_int_equal(rdma_connect(*active, &param), 0);
	e = next_event(p->lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	*passive = e->id;
	make_qp(*passive, (*passive)->qp_type);
	if (p->listen->qp_type == IBV_QPT_UD)
		param.qp_num = (*passive)->qp->qp_num;
	assert_int_equal(rdma_accept(*passive, &param), 0);
	assert_int_equal(rdma_ack_cm_event(e), 0);
	if (p->listen->qp_type != IBV_QPT_UD) {
		assert_int_equal(expect(p->ach, RDMA_CM_EVENT_ESTABLISHED), 0);
		assert_int_equal(expect(p->lch, RDMA_CM_EVENT_ESTABLISHED), 0);
	}
}

void pair_open(struct pair *p, enum rdma_port_space ps)
{
	p->lch = channel();
	p->ach = channel();
	p->listen = listener(p->lch, ps, any(0), 0);
	connect_more(p, &p->active, &p->passive);
}

void hang_up(struct pair *p, struct rdma_cm_id *active, struct rdma_cm_id *passive)
{
	assert_int_equal(rdma_disconnect(active), 0);
	assert_int_equal(expect(p->lch, RDMA_CM_EVENT_DISCONNECTED), 0);
	assert_int_equal(rdma_disconnect(passive), 0);
	assert_int_equal(expect(p->ach, RDMA_CM_EVENT_DISCONNECTED), 0);
}

void drop(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
}

void quit(struct rdma_cm_id *listen, struct rdma_event_channel *lch, struct rdma_event_channel *ach)
{
	assert_int_equal(rdma_destroy_id(listen), 0);
	rdma_destroy_event_channel(ach);
	rdma_destroy_event_channel(lch);
}

void pair_close(struct pair *p)
{
	drop(p->active);
	drop(p->passive);
	quit(p->listen, p->lch, p->ach);
}

void send_text(struct rdma_cm_id *from, struct rdma_cm_id *to, const char *text)
{
	static char buf[2][64];
	struct ibv_mr *out, *in;
	struct ibv_wc wc;

	memset(buf, 0, sizeof(buf));
	snprintf(buf[0], sizeof(buf[0]), "%s", text);
	out = rdma_reg_msgs(from, buf[0], sizeof(buf[0]));
	in = rdma_reg_msgs(to, buf[1], sizeof(buf[1]));
	assert_non_null(out);
	assert_non_null(in);
	assert_int_equal(rdma_post_recv(to, NULL, buf[1], sizeof(buf[1]), in), 0);
	assert_int_equal(rdma_post_send(from, NULL, buf[0], sizeof(buf[0]), out, 0), 0);
	assert_int_equal(rdma_get_send_comp(from, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(rdma_get_recv_comp(to, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_string_equal(buf[1], text);
	rdma_dereg_mr(out);
	rdma_dereg_mr(in);
}
