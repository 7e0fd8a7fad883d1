/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The NIC core: (state, event, now) -> (state, packets, completions). It uses no sockets, no clock
 * and no threads.
 *
 * Thread rules of the functions:
 *  [owner]         The caller owns the processing unit; src/drive lets one thread at a time own it.
 *  [control]       One thread at a time makes control calls to a NIC; src/drive holds a mutex. PUs
 *                  may run meanwhile.
 *  [control+owner] Both.
 *  [any]           Any thread may call the function, at any time.
 *
 * Errors are negative errno values. Times (`now`) are in nanoseconds of one monotonic clock.
 */
#ifndef ROOST_NIC_NIC_H
#define ROOST_NIC_NIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/numbers.h"
#include "base/secret.h"
#include "packet/headers.h"
#include "packet/icrc.h"
#include "port/port.h"
#include "roost/wqe.h"

#include "nic/counters.h"

#define NIC_MAX_PORTS 16 /* ports of the core; each has one address */
/* Port numbers of the verbs. Each has a GID table, whose entries are ports of the core. */
#define NIC_MAX_PORT_NUMS 2
#define NIC_MAX_PUS	  PORT_MAX_LANES
#define NIC_MAX_QPS	  16384 /* an index has 14 bits */
#define NIC_MAX_WR	  32768
#define NIC_MAX_CQE	  (1u << 22)
#define NIC_MAX_MRS	  (1u << 20)
#define NIC_MAX_SRQS	  16384
#define NIC_MAX_RD_ATOMIC 128 /* the limit of rxe, so that both ends of a connection agree */
#define NIC_MAX_AHS	  65536
#define NIC_MAX_GROUPS	  256 /* multicast groups; the udp port opens a socket for each */
#define NIC_MAX_GROUP_QPS 64  /* QPs that are attached to one group */
#define NIC_MAX_MSG	  (1u << 31)

struct nic;
struct nic_cq;
struct nic_qp;
struct nic_srq;
struct nic_mr;

/*
 * The values equal those of enum ibv_qp_type, ibv_qp_state, ibv_access_flags, ibv_wc_status,
 * ibv_event_type and ibv_qp_attr_mask, so that src/verbs need not translate them (it asserts this).
 */
enum nic_qp_type { NIC_QPT_RC = 2, NIC_QPT_UC = 3, NIC_QPT_UD = 4 };

enum nic_qp_state {
	NIC_QPS_RESET,
	NIC_QPS_INIT,
	NIC_QPS_RTR,
	NIC_QPS_RTS,
	NIC_QPS_SQD,
	NIC_QPS_SQE,
	NIC_QPS_ERR
};

enum nic_access {
	NIC_ACCESS_LOCAL_WRITE = 1 << 0,
	NIC_ACCESS_REMOTE_WRITE = 1 << 1,
	NIC_ACCESS_REMOTE_READ = 1 << 2,
	NIC_ACCESS_REMOTE_ATOMIC = 1 << 3,
	NIC_ACCESS_MW_BIND = 1 << 4,	/* region: windows may be bound to it */
	NIC_ACCESS_ZERO_BASED = 1 << 5, /* window: its addresses start at 0 */
};

enum nic_wc_status {
	NIC_WC_SUCCESS = 0,
	NIC_WC_LOC_LEN_ERR = 1,
	NIC_WC_LOC_QP_OP_ERR = 2,
	NIC_WC_LOC_PROT_ERR = 4,
	NIC_WC_WR_FLUSH_ERR = 5,
	NIC_WC_MW_BIND_ERR = 6,
	NIC_WC_BAD_RESP_ERR = 7,
	NIC_WC_REM_INV_REQ_ERR = 9,
	NIC_WC_REM_ACCESS_ERR = 10,
	NIC_WC_REM_OP_ERR = 11,
	NIC_WC_RETRY_EXC_ERR = 12,
	NIC_WC_RNR_RETRY_EXC_ERR = 13,
	NIC_WC_FATAL_ERR = 19,
};

