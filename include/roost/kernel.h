/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels: processing next to the memory of a NIC, called by its peers. A kernel sees parameters
 * and payload, never packets, and no memory but by asking for it:
 *
 *	#include <roost/kernel.h>
 *
 *	struct state { uint64_t where, value; };
 *
 *	static enum roost_next run(struct roost_call *c)
 *	{
 *		struct state *s = c->state;
 *
 *		ROOST_STEPS(c);
 *		if (c->params_len != 8)
 *			ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
 *		ROOST_READ(c, *(const uint64_t *)c->params, &s->where, 8);	// a pointer
 *		ROOST_READ(c, s->where, &s->value, 8);				// what it points to
 *		ROOST_REPLY(c, &s->value, 8);
 *		ROOST_STEPS_END;
 *	}
 *
 *	const struct roost_kernel follow = {
 *		.abi = ROOST_KERNEL_ABI, .name = "follow", .version = 1, .op = 0x1000,
 *		.state_size = sizeof(struct state), .params = run,
 *	};
 *
 * At each ROOST_READ the function returns: the access is on its way to the cache, and other calls
 * run meanwhile. It is called again when the bytes are there, and goes on behind. So local
 * variables do not keep their values across these macros, state does; and none of them may stand
 * inside a `switch` of your own. A refused access ends the call with ROOST_RPC_ACCESS: no code is
 * needed for it.
 *
 * Addresses are those of the region that the call's key names, as the caller sees it. Numbers in
 * memory and parameters are in whatever byte order you make them; parameters are aligned to 8.
 *
 * A kernel's functions run on the thread that drives the NIC: they must not block, sleep or
 * allocate. One that crashes, or does not return for a fifth of a second (a third, when its thread
 * does not run meanwhile), is left where it is, for good: its call ends with ROOST_RPC_FAULT or
 * ROOST_RPC_STUCK, and the kernel is out of service until it is replaced. A lock that it held then
 * stays taken. Calls of one QP never run at the same time; calls of different QPs may, when the NIC
 * has several processing units: what `self` points to is shared.
 */
#ifndef ROOST_KERNEL_H
#define ROOST_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "roost/rpc.h"

/*
 * Counts up with each change of the structs below: a node refuses objects of another number. From
 * the first release on it and the symbols of ROOST_0.1 bind; until then functions, too, may change.
 */
#define ROOST_KERNEL_ABI       3
#define ROOST_KERNEL_MAX_STATE 16384 /* state_size + scratch_size */
#define ROOST_KERNEL_NAME      32    /* bytes of a name, with the 0 at its end; printable ones */

#define ROOST_KERNEL_RESOURCES 256 /* that a kernel may have */

#define ROOST_KERNEL_GRANTS 8  /* regions that the node grants a kernel */
#define ROOST_KERNEL_QPS    64 /* queue pairs that it binds to one */
#define ROOST_QP_OPS	    32 /* operations on these that an invocation has under way at most */

/* What a step returns. */
enum roost_next {
	/* parameters: these are dealt with; payload: this piece is; or the call has replied */
	ROOST_DONE = 0,
	ROOST_AGAIN = 1, /* it asked for something: call me again when it is there */
};

enum roost_ask {
	ROOST_ASK_NONE,
	ROOST_ASK_READ,	 /* len bytes at va into buf */
	ROOST_ASK_WRITE, /* len bytes of buf to va */
	ROOST_ASK_COPY,	 /* len bytes at from to va */
	/* len bytes of buf to the caller; goes on when they are acknowledged */
	ROOST_ASK_SEND,
	/* len bytes at from to the caller; goes on when they are on their way */
	ROOST_ASK_SEND_FROM,
	ROOST_ASK_REPLY, /* the end: status, and len bytes of buf */
	ROOST_ASK_REPLY_FROM,
	/*
	 * 8 bytes at va, aligned: when they are as in buf, `from` takes their place; buf gets what
	 * was there
	 */
	ROOST_ASK_CAS,
	/*
	 * On bound queue pairs: ask_len bytes of buf or, when that is NULL, at va. Go on when the
	 * operation `qp_wait` is done.
	 */
	ROOST_ASK_QP_READ,
	ROOST_ASK_QP_WRITE,
	ROOST_ASK_QP_SEND,
	ROOST_ASK_QP_WAIT, /* nothing new */
	ROOST_ASK_QP_WRITE_IMM,
	ROOST_ASK_QP_SEND_IMM,
	ROOST_ASK_QP_CAS, /* ask_len is 8: what was there */
	ROOST_ASK_QP_FETCH_ADD,
};

