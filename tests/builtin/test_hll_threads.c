/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The host reads a sketch while another PU adds to it. The registers only rise, so each reading is
 * at or above the one before it, and TSan finds no race.
 */
#include <endian.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "builtin/builtin.h"
#include "kernels/local_call.h"
#include "kernels/runtime.h"
#include "roost/hll.h"
#include "world.h"

#define PRECISION 12
#define REGISTERS (1u << PRECISION)
#define ITEMS	  (1u << 21) /* of several turns */

static struct world w;
static struct kernel_runtime *f;
static uint64_t items[ITEMS];
static atomic_bool over;

/* Starts a call of the kernel on a PU, which this thread owns. */
static struct local_call *start(unsigned pu, uint32_t what, const void *payload, uint64_t len,
				uint8_t *reply)
{
	const struct roost_hll_params p = roost_hll_params(1, what, PRECISION);
	const struct local_call_attr a = {.op = ROOST_HLL_OP,
					  .params = &p,
					  .params_len = sizeof(p),
					  .reply = reply,
					  .space = reply ? REGISTERS : 0};
	struct local_call *call;

	assert_int_equal(local_call_start(f, pu, &a, payload, len, &call), 0);
	return call;
}

static void finish(struct local_call *call)
{
	struct local_call_result result;

	assert_true(local_call_done(call));
	assert_true(local_call_finished(call, &result));
	assert_int_equal(result.status, ROOST_RPC_OK);
	local_call_free(call);
}

static void *turns(void *call)
{
	while (!local_call_done(call))
		nic_poll(w.nic[0], 1, 0);
	atomic_store(&over, true);
	return NULL;
}

static void read_while_it_grows(void **state)
{
	static uint8_t now[REGISTERS], before[REGISTERS], model[REGISTERS];
	struct local_call *adds;
	pthread_t thread;
	bool last;

	world_init_shape(&w, &(struct world_shape){.nics = 1, .pus = 2}, 1, NULL);
	assert_int_equal(runtime_create(w.nic[0], NULL, &f), 0);
	assert_int_equal(runtime_deploy(f, &kernel_hll, NULL), 0);
	for (uint32_t i = 0; i < ITEMS; i++) {
		items[i] = htole64(i);
		roost_hll_add(model, PRECISION, i);
	}
	adds = start(1, ROOST_HLL_ADD, items, sizeof(items), NULL);
	assert_false(local_call_done(adds));
	assert_int_equal(pthread_create(&thread, NULL, turns, adds), 0);
	do {
		last = atomic_load(&over);
		finish(start(0, ROOST_HLL_REGISTERS, NULL, 0, now));
		for (unsigned k = 0; k < REGISTERS; k++)
			assert_true(now[k] >= before[k]);
		memcpy(before, now, sizeof(before));
	} while (!last);
	pthread_join(thread, NULL);
	assert_memory_equal(now, model, sizeof(model));
	finish(adds);
	assert_int_equal(runtime_undeploy(f, ROOST_HLL_OP), 0);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(read_while_it_grows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
