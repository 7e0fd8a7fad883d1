/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A two-sided server for look-ups: it takes requests in SENDs and answers each by WRITEs to the
 * client's memory. Receives and answers are posted as lists; short data are inline.
 */
#ifndef ROOST_BENCH_LOOK_SERVER_H
#define ROOST_BENCH_LOOK_SERVER_H

#include "base/hist.h"
#include "duo.h"

#define LOOK_WINDOW 64u /* requests in flight */
#define LOOK_SET    64u /* bytes of a value that a set stores */

/* The reply is the value, but for a set, and behind it the number that the client waits for. */
struct look_request {
	uint64_t key, number; /* number: not 0 */
	uint32_t size;	      /* of the values; 0: end of the phase */
	uint32_t reply;	      /* offset in the client's memory */
	uint32_t quiet;	      /* not 0: no reply */
	uint32_t set;	      /* not 0: store `value` */
	uint8_t value[LOOK_SET];
};
#define LOOK_GET_LEN offsetof(struct look_request, value) /* bytes to SEND */

/* Returns the value of a key; sizes are those of the benchmark. */
typedef uint8_t *look_find(const struct duo *s, uint64_t key, uint32_t size);

struct look_server {
	struct ibv_comp_channel *channel;
	struct ibv_cq_ex *cq; /* of the receives, with time stamps */
	struct ibv_qp *qp;
	struct hist *gets; /* ns from the arrival of a request to its answer. NULL: not measured */
	struct look_request *ring; /* in memory of its own */
	struct ibv_mr *mr;
	look_find *find;
	uint32_t posted, taken; /* receives */
	uint64_t answers;
};

/* Makes the queue pair that is connected to the client. */
struct ibv_qp *look_server_make(struct duo *s, struct look_server *l, look_find *find);
/* Posts the first receives, when the queue pair is connected. */
void look_server_start(struct look_server *l);
/*
 * Serves until a request says that it is over. While there is no request, polls the NIC, or sleeps.
 */
void look_server_run(struct duo *s, struct look_server *l, bool blocks);
/*
 * Does the same beside another thread that drives the NIC: while there is no request, only looks at
 * memory.
 */
void look_server_run_beside(struct duo *s, struct look_server *l);

#endif
