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
 * Of unreliable messages the model knows the contents, and that each WRITE has a target of its own.
 * Which of them arrive depends on the link.
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

enum fault { /* the error of the last request of a program that ends with one */
	     FAULT_NONE,
	     /* errors of the requester: */
	     FAULT_LKEY,       /* our own memory, a wrong key */
	     FAULT_OPCODE,     /* no such operation */
	     FAULT_BIND,       /* a window that is bound already, or beyond its region */
	     FAULT_INVALIDATE, /* of a key that may not be invalidated */
	     FAULTS_LOCAL,
	     /* errors that the peer detects: */
	     FAULT_RKEY = FAULTS_LOCAL, /* a key that does not exist */
	     FAULT_BOUNDS,		/* beyond the peer's memory */
	     FAULT_MISALIGNED,		/* an atomic */
	     FAULT_TOO_LONG,		/* a SEND longer than its receive */
	     FAULT_STALE,		/* a revoked key */
	     FAULT_RIGHTS,		/* a key without this right */
	     FAULT_OUTSIDE,		/* beyond the key's range */
	     FAULT_SEND_INV, /* the key of the whole memory, which cannot be invalidated */
	     FAULTS
};

/* A key for a part of a side's memory, for its peer: it is granted (bound), used and revoked. */
struct grant {
	/*
	 * 1 + the index of the side's window that it binds; 0: a region of its own, valid from the
	 * start
	 */
	unsigned window;
	struct piece range;
	uint32_t access;
	bool zero_based;
	bool open;	/* as far as the program is written */
	unsigned given; /* number of its owner's requests that must be complete before its use */
	unsigned used;	/* number of the peer's requests that must be complete before its end */
};

struct op {
	enum roost_op op;
	enum fault fault;
	uint16_t flags; /* enum roost_wqe_flags */
	bool shared;	/* a fetch-and-add of 1 on a word that several QPs add to */
	bool unbind;	/* BIND_MW of type 1, to nothing */
	uint32_t len;
	uint32_t roff; /* in the peer's memory; if shared, the index of the word */
	uint32_t imm;
	uint64_t swap_add, compare;
	struct piece sge[ROOST_MAX_SGE];
	unsigned num_sge;
	/*
	 * 1 + the index of the key that is used, bound or revoked; 0: the key of the peer's whole
	 * memory
	 */
	unsigned grant;
	/* number of the other side's requests that must be complete before it is posted */
	unsigned after;
	unsigned to;   /* UD: the number of the receiver */
	unsigned call; /* RPC, RPC_WRITE: 1 + the index of the call */
};

struct receive {
	struct piece sge[ROOST_MAX_SGE];
	unsigned num_sge;
	uint32_t len, imm; /* expected; imm of an invalidation: index of the grant */
	uint16_t opcode, flags, status;
};

/* A call of a kernel at the peer (calls.c). */
#define MAX_CALLS 64u
#define CALL_HEAD 56u /* bytes of parameters before the random ones */
struct call {
	/* as the program says */
	unsigned how, reads;   /* of the kernel's parameters (tally.h) */
	uint32_t extra;	       /* random bytes of parameters */
	uint32_t len, from;    /* of what the kernel reads and replies, in the peer's memory */
	uint32_t word;	       /* there: it becomes 1 */
	uint32_t text;	       /* parameters, in the caller's memory */
	uint32_t reply, space; /* the buffer there; bytes of data that it holds */
	uint32_t reply_len;    /* with the tail; 0: no reply is requested */
	/*
	 * its op-code has no kernel; the tail comes with an immediate; payload follows; its reply
	 * may be joined with others
	 */
	bool nobody, imm, stream, join;
	/* as it goes */
	uint16_t mark;
	uint32_t entry;
	uint64_t digest;
	bool posted, complete, seen, imm_seen;
};