enum nic_wc_opcode {
	NIC_WC_SEND = 0,
	NIC_WC_WRITE = 1,
	NIC_WC_READ = 2,
	NIC_WC_CMP_SWAP = 3,
	NIC_WC_FETCH_ADD = 4,
	NIC_WC_BIND_MW = 5,
	NIC_WC_LOCAL_INV = 6,
	NIC_WC_RECV = 128,
	NIC_WC_RECV_WRITE_IMM = 129,
	NIC_WC_RPC = 135, /* the verbs reserve two values for drivers */
	NIC_WC_RPC_WRITE = 136,
};

enum nic_wc_flags { NIC_WC_GRH = 1, NIC_WC_WITH_IMM = 2, NIC_WC_WITH_INV = 8 };

enum nic_event {
	NIC_EVENT_CQ_ERR = 0,
	NIC_EVENT_QP_FATAL = 1,
	NIC_EVENT_QP_REQ_ERR = 2,
	NIC_EVENT_QP_ACCESS_ERR = 3,
	NIC_EVENT_COMM_EST = 4,
	NIC_EVENT_SQ_DRAINED = 5,
	NIC_EVENT_SRQ_ERR = 14,
	/* fewer receives are posted than the limit; raised once for each time the limit is set */
	NIC_EVENT_SRQ_LIMIT = 15,
	/* a QP in the error state takes no more from its SRQ; its receives have completed */
	NIC_EVENT_LAST_WQE = 16,
	/* as COMM_EST, for a QP that is already in RTS; the verbs have no such event */
	NIC_EVENT_FIRST_PACKET = 17,
};

/*
 * The functions of the host. The owner of a PU calls them inside nic_poll() and control calls. They
 * must not call the NIC and must not block.
 */
struct nic_host_ops {
	/* an armed CQ got a completion; it is no longer armed */
	void (*cq_event)(void *host, void *cq_ctx);
	/*
	 * Raises an asynchronous event of a QP, at most once until the QP is reset; SQ_DRAINED once
	 * for each change to SQD.
	 */
	void (*qp_event)(void *host, enum nic_event ev, void *qp_ctx);
	void (*cq_error)(void *host, void *cq_ctx); /* the CQ overran */
	void (*srq_event)(void *host, enum nic_event ev, void *srq_ctx);
	/*
	 * QP 1 received a management datagram of NIC_GSI_LEN bytes on this port. src, dst and mad
	 * are valid during the call. NULL: the NIC has no QP 1.
	 */
	void (*gsi)(void *host, unsigned port, const struct pkt_addr *src,
		    const struct pkt_addr *dst, const uint8_t *mad);
	/*
	 * A datagram from QP 1 to dst found no NIC. This is a hint (struct port_hint): it may be
	 * late or repeated. `tid` is the transaction id of the datagram, so only a host that sees
	 * the NIC's packets can forge the hint. May be NULL.
	 */
	void (*gsi_lost)(void *host, const struct pkt_addr *dst, uint64_t tid);
	/*
	 * The NIC took the QP to the error state because its peer is gone (alive.c). May be NULL.
	 */
	void (*peer_gone)(void *host, uint32_t qpn);
	/*
	 * `pu` has new work, and no thread may be running it. The caller owns another PU. May be
	 * NULL if threads run all PUs all the time.
	 */
	void (*kick)(void *host, unsigned pu);
};

struct nic_config {
	unsigned pus; /* 1 .. NIC_MAX_PUS */
	/* 1 .. NIC_MAX_PORT_NUMS: port[k] has GID 0 of port number k + 1 */
	unsigned ports;
	/* borrowed; the caller closes them after nic_destroy() */
	struct port *port[NIC_MAX_PORTS][NIC_MAX_PUS];
	/* for QP numbers, keys and handles: from secret_entropy(), or fixed in tests */
	uint64_t seed[SECRET_WORDS];
	/*
	 * The stored sequences of QP numbers and of memory keys. The NIC continues and updates
	 * them. They are borrowed until nic_destroy(). NULL: the NIC starts new sequences.
	 */
	struct qp_numbers *qp_numbers[NIC_MAX_PUS];
	struct key_sequence keys;
	unsigned timeout_scale; /* factor for all time-outs (debugging); 0 counts as 1 */
	const struct nic_host_ops *ops;
	void *host;
};

