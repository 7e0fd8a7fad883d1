/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An invocation of a kernel, and the functions by which the kernel asks for accesses, replies and
 * operations on bound queue pairs. A kernel includes roost/kernel.h, which has the rules.
 */
#ifndef ROOST_KERNEL_CALL_H
#define ROOST_KERNEL_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "roost/rpc.h"

#define ROOST_QP_OPS 32 /* operations in progress of an invocation, at most */

/* The return value of a step. */
enum roost_next {
	/* the parameters, or this piece of payload, are processed; or the call has replied */
	ROOST_DONE = 0,
	ROOST_AGAIN = 1, /* the kernel asked for something; call it again when that is done */
};

enum roost_ask {
	ROOST_ASK_NONE,
	ROOST_ASK_READ,	 /* len bytes at va into buf */
	ROOST_ASK_WRITE, /* len bytes of buf to va */
	ROOST_ASK_COPY,	 /* len bytes at from to va */
	/* len bytes of buf to the caller; the kernel continues when they are acknowledged */
	ROOST_ASK_SEND,
	/* len bytes at from to the caller; the kernel continues when they are posted */
	ROOST_ASK_SEND_FROM,
	ROOST_ASK_REPLY, /* ends the call with status, and len bytes of buf */
	ROOST_ASK_REPLY_FROM,
	/*
	 * compares the 8 bytes at va (aligned) with buf and stores `from` if they are equal; buf
	 * gets the previous value
	 */
	ROOST_ASK_CAS,
	/*
	 * Operations on bound queue pairs: ask_len bytes of buf or, if buf is NULL, at va. The
	 * kernel continues when operation `qp_wait` is done.
	 */
	ROOST_ASK_QP_READ,
	ROOST_ASK_QP_WRITE,
	ROOST_ASK_QP_SEND,
	ROOST_ASK_QP_WAIT, /* posts no operation */
	ROOST_ASK_QP_WRITE_IMM,
	ROOST_ASK_QP_SEND_IMM,
	ROOST_ASK_QP_CAS, /* ask_len is 8: the previous value */
	ROOST_ASK_QP_FETCH_ADD,
	ROOST_ASK_PAUSE, /* does nothing; the kernel continues in a later turn */
};

/*
 * The status of an operation on a bound queue pair. Values below 128 are those of enum
 * ibv_wc_status.
 */
enum roost_qp_status {
	ROOST_QP_OK = 0,
	/*
	 * the operation is too long; or its address is no multiple of 8 (atomics); or the
	 * connection has no READs and atomics; or the queue pair has a hook: see stream()
	 */
	ROOST_QP_INVALID = 2,
	/* local memory is in no region of the queue pair's protection domain */
	ROOST_QP_LOCAL = 4,
	/* another operation failed before it, or the queue pair was reset or destroyed */
	ROOST_QP_FLUSHED = 5,
	ROOST_QP_BAD_RESPONSE = 7, /* the response is invalid */
	ROOST_QP_REM_INVALID = 9,  /* the peer's NAK: invalid request */
	ROOST_QP_REM_ACCESS = 10,  /* the peer's NAK: key, bounds or rights */
	ROOST_QP_REM_OP = 11,	   /* the peer's NAK: its own error */
	ROOST_QP_RETRY = 12,	   /* no answer after all retries */
	ROOST_QP_RNR = 13,	   /* the peer had no receive after all retries */
	/*
	 * no queue pair has this number, or it belongs to another processing unit than the call;
	 * nothing was sent
	 */
	ROOST_QP_NONE = 128,
	/* the queue pair is in a state in which it sends nothing; nothing was sent */
	ROOST_QP_STATE = 129,
	ROOST_QP_UNDER_WAY = 255,
};

/*
 * A region of the node that is granted to a kernel (roost_kernel_grant()), beside the region that
 * each caller names.
 */
struct roost_grant {
	uint64_t addr, len; /* the address as kernels name it; len 0: the grant was revoked */
	uint32_t access;    /* IBV_ACCESS_REMOTE_READ, _WRITE, _ATOMIC: the kernel's rights */
};

/*
 * One invocation, as its kernel sees it. The kernel reads the fields under "given" and uses the
 * functions below for the others.
 */
