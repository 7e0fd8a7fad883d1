/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections by events: established, refused, disconnected; the events of each side. */
#include <unistd.h>

#include "fixture.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include "roost/verbs.h"

static void data_flows_both_ways_until_one_end_disconnects(void **state)
{
	struct pair p;

	pair_open(&p, RDMA_PS_TCP);
	send_text(p.active, p.passive, "there");
	send_text(p.passive, p.active, "and back");
	hang_up(&p, p.active, p.passive);
	pair_close(&p);
}

static void the_passive_end_may_disconnect_first(void **state)
{
	struct pair p;

	pair_open(&p, RDMA_PS_TCP);
	assert_int_equal(rdma_disconnect(p.passive), 0);
	assert_int_equal(expect(p.ach, RDMA_CM_EVENT_DISCONNECTED), 0);
	assert_int_equal(rdma_disconnect(p.active), 0);
	assert_int_equal(expect(p.lch, RDMA_CM_EVENT_DISCONNECTED), 0);
	pair_close(&p);
}

/* Destroys both ids at once. No event of their ends is reported. */
static void ids_may_go_without_disconnecting(void **state)
{
	struct pair p;

	pair_open(&p, RDMA_PS_TCP);
	drop(p.active);
	assert_int_equal(expect(p.lch, RDMA_CM_EVENT_DISCONNECTED), 0);
	drop(p.passive);
	quit(p.listen, p.lch, p.ach);
}

/* Compares addresses without the port. */
static void assert_same_host(const struct sockaddr *sa, const union address *a)
{
	const union address *got = (const void *)sa;

	assert_int_equal(sa->sa_family, a->sa.sa_family);
	if (sa->sa_family == AF_INET)
		assert_int_equal(got->in.sin_addr.s_addr, a->in.sin_addr.s_addr);
	else
		assert_memory_equal(&got->in6.sin6_addr, &a->in6.sin6_addr,
				    sizeof(a->in6.sin6_addr));
}

