/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A parameter server: four workers learn the weights of a linear model from examples that each of
 * them has for itself. The weights are float vectors in the store. A worker reads them, computes
 * the gradient of a few examples, and adds it to the vectors: the additions of all workers take
 * effect, whatever their order.
 * usage: parameters ADDRESS [STEPS]
 */
#include <math.h>

#include "client.h"

#define WORKERS	 4u
#define VECTORS	 8u
#define LENGTH	 32u /* floats of a vector */
#define WEIGHTS	 (VECTORS * LENGTH)
#define EXAMPLES 32u /* examples of a step */
#define RATE	 0.1f
#define CLOSE	 0.01f

static unsigned long steps;
static float truth[WEIGHTS];

struct vectors {
	struct roost_kv_op ops[VECTORS + 1];
	uint32_t keys[VECTORS + 1];
	float values[WEIGHTS];
};

static float draw_float(uint64_t *rng)
{
	return (float)(draw(rng) >> 40) * 0x1p-23f - 1;
}

/* Prepares an operation on each vector. */
static void prepare(struct vectors *v, unsigned code)
{
	for (unsigned i = 0; i < VECTORS; i++) {
		v->keys[i] = i;
		v->ops[i] =
			(struct roost_kv_op){.code = (uint8_t)code,
					     .type = ROOST_KV_FLOAT,
					     .function = code == ROOST_KV_GET ? 0 : ROOST_KV_ADD,
					     .key = &v->keys[i],
					     .key_len = sizeof(v->keys[i]),
					     .value = &v->values[i * LENGTH],
					     .value_len = LENGTH * sizeof(float),
					     .out = &v->values[i * LENGTH],
					     .out_cap = LENGTH * sizeof(float)};
		if (code == ROOST_KV_GET)
			v->ops[i].value_len = 0;
		else
			v->ops[i].out_cap = 0;
	}
}

/* Prepares an update that counts a step. */
static void count(struct roost_kv_op *op, uint32_t *key)
{
	static const uint64_t one = 1;

	*key = VECTORS;
	*op = (struct roost_kv_op){.code = ROOST_KV_UPDATE,
				   .type = ROOST_KV_U64,
				   .function = ROOST_KV_ADD,
				   .key = key,
				   .key_len = sizeof(*key),
				   .value = &one,
				   .value_len = sizeof(one)};
}

/* Computes the negative gradient of the squared error, for some examples of this worker. */
static void learn(uint64_t *rng, const float *weights, float *change)
{
	float x[WEIGHTS];

	memset(change, 0, WEIGHTS * sizeof(*change));
	for (unsigned e = 0; e < EXAMPLES; e++) {
		float error = 0;

		for (unsigned i = 0; i < WEIGHTS; i++) {
			x[i] = draw_float(rng);
			error += x[i] * (truth[i] - weights[i]);
		}
		for (unsigned i = 0; i < WEIGHTS; i++)
			change[i] += RATE * error * x[i] / (float)EXAMPLES;
	}
}

static void *work(void *number)
{
	struct roost_kv *kv = connect_to_store();
	struct vectors *pull = memory(1, sizeof(*pull)), *push = memory(1, sizeof(*push));
	uint64_t rng = 1000 + (uintptr_t)number;

	for (unsigned long s = 0; s < steps; s++) {
		prepare(pull, ROOST_KV_GET);
		run_all(kv, pull->ops, VECTORS, "a GET");
		learn(&rng, pull->values, push->values);
		prepare(push, ROOST_KV_UPDATE_VECTOR);
		count(&push->ops[VECTORS], &push->keys[VECTORS]);
		run_all(kv, push->ops, VECTORS + 1, "an update");
	}
	free(pull);
	free(push);
	roost_kv_close(kv);
	return NULL;
}

int main(int argc, char **argv)
{
	static struct vectors all;
	struct roost_kv *kv;
	uint64_t rng = 7, counted = 0;
	uint32_t counter = VECTORS;
	float worst = 0;
	double start;
	size_t len;

	steps = arguments(argc, argv, 2000);
	for (unsigned i = 0; i < WEIGHTS; i++)
		truth[i] = draw_float(&rng);
	kv = connect_to_store();
	prepare(&all, ROOST_KV_PUT);
	run_all(kv, all.ops, VECTORS, "a PUT");
	must(roost_kv_put(kv, &counter, sizeof(counter), &counted, sizeof(counted), 0), "a PUT");

	start = seconds();
	run_workers(WORKERS, work);
	printf("%.0f steps a second\n", (double)(WORKERS * steps) / (seconds() - start));

	prepare(&all, ROOST_KV_GET);
	run_all(kv, all.ops, VECTORS, "a GET");
	for (unsigned i = 0; i < WEIGHTS; i++)
		worst = fmaxf(worst, fabsf(all.values[i] - truth[i]));
	must(roost_kv_get(kv, &counter, sizeof(counter), &counted, sizeof(counted), &len),
	     "the counter");
	roost_kv_close(kv);
	printf("%" PRIu64 " of %lu steps, the weights are %s\n", counted, WORKERS * steps,
	       worst < CLOSE ? "learned" : "wrong");
	return counted != WORKERS * steps || worst >= CLOSE;
}