/*
 * How an operation on a bound queue pair ended. Those of its NIC have the values of enum
 * ibv_wc_status.
 */
enum roost_qp_status {
	ROOST_QP_OK = 0,
	/*
	 * too long; an atomic not at a multiple of 8; or it, or a READ, where the ends agreed to
	 * none; see stream()
	 */
	ROOST_QP_INVALID = 2,
	/* the memory here: not in a region of the queue pair's protection domain, or gone */
	ROOST_QP_LOCAL = 4,
	/* it was not done when another one failed, or the queue pair was reset or destroyed */
	ROOST_QP_FLUSHED = 5,
	ROOST_QP_BAD_RESPONSE = 7, /* what came back for it makes no sense */
	ROOST_QP_REM_INVALID = 9,  /* NAKs: invalid request, */
	ROOST_QP_REM_ACCESS = 10,  /* key, bounds or rights there, */
	ROOST_QP_REM_OP = 11,	   /* the other end's own trouble */
	ROOST_QP_RETRY = 12,	   /* nobody answered, however often it was sent */
	ROOST_QP_RNR = 13,	   /* the other end had no receive, however often it was sent */
	/*
	 * no queue pair of this number, or one that another processing unit runs than the call's;
	 * nothing was sent
	 */
	ROOST_QP_NONE = 128,
	/* it sends nothing in its state: an error before, perhaps; nothing was sent */
	ROOST_QP_STATE = 129,
	ROOST_QP_UNDER_WAY = 255,
};

/*
 * A region of the node's own, granted to a kernel beside the one that each caller names
 * (roost_kernel_grant()).
 */
struct roost_grant {
	uint64_t addr, len; /* as kernels name it; len 0: there is none of this number any more */
	uint32_t access;    /* IBV_ACCESS_REMOTE_READ, _WRITE, _ATOMIC: what the kernel may */
};

/* One invocation, as its kernel sees it. */
struct roost_call {
	/* given */
	void *state;	    /* state_size bytes of this call, zeroed at its start */
	void *scratch;	    /* scratch_size bytes of this call, of any contents */
	void *self;	    /* of the kernel: what start() left, or what the host gave with it */
	const void *params; /* behind the head; there for the whole call */
	uint32_t params_len;
	uint32_t room; /* bytes of data that the reply can hold */
	uint64_t op;
	/* who called: a connection's number, which no other one ever has; 0: the host */
	uint64_t owner;
	const struct roost_grant *grants; /* numbered from 1: grants[n - 1] */
	uint32_t num_grants;
	/*
	 * payload: one piece of it, as long as payload() has not returned ROOST_DONE; a peer may
	 * share this memory: read each byte once
	 */
	const uint8_t *data;
	uint32_t len;	 /* of the piece */
	uint32_t offset; /* of the piece in the payload */
	uint32_t total;	 /* of the payload */
	uint32_t last;	 /* 1: nothing follows */
	/* of a stream, beside these: */
	uint64_t where;	  /* the address in the region where they are, or will be; 0: a SEND's */
	uint8_t *rewrite; /* the same bytes, to be changed in place; NULL: they are only seen */
	/* asked for: filled by the functions below */
	/* where ROOST_STEPS goes on; 0 at the start of parameters and of each piece */
	uint32_t resume;
	uint32_t ask;	 /* enum roost_ask */
	uint32_t status; /* enum roost_rpc_status, of a reply */
	uint32_t ask_len;
	uint64_t va, from;
	/*
	 * The regions of va and from: 0 is the caller's, n a granted one. 0 at each step, roost_in()
	 * changes them.
	 */
	uint32_t va_in, from_in;
	/* in state or scratch; data of a reply also in memory of self that stays */
	void *buf;
	/* roost_put() */
	int (*put)(struct roost_call *c, uint64_t va, const void *buf, uint32_t len);
	/* roost_take() */
	uint32_t (*take)(struct roost_call *c);
	/* roost_give() */
	void (*give)(struct roost_call *c, uint32_t number);
	/*
	 * Not NULL: nobody else waits. Does what was asked for, as if the kernel had been called
	 * again; false: it has to be, after all.
	 */
	bool (*at_once)(struct roost_call *c);
	/* given: operations on bound queue pairs */
	uint32_t num_qps;   /* numbers of queue pairs are 1 to this */
	uint32_t qp_posted; /* the number of the last operation, counted from 1 */
	uint32_t qp_done;   /* this one and all before it are done */
	/* how many of all ended with another status than ROOST_QP_OK */
	uint32_t qp_failed;
	uint8_t qp_status[ROOST_QP_OPS]; /* of the last ones: roost_qp_status() */
	/* asked for */
	uint32_t qp, qp_wait;
	uint32_t rkey;
	uint64_t raddr;
	uint32_t imm;	    /* in network byte order, as imm_data of the verbs */
	uint32_t solicited; /* 1: the other end's event is wanted */
	uint64_t compare, swap_add;
};