static void each_end_sees_the_others_addresses_and_parameters(void **state)
{
	struct rdma_conn_param param = {.private_data = "question",
					.private_data_len = 9,
					.responder_resources = 3,
					.initiator_depth = 5,
					.retry_count = 6,
					.rnr_retry_count = 4};
	struct rdma_event_channel *lch = channel(), *ach = channel();
	struct rdma_cm_id *l = listener(lch, RDMA_PS_TCP, any(0), 0);
	struct rdma_cm_id *a = resolved(ach, RDMA_PS_TCP, port_of(l)), *p;
	union address own = ours(0);
	struct rdma_cm_event *e;

	assert_int_equal(a->route.num_paths, 1);
	assert_int_equal(a->route.path_rec->mtu, IBV_MTU_4096);
	assert_non_null(a->verbs);
	assert_int_equal(a->port_num, 1);
	make_qp(a, IBV_QPT_RC);
	assert_int_equal(rdma_connect(a, &param), 0);
	e = next_event(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p = e->id;
	assert_ptr_equal(e->listen_id, l);
	assert_ptr_equal(p->verbs, a->verbs);
	assert_string_equal(e->param.conn.private_data, "question");
	assert_int_equal(e->param.conn.private_data_len, 56);
	/* The acceptor gets the two values exchanged, as it will use them. */
	assert_int_equal(e->param.conn.responder_resources, 5);
	assert_int_equal(e->param.conn.initiator_depth, 3);
	assert_int_equal(e->param.conn.retry_count, 6);
	assert_int_equal(e->param.conn.rnr_retry_count, 4);
	assert_int_equal(e->param.conn.qp_num, a->qp->qp_num);
	assert_same_host(rdma_get_peer_addr(p), &own);
	assert_same_host(rdma_get_local_addr(p), &own);
	assert_int_equal(rdma_get_dst_port(p), rdma_get_src_port(a));
	assert_int_equal(rdma_get_src_port(p), rdma_get_src_port(l));
	assert_int_not_equal(port_of(a), 0);

	make_qp(p, IBV_QPT_RC);
	param.private_data = "answer";
	param.private_data_len = 7;
	param.responder_resources = 5;
	param.initiator_depth = 3;
	assert_int_equal(rdma_accept(p, &param), 0);
	assert_int_equal(rdma_ack_cm_event(e), 0);
	e = next_event(ach, RDMA_CM_EVENT_ESTABLISHED);
	assert_ptr_equal(e->id, a);
	assert_string_equal(e->param.conn.private_data, "answer");
	assert_int_equal(e->param.conn.private_data_len, 196);
	assert_int_equal(e->param.conn.responder_resources, 3);
	assert_int_equal(e->param.conn.initiator_depth, 5);
	assert_int_equal(e->param.conn.qp_num, p->qp->qp_num);
	assert_int_equal(rdma_ack_cm_event(e), 0);
	assert_int_equal(expect(lch, RDMA_CM_EVENT_ESTABLISHED), 0);
	drop(a);
	drop(p);
	quit(l, lch, ach);
}

/*
 * Two Roost ends agree on options beyond the specification. Both know the answer, which differs
 * from the offer.
 */
static void ends_of_ours_agree_through_ece(void **state)
{
	struct ibv_ece a, b;
	struct pair p;

	pair_open(&p, RDMA_PS_TCP);
	assert_int_equal(ibv_query_ece(p.active->qp, &a), 0);
	assert_int_equal(ibv_query_ece(p.passive->qp, &b), 0);
	assert_int_not_equal(a.options & 1u << 15, 0);
	assert_int_equal(a.options, b.options);
	assert_int_equal(a.vendor_id, b.vendor_id);
	hang_up(&p, p.active, p.passive);
	pair_close(&p);
}

/*
 * The QP of a passive id makes no offer, so none can equal that of the peer by chance: it takes no
 * answer, whatever its number, and agrees on the offer of the peer afterwards.
 */
static void a_passive_end_makes_no_offer(void **state)
{
	struct rdma_conn_param param = {.responder_resources = 2, .initiator_depth = 2};
	struct rdma_event_channel *lch = channel(), *ach = channel();
	struct rdma_cm_id *l = listener(lch, RDMA_PS_TCP, any(0), 0);
	struct rdma_cm_id *a = resolved(ach, RDMA_PS_TCP, port_of(l)), *p;
	struct ibv_ece offer, answer;
	struct rdma_cm_event *e;

	make_qp(a, IBV_QPT_RC);
	assert_int_equal(ibv_query_ece(a->qp, &offer), 0);
	assert_int_equal(rdma_connect(a, &param), 0);
	e = next_event(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p = e->id;
	make_qp(p, IBV_QPT_RC);
	for (uint32_t number = 0; number < 1 << 16; number++) {
		answer = (struct ibv_ece){.vendor_id = offer.vendor_id,
					  .options = number << 16 | 1u << 15 | 1};
		if (ibv_set_ece(p->qp, &answer) != EOPNOTSUPP)
			fail_msg("an answer was taken: %#x", answer.options);
	}
	assert_int_equal(rdma_accept(p, &param), 0);
	assert_int_equal(rdma_ack_cm_event(e), 0);
	assert_int_equal(expect(ach, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(expect(lch, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(ibv_query_ece(a->qp, &offer), 0);
	assert_int_equal(ibv_query_ece(p->qp, &answer), 0);
	assert_int_not_equal(answer.options & 1u << 15, 0);
	assert_int_equal(answer.options, offer.options);
	drop(a);
	drop(p);
	quit(l, lch, ach);
}

/* Calls have op-codes only if both programs offered them. Then a call works. */
static void programs_agree_on_calls(void **state)
{
	struct rdma_conn_param param = {
		.responder_resources = 2, .initiator_depth = 2, .retry_count = 7};
	struct rdma_event_channel *lch = channel(), *ach = channel();
	struct rdma_cm_id *l = listener(lch, RDMA_PS_TCP, any(0), 0);

	for (unsigned wants = 0; wants < 4; wants++) {
		struct rdma_cm_id *a = resolved(ach, RDMA_PS_TCP, port_of(l)), *p;
		struct roost_caller *caller;
		struct roost_result result;
		struct rdma_cm_event *e;

		make_qp(a, IBV_QPT_RC);
		if (wants & 1)
			assert_int_equal(roost_qp_offer_rpc(a->qp), 0);
		assert_int_equal(rdma_connect(a, &param), 0);
		e = next_event(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
		p = e->id;
		make_qp(p, IBV_QPT_RC);
		if (wants & 2)
			assert_int_equal(roost_qp_offer_rpc(p->qp), 0);
		assert_int_equal(rdma_accept(p, &param), 0);
		assert_int_equal(rdma_ack_cm_event(e), 0);
		assert_int_equal(expect(ach, RDMA_CM_EVENT_ESTABLISHED), 0);
		assert_int_equal(expect(lch, RDMA_CM_EVENT_ESTABLISHED), 0);
		assert_int_equal(roost_qp_has_rpc(a->qp), wants == 3);
		assert_int_equal(roost_qp_has_rpc(p->qp), wants == 3);
		if (wants == 3) {
			caller = roost_caller_create(a->qp, 1, 8);
			assert_non_null(caller);
			assert_int_equal(roost_call(caller, 0x7777, 0, NULL, 0, NULL, 0,
						    WAIT_MS * 1000000ull, &result),
					 0);
			assert_int_equal(result.status, ROOST_RPC_NO_KERNEL);
			roost_caller_destroy(caller);
		}
		drop(a);
		assert_int_equal(expect(lch, RDMA_CM_EVENT_DISCONNECTED), 0);
		drop(p);
	}
	quit(l, lch, ach);
}

static void a_rejection_brings_reason_and_private_data(void **state)
{
	struct rdma_event_channel *lch = channel(), *ach = channel();
	struct rdma_cm_id *l = listener(lch, RDMA_PS_TCP, ours(0), 0);
	struct rdma_cm_id *a = resolved(ach, RDMA_PS_TCP, port_of(l));
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct rdma_cm_event *e;

	make_qp(a, IBV_QPT_RC);
	assert_int_equal(rdma_connect(a, NULL), 0);
	e = next_event(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(rdma_reject(e->id, "no", 3), 0);
	assert_int_equal(rdma_destroy_id(e->id), 0);
	assert_int_equal(rdma_ack_cm_event(e), 0);
	e = next_event(ach, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(e->status, 28); /* consumer defined */
	assert_string_equal(e->param.conn.private_data, "no");
	assert_int_equal(e->param.conn.private_data_len, 148);
	assert_int_equal(rdma_ack_cm_event(e), 0);
	assert_int_equal(ibv_query_qp(a->qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	drop(a);
	quit(l, lch, ach);
}

static void nobody_listens(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *a = resolved(ch, RDMA_PS_TCP, 1);

	make_qp(a, IBV_QPT_RC);
	assert_int_equal(rdma_connect(a, NULL), 0);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_REJECTED), 8); /* invalid service id */
	drop(a);
	rdma_destroy_event_channel(ch);
}

/*
 * If no NIC has the address, the network reports it (ICMP; on shm, the address has no ring). The
 * program gets the same event as from a NIC without a listener.
 */
static void no_nic_is_there(void **state)
{
	union address from = ours(0), to = nobody(4711);
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(rdma_create_id(ch, &id, NULL, i ? RDMA_PS_UDP : RDMA_PS_TCP), 0);
		assert_int_equal(rdma_resolve_addr(id, &from.sa, &to.sa, 1000), 0);
		assert_int_equal(expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
		assert_int_equal(rdma_resolve_route(id, 1000), 0);
		assert_int_equal(expect(ch, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
		make_qp(id, i ? IBV_QPT_UD : IBV_QPT_RC);
		assert_int_equal(rdma_connect(id, NULL), 0);
		e = next_event(ch, i ? RDMA_CM_EVENT_UNREACHABLE : RDMA_CM_EVENT_REJECTED);
		/* IBA table 109: invalid service id; table 121: the service id is not supported. */
		assert_int_equal(e->status, i ? 1 : 8);
		rdma_ack_cm_event(e);
		drop(id);
	}
	rdma_destroy_event_channel(ch);
}

static struct ibv_qp *own_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	assert_non_null(qp);
	return qp;
}

/* Takes the QP through its states with the attributes that the id gives. */
static void to_rts(struct rdma_cm_id *id, struct ibv_qp *qp)
{
	for (enum ibv_qp_state s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++) {
		struct ibv_qp_attr attr = {.qp_state = s};
		int mask;

		assert_int_equal(rdma_init_qp_attr(id, &attr, &mask), 0);
		assert_int_equal(ibv_modify_qp(qp, &attr, mask), 0);
	}
}

/*
 * The program creates the QP and changes its states. So it gets the CONNECT_RESPONSE event, and
 * calls rdma_establish() when it is ready.
 */
static void programs_may_bring_qps_of_their_own(void **state)
{
	struct rdma_event_channel *lch = channel(), *ach = channel();
	struct rdma_cm_id *l = listener(lch, RDMA_PS_TCP, any(0), 0);
	struct rdma_cm_id *id[2] = {resolved(ach, RDMA_PS_TCP, port_of(l))};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_event *e;
	struct ibv_cq *cq = ibv_create_cq(id[0]->verbs, 16, NULL, NULL, 0);
	struct ibv_pd *pd = ibv_alloc_pd(id[0]->verbs);
	struct ibv_qp *qp[2] = {own_qp(pd, cq), own_qp(pd, cq)};

	param.qp_num = qp[0]->qp_num;
	assert_int_equal(rdma_connect(id[0], &param), 0);
	e = next_event(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	id[1] = e->id;
	assert_int_equal(e->param.conn.qp_num, qp[0]->qp_num);
	assert_int_equal(rdma_ack_cm_event(e), 0);
	for (int i = 1; i >= 0; i--) {
		to_rts(id[i], qp[i]);
		if (i) {
			param.qp_num = qp[1]->qp_num;
			assert_int_equal(rdma_accept(id[1], &param), 0);
			REFUSED(rdma_accept(id[1], &param), EINVAL);
			e = next_event(ach, RDMA_CM_EVENT_CONNECT_RESPONSE);
			assert_int_equal(e->param.conn.qp_num, qp[1]->qp_num);
			assert_int_equal(rdma_ack_cm_event(e), 0);
			assert_true(quiet(lch));
		} else {
			assert_int_equal(rdma_establish(id[0]), 0);
		}
	}
	assert_int_equal(expect(lch, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_true(quiet(ach));
	ibv_destroy_qp(qp[0]);
	ibv_destroy_qp(qp[1]);
	ibv_destroy_cq(cq);
	rdma_destroy_id(id[0]);
	rdma_destroy_id(id[1]);
	ibv_dealloc_pd(pd);
	quit(l, lch, ach);
}

/* The RTU is lost: the active program never sends it. Its first packet replaces it. */
static void the_first_packet_counts_as_an_rtu(void **state)
{
	struct rdma_event_channel *lch = channel(), *ach = channel();
	struct rdma_cm_id *l = listener(lch, RDMA_PS_TCP, any(0), 0), *p;
	struct rdma_cm_id *a = resolved(ach, RDMA_PS_TCP, port_of(l));
	struct ibv_cq *cq = ibv_create_cq(a->verbs, 16, NULL, NULL, 0);
	struct ibv_qp *qp = own_qp(a->pd, cq);
	struct rdma_conn_param param = {.qp_num = qp->qp_num};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_recv_wr rr = {.wr_id = 1}, *bad_rr;
	struct rdma_cm_event *e;
	struct ibv_wc wc;

	assert_int_equal(rdma_connect(a, &param), 0);
	e = next_event(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p = e->id;
	make_qp(p, IBV_QPT_RC);
	assert_int_equal(ibv_post_recv(p->qp, &rr, &bad_rr), 0);
	assert_int_equal(rdma_accept(p, &param), 0);
	REFUSED(rdma_accept(p, &param), EINVAL);
	rdma_ack_cm_event(e);
	expect(ach, RDMA_CM_EVENT_CONNECT_RESPONSE);
	to_rts(a, qp);
	assert_true(quiet(lch));
	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
	assert_int_equal(expect(lch, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(rdma_get_recv_comp(p, &wc), 1);
	assert_int_equal(rdma_establish(a), 0); /* late: no second event */
	assert_int_equal(rdma_disconnect(p), 0);
	assert_int_equal(expect(ach, RDMA_CM_EVENT_DISCONNECTED), 0);
	assert_int_equal(rdma_disconnect(a), 0);
	assert_int_equal(expect(lch, RDMA_CM_EVENT_DISCONNECTED), 0);
	ibv_destroy_qp(qp);
	ibv_destroy_cq(cq);
	rdma_destroy_id(a);
	drop(p);
	quit(l, lch, ach);
}

/* As in the Linux kernel: EINVAL if the state does not allow the call. */
static void calls_out_of_turn_are_refused(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_conn_param too_much = {.responder_resources = 200, .initiator_depth = 1};
	union address to = ours(7), elsewhere = at4(0x01020304, 0);
	union address other = to.sa.sa_family == AF_INET ? at6(0) : at4(INADDR_LOOPBACK, 0);
	struct rdma_cm_id *id, *l = listener(ch, RDMA_PS_TCP, any(0), 0);
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int mask;

	REFUSED(rdma_create_id(ch, &id, NULL, (enum rdma_port_space)7), EINVAL);
	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	REFUSED(rdma_resolve_route(id, 100), EINVAL);
	REFUSED(rdma_connect(id, NULL), EINVAL);
	REFUSED(rdma_accept(id, NULL), EINVAL);
	REFUSED(rdma_reject(id, NULL, 0), EINVAL);
	REFUSED(rdma_disconnect(id), EINVAL);
	REFUSED(rdma_establish(id), EINVAL);
	REFUSED(rdma_create_qp(id, NULL, &init), EINVAL);
	REFUSED(rdma_init_qp_attr(id, &attr, &mask), EINVAL);
	REFUSED(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
	if (!getenv("RDMACM_TEST_PORT") ||
	    strcmp(getenv("RDMACM_TEST_PORT"), "shm") != 0) /* shm can open any address */
		REFUSED(rdma_bind_addr(id, &elsewhere.sa), EADDRNOTAVAIL);
	elsewhere = any(port_of(l));
	REFUSED(rdma_bind_addr(id, &elsewhere.sa), EADDRINUSE);
	assert_int_equal(rdma_resolve_addr(id, NULL, &to.sa, 100), 0);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	REFUSED(rdma_resolve_addr(id, NULL, &to.sa, 100), EINVAL);
	REFUSED(rdma_bind_addr(id, &to.sa), EINVAL);
	REFUSED(rdma_listen(id, 1), EINVAL);
	REFUSED(rdma_connect(id, NULL), EINVAL);
	assert_int_equal(rdma_resolve_route(id, 100), 0);
	assert_int_equal(expect(ch, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	REFUSED(rdma_connect(id, NULL), EINVAL);      /* no QP, and no number given */
	REFUSED(rdma_connect(id, &too_much), EINVAL); /* more READs than the device supports */
	REFUSED(rdma_set_option(id, RDMA_OPTION_ID, 99, &mask, 4), ENOSYS);
	REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &mask, 4), EINVAL);
	assert_int_equal(rdma_destroy_id(id), 0);
	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	REFUSED(rdma_resolve_addr(id, &other.sa, &to.sa, 100), EINVAL);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_id(l);
	assert_int_equal(fcntl(ch->fd, F_SETFL, O_NONBLOCK), 0);
	REFUSED(rdma_get_cm_event(ch, &(struct rdma_cm_event *){NULL}), EAGAIN);
	rdma_destroy_event_channel(ch);
}

static void a_port_is_taken_once_unless_it_is_shared(void **state)
{
	struct rdma_event_channel *ch = channel();
	struct rdma_cm_id *a, *b, *c;
	union address at;
	int one = 1;

	assert_int_equal(rdma_create_id(ch, &a, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_create_id(ch, &b, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_create_id(ch, &c, NULL, RDMA_PS_UDP), 0);
	at = any(0);
	assert_int_equal(
		rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)), 0);
	assert_int_equal(rdma_bind_addr(a, &at.sa), 0);
	at = ours(port_of(a));
	REFUSED(rdma_bind_addr(b, &at.sa), EADDRINUSE);
	assert_int_equal(rdma_bind_addr(c, &at.sa), 0); /* another port space */
	assert_int_equal(
		rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)), 0);
	assert_int_equal(rdma_bind_addr(b, &at.sa), 0);
	REFUSED(rdma_listen(b, 0), EADDRINUSE);
	rdma_destroy_id(a);
	assert_int_equal(rdma_listen(b, 0), 0);
	rdma_destroy_id(b);
	rdma_destroy_id(c);
	rdma_destroy_event_channel(ch);
}

/* A request that the program did not take is refused when its listener is destroyed. */
static void a_listener_goes_with_requests_pending(void **state)
{
	struct rdma_event_channel *lch = channel(), *ach = channel();
	struct rdma_cm_id *l = listener(lch, RDMA_PS_TCP, any(0), 0), *a[3];
	struct rdma_conn_param param = {.qp_num = 77};

	for (int i = 0; i < 3; i++) {
		a[i] = resolved(ach, RDMA_PS_TCP, port_of(l));
		param.qp_num++;
		assert_int_equal(rdma_connect(a[i], &param), 0);
		while (quiet(lch) && i == 0)
			continue;
	}
	rdma_destroy_id(l);
	for (int i = 0; i < 3; i++)
		expect(ach, RDMA_CM_EVENT_REJECTED);
	assert_true(quiet(lch));
	for (int i = 0; i < 3; i++)
		rdma_destroy_id(a[i]);
	rdma_destroy_event_channel(lch);
	rdma_destroy_event_channel(ach);
}

/*
 * Waits for the first event: the request at the listener's channel, where it is dropped, or a REJ
 * to the active side because no listener exists. The active side gets an event in both cases.
 * Returns whether the listener got the request.
 */
static bool heard(struct rdma_event_channel *lch, struct rdma_event_channel *ach)
{
	struct pollfd p[2] = {{.fd = lch->fd, .events = POLLIN}, {.fd = ach->fd, .events = POLLIN}};
	struct rdma_cm_event *e;
	bool first;

	assert_true(poll(p, 2, WAIT_MS) > 0);
	first = p[0].revents & POLLIN;
	if (first) {
		e = next_event(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
		rdma_destroy_id(e->id);
		rdma_ack_cm_event(e);
	}
	assert_int_equal(expect(ach, RDMA_CM_EVENT_REJECTED), first ? 28 : 8);
	return first;
}

/*
 * A server that serves one client after the other has no listener for a moment. A request waits for
 * the next listener, for one second. A busy machine may take longer to listen again; the test
 * repeats then.
 */
static void a_request_between_two_listeners_waits(void **state)
{
	struct rdma_event_channel *lch = channel(), *ach = channel();
	struct rdma_cm_id *l = listener(lch, RDMA_PS_TCP, ours(0), 0), *a;
	uint16_t port = port_of(l);
	struct rdma_conn_param param = {.qp_num = 99};
	bool waited = false;

	for (int tries = 0; tries < 20 && !waited; tries++) {
		/* The port of the client is a random free one, so not that of the listener. */
		a = resolved(ach, RDMA_PS_TCP, port);
		rdma_destroy_id(l);
		assert_int_equal(rdma_connect(a, &param), 0);
		l = listener(lch, RDMA_PS_TCP, ours(port), 0);
		waited = heard(lch, ach);
		rdma_destroy_id(a);
	}
	assert_true(waited);
	rdma_destroy_id(l);
	a = resolved(ach, RDMA_PS_TCP, port);
	assert_int_equal(rdma_connect(a, &param), 0);
	assert_int_equal(expect(ach, RDMA_CM_EVENT_REJECTED), 8);
	rdma_destroy_id(a);
	rdma_destroy_event_channel(lch);
	rdma_destroy_event_channel(ach);
}

/*
 * A server tells a client the port that it has bound, and listens then. It gets the waiting
 * request, which waits for a limited time too.
 */
static void a_request_waits_for_who_has_bound_its_port(void **state)
{
	struct rdma_event_channel *lch = channel(), *ach = channel();
	struct rdma_conn_param param = {.qp_num = 99};
	union address at = ours(0);
	struct rdma_cm_id *l, *a;
	bool waited = false;

	for (int tries = 0; tries < 20 && !waited; tries++) {
		assert_int_equal(rdma_create_id(lch, &l, NULL, RDMA_PS_TCP), 0);
		assert_int_equal(rdma_bind_addr(l, &at.sa), 0);
		a = resolved(ach, RDMA_PS_TCP, port_of(l));
		assert_int_equal(rdma_connect(a, &param), 0);
		usleep(20000); /* until the request has come */
		assert_int_equal(rdma_listen(l, 0), 0);
		waited = heard(lch, ach);
		rdma_destroy_id(a);
		rdma_destroy_id(l);
	}
	assert_true(waited);
	assert_int_equal(rdma_create_id(lch, &l, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(l, &at.sa), 0);
	a = resolved(ach, RDMA_PS_TCP, port_of(l));
	assert_int_equal(rdma_connect(a, &param), 0);
	assert_int_equal(expect(ach, RDMA_CM_EVENT_REJECTED), 8);
	rdma_destroy_id(a);
	rdma_destroy_id(l);
	rdma_destroy_event_channel(lch);
	rdma_destroy_event_channel(ach);
}

/* Takes and refuses requests until none comes for a while. Returns how many came. */
static unsigned refuse_all(struct rdma_event_channel *lch)
{
	struct pollfd p = {.fd = lch->fd, .events = POLLIN};
	unsigned n = 0;

	for (; poll(&p, 1, 200) == 1; n++) {
		struct rdma_cm_event *e = next_event(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
		struct rdma_cm_id *id = e->id;

		rdma_ack_cm_event(e);
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
	}
	return n;
}

/*
 * 32 requests may wait. One source has at most 24 of them, so that another source finds space. On a
 * slow machine some of the 40 come after the call of rdma_listen(), which takes any number; each
 * try gives them more time.
 */
static void a_source_has_a_share_of_those_who_wait(void **state)
{
	struct rdma_event_channel *lch = channel(), *ach = channel();
	struct rdma_conn_param param = {.qp_num = 99};
	union address at = ours(0);
	struct rdma_cm_id *l, *a[40];
	unsigned waited = 0;

	for (int tries = 0; tries < 20 && waited != 24; tries++) {
		assert_int_equal(rdma_create_id(lch, &l, NULL, RDMA_PS_TCP), 0);
		assert_int_equal(rdma_bind_addr(l, &at.sa), 0);
		for (unsigned i = 0; i < 40; i++)
			a[i] = resolved(ach, RDMA_PS_TCP, port_of(l));
		for (unsigned i = 0; i < 40; i++, param.qp_num++)
			assert_int_equal(rdma_connect(a[i], &param), 0);
		usleep(50000 * (1 + (useconds_t)tries % 10)); /* until the requests have come */
		assert_int_equal(rdma_listen(l, 0), 0);
		waited = refuse_all(lch);
		for (unsigned i = 0; i < 40; i++)
			assert_in_range(expect(ach, RDMA_CM_EVENT_REJECTED), 8, 28);
		for (unsigned i = 0; i < 40; i++)
			rdma_destroy_id(a[i]);
		rdma_destroy_id(l);
	}
	assert_int_equal(waited, 24);
	rdma_destroy_event_channel(lch);
	rdma_destroy_event_channel(ach);
}

/*
 * The same with a peer that refuses at once, as the Linux kernel does, and as Roost does when the
 * last listener ended long ago. An id asks again for a second if another id of the process is
 * connected to the service. Otherwise it is refused at once.
 */
static void who_is_connected_asks_again_before_he_is_refused(void **state)
{
	struct rdma_conn_param param = {.qp_num = 99};
	struct rdma_cm_id *a;
	uint16_t port;
	struct pair p;
	bool reached = false;

	pair_open(&p, RDMA_PS_TCP);
	port = port_of(p.listen);
	for (int tries = 0; tries < 5 && !reached; tries++) {
		rdma_destroy_id(p.listen);
		usleep(2100000); /* requests are not held any more (early.c) */
		a = resolved(p.ach, RDMA_PS_TCP, port);
		assert_int_equal(rdma_connect(a, &param), 0);
		usleep(50000); /* until the request was refused a few times */
		p.listen = listener(p.lch, RDMA_PS_TCP, ours(port), 0);
		reached = heard(p.lch, p.ach);
		rdma_destroy_id(a);
	}
	assert_true(reached);
	pair_close(&p);
}

static void events_move_with_their_id(void **state)
{
	struct rdma_event_channel *first = channel(), *second = channel();
	union address to = ours(7);
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(first, &id, &to, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, &to.sa, 100), 0);
	assert_int_equal(rdma_resolve_route(id, 100), 0);
	assert_false(quiet(first));
	assert_int_equal(rdma_migrate_id(id, second), 0);
	assert_ptr_equal(id->channel, second);
	assert_true(quiet(first));
	e = next_event(second, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ptr_equal(e->id->context, &to);
	rdma_ack_cm_event(e);
	expect(second, RDMA_CM_EVENT_ROUTE_RESOLVED);
	assert_int_equal(rdma_migrate_id(id, NULL), 0); /* from now on the id waits in its calls */
	assert_ptr_not_equal(id->channel, second);
	assert_int_equal(rdma_migrate_id(id, first), 0);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(first);
	rdma_destroy_event_channel(second);
}

/* A request that was not taken moves, too, and its id has its later events where it was taken. */
static void requests_move_with_their_listener(void **state)
{
	struct rdma_event_channel *first = channel(), *second = channel(), *ach = channel();
	struct rdma_cm_id *l = listener(first, RDMA_PS_TCP, any(0), 0);
	struct rdma_cm_id *a = resolved(ach, RDMA_PS_TCP, port_of(l)), *p;
	struct pollfd fd = {.fd = first->fd, .events = POLLIN};
	struct rdma_cm_event *e;

	make_qp(a, IBV_QPT_RC);
	assert_int_equal(rdma_connect(a, NULL), 0);
	assert_int_equal(poll(&fd, 1, WAIT_MS), 1);
	assert_int_equal(rdma_migrate_id(l, second), 0);
	rdma_destroy_event_channel(first);
	e = next_event(second, RDMA_CM_EVENT_CONNECT_REQUEST);
	p = e->id;
	assert_ptr_equal(p->channel, second);
	make_qp(p, IBV_QPT_RC);
	assert_int_equal(rdma_accept(p, NULL), 0);
	rdma_ack_cm_event(e);
	assert_int_equal(expect(ach, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_int_equal(expect(second, RDMA_CM_EVENT_ESTABLISHED), 0);
	drop(a);
	drop(p);
	quit(l, second, ach);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(data_flows_both_ways_until_one_end_disconnects),
		cmocka_unit_test(the_passive_end_may_disconnect_first),
		cmocka_unit_test(ids_may_go_without_disconnecting),
		cmocka_unit_test(each_end_sees_the_others_addresses_and_parameters),
		cmocka_unit_test(ends_of_ours_agree_through_ece),
		cmocka_unit_test(a_passive_end_makes_no_offer),
		cmocka_unit_test(programs_agree_on_calls),
		cmocka_unit_test(a_rejection_brings_reason_and_private_data),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(no_nic_is_there),
		cmocka_unit_test(programs_may_bring_qps_of_their_own),
		cmocka_unit_test(the_first_packet_counts_as_an_rtu),
		cmocka_unit_test(calls_out_of_turn_are_refused),
		cmocka_unit_test(a_port_is_taken_once_unless_it_is_shared),
		cmocka_unit_test(a_listener_goes_with_requests_pending),
		cmocka_unit_test(a_request_between_two_listeners_waits),
		cmocka_unit_test(a_request_waits_for_who_has_bound_its_port),
		cmocka_unit_test(a_source_has_a_share_of_those_who_wait),
		cmocka_unit_test(who_is_connected_asks_again_before_he_is_refused),
		cmocka_unit_test(events_move_with_their_id),
		cmocka_unit_test(requests_move_with_their_listener),
	};

	return RUN(tests);
}
