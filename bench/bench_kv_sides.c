/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Atomics beside those of the store (KV-Direct, figure 13a), between two processes over shm:
 * one-sided, by FETCH_ADDs, of which a queue pair may have 16 in flight; and two-sided, by SENDs to
 * a program, which changes the counter and WRITEs the old value back. Prints JSON.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "duo.h"
#include "look_server.h"

#define COUNTERS 4096u
#define WINDOW	 16u
#define REPLY	 64u /* bytes of a reply's place */

static struct look_server server;
static uint64_t old;
static double seconds = 0.3;
static struct rng rng;

static uint8_t *change(const struct duo *s, uint64_t key, uint32_t size)
{
	uint64_t *counter = (uint64_t *)(void *)s->mem + key;
	static uint64_t results[LOOK_WINDOW];
	static unsigned next;

	/* The answer leaves later, so each has a place of its own. */
	results[next % LOOK_WINDOW] = (*counter)++;
	return (uint8_t *)&results[next++ % LOOK_WINDOW];
}

static struct ibv_qp *make_link(struct duo *s, unsigned i)
{
	return look_server_make(s, &server, change);
}

static void joined(struct duo *s)
{
	look_server_start(&server);
}

static void phase(struct duo *s, unsigned n)
{
	look_server_run(s, &server, false);
}

/* ---- the client ---- */

static void post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	if (ibv_post_send(qp, wr, &bad))
		duo_fail("bench_kv_sides: can't post");
}

static uint64_t one_sided(struct duo *c, uint64_t keys)
{
	struct ibv_send_wr wr[WINDOW];
	struct ibv_sge sge[WINDOW];

	for (unsigned i = 0; i < WINDOW; i++) {
		sge[i] = (struct ibv_sge){(uintptr_t)c->mem + i * REPLY, 8, c->mr->lkey};
		wr[i] = (struct ibv_send_wr){.sg_list = &sge[i],
					     .num_sge = 1,
					     .next = i + 1 < WINDOW ? &wr[i + 1] : NULL,
					     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
		wr[i].wr.atomic.remote_addr = c->remote + rng_below(&rng, keys) * 8;
		wr[i].wr.atomic.compare_add = 1;
		wr[i].wr.atomic.rkey = c->rkey;
	}
	wr[WINDOW - 1].send_flags = IBV_SEND_SIGNALED;
	c->outstanding++;
	post(c->qp, wr);
	/* The next list is posted while this one is in flight. */
	while (c->outstanding > 1)
		duo_reap(c);
	return WINDOW;
}

static uint64_t numbers;

static void ask(struct duo *c, uint64_t keys, unsigned from, unsigned n, uint32_t size)
{
	static struct look_request request[LOOK_WINDOW];
	struct ibv_send_wr wr[WINDOW];
	struct ibv_sge sge[WINDOW];

	for (unsigned i = 0; i < n; i++) {
		struct look_request *r = &request[from + i];

		*r = (struct look_request){.key = rng_below(&rng, keys),
					   .number = ++numbers,
					   .size = size,
					   .reply = (from + i) * REPLY};
		sge[i] = (struct ibv_sge){(uintptr_t)r, LOOK_GET_LEN, 0};
		wr[i] = (struct ibv_send_wr){.sg_list = &sge[i],
					     .num_sge = 1,
					     .next = i + 1 < n ? &wr[i + 1] : NULL,
					     .opcode = IBV_WR_SEND,
					     .send_flags = IBV_SEND_INLINE};
	}
	wr[n - 1].send_flags |= IBV_SEND_SIGNALED;
	c->outstanding++;
	post(c->link[0], wr);
}

/* Waits for the answer with this number, which is behind the old value. */
static void answer(struct duo *c, unsigned slot, uint64_t number)
{
	const uint64_t *at = (const uint64_t *)(const void *)(c->mem + slot * REPLY + 8);

	while (__atomic_load_n(at, __ATOMIC_ACQUIRE) != number)
		duo_reap(c);
	old += at[-1];
}

/* Four lists are in flight. */
static uint64_t two_sided(struct duo *c, uint64_t keys)
{
	static uint64_t lists;
	unsigned from = lists % (LOOK_WINDOW / WINDOW) * WINDOW;

	if (lists++ >= LOOK_WINDOW / WINDOW)
		for (unsigned i = 0; i < WINDOW; i++)
			answer(c, from + i, numbers - LOOK_WINDOW + i + 1);
	ask(c, keys, from, WINDOW, 8);
	return WINDOW;
}

static void drain(struct duo *c)
{
	while (c->outstanding)
		duo_reap(c);
}

static void rows(struct duo *c, const char *way, uint64_t (*turn)(struct duo *, uint64_t),
		 const char *end)
{
	for (uint64_t keys = 1; keys <= COUNTERS; keys *= 8) {
		uint64_t start = duo_ns(), now = start, n = 0;

		for (; (double)(now - start) < seconds * 1e9; now = duo_ns())
			n += turn(c, keys);
		printf("  {\"figure\": \"13a\", \"way\": \"%s\", \"keys\": %u, \"rate\": %.0f}%s\n",
		       way, (unsigned)keys, (double)n * 1e9 / (double)(now - start),
		       keys < COUNTERS ? "," : end);
	}
}

static void client(struct duo *c)
{
	rng_seed(&rng, 4);
	printf("{\"rows\": [\n");
	rows(c, "one-sided, FETCH_ADD", one_sided, ",");
	drain(c);
	duo_phase(c, 1);
	rows(c, "two-sided, SEND", two_sided, "");
	for (unsigned i = 0; i < LOOK_WINDOW; i++)
		answer(c, (unsigned)(i + numbers) % LOOK_WINDOW, numbers - LOOK_WINDOW + i + 1);
	ask(c, 1, 0, 1, 0);
	duo_phase_end(c);
	drain(c);
	printf("]}\n");
}

/* bench_kv_sides [SECONDS]: SECONDS for each row. */
int main(int argc, char **argv)
{
	if (argc > 1)
		seconds = atof(argv[1]);
	duo_run(&(struct duo_plan){.client_len = LOOK_WINDOW * REPLY,
				   .server_len = COUNTERS * 8,
				   .links = 1,
				   .make_link = make_link,
				   .joined = joined,
				   .phase = phase,
				   .client = client});
	return 0;
}
