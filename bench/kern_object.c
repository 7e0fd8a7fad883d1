/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-kernels object: consistent reads of objects whose last 8 bytes are their CRC-64. It
 * compares a plain READ without a check, READs that the requester checks and repeats, and the
 * kernel, which checks and repeats at the node. Failures are random with a given probability, in
 * the same way for both: a byte of the data read is changed before the check.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "kern.h"
#include "builtin/crc64.h"
#include "roost/consistency.h"

#define OBJECTS	 64u
#define MAX_SIZE 4096u
#define TRIES	 1000u
#define TORN_OP	 0x7001ull
#define RATE_FIG 1u /* torn tries out of 2^32 */

static struct rng dice;
static _Atomic uint64_t *torn_rate;

static bool torn(void)
{
	return (rng_u64(&dice) >> 32) < atomic_load_explicit(torn_rate, memory_order_relaxed);
}

/* The built-in kernel, with random torn reads. */
static enum roost_next torn_consistency(struct roost_call *c)
{
	if (c->resume && torn())
		*(uint8_t *)c->buf ^= 1;
	return roost_kernel_builtin("consistency")->params(c);
}

static struct roost_kernel torn_kernel;

static void build(struct duo *s)
{
	for (unsigned size = 64, n = 0; size <= MAX_SIZE; size *= 4, n++)
		for (unsigned i = 0; i < OBJECTS; i++) {
			uint8_t *at = s->mem + (size_t)(n * OBJECTS + i) * MAX_SIZE;
			uint64_t crc;

			memset(at, (int)(i + 1), size - 8);
			crc = crc64_plain(at, size - 8);
			memcpy(at + size - 8, &crc, 8);
		}
	rng_seed(&dice, 2);
	torn_rate = duo_figure(s, RATE_FIG);
	kern_deploy(s, "consistency");
	torn_kernel = *roost_kernel_builtin("consistency");
	torn_kernel.op = TORN_OP;
	torn_kernel.params = torn_consistency;
	if (roost_kernel_deploy(s->ctx, &torn_kernel, NULL))
		duo_fail("can't deploy the kernel with torn objects");
}

static uint64_t object_at(const struct duo *c, uint64_t random, unsigned size)
{
	unsigned n = (unsigned)(__builtin_ctz(size) - 6) / 2;

	return c->remote + (n * OBJECTS + random % OBJECTS) * MAX_SIZE;
}

static unsigned plain(struct duo *c, uint64_t random, unsigned size)
{
	duo_read(c, 0, object_at(c, random, size), size);
	return 1;
}

static unsigned checked(struct duo *c, uint64_t random, unsigned size)
{
	uint64_t from = object_at(c, random, size), crc;

	for (unsigned trips = 1;; trips++) {
		duo_read(c, 0, from, size);
		if (torn())
			c->mem[0] ^= 1;
		memcpy(&crc, c->mem + size - 8, 8);
		if (crc64_best()(c->mem, size - 8) == crc)
			return trips;
	}
}

static unsigned kernel(struct duo *c, uint64_t random, unsigned size)
{
	struct roost_consistency_params p = roost_consistency_params(
		object_at(c, random, size), size, TRIES, ROOST_CONSISTENCY_CRC);
	uint64_t op = atomic_load_explicit(torn_rate, memory_order_relaxed) ? TORN_OP
									    : ROOST_CONSISTENCY_OP;

	kern_call(op, c->rkey, &p, sizeof(p), size - 8);
	return 1;
}

static void client(struct duo *c)
{
	static const unsigned percent[] = {0, 5, 10, 25, 50};
	static struct kern_way ways[] = {{.name = "READ", .once = plain},
					 {.name = "kernel", .once = kernel},
					 {.name = "READ, check", .once = checked}};

	rng_seed(&dice, 3);
	torn_rate = duo_figure(c, RATE_FIG);
	kern_make_caller(c, 1, MAX_SIZE);
	for (unsigned size = 64; size <= MAX_SIZE; size *= 4)
		for (unsigned i = 0; i < sizeof(percent) / sizeof(percent[0]); i++) {
			char extra[32];

			/* All sizes without failures, smallest and largest with failures. */
			if (percent[i] && size != 64 && size != MAX_SIZE)
				continue;
			atomic_store(torn_rate, (uint64_t)((double)percent[i] / 100 * 0x1p32));
			snprintf(extra, sizeof(extra), ", \"failures\": %u", percent[i]);
			kern_compare(c, "object", percent[i] ? ways + 1 : ways, percent[i] ? 2 : 3,
				     size, extra);
		}
}

void kern_object(void)
{
	duo_run(&(struct duo_plan){.delay_ns = kern.delay_ns,
				   .client_len = 2 * MAX_SIZE,
				   .server_len = 4 * OBJECTS * MAX_SIZE,
				   .build = build,
				   .client = client});
}
