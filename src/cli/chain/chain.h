/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of `roost chain`. */
#ifndef ROOST_CLI_CHAIN_CHAIN_H
#define ROOST_CLI_CHAIN_CHAIN_H

#include "chainasm/program.h"
#include "cli/options.h"
#include "cli/watch.h"

/*
 * Reads a program: text, or the image that `roost chain asm` writes. Returns NULL after a
 * message.
 */
struct chain_program *chain_open(const struct opt_command *cmd, const char *file);
int chain_save(const struct opt_command *cmd, const char *file, const void *bytes, size_t n);

/* run.c: executes a program on the NIC of this process. */
struct chain_run {
	const char *file;
	const char *stop_at; /* --break: a label; NULL: none */
	const char *dump;    /* writes an image of the memory at the end; NULL: none */
	const char *show; /* a location: prints its word at the end; NULL: all labels of regions */
	bool trace, step;
	uint64_t time_ns; /* ends the program after this time; 0: when no queue can continue */
};
int chain_run_program(const struct opt_command *cmd, struct chain_program *p,
		      const struct chain_run *how);

/* costs.c: prints the WQEs of each construct. */
int chain_costs(const struct opt_command *cmd);

/* top.c */
int chain_top(const struct opt_command *cmd, const struct watch *watch, bool json);

#endif
