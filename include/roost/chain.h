/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs made of work requests: a library that writes them. It emits WQEs into images of rings
 * and of data, and touches neither the NIC nor memory outside of the images; so a process without a
 * NIC can build a chain for another one. docs/chains.md teaches chains. The functions are in
 * Roost's libibverbs.so.1; link with `pkg-config --cflags --libs roost`.
 *
 * Every construct runs in one managed queue that is connected to itself. There each WQE sees the
 * changes that the WQEs before it made.
 *
 * Values are operands: 48 bits, kept as the upper bytes of a word of 8 bytes (ROOST_OPERAND). The
 * word is then a NOP with the value as its id, so a copy of it makes a WQE conditional. Additions
 * and comparisons of words are those of the values.
 *
 * Errors are kept: the first one is in `error` of the queue, and functions do nothing after it.
 * Thread rule: one thread at a time for the objects of a call.
 */
#ifndef ROOST_CHAIN_H
#define ROOST_CHAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "roost/wqe.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ROOST_OPERAND(value)	((uint64_t)(value) << 16)
#define ROOST_OPERAND_VALUE(op) ((uint64_t)(op) >> 16)

/* A reference to memory: an address that a WQE may name, with its key. */
struct roost_ref {
	uint64_t addr;
	uint32_t key;
};

/*
 * A managed queue, and the image of its WQEs. The caller sets all fields up to `image` and clears
 * the others. Constructs need a stride of 64 bytes.
 */
struct roost_chain_queue {
	struct roost_ref ring; /* the ring, as its memory region names it */
	uint32_t qp_num;
	uint32_t depth;		 /* WQEs of the ring, and of the image; a power of two */
	uint32_t first;		 /* WQEs posted before those of the image */
	uint32_t stride;	 /* bytes from a WQE to the next, in the ring and in the image */
	struct roost_wqe *image; /* zeroed */

	uint32_t n; /* WQEs emitted */
	int error;  /* 0, or a negative errno: -ENOSPC (the image or the data are full), -EINVAL */
};

/*
 * Data that WQEs use: constants, scratch words, templates of WQEs. The caller sets all fields but
 * n.
 */
struct roost_chain_data {
	struct roost_ref at; /* the first byte, for WQEs; aligned to 8 bytes */
	void *image;	     /* of `size` bytes */
	uint32_t size;
	uint32_t n; /* bytes in use */
};

/* The queue and the data into which WQEs are emitted. */
struct roost_chain {
	struct roost_chain_queue *queue;
	struct roost_chain_data *data;
	struct roost_ref scratch; /* 8 bytes for old values that no WQE reads */
};

/* ---- references ---- */

/* Returns the reference to the byte `offset` bytes behind p. */
static inline struct roost_ref roost_ref_at(struct roost_ref p, uint64_t offset)
{
	p.addr += offset;
	return p;
}

/*
 * Returns the reference to a field of WQE n, counted from the first WQE of the image. WQE n may be
 * emitted later.
 */
static inline struct roost_ref roost_chain_field(const struct roost_chain_queue *q, uint32_t n,
						 size_t offset)
{
	return roost_ref_at(q->ring,
			    (uint64_t)((q->first + n) & (q->depth - 1)) * q->stride + offset);
}
#define ROOST_FIELD(q, n, field) roost_chain_field(q, n, offsetof(struct roost_wqe, field))

/* Puts n bytes into the data, aligned to 8 bytes, and returns the reference to them. */
struct roost_ref roost_chain_bytes(const struct roost_chain *c, const void *bytes, uint32_t n);
/* Puts one word of 8 bytes into the data, and returns the reference to it. */
struct roost_ref roost_chain_word(const struct roost_chain *c, uint64_t word);

/* ---- work requests. They emit nothing; roost_chain_emit() does ---- */

/* Returns a NOP. */
struct roost_wqe roost_wqe_nop(void);
/*
 * Returns a WRITE that copies n bytes. `to` is memory of the peer of the queue that executes the
 * WRITE: memory of this NIC, if the queue is connected to itself.
 */
struct roost_wqe roost_wqe_write(struct roost_ref to, struct roost_ref from, uint32_t n);
/* Returns a READ that copies n bytes. `from` is memory of the peer. */
struct roost_wqe roost_wqe_read(struct roost_ref to, struct roost_ref from, uint32_t n);
/*
 * Returns an atomic calculation. op: ROOST_OP_FETCH_ADD, ROOST_OP_MAX .. ROOST_OP_XOR. The old
 * value goes to `old`.
 */
struct roost_wqe roost_wqe_calc(enum roost_op op, struct roost_ref at, uint64_t operand,
				struct roost_ref old);
/* Returns a compare-and-swap of 8 bytes. The old value goes to `old`. */
struct roost_wqe roost_wqe_cas(struct roost_ref at, uint64_t compare, uint64_t swap,
			       struct roost_ref old);
/* Returns a relative WAIT for `count` more completions of a watched CQ. */
struct roost_wqe roost_wqe_wait(uint32_t watch, uint32_t count);
/* Returns a WAIT for `ns` from the start of its execution on. */
struct roost_wqe roost_wqe_wait_time(uint64_t ns);
/* Returns a relative ENABLE. op: ROOST_OP_ENABLE or ROOST_OP_RECV_ENABLE. */
struct roost_wqe roost_wqe_enable(enum roost_op op, uint32_t qp_num, uint32_t count);

