/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The send queue of a QP. An entry is the private copy of a WQE, or a work request that the NIC
 * makes itself. One ring has the entries of all origins, in the order of their PSNs.
 */
#ifndef ROOST_NIC_SQ_H
#define ROOST_NIC_SQ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"
#include "roost/wqe.h"

/* The most private copies of WQEs (fetched and not yet retired) of a QP. */
#define NIC_SQ_WINDOW 512

struct nic_qp;

/* The origin of an entry. The table sq_origins has the functions and properties of each origin. */
enum sq_origin {
	SQ_PROGRAM,   /* a WQE of the program's ring */
	SQ_SEGMENT,   /* a segment of a program's WRITE whose length a kernel changes: resize.c */
	SQ_REPLY,     /* a kernel's reply to a call: rpc.c */
	SQ_KERNEL_WR, /* a kernel work request: kernel_wr.c */
	SQ_ORIGINS
};

/* The payload of a reply is `len` bytes of data and then the tail. */
struct sq_reply {
	uint64_t addr;	    /* address of the data */
	uint64_t key;	    /* nic_rpc_key of the data; 0: memory of the server */
	uint64_t tail;	    /* in the byte order of memory */
	uint64_t lost_tail; /* replaces the tail if data of the call cannot be read */
	uint32_t len;
	bool last; /* the last entry of the reply: sent() reports its acknowledgement */
	bool data_lost;
};

/* The memory of a kernel work request: one piece. */
struct sq_kernel_wr {
	uint64_t addr;
	uint32_t key; /* 0: memory of the kernel; else a region of the QP's PD */
};

struct sq_segment {
	const uint8_t *data;
	bool first, last; /* the last segment ends the WQE */
};

/* An entry, from fetch to retirement. `wqe` is as long as the queue's stride. */
struct sq_entry {
	union {
		uint64_t wr_id;	 /* SQ_PROGRAM, SQ_SEGMENT */
		uint64_t cookie; /* SQ_REPLY: of struct nic_rpc_send */
		void *owner;	 /* SQ_KERNEL_WR: of struct nic_kernel_wr */
	};
	uint32_t psn;	/* PSN of the first packet */
	uint32_t npkts; /* number of PSNs: request packets, or response packets of a READ */
	uint32_t len;	/* payload bytes */
	uint8_t op;	/* enum roost_op */
	uint8_t status; /* enum nic_wc_status of the completion; 0: no error so far */
	uint8_t origin; /* enum sq_origin */
	bool signaled;	/* SQ_PROGRAM, SQ_SEGMENT: a success is reported, too */
	union {
		uint32_t index;	 /* SQ_PROGRAM, SQ_SEGMENT: index of the WQE in its ring */
		uint32_t call;	 /* SQ_REPLY: of struct nic_rpc_send */
		uint32_t number; /* SQ_KERNEL_WR: of struct nic_kernel_wr */
	};
	bool executed; /* npkts is 0: the operation is done; chain.c */
	union {
		/*
		 * The private copy. Entries of other origins use only `flags`, and the fields from
		 * `raddr` to `compare`.
		 */
		struct roost_wqe wqe __attribute__((aligned(16)));
		struct {
			uint8_t request[ROOST_WQE_SGE_OFFSET];
			union {
				struct sq_reply reply;
				struct sq_kernel_wr kernel_wr;
				struct sq_segment segment;
			};
		};
	};
};
_Static_assert(offsetof(struct sq_entry, wqe) == 32, "offset of the private WQE");
_Static_assert(sizeof(struct sq_entry) <= 128, "an entry at the smallest stride");

/* The reason for which a requester with work left the list of senders. */
enum qp_block {
	BLOCK_NONE = 0,
	BLOCK_WINDOW, /* the destination's window is full */
	BLOCK_READS,  /* max_rd_atomic, or a fence */
	BLOCK_PSN,    /* too many PSNs are outstanding, or more than after an RNR NAK */
	BLOCK_COPIES, /* no space for another private copy */
	BLOCK_BATCH,  /* a few small requests wait for more */
	BLOCK_ORDER,  /* a WQE without a PSN waits for earlier WQEs */
	BLOCK_HOOK,   /* a stream hook is paused, or keeps too many bytes */
	BLOCK_RNR,    /* the time of an RNR NAK */
	BLOCK_CHAIN,  /* the queue is in a WAIT */
	BLOCK_RATE,   /* the rate limit of a managed queue */
};

/*
 * The state of the send queue and of its requester. Each group after the first is a cache line, or
 * a part of one, as qp.h asserts. A WRITE and its ACK do not touch the first group, unless packets
 * are lost.
 */
