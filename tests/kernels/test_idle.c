/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers that leave a message unfinished: a kernel cannot take a packet in one turn, the packet is
 * refused with an RNR NAK, and the peer never repeats it. The call ends after the limit for idle
 * streams, for messages of one packet and of several.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/runtime.h"
#include "peer.h"

#define KERNEL 0x4000
#define STEPS  400u /* for a piece: more than a packet may take */

static struct peer P, *const p = &P;
static struct kernel_runtime *f;
static unsigned steps, cuts;

static enum roost_next params(struct roost_call *c)
{
	(void)c;
	return ROOST_DONE;
}

static enum roost_next payload(struct roost_call *c)
{
	(void)c;
	return ++steps < STEPS ? ROOST_AGAIN : ROOST_DONE;
}

static void cut(struct roost_call *c)
{
	(void)c;
	cuts++;
}

static const struct roost_kernel kernel = {.abi = ROOST_KERNEL_ABI,
					   .version = 1,
					   .name = "waits",
					   .op = KERNEL,
					   .params = params,
					   .payload = payload,
					   .cut = cut};

static void open_node(void)
{
	struct nic_qp_attr a;

	steps = cuts = 0;
	peer_open_init(p, &(struct ep_params){.mtu = 256}, 100);
	assert_int_equal(runtime_create(p->e.nic, NULL, &f), 0);
	assert_int_equal(runtime_deploy(f, &kernel, NULL), 0);
	assert_int_equal(nic_qp_set_rpc(p->e.nic, p->e.qp), 0);
	peer_attr(p, &a);
	ep_to_rtr(&p->e, &a);
	ep_to_rts(&p->e, &a);
}

static void send_packet(uint8_t opcode, uint32_t psn, const void *data, uint32_t dmalen,
			uint32_t len)
{
	peer_send(p, &(struct pkt_make){.opcode = opcode,
					.ackreq = true,
					.psn = psn,
					.va = KERNEL,
					.dmalen = dmalen,
					.payload = data,
					.len = len});
}

static void expect_refused(uint8_t opcode, uint32_t psn, uint32_t total)
{
	const struct got *g;

	send_packet(opcode, psn, NULL, total, 256);
	g = peer_get(p, 10 * MSEC);
	assert_non_null(g);
	assert_int_equal(PKT_AETH_TYPE(g->v.syndrome), PKT_AETH_TYPE_RNR);
}

static void expect_ended(void)
{
	struct runtime_kernel_info info;
	struct runtime_counters ctr;

	peer_run(p, 60 * SEC);
	runtime_counters(f, &ctr);
	runtime_kernel_info(f, 0, &info);
	assert_int_equal(ctr.idle, 1);
	assert_int_equal(cuts, 1);
	assert_int_equal(info.in_flight, 0);
	assert_int_equal(runtime_undeploy(f, KERNEL), 0);
	peer_close(p);
}

static void test_announced(void **state)
{
	struct roost_rpc_head head = {.flags = ROOST_RPC_STREAM};

	(void)state;
	open_node();
	send_packet(PKT_RPC_PARAMS, 100, &head, sizeof(head), sizeof(head));
	peer_drain(p);
	expect_refused(PKT_RPC_WRITE_ONLY, 101, 256);
	expect_ended();
}

static void test_first_packet(void **state)
{
	(void)state;
	open_node();
	expect_refused(PKT_RPC_WRITE_FIRST, 100, 512);
	expect_ended();
}

static void test_only_packet(void **state)
{
	(void)state;
	open_node();
	expect_refused(PKT_RPC_WRITE_ONLY, 100, 256);
	expect_ended();
}

/* A packet that the peer repeats in time is served. */
static void test_repeated(void **state)
{
	struct runtime_counters ctr;

	(void)state;
	open_node();
	expect_refused(PKT_RPC_WRITE_ONLY, 100, 256);
	peer_run(p, SEC);
	send_packet(PKT_RPC_WRITE_ONLY, 100, NULL, 256, 256);
	assert_int_equal(steps, STEPS);
	peer_run(p, 60 * SEC);
	runtime_counters(f, &ctr);
	assert_int_equal(ctr.idle, 0);
	assert_int_equal(cuts, 0);
	peer_close(p);
}

static enum roost_next quick(struct roost_call *c)
{
	(void)c;
	return ROOST_DONE;
}

static const struct roost_kernel other_kernel = {.abi = ROOST_KERNEL_ABI,
						 .version = 1,
						 .name = "quick",
						 .op = KERNEL + 1,
						 .payload = quick,
						 .cut = cut};

/* The peer announces payload, and begins a message for another kernel. Both calls end. */
static void test_two_streams(void **state)
{
	struct roost_rpc_head head = {.flags = ROOST_RPC_STREAM};
	struct runtime_kernel_info info;
	struct runtime_counters ctr;
	uint8_t piece[256] = {0};

	(void)state;
	open_node();
	assert_int_equal(runtime_deploy(f, &other_kernel, NULL), 0);
	send_packet(PKT_RPC_PARAMS, 100, &head, sizeof(head), sizeof(head));
	peer_send(p, &(struct pkt_make){.opcode = PKT_RPC_WRITE_FIRST,
					.psn = 101,
					.va = KERNEL + 1,
					.dmalen = 512,
					.payload = piece,
					.len = sizeof(piece)});
	for (unsigned i = 0; i < 2; i++) {
		runtime_kernel_info(f, i, &info);
		assert_int_equal(info.in_flight, 1);
	}
	peer_run(p, 60 * SEC);
	runtime_counters(f, &ctr);
	assert_int_equal(ctr.idle, 2);
	assert_int_equal(cuts, 2);
	for (unsigned i = 0; i < 2; i++) {
		runtime_kernel_info(f, i, &info);
		assert_int_equal(info.in_flight, 0);
	}
	peer_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_announced),   cmocka_unit_test(test_first_packet),
		cmocka_unit_test(test_only_packet), cmocka_unit_test(test_repeated),
		cmocka_unit_test(test_two_streams),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
