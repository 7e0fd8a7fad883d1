/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls with guessed keys. A key without access for the peer ends the connection before a kernel
 * runs, as with a WRITE (IBA 9.7.4.1.5). A status instead would let the peer probe one key per
 * round trip.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "rig.h"

#define ECHO 0x1000

static struct rig R, *const r = &R;
static unsigned asked;

static enum roost_next echo(struct roost_call *c)
{
	asked++;
	return roost_reply(c, ROOST_RPC_OK, c->params, c->params_len);
}

static enum roost_next payload(struct roost_call *c)
{
	asked++;
	return ROOST_DONE;
}

static const struct roost_kernel kernel = {.abi = ROOST_KERNEL_ABI,
					   .name = "echo",
					   .version = 1,
					   .op = ECHO,
					   .params = echo,
					   .payload = payload};

enum guess { NEXT_TAG, NEXT_INDEX, OTHER_DOMAIN, LOCAL_ONLY, TAKEN_BACK, GUESSES };

static uint32_t guess_key(struct nic *nic, const struct ep *e, uint32_t other_pd, enum guess guess)
{
	struct nic_mr_attr m = {.addr = e->mem,
				.len = 64,
				.iova = 64,
				.pd = guess == OTHER_DOMAIN ? other_pd : e->pd};
	uint32_t key;

	if (guess == NEXT_TAG)
		return e->key ^ 1;
	if (guess == NEXT_INDEX)
		return e->key ^ 1u << 12;
	m.access = guess == LOCAL_ONLY ? NIC_ACCESS_LOCAL_WRITE : NIC_ACCESS_REMOTE_READ;
	assert_int_equal(nic_mr_register(nic, &m, &key), 0);
	if (guess == TAKEN_BACK)
		assert_int_equal(nic_mr_deregister(nic, key), 0);
	return key;
}

static void a_guess(enum guess guess, bool with_payload, bool loop)
{
	uint32_t own, other_pd, key;
	struct roost_cqe c;
	struct nic *nic;

	rig_open(r, 7, &(struct rig_shape){.sp = {.delay_ns = 1000}, .loop = loop});
	nic = r->w.nic[loop ? 0 : 1];
	assert_int_equal(runtime_deploy(r->f, &kernel, NULL), 0);
	assert_int_equal(nic_pd_alloc(nic, &other_pd), 0);
	own = r->node[0].key;
	/* Key 0: the call names no region. */
	r->node[0].key = 0;
	assert_int_equal(rig_call(r, ECHO, "hello", 5, 8).status, ROOST_RPC_OK);
	r->node[0].key = own;
	assert_int_equal(rig_call(r, ECHO, "hello", 5, 8).status, ROOST_RPC_OK);
	rig_reap(r);
	asked = 0;
	r->node[0].key = key = guess_key(nic, &r->node[0], other_pd, guess);
	if (with_payload)
		rig_post_payload(r, 0, ECHO, 5000);
	else
		rig_post(r, 0, 0, ECHO, "hello", 5, 8, 0);
	assert_true(ep_wait_send(&r->caller[0], &c, 60 * SEC));
	assert_int_equal(c.status, NIC_WC_REM_ACCESS_ERR);
	assert_int_equal(asked, 0);
	assert_int_equal(nic_qp_state(r->caller[0].qp), NIC_QPS_ERR);
	assert_int_equal(nic_qp_state(r->node[0].qp), NIC_QPS_ERR);
	assert_int_equal(nic_qp_state(r->node[1].qp), NIC_QPS_RTS);
	r->node[0].key = own;
	if (guess == OTHER_DOMAIN || guess == LOCAL_ONLY)
		assert_int_equal(nic_mr_deregister(nic, key), 0);
	assert_int_equal(nic_pd_free(nic, other_pd), 0);
	rig_close(r);
}

static void guessed_keys(void **state)
{
	for (unsigned guess = 0; guess < GUESSES; guess++)
		for (unsigned i = 0; i < 4; i++)
			a_guess(guess, i & 1, i & 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(guessed_keys)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
