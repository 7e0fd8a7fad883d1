/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checker of chains. It finds four kinds of faults:
 *
 *	rewrite		a WQE is rewritten that may have been fetched
 *	wait		a WAIT that no WQE satisfies
 *	loop		a loop that has neither a rate limit nor a WAIT nor an end
 *	address		an address outside of the regions
 *
 * It reads the program as it is posted, and runs it in the model. A WQE that others rewrite has
 * several variants; a fault of any of them counts. The checker does not know words that are
 * computed at run time: it reports a fault of them only if the model finds one.
 */
#ifndef ROOST_CHAINASM_CHECK_H
#define ROOST_CHAINASM_CHECK_H

#include "chainasm/program.h"

enum chain_fault_class {
	CHAIN_FAULT_REWRITE,
	CHAIN_FAULT_WAIT,
	CHAIN_FAULT_LOOP,
	CHAIN_FAULT_ADDRESS,
	CHAIN_FAULT_OTHER, /* the model ended with another error */
};
extern const char *const chain_fault_names[];

struct chain_fault {
	enum chain_fault_class class;
	uint32_t line;
	char text[240];
};

struct chain_check {
	/* A loop needs a rate limit, or a WAIT for other queues, even if it has an end. */
	bool strict;
	/* Called for each fault, in the order of detection. */
	void (*fault)(void *ctx, const struct chain_fault *f);
	void *ctx;
};

/* Returns the number of faults, or -1 without memory. The program is unchanged. */
int chain_check(struct chain_program *p, const struct chain_check *how);

#endif
