/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A kernel for the simulator's calls. It reads memory, adds 1 to a word there, computes a digest of
 * all bytes that it gets, and replies as its parameters request. It keeps a ledger of its
 * actions.
 */
#ifndef ROOST_TESTS_TALLY_H
#define ROOST_TESTS_TALLY_H

#include "roost/kernel.h"

#define TALLY_OP      0x7a11e5ull
#define TALLY_NOBODY  0x7a11e6ull /* an op-code without a kernel */
#define TALLY_BLOCK   64u	  /* bytes of each read */
#define TALLY_STATUS  (128 + 7)
#define TALLY_ENTRIES 1024u

enum tally_how {
	TALLY_DIGEST, /* the digest is the reply */
	TALLY_FROM,   /* `len` bytes at `from` */
	TALLY_PIECES, /* in pieces: `len` bytes at `from` in two, the digest between them */
	TALLY_FAIL,   /* TALLY_STATUS */
	TALLY_ACCESS, /* it requests an access that is refused */
	TALLY_LONG,   /* `len` is longer than the reply buffer */
	TALLY_HOWS
};

struct tally_params {
	uint64_t from, word; /* addresses of the read memory, and of the word */
	uint32_t entry;	     /* of the ledger */
	uint32_t len;
	uint32_t how;
	uint16_t reads;
	uint16_t stream; /* payload follows */
};

struct tally_entry {
	uint8_t begun, ended, cut;
	uint8_t wrong; /* bytes at wrong offsets */
};

/* The kernel's `self`. */
struct tally {
	struct tally_entry entry[TALLY_ENTRIES];
	uint32_t strange; /* calls that name no entry */
};

extern const struct roost_kernel tally_kernel;

#define TALLY_START 0xcbf29ce484222325ull /* of a digest */
uint64_t tally_add(uint64_t digest, const void *data, uint32_t len);

#endif
