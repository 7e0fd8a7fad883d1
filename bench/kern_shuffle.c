/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-kernels shuffle: 8-byte tuples into 1024 partitions of the server's memory, by radix. The
 * kernel partitions tuples as they come in. Software partitions them at the client, with the same
 * loop, into local memory, and then WRITEs each partition. A plain WRITE does not partition. Kernel
 * and software need the sizes of the partitions, so counting is not timed. Sizes are in MiB.
 *
 * The same into 512 partitions with shuffle-out, which partitions at the client while tuples leave,
 * in WRITEs of a path MTU; and with software as above.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kern.h"
#include "builtin/shuffle_loop.h"
#include "nic/dma.h"
#include "roost/shuffle.h"

#define PARTS	  1024u
#define OUT_PARTS 512u /* two buffers of 4 KiB each fill ROOST_SHUFFLE_OUT_SPACE */
#define MIB	  (1ull << 20)
#define MAX_MIB	  1024u
#define MIN_MIB	  128u
#define PIECE	  4096u
#define PIECES	  64u
#define TABLE_LEN (PARTS * sizeof(struct roost_shuffle_part))
#define SLACK	  (PARTS * 128ull) /* each partition is aligned to a line */
#define OUT_LEN	  (MAX_MIB * MIB + SLACK)
#define BARE	  1u
#define FIG_RATE  1u

/*
 * Client: | tuples | software's partitions | the table | shuffle-out's table | a piece to check |.
 * Server: | table | partitions |.
 */
#define CLIENT_OUT   (MAX_MIB * MIB)
#define CLIENT_TABLE (CLIENT_OUT + OUT_LEN)
#define CLIENT_AIM   (CLIENT_TABLE + TABLE_LEN)
#define CLIENT_LOOK  (CLIENT_AIM + OUT_PARTS * sizeof(struct roost_shuffle_target))

static struct roost_shuffle_params how = {
	.partitions = PARTS, .tuple = 8, .how = ROOST_SHUFFLE_RADIX};

static unsigned bound; /* number of the queue pair bound to shuffle-out */
static uint64_t at[PARTS];
static struct shuffle_bounds bounds[PARTS];
static uint8_t lines[PARTS * ROOST_SHUFFLE_LINE] __attribute__((aligned(ROOST_SHUFFLE_LINE)));

/* Full lines bypass the cache, as in the kernel. */
static int put(void *ctx, uint64_t va, const void *buf, uint32_t len)
{
	return dma_stream((void *)(uintptr_t)va, buf, len);
}

static struct shuffle_work work_on(const struct roost_shuffle_part *table)
{
	for (unsigned i = 0; i < how.partitions; i++) {
		at[i] = bounds[i].from = table[i].addr;
		bounds[i].end = table[i].addr + table[i].len;
	}
	return (struct shuffle_work){how, at, bounds, lines, put, NULL};
}

static void flush_all(struct shuffle_work *w)
{
	for (unsigned i = 0; i < how.partitions; i++)
		if (shuffle_flush(w, i))
			duo_fail("shuffle: a partition has no space");
	dma_fence();
}

/* ---- the server ---- */

static void build(struct duo *s)
{
	kern_deploy(s, "shuffle");
}

/* Partitions pieces in the cache, as they come from a port, into memory. */
static void bare(struct duo *s, unsigned n)
{
	static uint8_t tuples[PIECES][PIECE];
	struct roost_shuffle_part table[PARTS];
	uint64_t each = MIN_MIB * MIB / PARTS, total = MIN_MIB * MIB / 2 / PIECE, start;
	struct shuffle_work w;
	struct rng rng;

	rng_seed(&rng, 11);
	for (size_t i = 0; i < sizeof(tuples); i += 8) {
		uint64_t key = rng_u64(&rng);

		memcpy(&tuples[0][0] + i, &key, 8);
	}
	for (unsigned i = 0; i < PARTS; i++)
		table[i] =
			(struct roost_shuffle_part){(uintptr_t)s->mem + TABLE_LEN + i * each, each};
	w = work_on(table);
	start = duo_ns();
	for (uint64_t i = 0; i < total; i++)
		if (shuffle_best(&how)(&w, tuples[i % PIECES], PIECE / 8))
			duo_fail("shuffle: a partition has no space");
	flush_all(&w);
	atomic_store(duo_figure(s, FIG_RATE),
		     (uint64_t)(8e9 * (double)total * PIECE / (double)(duo_ns() - start)));
}

