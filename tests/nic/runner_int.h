/* SPDX-License-Identifier: BSD-2-Clause */
/* Inside of a run: what runner.c (sets up, carries out) and runner_check.c (compares with the model) share. */
#ifndef ROOST_TESTS_RUNNER_INT_H
#define ROOST_TESTS_RUNNER_INT_H

#include <inttypes.h>

#include "program.h"
#include "runner.h"
#include "trace.h"

#define MAX_CONNS    5
#define SHARED_WORDS 4
#define FLUSHED_ID   0xf1a5ed
#define VIRTUAL_MAX  (600 * SEC)

/* How far one side of a connection has come. */
struct progress {
	unsigned posted, completed, recv_posted, recv_completed;
	bool extra_posted, extra_done; /* what follows a faulty request */
	unsigned cut; /* the request that ended in place of the faulty one, plus 1; on lossy links only */
};

struct conn {
	struct ep e[2];
	struct side s[2];
	struct direction d[2]; /* d[i]: asked by e[i] */
	struct progress at[2];
	uint32_t shared_key[2]; /* at e[i], for its peer */
	uint32_t *inv_key[2];	/* at e[i], for its peer to invalidate, once each */
};

struct run {
	uint64_t seed;
	struct rng r;
	struct world w;
	struct trace t;
	struct sim_params sp;
	unsigned num_conns, pause_every;
	uint32_t mtu; /* one for all: the oracles are told */
	struct conn c[MAX_CONNS];
	uint64_t *shared[WORLD_MAX_NICS];	      /* SHARED_WORDS each */
	uint64_t added[WORLD_MAX_NICS][SHARED_WORDS]; /* how often, in all */
	uint8_t *got[WORLD_MAX_NICS][SHARED_WORDS];   /* which old values came back */
	double full;				      /* how often a port has no room */
	bool lossy, faulty;
};

/* Says what is wrong, with the last packets. Always false. */
bool run_wrong(struct run *u, const struct ep *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Takes all completions of one side and compares them with what its program expects. */
bool run_poll_side(struct run *u, struct conn *c, int i);
/* All memory, events, counters and the trace, when nothing is under way any more. */
bool run_check_end(struct run *u);

static inline bool is_faulty(const struct direction *d)
{
	return d->num_ops && d->ops[d->num_ops - 1].fault;
}

static inline bool reads(const struct op *o)
{
	return o->op == ROOST_OP_READ || o->op == ROOST_OP_CMP_SWAP || o->op == ROOST_OP_FETCH_ADD;
}

static inline uint64_t wr_id(const struct run *u, unsigned index)
{
	return u->seed << 32 | index;
}

#endif
