/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reliable connections, every operation at every path MTU, with and without loss: each byte is
 * checked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/rng.h"
#include "world.h"

static const uint32_t mtus[] = {256, 512, 1024, 2048, 4096};
static const uint32_t sizes[] = {0,   1,    3,	  63,	64,   255,   256,
				 257, 1024, 4095, 4096, 4097, 20000, 65536};

static void fill(struct rng *r, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)rng_u64(r);
}

static void all_ops(uint32_t mtu, double loss, uint64_t seed, uint32_t psn)
{
	struct sim_params sp = {.loss = loss, .delay_ns = 2000};
	struct ep_params p = {
		.mem = 1 << 18, .mtu = mtu, .max_sge = 4, .max_inline = 64, .psn = psn};
	struct roost_cqe c;
	struct world w;
	struct ep a, b;
	struct rng r;

	print_message("mtu %u loss %g seed %llu\n", mtu, loss, (unsigned long long)seed);
	rng_seed(&r, seed);
	world_init(&w, 2, seed, &sp);
	ep_init(&a, &w, 0, &p);
	ep_init(&b, &w, 1, &p);
	ep_connect(&a, &b);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t n = sizes[i];
		struct roost_sge s;
		struct wr wr;

		/* WRITE */
		fill(&r, a.mem, n);
		memset(b.mem, 0, n + 1);
		wr = wr_rdma(ROOST_OP_WRITE, &a, 0, n, &b, 0);
		wr.wr_id = 1000 + i;
		ep_post(&a, &wr);
		assert_true(ep_wait_send(&a, &c, 10 * SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		assert_int_equal(c.wr_id, 1000 + i);
		assert_int_equal(c.opcode, NIC_WC_WRITE);
		assert_memory_equal(a.mem, b.mem, n);
		assert_int_equal(b.mem[n], 0);
		/* READ into another place */
		wr = wr_rdma(ROOST_OP_READ, &a, 1 << 17, n, &b, 0);
		memset(a.mem + (1 << 17), 0xee, n + 1);
		ep_post(&a, &wr);
		assert_true(ep_wait_send(&a, &c, 10 * SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		assert_int_equal(c.opcode, NIC_WC_READ);
		assert_memory_equal(a.mem + (1 << 17), b.mem, n);
		assert_int_equal(a.mem[(1 << 17) + n], 0xee);
		/* SEND with immediate */
		s = ep_sge(&b, 1 << 17, 1 << 17);
		ep_post_recv(&b, 77, &s, 1);
		wr = wr_rdma(ROOST_OP_SEND_IMM, &a, 0, n, &b, 0);
		wr.imm = 0x12345678;
		ep_post(&a, &wr);
		assert_true(ep_wait_recv(&b, &c, 10 * SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		assert_int_equal(c.byte_len, n);
		assert_int_equal(c.wr_id, 77);
		assert_int_equal(c.imm, 0x12345678);
		assert_memory_equal(a.mem, b.mem + (1 << 17), n);
		assert_true(ep_wait_send(&a, &c, 10 * SEC));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		/* WRITE with immediate */
		ep_post_recv(&b, 78, NULL, 0);
		wr = wr_rdma(ROOST_OP_WRITE_IMM, &a, 0, n, &b, 0);
		wr.imm = 0x9abc;
		ep_post(&a, &wr);
		assert_true(ep_wait_recv(&b, &c, 10 * SEC));
		assert_int_equal(c.opcode, NIC_WC_RECV_WRITE_IMM);
		assert_int_equal(c.byte_len, n);
		assert_true(ep_wait_send(&a, &c, 10 * SEC));
	}
	/* Each atomic is executed once, with any losses. */
	*(uint64_t *)b.mem = 5;
	for (int i = 0; i < 50; i++) {
		struct wr wr = wr_rdma(ROOST_OP_FETCH_ADD, &a, 8, 8, &b, 0);

		wr.swap_add = 3;
		ep_post(&a, &wr);
		if (i % 4 == 3)
			for (int k = 0; k < 4; k++) {
				assert_true(ep_wait_send(&a, &c, 10 * SEC));
				assert_int_equal(c.status, NIC_WC_SUCCESS);
			}
	}
	assert_true(ep_wait_send(&a, &c, 10 * SEC));
	assert_true(ep_wait_send(&a, &c, 10 * SEC));
	assert_int_equal(*(uint64_t *)b.mem, 5 + 150);
	ep_fini(&a);
	ep_fini(&b);
	world_fini(&w);
}

static void test_clean(void **state)
{
	for (size_t i = 0; i < 5; i++)
		all_ops(mtus[i], 0, 1 + i, 0);
}

static void test_loss(void **state)
{
	for (size_t i = 0; i < 5; i++)
		all_ops(mtus[i], 0.01, 11 + i, 0xfffff0);
	for (size_t i = 0; i < 5; i++)
		all_ops(mtus[i], 0.1, 21 + i, 0xffff00);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clean),
		cmocka_unit_test(test_loss),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
