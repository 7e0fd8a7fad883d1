/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The assembler. It reads the text twice, line by line: the first pass finds the names and the
 * sizes, the second pass writes the bytes. Both passes run the same code, so every construct has
 * the same number of WQEs in both. In the first pass a name that is not known yet has the location
 * 0.
 *
 * Functions return false after an error. `err` has the first error.
 */
#ifndef ROOST_CHAINASM_ASM_H
#define ROOST_CHAINASM_ASM_H

#include "chainasm/op.h"
#include "chainasm/program.h"

struct asm_location {
	int region;	 /* -1: `ref` has an address outside of all regions */
	uint64_t offset; /* offset in the region */
	struct roost_ref ref;
};

enum asm_section { ASM_NONE, ASM_REGION, ASM_QUEUE };

/*
 * The key of all locations in the first pass. A key of 0 would make an operand of roost/chain.h a
 * constant, which takes fewer WQEs than a word.
 */
#define ASM_UNKNOWN_KEY 1u

#define ASM_STOPS 64

struct asm_state {
	struct chain_program *p;
	struct chain_error *err;
	bool second;	  /* the second pass */
	const char *at;	  /* position in the line */
	const char *next; /* the next line */
	const char *end;
	char line[512];
	uint32_t number;

	enum asm_section section;
	unsigned index;			    /* index of the present region or queue */
	uint32_t offset;		    /* offset of the next byte in the region */
	unsigned region_count, queue_count; /* counts of the sections so far, in this pass */

	/* the queue */
	struct roost_chain chain;
	struct roost_chain_queue queue;
	struct roost_chain_data data; /* values that constructs store, in region `constants` */
	int constants;		      /* -1: there is none */
	bool depth_given, to_first_stop;
	/* counts for which breaks and calls of the queue wait, from each stop to the next */
	uint64_t *stop_count[ASM_STOPS];
	uint32_t stop_at[ASM_STOPS];
	unsigned stops;
};

bool asm_fail(struct asm_state *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- lex.c ---- */

char asm_peek(struct asm_state *s); /* returns the next character behind blanks; 0: the end */
bool asm_take(struct asm_state *s, const char *text);
bool asm_want(struct asm_state *s, const char *text);
bool asm_name(struct asm_state *s, char name[CHAIN_NAME]); /* false without an error: no name */
bool asm_want_name(struct asm_state *s, char name[CHAIN_NAME], const char *what);
bool asm_end(struct asm_state *s); /* reports an error unless the line ends here */
bool asm_value(struct asm_state *s, uint64_t *v);
bool asm_location(struct asm_state *s, struct asm_location *p);
bool asm_ref(struct asm_state *s, struct roost_ref *r);
/* Returns true if a location comes next, and not an expression. */
bool asm_is_location(struct asm_state *s);
bool asm_queue_name(struct asm_state *s, int *queue);
bool asm_operand(struct asm_state *s, struct roost_operand *o);
bool asm_next_line(struct asm_state *s); /* returns false at the end of the text */

/* ---- instruction.c ---- */

#define ASM_WQE_MAX 1024
struct asm_wqe {
	union {
		struct roost_wqe w;
		uint8_t bytes[ASM_WQE_MAX];
	};
	uint32_t len; /* bytes in use, at least 64 */
};
bool asm_instruction(struct asm_state *s, struct asm_wqe *w);
bool asm_receive(struct asm_state *s, struct asm_wqe *w); /* parses what follows the word `recv` */
bool asm_watch(struct asm_state *s, struct chain_queue *q, unsigned *index);

/* ---- construct.c ---- */

/* Emits the WQEs of the line into the present queue. */
bool asm_queue_line(struct asm_state *s);
/* Begins the data of constructs. Its first word takes old values that no WQE reads. */
bool asm_constants(struct asm_state *s);
bool asm_emitted(struct asm_state *s); /* reports an error of roost/chain.h */

#endif
