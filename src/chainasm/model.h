/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A model of a NIC that executes chains, written only from docs/chains.md. It shares no code with
 * the NIC, so that tests can compare the two. The checker uses the model to see the effects of a
 * program. It executes one WQE at a time, in the images of the program.
 *
 * The model has the queues of one program, whose connections have no losses. A WQE of an ordinary
 * queue takes effect when it is issued.
 */
#ifndef ROOST_CHAINASM_MODEL_H
#define ROOST_CHAINASM_MODEL_H

#include "chainasm/program.h"

#define MODEL_FETCH 16 /* the most WQEs that an ordinary queue fetches at once */

enum model_result {
	MODEL_DONE,    /* a WQE was executed */
	MODEL_IDLE,    /* nothing is posted or enabled */
	MODEL_WAITS,   /* the queue is in a WAIT */
	MODEL_SLEEPS,  /* the queue is in a WAIT for a time */
	MODEL_NO_RECV, /* a SEND or WRITE with immediate finds no receive */
	MODEL_FAILED,  /* the queue is in the error state */
};

struct model_queue {
	uint32_t taken, next; /* WQEs taken from the ring; the number of the next to execute */
	uint32_t posted, enabled;
	uint32_t recv_taken, recv_posted, recv_enabled;
	uint32_t base[ROOST_CHAIN_WATCHES]; /* bases of relative WAITs */
	uint32_t sends, receives;	    /* completions that have been counted */
	uint8_t *fetched;		    /* the private copies */
	bool sleeps;			    /* a WAIT for a time is being executed */
	uint64_t wake;			    /* end of that WAIT */
	bool failed;
	uint32_t failed_index; /* index of the WQE, if a WQE of this queue failed */
	bool own_failure;
	char reason[96];
	enum model_result last;
};

struct chain_model {
	struct chain_program *p;
	struct model_queue q[CHAIN_MAX_QUEUES];
	/* The result is not defined by the documents, or an op-code is not modelled. */
	bool open;
	bool calc; /* connected queues have agreed to calculations; set after model_open() */
	uint64_t executed;
	uint64_t now; /* ns: the clock advances when all queues wait */
	/* Called before a WQE is executed; may be NULL. */
	void (*before)(void *ctx, unsigned queue, uint32_t index, const struct roost_wqe *w);
	void *ctx;
};

/*
 * Opens the model of a program that was posted and started. The images change. Returns false if
 * there is no memory.
 */
bool model_open(struct chain_model *m, struct chain_program *p);
void model_close(struct chain_model *m);
/* Executes the next WQE of a queue, if it can. */
enum model_result model_step(struct chain_model *m, unsigned queue);
/*
 * Runs all queues in turn. Returns true when no queue can execute a WQE, or false after `max`
 * WQEs.
 */
bool model_run(struct chain_model *m, uint64_t max);

#endif