/* Describes a kernel; has to stay as long as it is deployed. */
struct roost_kernel {
	uint32_t abi;	  /* ROOST_KERNEL_ABI */
	uint32_t version; /* its own */
	const char *name;
	uint64_t op; /* calls name it by this */
	uint32_t state_size, scratch_size;
	/*
	 * When it is deployed: *self is what the host gave with it. 0 or -errno. And when it goes,
	 * after its last call. May be NULL.
	 */
	int (*start)(void **self);
	void (*stop)(void *self);
	/*
	 * A call begins. Without a reply by the time it returns ROOST_DONE the call ends with
	 * ROOST_RPC_OK and no data; one with payload goes on with that.
	 */
	enum roost_next (*params)(struct roost_call *c);
	/*
	 * A piece of payload, in order. NULL: it takes none. Payload that no parameters announced
	 * comes without them.
	 */
	enum roost_next (*payload)(struct roost_call *c);
	/*
	 * A piece of what a connection writes, where the kernel is attached to that
	 * (roost_qp_attach()): of a message of `total` bytes, in order, each byte once, as payload;
	 * messages follow each other, each from offset 0. An empty piece with total 0 is the end of
	 * the stream: what is replied to it, the host gets. A reply before that ends the hook, not
	 * the stream. NULL: it can't be attached.
	 *
	 * It may post to bound queue pairs, and wait: then the stream waits too, once the next
	 * piece is there. Behind such an operation `data` and `rewrite` are NULL, since the packet
	 * may be gone; what came in is in memory, at `where`. (With `resizes` data stays.) On the
	 * way out it posts to queue pairs without a hook on theirs, others are ROOST_QP_INVALID.
	 * The stream waits for params() likewise, and roost_hook_detach() is EBUSY as long as the
	 * kernel waits at the end.
	 */
	enum roost_next (*stream)(struct roost_call *c);
	bool rewrites; /* stream() changes what leaves: c->rewrite */
	/*
	 * stream() makes something else of WRITEs that leave, of any length: what it sends
	 * (ROOST_SEND), in order. A WRITE so becomes several, to addresses that follow each other;
	 * what a piece with `last` leaves unsent goes with the next message. SENDs are not shown.
	 */
	bool resizes;
	/*
	 * Instead of start(), when it replaces `old`, which may be another version of it: *self is
	 * the old one's. Calls that are under way go on with the old one, and with what it had as
	 * self, beside the new one's.
	 *
	 * With *self left as it is, both share it: it is the new one's, whose stop() is called when
	 * neither has calls any more, and the old one's stop() is not called. With another *self
	 * the old one's stop() is called after its last call, as ever. 0; or -errno: then all stays
	 * as it was. NULL: start() is called, and the two have nothing in common.
	 */
	int (*take_over)(void **self, const struct roost_kernel *old);
	/*
	 * A call has ended without the kernel: its QP went, an access was refused, it went on for
	 * too long, its payload stopped short. It has its state, self and parameters, asks for
	 * nothing, and gives back what it took from self. Not after a crash. May be NULL.
	 */
	void (*cut)(struct roost_call *c);
	/*
	 * Resources: what calls take of `self`, beside their own state. The kernel has `resources`
	 * of them, at most ROOST_KERNEL_RESOURCES; they have numbers from 1, and belong to the
	 * connection whose call took them by roost_take(), or to the host. A connection may have
	 * `resources_each` (0: all), and all connections of one peer (an address) half of them.
	 * Each counts as `resource_bytes` of the node's memory from when it is first taken.
	 * Versions that share a `self` share them, as many as the first of these said.
	 */
	uint32_t resources, resources_each;
	uint64_t resource_bytes;
	/*
	 * The connection that owned this resource has ended, after the last of its calls (which
	 * have been told by cut()), and has not given it back. Nobody gets the number before this
	 * returns. Other connections' calls may use the resource meanwhile, on other processing
	 * units. NULL: it is given back without a word.
	 */
	void (*ended)(void *self, uint32_t number);
};

