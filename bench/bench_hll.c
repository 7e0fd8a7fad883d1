/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measures the loop of the kernel `hll` alone. Items are in the cache, as they come from a port,
 * and go into sketches of several precisions. It measures the portable form, the form chosen for
 * this machine, and the kernel alone, piece by piece. Prints JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "builtin/builtin.h"
#include "builtin/hll_update.h"
#include "roost/hll.h"
#include "runs.h"

#define PIECE  4096
#define PIECES 64 /* in cache, as packets are */
#define ROUNDS 200
#define RUNS   9

static uint8_t items[PIECES][PIECE];
static uint8_t registers[1u << ROOST_HLL_MAX_PRECISION];

/* One run; the forms alternate. `t` gets the Gbit/s of items. */
static void run_loop(hll_update_fn *update, unsigned precision, double *t)
{
	double start = now_ns();

	for (int i = 0; i < ROUNDS; i++)
		for (int k = 0; k < PIECES; k++)
			update(registers, precision, items[k], PIECE / 8);
	*t = 8.0 * ROUNDS * sizeof(items) / (now_ns() - start);
}

/* Prepares a call as the kernel runtime does: ADD, with a long payload. */
static void begin_call(struct roost_call *c, void *self, unsigned precision)
{
	static uint64_t state[ROOST_KERNEL_MAX_STATE / 8];
	static struct roost_hll_params params;

	memset(state, 0, sizeof(state));
	params = roost_hll_params(precision, ROOST_HLL_ADD, precision);
	*c = (struct roost_call){.state = state,
				 .self = self,
				 .params = &params,
				 .params_len = sizeof(params),
				 .op = ROOST_HLL_OP,
				 .len = PIECE,
				 .total = 1u << 31};
	if (kernels_builtin("hll")->params(c) != ROOST_DONE || c->ask != ROOST_ASK_NONE)
		abort();
}

static void run_kernel(struct roost_call *c, double *t)
{
	enum roost_next (*payload)(struct roost_call *) = kernels_builtin("hll")->payload;
	double start = now_ns();

	for (int i = 0; i < ROUNDS; i++)
		for (int k = 0; k < PIECES; k++) {
			c->data = items[k];
			c->offset += PIECE;
			if (payload(c) != ROOST_DONE)
				abort();
		}
	*t = 8.0 * ROUNDS * sizeof(items) / (now_ns() - start);
}

/* Prints medians over RUNS. */
static void measure(unsigned precision, void *self, const char *sep)
{
	double scalar[RUNS], chosen[RUNS], kernel[RUNS];
	struct roost_call c;

	begin_call(&c, self, precision);
	memset(registers, 0, sizeof(registers));
	for (int r = 0; r < RUNS; r++) {
		run_loop(hll_update_scalar, precision, &scalar[r]);
		run_loop(hll_update_best(), precision, &chosen[r]);
		run_kernel(&c, &kernel[r]);
	}
	printf("%s\"%u\": {\"scalar\": %.1f, \"chosen\": %.1f, \"kernel\": %.1f}", sep, precision,
	       median(scalar, RUNS), median(chosen, RUNS), median(kernel, RUNS));
}

int main(void)
{
	static const unsigned precisions[] = {4, 10, 14, 18};
	struct rng rng;
	void *self = NULL;

	if (kernels_builtin("hll")->start(&self))
		return 1;
	rng_seed(&rng, 1);
	for (size_t i = 0; i < sizeof(items); i += 8) {
		uint64_t item = rng_u64(&rng);

		memcpy(&items[0][0] + i, &item, 8);
	}
	printf("{\"tool\": \"bench_hll\", \"chosen_is_scalar\": %s, \"item_bytes\": 8, \"gbps\": {",
	       hll_update_best() == hll_update_scalar ? "true" : "false");
	for (size_t i = 0; i < sizeof(precisions) / sizeof(precisions[0]); i++)
		measure(precisions[i], self, i ? ", " : "");
	printf("}}\n");
	return 0;
}
