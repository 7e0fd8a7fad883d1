/* SPDX-License-Identifier: BSD-2-Clause */
/* The synchronous calls: each returns when the operation is complete. The server is a thread. */
#include "fixture.h"

#include <arpa/inet.h>
#include <pthread.h>

#define ROUNDS 20

static struct ibv_qp_init_attr qp_attr(void)
{
	return (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
		.sq_sig_all = 1,
	};
}

static struct rdma_addrinfo *look_up(const char *node, const char *service, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *res;

	assert_int_equal(rdma_getaddrinfo(node, service, &hints, &res), 0);
	assert_int_equal(res->ai_port_space, RDMA_PS_TCP);
	assert_int_equal(res->ai_qp_type, IBV_QPT_RC);
	return res;
}

/* Echoes one message, then waits for the disconnect. */
static void serve_one(struct rdma_cm_id *listen)
{
	struct rdma_cm_id *id;
	char buf[32];
	struct ibv_mr *mr;
	struct ibv_wc wc;

	assert_int_equal(rdma_get_request(listen, &id), 0);
	assert_non_null(id->qp);
	mr = rdma_reg_msgs(id, buf, sizeof(buf));
	assert_int_equal(rdma_post_recv(id, NULL, buf, sizeof(buf), mr), 0);
	assert_int_equal(rdma_accept(id, NULL), 0);
	assert_int_equal(rdma_get_recv_comp(id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(rdma_post_send(id, NULL, buf, sizeof(buf), mr, 0), 0);
	assert_int_equal(rdma_get_send_comp(id, &wc), 1);
	assert_int_equal(rdma_disconnect(id), 0);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
}

static void *serve(void *listen)
{
	for (int i = 0; i < ROUNDS; i++)
		serve_one(listen);
	return NULL;
}

static void ask_one(struct rdma_addrinfo *res, uint8_t value)
{
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_cm_id *id;
	uint8_t buf[2][32];
	struct ibv_mr *mr;
	struct ibv_wc wc;

	memset(buf, value, sizeof(buf));
	memset(buf[1], 0, sizeof(buf[1]));
	assert_int_equal(rdma_create_ep(&id, res, NULL, &attr), 0);
	mr = rdma_reg_msgs(id, buf, sizeof(buf));
	assert_int_equal(rdma_post_recv(id, NULL, buf[1], sizeof(buf[1]), mr), 0);
	assert_int_equal(rdma_connect(id, NULL), 0);
	assert_int_equal(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(rdma_post_send(id, NULL, buf[0], sizeof(buf[0]), mr, 0), 0);
	assert_int_equal(rdma_get_send_comp(id, &wc), 1);
	assert_int_equal(rdma_get_recv_comp(id, &wc), 1);
	assert_memory_equal(buf[0], buf[1], sizeof(buf[0]));
	assert_int_equal(rdma_disconnect(id), 0);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
}

static void endpoints_connect_echo_and_disconnect(void **state)
{
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_addrinfo *res;
	struct rdma_cm_id *listen;
	union address to = ours(0);
	char node[INET_ADDRSTRLEN], service[8];
	pthread_t thread;

	choose_port(false);
	res = look_up(NULL, "0", RAI_PASSIVE);
	assert_non_null(res->ai_src_addr);
	assert_int_equal(rdma_create_ep(&listen, res, NULL, &attr), 0);
	rdma_freeaddrinfo(res);
	assert_int_equal(rdma_listen(listen, 0), 0);
	snprintf(service, sizeof(service), "%u", port_of(listen));
	res = look_up(inet_ntop(AF_INET, &to.in.sin_addr, node, sizeof(node)), service, 0);
	assert_non_null(res->ai_dst_addr);
	assert_int_equal(pthread_create(&thread, NULL, serve, listen), 0);
	for (uint8_t i = 0; i < ROUNDS; i++)
		ask_one(res, (uint8_t)(i + 1));
	pthread_join(thread, NULL);
	rdma_freeaddrinfo(res);
	rdma_destroy_ep(listen);
}

static void *ask_datagram(void *res)
{
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_cm_id *id;

	attr.qp_type = IBV_QPT_UD;
	assert_int_equal(rdma_create_ep(&id, res, NULL, &attr), 0);
	assert_int_equal(rdma_connect(id, NULL), 0);
	rdma_destroy_ep(id);
	return NULL;
}

/* The accepted id does not keep the listener from its end. */
static void a_listener_of_datagrams_ends_before_its_ids(void **state)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_UDP}, *res;
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_cm_id *listen, *id;
	union address to = ours(0);
	char node[INET_ADDRSTRLEN], service[8];
	pthread_t thread;

	choose_port(false);
	attr.qp_type = IBV_QPT_UD;
	assert_int_equal(rdma_getaddrinfo(NULL, "0", &hints, &res), 0);
	assert_int_equal(rdma_create_ep(&listen, res, NULL, &attr), 0);
	rdma_freeaddrinfo(res);
	assert_int_equal(rdma_listen(listen, 0), 0);
	snprintf(service, sizeof(service), "%u", port_of(listen));
	hints.ai_flags = 0;
	assert_int_equal(rdma_getaddrinfo(inet_ntop(AF_INET, &to.in.sin_addr, node, sizeof(node)),
					  service, &hints, &res),
			 0);
	assert_int_equal(pthread_create(&thread, NULL, ask_datagram, res), 0);
	assert_int_equal(rdma_get_request(listen, &id), 0);
	assert_int_equal(rdma_accept(id, NULL), 0);
	rdma_destroy_ep(listen);
	pthread_join(thread, NULL);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
}

static void a_refused_connection_is_an_error_code(void **state)
{
	struct ibv_qp_init_attr attr = qp_attr();
	union address to = ours(1);
	struct rdma_cm_id *id;

	choose_port(false);
	assert_int_equal(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, &to.sa, 100), 0);
	assert_int_equal(rdma_resolve_route(id, 100), 0);
	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
	assert_int_equal(rdma_connect(id, NULL), -1);
	assert_int_equal(errno, ECONNREFUSED);
	assert_int_equal(id->event->event, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_ep(id);
}

static void names_that_are_none(void **state)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_UDP},
			     *res;

	assert_int_equal(rdma_getaddrinfo(NULL, NULL, NULL, &res), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_not_equal(rdma_getaddrinfo("no address", "7", &hints, &res), 0);
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", "7", &hints, &res), 0);
	assert_int_equal(res->ai_qp_type, IBV_QPT_UD);
	rdma_freeaddrinfo(res);
}

