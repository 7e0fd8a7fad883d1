/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-kernels hll: the kernel counts a stream of 8-byte items as they come in. This is compared
 * with the same stream as plain WRITEs, and with HyperLogLog on the receiver's CPU, while it
 * receives and on items in its memory, with one thread and with two. The second thread runs on the
 * client's core.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kern.h"
#include "builtin/hll_update.h"
#include "roost/hll.h"

#define PRECISION 14u
#define MESSAGE	  (256u << 10)
#define SLOTS	  16u /* places for messages, on both sides */
#define IN_FLIGHT 8u
#define RESIDENT  (256u << 20) /* bytes of items in the server's memory */
#define PIECE	  4096u
#define NAME	  0x686c6cull

enum {
	LIES = 1,
	LIES_TWO,
	COMES,
	COMES_TWO,
	BARE
}; /* phases: the server's CPU counts, with one thread or with two */
enum { FIG_RATE = 1, FIG_SENT, FIG_DONE, FIG_DONE_TWO, FIG_STOP };

static uint8_t registers[2][1u << ROOST_HLL_MAX_PRECISION];

static void fill(uint8_t *to, size_t len, uint64_t seed)
{
	struct rng rng;

	rng_seed(&rng, seed);
	for (size_t i = 0; i < len; i += 8) {
		uint64_t item = rng_u64(&rng);

		memcpy(to + i, &item, 8);
	}
}

static void build(struct duo *s)
{
	fill(s->mem, s->len, 8);
	kern_deploy(s, "hll");
}

/* ---- on the server's CPU ---- */

struct part {
	struct duo *s;
	const uint8_t *data;
	size_t len;
	unsigned index, parts;
	uint8_t *registers;
};

