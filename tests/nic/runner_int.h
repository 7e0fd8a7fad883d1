/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Internals of a run. runner.c sets up and executes a run, runner_post.c posts, runner_check.c
 * compares reliable connections with the model, and runner_loose.c unreliable ones. crowd.c is for
 * datagrams, calls.c for calls of kernels.
 */
#ifndef ROOST_TESTS_RUNNER_INT_H
#define ROOST_TESTS_RUNNER_INT_H

#include <inttypes.h>

#include "pool.h"
#include "kernels/runtime.h"
#include "program.h"
#include "runner.h"
#include "tally.h"
#include "trace.h"

#define MAX_CONNS    6
#define MAX_CROWD    6
#define MAX_GROUPS   3
#define MAX_SENT     64 /* requests of a datagram QP */
#define SHARED_WORDS 4
#define FLUSHED_ID   0xf1a5ed
#define VIRTUAL_MAX  (60 * SEC)

/* How far one side of a connection has come. */
struct progress {
	unsigned posted, completed, recv_posted, recv_completed;
	bool extra_posted, extra_done; /* what follows a faulty request */
	/* the request that ended in place of the faulty one, plus 1; on lossy links only */
	unsigned cut;
	unsigned matched; /* unreliable: the peer's requests up to here have come, or never will */
};

struct conn {
	bool uc, calls[2];
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

/* Multicast: what is sent to it carries the Q_Key. */
struct group {
	struct pkt_addr addr;
	uint32_t qkey;
	bool in[MAX_CROWD]; /* who is attached */
};

/* UD endpoints that talk to each other, and to groups of them. */
struct crowd {
	unsigned n, num_groups;
	struct group group[MAX_GROUPS];
	struct ep e[MAX_CROWD];
	struct side s[MAX_CROWD];
	struct direction d[MAX_CROWD];
	struct progress at[MAX_CROWD];
	struct pool *pool[MAX_CROWD];
	struct pool own[MAX_CROWD];
	/*
	 * By sender and receiver, groups behind the endpoints: the handle and the addresses in it;
	 * 0: it can't send there.
	 */
	uint32_t ah[MAX_CROWD][MAX_CROWD + MAX_GROUPS];
	struct pkt_addr src[MAX_CROWD][MAX_CROWD + MAX_GROUPS],
		dst[MAX_CROWD][MAX_CROWD + MAX_GROUPS];
	/* of each datagram, by its place in the order of PSNs */
	unsigned request[MAX_CROWD][MAX_SENT];
	/* By receiver, sender and whom that named: requests up to here have come, or never will. */
	unsigned matched[MAX_CROWD][MAX_CROWD][MAX_CROWD + MAX_GROUPS];
	/*
	 * By receiver, sender and request: copies that its NIC has taken in for it, and those that
	 * it was given.
	 */
	uint8_t due[MAX_CROWD][MAX_CROWD][MAX_SENT], got[MAX_CROWD][MAX_CROWD][MAX_SENT];
	uint8_t owed
		[MAX_CROWD]
		[MAX_SENT]; /* by sender and request, a bit a receiver: it was there when it left, and has stayed */
	uint64_t bad_qkey[WORLD_MAX_NICS]; /* a group's datagrams for members with another one */
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
	struct kernel_runtime *runtime[WORLD_MAX_NICS];
	bool few_slots[WORLD_MAX_NICS];
	struct tally tally[WORLD_MAX_NICS];
	struct pool pool[WORLD_MAX_NICS][NIC_MAX_PUS]; /* shared by whoever wants */
	bool pool_used[WORLD_MAX_NICS][NIC_MAX_PUS];
	uint64_t *shared[WORLD_MAX_NICS];	      /* SHARED_WORDS each */
	uint64_t added[WORLD_MAX_NICS][SHARED_WORDS]; /* how often, in all */
	uint8_t *got[WORLD_MAX_NICS][SHARED_WORDS];   /* which old values came back */
	double full;				      /* how often a port has no room */
	bool lossy, faulty;
};

/* Says what is wrong, with the last packets. Always false. */
bool run_wrong(struct run *u, const struct ep *e, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Posts some of what is left of this side's program. */
void run_post_side(struct run *u, struct conn *c, int i);
/* What they have in common: a request, and its local memory. Is there room for it? */
struct wr run_begin(const struct op *o, uint64_t id);
void run_set_local(struct run *u, const struct ep *e, const struct op *o, struct wr *wr);
bool run_sq_room(const struct ep *e);
/* Nothing is left to post, and all of it has completed? */
bool run_side_done(const struct run *u, struct conn *c, int i);
bool run_sent_all(const struct ep *e, const struct direction *d, const struct progress *at);

/* Takes all completions of one side and compares them with what its program expects. */
bool run_poll_side(struct run *u, struct conn *c, int i);
/* All memory, events, counters and the trace, when nothing is under way any more. */
bool run_check_end(struct run *u);
/* Of a send: what every service has in common. */
bool run_check_sent(struct run *u, const struct ep *e, const struct op *o, unsigned index,
		    const struct roost_cqe *cqe);
/* A receive of an unreliable connection; and what its WRITEs have left at the end. */
bool run_check_uc_recv(struct run *u, struct conn *c, int i, const struct roost_cqe *cqe);
bool run_check_uc_end(struct run *u, struct conn *c, int i);
bool run_check_loose_end(struct run *u);
/* Could this be what has come of the request? `bytes`: what the receive holds. */
bool run_is_message(const struct op *o, const struct side *from, const struct roost_cqe *cqe,
		    const uint8_t *bytes, uint32_t len);
bool run_takes_receive(const struct op *o);
/* The link repeats or reorders. And: it has taken all packets over as they were. */
bool run_disorder(const struct run *u);
bool run_all_came(const struct run *u);

/* runner.c, for what crowd.c sets up */
uint32_t run_pick_mtu(struct run *u);
struct pool *run_shared_pool(struct run *u, unsigned nic, unsigned pu);
/* An endpoint of which `used` bytes are the model's, and with a pool of its own if it has one. */
void run_make_ep(struct run *u, struct ep *e, struct ep_params *p, unsigned nic, uint32_t used,
		 struct pool *pool, struct pool *own);

/* calls.c: the posted request, and the model with it. */
void calls_post(struct run *u, struct conn *c, int i, const struct op *o, struct wr *wr);
/*
 * Compares replies that are there; have all come? And at the end: was each call served as it should
 * be?
 */
bool calls_poll(struct run *u, struct conn *c, int i);
bool calls_done(const struct run *u, const struct conn *c, int i);
bool calls_check_end(struct run *u, struct conn *c, int i);
/* Of a receive: is it that of a reply? Then *ok says whether it is right. */
bool calls_take_imm(struct run *u, struct conn *c, int i, const struct roost_cqe *cqe, bool *ok);

/*
 * crowd.c: datagrams. Sets them up; a step of everybody's program, false when something is wrong,
 * and *done unless all is sent.
 */
void crowd_make(struct run *u);
bool crowd_step(struct run *u, bool *done);
bool crowd_check_end(struct run *u);
void crowd_close(struct crowd *k);

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
