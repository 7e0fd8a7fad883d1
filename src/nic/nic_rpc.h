/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls: op-codes 0x18 .. 0x1c of StRoM, on queue pairs where they are enabled. The thread rules
 * are those of nic.h.
 */
#ifndef ROOST_NIC_NIC_RPC_H
#define ROOST_NIC_NIC_RPC_H

#include "nic/nic.h"

/*
 * Unacknowledged WRITEs of kernels per QP, at most. They take no space from the program's work
 * requests.
 */
#define NIC_RPC_SENDS 192

/* A piece of a call's message. Each byte is delivered once, in order. */
struct nic_rpc_piece {
	uint64_t op; /* the kernel's op-code */
	/* valid during deliver(); a peer may share it: read each byte once */
	const uint8_t *data;
	uint32_t rkey;	   /* the region of all accesses */
	uint32_t total;	   /* bytes of the message */
	uint32_t off, len; /* of this piece in the message */
	bool payload;	   /* payload of an RPC WRITE; else the parameters, complete */
	bool last;
	bool lone;    /* the last packet of its burst: no packet behind it waits */
	uint64_t now; /* start of the turn */
};

/*
 * The layer that serves calls (src/kernels). qp_ctx comes from attach(). The owner of the QP's PU
 * calls all functions but attach() and detach(); they must not block or allocate.
 */
struct nic_rpc_ops {
	/* The op-codes of a QP are enabled, or disabled. 0 or -errno. [control+owner] */
	int (*attach)(void *ctx, struct nic_qp *qp, void **qp_ctx);
	void (*detach)(void *ctx, void *qp_ctx);
	/* Takes the piece. False: not now; it comes again, unless the peer breaks the rules. */
	bool (*deliver)(void *ctx, void *qp_ctx, const struct nic_rpc_piece *piece);
	/* A WRITE of nic_rpc_send() is acknowledged; its memory is free. Must not send. */
	void (*sent)(void *ctx, void *qp_ctx, uint64_t cookie);
	/*
	 * The data of a WRITE of `call` can no longer be read. Zeros are sent in place of the data.
	 * This WRITE and later ones of the call carry `lost` in place of `tail`. Must not send.
	 * May be NULL.
	 */
	void (*lost)(void *ctx, void *qp_ctx, uint32_t call);
	/* The QP ends: its calls are dropped, and its WRITEs are no longer acknowledged. */
	void (*stop)(void *ctx, void *qp_ctx);
	/*
	 * A work request of nic_post_kernel_wr(), of `len` bytes, has ended; its memory is free.
	 * Must not send. Control calls that reset or destroy the QP call it too. NULL, like gone(),
	 * if nic_post_kernel_wr() is not used.
	 */
	void (*kernel_wr_done)(void *ctx, struct nic_qp *qp, void *owner, uint32_t number,
			       uint32_t len, enum nic_wc_status status);
	/* A QP of nic_qp_enable_kernel_wrs() is destroyed. [control+owner] */
	void (*gone)(void *ctx, struct nic_qp *qp);
	/*
	 * Runs calls after nic_rpc_schedule(); the work is bounded. Returns the work done; *more:
	 * call run() again.
	 */
	unsigned (*run)(void *ctx, unsigned pu, bool *more);
	/* A turn with a nic_rpc_ask_time() ended at `now`. NULL if that is not used. */
	void (*turn_ended)(void *ctx, unsigned pu, uint64_t now);
	/* The NIC is destroyed; its QPs are gone. [control] */
	void (*close)(void *ctx);
};
/*
 * Sets the layer that serves calls until the NIC is destroyed. It serves the QPs whose op-codes are
 * enabled afterwards. 0; -EEXIST: a layer is set already. [control+owner of all PUs]
 */
int nic_rpc_serve(struct nic *nic, const struct nic_rpc_ops *ops, void *ctx);
/* The ctx passed with these ops; NULL: other ops, or none, serve calls. [control] */
void *nic_rpc_server(const struct nic *nic, const struct nic_rpc_ops *ops);

/*
 * Enables the op-codes of a QP until it is reset; both ends must do so. 0, -EOPNOTSUPP (not RC),
 * -EINVAL (beyond INIT), -ENOMEM. [control+owner]
 */
int nic_qp_set_rpc(struct nic *nic, struct nic_qp *qp);
bool nic_qp_rpc(const struct nic_qp *qp);
/*
 * True if new requests should wait for the next poll, if the program polls: a QP with calls, on a
 * port whose flush is a system call. All calls are acknowledged when their replies are there, so
 * nic_qp_busy() does not tell that the program works on replies and is about to post more. [any]
 */