/*
 * Creates a NIC. Returns 0, -ENOMEM, -EINVAL (also: two ports of a PU have different slots), or the
 * error of installing the fault handler (dma_init()). [control]
 */
int nic_create(const struct nic_config *cfg, struct nic **out);
/*
 * Destroys the NIC and frees the objects that are left. No thread may run its PUs any more.
 * [control]
 */
void nic_destroy(struct nic *nic);

/*
 * Runs one turn of a PU: receives a burst, answers, takes doorbells, sends, runs timers, flushes.
 * The work of a turn is bounded. Returns the number of packets and WQEs processed; 0 means that the
 * PU is idle. [owner]
 */
unsigned nic_poll(struct nic *nic, unsigned pu, uint64_t now);
/*
 * Sends the datagrams that are posted on the UD QPs of a PU, and the ACK that is delayed
 * (ack_delay.h), as far as the ports and the windows take them at once. Called before an address
 * handle or a UD QP is destroyed, and at exit. [owner]
 */
void nic_send_datagrams(struct nic *nic, unsigned pu, uint64_t now);
/*
 * nic_turn_end_requested() returns true if nic_rpc_request_turn_end() was called in the last turn.
 * nic_turn_ended() reports the time when the turn ended: the driver reads the clock after such a
 * turn, and calls nic_turn_ended() before the PU gets another owner. [owner]
 */
bool nic_turn_end_requested(const struct nic *nic, unsigned pu);
void nic_turn_ended(struct nic *nic, unsigned pu, uint64_t now);
/*
 * Returns the latest time of the PU's next turn if no event comes; UINT64_MAX: none is needed.
 * [owner]
 */
uint64_t nic_deadline(struct nic *nic, unsigned pu);
/*
 * Returns true if the PU has work that no descriptor reports: doorbells, delayed packets. [owner]
 */
bool nic_pending(struct nic *nic, unsigned pu);

/* Returns the number of PUs. [any] */
unsigned nic_pus(const struct nic *nic);
/* Returns the slot in the QP numbers of a PU (PORT_SLOT_OF_QPN). [any] */
unsigned nic_slot(const struct nic *nic, unsigned pu);
/* Returns the number of ports of the core, which never decreases. [any] */
unsigned nic_ports(const struct nic *nic);
/* Returns a port of the core, or NULL if `port` or `pu` does not exist. Both count from 0. [any] */
struct port *nic_port(const struct nic *nic, unsigned port, unsigned pu);

/*
 * Port numbers and GIDs are the names that programs have for the ports of the core. Port numbers
 * start at 1. Each has a table of GIDs (addresses), numbered from 0 without a gap. A port number
 * and a GID index name one port of the core. [any]
 */
/* Returns the number of port numbers. */
unsigned nic_port_nums(const struct nic *nic);
/* Returns the number of GIDs of a port number; 0: the port number does not exist. */
unsigned nic_gids(const struct nic *nic, unsigned port_num);
struct nic_gid {
	unsigned port; /* port of the core, from 0 */
	unsigned port_num, index;
};
/* Finds the GID by port number and index. Returns false if it does not exist. */
bool nic_gid(const struct nic *nic, unsigned port_num, unsigned index, struct nic_gid *out);
/* Finds the first GID with this address. Returns false if no GID has it. */
bool nic_gid_of(const struct nic *nic, const struct pkt_addr *addr, struct nic_gid *out);
/*
 * Appends a GID to port_num's table. lane[i] belongs to PU i and is borrowed, like the ports of the
 * configuration. Returns 0; -EINVAL: the port number does not exist, or the slot differs from the
 * PU's; -ENOSPC: NIC_MAX_PORTS reached. [control+owner of all PUs]
 */
int nic_port_add(struct nic *nic, unsigned port_num, struct port *const lane[NIC_MAX_PUS]);