struct roost_call {
	/* given */
	void *state;	    /* state_size bytes of this call, zeroed when it begins */
	void *scratch;	    /* scratch_size bytes of this call, not initialized */
	void *self;	    /* the kernel's own data: from start(), or from the host */
	const void *params; /* the bytes behind the head; valid for the whole call */
	uint32_t params_len;
	uint32_t space; /* bytes of data that the reply buffer holds */
	uint64_t op;
	/* the caller: a connection's number, which is never reused; 0: the host */
	uint64_t owner;
	const struct roost_grant *grants; /* numbered from 1: grants[n - 1] */
	uint32_t num_grants;
	/*
	 * payload: the current piece, until payload() returns ROOST_DONE. A peer may share this
	 * memory and change it: read each byte once
	 */
	const uint8_t *data;
	uint32_t len;	 /* of the piece */
	uint32_t offset; /* of the piece in the payload */
	uint32_t total;	 /* of the payload */
	uint32_t last;	 /* 1: this is the last piece */
	/* given, of a stream, in addition: */
	uint64_t where;	  /* address of the bytes in the region; 0: a SEND */
	uint8_t *rewrite; /* the same bytes, to be changed in place; NULL: read only */
	/* the request: the functions below fill in these fields */
	/* where ROOST_STEPS continues; 0 at the start of parameters and of each piece */
	uint32_t resume;
	uint32_t ask;	 /* enum roost_ask */
	uint32_t status; /* enum roost_rpc_status, of a reply */
	uint32_t ask_len;
	uint64_t va, from;
	/*
	 * The regions of va and from: 0 is the caller's, n a granted one. They are 0 at the start
	 * of each step; roost_in() sets them.
	 */
	uint32_t va_in, from_in;
	/*
	 * in state or scratch; the data of a reply may also be in memory of self that remains valid
	 */
	void *buf;
	/* roost_put() */
	int (*put)(struct roost_call *c, uint64_t va, const void *buf, uint32_t len);
	/* roost_take() */
	uint32_t (*take)(struct roost_call *c);
	/* roost_give() */
	void (*give)(struct roost_call *c, uint32_t number);
	/*
	 * Not NULL if no other call waits. Performs the request without a return from the step.
	 * Returns false if the step has to return.
	 */
	bool (*at_once)(struct roost_call *c);
	/* given: operations on bound queue pairs */
	uint32_t num_qps;   /* numbers of queue pairs are 1 to this */
	uint32_t qp_posted; /* the number of the last operation, counted from 1 */
	uint32_t qp_done;   /* this operation and all before it are done */
	/* number of operations that ended with another status than ROOST_QP_OK */
	uint32_t qp_failed;
	uint8_t qp_status[ROOST_QP_OPS]; /* of the last operations: roost_qp_status() */
	/* asked for */
	uint32_t qp, qp_wait;
	uint32_t rkey;
	uint32_t charged; /* bytes: roost_charge() */
	uint64_t raddr;
	uint32_t imm;	    /* in network byte order, as imm_data of the verbs */
	uint32_t solicited; /* 1: the peer's receive counts as solicited */
	uint64_t compare, swap_add;
};
/*
 * Functions that ask for something. They return the value that the step has to return; the macros
 * of roost/kernel_steps.h do that. The kernel continues when the request is done.
 */
/* Reads `len` bytes at `va` into buf. */
static inline enum roost_next roost_read(struct roost_call *c, uint64_t va, void *buf, uint32_t len)
{
	c->ask = ROOST_ASK_READ;
	c->va = va;
	c->buf = buf;
	c->ask_len = len;
	return ROOST_AGAIN;
}

/* Writes `len` bytes of buf to `va`. */
static inline enum roost_next roost_write(struct roost_call *c, uint64_t va, const void *buf,
					  uint32_t len)
{
	c->ask = ROOST_ASK_WRITE;
	c->va = va;
	c->buf = (void *)(uintptr_t)buf;
	c->ask_len = len;
	return ROOST_AGAIN;
}

/*
 * Writes `len` bytes of buf to `va` at once, without a step in between. Whole aligned lines of 64
 * bytes are stored past the cache: use it for streams that scatter many pieces. The checks are
 * those of every access. Returns 0, or another value if the access is refused: the call then ends
 * with ROOST_RPC_ACCESS when the step returns, regardless of the value that the step returns.
 */
static inline int roost_put(struct roost_call *c, uint64_t va, const void *buf, uint32_t len)
{
	return c->put(c, va, buf, len);
}

/*
 * Takes a resource of the kernel and returns its number. Returns 0 if none is free, the connection
 * or its peer has its share, or the node is at its limit of memory. The resource belongs to the
 * connection until it is given back or the connection ends. A resource for one call must be given
 * back at the end of the call, and in cut().
 */
static inline uint32_t roost_take(struct roost_call *c)
{
	return c->take(c);
}

/* Gives a resource back. */
static inline void roost_give(struct roost_call *c, uint32_t number)
{
	c->give(c, number);
}

/*
 * Charges bytes of the kernel's own memory to the turn of the processing unit, as an access to as
 * many bytes is charged. A kernel that works on long data of its own calls this with what the step
 * has read and written, and returns after a few 100 KiB, so that other queue pairs have their
 * turns.
 */
static inline void roost_charge(struct roost_call *c, uint32_t bytes)
{
	c->charged += bytes;
}