bool nic_qp_batches(const struct nic_qp *qp);
/* The qp_ctx that attach() returned, or NULL. [control] */
void *nic_rpc_ctx(const struct nic_qp *qp);

/* For the layer that serves calls; all [owner]. */
void nic_rpc_schedule(struct nic_qp *qp);	     /* calls run() in this or the next turn */
void nic_rpc_wake(struct nic *nic, unsigned pu);     /* the same, for no QP */
void nic_rpc_ring(struct nic *nic, unsigned pu);     /* the same on another PU, soon. [any] */
void nic_rpc_ask_time(struct nic *nic, unsigned pu); /* calls turn_ended() after this turn */
/* Calls run() in the first turn at or after `when`, the earliest time that was set since then. */
void nic_rpc_at(struct nic *nic, unsigned pu, uint64_t when);
const struct pkt_addr *nic_rpc_peer(const struct nic_qp *qp); /* the peer's address */
struct nic_rpc_turn {
	uint64_t number, began;
	bool shared; /* several QPs had packets or calls in the last 20 ms */
};
void nic_rpc_runs(struct nic_qp *qp); /* notes that calls of the QP run in this turn */
struct nic_rpc_turn nic_rpc_turn(const struct nic *nic,
				 unsigned pu); /* the current turn, or the last one */
/*
 * The region of an access: a key that the QP's peer could use, or NIC_RPC_GRANTED(): a region of
 * this protection domain that the NIC's owner granted. The caller has checked its other rights.
 */
typedef uint64_t nic_rpc_key;
#define NIC_RPC_GRANTED(pd, key) (((uint64_t)(pd) + 1) << 32 | (key))

/*
 * Accesses of a call, with the rights of the QP's peer for this key (READ, WRITE, compare and swap)
 * or, in a granted region, of its owner. 0; -EACCES: key, bounds, rights, an unaligned atomic;
 * -EFAULT: memory gone. dst is the server's own memory. Memory is read in the order of
 * dma_load_up(), one access after the other.
 */
int nic_rpc_read(struct nic_qp *qp, nic_rpc_key key, uint64_t va, void *dst, uint32_t n);
int nic_rpc_write(struct nic_qp *qp, nic_rpc_key key, uint64_t va, const void *src, uint32_t n);
/*
 * As nic_rpc_write(), with stores past the cache where that is faster. Other CPUs may see the
 * stores in any order until nic_rpc_put_done().
 */
int nic_rpc_put(struct nic_qp *qp, nic_rpc_key key, uint64_t va, const void *src, uint32_t n);
void nic_rpc_put_done(void);
int nic_rpc_copy(struct nic_qp *qp, nic_rpc_key dst_key, uint64_t dst, nic_rpc_key src_key,
		 uint64_t src, uint32_t n);
/* Compares and swaps 8 bytes. *value: the expected value; on return the old value. */
int nic_rpc_cmp_swap(struct nic_qp *qp, nic_rpc_key key, uint64_t va, uint64_t *value,
		     uint64_t swap);
/*
 * True if this access (enum nic_access) is allowed now; its first lines are then prefetched.
 */
bool nic_rpc_prefetch(const struct nic_qp *qp, nic_rpc_key key, uint64_t va, uint32_t n,
		      uint32_t access);

/*
 * Accesses of the host to a region that NIC_RPC_GRANTED() names, with the rights of a local work
 * request. 0, -EACCES, -EFAULT. [owner of a PU]
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
	const void *buf; /* unchanged until sent() or stop(); NULL: va and key name the data */
	uint64_t va;
	nic_rpc_key key;
	uint32_t tail_len; /* 0 .. 8; one packet carries the whole tail */
	uint64_t tail;	   /* its bytes, in memory order */
	/* sent instead of tail if data of the call can't be read (deregistered, memory gone) */
	uint64_t lost;
	uint32_t call; /* WRITEs of one call have the same number */
	uint32_t imm;  /* in network byte order, with has_imm */
	bool has_imm;
};
/*
 * Sends the WRITE; `len` and the tail are at most NIC_MAX_MSG bytes. 0; -EAGAIN: NIC_RPC_SENDS are
 * outstanding; -ENOTCONN: the QP does not send in its state; -EACCES: key 0.
 */
int nic_rpc_send(struct nic_qp *qp, const struct nic_rpc_send *s);

#endif