/*
 * librdmacm(3): without a node and a service the answer has the addresses of the hints: both, one
 * or none.
 */
static void hints_alone_come_back(void **state)
{
	union address src = at4(0x7f000001, 7), dst = at6(8);
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_UDP, .ai_qp_type = IBV_QPT_UD}, *res;

	assert_int_equal(rdma_getaddrinfo(NULL, NULL, &hints, &res), 0);
	assert_null(res->ai_src_addr);
	assert_null(res->ai_dst_addr);
	assert_int_equal(res->ai_port_space, RDMA_PS_UDP);
	assert_int_equal(res->ai_qp_type, IBV_QPT_UD);
	rdma_freeaddrinfo(res);
	hints.ai_src_addr = &src.sa;
	hints.ai_src_len = sizeof(src.in);
	assert_int_equal(rdma_getaddrinfo(NULL, NULL, &hints, &res), 0);
	assert_int_equal(res->ai_src_len, sizeof(src.in));
	assert_memory_equal(res->ai_src_addr, &src.in, sizeof(src.in));
	assert_null(res->ai_dst_addr);
	rdma_freeaddrinfo(res);
	hints.ai_dst_addr = &dst.sa;
	hints.ai_dst_len = sizeof(dst.in6);
	assert_int_equal(rdma_getaddrinfo(NULL, NULL, &hints, &res), 0);
	assert_non_null(res->ai_src_addr);
	assert_memory_equal(res->ai_dst_addr, &dst.in6, sizeof(dst.in6));
	rdma_freeaddrinfo(res);
	hints.ai_dst_len = 1000;
	assert_int_equal(rdma_getaddrinfo(NULL, NULL, &hints, &res), -1);
	assert_int_equal(errno, EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(endpoints_connect_echo_and_disconnect),
		cmocka_unit_test(a_listener_of_datagrams_ends_before_its_ids),
		cmocka_unit_test(a_refused_connection_is_an_error_code),
		cmocka_unit_test(names_that_are_none),
		cmocka_unit_test(hints_alone_come_back),
	};

	return RUN(tests);
}
