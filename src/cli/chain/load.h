/* SPDX-License-Identifier: BSD-2-Clause */
/* A program of chains on a NIC: its queue pairs, regions and rings. */
#ifndef ROOST_CLI_CHAIN_LOAD_H
#define ROOST_CLI_CHAIN_LOAD_H

#include "chainasm/program.h"
#include "cli/perf/perf.h"

struct chain_loaded {
	struct chain_program *p; /* bound to the NIC; its regions of data are the memory */
	struct perf_nic nic;
	struct ibv_qp *qp[CHAIN_MAX_QUEUES], *starter;
	struct ibv_cq *sends[CHAIN_MAX_QUEUES], *receives[CHAIN_MAX_QUEUES], *starts;
	struct ibv_mr *mr[CHAIN_MAX_REGIONS];
	uint8_t *memory[CHAIN_MAX_REGIONS]; /* present address of the bytes of each region */
	char err[256];
};

/*
 * Makes all objects, and posts nothing. Returns 0, or -errno with a line in err. The caller calls
 * chain_unload() in either case.
 */
int chain_load(struct chain_loaded *l, struct chain_program *p);
/* Posts the queues, and enables those with a start. Returns 0, or -errno with a line in err. */
int chain_start(struct chain_loaded *l);
void chain_unload(struct chain_loaded *l);

#endif
