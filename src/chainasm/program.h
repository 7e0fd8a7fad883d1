/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program of chains: regions of data, queues, and the bytes of both as they are posted. The
 * assembler makes it from text (docs/chains.md), the disassembler makes text from it, the checker
 * and the model read it. No function needs a NIC.
 *
 * A program is bound to addresses, keys and queue pair numbers. The assembler binds it to numbers
 * of its own; a loader stores those of its memory and queue pairs and calls chain_bind().
 */
#ifndef ROOST_CHAINASM_PROGRAM_H
#define ROOST_CHAINASM_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "roost/chain.h"

#define CHAIN_NAME	   32
#define CHAIN_MAX_REGIONS  96
#define CHAIN_MAX_QUEUES   32
#define CHAIN_MAX_DEPTH	   32768
#define CHAIN_MAX_BYTES	   (16u << 20) /* bytes of all images */
#define CHAIN_MAX_SYMBOLS  4096
#define CHAIN_MAX_RECEIVES 1024

enum chain_region_kind { CHAIN_DATA, CHAIN_SEND_RING, CHAIN_RECV_RING };

struct chain_region {
	char name[CHAIN_NAME]; /* the name of a ring is that of its queue */
	uint8_t kind;	       /* enum chain_region_kind */
	bool readonly;	       /* the NIC may read it only */
	uint16_t queue;	       /* the queue of a ring */
	uint32_t size;
	uint32_t line; /* line of the text; 0: none */
	uint64_t addr; /* binding */
	uint32_t key;  /* binding */
	uint8_t *image;
};

enum { CHAIN_PEER_SELF = -1, CHAIN_PEER_OUTSIDE = -2 };

struct chain_watch_name {
	int16_t queue; /* -1: none */
	bool receives; /* names completions of receives, not of sends */
};

struct chain_queue {
	char name[CHAIN_NAME];
	bool managed, managed_recv;
	int peer;	      /* index of a queue, or CHAIN_PEER_* */
	uint32_t depth, n;    /* WQEs of the send ring, and those in use */
	uint32_t recvs, recv; /* the same of the receive ring; recvs is 0 without a receive ring */
	uint32_t sges, recv_sges;
	uint32_t stride, recv_stride;
	uint32_t start, start_recv; /* WQEs that are enabled when the program starts */
	uint64_t rate_limit;	    /* WQEs per second; 0: no limit */
	struct chain_watch_name watch[ROOST_CHAIN_WATCHES];
	uint32_t line;
	uint32_t *lines, *recv_lines; /* line of each WQE in the text; NULL: no text */
	int region, recv_region;      /* regions of the rings; -1: none */
	uint32_t qp_num;	      /* binding */
};

struct chain_symbol {
	char name[CHAIN_NAME];
	bool constant;	 /* false: a location */
	uint16_t region; /* region of a location */
	uint64_t value;	 /* value of a constant, or offset of a location in its region */
};

struct chain_error {
	uint32_t line; /* 0: the error concerns the whole program */
	char text[200];
};

struct chain_program {
	struct chain_region region[CHAIN_MAX_REGIONS];
	struct chain_queue queue[CHAIN_MAX_QUEUES];
	struct chain_symbol *symbol;
	unsigned regions, queues, symbols;
	char *text;
};

/*
 * Assembles a text of n bytes. Returns NULL after an error; *err then has the first error.
 * chain_free() frees the program. Thread rule of all functions: one thread at a time for a program.
 */
struct chain_program *chain_assemble(const char *text, size_t n, struct chain_error *err);
void chain_free(struct chain_program *p);
/*
 * Writes the images again for the addresses, keys and queue pair numbers in the program. Returns
 * false if the program has no text, or if *err has an error.
 */
bool chain_bind(struct chain_program *p, struct chain_error *err);

/*
 * Returns the text of a program, or NULL without memory. The caller frees it with free(). The
 * assembler makes the same program with the same bytes of it.
 */
char *chain_disassemble(const struct chain_program *p);
/* Prints one WQE of `stride` bytes as the assembler reads it. */
void chain_print_wqe(const struct chain_program *p, const void *wqe, uint32_t stride, int queue,
		     char *buf, size_t n);
/* Prints a word: the names of objects with its number. */
void chain_print_word(const struct chain_program *p, uint64_t v, char *buf, size_t n);
/* Prints the name of a location: a symbol, a field of a WQE, or a region and an offset. */
void chain_print_location(const struct chain_program *p, unsigned region, uint64_t offset,
			  char *buf, size_t n);

/*
 * Write and read the image of a program, a file with a header, the tables and the bytes, in the
 * byte order of the machine. chain_read_image() checks all of it; lines are those of the
 * disassembled text. The caller frees the returned memory with free().
 */
void *chain_write_image(const struct chain_program *p, size_t *n);
struct chain_program *chain_read_image(const void *image, size_t n, struct chain_error *err);

/* ---- inside ---- */

/* Returns the region that has the address, or -1 if there is none. */
int chain_region_at(const struct chain_program *p, uint64_t addr);
int chain_region_of_key(const struct chain_program *p, uint32_t key);
int chain_find_queue(const struct chain_program *p, const char *name);
int chain_queue_of_number(const struct chain_program *p, uint32_t qp_num);
const struct chain_symbol *chain_find_symbol(const struct chain_program *p, const char *name);
bool chain_add_symbol(struct chain_program *p, const struct chain_symbol *s);
/*
 * Sorts the symbols: constants by name, then locations by region, offset and name. Text and image
 * have the same order.
 */
void chain_sort_symbols(struct chain_program *p);
/* Binds the program to numbers of its own. */
void chain_bind_own(struct chain_program *p);
uint32_t chain_send_stride(uint32_t sges);
uint32_t chain_recv_stride(uint32_t sges);

static inline uint8_t *chain_slot(const struct chain_program *p, const struct chain_queue *q,
				  uint32_t n)
{
	return p->region[q->region].image + (size_t)(n & (q->depth - 1)) * q->stride;
}

static inline uint8_t *chain_recv_slot(const struct chain_program *p, const struct chain_queue *q,
				       uint32_t n)
{
	return p->region[q->recv_region].image + (size_t)(n & (q->recvs - 1)) * q->recv_stride;
}

#endif
