/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connection management over QP 1 of two NICs on a lossy link, in virtual time. Programs connect,
 * bring up their QPs with the values of cm_qp_attr(), move data both ways, and disconnect.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "cm/cm.h"
#include "port/sim.h"
#include "world.h"

#define SERVICE cm_service_id(CM_PS_TCP, 7471)

struct node {
	struct world *w;
	struct cm *cm;
	struct ep ep;
	struct cm_conn *conn;
	bool up, over;
};

static struct pkt_addr addr_of(const struct node *n)
{
	return nic_port(n->ep.nic, 0, 0)->addr;
}

static void on_send(void *ctx, const struct cm_datagram *d)
{
	struct node *n = ctx;

	/* A datagram that finds no space counts as lost. */
	nic_gsi_send(n->ep.nic, 0, &d->dst, d->tclass, d->mad);
}

/* Brings up the QP as librdmacm does for a program. */
static void bring_up(struct node *n)
{
	struct nic_qp_attr a;
	struct cm_qp_attr q;

	cm_qp_attr(n->conn, &q);
	ep_attr(&n->ep, &n->ep, &a);
	a.dgid = q.dgid;
	a.hop_limit = q.hop_limit;
	a.path_mtu = 128u << q.path_mtu;
	a.dest_qpn = q.dest_qpn;
	a.rq_psn = q.rq_psn;
	a.sq_psn = q.sq_psn;
	a.max_dest_rd_atomic = q.max_dest_rd_atomic;
	a.max_rd_atomic = q.max_rd_atomic;
	a.retry_cnt = q.retry_cnt;
	a.rnr_retry = q.rnr_retry;
	ep_to_init(&n->ep);
	ep_to_rtr(&n->ep, &a);
	ep_to_rts(&n->ep, &a);
}

static void on_event(void *ctx, const struct cm_event *e)
{
	struct node *n = ctx;
	uint64_t now = world_now(n->w);
	struct cm_accept acc = {.qpn = nic_qp_num(n->ep.qp), .psn = 0xfffff0, .rnr_retry = 7};

	switch (e->type) {
	case CM_EV_REQUEST:
		n->conn = e->conn;
		acc.responder_resources = e->responder_resources;
		acc.initiator_depth = e->initiator_depth;
		assert_int_equal(cm_accept(n->conn, now, &acc), 0);
		bring_up(n); /* no turn has run since, so no packet can have come for the QP */
		break;
	case CM_EV_REPLY:
		bring_up(n);
		assert_int_equal(cm_ready(n->conn, NULL, 0), 0);
		n->up = true;
		break;
	case CM_EV_ESTABLISHED:
		n->up = true;
		break;
	case CM_EV_DISCONNECTED:
		assert_int_equal(e->status, 0);
		n->over = true;
		if (cm_conn_state(n->conn) == CM_DREQ_RCVD)
			assert_int_equal(cm_disconnect(n->conn, now, NULL, 0), 0);
		break;
	case CM_EV_TIMEWAIT_EXIT:
		break;
	default:
		fail_msg("event %s was not expected", cm_event_str(e->type));
	}
}

/* Runs until done() is true for both nodes. Datagrams to QP 1 go to their node's state machine. */
static void run_until(struct world *w, struct node n[2], bool (*done)(const struct node *))
{
	for (int steps = 0; !done(&n[0]) || !done(&n[1]); steps++) {
		uint64_t a = cm_next(n[0].cm), b = cm_next(n[1].cm), next = a < b ? a : b,
			 count = w->gsi.count;

		assert_true(steps < 100000 && next != UINT64_MAX);
		if (next > world_now(w) && world_step(w, next)) {
			for (int i = 0; i < 2 && w->gsi.count != count; i++) {
				struct pkt_addr mine = addr_of(&n[i]);

				if (pkt_addr_eq(&w->gsi.dst, &mine))
					cm_input(n[i].cm, world_now(w), &w->gsi.src, &w->gsi.dst,
						 w->gsi.mad, CM_MAD_LEN);
			}
			continue;
		}
		if (next > world_now(w))
			sim_advance(w->sim, next);
		for (int i = 0; i < 2; i++)
			cm_expire(n[i].cm, world_now(w));
	}
}

static bool is_up(const struct node *n)
{
	return n->up;
}

static bool is_over(const struct node *n)
{
	return n->over;
}

static void write_and_see(struct node *from, struct node *to, const char *text)
{
	struct wr wr = wr_rdma(ROOST_OP_WRITE, &from->ep, 0, 16, &to->ep, 64);
	struct roost_cqe c;

	memset(from->ep.mem, 0, 16);
	strcpy((char *)from->ep.mem, text);
	ep_post(&from->ep, &wr);
	assert_true(ep_wait_send(&from->ep, &c, 100 * SEC));
	assert_int_equal(c.status, 0);
	assert_string_equal((char *)to->ep.mem + 64, text);
}

static void connections_over_qp_1_carry_data(void **state)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct sim_params sp = {
			.loss = seed == 1 ? 0 : 0.2, .dup = seed == 1 ? 0 : 0.1, .delay_ns = 1000};
		struct cm_connect c = {.service_id = SERVICE,
				       .hop_limit = 64,
				       .mtu = 3,
				       .ack_timeout = 14,
				       .response_timeout = 16,
				       .max_retries = 15,
				       .psn = 0x123456,
				       .responder_resources = 4,
				       .initiator_depth = 4,
				       .retry_count = 7,
				       .rnr_retry = 7};
		struct node n[2] = {0};
		struct cm_listener *l;
		struct world w;

		world_init(&w, 2, seed, &sp);
		for (unsigned i = 0; i < 2; i++) {
			struct cm_config config = {.seed = {seed}, .guid = 1 + i, .max_conns = 8};
			struct cm_ops ops = {&n[i], on_send, on_event, NULL};

			n[i].w = &w;
			ep_init(&n[i].ep, &w, i, &(struct ep_params){.retry_cnt = 7});
			n[i].cm = cm_new(&config, &ops, world_now(&w));
			assert_non_null(n[i].cm);
		}
		assert_int_equal(cm_listen(n[1].cm, SERVICE, NULL, CM_LISTEN_CONN, 0, NULL, &l), 0);
		c.src = addr_of(&n[0]);
		c.dst = addr_of(&n[1]);
		c.qpn = nic_qp_num(n[0].ep.qp);
		assert_int_equal(cm_connect(n[0].cm, world_now(&w), &c, NULL, &n[0].conn), 0);
		run_until(&w, n, is_up);
		write_and_see(&n[0], &n[1], "there");
		write_and_see(&n[1], &n[0], "and back");
		assert_int_equal(cm_disconnect(n[0].conn, world_now(&w), NULL, 0), 0);
		run_until(&w, n, is_over);
		for (int i = 0; i < 2; i++) {
			cm_release(n[i].conn, world_now(&w));
			cm_free(n[i].cm);
			ep_fini(&n[i].ep);
		}
		world_fini(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connections_over_qp_1_carry_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
