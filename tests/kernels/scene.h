/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For tests of kernels that post work requests: a node with bound queue pairs, their peers on
 * separate NICs, and a kernel `script`, which executes the commands in its parameters and replies
 * with their status.
 */
#ifndef ROOST_TESTS_KERNELS_SCENE_H
#define ROOST_TESTS_KERNELS_SCENE_H

#include "kernels/local_call.h"
#include "world.h"

#define SCRIPT_OP 0x1000ull
#define PEERS	  2
#define MEM	  (256u << 10)

/*
 * NIC 0 is the node. bound[i] is connected to peer[i], which has its own NIC. `caller` is connected
 * to `called`, of the node.
 */
struct scene {
	struct world w;
	struct kernel_runtime *f;
	struct ep bound[PEERS], peer[PEERS], caller, called;
};
extern struct scene *const s;

/* ---- the kernel ---- */

enum what { READ, WRITE, SEND, WAIT, FILL, SLEEPY };

struct cmd {
	uint8_t what;
	uint8_t then;	/* waits for it */
	uint8_t region; /* local bytes are at `at` of the region, not of the scratch memory */
	uint8_t fill;
	uint32_t qp, rkey, len;
	uint64_t raddr, at;
};

struct told {
	uint32_t posted, done, failed, qps;
	uint8_t status[ROOST_QP_OPS]; /* of operation i + 1 */
};

extern const struct roost_kernel script_kernel;
extern unsigned cuts; /* number of calls of its cut() */

/* ---- the scene ---- */

struct shape {
	struct sim_params sp;
	bool loop;
	uint8_t retry_cnt, rnr_retry, timeout;
};

extern const struct shape plain, over_loop;

void bind_qp(uint64_t op, struct ep *e, unsigned want);
void open_scene(uint64_t seed, const struct shape *shape);
void close_scene(void);
/* Runs a turn of each NIC, or advances the time. Returns false if no event is left. */
bool turn(void);
struct local_call *start(uint64_t op, const void *params, uint32_t len, const struct ep *region,
			 void *reply, uint32_t space);
/* Runs it to its end, and checks the status. */
void finish(struct local_call *p, uint32_t status);
struct told play(const struct cmd *cmds, unsigned n, const struct ep *region);
/* Returns a command on bound queue pair `peer`, with a wait. */
struct cmd rdma(enum what what, unsigned peer, uint64_t roff, uint32_t at, uint32_t len);
struct cmd fill(uint32_t at, uint8_t byte, uint32_t len);
struct cmd with(struct cmd c, bool then, bool region, uint64_t at);
/* Fails if a byte has another value. */
void filled(const uint8_t *p, uint8_t byte, uint32_t n);

#define PLAY(region, ...)                                                                          \
	play((const struct cmd[]){__VA_ARGS__},                                                    \
	     sizeof((const struct cmd[]){__VA_ARGS__}) / sizeof(struct cmd), region)

#endif