/* ---- the client ---- */

static double gbps(unsigned mib, uint64_t start)
{
	return 8.0 * mib * (double)MIB / (double)(duo_ns() - start);
}

/* Computes the table of the partitions of the first `mib` MiB, from `base` on. */
static void lay_out(const struct duo *c, unsigned mib, uint64_t base,
		    struct roost_shuffle_part *table)
{
	static uint64_t counts[PARTS];

	memset(counts, 0, sizeof(counts));
	roost_shuffle_count(counts, &how, c->mem, mib * MIB / 8);
	if (roost_shuffle_layout(table, counts, &how, base, ROOST_SHUFFLE_LINE) > OUT_LEN)
		duo_fail("shuffle: partitions do not fit");
}

static uint64_t server_out(const struct duo *c)
{
	return c->remote + TABLE_LEN;
}

static double by_write(struct duo *c, unsigned mib)
{
	uint64_t start = duo_ns();

	duo_post(c, IBV_WR_RDMA_WRITE, 0, server_out(c), (uint32_t)(mib * MIB));
	while (c->outstanding)
		duo_reap(c);
	return gbps(mib, start);
}

/* Checks a piece of some partitions at the server. */
static void look(struct duo *c, const struct roost_shuffle_part *table)
{
	for (unsigned part = 0; part < how.partitions; part += 101) {
		uint64_t key;

		duo_read(c, CLIENT_LOOK, table[part].addr, PIECE);
		for (unsigned i = 0; i < PIECE; i += 8) {
			memcpy(&key, c->mem + CLIENT_LOOK + i, 8);
			if (key % how.partitions != part)
				duo_fail("shuffle: a tuple is in the wrong partition");
		}
	}
}

static double by_kernel(struct duo *c, unsigned mib)
{
	struct roost_shuffle_part *table = (void *)(c->mem + CLIENT_TABLE);
	struct roost_shuffle_params p = how;
	struct ibv_sge sge = {(uintptr_t)c->mem, (uint32_t)(mib * MIB), c->mr->lkey};
	struct roost_rpc_wr wr = {
		.op = ROOST_SHUFFLE_OP, .rkey = c->rkey, .num_sge = 1, .sg_list = &sge};
	struct roost_result r;
	double rate;
	uint64_t start;
	unsigned id;

	lay_out(c, mib, server_out(c), table);
	p.table = c->remote;
	start = duo_ns();
	duo_post(c, IBV_WR_RDMA_WRITE, CLIENT_TABLE, c->remote, TABLE_LEN);
	while (c->outstanding)
		duo_reap(c);
	if (roost_call_begin(kern_caller, ROOST_SHUFFLE_OP, c->rkey, &p, sizeof(p),
			     ROOST_RPC_STREAM, &id) ||
	    roost_post_rpc_write(c->qp, &wr))
		duo_fail("shuffle: can't post");
	r = kern_wait(id);
	if (r.status)
		duo_fail("shuffle: the call ends with status %u", r.status);
	rate = gbps(mib, start);
	roost_call_end(kern_caller, id);
	look(c, table);
	return rate;
}

static double by_software(struct duo *c, unsigned mib)
{
	static struct roost_shuffle_part own[PARTS];
	struct roost_shuffle_part *there = (void *)(c->mem + CLIENT_TABLE);
	struct shuffle_work w;
	double rate;
	uint64_t start;

	lay_out(c, mib, (uintptr_t)c->mem + CLIENT_OUT, own);
	lay_out(c, mib, server_out(c), there);
	w = work_on(own);
	start = duo_ns();
	if (shuffle_best(&how)(&w, c->mem, mib * MIB / 8))
		duo_fail("shuffle: a partition has no space");
	flush_all(&w);
	for (unsigned i = 0; i < how.partitions; i++) {
		while (c->outstanding == DUO_DEPTH / 2)
			duo_reap(c);
		duo_post(c, IBV_WR_RDMA_WRITE, own[i].addr - (uintptr_t)c->mem, there[i].addr,
			 (uint32_t)own[i].len);
	}
	while (c->outstanding)
		duo_reap(c);
	rate = gbps(mib, start);
	look(c, there);
	return rate;
}