/*
 * In a shared object, once, with the name of its descriptor: makes it a kernel that can be loaded
 * into a running NIC (roost_kernel_load(), `roost kernel load`).
 */
#ifdef __cplusplus
#define ROOST_KERNEL_EXPORT(descriptor)                                                            \
	extern "C" __attribute__((visibility("default"), used))                                    \
	const struct roost_kernel *const roost_kernel_exported = &(descriptor)
#else
#define ROOST_KERNEL_EXPORT(descriptor)                                                            \
	__attribute__((visibility("default"), used))                                               \
	const struct roost_kernel *const roost_kernel_exported = &(descriptor)
#endif
#define ROOST_KERNEL_SYMBOL "roost_kernel_exported"

static inline enum roost_next roost_read(struct roost_call *c, uint64_t va, void *buf, uint32_t len)
{
	c->ask = ROOST_ASK_READ;
	c->va = va;
	c->buf = buf;
	c->ask_len = len;
	return ROOST_AGAIN;
}

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
 * Writes at once, without a step in between, and past the cache where whole lines of 64 bytes are
 * aligned: for streams that scatter many pieces. The checks are those of every access. 0; or not 0:
 * it was refused, and the call ends with ROOST_RPC_ACCESS when the kernel returns, whatever that
 * returns.
 */
static inline int roost_put(struct roost_call *c, uint64_t va, const void *buf, uint32_t len)
{
	return c->put(c, va, buf, len);
}

/*
 * A resource of the kernel's: its number, or 0 when there is none, the connection or its peer has
 * its share, or the node's memory is at its limit. It is the connection's until it is given back or
 * the connection ends: what a call alone needs, it gives back at its end, and cut() does.
 */
static inline uint32_t roost_take(struct roost_call *c)
{
	return c->take(c);
}

static inline void roost_give(struct roost_call *c, uint32_t number)
{
	c->give(c, number);
}

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
 * Atomic, to this machine's CPUs and to all NICs' atomics. *old: what is expected there, then what
 * was. Needs the right to atomics.
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

static inline enum roost_next roost_send(struct roost_call *c, const void *buf, uint32_t len)
{
	c->ask = ROOST_ASK_SEND;
	c->buf = (void *)(uintptr_t)buf;
	c->ask_len = len;
	return ROOST_AGAIN;
}

static inline enum roost_next roost_send_from(struct roost_call *c, uint64_t from, uint32_t len)
{
	c->ask = ROOST_ASK_SEND_FROM;
	c->from = from;
	c->ask_len = len;
	return ROOST_AGAIN;
}

/* Ends the call. Data only where none was sent before. */
static inline enum roost_next roost_reply(struct roost_call *c, uint32_t status, const void *buf,
					  uint32_t len)
{
	c->ask = ROOST_ASK_REPLY;
	c->status = status;
	c->buf = (void *)(uintptr_t)buf;
	c->ask_len = len;
	return ROOST_DONE;
}

static inline enum roost_next roost_reply_from(struct roost_call *c, uint64_t from, uint32_t len)
{
	c->ask = ROOST_ASK_REPLY_FROM;
	c->status = ROOST_RPC_OK;
	c->from = from;
	c->ask_len = len;
	return ROOST_DONE;
}

/*
 * The same in granted regions: roost_in(c, n, roost_read(c, va, buf, len)). What a caller says goes
 * to the caller's region, unless the kernel names another: so no caller reads the node's memory by
 * an address in its parameters. In a copy both ends are named.
 */
