/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-kernels walk: lists of 32 elements in random order in memory larger than any cache. One
 * walk at a time, by the kernel and by a bare loop on the server; and 64 calls in flight. The time
 * of a hop comes from 31 more elements.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kern.h"
#include "roost/traversal.h"

#define LISTS	  (1u << 18)
#define LENGTH	  32u
#define ELEMENTS  (LISTS * LENGTH) /* 512 MiB */
#define VALUE	  8u
#define BARE	  1u
#define BARE_RATE 2u
#define BARE_SUM  3u

struct element {
	uint64_t key, next, value, rest[5];
};

static uint64_t key_of(uint32_t list, unsigned at)
{
	return 1 + (uint64_t)list * LENGTH + at;
}

static void build(struct duo *s)
{
	struct element *e = (void *)s->mem;
	uint32_t *order = malloc(ELEMENTS * sizeof(*order));

	if (!order)
		duo_fail("no memory");
	kern_mix(order, ELEMENTS, LISTS, 4);
	for (uint32_t list = 0; list < LISTS; list++) {
		uint32_t at = list;

		for (unsigned n = 0; n < LENGTH; n++) {
			uint32_t next = n + 1 < LENGTH ? order[LISTS + list * (LENGTH - 1) + n] : 0;

			e[at] = (struct element){key_of(list, n),
						 next ? (uintptr_t)&e[next] : 0,
						 key_of(list, n),
						 {0}};
			at = next;
		}
	}
	free(order);
	kern_deploy(s, "traversal");
}

/*
 * The same walks by the server's thread, without a NIC. The start of a walk depends on the result
 * of the previous one; otherwise the CPU would walk two lists at the same time.
 */
static void bare(struct duo *s, unsigned n)
{
	uint64_t start = duo_ns(), walks = 0, sum = 0, found = 0;
	struct rng rng;

	rng_seed(&rng, start);
	while (duo_ns() - start < kern.point_ns) {
		for (unsigned i = 0; i < 16; i++, walks++) {
			uint32_t list = (uint32_t)(rng_below(&rng, LISTS) ^ found);
			const struct element *e = (const struct element *)(void *)s->mem + list;
			uint64_t key = key_of(list, LENGTH - 1);

			while (e->key != key)
				e = (const void *)(uintptr_t)e->next;
			sum += e->value;
			found = e->value ^ key; /* 0 */
		}
	}
	atomic_store(duo_figure(s, BARE_SUM), sum);
	atomic_store(duo_figure(s, BARE_RATE), walks * 1000000000u / (duo_ns() - start));
}

static struct roost_traversal_params params(const struct duo *c, uint64_t random, unsigned length)
{
	uint32_t list = (uint32_t)(random % LISTS);
	struct roost_traversal_params p = roost_traversal_list(
		c->remote + (uint64_t)list * sizeof(struct element), sizeof(struct element),
		key_of(list, length - 1), 0, 4, 2, VALUE);

	p.flags = ROOST_TRAVERSAL_VALUE_INSIDE;
	return p;
}

static unsigned one(struct duo *c, uint64_t random, unsigned length)
{
	struct roost_traversal_params p = params(c, random, length);

	kern_expect("walk", kern_call(ROOST_TRAVERSAL_OP, c->rkey, &p, sizeof(p), VALUE), p.key,
		    VALUE);
	return 1;
}

/* Walks per second with `flight` calls in flight. */
static double many(struct duo *c, unsigned flight)
{
	static struct rng rng;
	unsigned id[DUO_CALLS];
	uint64_t key[DUO_CALLS], start = duo_ns(), done = 0, now;
	bool going[DUO_CALLS] = {false};

	if (!rng.s[0])
		rng_seed(&rng, 5);
	do {
		for (unsigned i = 0; i < flight; i++) {
			struct roost_traversal_params p;
			struct roost_result r;

			if (going[i]) {
				int rc = roost_call_poll(kern_caller, id[i], &r);

				if (rc == EAGAIN)
					continue;
				if (rc || r.status || r.len != VALUE)
					duo_fail("walk: a call fails");
				kern_expect("walk", r.data, &key[i], VALUE);
				roost_call_end(kern_caller, id[i]);
				done++;
			}
			p = params(c, rng_u64(&rng), LENGTH);
			memcpy(&key[i], p.key, 8);
			if (roost_call_begin(kern_caller, ROOST_TRAVERSAL_OP, c->rkey, &p,
					     sizeof(p), 0, &id[i]))
				duo_fail("walk: a call can't begin");
			going[i] = true;
		}
		now = duo_ns();
	} while (now - start < kern.point_ns);
	for (unsigned i = 0; i < flight; i++) {
		struct roost_result r = kern_wait(id[i]);

		if (r.status)
			duo_fail("walk: a call ends with status %u", r.status);
		roost_call_end(kern_caller, id[i]);
	}
	return (double)done * 1e9 / (double)(now - start);
}

static double by_bare_loop(struct duo *c, unsigned flight)
{
	duo_phase(c, BARE);
	duo_phase_end(c);
	return (double)atomic_load(duo_figure(c, BARE_RATE));
}

static void client(struct duo *c)
{
	static struct kern_way ways[] = {{.name = "kernel", .once = one}};
	static const struct kern_rate rates[] = {{"in flight", many, 1},
						 {"in flight", many, 4},
						 {"in flight", many, 16},
						 {"in flight", many, 64},
						 {"bare loop", by_bare_loop, 1}};

	kern_make_caller(c, DUO_CALLS, VALUE);
	for (unsigned length = 1; length <= LENGTH; length += LENGTH - 1)
		kern_compare(c, "walk", ways, 1, length, "");
	kern_rates(c, "walk", rates, sizeof(rates) / sizeof(rates[0]), KERN_TURNS, "rate");
}

void kern_walk(void)
{
	duo_run(&(struct duo_plan){.delay_ns = kern.delay_ns,
				   .client_len = 65536,
				   .server_len = ELEMENTS * sizeof(struct element),
				   .build = build,
				   .phase = bare,
				   .client = client});
}