static void on_cpu(unsigned cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

/* Runs fn in this thread and, with two parts, in a second one on the client's core (the first). */
static void run_parts(struct duo *s, unsigned parts, void *(*fn)(void *))
{
	struct part part[2];
	pthread_t other;

	for (unsigned i = 0; i < parts; i++)
		part[i] = (struct part){
			s,	     s->mem + i * (RESIDENT / parts), RESIDENT / parts, i, parts,
			registers[i]};
	if (parts == 2 && pthread_create(&other, NULL, fn, &part[1]))
		duo_fail("can't create a thread");
	fn(&part[0]);
	if (parts == 2) {
		pthread_join(other, NULL);
		roost_hll_merge(registers[0], registers[1], PRECISION);
	}
}

static void *count_resident(void *arg)
{
	const struct part *p = arg;

	if (p->index)
		on_cpu(0);
	hll_update_best()(p->registers, PRECISION, p->data, p->len / 8);
	return NULL;
}

/* Each part counts its messages as they come. The first part also drives the NIC. */
static void *count_coming(void *arg)
{
	const struct part *p = arg;
	_Atomic uint64_t *done = duo_figure(p->s, FIG_DONE + p->index);
	uint64_t next = p->index;

	if (p->index)
		on_cpu(0);
	while (!atomic_load_explicit(duo_figure(p->s, FIG_STOP), memory_order_relaxed)) {
		const uint8_t *data = p->s->mem + next % SLOTS * MESSAGE;

		if (!p->index)
			duo_reap(p->s);
		if (atomic_load_explicit(duo_figure(p->s, FIG_SENT), memory_order_acquire) <= next)
			continue;
		for (unsigned at = 0; at < MESSAGE; at += 4 * PIECE) {
			hll_update_best()(p->registers, PRECISION, data + at, 4 * PIECE / 8);
			if (!p->index)
				duo_reap(p->s);
		}
		next += p->parts;
		atomic_store_explicit(done, next, memory_order_release);
	}
	return NULL;
}

/* Counts pieces in the cache, as they come from a port. */
static uint64_t bare(const uint8_t *data)
{
	uint64_t start = duo_ns(), bytes = 0;

	while (duo_ns() - start < kern.point_ns)
		for (unsigned i = 0; i < 64; i++, bytes += PIECE)
			hll_update_best()(registers[0], PRECISION, data + i * PIECE, PIECE / 8);
	return bytes * 8 * 1000 / (duo_ns() - start) * 1000000;
}

static void phase(struct duo *s, unsigned n)
{
	uint64_t start = duo_ns();

	memset(registers, 0, sizeof(registers));
	switch (n) {
	case COMES:
	case COMES_TWO:
		run_parts(s, n == COMES_TWO ? 2 : 1, count_coming);
		break;
	case LIES:
	case LIES_TWO:
		run_parts(s, n == LIES_TWO ? 2 : 1, count_resident);
		atomic_store(duo_figure(s, FIG_RATE),
			     (uint64_t)(8e9 * RESIDENT / (double)(duo_ns() - start)));
		break;
	default:
		atomic_store(duo_figure(s, FIG_RATE), bare(s->mem));
	}
}

/* ---- the client ---- */

static double gbps(uint64_t messages, uint64_t ns)
{
	return 8.0 * (double)messages * MESSAGE / (double)ns;
}

static double by_writes(struct duo *c, unsigned size)
{
	uint64_t start = duo_ns(), posted = 0, done = 0, ns;

	do {
		for (; posted - done < IN_FLIGHT; posted++) {
			size_t at = posted % SLOTS * MESSAGE;

			duo_post(c, IBV_WR_RDMA_WRITE, at, c->remote + at, MESSAGE);
		}
		done += duo_reap(c);
		ns = duo_ns() - start;
	} while (ns < kern.point_ns);
	while (c->outstanding)
		duo_reap(c);
	return gbps(done, ns);
}

/* Sends messages to free places and tells the server's threads which have arrived. */
static double while_receiving(struct duo *c, unsigned n, unsigned parts)
{
	uint64_t posted = 0, sent = 0, done = 0, start, ns;

	for (unsigned i = FIG_SENT; i <= FIG_STOP; i++)
		atomic_store(duo_figure(c, i), 0);
	duo_phase(c, n);
	start = duo_ns();
	do {
		done = atomic_load_explicit(duo_figure(c, FIG_DONE), memory_order_acquire);
		if (parts == 2) {
			uint64_t two = atomic_load_explicit(duo_figure(c, FIG_DONE_TWO),
							    memory_order_acquire);

			done = two < done ? two : done;
		}
		for (; posted - sent < IN_FLIGHT && posted - done < SLOTS; posted++) {
			size_t at = posted % SLOTS * MESSAGE;

			duo_post(c, IBV_WR_RDMA_WRITE, at, c->remote + at, MESSAGE);
		}
		sent += duo_reap(c);
		atomic_store_explicit(duo_figure(c, FIG_SENT), sent, memory_order_release);
		ns = duo_ns() - start;
	} while (ns < kern.point_ns);
	while (c->outstanding)
		duo_reap(c);
	atomic_store(duo_figure(c, FIG_STOP), 1);
	duo_phase_end(c);
	return gbps(done, ns);
}

static unsigned begin_stream(struct duo *c, uint64_t message)
{
	struct roost_hll_params p = roost_hll_params(NAME, ROOST_HLL_ADD, PRECISION);
	struct ibv_sge sge = {(uintptr_t)c->mem + message % SLOTS * MESSAGE, MESSAGE, c->mr->lkey};
	struct roost_rpc_wr wr = {
		.op = ROOST_HLL_OP, .rkey = c->rkey, .num_sge = 1, .sg_list = &sge};
	unsigned id;

	if (roost_call_begin(kern_caller, ROOST_HLL_OP, c->rkey, &p, sizeof(p), ROOST_RPC_STREAM,
			     &id) ||
	    roost_post_rpc_write(c->qp, &wr))
		duo_fail("hll: can't post");
	return id;
}

static void end_stream(unsigned id)
{
	struct roost_result r = kern_wait(id);

	if (r.status)
		duo_fail("hll: a call ends with status %u", r.status);
	roost_call_end(kern_caller, id);
}

static double by_kernel(struct duo *c, unsigned size)
{
	uint64_t start = duo_ns(), posted = 0, done = 0, ns;
	unsigned id[IN_FLIGHT];

	do {
		for (; posted - done < IN_FLIGHT; posted++)
			id[posted % IN_FLIGHT] = begin_stream(c, posted);
		end_stream(id[done++ % IN_FLIGHT]);
		ns = duo_ns() - start;
	} while (ns < kern.point_ns);
	for (uint64_t last = done; last < posted; last++)
		end_stream(id[last % IN_FLIGHT]);
	return gbps(done, ns);
}

/* Compares the kernel's estimate with the number of items, which are all different. */
static void check_estimate(struct duo *c)
{
	struct roost_hll_params p = roost_hll_params(NAME, ROOST_HLL_ESTIMATE, 0);
	const struct roost_hll_info *info =
		kern_call(ROOST_HLL_OP, c->rkey, &p, sizeof(p), sizeof(*info));
	double items = SLOTS * MESSAGE / 8.0, off = (double)info->estimate / items - 1;

	if (off < -0.05 || off > 0.05)
		duo_fail("hll: %llu items counted of %.0f", (unsigned long long)info->estimate,
			 items);
}

static double by_cpu(struct duo *c, unsigned size)
{
	return while_receiving(c, COMES, 1);
}

static double by_two(struct duo *c, unsigned size)
{
	return while_receiving(c, COMES_TWO, 2);
}

static double by_server(struct duo *c, unsigned n)
{
	duo_phase(c, n);
	duo_phase_end(c);
	return (double)atomic_load(duo_figure(c, FIG_RATE)) / 1e9;
}

static double by_bare_loop(struct duo *c, unsigned size)
{
	return by_server(c, BARE);
}

static double resident(struct duo *c, unsigned size)
{
	return by_server(c, LIES);
}

static double resident_two(struct duo *c, unsigned size)
{
	return by_server(c, LIES_TWO);
}

static void client(struct duo *c)
{
	static const struct kern_rate ways[] = {{"WRITE", by_writes, MESSAGE},
						{"kernel", by_kernel, MESSAGE},
						{"bare loop", by_bare_loop, MESSAGE},
						{"WRITE, CPU", by_cpu, MESSAGE},
						{"WRITE, two threads", by_two, MESSAGE},
						{"resident, CPU", resident, MESSAGE},
						{"resident, two threads", resident_two, MESSAGE}};

	fill(c->mem, c->len, 9);
	kern_make_caller(c, IN_FLIGHT, 64);
	kern_rates(c, "hll", ways, sizeof(ways) / sizeof(ways[0]), KERN_TURNS, "gbps");
	check_estimate(c);
}

void kern_hll(void)
{
	duo_run(&(struct duo_plan){.delay_ns = kern.delay_ns,
				   .client_len = SLOTS * MESSAGE,
				   .server_len = RESIDENT,
				   .build = build,
				   .phase = phase,
				   .client = client});
}
