/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rings between a program and the NIC: work queue elements (WQE), completion queue elements
 * (CQE) and the indices around them. The layout is fixed and asserted below. Rings are in the
 * program's memory, native-endian, with a fixed stride. A program may register a ring as a memory
 * region, so that work requests rewrite each other.
 *
 * Word 0 of each WQE is `op | id << 16`. One 64-bit compare-and-swap can test the id and change the
 * op-code, and a 6-byte write at offset 2 sets the id alone.
 */
#ifndef ROOST_WQE_H
#define ROOST_WQE_H

#include <stdint.h>
#ifdef __cplusplus
#include <atomic>
#define ROOST_ATOMIC_U32 std::atomic<uint32_t>
extern "C" {
#else
#include <stdatomic.h>
#define ROOST_ATOMIC_U32 _Atomic uint32_t
#endif

#define ROOST_MAX_SGE	 16
#define ROOST_MAX_INLINE 992 /* a stride of 1,024 bytes, less the 32 before the data */
#define ROOST_CACHE_LINE 64

enum roost_op {
	ROOST_OP_NOP = 0,
	ROOST_OP_WRITE = 1,
	ROOST_OP_WRITE_IMM = 2,
	ROOST_OP_SEND = 3,
	ROOST_OP_SEND_IMM = 4,
	ROOST_OP_SEND_INV = 5,
	ROOST_OP_READ = 6,
	ROOST_OP_CMP_SWAP = 7,
	ROOST_OP_FETCH_ADD = 8,
	ROOST_OP_LOCAL_INV = 9,	 /* `imm`: the key to invalidate */
	ROOST_OP_BIND_MW = 10,	 /* see ROOST_BIND */
	ROOST_OP_RPC = 11,	 /* a call: parameters to the kernel `raddr`; at most a path MTU */
	ROOST_OP_RPC_WRITE = 12, /* payload to the kernel `raddr`, of any length */
	ROOST_OP_RECV = 16,
	/* Chains: see ROOST_CHAIN_RELATIVE. */
	ROOST_OP_WAIT = 17,	   /* the queue waits for completions of a CQ */
	ROOST_OP_ENABLE = 18,	   /* lets the NIC take WQEs of a managed send queue */
	ROOST_OP_RECV_ENABLE = 19, /* lets the NIC take WQEs of a managed receive queue */
	/*
	 * Calculations on 8 bytes at `raddr` with `swap_add`: atomic, the old value goes to the
	 * scatter list, as for FETCH_ADD.
	 */
	ROOST_OP_MAX = 20,
	ROOST_OP_MIN = 21,
	ROOST_OP_MAX_SIGNED = 22,
	ROOST_OP_MIN_SIGNED = 23,
	ROOST_OP_AND = 24,
	ROOST_OP_OR = 25,
	ROOST_OP_XOR = 26,
};

enum roost_wqe_flags {
	ROOST_WQE_SIGNALED = 1 << 0,
	ROOST_WQE_SOLICITED = 1 << 1,
	ROOST_WQE_FENCE = 1 << 2, /* wait until earlier READs and atomics are complete */
	/* the payload is in the WQE, from swap_add on */
	ROOST_WQE_INLINE = 1 << 3,
};

struct roost_sge {
	uint64_t addr;
	uint32_t len;
	uint32_t lkey;
};

#define ROOST_CTRL(op, id)  ((uint64_t)(op) | (uint64_t)(id) << 16)
#define ROOST_CTRL_OP(ctrl) ((uint16_t)(ctrl))

struct roost_wqe {
	uint64_t ctrl;	     /* ROOST_CTRL(enum roost_op, id) */
	uint16_t flags;	     /* enum roost_wqe_flags */
	uint16_t num_sge;    /* 0 .. ROOST_MAX_SGE; ignored with INLINE */
	uint32_t inline_len; /* bytes; with INLINE only */
	uint64_t raddr;
	uint32_t rkey;
	/* immediate in network byte order; SEND_INV, LOCAL_INV: the key to invalidate */
	uint32_t imm;
	uint64_t swap_add; /* inline data starts here */
	uint64_t compare;
	struct roost_sge sge[1]; /* as many as the stride has space for */
};

/*
 * BIND_MW:
 *   rkey	the window's current key (its low 8 bits are ignored)
 *   imm	its new key
 *   raddr	first byte within the region
 *   swap_add	length
 *   compare	ROOST_BIND(lkey of the region, access)
 */
#define ROOST_BIND(lkey, access) ((uint64_t)(lkey) | (uint64_t)(access) << 32)

/*
 * WAIT		raddr: index of a watched CQ; swap_add: a count of its completions
 * ENABLE	raddr: number of a queue pair of this NIC with a managed send queue; swap_add: a
 *		count of its WQEs
 * RECV_ENABLE	the same with a managed receive queue
 *
 * The low 32 bits of the count are used, modulo 2^32. With ROOST_CHAIN_RELATIVE in raddr, WAIT
 * waits for `count` completions more than its last relative WAIT on this CQ, and ENABLE adds
 * `count`. With ROOST_CHAIN_TIME alone, WAIT waits until the NIC's clock shows `swap_add` ns, and
 * with both for `swap_add` ns; the other bits of raddr are then 0. Valid on queue pairs that have
 * been set up for chains: see docs/chains.md.
 */
#define ROOST_CHAIN_RELATIVE (1ull << 32)
#define ROOST_CHAIN_TIME     (1ull << 33)
#define ROOST_CHAIN_WATCHES  4 /* CQs that a queue pair can wait for */

/*
 * RPC, RPC_WRITE: valid on queue pairs with the op-codes of calls only (roost_qp_enable_rpc()).
 * raddr is the kernel's op-code, rkey names the remote region that all accesses of the call must
 * lie in. The other fields are as for WRITE.
 */

struct roost_recv_wqe {
	uint64_t ctrl;
	uint32_t num_sge;
	uint32_t reserved;
	struct roost_sge sge[3]; /* as many as the stride has space for */
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_sge) == 16, "SGE layout");
_Static_assert(sizeof(struct roost_wqe) == 64, "WQE layout");
_Static_assert(sizeof(struct roost_recv_wqe) == 64, "receive WQE layout");
_Static_assert(__builtin_offsetof(struct roost_wqe, raddr) == 16,
	       "address, and UD's destination, at 16");