/* Adds a PU's counters to *sum. [owner] */
void nic_pu_counters(const struct nic *nic, unsigned pu, struct nic_counters *sum);
/* Returns the number of a PU's RC and UC queue pairs that are connected. [control+owner] */
unsigned nic_connections(const struct nic *nic, unsigned pu);
/* The traffic that a PU has received since its creation. */
struct nic_rx_totals {
	uint64_t packets;
	uint64_t requests; /* packets that changed memory: WRITEs, atomics, calls */
	uint64_t receives; /* completed receives */
};
/* Returns the totals of a PU since its creation. [owner] */
struct nic_rx_totals nic_rx_totals(const struct nic *nic, unsigned pu);
/* Sums the counters of all PUs. [owner of all PUs] */
void nic_counters(const struct nic *nic, struct nic_counters *out);
/* Numbers of objects that exist, for limits and leak tests. */
struct nic_usage {
	uint32_t ahs, groups, qps, cqs, mrs, mws, pds, srqs;
	uint64_t qp_bytes; /* bytes of memory that the core uses for all QPs */
	/* see below; memory_refused: number of refusals */
	uint64_t memory, memory_limit, memory_refused;
};
/* Stores the numbers of objects and the memory in use. [control] */
void nic_usage(const struct nic *nic, struct nic_usage *out);

/*
 * Sets the limit, in bytes, of the memory of connections and kernels together: queue pairs and
 * their queues, shared receive queues, slots of calls, resources of kernels. Memory in use stays in
 * use, even above the limit. 0: no limit. [any]
 */
void nic_memory_limit(struct nic *nic, uint64_t bytes);
/*
 * nic_memory_take() counts `bytes` of such memory as used. It returns false, and counts nothing, if
 * that would exceed the limit. nic_memory_give() ends the use. [any]
 */
bool nic_memory_take(struct nic *nic, uint64_t bytes);
void nic_memory_give(struct nic *nic, uint64_t bytes);

/*
 * Allocates or frees a protection domain, which is a number. nic_pd_alloc() returns 0 or -ENOMEM;
 * nic_pd_free() returns 0, -EINVAL (no such domain), or -EBUSY while an object uses it. [control]
 */
int nic_pd_alloc(struct nic *nic, uint32_t *pd);
int nic_pd_free(struct nic *nic, uint32_t pd);

/* ---- memory regions ---- */

struct nic_mr_attr {
	uint32_t pd;
	void *addr;    /* first byte in the program's memory */
	uint64_t len;  /* 0 is allowed */
	uint64_t iova; /* the address of the first byte for peers and WQEs */
	/* enum nic_access; LOCAL_WRITE is required for REMOTE_WRITE and REMOTE_ATOMIC */
	uint32_t access;
	bool invalidatable; /* a peer's SEND with invalidate may invalidate the key (IBA 10.6.5) */
};
/*
 * Registers a region; *key is its lkey and rkey. Does not access the memory. Returns 0, -EINVAL or
 * -ENOMEM. [control]
 */
int nic_mr_register(struct nic *nic, const struct nic_mr_attr *attr, uint32_t *key);
/*
 * Removes the key from the table. A PU may still access the memory: the caller must own each PU
 * once (drive_quiesce) before it frees the memory. Returns 0, -ENOENT; -EBUSY while a window is
 * bound to the region or a hook is attached to it. [control]
 */
int nic_mr_deregister(struct nic *nic, uint32_t key);

/*
 * Allocates or frees a memory window of type 1 or 2 (2B: bound to a QP). ROOST_OP_BIND_MW binds it.
 * ROOST_OP_LOCAL_INV or a peer's SEND with invalidate invalidates a window of type 2. Each binding
 * changes the low 8 bits of the key; nic_mw_dealloc() ignores them and ends the binding.
 * nic_mw_alloc() returns 0, -EINVAL, -ENOMEM, or -EAGAIN (keys of windows must rest for
 * NUMBERS_REST_S first); nic_mw_dealloc() returns 0 or -ENOENT. [control]
 */
int nic_mw_alloc(struct nic *nic, uint32_t pd, unsigned type, uint64_t now, uint32_t *key);
int nic_mw_dealloc(struct nic *nic, uint32_t key);

/* ---- completion queues ---- */

