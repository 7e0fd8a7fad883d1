/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls: the op-codes 0x18 .. 0x1c of StRoM, on queue pairs where they are enabled. The thread
 * rules are those of nic.h.
 */
#ifndef ROOST_NIC_NIC_RPC_H
#define ROOST_NIC_NIC_RPC_H

#include "nic/nic.h"

/*
 * The most unacknowledged WRITEs of kernels per QP. They take no space from the program's work
 * requests.
 */
#define NIC_RPC_SENDS 192

/* A piece of a call's message. Each byte is delivered once, in order. */
struct nic_rpc_piece {
	uint64_t op; /* the kernel's op-code */
	/* valid during deliver(). A peer may write to this memory meanwhile: read each byte once */
	const uint8_t *data;
	uint32_t rkey;	   /* the region of all accesses */
	uint32_t total;	   /* bytes of the message */
	uint32_t off, len; /* of this piece in the message */
	bool payload;	   /* true: payload of an RPC WRITE; false: the parameters, complete */
	bool last;
	/* the piece is the last packet of its burst: no other packet waits behind it */
	bool ends_burst;
	uint64_t now; /* start of the turn */
};

/*
 * The functions of the layer that serves calls (src/kernels). attach() returns qp_ctx. The owner of
 * the QP's PU calls the functions, unless a comment says otherwise. They must not block or
 * allocate, except attach() and detach().
 */
struct nic_rpc_ops {
	/*
	 * The op-codes of a QP are being enabled, or disabled. attach() returns 0 or -errno.
	 * [control+owner]
	 */
	int (*attach)(void *ctx, struct nic_qp *qp, void **qp_ctx);
	void (*detach)(void *ctx, void *qp_ctx);
	/*
	 * Takes the piece. Returns false if it cannot take the piece now; a peer that follows the
	 * protocol sends it again.
	 */
	bool (*deliver)(void *ctx, void *qp_ctx, const struct nic_rpc_piece *piece);
	/*
	 * A WRITE of nic_rpc_send() was acknowledged; the NIC no longer uses its memory. Must not
	 * send.
	 */
	void (*sent)(void *ctx, void *qp_ctx, uint64_t cookie);
	/*
	 * The data of a WRITE of `call` can no longer be read. Zeros are sent in place of the data.
	 * This WRITE and later ones of the call carry `lost` in place of `tail`. Must not send.
	 * May be NULL.
	 */
	void (*lost)(void *ctx, void *qp_ctx, uint32_t call);
	/* The QP ends. Its calls are dropped, and sent() is not called for its WRITEs any more. */
	void (*stop)(void *ctx, void *qp_ctx);
	/*
	 * A work request of nic_post_kernel_wr(), of `len` bytes, has ended; the NIC no longer uses
	 * its memory. Must not send. Control calls that reset or destroy the QP call this function,
	 * too. It may be NULL, like gone(), if nic_post_kernel_wr() is not used.
	 */
	void (*kernel_wr_done)(void *ctx, struct nic_qp *qp, void *owner, uint32_t number,
			       uint32_t len, enum nic_wc_status status);
	/* A QP that kernels could post to is being destroyed. [control+owner] */
	void (*gone)(void *ctx, struct nic_qp *qp);
	/*
	 * Runs calls after nic_rpc_schedule(). The work must be bounded. Returns the amount of work
	 * done, and sets *more if run() must be called again.
	 */
	unsigned (*run)(void *ctx, unsigned pu, bool *more);
	/*
	 * A turn in which nic_rpc_request_turn_end() was called ended at `now`. May be NULL if
	 * nic_rpc_request_turn_end() is not used.
	 */
	void (*turn_ended)(void *ctx, unsigned pu, uint64_t now);
	/* The NIC is being destroyed; its QPs are gone. [control] */
	void (*close)(void *ctx);
};
/*
 * Sets the layer that serves calls until the NIC is destroyed. The layer serves the QPs whose
 * op-codes are enabled afterwards. Returns 0; -EEXIST: a layer is set already. [control+owner of
 * all PUs]
 */
int nic_rpc_serve(struct nic *nic, const struct nic_rpc_ops *ops, void *ctx);
/* Returns the ctx that was passed with these ops, or NULL if this layer is not set. [control] */
void *nic_rpc_server(const struct nic *nic, const struct nic_rpc_ops *ops);

/*
 * Enables the op-codes of a QP until the QP is reset. Both ends must enable them. Returns 0,
 * -EOPNOTSUPP (not RC), -EINVAL (not in RESET or INIT), -ENOMEM, or the error of attach().
 * [control+owner]
 */
int nic_qp_set_rpc(struct nic *nic, struct nic_qp *qp);
/* Returns true if the op-codes are enabled. [any] */
bool nic_qp_rpc(const struct nic_qp *qp);
/*
 * The program tells, before it posts a call, whether the call is the only one in flight. Then the
 * ACK of its reply may leave behind the next call (ack_delay.h). The node needs a second slot for
 * that call. [any]
 */
void nic_rpc_single_call(struct nic_qp *qp, bool single);
/*
 * Returns true if new requests should wait for the next poll of a program that polls: the QP has
 * calls, and the flush of its port is a system call. Calls count as done for nic_qp_busy() when
 * their replies are there, so nic_qp_busy() does not show that the program works on replies and is
 * about to post more. [any]
 */
bool nic_qp_batches(const struct nic_qp *qp);
/* Returns the qp_ctx that attach() returned, or NULL. [control] */
void *nic_rpc_ctx(const struct nic_qp *qp);

