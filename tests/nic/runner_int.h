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

/* The progress of one side of a connection. */
struct progress {
	unsigned posted, completed, recv_posted, recv_completed;
	bool extra_posted, extra_done; /* a request behind a faulty one */
	/* 1 + the request that failed instead of the faulty one; only on links with losses */
	unsigned cut;
	/* unreliable: the peer's requests before this one have arrived or are lost */
	unsigned matched;
};

struct conn {
	bool uc, calls[2];
	struct ep e[2];
	struct side s[2];
	struct direction d[2]; /* d[i]: the requests of e[i] */
	struct progress at[2];
	struct pool *pool[2]; /* of e[i]'s receives; NULL: those of the model */
	struct pool own[2];
	uint32_t shared_key[2];		 /* at e[i], for its peer */
	uint32_t bind_key[2];		 /* at e[i], for its windows */
	uint32_t window[2][MAX_WINDOWS]; /* their present keys */
	uint32_t key[2][MAX_GRANTS];
};

/* A multicast group. Datagrams to it have this Q_Key. */
struct group {
	struct pkt_addr addr;
	uint32_t qkey;
	bool in[MAX_CROWD]; /* the attached endpoints */
};

/* UD endpoints that send to each other, and to groups of them. */
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
	 * By sender and receiver, groups behind the endpoints: the handle and its addresses; 0: the
	 * sender has no path to the receiver.
	 */
	uint32_t ah[MAX_CROWD][MAX_CROWD + MAX_GROUPS];
	struct pkt_addr src[MAX_CROWD][MAX_CROWD + MAX_GROUPS],
		dst[MAX_CROWD][MAX_CROWD + MAX_GROUPS];
	/* of each datagram, by its index in the order of PSNs */
	unsigned request[MAX_CROWD][MAX_SENT];
	/*
	 * By receiver, sender and named receiver: requests before this one have arrived or are
	 * lost.
	 */
	unsigned matched[MAX_CROWD][MAX_CROWD][MAX_CROWD + MAX_GROUPS];
	/*
	 * By receiver, sender and request: copies that its NIC has received for it, and copies that
	 * it got.
	 */
	uint8_t due[MAX_CROWD][MAX_CROWD][MAX_SENT], got[MAX_CROWD][MAX_CROWD][MAX_SENT];
	uint8_t owed[MAX_CROWD]
		    /*
		 * by sender and request, a bit for each receiver that has been a member since the
		 * send
		 */
		    [MAX_SENT];
	uint64_t bad_qkey
		[WORLD_MAX_NICS]; /* a group's datagrams that members with another Q_Key drop */
};

struct run {
	uint64_t seed;
	struct rng r;
	struct world w;
	struct trace t;
	struct sim_params sp;
	unsigned num_conns, pause_every, breaks_left;
	uint64_t stopped_until[WORLD_MAX_NICS]; /* all packets of the NIC are lost */
	uint32_t mtu; /* of all connections, for the oracles; 0: various */
	struct conn c[MAX_CONNS];
	struct crowd crowd;
	struct kernel_runtime *runtime[WORLD_MAX_NICS];
	bool few_slots[WORLD_MAX_NICS];
	struct tally tally[WORLD_MAX_NICS];
	struct pool pool[WORLD_MAX_NICS][NIC_MAX_PUS]; /* shared by all connections */
	bool pool_used[WORLD_MAX_NICS][NIC_MAX_PUS];
	uint64_t *shared[WORLD_MAX_NICS];	      /* SHARED_WORDS each */
	uint64_t added[WORLD_MAX_NICS][SHARED_WORDS]; /* number of all additions */
	uint8_t *got[WORLD_MAX_NICS][SHARED_WORDS];   /* the old values that were returned */
	double full;				      /* probability that a port is full */
	bool lossy, faulty;
};

/* Prints the error and the last packets. Returns false. */
bool run_wrong(struct run *u, const struct ep *e, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Posts some of the remaining requests of this side's program. */
void run_post_side(struct run *u, struct conn *c, int i);
/* Begins a work request, adds its local memory, checks for a free entry of the send queue. */
struct wr run_begin(const struct op *o, uint64_t id);
void run_set_local(struct run *u, const struct ep *e, const struct op *o, struct wr *wr);
bool run_sq_space(const struct ep *e);
/* Returns true if all requests were posted and have completed. */
bool run_side_done(const struct run *u, struct conn *c, int i);
bool run_sent_all(const struct ep *e, const struct direction *d, const struct progress *at);

/* Takes all completions of one side and compares them with those that its program expects. */
bool run_poll_side(struct run *u, struct conn *c, int i);
/* Checks all memory, events, counters and the trace, when no packet is in flight. */
bool run_check_end(struct run *u);
/* Checks the fields of a send completion that all services have. */
bool run_check_sent(struct run *u, const struct ep *e, const struct op *o, unsigned index,
		    const struct roost_cqe *cqe);
/*
 * Checks a receive of an unreliable connection; and at the end the memory that its WRITEs changed.
 */
bool run_check_uc_recv(struct run *u, struct conn *c, int i, const struct roost_cqe *cqe);
bool run_check_uc_end(struct run *u, struct conn *c, int i);
bool run_check_loose_end(struct run *u);
/* Returns true if the completion fits the request. `bytes`: the contents of the receive. */
bool run_is_message(const struct op *o, const struct side *from, const struct roost_cqe *cqe,
		    const uint8_t *bytes, uint32_t len);
bool run_takes_receive(const struct op *o);
/* Whether the link repeats or reorders; and whether it has delivered all packets unchanged. */
bool run_disorder(const struct run *u);
bool run_all_came(const struct run *u);

/* runner.c, for crowd.c */
uint32_t run_pick_mtu(struct run *u);
struct pool *run_shared_pool(struct run *u, unsigned nic, unsigned pu);
/* Makes an endpoint. The model has `used` bytes of its memory. It may have a pool of receives. */
void run_make_ep(struct run *u, struct ep *e, struct ep_params *p, unsigned nic, uint32_t used,
		 struct pool *pool, struct pool *own);

/* calls.c: posts a request, and executes it on the model. */
void calls_post(struct run *u, struct conn *c, int i, const struct op *o, struct wr *wr);
/*
 * Compares the replies that have arrived. Returns whether all have. At the end, checks the result
 * of each call.
 */
bool calls_poll(struct run *u, struct conn *c, int i);
bool calls_done(const struct run *u, const struct conn *c, int i);
bool calls_check_end(struct run *u, struct conn *c, int i);
/* Returns true if the receive is that of a reply; *ok is then false if the reply is wrong. */
bool calls_take_imm(struct run *u, struct conn *c, int i, const struct roost_cqe *cqe, bool *ok);

/*
 * crowd.c: datagrams. Sets them up; runs a step of each endpoint's program, and returns false after
 * an error; *done is cleared unless all are sent.
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