struct nic_cq_attr {
	unsigned pu;
	uint32_t depth;		/* CQEs in the ring; a power of two. 0: the CQ only counts */
	struct roost_cqe *ring; /* zeroed; NULL with depth 0 */
	/* zeroed; a `prod` of n means that n completions count as taken already */
	struct roost_cq_index *index;
	void *ctx; /* passed to cq_event() */
};
/* Creates a completion queue. Returns 0, -EINVAL or -ENOMEM. [control] */
int nic_cq_create(struct nic *nic, const struct nic_cq_attr *attr, struct nic_cq **out);
/* Destroys a completion queue. Returns 0, or -EBUSY while a QP uses it. [control+owner] */
int nic_cq_destroy(struct nic *nic, struct nic_cq *cq);
/* Returns the PU of a completion queue. [any] */
unsigned nic_cq_pu(const struct nic_cq *cq);
/*
 * Replaces the ring, for a resize. The caller has copied the CQEs that the program has not taken,
 * with seq numbers that are valid for the new depth. [control+owner]
 */
void nic_cq_set_ring(struct nic_cq *cq, struct roost_cqe *ring, uint32_t depth);

/* ---- shared receive queues ---- */

struct nic_queue_attr {
	void *ring;			 /* depth << stride_shift bytes */
	uint64_t *wr_id;		 /* depth entries */
	struct roost_queue_index *index; /* zeroed */
	uint32_t depth;			 /* power of two; 0: no queue */
	uint8_t stride_shift;		 /* 6 .. 10 */
};

/*
 * All QPs of an SRQ belong to one PU: the PU of the first QP's send CQ. Posting a receive needs no
 * doorbell.
 */
struct nic_srq_attr {
	uint32_t pd; /* of the receives; the QPs may have other PDs */
	struct nic_queue_attr rq;
	void *ctx; /* passed to srq_event() */
};
/* Creates a shared receive queue. Returns 0, -EINVAL or -ENOMEM. [control] */
int nic_srq_create(struct nic *nic, const struct nic_srq_attr *attr, struct nic_srq **out);
/* Destroys a shared receive queue. Returns 0, or -EBUSY while a QP uses it. [control] */
int nic_srq_destroy(struct nic *nic, struct nic_srq *srq);
/*
 * Arms NIC_EVENT_SRQ_LIMIT: when a QP next takes a receive and fewer than `limit` are left, the
 * event is raised, once. 0 disarms the event. Returns 0, or -EINVAL if the limit exceeds the depth.
 * [owner of nic_srq_pu]
 */
int nic_srq_set_limit(struct nic_srq *srq, uint32_t limit);
/*
 * Replaces the ring, for a resize, by an empty one of the same stride with its own index, and moves
 * the posted receives. The program must not post meanwhile. Returns 0; -EINVAL, and nothing has
 * changed, if the posted receives or the limit exceed the new depth. [owner of nic_srq_pu]
 */
int nic_srq_set_ring(struct nic_srq *srq, const struct nic_queue_attr *rq);
/* Returns the limit, which is 0 after the event. [owner] */
uint32_t nic_srq_limit(const struct nic_srq *srq);
/* Returns the PU, which may change while no QP uses the SRQ. [control] */
unsigned nic_srq_pu(const struct nic_srq *srq);

/* ---- address handles ---- */

struct nic_ah_attr {
	uint32_t pd; /* protection domain of the QPs that may use the handle */
	struct pkt_addr dgid;
	uint8_t port; /* 1 .. ports */
	uint8_t sgid_index, traffic_class;
};
/*
 * Creates an address handle. WQEs carry *handle (ROOST_UD_ADDR in roost/wqe.h). Returns 0, -EINVAL,
 * -ENOMEM, or the port's error if it cannot reach dgid. [control+owner of all PUs]
 */
int nic_ah_create(struct nic *nic, const struct nic_ah_attr *attr, uint32_t *handle);
/*
 * Destroys an address handle. WQEs that still name it end in error. Returns 0 or -ENOENT.
 * [control+owner of all PUs]
 */
int nic_ah_destroy(struct nic *nic, uint32_t handle);

/* ---- multicast groups ---- */

#define NIC_MCAST_QPN 0xffffffu /* destination QP number of multicast packets */