/* Functions for the layer that serves calls. [owner] unless noted otherwise. */
void nic_rpc_schedule(struct nic_qp *qp); /* makes the NIC call run() in this or the next turn */
void nic_rpc_wake(struct nic *nic, unsigned pu); /* does the same for a PU */
void nic_rpc_ring(struct nic *nic, unsigned pu); /* does the same for another PU, soon. [any] */
/* Requests turn_ended() after this turn. */
void nic_rpc_request_turn_end(struct nic *nic, unsigned pu);
/*
 * Makes the NIC call run() in the first turn at or after `when`. If several times are set, the
 * earliest one counts.
 */
void nic_rpc_at(struct nic *nic, unsigned pu, uint64_t when);
const struct pkt_addr *nic_rpc_peer(const struct nic_qp *qp); /* returns the peer's address */
struct nic_rpc_turn {
	uint64_t number, began;
	bool shared; /* several QPs had packets or calls in the last 20 ms */
};
void nic_rpc_runs(struct nic_qp *qp); /* records that calls of the QP run in this turn */
struct nic_rpc_turn nic_rpc_turn(const struct nic *nic,
				 unsigned pu); /* the current turn, or the last one */
/*
 * Names the region of an access: a key that the QP's peer could use, or NIC_RPC_GRANTED(), a region
 * of this protection domain that the NIC's owner granted. For a granted region the caller has
 * checked all other rights.
 */
typedef uint64_t nic_rpc_key;
#define NIC_RPC_GRANTED(pd, key) (((uint64_t)(pd) + 1) << 32 | (key))

/*
 * Access memory for a call, with the rights of the QP's peer for this key (READ, WRITE, compare and
 * swap) or, in a granted region, with the rights of its owner. Return 0; -EACCES: key, bounds,
 * rights, or an unaligned atomic; -EFAULT: the memory was unmapped. dst is the server's own memory.
 * Memory is read in the order of dma_load_up(), one access after the other.
 */
int nic_rpc_read(struct nic_qp *qp, nic_rpc_key key, uint64_t va, void *dst, uint32_t n);
int nic_rpc_write(struct nic_qp *qp, nic_rpc_key key, uint64_t va, const void *src, uint32_t n);
/*
 * Writes as nic_rpc_write() does, with stores past the cache where that is faster. Other CPUs may
 * see the stores in any order until nic_rpc_put_done().
 */
int nic_rpc_put(struct nic_qp *qp, nic_rpc_key key, uint64_t va, const void *src, uint32_t n);
void nic_rpc_put_done(void);
int nic_rpc_copy(struct nic_qp *qp, nic_rpc_key dst_key, uint64_t dst, nic_rpc_key src_key,
		 uint64_t src, uint32_t n);
/* Compares and swaps 8 bytes. *value is the expected value, and on return the old value. */
int nic_rpc_cmp_swap(struct nic_qp *qp, nic_rpc_key key, uint64_t va, uint64_t *value,
		     uint64_t swap);
/*
 * Prefetches the first cache lines of an access (enum nic_access). Returns true if the access is
 * allowed now.
 */
bool nic_rpc_prefetch(const struct nic_qp *qp, nic_rpc_key key, uint64_t va, uint32_t n,
		      uint32_t access);

/*
 * Access, for the host, a region that NIC_RPC_GRANTED() names, with the rights of a local work
 * request. Return 0, -EACCES or -EFAULT. [owner of a PU]
 */
int nic_host_read(struct nic *nic, nic_rpc_key key, uint64_t va, void *dst, uint32_t n);
int nic_host_write(struct nic *nic, nic_rpc_key key, uint64_t va, const void *src, uint32_t n);
int nic_host_copy(struct nic *nic, nic_rpc_key dst_key, uint64_t dst, nic_rpc_key src_key,
		  uint64_t src, uint32_t n);
int nic_host_cmp_swap(struct nic *nic, nic_rpc_key key, uint64_t va, uint64_t *value,
		      uint64_t swap);

/* An RDMA WRITE to the QP's peer: `len` bytes from a buffer or a region, then the tail. */
struct nic_rpc_send {
	uint64_t cookie; /* passed to sent() */
	uint64_t raddr;
	uint32_t rkey;
	uint32_t len;
	/* must not change until sent() or stop(). NULL: va and key name the data */
	const void *buf;
	uint64_t va;
	nic_rpc_key key;
	uint32_t tail_len; /* 0 .. 8; one packet carries the whole tail */
	uint64_t tail;	   /* its bytes, in memory order */
	/* sent instead of tail if data of the call can't be read (deregistered or unmapped) */
	uint64_t lost;
	uint32_t call; /* WRITEs of one call have the same number */
	uint32_t imm;  /* network byte order; with has_imm only */
	bool has_imm;
};
/*
 * Sends the WRITE. `len` and the tail together are at most NIC_MAX_MSG bytes. Returns 0; -EAGAIN:
 * NIC_RPC_SENDS are outstanding; -ENOTCONN: the QP does not send in its state; -EACCES: key 0.
 */
int nic_rpc_send(struct nic_qp *qp, const struct nic_rpc_send *s);
/* Copies from the server's own memory, which may be unmapped. Returns 0 or -EFAULT. */
int nic_rpc_load(void *dst, const void *src, uint32_t n);
/*
 * Returns the most bytes of a WRITE that one packet carries, and that the peer's NIC stores in
 * ascending order: the path MTU, or 0 on loop-back.
 */
uint32_t nic_rpc_packet_max(const struct nic_qp *qp);

#endif