struct qp_sq {
	/* loss and READs */
	uint64_t probed;     /* time of the last probe */
	uint32_t probe_end;  /* psn_max when the probe was sent */
	uint32_t nak_psn;    /* PSN of the last sequence NAK that caused a retransmission */
	uint32_t read_bytes; /* bytes of READs that were requested and not yet received */
	uint32_t rnr_psn;    /* the window after an RNR NAK grows when this PSN is acknowledged */

	/* the program's ring, and the ring of entries */
	uint8_t *ring;
	uint64_t *wr_ids;
	struct roost_queue_index *index;
	uint8_t *entries; /* private copies */
	uint32_t mask;	  /* of the program's ring */
	uint32_t entry_mask, entry_size;
	uint32_t una, next, fetched; /* numbers of entries: una <= next <= fetched */
	uint32_t taken;		     /* WQEs taken from the program's ring */
	uint32_t window;	     /* the most entries of the program: sq_of_program() */

	/* transmission */
	uint16_t count[SQ_ORIGINS]; /* number of entries by origin */
	uint32_t next_pkt;	    /* next packet of the entry `next`; loop-back: its bytes done */
	uint32_t psn_una;	    /* the oldest PSN that is not acknowledged */
	uint32_t psn_next;	    /* the next PSN to send */
	uint32_t psn_max;	    /* one past the highest PSN ever sent */
	uint32_t psn_fetch;	    /* first PSN of the next entry */
	/* bytes of requests in flight, as the destination's window counts them */
	uint32_t inflight;
	uint16_t since_ackreq;	      /* packets since the last one that requested an ACK */
	uint16_t max_inline;	      /* the most inline bytes of a WQE */
	uint8_t max_sge;	      /* the most SGEs of a WQE */
	uint8_t rd_out;		      /* READ requests and atomics outstanding */
	uint8_t rd_limit;	      /* limit of rd_out after a loss; 0: max_rd_atomic */
	uint8_t rnr_window;	      /* the most packets in flight after an RNR NAK; 0: any */
	uint64_t rnr_until;	      /* end of the wait after an RNR NAK; 0: none */
	uint8_t stride_shift;	      /* of the program's ring */
	uint8_t block;		      /* enum qp_block */
	uint8_t retries, rnr_retries; /* retries that are left */
	uint8_t probes;		      /* probes since the last progress */
	uint8_t backoff;	      /* time-outs since the last progress */
	bool gap;		      /* missing responses have been requested again */
	bool nak_seen;		      /* nak_psn is valid */
	uint32_t rtt_psn;
	bool rtt_alone; /* nothing was in flight before rtt_psn */
	/* the last ACK covered only the packet of the probe: the probe, or the first copy */
	bool probe_acked;
	bool probing;
	bool drained_event;

	/* progress and round trips */
	/*
	 * The latest of these times: an acknowledgement moved psn_una, a time-out expired, psn_una
	 * was sent.
	 */
	uint64_t progress;
	uint64_t una_since; /* the same time, without time-outs */
	uint64_t rtt_start; /* start of the running sample; 0: none */
	/*
	 * The tick of alive_await_rx() when the retries were renewed for a stalled peer; 0: they
	 * were not, since the last progress.
	 */
	uint64_t stalled_at;
	uint64_t batch_since; /* time since when requests wait for more; 0: none wait */
};

static inline struct sq_entry *sq_entry(const struct qp_sq *sq, uint32_t n)
{
	return (struct sq_entry *)(sq->entries + (size_t)(n & sq->entry_mask) * sq->entry_size);
}

static inline bool op_is_read(uint8_t op)
{
	return op == ROOST_OP_READ;
}

/*
 * Sets of op-codes, with one bit for each. The functions below may return true for op-codes that do
 * not exist.
 */
#define SQ_OP(op) (1ull << ROOST_OP_##op)
#define SQ_LOCAL_OPS                                                                               \
	(SQ_OP(NOP) | SQ_OP(LOCAL_INV) | SQ_OP(BIND_MW) | SQ_OP(WAIT) | SQ_OP(ENABLE) |            \
	 SQ_OP(RECV_ENABLE))
#define SQ_CALC_OPS                                                                                \
	(SQ_OP(MAX) | SQ_OP(MIN) | SQ_OP(MAX_SIGNED) | SQ_OP(MIN_SIGNED) | SQ_OP(AND) |            \
	 SQ_OP(OR) | SQ_OP(XOR))
#define SQ_ATOMIC_OPS (SQ_OP(CMP_SWAP) | SQ_OP(FETCH_ADD) | SQ_CALC_OPS)

/* Returns true if the operation is executed locally, without a packet and a PSN. */
static inline bool op_is_local(uint8_t op)
{
	return SQ_LOCAL_OPS >> (op & 63) & 1;
}

