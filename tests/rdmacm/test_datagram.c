/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagram ids: SIDR finds the peer's QP, and an address handle sends messages to it. */
#include "fixture.h"

static void a_datagram_reaches_the_qp_that_was_looked_up(void **state)
{
	struct rdma_cm_event *e;
	struct ibv_ah *ah;
	static char buf[2][128];
	struct ibv_mr *out, *in;
	struct ibv_wc wc;
	struct pair p;

	pair_open(&p, RDMA_PS_UDP);
	e = next_event(p.ach, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(e->param.ud.qp_num, p.passive->qp->qp_num);
	assert_int_equal(e->param.ud.qkey, RDMA_UDP_QKEY);
	assert_int_equal(e->param.ud.private_data_len, 136);
	assert_int_equal(e->param.ud.ah_attr.is_global, 1);
	ah = ibv_create_ah(p.active->pd, &e->param.ud.ah_attr);
	assert_non_null(ah);
	out = rdma_reg_msgs(p.active, buf[0], sizeof(buf[0]));
	in = rdma_reg_msgs(p.passive, buf[1], sizeof(buf[1]));
	strcpy(buf[0], "datagram");
	assert_int_equal(rdma_post_recv(p.passive, NULL, buf[1], sizeof(buf[1]), in), 0);
	assert_int_equal(
		rdma_post_ud_send(p.active, NULL, buf[0], 16, out, 0, ah, e->param.ud.qp_num), 0);
	assert_int_equal(rdma_get_send_comp(p.active, &wc), 1);
	assert_int_equal(rdma_get_recv_comp(p.passive, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_string_equal(buf[1] + 40, "datagram");
	rdma_dereg_mr(out);
	rdma_dereg_mr(in);
	ibv_destroy_ah(ah);
	rdma_ack_cm_event(e);
	pair_close(&p);
}

static void nobody_answers_for_a_datagram_service(void **state)
{
	struct rdma_event_channel *lch = channel(), *ach = channel();
	struct rdma_cm_id *l = listener(lch, RDMA_PS_UDP, any(0), 0);
	struct rdma_cm_id *a = resolved(ach, RDMA_PS_UDP, (uint16_t)(port_of(l) + 1));
	struct rdma_conn_param param = {.private_data = "who?", .private_data_len = 5};
	struct rdma_cm_event *e;

	make_qp(a, IBV_QPT_UD);
	assert_int_equal(rdma_connect(a, &param), 0);
	assert_int_equal(expect(ach, RDMA_CM_EVENT_UNREACHABLE), 1); /* SIDR: not supported */
	drop(a);
	a = resolved(ach, RDMA_PS_UDP, port_of(l));
	make_qp(a, IBV_QPT_UD);
	assert_int_equal(rdma_connect(a, &param), 0);
	e = next_event(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_string_equal(e->param.ud.private_data, "who?");
	assert_int_equal(e->param.ud.private_data_len, 180);
	assert_int_equal(rdma_reject(e->id, NULL, 0), 0);
	rdma_destroy_id(e->id);
	rdma_ack_cm_event(e);
	assert_int_equal(expect(ach, RDMA_CM_EVENT_UNREACHABLE), 2); /* SIDR: rejected */
	drop(a);
	quit(l, lch, ach);
}

/*
 * An event that the program has not taken when it leaves the group is dropped, because the program
 * may free the context of the group then.
 */
static void leaving_a_group_drops_its_event(void **state)
{
	struct rdma_event_channel *ch = channel();
	union address at = ours(0), group = at4(0xef010203, 0), other = at4(0xef010204, 0);
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_UDP), 0);
	assert_int_equal(rdma_bind_addr(id, &at.sa), 0);
	assert_int_equal(rdma_join_multicast(id, &group.sa, &group), 0);
	assert_int_equal(rdma_join_multicast(id, &other.sa, &other), 0);
	assert_int_equal(rdma_leave_multicast(id, &group.sa), 0);
	e = next_event(ch, RDMA_CM_EVENT_MULTICAST_JOIN);
	assert_ptr_equal(e->param.ud.private_data, &other);
	rdma_ack_cm_event(e);
	assert_true(quiet(ch));
	assert_int_equal(rdma_join_multicast(id, &group.sa, &group), 0);
	e = next_event(ch, RDMA_CM_EVENT_MULTICAST_JOIN);
	assert_ptr_equal(e->param.ud.private_data, &group);
	assert_int_equal(rdma_leave_multicast(id, &group.sa), 0);
	rdma_ack_cm_event(e);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(ch);
}

/* As in rdma-core, an address that is missing is an error and no crash. */
static void an_address_is_needed(void **state)
{
	struct rdma_event_channel *ch = channel();
	union address at = ours(0);
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_UDP), 0);
	REFUSED(rdma_bind_addr(id, NULL), EINVAL);
	REFUSED(rdma_resolve_addr(id, NULL, NULL, 100), EINVAL);
	assert_int_equal(rdma_bind_addr(id, &at.sa), 0);
	REFUSED(rdma_join_multicast(id, NULL, NULL), EINVAL);
	REFUSED(rdma_leave_multicast(id, NULL), EINVAL);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(ch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leaving_a_group_drops_its_event),
		cmocka_unit_test(an_address_is_needed),
		cmocka_unit_test(a_datagram_reaches_the_qp_that_was_looked_up),
		cmocka_unit_test(nobody_answers_for_a_datagram_service),
	};

	return RUN(tests);
}
