/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random programs of work requests, and a plain model of their results: every byte of both
 * memories, every completion. A connection has two directions, each with its own program. The
 * programs share no memory that either changes, so the model executes the requests of each one
 * after the other. Actions of one side for the other (giving or revoking a key) are ordered by
 * waits: a request may have a number of the other side's requests that must be complete before it
 * is posted.
 *
 * Memory of a side, in bytes:
 *   0     .. 256K  source     random, never changes
 *   256K  .. 512K  target     written by the peer's WRITEs, read by its READs
 *   512K  .. 516K  words      of the peer's atomics
 *   516K  ..       private    results of READs and atomics, receive buffers: each byte has one use
 *
 * Where a request could see memory before or after another one changed it (a READ may be executed
 * again after a later WRITE; the result of a READ may not be there yet when it is sent on; a key
 * may be gone when a READ is asked for again), the program sets the fence bit, as a correct program
 * must.
 *
 * Of unreliable messages the model knows the content, and that each WRITE has a place of its own:
 * what of them comes is the link's affair.
 */
#ifndef ROOST_TESTS_PROGRAM_H
#define ROOST_TESTS_PROGRAM_H

#include "base/rng.h"
#include "world.h"

#define AREA_SOURCE  0u
#define AREA_LEN     (256u << 10)
#define AREA_TARGET  AREA_LEN
#define AREA_WORDS   (2 * AREA_LEN)
#define AREA_WORDS_N 512u
#define AREA_PRIVATE (AREA_WORDS + 4096)
#define PROG_MAX_LEN 200000u

#define MAX_GRANTS  96u
#define MAX_WINDOWS 4u

struct piece {
	uint32_t off, len;
};

enum fault { /* what is wrong with the last request of a program that ends badly */
	     FAULT_NONE,
	     /* here: */
	     FAULT_LKEY,       /* our own memory, a wrong key */
	     FAULT_OPCODE,     /* no such operation */
	     FAULT_BIND,       /* a window that is bound already, or beyond its region */
	     FAULT_INVALIDATE, /* of a key that may not be */
	     FAULTS_LOCAL,
	     /* refused by the peer: */
	     FAULT_RKEY = FAULTS_LOCAL, /* a key that is none */
	     FAULT_BOUNDS,		/* beyond the peer's memory */
	     FAULT_MISALIGNED,		/* an atomic */
	     FAULT_TOO_LONG,		/* a SEND longer than its receive */
	     FAULT_STALE,		/* a key that was taken back */
	     FAULT_RIGHTS,		/* a key without this right */
	     FAULT_OUTSIDE,		/* beyond what a key is for */
	     FAULT_SEND_INV,		/* the whole memory's key, which nobody may take back */
	     FAULTS
};

/* A key for a part of a side's memory, for its peer: given (bound), used, taken back. */
struct grant {
	/*
	 * 1 + which of the side's windows it is a binding of; 0: a region of its own, there from
	 * the beginning
	 */
	unsigned window;
	struct piece range;
	uint32_t access;
	bool zero_based;
	bool open;	/* as far as the program is written */
	unsigned given; /* requests of its owner that are complete when it can be used */
	unsigned used;	/* requests of the peer that are complete when it can be taken back */
};

struct op {
	enum roost_op op;
	enum fault fault;
	uint16_t flags; /* enum roost_wqe_flags */
	bool shared;	/* a fetch-and-add of 1 on a word that several QPs add to */
	bool unbind;	/* BIND_MW of type 1, to nothing */
	uint32_t len;
	uint32_t roff; /* in the peer's memory; index of the word when shared */
	uint32_t imm;
	uint64_t swap_add, compare;
	struct piece sge[ROOST_MAX_SGE];
	unsigned num_sge;
	/* 1 + which key is used, bound or taken back; 0: that of the peer's whole memory */
	unsigned grant;
	unsigned after; /* so many requests of the other side are complete when it is posted */
	unsigned to;	/* UD: to whom, by the number of receiver */
	unsigned call;	/* RPC, RPC_WRITE: 1 + of which call */
};

struct receive {
	struct piece sge[ROOST_MAX_SGE];
	unsigned num_sge;
	uint32_t len, imm; /* expected; imm of an invalidation: which grant */
	uint16_t opcode, flags, status;
};

