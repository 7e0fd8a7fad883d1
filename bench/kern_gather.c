/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-kernels gather: 256 pieces of memory at random addresses, which is larger than the cache
 * (KV-Direct, figures 18 and 19). Each piece is a READ, or the server's CPU collects them: the
 * client WRITEs the addresses, and the server's program copies the pieces to one buffer, which it
 * WRITEs back. Latency of one piece and of all 256; pieces a second, with 256 READs in flight or
 * two lists of 256. Also the rate at which the server's CPU copies pieces, without the NIC.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "kern.h"

#define PIECES	 256u
#define MAX_SIZE 512u
#define LISTS	 2u /* in flight */
#define DATA_LEN (256ull << 20)
#define REPLY	 (PIECES * MAX_SIZE)
#define CHAIN	 32u /* READs posted together */
#define BARE	 1u
#define FIG_SIZE 1u
#define FIG_RATE 2u

/* At the server, one for each list in flight. `number` is written last, and counts the requests. */
struct request {
	uint64_t at[PIECES];
	uint32_t size, pieces;
	_Atomic uint64_t number;
};

/* Server: | requests | buffers | data |. Client: | requests | replies, each with its number |. */
struct head {
	struct request request[LISTS];
	uint8_t buffer[LISTS][REPLY];
	uint64_t number[LISTS];
};

struct answers {
	struct request request[LISTS];
	struct {
		uint8_t data[REPLY];
		_Atomic uint64_t number;
	} reply[LISTS];
};

static uint64_t seen[LISTS];  /* of the server */
static uint64_t asked[LISTS]; /* of the client */
static struct rng rng;

#define DATA ((sizeof(struct head) + 4095) & ~(size_t)4095)

static void build(struct duo *s)
{
	memset(s->mem + DATA, 7, DATA_LEN);
}

/* Copies the pieces, with prefetches some pieces ahead. */
static void gather(const uint8_t *data, const uint64_t *at, unsigned n, unsigned size, uint8_t *to)
{
	for (unsigned i = 0; i < n + 16; i++) {
		if (i < n)
			for (unsigned b = 0; b < size; b += 64)
				__builtin_prefetch(data + at[i] + b);
		if (i >= 16)
			memcpy(to + (size_t)(i - 16) * size, data + at[i - 16], size);
	}
}

static void turn(struct duo *s)
{
	struct head *h = (void *)s->mem;

	for (unsigned i = 0; i < LISTS; i++) {
		struct request *r = &h->request[i];
		uint64_t n = atomic_load_explicit(&r->number, memory_order_acquire), to;

		if (n == seen[i])
			continue;
		seen[i] = n;
		gather(s->mem + DATA, r->at, r->pieces, r->size, h->buffer[i]);
		h->number[i] = n;
		to = s->remote + offsetof(struct answers, reply[i]);
		duo_post(s, IBV_WR_RDMA_WRITE, (size_t)((uint8_t *)h->buffer[i] - s->mem), to,
			 r->pieces * r->size);
		duo_post(s, IBV_WR_RDMA_WRITE, (size_t)((uint8_t *)&h->number[i] - s->mem),
			 to + offsetof(struct answers, reply[0].number) -
				 offsetof(struct answers, reply[0]),
			 8);
	}
}

static uint64_t random_piece(unsigned size)
{
	return rng_below(&rng, DATA_LEN / size) * size;
}

/* The server's CPU alone. */
static void bare(struct duo *s, unsigned n)
{
	struct head *h = (void *)s->mem;
	unsigned size = (unsigned)atomic_load(duo_figure(s, FIG_SIZE));
	uint64_t start = duo_ns(), done = 0, at[PIECES];

	rng_seed(&rng, 3);
	for (; duo_ns() - start < kern.point_ns; done += PIECES) {
		for (unsigned i = 0; i < PIECES; i++)
			at[i] = random_piece(size);
		gather(s->mem + DATA, at, PIECES, size, h->buffer[0]);
	}
	atomic_store(duo_figure(s, FIG_RATE), done * 1000000000u / (duo_ns() - start));
}

/* ---- the client ---- */

static void post_reads(struct duo *c, unsigned n, unsigned size)
{
	struct ibv_send_wr wr[CHAIN], *bad;
	struct ibv_sge sge[CHAIN];

	for (unsigned i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){(uintptr_t)c->mem + sizeof(struct answers) +
						  (size_t)i * MAX_SIZE,
					  size, c->mr->lkey};
		wr[i] = (struct ibv_send_wr){.sg_list = &sge[i],
					     .num_sge = 1,
					     .opcode = IBV_WR_RDMA_READ,
					     .send_flags = IBV_SEND_SIGNALED,
					     .next = i + 1 < n ? &wr[i + 1] : NULL};
		wr[i].wr.rdma.remote_addr = c->remote + DATA + random_piece(size);
		wr[i].wr.rdma.rkey = c->rkey;
	}
	if (ibv_post_send(c->qp, wr, &bad))
		duo_fail("can't post READs");
	c->outstanding += n;
}

