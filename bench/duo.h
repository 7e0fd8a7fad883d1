/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Benchmarks with two processes. Each has a NIC, and a core if there are two. One RC queue pair
 * over shm connects them, with the op-codes of calls enabled. The client measures. The server holds
 * the memory, drives its NIC by polling, and runs a phase on request. They share memory.
 *
 * Every error ends the program with one line on stderr.
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
#define DUO_LINKS 64 /* connections besides the first one */

struct duo_shared;

struct duo {
	struct duo_shared *shared;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_qp *link[DUO_LINKS];
	struct ibv_mr *mr;
	uint8_t *mem; /* registered, with all access rights */
	size_t len;
	uint64_t remote;      /* the peer's memory */
	uint32_t rkey;	      /* its key */
	unsigned outstanding; /* signaled work requests without completion */
};

struct duo_plan {
	uint64_t delay_ns;	       /* of a round trip: half in each direction */
	size_t client_len, server_len; /* bytes of memory */
	/* at the server, before the connection: fills its memory, deploys kernels. May be NULL */
	void (*build)(struct duo *s);
	/* Further connections. The server's queue pairs are made by make_link(), in RESET. */
	unsigned links;
	struct ibv_qp *(*make_link)(struct duo *s, unsigned i);
	void (*joined)(struct duo *s); /* at the server, with all connections. May be NULL */
	void (*turn)(struct duo *s);   /* at the server, between polls. May be NULL */
	void (*phase)(struct duo *s, unsigned n); /* for duo_phase() */
	void (*client)(struct duo *c);
};

/* Runs plan->client() in this process and the server in a child, until client() returns. */
void duo_run(const struct duo_plan *plan);

/*
 * Called by the client. The server runs plan->phase(n), n > 0, instead of driving its NIC. Returns
 * when the phase has begun. duo_phase_end() returns when the phase is over.
 */
void duo_phase(struct duo *c, unsigned n);
void duo_phase_end(struct duo *c);
/* One of 16 figures that both sides share. */
_Atomic uint64_t *duo_figure(struct duo *d, unsigned i);

/* Moves the calling thread to the core of the client (0) or of the server (1). */
void duo_pin(unsigned side);

/* Posts a signaled work request; duo_reap() counts its completion. */
void duo_post(struct duo *c, enum ibv_wr_opcode op, size_t at, uint64_t to, uint32_t len);
/* Polls once; returns the number of completions. */
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
