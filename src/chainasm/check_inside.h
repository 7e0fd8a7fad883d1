/* SPDX-License-Identifier: BSD-2-Clause */
/* Declarations of the checker's files: the variants of WQEs, their ENABLEs and their WAITs. */
#ifndef ROOST_CHAINASM_CHECK_INSIDE_H
#define ROOST_CHAINASM_CHECK_INSIDE_H

#include "chainasm/check.h"

/* A WQE that a slot of a ring may have when it is fetched. */
struct variant {
	uint16_t queue;
	uint32_t slot;
	struct roost_wqe w;
	/* Bit i: word i of the WQE is computed when the program runs. */
	uint8_t computed;
	bool rewritten; /* false: the WQE is as it was posted */
	uint32_t next;	/* another variant of this slot, as in checker.first */
};

/* Bytes of a ring or a region that a WQE or a receive writes, at an address that is known. */
struct rewrite {
	uint16_t queue; /* queue of the writer */
	uint32_t slot;
	uint16_t region;
	uint64_t offset, len;
	bool receive;  /* the writer is a receive */
	bool response; /* the bytes come back from a peer outside of the program */
};

#define CHECK_MAX_VARIANTS 65536
#define CHECK_MAX_REWRITES 65536

struct checker {
	struct chain_program *p;
	const struct chain_check *how;
	struct variant *variant;
	uint32_t variants;
	struct rewrite *rewrite;
	uint32_t rewrites;
	/* The number + 1 of a variant of each slot, and of a rewrite by it; 0: none. */
	uint32_t *first[CHAIN_MAX_QUEUES], *first_rewrite[CHAIN_MAX_QUEUES];
	uint32_t *next_rewrite;
	bool too_large;			      /* there was no space for a variant or a rewrite */
	uint8_t *computed[CHAIN_MAX_REGIONS]; /* a byte for each word of a region */
	/*
	 * The number of WQEs that all ENABLEs of a queue allow if each is executed once. It
	 * saturates.
	 */
	uint64_t total[CHAIN_MAX_QUEUES];
	bool recycles[CHAIN_MAX_QUEUES]; /* total above the depth, or the queue is in a loop */
	bool loops[CHAIN_MAX_QUEUES];	 /* its turns enable its next turn, itself or by others */
	int faults;
};

void check_fault(struct checker *c, enum chain_fault_class class, uint32_t line, const char *fmt,
		 ...) __attribute__((format(printf, 4, 5)));
/* Returns the line of a WQE, or of its queue. */
uint32_t check_line(const struct checker *c, unsigned queue, uint32_t slot);

/* Returns the first variant of a slot, and the next one, or NULL. */
static inline struct variant *check_first(const struct checker *c, unsigned queue, uint32_t slot)
{
	const uint32_t i = c->first[queue][slot];

	return i ? &c->variant[i - 1] : NULL;
}
static inline struct variant *check_next(const struct checker *c, const struct variant *v)
{
	return v->next ? &c->variant[v->next - 1] : NULL;
}

/* check_variants.c; return false without memory */
bool check_find_variants(struct checker *c);
void check_free_variants(struct checker *c);
static inline uint16_t variant_op(const struct variant *v)
{
	return ROOST_CTRL_OP(v->w.ctrl);
}
/* Returns the queue that an ENABLE of send WQEs names, or -1 if the WQE is no such ENABLE. */
int check_enables(const struct checker *c, const struct variant *v);
/*
 * Stores the completions that a WAIT names. Returns false if the WQE is no WAIT, or if the
 * completions are computed.
 */
bool check_waits(const struct checker *c, const struct variant *v, struct chain_watch_name *watch);

/* check_order.c */
void check_rewrites(struct checker *c);
/* check_progress.c */
void check_wait_counts(struct checker *c);
void check_loops(struct checker *c);
/* check_address.c */
void check_addresses(struct checker *c);

#endif