/* One end: the model of its memory, and its grants for the peer. */
struct side {
	uint8_t *model;
	uint32_t size, cap;
	struct grant grants[MAX_GRANTS];
	unsigned num_grants, num_regions; /* regions come first */
	unsigned window_type[MAX_WINDOWS], num_windows;
	unsigned bound[MAX_WINDOWS]; /* 1 + its latest grant, as far as the program is written */
	/*
	 * number of the peer's requests that must be complete before a window that it has revoked
	 * is bound again
	 */
	unsigned freed[MAX_WINDOWS];
};

/* The requests of one side to the other. */
struct direction {
	struct op *ops;
	struct receive *receives; /* not on an unreliable connection */
	unsigned num_ops, num_receives;
	struct call calls[MAX_CALLS];
	unsigned num_calls;
	unsigned stream; /* 1 + whose payload is still to come, as far as the program is written */
};

struct limits {
	enum nic_qp_type type;
	unsigned num_ops, max_sge, max_inline, mtu;
	uint32_t budget; /* bytes of all messages, approximately */
	uint32_t max_len;
	uint32_t max_send; /* of a message that takes a receive; 0: max_len */
	/* receives are a pool's: the program copies the message to the model's receive */
	bool pooled;
	unsigned shared_words;
	bool calls, both_call; /* this side makes calls; the other side makes calls */
	/* receives of its own side are a pool's: replies to its calls may take one */
	bool imm_replies;
	unsigned receivers; /* UD */
	enum fault fault;   /* of one more request at the end */
};

/* Earlier requests of a direction that may still be in progress, for the fence. */
#define MAX_READS 512
struct hazards {
	/* READs and atomics of the peer's memory since the last fence */
	struct piece remote[MAX_READS];
	unsigned by[MAX_READS]; /* 1 + the grant that each uses */
	unsigned num_remote;
	struct piece local[MAX_READS]; /* where their results go */
	unsigned num_local;
	struct piece settled[MAX_READS]; /* results that have arrived, and may be sent */
	unsigned num_settled;
	uint32_t next; /* UC: target of the next WRITE */
};

void side_init(struct side *s, struct rng *r);
void side_free(struct side *s);
/* Reserves `len` bytes that no other request uses. */
uint32_t side_take(struct side *s, uint32_t len, struct rng *r);
/*
 * Makes both programs of a connection, with the limits l[i] for the requests of s[i], and executes
 * them on the models. Only d[0] may end with a fault.
 */
void programs_make(struct direction d[2], struct side s[2], const struct limits l[2],
		   struct rng *r);
/* calls.c: makes request o an RPC, the start of a call. */
void calls_make(struct op *o, struct direction *d, struct side *from, struct side *to,
		const struct limits *l, struct rng *r);
/* Makes the program of a UD endpoint. */
void datagrams_make(struct direction *d, struct side *from, const struct limits *l, struct rng *r);
void direction_free(struct direction *d);
/* Copies the bytes of the message from the model. */
void gather(const struct side *s, const struct op *o, uint8_t *dst);

/* grant.c: requests that grant, use and revoke keys, and the waits that they need. */
void grants_init(struct side *s, struct rng *r);
/*
 * Selects another key than that of the whole memory for this WRITE, READ or atomic: sets o->grant,
 * roff, len and after.
 */
void grant_use(struct op *o, unsigned index, struct side *owner, const struct limits *l,
	       struct rng *r);
/*
 * Make o, request number `index` of `owner`, a request that binds or revokes. Return false if there
 * is nothing to bind or revoke. `peer`: the direction that uses the key.
 */
bool grant_bind(struct op *o, unsigned index, struct side *owner, struct direction *peer,
		const struct limits *l, struct rng *r);
bool grant_local_inv(struct op *o, struct side *owner, struct direction *peer,
		     const struct limits *l, struct rng *r);
/* Makes o a SEND that invalidates a key of `owner`, the other side. */
bool grant_send_inv(struct op *o, unsigned index, struct side *owner, struct direction *of_owner,
		    const struct hazards *h, struct rng *r);
/*
 * Makes a request whose key is refused: sets op, grant, roff. Returns false if there is no such
 * key.
 */
bool grant_fault(struct op *o, const struct side *owner, struct rng *r);

#endif
