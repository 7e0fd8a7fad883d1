/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two connected RC queue pairs of one device in one process, as most tests here need them.
 * Everything goes through the public verbs. The address is a loopback one made from the process id,
 * so that tests run beside each other; ROOST_PORT, if set, is kept. VERBS_TEST_PORT is the kind of
 * port, udp or shm, and VERBS_TEST_OPTIONS what follows the address (",loss=0.01"). VERBS_TEST_V6
 * takes an IPv6 address instead. With two processing units (ROOST_PUS=2) each QP has one of its
 * own, and they talk in packets.
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

/* Waits end after so long: only a failure needs it. */
#define TIMEOUT_S 60

struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq[2]; /* send and receive completions of each side */
	struct ibv_qp *qp[2];
	struct ibv_mr *mr[2];
	uint8_t *buf[2];
};

struct pair_options {
	struct ibv_qp_cap cap;
	uint64_t send_ops; /* of the extended QP; 0: plain ones */
	int cqe;
	bool sig_all;
	bool leave_reset; /* not connected */
};

/*
 * False, and said: VERBS_TEST_V6 wants an address of IPv6 for each process, over udp on a device
 * that can have groups, and there is no network to be had for that. Before anything else.
 */
bool network_ready(void);
/* Sets ROOST_PORT; `again`: even if it is set, as in a forked child. */
void choose_port(bool again);
struct ibv_context *open_device(void);

/* NULL: 16 send and 16 receive WQEs, one SGE, 64 CQEs, connected. */
void pair_open(struct pair *p, const struct pair_options *o);
/* With room for 64 work requests, and the op-codes of calls. */
void pair_open_rpc(struct pair *p);
void pair_close(struct pair *p);
int to_init(struct pair *p, int side);
int to_rtr(struct pair *p, int side);
int to_rts(struct pair *p, int side);

/*
 * One WRITE of n bytes from buffer 0 to buffer 1, or what the fields say; the answer of
 * ibv_post_send.
 */
struct ibv_send_wr write_wr(const struct pair *p, struct ibv_sge *sge, uint64_t wr_id, uint32_t n);
int post_one(struct ibv_qp *qp, struct ibv_send_wr *wr);
int post_recv_one(struct pair *p, int side, uint64_t wr_id, uint32_t n);

/* Polls until n completions have come. Fails the test when they do not. */
void wait_wcs(struct ibv_cq *cq, struct ibv_wc *wc, int n);
/* One completion, which must be good. */
struct ibv_wc wait_good(struct ibv_cq *cq);
/* Drives the NIC for a moment without taking anything from the CQ: polls for zero completions. */
void settle(struct ibv_cq *cq);
/* Drives until n completions wait in the CQ, and takes none. */
void wait_pending(struct ibv_cq *cq, uint32_t n);

#endif
