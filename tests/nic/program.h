/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random programs of work requests, and a plain model that says what each leaves behind: every byte of both memories, every
 * completion. A connection has two directions, each with its own program; they share no memory that either changes, so each is
 * modelled by executing its requests one after the other.
 *
 * Memory of a side, in bytes:
 *   0     .. 256K  source     random, never changes
 *   256K  .. 512K  target     written by the peer's WRITEs, read by its READs
 *   512K  .. 516K  words      of the peer's atomics
 *   516K  ..       private    results of READs and atomics, receive buffers: each byte has one use
 *
 * Where a request could see memory before or after another one changed it (a READ may be executed again after a later WRITE; the
 * result of a READ may not be there yet when it is sent on), the program sets the fence bit, as a correct program must.
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

struct piece {
	uint32_t off, len;
};

enum fault { /* what is wrong with the last request of a program that ends badly */
	     FAULT_NONE,
	     FAULT_RKEY,       /* a key that is none */
	     FAULT_BOUNDS,     /* beyond the peer's memory */
	     FAULT_MISALIGNED, /* an atomic */
	     FAULT_TOO_LONG,   /* a SEND longer than its receive */
	     FAULT_LKEY,       /* our own memory, a wrong key */
	     FAULT_OPCODE,     /* no such operation */
	     FAULTS
};

struct op {
	enum roost_op op;
	enum fault fault;
	uint16_t flags; /* enum roost_wqe_flags */
	bool shared;	/* a fetch-and-add of 1 on a word that several QPs add to */
	uint32_t len;
	uint32_t roff; /* in the peer's memory; index of the word when shared */
	uint32_t imm;  /* SEND_INV: which of the peer's keys */
	uint64_t swap_add, compare;
	struct piece sge[ROOST_MAX_SGE];
	unsigned num_sge;
};

struct receive {
	struct piece sge[ROOST_MAX_SGE];
	unsigned num_sge;
	uint32_t len, imm; /* expected; imm of an invalidation: which key */
	uint16_t opcode, flags, status;
};

/* One end: the model of its memory. */
struct side {
	uint8_t *model;
	uint32_t size, cap;
};

/* What one side asks of the other. */
struct direction {
	struct op *ops;
	struct receive *receives;
	unsigned num_ops, num_receives, num_inv;
};

struct limits {
	unsigned num_ops, max_sge, max_inline, mtu;
	uint32_t budget; /* bytes of all messages together, about */
	uint32_t max_len;
	unsigned shared_words;
	enum fault fault; /* of one more request at the end */
};

void side_init(struct side *s, struct rng *r);
void side_free(struct side *s);
/* Makes a program of `from` towards `to`, and executes it on their models. */
void direction_make(struct direction *d, struct side *from, struct side *to, const struct limits *l,
		    struct rng *r);
void direction_free(struct direction *d);

#endif
