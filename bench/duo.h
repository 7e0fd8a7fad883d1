/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For benchmarks: two processes with a NIC each, a core each when there are two, joined over shm by
 * one RC queue pair that has the op-codes of calls. The client measures; the server holds the
 * memory, drives its NIC by polling, and does other things when it is told to. They share a page.
 *
 * Whatever fails ends the program with one line on stderr: a benchmark has nobody to report errors
 * to.
 */
#ifndef ROOST_BENCH_DUO_H
#define ROOST_BENCH_DUO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "roost/verbs.h"

#define DUO_DEPTH 256 /* of the send queues */
#define DUO_CALLS 64

struct duo_shared;

struct duo {
	struct duo_shared *shared;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *mem; /* registered, for all access */
	size_t len;
	uint64_t remote; /* the peer's memory, and its key */
	uint32_t rkey;
	unsigned outstanding; /* signaled work requests without completion */
};

struct duo_plan {
	uint64_t delay_ns;	       /* of a round trip: half of it on each way */
	size_t client_len, server_len; /* bytes of memory */
	void (*build)(
		struct
		duo *s); /* at the server, before they are joined: fills its memory, deploys kernels. May be NULL */
	void (*turn)(struct duo *s);		  /* at the server, between polls. May be NULL */
	void (*phase)(struct duo *s, unsigned n); /* what duo_phase() asks for */
	void (*client)(struct duo *c);
};

/* Runs plan->client() here and the server in a process of its own, to the end of the client. */
void duo_run(const struct duo_plan *plan);

/*
 * The client's: lets the server do plan->phase(n), n > 0, instead of driving its NIC. Returns when
 * it has begun; duo_phase_end() when it is over, and the NIC driven again.
 */
void duo_phase(struct duo *c, unsigned n);
void duo_phase_end(struct duo *c);
/* Figures that both sides see; 16 of them. */
_Atomic uint64_t *duo_figure(struct duo *d, unsigned i);

/* Posts one, signaled; its completion is counted by duo_reap(). */
void duo_post(struct duo *c, enum ibv_wr_opcode op, size_t at, uint64_t to, uint32_t len);
/* Polls once; the number of completions. */
unsigned duo_reap(struct duo *c);
/* READs `len` bytes at `from` to mem + at, and waits for them. */
void duo_read(struct duo *c, size_t at, uint64_t from, uint32_t len);

void duo_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static inline uint64_t duo_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