static inline bool op_is_rpc(uint8_t op)
{
	return op == ROOST_OP_RPC || op == ROOST_OP_RPC_WRITE;
}

static inline bool op_is_atomic(uint8_t op)
{
	return SQ_ATOMIC_OPS >> (op & 63) & 1;
}

/* Returns true for a READ or an atomic: the responses have data. An ACK ends other operations. */
static inline bool op_gets_data(uint8_t op)
{
	return (SQ_OP(READ) | SQ_ATOMIC_OPS) >> (op & 63) & 1;
}

/* sq.c */
bool sq_fetch(struct nic_qp *qp);
/* Fetches WQEs of the program, so that entries of kernels cannot starve the program. */
void sq_fetch_program(struct nic_qp *qp);
/*
 * Returns the number of WQEs that can be copied now: posted, and with space for a copy; at most
 * max. If the ring's index is invalid, the QP goes to the error state and the number is 0.
 */
uint32_t sq_available(struct nic_qp *qp, uint32_t max);
void sq_copy(struct nic_qp *qp, struct sq_entry *e); /* copies and checks the next posted WQE */

/* Returns the next free entry. The caller fills it in and calls sq_append(). */
static inline struct sq_entry *sq_next_entry(const struct qp_sq *sq)
{
	return sq_entry(sq, sq->fetched);
}

/* Makes an empty queue use its first entries next, which may still be in a cache. */
static inline void sq_restart(struct qp_sq *sq)
{
	if (sq->una == sq->fetched)
		sq->una = sq->next = sq->fetched = 0;
}

/* Prefetches the entry that sq_fetch() takes next. */
static inline void sq_prefetch_entry(const struct qp_sq *sq)
{
	const uint8_t *e =
		sq->una == sq->fetched ? sq->entries : (const uint8_t *)sq_next_entry(sq);

	__builtin_prefetch(e, 1);
	__builtin_prefetch(e + ROOST_CACHE_LINE, 1);
}

/* Appends the entry, of any origin, and gives it its PSNs. */
static inline void sq_append(struct qp_sq *sq, struct sq_entry *e)
{
	ROOST_ASSERT(sq->fetched - sq->una <= sq->entry_mask);
	e->psn = sq->psn_fetch;
	sq->psn_fetch += e->npkts;
	sq->fetched++;
	sq->count[e->origin]++;
}

/* Reports the end of the WQE to the program. */
void sq_complete(struct nic_qp *qp, const struct sq_entry *e);
void sq_retire(struct nic_qp *qp, struct sq_entry *e); /* ends the entry at sq.una */
/* Executes an operation of op_is_local(). Returns false if it failed; e->status has the error. */
bool sq_local(struct nic_qp *qp, struct sq_entry *e);
const void *sq_piece(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint32_t n);
int sq_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst, uint32_t n);
int sq_scatter(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, const uint8_t *src,
	       uint32_t n);
void sq_flush(struct nic_qp *qp);
void sq_drained(struct nic_qp *qp);
static inline bool sq_posted(const struct qp_sq *sq)
{
	return atomic_load_explicit(&sq->index->prod, memory_order_acquire) != sq->taken;
}

/* The functions and properties of an origin. */
struct sq_origin_ops {
	int (*gather)(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst,
		      uint32_t n); /* sq_gather() */
	/* sq_scatter(); NULL: no operation of this origin has a response with data */
	int (*scatter)(struct nic_qp *qp, const struct sq_entry *e, uint32_t off,
		       const uint8_t *src, uint32_t n);
	/* reports the end of the entry, whose status is e->status */
	void (*retired)(struct nic_qp *qp, const struct sq_entry *e);
	bool of_program; /* the entry counts in sq.window; its end may be a completion */
	bool one_piece;	 /* sq_piece() may find its payload */
	bool hooked;	 /* outgoing hooks see the entry: stream.c */
};
extern const struct sq_origin_ops sq_origins[SQ_ORIGINS];

/* Returns the number of entries of the program. */
static inline uint32_t sq_of_program(const struct qp_sq *sq)
{
	return sq->count[SQ_PROGRAM] + sq->count[SQ_SEGMENT];
}

static inline bool sq_full(const struct qp_sq *sq)
{
	return sq_of_program(sq) == sq->window;
}

/* kernel_wr.c */
int kernel_wr_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst,
		     uint32_t n);
int kernel_wr_scatter(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, const uint8_t *src,
		      uint32_t n);
void kernel_wr_retired(struct nic_qp *qp, const struct sq_entry *e);
/* Ends the outstanding kernel work requests as flushed, before a reset or the end of the QP. */
void kernel_wr_drop_all(struct nic_qp *qp);
void kernel_wr_qp_gone(struct nic_qp *qp); /* called before the QP is destroyed */

#endif