/* Copies `len` bytes at `from` to `to`. */
static inline enum roost_next roost_copy(struct roost_call *c, uint64_t to, uint64_t from,
					 uint32_t len)
{
	c->ask = ROOST_ASK_COPY;
	c->va = to;
	c->from = from;
	c->ask_len = len;
	return ROOST_AGAIN;
}

/*
 * Compares the 8 bytes at `va` with *old and stores `swap` if they are equal; *old gets the
 * previous value. Atomic to the CPUs of this machine and to atomics of all NICs. The region must
 * allow atomics.
 */
static inline enum roost_next roost_cas(struct roost_call *c, uint64_t va, uint64_t *old,
					uint64_t swap)
{
	c->ask = ROOST_ASK_CAS;
	c->va = va;
	c->buf = old;
	c->from = swap;
	c->ask_len = 8;
	return ROOST_AGAIN;
}

/*
 * Continues in a later turn, some microseconds later. A call that waits for something of its own,
 * such as a file, pauses until that is done. Pauses do not count as steps of the call. If payload()
 * pauses at the last piece, the piece counts as processed, and `data` is NULL.
 */
static inline enum roost_next roost_pause(struct roost_call *c)
{
	c->ask = ROOST_ASK_PAUSE;
	return ROOST_AGAIN;
}

/* Sends `len` bytes of buf to the caller, before the reply. */
static inline enum roost_next roost_send(struct roost_call *c, const void *buf, uint32_t len)
{
	c->ask = ROOST_ASK_SEND;
	c->buf = (void *)(uintptr_t)buf;
	c->ask_len = len;
	return ROOST_AGAIN;
}

/* Sends `len` bytes of the region, at `from`, to the caller. */
static inline enum roost_next roost_send_from(struct roost_call *c, uint64_t from, uint32_t len)
{
	c->ask = ROOST_ASK_SEND_FROM;
	c->from = from;
	c->ask_len = len;
	return ROOST_AGAIN;
}

/* Ends the call. A call that sent data before must reply without data. */
static inline enum roost_next roost_reply(struct roost_call *c, uint32_t status, const void *buf,
					  uint32_t len)
{
	c->ask = ROOST_ASK_REPLY;
	c->status = status;
	c->buf = (void *)(uintptr_t)buf;
	c->ask_len = len;
	return ROOST_DONE;
}

/* Ends the call with `len` bytes of the region, at `from`. */
static inline enum roost_next roost_reply_from(struct roost_call *c, uint64_t from, uint32_t len)
{
	c->ask = ROOST_ASK_REPLY_FROM;
	c->status = ROOST_RPC_OK;
	c->from = from;
	c->ask_len = len;
	return ROOST_DONE;
}

/*
 * Redirects a copy to two regions, granted ones or the caller's (0): roost_in2(c, to, from,
 * roost_copy(...)). Without a redirection every access goes to the caller's region, so a caller
 * cannot reach the node's memory by an address in its parameters.
 */
static inline enum roost_next roost_in2(struct roost_call *c, uint32_t to, uint32_t from,
					enum roost_next next)
{
	c->va_in = to;
	c->from_in = from;
	return next;
}

/* Redirects a request to granted region n: roost_in(c, n, roost_read(c, va, buf, len)). */
static inline enum roost_next roost_in(struct roost_call *c, uint32_t n, enum roost_next next)
{
	return roost_in2(c, n, n, next);
}

/*
 * Posts an operation to bound queue pair `qp`, numbered from 1 (roost_kernel_bind_qp()).
 *
 *   - Local memory is `len` bytes at buf, in state, scratch or memory of self that remains valid;
 *     or, if buf is NULL, at `va` of the caller's region, or of another one (roost_in()).
 *   - The operation gets the number c->qp_posted + 1.
 *   - The kernel continues when the operation is posted. `buf` belongs to the NIC until the
 *     operation is done.
 *   - The kernel waits while ROOST_QP_OPS operations are in progress, or the queue pair is full.
 *   - A failed operation does not end the call: see roost_qp_status().
 */
static inline enum roost_next roost_qp_post(struct roost_call *c, enum roost_ask what, uint32_t qp,
					    const void *buf, uint64_t va, uint32_t len)
{
	c->ask = what;
	c->qp = qp;
	c->buf = (void *)(uintptr_t)buf;
	c->va = va;
	c->ask_len = len;
	c->qp_wait = c->qp_done;
	c->solicited = 0;
	return ROOST_AGAIN;
}

/* Posts a READ of `len` bytes at raddr of the peer, as roost_qp_post() does. */
static inline enum roost_next roost_qp_read(struct roost_call *c, uint32_t qp, uint64_t raddr,
					    uint32_t rkey, void *buf, uint64_t va, uint32_t len)
{
	c->raddr = raddr;
	c->rkey = rkey;
	return roost_qp_post(c, ROOST_ASK_QP_READ, qp, buf, va, len);
}