static void reap_all(struct duo *c)
{
	while (c->outstanding)
		duo_reap(c);
}

static void ask(struct duo *c, unsigned list, unsigned pieces, unsigned size)
{
	struct answers *a = (void *)c->mem;
	struct request *r = &a->request[list];
	uint64_t to = c->remote + offsetof(struct head, request[list]);
	size_t at = (size_t)((uint8_t *)r - c->mem);

	for (unsigned i = 0; i < pieces; i++)
		r->at[i] = random_piece(size);
	r->size = size;
	r->pieces = pieces;
	atomic_store_explicit(&r->number, ++asked[list], memory_order_relaxed);
	duo_post(c, IBV_WR_RDMA_WRITE, at, to, pieces * 8);
	duo_post(c, IBV_WR_RDMA_WRITE, at + offsetof(struct request, size),
		 to + offsetof(struct request, size), sizeof(*r) - offsetof(struct request, size));
}

static bool answered(struct duo *c, unsigned list)
{
	struct answers *a = (void *)c->mem;

	duo_reap(c);
	if (atomic_load_explicit(&a->reply[list].number, memory_order_acquire) != asked[list])
		return false;
	kern_expect("gather", a->reply[list].data, "\7\7\7\7\7\7\7\7", 8);
	return true;
}

static unsigned read_one(struct duo *c, uint64_t random, unsigned size)
{
	post_reads(c, 1, size);
	reap_all(c);
	return 1;
}

static unsigned read_all(struct duo *c, uint64_t random, unsigned size)
{
	for (unsigned i = 0; i < PIECES; i += CHAIN)
		post_reads(c, CHAIN, size);
	reap_all(c);
	return 1;
}

static unsigned gather_n(struct duo *c, unsigned n, unsigned size)
{
	ask(c, 0, n, size);
	while (!answered(c, 0))
		;
	reap_all(c);
	return 1;
}

static unsigned gather_one(struct duo *c, uint64_t random, unsigned size)
{
	return gather_n(c, 1, size);
}

static unsigned gather_all(struct duo *c, uint64_t random, unsigned size)
{
	return gather_n(c, PIECES, size);
}

static double rate_of_reads(struct duo *c, unsigned size)
{
	uint64_t start = duo_ns(), done = 0;

	for (; duo_ns() - start < kern.point_ns; duo_reap(c))
		for (; c->outstanding + CHAIN <= DUO_DEPTH; done += CHAIN)
			post_reads(c, CHAIN, size);
	done -= c->outstanding;
	reap_all(c);
	return (double)done * 1e9 / (double)(duo_ns() - start);
}

static double rate_of_lists(struct duo *c, unsigned size)
{
	uint64_t start = duo_ns(), done = 0;

	for (unsigned i = 0; i < LISTS; i++)
		ask(c, i, PIECES, size);
	while (duo_ns() - start < kern.point_ns)
		for (unsigned i = 0; i < LISTS; i++)
			if (answered(c, i)) {
				done += PIECES;
				ask(c, i, PIECES, size);
			}
	for (unsigned i = 0; i < LISTS; i++)
		while (!answered(c, i))
			;
	reap_all(c);
	return (double)done * 1e9 / (double)(duo_ns() - start);
}

static double rate_bare(struct duo *c, unsigned size)
{
	atomic_store(duo_figure(c, FIG_SIZE), size);
	duo_phase(c, BARE);
	duo_phase_end(c);
	return (double)atomic_load(duo_figure(c, FIG_RATE));
}

static void client(struct duo *c)
{
	static struct kern_way ways[] = {{.name = "one READ", .once = read_one},
					 {.name = "one piece by the CPU", .once = gather_one},
					 {.name = "256 READs", .once = read_all},
					 {.name = "256 pieces by the CPU", .once = gather_all}};

	rng_seed(&rng, 2);
	for (unsigned size = 64; size <= MAX_SIZE; size *= 2) {
		const struct kern_rate rates[] = {{"READs", rate_of_reads, size},
						  {"lists", rate_of_lists, size},
						  {"the CPU alone", rate_bare, size}};

		kern_compare(c, "gather", ways, sizeof(ways) / sizeof(ways[0]), size, "");
		kern_rates(c, "gather", rates, sizeof(rates) / sizeof(rates[0]), KERN_TURNS,
			   "pieces");
	}
}

void kern_gather(void)
{
	duo_run(&(struct duo_plan){.delay_ns = kern.delay_ns,
				   .client_len = sizeof(struct answers) + PIECES * MAX_SIZE,
				   .server_len = DATA + DATA_LEN,
				   .build = build,
				   .phase = bare,
				   .turn = turn,
				   .client = client});
}