static inline enum roost_next roost_in2(struct roost_call *c, uint32_t to, uint32_t from,
					enum roost_next next)
{
	c->va_in = to;
	c->from_in = from;
	return next;
}

static inline enum roost_next roost_in(struct roost_call *c, uint32_t n, enum roost_next next)
{
	return roost_in2(c, n, n, next);
}

/*
 * READs, WRITEs, SENDs and atomics of the kernel's own, on queue pair `qp` of those that the host
 * bound to it (roost_kernel_bind_qp()), numbered from 1. The bytes here are `len` at buf, in the
 * state, the scratch or memory of self that stays; or, with buf NULL, at `va` of the region, or
 * another one (roost_in()). Each of these functions posts an operation, which gets the number
 * c->qp_posted + 1, and goes on at once; `buf` is the NIC's until that is done. It waits first when
 * ROOST_QP_OPS are under way, or the queue pair has no room. An operation that fails does not end
 * the kernel: roost_qp_status().
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

static inline enum roost_next roost_qp_read(struct roost_call *c, uint32_t qp, uint64_t raddr,
					    uint32_t rkey, void *buf, uint64_t va, uint32_t len)
{
	c->raddr = raddr;
	c->rkey = rkey;
	return roost_qp_post(c, ROOST_ASK_QP_READ, qp, buf, va, len);
}

static inline enum roost_next roost_qp_write(struct roost_call *c, uint32_t qp, uint64_t raddr,
					     uint32_t rkey, const void *buf, uint64_t va,
					     uint32_t len)
{
	c->raddr = raddr;
	c->rkey = rkey;
	return roost_qp_post(c, ROOST_ASK_QP_WRITE, qp, buf, va, len);
}

static inline enum roost_next roost_qp_send(struct roost_call *c, uint32_t qp, const void *buf,
					    uint64_t va, uint32_t len)
{
	return roost_qp_post(c, ROOST_ASK_QP_SEND, qp, buf, va, len);
}

/*
 * With immediate, in network byte order as in the verbs (htonl): the other end gets it with a
 * receive.
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

static inline enum roost_next roost_qp_send_imm(struct roost_call *c, uint32_t qp, const void *buf,
						uint64_t va, uint32_t len, uint32_t imm)
{
	c->imm = imm;
	return roost_qp_post(c, ROOST_ASK_QP_SEND_IMM, qp, buf, va, len);
}

/*
 * Atomics on the 8 bytes at raddr, a multiple of 8: what was there comes to `old` or, with that
 * NULL, to `va`; it was `compare` when the swap has taken place. Numbers are those of the other
 * end's CPU.
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
 * Of a SEND, or with immediate: its receive counts as solicited, so that who waits for such ones
 * alone wakes up (ibv_req_notify_cq()). roost_qp_solicit(c, roost_qp_send(...)).
 */
static inline enum roost_next roost_qp_solicit(struct roost_call *c, enum roost_next next)
{
	c->solicited = 1;
	return next;
}

/*
 * Goes on when operation `number` and all before it are done: c->qp_done + 1 is the oldest that is
 * not, c->qp_posted the last.
 */
static inline enum roost_next roost_qp_wait(struct roost_call *c, uint32_t number)
{
	c->ask = ROOST_ASK_QP_WAIT;
	c->qp_wait = number;
	return ROOST_AGAIN;
}

/*
 * The same after one of those above: roost_qp_then(c, roost_qp_write(...)) goes on when that is
 * done.
 */
static inline enum roost_next roost_qp_then(struct roost_call *c, enum roost_next next)
{
	c->qp_wait = c->qp_posted + 1;
	return next;
}

/*
 * How an operation ended; of the last ROOST_QP_OPS. One that is posted when as many are under way
 * waits for the oldest of them, and takes its place here: who wants that one's status too waits for
 * it first (roost_qp_wait(c, c->qp_done + 1)).
 */
static inline enum roost_qp_status roost_qp_status(const struct roost_call *c, uint32_t number)
{
	return (enum roost_qp_status)c->qp_status[number % ROOST_QP_OPS];
}

#define ROOST_GO_ON -1
/* What the kernel returns for this; or ROOST_GO_ON: it is done already. */
static inline int roost_wait(struct roost_call *c, enum roost_next next)
{
	return next == ROOST_AGAIN && c->at_once && c->at_once(c) ? ROOST_GO_ON : (int)next;
}