/* The same into OUT_PARTS partitions. */
static double by_software_out(struct duo *c, unsigned mib)
{
	double rate;

	how.partitions = OUT_PARTS;
	rate = by_software(c, mib);
	how.partitions = PARTS;
	return rate;
}

static double by_kernel_out(struct duo *c, unsigned mib)
{
	struct roost_shuffle_part *there = (void *)(c->mem + CLIENT_TABLE);
	struct roost_shuffle_target *table = (void *)(c->mem + CLIENT_AIM);
	struct roost_shuffle_out_params p;
	struct roost_shuffle_out_result result;
	struct roost_run *run;
	struct roost_invocation_attr a = {.op = ROOST_SHUFFLE_OUT_OP,
					  .params = &p,
					  .params_len = sizeof(p),
					  .mr = c->mr,
					  .reply = &result,
					  .space = sizeof(result)};
	struct roost_result r;
	uint64_t start;
	double rate;
	int rc;

	how.partitions = OUT_PARTS;
	p = roost_shuffle_out_params(table, &how, 4096);
	lay_out(c, mib, server_out(c), there);
	for (unsigned i = 0; i < OUT_PARTS; i++)
		table[i] = (struct roost_shuffle_target){there[i].addr, there[i].len, c->rkey,
							 bound, 0};
	start = duo_ns();
	run = roost_run_start(c->ctx, &a, c->mem, mib * MIB);
	if (!run)
		duo_fail("shuffle: shuffle-out does not start");
	while ((rc = roost_run_poll(run, &r)) == EAGAIN)
		;
	if (rc || r.status)
		duo_fail("shuffle: shuffle-out ends with status %u", r.status);
	rate = gbps(mib, start);
	roost_run_end(run);
	look(c, there);
	how.partitions = PARTS;
	return rate;
}

static double by_bare_loop(struct duo *c, unsigned mib)
{
	duo_phase(c, BARE);
	duo_phase_end(c);
	return (double)atomic_load(duo_figure(c, FIG_RATE)) / 1e9;
}

static void client(struct duo *c)
{
	struct kern_rate ways[24];
	unsigned n = 0;
	struct rng rng;

	rng_seed(&rng, 10);
	for (size_t i = 0; i < MAX_MIB * MIB; i += 8) {
		uint64_t key = rng_u64(&rng);

		memcpy(c->mem + i, &key, 8);
	}
	kern_make_caller(c, 1, 64);
	kern_deploy(c, "shuffle-out");
	if (roost_kernel_bind_qp(c->ctx, ROOST_SHUFFLE_OUT_OP, c->qp, NULL, &bound))
		duo_fail("shuffle: can't bind the queue pair");
	for (unsigned mib = MIN_MIB; mib <= MAX_MIB; mib *= 2) {
		ways[n++] = (struct kern_rate){"WRITE", by_write, mib};
		ways[n++] = (struct kern_rate){"kernel", by_kernel, mib};
		ways[n++] = (struct kern_rate){"software, WRITE", by_software, mib};
		ways[n++] = (struct kern_rate){"shuffle-out into 512", by_kernel_out, mib};
		ways[n++] = (struct kern_rate){"software, WRITE into 512", by_software_out, mib};
	}
	ways[n++] = (struct kern_rate){"bare loop", by_bare_loop, MIN_MIB};
	kern_rates(c, "shuffle", ways, n, 1, "gbps");
}

void kern_shuffle(void)
{
	duo_run(&(struct duo_plan){.delay_ns = kern.delay_ns,
				   .client_len = CLIENT_LOOK + PIECE,
				   .server_len = TABLE_LEN + OUT_LEN,
				   .build = build,
				   .phase = bare,
				   .client = client});
}