/*
 * Attaches a UD QP to a multicast group, or detaches it. An attached QP receives every datagram to
 * the group with the right Q_Key that comes to an address of the QP's port number (1 if the QP has
 * none yet), its own datagrams too. To include addresses that were added later, attach the QP
 * again. nic_qp_destroy() detaches a QP. After an error nothing has changed:
 *  -EINVAL        no group address, or not UD
 *  -EAFNOSUPPORT  no address of the group's family
 *  -ENOSPC        NIC_MAX_GROUPS or NIC_MAX_GROUP_QPS reached
 *  -ENOENT        detach: the QP is not attached
 *  -ENOMEM, or the error of a port
 *
 * [control+owner of nic_qp_pu]
 */
int nic_qp_attach(struct nic *nic, struct nic_qp *qp, const struct pkt_addr *group);
int nic_qp_detach(struct nic *nic, struct nic_qp *qp, const struct pkt_addr *group);
/* Returns the number of groups of the QP. [control] */
uint32_t nic_qp_groups(const struct nic_qp *qp);

/* ---- QP 1: management datagrams ---- */

#define NIC_GSI_QPN  1u
#define NIC_GSI_QKEY 0x80010000u
#define NIC_GSI_LEN  256u

/*
 * Sends a datagram from QP 1 to QP 1 of dst. Delivery is unreliable: 0 means that the port has
 * taken it, or that it waits until the port has space. -EAGAIN: the port has no space, and there is
 * no memory to wait in; -EINVAL: no such port; or the port's error if it cannot reach dst.
 * [control+owner of PU 0]
 */
int nic_gsi_send(struct nic *nic, unsigned port, const struct pkt_addr *dst, uint8_t tclass,
		 const uint8_t *mad);
/*
 * Tells the port the destinations of the next datagrams, so that it need not look for each of them
 * alone; n 0: they were staged. [control+owner of PU 0]
 */
void nic_gsi_expect(struct nic *nic, unsigned port, const struct pkt_addr *dst, unsigned n);
/* Sends a datagram in two steps: a staged datagram leaves with the next flush or turn. */
int nic_gsi_stage(struct nic *nic, unsigned port, const struct pkt_addr *dst, uint8_t tclass,
		  const uint8_t *mad);
void nic_gsi_flush(struct nic *nic, unsigned port);

/* ---- queue pairs ---- */

struct nic_qp_init {
	enum nic_qp_type type; /* -EOPNOTSUPP for a type that is not in the enum */
	uint32_t pd;
	struct nic_cq *send_cq, *recv_cq;
	struct nic_srq *srq; /* NULL: receives come from rq; else rq is not used */
	struct nic_queue_attr sq, rq;
	uint32_t max_inline; /* bytes that a WQE may carry inline */
	bool sig_all;	     /* every WQE counts as signaled */
	void *ctx;	     /* passed to qp_event() */
	uint64_t now;	     /* the present time; QP numbers rest for NUMBERS_REST_S */
};
/* Returns the PU of the new QP: the PU of the SRQ's other QPs, else the PU of send_cq. [control] */
unsigned nic_qp_home_pu(const struct nic_qp_init *init);
/*
 * Creates a queue pair in RESET. Returns 0, -EOPNOTSUPP, -EINVAL, -ENOMEM (also: NIC_MAX_QPS are in
 * use, or the memory limit is reached), or -EAGAIN (all numbers that are free were used within the
 * last NUMBERS_REST_S). [control+owner of nic_qp_home_pu and of the CQs' PUs]
 */
int nic_qp_create(struct nic *nic, const struct nic_qp_init *init, struct nic_qp **out);
/* Destroys the QP. Posted work gets no completion. [control+owner] */
void nic_qp_destroy(struct nic *nic, struct nic_qp *qp);
/* Returns the number of a queue pair. [any] */
uint32_t nic_qp_num(const struct nic_qp *qp);
/* Returns the PU of a queue pair. [any] */
unsigned nic_qp_pu(const struct nic_qp *qp);
/* Returns the state, which may change to the error state at any time. [any] */
enum nic_qp_state nic_qp_state(const struct nic_qp *qp);