/* Straight code over the functions above. */
#define ROOST_STEPS(c)                                                                             \
	switch ((c)->resume) {                                                                     \
	case 0:
#define ROOST_STEPS_END                                                                            \
	}                                                                                          \
	return ROOST_DONE

#define ROOST_WAIT(c, what)                                                                        \
	do {                                                                                       \
		(c)->resume = __LINE__;                                                            \
		{                                                                                  \
			int roost_next_ = roost_wait(c, what);                                     \
			if (roost_next_ != ROOST_GO_ON)                                            \
				return (enum roost_next)roost_next_;                               \
		}                                                                                  \
		__attribute__((fallthrough));                                                      \
	case __LINE__:;                                                                            \
	} while (0)

#define ROOST_READ(c, va, buf, len)   ROOST_WAIT(c, roost_read(c, va, buf, len))
#define ROOST_WRITE(c, va, buf, len)  ROOST_WAIT(c, roost_write(c, va, buf, len))
#define ROOST_COPY(c, to, from, len)  ROOST_WAIT(c, roost_copy(c, to, from, len))
#define ROOST_CAS(c, va, old, swap)   ROOST_WAIT(c, roost_cas(c, va, old, swap))
#define ROOST_SEND(c, buf, len)	      ROOST_WAIT(c, roost_send(c, buf, len))
#define ROOST_SEND_FROM(c, from, len) ROOST_WAIT(c, roost_send_from(c, from, len))
/* In granted region n; ROOST_COPY_IN from region m to region n, 0 being the caller's. */
#define ROOST_READ_IN(c, n, va, buf, len) ROOST_WAIT(c, roost_in(c, n, roost_read(c, va, buf, len)))
#define ROOST_WRITE_IN(c, n, va, buf, len)                                                         \
	ROOST_WAIT(c, roost_in(c, n, roost_write(c, va, buf, len)))
#define ROOST_COPY_IN(c, n, to, m, from, len)                                                      \
	ROOST_WAIT(c, roost_in2(c, n, m, roost_copy(c, to, from, len)))
#define ROOST_CAS_IN(c, n, va, old, swap) ROOST_WAIT(c, roost_in(c, n, roost_cas(c, va, old, swap)))
#define ROOST_SEND_FROM_IN(c, n, from, len)                                                        \
	ROOST_WAIT(c, roost_in(c, n, roost_send_from(c, from, len)))
#define ROOST_REPLY_FROM_IN(c, n, from, len) return roost_in(c, n, roost_reply_from(c, from, len))

/*
 * On bound queue pair n. These go on when the operation is done, and those that were posted before
 * it: roost_qp_status(c, c->qp_posted) says how it ended. _AT: the bytes here are at va in the
 * caller's region.
 */
#define ROOST_QP_DO(c, what)   ROOST_WAIT(c, roost_qp_then(c, what))
#define ROOST_QP_POST(c, what) ROOST_WAIT(c, what) /* goes on when it is posted */
#define ROOST_QP_READ(c, n, raddr, rkey, buf, len)                                                 \
	ROOST_QP_DO(c, roost_qp_read(c, n, raddr, rkey, buf, 0, len))
#define ROOST_QP_WRITE(c, n, raddr, rkey, buf, len)                                                \
	ROOST_QP_DO(c, roost_qp_write(c, n, raddr, rkey, buf, 0, len))
#define ROOST_QP_SEND(c, n, buf, len) ROOST_QP_DO(c, roost_qp_send(c, n, buf, 0, len))
#define ROOST_QP_READ_AT(c, n, raddr, rkey, va, len)                                               \
	ROOST_QP_DO(c, roost_qp_read(c, n, raddr, rkey, 0, va, len))
#define ROOST_QP_WRITE_AT(c, n, raddr, rkey, va, len)                                              \
	ROOST_QP_DO(c, roost_qp_write(c, n, raddr, rkey, 0, va, len))
#define ROOST_QP_SEND_AT(c, n, va, len) ROOST_QP_DO(c, roost_qp_send(c, n, 0, va, len))
#define ROOST_QP_WRITE_IMM(c, n, raddr, rkey, buf, len, imm)                                       \
	ROOST_QP_DO(c, roost_qp_write_imm(c, n, raddr, rkey, buf, 0, len, imm))