/* Posts a WRITE of `len` bytes to raddr of the peer, as roost_qp_post() does. */
static inline enum roost_next roost_qp_write(struct roost_call *c, uint32_t qp, uint64_t raddr,
					     uint32_t rkey, const void *buf, uint64_t va,
					     uint32_t len)
{
	c->raddr = raddr;
	c->rkey = rkey;
	return roost_qp_post(c, ROOST_ASK_QP_WRITE, qp, buf, va, len);
}

/* Posts a SEND of `len` bytes, as roost_qp_post() does. */
static inline enum roost_next roost_qp_send(struct roost_call *c, uint32_t qp, const void *buf,
					    uint64_t va, uint32_t len)
{
	return roost_qp_post(c, ROOST_ASK_QP_SEND, qp, buf, va, len);
}

/*
 * Posts a WRITE with immediate data, in network byte order as in the verbs (htonl). The peer gets
 * these data in a receive completion. The rules are those of roost_qp_post().
 */
static inline enum roost_next roost_qp_write_imm(struct roost_call *c, uint32_t qp, uint64_t raddr,
						 uint32_t rkey, const void *buf, uint64_t va,
						 uint32_t len, uint32_t imm)
{
	c->raddr = raddr;
	c->rkey = rkey;
	c->imm = imm;
	return roost_qp_post(c, ROOST_ASK_QP_WRITE_IMM, qp, buf, va, len);
}

/* Posts a SEND with immediate data, as roost_qp_write_imm() does. */
static inline enum roost_next roost_qp_send_imm(struct roost_call *c, uint32_t qp, const void *buf,
						uint64_t va, uint32_t len, uint32_t imm)
{
	c->imm = imm;
	return roost_qp_post(c, ROOST_ASK_QP_SEND_IMM, qp, buf, va, len);
}

/*
 * Posts a compare-and-swap of the 8 bytes at raddr, a multiple of 8. The previous value is stored
 * in *old or, if old is NULL, at `va`. The swap took place if the previous value equals `compare`.
 * Byte order is that of the peer's CPU. The rules are those of roost_qp_post().
 */
static inline enum roost_next roost_qp_cas(struct roost_call *c, uint32_t qp, uint64_t raddr,
					   uint32_t rkey, uint64_t *old, uint64_t va,
					   uint64_t compare, uint64_t swap)
{
	c->raddr = raddr;
	c->rkey = rkey;
	c->compare = compare;
	c->swap_add = swap;
	return roost_qp_post(c, ROOST_ASK_QP_CAS, qp, old, va, 8);
}

/* Posts an atomic addition to the 8 bytes at raddr, as roost_qp_cas() does. */
static inline enum roost_next roost_qp_fetch_add(struct roost_call *c, uint32_t qp, uint64_t raddr,
						 uint32_t rkey, uint64_t *old, uint64_t va,
						 uint64_t add)
{
	c->raddr = raddr;
	c->rkey = rkey;
	c->swap_add = add;
	return roost_qp_post(c, ROOST_ASK_QP_FETCH_ADD, qp, old, va, 8);
}

/*
 * Marks a SEND, or a WRITE with immediate, as solicited: roost_qp_solicit(c, roost_qp_send(...)).
 * Its receive completion then raises the event of a CQ that is armed for solicited completions
 * (ibv_req_notify_cq()).
 */
static inline enum roost_next roost_qp_solicit(struct roost_call *c, enum roost_next next)
{
	c->solicited = 1;
	return next;
}

/*
 * Waits until operation `number` and all before it are done. c->qp_done + 1 is the oldest operation
 * in progress, c->qp_posted the newest.
 */
static inline enum roost_next roost_qp_wait(struct roost_call *c, uint32_t number)
{
	c->ask = ROOST_ASK_QP_WAIT;
	c->qp_wait = number;
	return ROOST_AGAIN;
}

/*
 * Waits until the operation that was just posted is done: roost_qp_then(c, roost_qp_write(...)).
 */
static inline enum roost_next roost_qp_then(struct roost_call *c, enum roost_next next)
{
	c->qp_wait = c->qp_posted + 1;
	return next;
}

/*
 * Returns the status of one of the last ROOST_QP_OPS operations. A new operation reuses the entry
 * of the operation that is ROOST_QP_OPS before it. A kernel that needs the status of the oldest
 * operation waits for it before it posts (roost_qp_wait(c, c->qp_done + 1)).
 */
static inline enum roost_qp_status roost_qp_status(const struct roost_call *c, uint32_t number)
{
	return (enum roost_qp_status)c->qp_status[number % ROOST_QP_OPS];
}

#endif
