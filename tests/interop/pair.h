// SPDX-License-Identifier: BSD-2-Clause
// Declarations shared by pair.c, which connects the two ends, and pair_tests.c, which has their
// tests.
#ifndef INTEROP_PAIR_H
#define INTEROP_PAIR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	SLOT = 32 << 10,
	SLOTS = 32,	     // of the target area: one operation each
	WORD = SLOTS * SLOT, // the word for atomics
	RECV = WORD + SLOT,  // receive buffers, a slot each
	RECVS = 24,
	LANDING = RECV, // the client receives no messages: READs store their data there
	MEMORY = RECV + RECVS * SLOT,
};

struct end {
	uint32_t qpn, psn, rkey;
	uint64_t addr;
	union ibv_gid gid;
};

struct test;

struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint8_t *mem;
	struct end peer;
	int tcp, gid_index;
	uint32_t mtu;
	const struct test *test;
};

struct test {
	const char *name;
	void (*client)(struct pair *p);
	void (*server)(struct pair *p);
	int access;	    // of the server's memory, beside local write
	uint8_t rnr_retry;  // of the client
	uint32_t recv_size; // of the receives that the server posts before they meet; 0: none
};

// pair.c: all functions end the program on an error.

__attribute__((format(printf, 1, 2), noreturn)) void die(const char *fmt, ...);

// Sends a byte over TCP, or waits for it: the ends take turns.
void tell(struct pair *p);
void await(struct pair *p);

// Posts all receive buffers, each of `size` bytes.
void post_recvs(struct pair *p, uint32_t size);

// Returns the next completion; `what` names the operation in the error message.
struct ibv_wc completion(struct pair *p, const char *what);

// Posts a work request on `size` bytes of our memory from `at` on, and waits for its completion.
struct ibv_wc do_wr(struct pair *p, const char *what, struct ibv_send_wr wr, size_t at,
		    uint32_t size);

// pair_tests.c

// The largest rights of remote operations; a test may give its memory fewer.
enum { ALL = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

const struct test *find_test(const char *name);

// Fills the memory with the data that the other end expects.
void fill(struct pair *p, bool client);

#endif
