/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside of a run: what its parts share. runner.c sets up and carries out, runner_post.c posts, runner_check.c compares connections with the
 * model, runner_loose.c what is unreliable.
 */
#ifndef ROOST_TESTS_RUNNER_INT_H
#define ROOST_TESTS_RUNNER_INT_H

#include <inttypes.h>

#include "pool.h"
#include "program.h"
#include "runner.h"
#include "trace.h"

#define MAX_CONNS    6
#define MAX_CROWD    4
#define SHARED_WORDS 4
#define FLUSHED_ID   0xf1a5ed
#define VIRTUAL_MAX  (600 * SEC)

/* How far one side of a connection has come. */
struct progress {
	unsigned posted, completed, recv_posted, recv_completed;
	bool extra_posted, extra_done; /* what follows a faulty request */
	unsigned cut;	  /* the request that ended in place of the faulty one, plus 1; on lossy links only */
	unsigned matched; /* unreliable: the peer's requests up to here have come, or never will */
};

struct conn {
	bool uc;
	struct ep e[2];
	struct side s[2];
	struct direction d[2]; /* d[i]: asked by e[i] */
	struct progress at[2];
	struct pool *pool[2]; /* of e[i]'s receives; NULL: as the model says */
	struct pool own[2];
	uint32_t shared_key[2];		 /* at e[i], for its peer */
	uint32_t bind_key[2];		 /* at e[i], for its windows */
	uint32_t window[2][MAX_WINDOWS]; /* their keys of the moment */
	uint32_t key[2][MAX_GRANTS];
};

/* UD endpoints that talk to each other. */
struct crowd {
	unsigned n;
	struct ep e[MAX_CROWD];
	struct side s[MAX_CROWD];
	struct direction d[MAX_CROWD];
	struct progress at[MAX_CROWD];
	struct pool *pool[MAX_CROWD];
	struct pool own[MAX_CROWD];
	uint32_t ah[MAX_CROWD][MAX_CROWD];
	unsigned matched[MAX_CROWD][MAX_CROWD]; /* by receiver and sender */
};

struct run {
	uint64_t seed;
	struct rng r;
	struct world w;
	struct trace t;
	struct sim_params sp;
	unsigned num_conns, pause_every, breaks_left;
	uint64_t stopped_until[WORLD_MAX_NICS]; /* nothing that the NIC sends arrives */
	uint32_t mtu;				/* one for all: the oracles are told; 0: various */
	struct conn c[MAX_CONNS];
	struct crowd crowd;
	struct pool pool[WORLD_MAX_NICS][NIC_MAX_PUS]; /* shared by whoever wants */
	bool pool_used[WORLD_MAX_NICS][NIC_MAX_PUS];
	uint64_t *shared[WORLD_MAX_NICS];	      /* SHARED_WORDS each */
	uint64_t added[WORLD_MAX_NICS][SHARED_WORDS]; /* how often, in all */
	uint8_t *got[WORLD_MAX_NICS][SHARED_WORDS];   /* which old values came back */
	double full;				      /* how often a port has no room */
	bool lossy, faulty;
};

/* Says what is wrong, with the last packets. Always false. */
bool run_wrong(struct run *u, const struct ep *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Posts some of what is left of this side's program. */
void run_post_side(struct run *u, struct conn *c, int i);
void run_post_datagrams(struct run *u, unsigned i);
/* Nothing is left to post, and all of it has completed? */
bool run_side_done(struct conn *c, int i);
bool run_sent_all(const struct ep *e, const struct direction *d, const struct progress *at);

/* Takes all completions of one side and compares them with what its program expects. */
bool run_poll_side(struct run *u, struct conn *c, int i);
bool run_poll_datagrams(struct run *u, unsigned i);
/* All memory, events, counters and the trace, when nothing is under way any more. */
bool run_check_end(struct run *u);
/* Of a send: what every service has in common. */
bool run_check_sent(struct run *u, const struct ep *e, const struct op *o, unsigned index,
		    const struct roost_cqe *cqe);
/* A receive of an unreliable connection; and what its WRITEs have left at the end. */
bool run_check_uc_recv(struct run *u, struct conn *c, int i, const struct roost_cqe *cqe);
bool run_check_uc_end(struct run *u, struct conn *c, int i);
bool run_check_loose_end(struct run *u);

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