#define ROOST_QP_SEND_IMM(c, n, buf, len, imm)                                                     \
	ROOST_QP_DO(c, roost_qp_send_imm(c, n, buf, 0, len, imm))
#define ROOST_QP_SEND_SOLICITED(c, n, buf, len)                                                    \
	ROOST_QP_DO(c, roost_qp_solicit(c, roost_qp_send(c, n, buf, 0, len)))
#define ROOST_QP_CAS(c, n, raddr, rkey, old, compare, swap)                                        \
	ROOST_QP_DO(c, roost_qp_cas(c, n, raddr, rkey, old, 0, compare, swap))
#define ROOST_QP_FETCH_ADD(c, n, raddr, rkey, old, add)                                            \
	ROOST_QP_DO(c, roost_qp_fetch_add(c, n, raddr, rkey, old, 0, add))
#define ROOST_QP_WRITE_IMM_AT(c, n, raddr, rkey, va, len, imm)                                     \
	ROOST_QP_DO(c, roost_qp_write_imm(c, n, raddr, rkey, 0, va, len, imm))
#define ROOST_QP_SEND_IMM_AT(c, n, va, len, imm)                                                   \
	ROOST_QP_DO(c, roost_qp_send_imm(c, n, 0, va, len, imm))
#define ROOST_QP_SEND_SOLICITED_AT(c, n, va, len)                                                  \
	ROOST_QP_DO(c, roost_qp_solicit(c, roost_qp_send(c, n, 0, va, len)))
#define ROOST_QP_CAS_AT(c, n, raddr, rkey, va, compare, swap)                                      \
	ROOST_QP_DO(c, roost_qp_cas(c, n, raddr, rkey, 0, va, compare, swap))
#define ROOST_QP_FETCH_ADD_AT(c, n, raddr, rkey, va, add)                                          \
	ROOST_QP_DO(c, roost_qp_fetch_add(c, n, raddr, rkey, 0, va, add))
/* These go on when it is posted; buf is to be left alone until it is done. */
#define ROOST_QP_POST_READ(c, n, raddr, rkey, buf, len)                                            \
	ROOST_WAIT(c, roost_qp_read(c, n, raddr, rkey, buf, 0, len))
#define ROOST_QP_POST_WRITE(c, n, raddr, rkey, buf, len)                                           \
	ROOST_WAIT(c, roost_qp_write(c, n, raddr, rkey, buf, 0, len))
#define ROOST_QP_POST_SEND(c, n, buf, len) ROOST_WAIT(c, roost_qp_send(c, n, buf, 0, len))
#define ROOST_QP_POST_WRITE_IMM(c, n, raddr, rkey, buf, len, imm)                                  \
	ROOST_WAIT(c, roost_qp_write_imm(c, n, raddr, rkey, buf, 0, len, imm))
#define ROOST_QP_POST_SEND_IMM(c, n, buf, len, imm)                                                \
	ROOST_WAIT(c, roost_qp_send_imm(c, n, buf, 0, len, imm))
#define ROOST_QP_POST_SEND_SOLICITED(c, n, buf, len)                                               \
	ROOST_WAIT(c, roost_qp_solicit(c, roost_qp_send(c, n, buf, 0, len)))
#define ROOST_QP_POST_CAS(c, n, raddr, rkey, old, compare, swap)                                   \
	ROOST_WAIT(c, roost_qp_cas(c, n, raddr, rkey, old, 0, compare, swap))
#define ROOST_QP_POST_FETCH_ADD(c, n, raddr, rkey, old, add)                                       \
	ROOST_WAIT(c, roost_qp_fetch_add(c, n, raddr, rkey, old, 0, add))
/* Until operation `number` and those before it are done; until all are. */
#define ROOST_QP_WAIT(c, number) ROOST_WAIT(c, roost_qp_wait(c, number))
#define ROOST_QP_WAIT_ALL(c)	 ROOST_QP_WAIT(c, (c)->qp_posted)

#define ROOST_REPLY(c, buf, len)       return roost_reply(c, ROOST_RPC_OK, buf, len)
#define ROOST_REPLY_FROM(c, from, len) return roost_reply_from(c, from, len)
#define ROOST_FAIL(c, status)	       return roost_reply(c, status, 0, 0)

#endif