/* The bits equal those of enum ibv_qp_attr_mask. */
enum nic_qp_attr_mask {
	NIC_QPA_STATE = 1 << 0,
	NIC_QPA_CUR_STATE = 1 << 1,
	NIC_QPA_EN_SQD_ASYNC_NOTIFY = 1 << 2,
	NIC_QPA_ACCESS_FLAGS = 1 << 3,
	NIC_QPA_PKEY_INDEX = 1 << 4,
	NIC_QPA_PORT = 1 << 5,
	NIC_QPA_QKEY = 1 << 6,
	NIC_QPA_AV = 1 << 7,
	NIC_QPA_PATH_MTU = 1 << 8,
	NIC_QPA_TIMEOUT = 1 << 9,
	NIC_QPA_RETRY_CNT = 1 << 10,
	NIC_QPA_RNR_RETRY = 1 << 11,
	NIC_QPA_RQ_PSN = 1 << 12,
	NIC_QPA_MAX_QP_RD_ATOMIC = 1 << 13,
	NIC_QPA_ALT_PATH = 1 << 14,
	NIC_QPA_MIN_RNR_TIMER = 1 << 15,
	NIC_QPA_SQ_PSN = 1 << 16,
	NIC_QPA_MAX_DEST_RD_ATOMIC = 1 << 17,
	NIC_QPA_PATH_MIG_STATE = 1 << 18,
	NIC_QPA_CAP = 1 << 19,
	NIC_QPA_DEST_QPN = 1 << 20,
	NIC_QPA_RATE_LIMIT = 1 << 25,
};

struct nic_qp_attr {
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
	uint8_t max_rd_atomic, max_dest_rd_atomic;
	uint8_t port; /* 1 .. ports */
	bool sq_draining;
	enum nic_qp_state state, cur_state;
	uint32_t path_mtu; /* bytes: 256 .. 4096 */
	uint32_t qkey;
	uint32_t rq_psn, sq_psn;
	uint32_t dest_qpn;
	uint32_t access; /* enum nic_access: the accesses that this QP allows to the peer */
	struct pkt_addr dgid;
	uint8_t sgid_index, traffic_class, hop_limit, sl;
	uint32_t flow_label;
	uint16_t pkey_index;
};
/*
 * Changes attributes and state by the transition rules of IBA 10.3.1 and 11.2.5.2. Returns 0;
 * -EINVAL: a transition or an attribute is not allowed, or a value is out of range; -ENOMEM; or the
 * port's error if it cannot reach dgid. After an error nothing has changed. [control+owner]
 */
int nic_qp_modify(struct nic *nic, struct nic_qp *qp, const struct nic_qp_attr *attr, uint32_t mask,
		  uint64_t now);
/* Stores the attributes and the state of the QP. [owner] */
void nic_qp_query(const struct nic_qp *qp, struct nic_qp_attr *attr);
/*
 * Switches keep-alive on or off. After a second without a packet from the peer the QP sends packets
 * that every RC responder answers. After about ten seconds of silence the QP goes to the error
 * state, with RETRY_EXC_ERR if work was outstanding, else with QP_FATAL. If the port does not know
 * the state of the peer's process, because it is on another machine, this takes half a minute. A
 * process that the port knows to be stopped has no time limit. Both ends must have agreed to
 * keep-alive. Returns 0; -EOPNOTSUPP: not RC. [control+owner]
 */
int nic_qp_keepalive(struct nic *nic, struct nic_qp *qp, bool on, uint64_t now);

/*
 * Tells the PU of posted work. Call it after a store to index->prod of the send queue, or of the
 * receive queue of a QP in the error state, whose receives are flushed. Returns true if the PU may
 * be asleep or idle; a thread must then run nic_poll(). [any]
 */
bool nic_doorbell(struct nic *nic, struct nic_qp *qp);
/*
 * Returns true if earlier work is still under way, after a doorbell that returned true. The result
 * is a hint for the choice of the thread that runs the turn: it may be false by mistake. [any]
 */
bool nic_qp_busy(struct nic_qp *qp);

#endif
