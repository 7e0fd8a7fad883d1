/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An RC queue pair whose peer is in another process. The two processes tell each other their names
 * over two pipes, as programs do that exchange queue pair numbers by hand.
 */
#ifndef ROOST_TESTS_VERBS_SIDE_H
#define ROOST_TESTS_VERBS_SIDE_H

#include "fixture.h"

#define SIDE_TIMEOUT 20 /* 4.3 seconds, eight times with growing intervals: two minutes */

/* The connection data that the two processes exchange. */
struct name {
	union ibv_gid gid;
	uint32_t qpn;
	uint64_t addr;
	uint32_t rkey;
};

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct name peer;
	uint8_t timeout;  /* of the queue pair; 0: SIDE_TIMEOUT */
	enum ibv_mtu mtu; /* that the program states; 0: IBV_MTU_1024 */
	/* Called before and after the queue pair is created, where not NULL. */
	void (*prepare)(struct side *s, struct ibv_qp_init_attr *init);
	void (*created)(struct side *s);
};

/*
 * Opens the device of ROOST_PORT, registers len bytes at buf for local writes and the remote access
 * that the flags name, and connects a queue pair with the peer that writes to `in` and reads from
 * `out`. Both sides are ready to send when it returns.
 */
void side_open(struct side *s, void *buf, size_t len, int access, int in, int out);
void side_close(struct side *s);

/*
 * Posts a READ or WRITE of n bytes between addr, which lies in the registered buffer, and the
 * peer's buffer at an offset. Returns the result of ibv_post_send().
 */
int side_post(struct side *s, enum ibv_wr_opcode opcode, uint64_t wr_id, void *addr, uint32_t n,
	      uint64_t offset);
/* Waits for the next completion. The test fails when none comes. */
struct ibv_wc side_wc(struct side *s);

#endif