/* A call of a kernel at the peer (calls.c). */
#define MAX_CALLS 64u
#define CALL_HEAD 56u /* bytes of parameters ahead of those at random */
struct call {
	/* as the program says */
	unsigned how, reads;  /* of the kernel's parameters (tally.h) */
	uint32_t extra;	      /* bytes of parameters at random */
	uint32_t len, from;   /* of what the kernel reads and replies, in the peer's memory */
	uint32_t word;	      /* there: it becomes 1 */
	uint32_t text;	      /* parameters, in the caller's memory */
	uint32_t reply, room; /* the buffer there; bytes of data that it holds */
	uint32_t reply_len;   /* all of it; 0: no reply is wanted */
	bool nobody, imm,
		stream; /* its op-code has no kernel; the tail comes with an immediate; payload follows */
	/* as it goes */
	uint16_t mark;
	uint32_t entry;
	uint64_t digest;
	bool posted, complete, seen, imm_seen;
};

/* One end: the model of its memory, and what it gives to its peer. */
struct side {
	uint8_t *model;
	uint32_t size, cap;
	struct grant grants[MAX_GRANTS];
	unsigned num_grants, num_regions; /* regions come first */
	unsigned window_type[MAX_WINDOWS], num_windows;
	unsigned bound[MAX_WINDOWS]; /* 1 + its latest grant, as far as the program is written */
	/*
	 * the peer's requests that are complete when a window that it took back can be bound again
	 */
	unsigned freed[MAX_WINDOWS];
};

/* What one side asks of the other. */
struct direction {
	struct op *ops;
	struct receive *receives; /* none of an unreliable connection */
	unsigned num_ops, num_receives;
	struct call calls[MAX_CALLS];
	unsigned num_calls;
	unsigned stream; /* 1 + whose payload is still to come, as far as the program is written */
};

struct limits {
	enum nic_qp_type type;
	unsigned num_ops, max_sge, max_inline, mtu;
	uint32_t budget; /* bytes of all messages together, about */
	uint32_t max_len;
	uint32_t max_send; /* of a message that takes a receive; 0: max_len */
	/* receives are the pool's: the model's is where the program copies the message to */
	bool pooled;
	unsigned shared_words;
	bool calls, both_call; /* it calls; so does the other side */
	/* receives of its own side are a pool's: replies to its calls may take one */
	bool imm_replies;
	unsigned receivers; /* UD */
	enum fault fault;   /* of one more request at the end */
};

/* What earlier requests of a direction may still be doing, for the fence. */
#define MAX_READS 512
struct hazards {
	/* READs and atomics of the peer's memory since the last fence */
	struct piece remote[MAX_READS];
	unsigned by[MAX_READS]; /* 1 + the grant that each uses */
	unsigned num_remote;
	struct piece local[MAX_READS]; /* where their results go */
	unsigned num_local;
	struct piece settled[MAX_READS]; /* results that are surely there: good to send on */
	unsigned num_settled;
	uint32_t next; /* UC: where in the target area the next WRITE goes */
};

void side_init(struct side *s, struct rng *r);
void side_free(struct side *s);
/* `len` bytes that nothing else uses. */
uint32_t side_take(struct side *s, uint32_t len, struct rng *r);
/*
 * Makes both programs of a connection, l[i] for what s[i] asks of s[1 - i], and executes them on
 * the models. A fault is of d[0] alone.
 */
void programs_make(struct direction d[2], struct side s[2], const struct limits l[2],
		   struct rng *r);
/* calls.c: makes o an RPC, the start of a call. */
void calls_make(struct op *o, struct direction *d, struct side *from, struct side *to,
		const struct limits *l, struct rng *r);
/* The program of a UD endpoint. */
void datagrams_make(struct direction *d, struct side *from, const struct limits *l, struct rng *r);
void direction_free(struct direction *d);
/* The message's bytes, out of the model. */
void gather(const struct side *s, const struct op *o, uint8_t *dst);

/* grant.c: requests that give, use and take back keys; each notes what must be complete before. */
void grants_init(struct side *s, struct rng *r);
/*
 * Another key than the whole memory's for this WRITE, READ or atomic: sets o->grant, roff, len,
 * after.
 */
void grant_use(struct op *o, unsigned index, struct side *owner, const struct limits *l,
	       struct rng *r);
/*
 * Make o, number `index` of what `owner` asks, such a request; false: there is nothing to bind, or
 * to take back. `peer`: the direction of whoever uses it.
 */
bool grant_bind(struct op *o, unsigned index, struct side *owner, struct direction *peer,
		const struct limits *l, struct rng *r);
bool grant_local_inv(struct op *o, struct side *owner, struct direction *peer,
		     const struct limits *l, struct rng *r);
/* The same from afar: a SEND with invalidation of one of `owner`'s. */
bool grant_send_inv(struct op *o, unsigned index, struct side *owner, struct direction *of_owner,
		    const struct hazards *h, struct rng *r);
/* A request that is refused for its key: sets op, grant, roff; false: there is no such key. */
bool grant_fault(struct op *o, const struct side *owner, struct rng *r);

#endif