/* Appends a WQE to the queue. Returns its number. */
uint32_t roost_chain_emit(const struct roost_chain *c, struct roost_wqe wqe);

/*
 * ---- constructs ----
 *
 * A WQE `then` or `after`, and the WQEs of blocks, have no inline data.
 */

enum roost_compare { ROOST_EQ, ROOST_LE, ROOST_GE }; /* comparisons of unsigned values */

/* An operand of a comparison: the word at a reference, or a constant if the key is 0. */
struct roost_operand {
	uint64_t constant; /* ROOST_OPERAND() */
	struct roost_ref at;
};

/* Returns a constant operand. */
static inline struct roost_operand roost_constant(uint64_t value)
{
	struct roost_operand o = {ROOST_OPERAND(value), {0, 0}};

	return o;
}

/* Returns the operand that is the word at a reference. */
static inline struct roost_operand roost_word(struct roost_ref at)
{
	struct roost_operand o = {0, at};

	return o;
}

/*
 * Emits if (x COMPARE y) then: the WQE `then` is a NOP unless the comparison is true. The construct
 * may be executed repeatedly. It costs, beside `then`, a copy and a CAS; LE and GE cost also a MAX
 * or MIN; a y in memory costs also a copy, or two for LE and GE. Returns the number of `then`.
 */
uint32_t roost_chain_if(const struct roost_chain *c, struct roost_ref x, enum roost_compare cmp,
			struct roost_operand y, struct roost_wqe then);
#define ROOST_CHAIN_BLOCK 8
/*
 * Emits if (x COMPARE y) then_block else else_block, of n WQEs each, 1 to ROOST_CHAIN_BLOCK. The
 * NIC copies the else-block over the n WQEs that follow and then, if the comparison is true, the
 * then-block over the else-block. The construct costs 2 copies more than roost_chain_if(). Returns
 * the number of the block's first WQE. The error is -EINVAL also if the block would go round the
 * end of the ring.
 */
uint32_t roost_chain_if_else(const struct roost_chain *c, struct roost_ref x,
			     enum roost_compare cmp, struct roost_operand y,
			     const struct roost_wqe *then_block, const struct roost_wqe *else_block,
			     uint32_t n);
/*
 * Emits if (x == y) then, for words of 64 bits that are no operands. Two CASes compare them: the
 * first CAS writes the second. The construct costs, beside `then`, 4 copies and 2 CASes. Returns
 * the number of `then`.
 */
uint32_t roost_chain_if_equal64(const struct roost_chain *c, struct roost_ref x, uint64_t y,
				struct roost_wqe then);
/*
 * Emits switch (x): the WQE blocks[i] if x equals values[i], else blocks[cases], the default. The
 * construct costs a copy, and 2 copies and a CAS for each case. Returns the number of the WQE that
 * the block becomes.
 */
uint32_t roost_chain_switch(const struct roost_chain *c, struct roost_ref x, const uint64_t *values,
			    const struct roost_wqe *blocks, uint32_t cases);
/*
 * Ends a turn of an unrolled loop that breaks if x == y. Emits an ENABLE of this queue, which
 * becomes a NOP if x == y. The construct costs a copy, a CAS and the ENABLE; a y in memory costs a
 * copy more. The queue must not be enabled beyond the ENABLE. Returns where the image has its
 * count: the caller stores the number of WQEs up to the next break, or the end. NULL after an
 * error.
 */
uint64_t *roost_chain_break(const struct roost_chain *c, struct roost_ref x,
			    struct roost_operand y);

/*
 * Ends a recycled loop: do body while (!(x COMPARE y)). The ring is the loop: its depth is the
 * number of WQEs of a turn, and the NIC goes round until the comparison is true, without a post.
 * The caller has emitted the body into the queue. The function emits the test, NOPs up to the
 * depth, and an ENABLE of the next turn. If the comparison is true, `after` takes the place of the
 * ENABLE. Each turn costs as much as roost_chain_if(), the ENABLE and the NOPs; the last turn also
 * costs a copy.
 */
void roost_chain_loop_end(const struct roost_chain *c, struct roost_ref x, enum roost_compare cmp,
			  struct roost_operand y, struct roost_wqe after);
/*
 * Emits the start of a loop, for the first time or again: a copy that undoes `after`, and an
 * ENABLE. `c` is for another queue.
 */
void roost_chain_loop_start(const struct roost_chain *c, const struct roost_chain_queue *loop);

/*
 * Ends a function, a queue whose ring is the function: emits NOPs up to the depth, and the return,
 * which each call writes. The caller has emitted the body into the queue.
 */
void roost_chain_function_end(const struct roost_chain *c);

struct roost_argument {
	struct roost_ref from, to; /* `to`: data, or a field of the function's WQEs */
	uint32_t len;
};
/*
 * Emits the call of a function: copies of the arguments, the return, and an ENABLE of the function.
 * The caller's queue continues when the function returns; it must not be enabled beyond the call. A
 * call costs a copy for each argument, a copy, and two ENABLEs, of which the function executes one.
 * Returns where the data image has the count of the return: the caller stores the number of WQEs up
 * to its next call, or its end. NULL after an error.
 */
uint64_t *roost_chain_call(const struct roost_chain *c, const struct roost_chain_queue *function,
			   const struct roost_argument *args, uint32_t num_args);

#ifdef __cplusplus
}
#endif

#endif