_Static_assert(__builtin_offsetof(struct roost_wqe, rkey) == 24, "rkey, and UD's Q_Key, at 24");
_Static_assert(__builtin_offsetof(struct roost_wqe, swap_add) == 32, "inline data at 32");
_Static_assert(__builtin_offsetof(struct roost_wqe, sge) == 48, "scatter list at 48");
#endif

/*
 * UD queue pairs: `raddr` holds an address handle and the destination's QP number, `rkey` the
 * Q_Key. If the highest bit of the Q_Key is set, the Q_Key of the queue pair is sent instead.
 */
#define ROOST_UD_ADDR(ah, qpn) ((uint64_t)(uint32_t)(ah) | (uint64_t)(qpn) << 32)
#define ROOST_UD_QPN(raddr)    ((uint32_t)((raddr) >> 32))

#define ROOST_WQE_INLINE_OFFSET 32
#define ROOST_WQE_SGE_OFFSET	48
#define ROOST_RECV_SGE_OFFSET	16

/*
 * Memory order.
 *   WQE	the program writes it before it stores `prod` (release); the NIC reads it after it
 *		has loaded `prod` (acquire). The NIC stores `cons` (release) when it has read the
 *		WQE; the program reuses the slot after it has loaded `cons` (acquire)
 *   CQE	the same with `seq` (release, the NIC) and `cons` of the CQ (release, the program).
 *		The data of a message are written before the `seq` of its CQE
 * Arming a CQ and ringing a doorbell store one word and then load another; src/nic/cq.c and nic.c
 * describe their order.
 */
/*
 * Indices of a send or receive ring. Both count WQEs modulo 2^32. WQE n is at
 * ring + (n % depth) * stride.
 */
struct roost_queue_index {
	ROOST_ATOMIC_U32 prod
		__attribute__((aligned(64))); /* the program: WQEs posted (store with release) */
	/* the NIC: WQEs whose slots may be reused (store with release) */
	ROOST_ATOMIC_U32 cons __attribute__((aligned(64)));
};

/*
 * A completion. `status`, `opcode` and `flags` have the values of enum ibv_wc_status, ibv_wc_opcode
 * and ibv_wc_flags.
 */
struct roost_cqe {
	uint64_t wr_id;
	uint32_t qpn;
	uint32_t byte_len;
	uint32_t imm; /* immediate in network byte order, or the invalidated rkey */
	uint32_t src_qpn;
	uint16_t status;
	uint16_t opcode;
	uint16_t flags;
	uint16_t vendor_err;
	uint64_t timestamp; /* ns of the NIC's clock */
	uint8_t sl;	    /* receives of UD: enum roost_cqe_network; else 0 */
	uint8_t reserved[15];
	uint32_t wqe; /* index of the completed WQE */
	/*
	 * The CQE is valid if this equals the number of earlier completions on the CQ plus one
	 * (modulo 2^32). The NIC stores it last, with release.
	 */
	ROOST_ATOMIC_U32 seq;
};

/*
 * The network layer of a received datagram (IBA A17.4.5.1), in the field where NICs for Ethernet
 * report it: the service level, with one bit for RoCE v2.
 */
enum roost_cqe_network {
	ROOST_CQE_IPV6 = 8 | 1,
	ROOST_CQE_IPV4 = 8 | 2,
};

#ifndef __cplusplus
_Static_assert(sizeof(struct roost_cqe) == 64, "CQE layout");
#endif

enum roost_cq_arm {
	ROOST_CQ_UNARMED = 0,
	ROOST_CQ_ARM_SOLICITED = 1, /* notify on the next solicited completion or error */
	ROOST_CQ_ARM_NEXT = 2,	    /* notify on the next completion */
};

struct roost_cq_index {
	ROOST_ATOMIC_U32 cons __attribute__((aligned(64))); /* the program: CQEs consumed */
	ROOST_ATOMIC_U32 arm; /* the program arms (enum roost_cq_arm), the NIC disarms */
	ROOST_ATOMIC_U32 prod __attribute__((aligned(64))); /* the NIC: completions produced */
	/* the NIC: prod after the last completion that was solicited or an error */
	ROOST_ATOMIC_U32 solicited;
};

#ifdef __cplusplus
}
#endif
#endif
