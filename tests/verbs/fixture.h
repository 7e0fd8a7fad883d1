/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two connected RC queue pairs of one device in one process, as most tests here need them. All
 * calls go through the public verbs. The address is a loopback address made from the process id, so
 * that tests can run at the same time. ROOST_PORT is kept if it is set. VERBS_TEST_PORT is the kind
 * of port, udp or shm. VERBS_TEST_OPTIONS is appended to the address (",loss=0.01"). VERBS_TEST_V6
 * selects an IPv6 address. VERBS_TEST_ADDRESS is one address for all processes. With two processing
 * units (ROOST_PUS=2) each QP has its own unit, and they exchange packets.
 */
#ifndef ROOST_TESTS_VERBS_FIXTURE_H
#define ROOST_TESTS_VERBS_FIXTURE_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the standard headers it relies on */
#include <cmocka.h>

#define BUF_SIZE 65536

/* Limit of waits. Only a failing test reaches it. */
#define TIMEOUT_S 60

struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq[2]; /* send and receive completions of each side */
	struct ibv_qp *qp[2];
	struct ibv_mr *mr[2];
	uint8_t *buf[2];
	uint32_t psn; /* added to the first PSN, 100 */
};

struct pair_options {
	struct ibv_qp_cap cap;
	uint64_t send_ops; /* of the extended QP; 0: plain QPs */
	int cqe;
	bool sig_all;
	bool leave_reset; /* the QPs are not connected */
};

/*
 * Returns false and prints why if VERBS_TEST_V6 is set and there can be no network for it. It needs
 * an IPv6 address for each process, over udp on a device that supports groups. Call it first.
 */
bool network_ready(void);
/* Sets ROOST_PORT. With `again`, even if it is set, as in a forked child. */
void choose_port(bool again);
struct ibv_context *open_device(void);

/* NULL: 16 send and 16 receive WQEs, one SGE, 64 CQEs, connected. */
void pair_open(struct pair *p, const struct pair_options *o);
/* Opens a pair with space for 64 work requests, and enables the op-codes of calls. */
void pair_open_rpc(struct pair *p);
void pair_close(struct pair *p);
int to_init(struct pair *p, int side);
int to_rtr(struct pair *p, int side);
int to_rts(struct pair *p, int side);

/*
 * Makes a WRITE of n bytes from buffer 0 to buffer 1. post_one() posts a request, and returns the
 * result of ibv_post_send().
 */
struct ibv_send_wr write_wr(const struct pair *p, struct ibv_sge *sge, uint64_t wr_id, uint32_t n);
int post_one(struct ibv_qp *qp, struct ibv_send_wr *wr);
int post_recv_one(struct pair *p, int side, uint64_t wr_id, uint32_t n);

/*
 * A thread calls call(arg), which waits for an acknowledgement of this thread. The thread is
 * cancelled at the first cancellation point of the call.
 */
void cancel_call(void *(*call)(void *), void *arg);

/* Polls until n completions have come. Fails the test if they do not come. */
void wait_wcs(struct ibv_cq *cq, struct ibv_wc *wc, int n);
/* Polls for one completion, which must be successful. */
struct ibv_wc wait_good(struct ibv_cq *cq);
/* Drives the NIC for a moment and takes nothing from the CQ: polls for zero completions. */
void settle(struct ibv_cq *cq);
/* Drives the NIC until n completions wait in the CQ. Takes none. */
void wait_pending(struct ibv_cq *cq, uint32_t n);

#endif
