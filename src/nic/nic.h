/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The NIC core: (state, event, now) -> (state, packets, completions). No sockets, no clock, no
 * threads.
 *
 * Thread rules. Three kinds of calls:
 *  [owner]    the caller owns the processing unit: one thread at a time drives it (src/drive sees
 *             to that).
 *  [control]  one control call at a time per NIC (src/drive has a mutex for it), PUs may run
 *             meanwhile.
 *  [control+owner] both.
 *  [any]      any thread, any time.
 * Errors are negative errno values. Times are nanoseconds of one monotonic clock, handed in as
 * `now`.
 */
#ifndef ROOST_NIC_NIC_H
#define ROOST_NIC_NIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/secret.h"
#include "packet/headers.h"
#include "packet/icrc.h"
#include "port/port.h"
#include "roost/wqe.h"

#include "nic/counters.h"

#define NIC_MAX_PORTS 16 /* ways in and out, each with an address of its own */
/* what programs call ports: each has a table of such addresses, its GIDs */
#define NIC_MAX_PORT_NUMS 2
#define NIC_MAX_PUS	  PORT_MAX_LANES
#define NIC_MAX_QPS	  16384 /* 14 bits of index */
#define NIC_MAX_WR	  32768
#define NIC_MAX_CQE	  (1u << 22)
#define NIC_MAX_MRS	  (1u << 20)
#define NIC_MAX_SRQS	  16384
#define NIC_MAX_RD_ATOMIC 128 /* as rxe has it, so that programs of both ends ask for the same */
#define NIC_MAX_AHS	  65536
#define NIC_MAX_GROUPS	  256 /* multicast groups: a socket each on udp */
#define NIC_MAX_GROUP_QPS 64  /* QPs attached to one of them */
#define NIC_MAX_MSG	  (1u << 31)

struct nic;
struct nic_cq;
struct nic_qp;
struct nic_srq;
struct nic_mr;

/*
 * Values are those of enum ibv_qp_type, ibv_qp_state, ibv_access_flags, ibv_wc_status,
 * ibv_event_type, and the bits of enum ibv_qp_attr_mask (src/verbs asserts it), so that the verbs
 * stay thin.
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
	NIC_ACCESS_MW_BIND = 1 << 4,	/* of a region: windows may be bound to it */
	NIC_ACCESS_ZERO_BASED = 1 << 5, /* of a window: its addresses count from 0 */
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
	NIC_WC_RPC = 135, /* the verbs leave two values to drivers */
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
	/* fewer receives are posted than the limit says; once for each time it is set */
	NIC_EVENT_SRQ_LIMIT = 15,
	/* a QP in the error state takes no more from its SRQ, and what it took has completed */
	NIC_EVENT_LAST_WQE = 16,
	/*
	 * as COMM_EST, of a QP that is in RTS when the first packet comes: none of the verbs'
	 * events
	 */
	NIC_EVENT_FIRST_PACKET = 17,
};

/*
 * Called by the owner of a PU from inside nic_poll and control calls. Must not call the NIC back,
 * must not block.
 */
struct nic_host_ops {
	void (*cq_event)(void *host, void *cq_ctx); /* an armed CQ fired; it is unarmed now */
	void (*qp_event)(void *host, enum nic_event ev,
			 void *qp_ctx);		    /* at most once per event and life of a QP */
	void (*cq_error)(void *host, void *cq_ctx); /* CQ overrun */
	void (*srq_event)(void *host, enum nic_event ev, void *srq_ctx);
	/*
	 * A management datagram of NIC_GSI_LEN bytes came to QP 1 by this port, from src to dst.
	 * All three are valid during the call. NULL: there is no QP 1.
	 */
	void (*gsi)(void *host, unsigned port, const struct pkt_addr *src,
		    const struct pkt_addr *dst, const uint8_t *mad);
	/*
	 * A datagram that QP 1 sent there found no NIC: a hint (struct port_hint), which may be
	 * late or repeated. `tid` is the datagram's transaction id, so who can't see our packets
	 * can't forge it. May be NULL.
	 */
	void (*gsi_lost)(void *host, const struct pkt_addr *dst, uint64_t tid);
	/* The QP was ended because its peer is gone (nic/alive.c). May be NULL. */
	void (*peer_gone)(void *host, uint32_t qpn);
	/*
	 * A PU has work from another one, whose owner calls this, and may be asleep. May be NULL:
	 * somebody drives it all the time.
	 */
	void (*kick)(void *host, unsigned pu);
};

struct nic_config {
	unsigned pus;	/* 1 .. NIC_MAX_PUS */
	unsigned ports; /* 1 .. NIC_MAX_PORT_NUMS: programs' ports 1 .. ports, GID 0 of each */
	/* borrowed; closed by the caller after nic_destroy */
	struct port *port[NIC_MAX_PORTS][NIC_MAX_PUS];
	uint64_t seed
		[SECRET_WORDS]; /* of QP numbers, keys and handles: from secret_entropy(), or fixed in tests */
	unsigned timeout_scale; /* all time-outs are multiplied by it (debugging); 0 counts as 1 */
	const struct nic_host_ops *ops;
	void *host;
};

/* 0 and *out, or -ENOMEM, -EINVAL. [control] */
int nic_create(const struct nic_config *cfg, struct nic **out);
/*
 * All QPs, CQs and MRs must be gone or are freed with it; nobody may drive it any more. [control]
 */
void nic_destroy(struct nic *nic);

/*
 * One turn of a PU: receives a burst, answers, takes doorbells, sends, runs timers, flushes.
 * Bounded work. Returns the amount of work done (packets and WQEs); 0: idle for now. [owner]
 */
unsigned nic_poll(struct nic *nic, unsigned pu, uint64_t now);
/*
 * Whoever serves calls wants to know when that turn was over; and is told. Who has asked holds what
 * the answer is for: whoever reads a clock after turns tells it before the PU has another owner.
 * [owner]
 */
bool nic_wants_time(const struct nic *nic, unsigned pu);
void nic_tell_time(struct nic *nic, unsigned pu, uint64_t now);
/* When the PU wants to run again at the latest without any event (UINT64_MAX: never). [owner] */
uint64_t nic_deadline(struct nic *nic, unsigned pu);
/* True when a turn would find work now that no fd announces: doorbells, sends held back. [owner] */
bool nic_pending(struct nic *nic, unsigned pu);

unsigned nic_pus(const struct nic *nic);
/* The slot in the QP numbers of a PU (PORT_SLOT_OF_QPN). [any] */
unsigned nic_slot(const struct nic *nic, unsigned pu);
/* they never become fewer. [any] */
unsigned nic_ports(const struct nic *nic);
/* port counts from 0. [any] */
struct port *nic_port(const struct nic *nic, unsigned port, unsigned pu);

/*
 * What programs see: ports numbered from 1, each with a table of GIDs (addresses), numbered from 0
 * without a gap. A program that names port number and GID index means one of our ports. [any]
 */
unsigned nic_port_nums(const struct nic *nic);
unsigned nic_gids(const struct nic *nic, unsigned port_num); /* 0: no such port number */
struct nic_gid {
	unsigned port; /* of ours, from 0 */
	unsigned port_num, index;
};
/* Of a port number and GID index; false: there is no such. */
bool nic_gid(const struct nic *nic, unsigned port_num, unsigned index, struct nic_gid *out);
/* Of an address; the first one that has it. */
bool nic_gid_of(const struct nic *nic, const struct pkt_addr *addr, struct nic_gid *out);
/*
 * One GID more at the end of port_num's table: lane[i] is PU i's. The port is borrowed as those of
 * the configuration are. 0, -EINVAL (also: its slot is not the PU's), or -ENOSPC: NIC_MAX_PORTS
 * are there. [control+owner of all PUs]
 */
int nic_port_add(struct nic *nic, unsigned port_num, struct port *const lane[NIC_MAX_PUS]);

/* Adds a PU's counters to *sum. [owner] */
void nic_pu_counters(const struct nic *nic, unsigned pu, struct nic_counters *sum);
/* What came to a PU. [owner] */
struct nic_came {
	uint64_t packets;
	uint64_t requests; /* packets of peers that changed memory: WRITEs, atomics, calls */
	uint64_t receives; /* that completed */
};
struct nic_came nic_came(const struct nic *nic, unsigned pu);
/* The sum over all PUs. [owner of all] */
void nic_counters(const struct nic *nic, struct nic_counters *out);
/* Live objects, for limits and leak tests. [control] */
struct nic_usage {
	uint32_t ahs, groups, qps, cqs, mrs, mws, pds, srqs;
	uint64_t qp_bytes;			       /* memory of all QPs in the core */
	uint64_t memory, memory_limit, memory_refused; /* as below; how often it was refused */
};
void nic_usage(const struct nic *nic, struct nic_usage *out);

/*
 * Bytes that connections and kernels may take together: queue pairs in the core and their queues,
 * shared receive queues, slots of calls, resources of kernels. What is there stays when it is more.
 * 0: no limit. [any]
 */
void nic_memory_limit(struct nic *nic, uint64_t bytes);
/* Counts memory that somebody takes for these; false: that would be more than the limit. [any] */
bool nic_memory_take(struct nic *nic, uint64_t bytes);
void nic_memory_give(struct nic *nic, uint64_t bytes);

/* Protection domains: a number. [control] */
int nic_pd_alloc(struct nic *nic, uint32_t *pd);
int nic_pd_free(struct nic *nic, uint32_t pd); /* -EBUSY while an MR or QP uses it */

/* ---- memory regions ---- */

struct nic_mr_attr {
	uint32_t pd;
	void *addr;    /* first byte in the program's memory */
	uint64_t len;  /* 0 is allowed */
	uint64_t iova; /* the address peers and WQEs use for the first byte */
	/* enum nic_access; LOCAL_WRITE is required for REMOTE_WRITE and REMOTE_ATOMIC */
	uint32_t access;
	bool invalidatable; /* a peer's SEND with invalidate may take the key back (IBA 10.6.5) */
};
/* *key serves as lkey and rkey. 0, -EINVAL, -ENOMEM. Touches none of the memory. [control] */
int nic_mr_register(struct nic *nic, const struct nic_mr_attr *attr, uint32_t *key);
/*
 * Takes the key out of the table. An access that a PU has already begun may still be running: the
 * caller must then have owned each PU once (drive_quiesce) before the memory counts as free. 0,
 * -ENOENT, or -EBUSY while a window is bound to it or a hook is attached to it. [control]
 */
int nic_mr_deregister(struct nic *nic, uint32_t key);

/*
 * Memory windows of type 1 or 2 (2B: bound to a QP). They are bound by ROOST_OP_BIND_MW, and type 2
 * given back by ROOST_OP_LOCAL_INV or a peer's SEND with invalidate. The low 8 bits of a window's
 * key change with each binding; whichever they are, the key names the window to dealloc, which ends
 * a binding. 0, -EINVAL, -ENOMEM; -ENOENT. [control]
 */
int nic_mw_alloc(struct nic *nic, uint32_t pd, unsigned type, uint32_t *key);
int nic_mw_dealloc(struct nic *nic, uint32_t key);

/* ---- completion queues ---- */

struct nic_cq_attr {
	unsigned pu;
	uint32_t depth;		      /* power of two; memory of depth CQEs */
	struct roost_cqe *ring;	      /* zeroed */
	struct roost_cq_index *index; /* zeroed */
	void *ctx;		      /* handed to cq_event */
};
/* [control] */
int nic_cq_create(struct nic *nic, const struct nic_cq_attr *attr, struct nic_cq **out);
/* -EBUSY while a QP uses it. [control+owner] */
int nic_cq_destroy(struct nic *nic, struct nic_cq *cq);
unsigned nic_cq_pu(const struct nic_cq *cq);
/*
 * Replaces the ring (resize): the caller has copied what was not yet taken, keeping seq numbers
 * valid for the new depth. [control+owner]
 */
void nic_cq_set_ring(struct nic_cq *cq, struct roost_cqe *ring, uint32_t depth);

/* ---- shared receive queues ---- */

struct nic_queue_attr {
	void *ring;			 /* depth << stride_shift bytes */
	uint64_t *wr_id;		 /* depth entries, beside the ring */
	struct roost_queue_index *index; /* zeroed */
	uint32_t depth;			 /* power of two; 0: no such queue */
	uint8_t stride_shift;		 /* 6 .. 10 */
};

/*
 * Receives that any QP of the SRQ may take. All its QPs belong to one PU: that of the send CQ of
 * the first one. Posting needs no doorbell.
 */
struct nic_srq_attr {
	uint32_t pd; /* of the receives; its QPs may have other ones */
	struct nic_queue_attr rq;
	void *ctx; /* handed to srq_event */
};
/* 0, -EINVAL, -ENOMEM. [control] */
int nic_srq_create(struct nic *nic, const struct nic_srq_attr *attr, struct nic_srq **out);
/* -EBUSY while a QP uses it. [control] */
int nic_srq_destroy(struct nic *nic, struct nic_srq *srq);
/*
 * From the next receive that is taken: NIC_EVENT_SRQ_LIMIT when fewer than `limit` are posted then,
 * once. 0 takes the wish back. -EINVAL: beyond the depth. [owner of nic_srq_pu]
 */
int nic_srq_set_limit(struct nic_srq *srq, uint32_t limit);
/*
 * Replaces the ring (resize) by an empty one of the same stride, with an index of its own: receives
 * that wait move over. -EINVAL, and nothing changed: more of them wait than it holds, or the limit
 * is beyond it. Nobody posts meanwhile. [owner of nic_srq_pu]
 */
int nic_srq_set_ring(struct nic_srq *srq, const struct nic_queue_attr *rq);
uint32_t nic_srq_limit(const struct nic_srq *srq); /* 0 once the event was raised. [owner] */
unsigned nic_srq_pu(const struct nic_srq *srq);	   /* may change while no QP uses it. [control] */

/* ---- address handles ---- */

struct nic_ah_attr {
	uint32_t pd;	      /* of the QPs that may use it */
	struct pkt_addr dgid; /* where to */
	uint8_t port;	      /* 1 .. ports */
	uint8_t sgid_index, traffic_class;
};
/*
 * *handle goes into WQEs (ROOST_UD_ADDR in roost/wqe.h). 0, -EINVAL, -ENOMEM, or the error of the
 * port that can't reach dgid. [control+owner of all PUs]
 */
int nic_ah_create(struct nic *nic, const struct nic_ah_attr *attr, uint32_t *handle);
/* WQEs that still name it end in error. 0 or -ENOENT. [control+owner of all PUs] */
int nic_ah_destroy(struct nic *nic, uint32_t handle);

/* ---- multicast groups ---- */

#define NIC_MCAST_QPN 0xffffffu /* the QP number of what is sent to a group */

/*
 * What comes to the group at any address of the QP's port number (that of the moment, 1 before it
 * has one) is given to this UD QP as well, its Q_Key being right: sent by whomever, the QP itself
 * too. Attaching again takes in addresses that came since; detaching what is not attached is
 * -ENOENT. -EINVAL: no group, not UD; -EAFNOSUPPORT: no address of its family; -ENOSPC:
 * NIC_MAX_GROUPS or NIC_MAX_GROUP_QPS reached; -ENOMEM; or what a port says: then nothing has
 * changed. A QP that is destroyed is detached. [control+owner of nic_qp_pu]
 */
int nic_qp_attach(struct nic *nic, struct nic_qp *qp, const struct pkt_addr *group);
int nic_qp_detach(struct nic *nic, struct nic_qp *qp, const struct pkt_addr *group);
uint32_t nic_qp_groups(const struct nic_qp *qp); /* how many it is attached to. [control] */

/* ---- QP 1: management datagrams ---- */

#define NIC_GSI_QPN  1u
#define NIC_GSI_QKEY 0x80010000u
#define NIC_GSI_LEN  256u

/*
 * Sends one from QP 1 to QP 1 of dst. Unreliable: 0 means that the port has it. -EAGAIN: the port
 * has no room, -EINVAL: no such port, or why there is no way to dst. [control+owner of PU 0]
 */
int nic_gsi_send(struct nic *nic, unsigned port, const struct pkt_addr *dst, uint8_t tclass,
		 const uint8_t *mad);
/* The same, in two steps: what is staged leaves with the next flush, or turn. */
int nic_gsi_stage(struct nic *nic, unsigned port, const struct pkt_addr *dst, uint8_t tclass,
		  const uint8_t *mad);
void nic_gsi_flush(struct nic *nic, unsigned port);

/* ---- queue pairs ---- */

struct nic_qp_init {
	enum nic_qp_type type; /* others: -EOPNOTSUPP */
	uint32_t pd;
	struct nic_cq *send_cq, *recv_cq;
	struct nic_srq *srq; /* NULL: receives come from rq, else rq is not used */
	struct nic_queue_attr sq, rq;
	uint32_t max_inline; /* bytes a WQE may carry inline */
	bool sig_all;	     /* every WQE counts as signaled */
	void *ctx;	     /* handed to qp_event */
};
/* The PU that such a QP belongs to: that of the SRQ's other QPs, else that of send_cq. [control] */
unsigned nic_qp_home_pu(const struct nic_qp_init *init);
/* [control+owner of nic_qp_home_pu; when the CQs are of other PUs, of these too] */
int nic_qp_create(struct nic *nic, const struct nic_qp_init *init, struct nic_qp **out);
/* Ends it at once; what was posted is forgotten without completion. [control+owner] */
void nic_qp_destroy(struct nic *nic, struct nic_qp *qp);
uint32_t nic_qp_num(const struct nic_qp *qp);
unsigned nic_qp_pu(const struct nic_qp *qp);
/* The state of the moment: it may change to error at any time. [any] */
enum nic_qp_state nic_qp_state(const struct nic_qp *qp);

/* Bits equal enum ibv_qp_attr_mask. */
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
	enum nic_qp_state state, cur_state;
	uint32_t path_mtu; /* bytes: 256 .. 4096 */
	uint32_t qkey;
	uint32_t rq_psn, sq_psn;
	uint32_t dest_qpn;
	uint32_t access; /* enum nic_access: what the peer may do through this QP */
	struct pkt_addr dgid;
	uint8_t sgid_index, traffic_class, hop_limit, sl;
	uint32_t flow_label;
	uint16_t pkey_index;
	uint8_t port; /* 1 .. ports */
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
	uint8_t max_rd_atomic, max_dest_rd_atomic;
	bool sq_draining;
};
/*
 * The verbs' transition rules (InfiniBand Architecture Specification, volume 1, 10.3.1 and
 * 11.2.5.2): required and optional attributes per transition. 0, -EINVAL (transition or attribute
 * not allowed, value out of range), or the error of the port that can't reach dgid. On error
 * nothing has changed. [control+owner]
 */
int nic_qp_modify(struct nic *nic, struct nic_qp *qp, const struct nic_qp_attr *attr, uint32_t mask,
		  uint64_t now);
void nic_qp_query(const struct nic_qp *qp, struct nic_qp_attr *attr); /* [owner] */
/*
 * The peer is asked for a sign of life when nothing was heard from it for a second, by packets that
 * any RC responder answers; after some seconds of silence the QP goes to the error state, with
 * RETRY_EXC_ERR if something was outstanding, else with QP_FATAL. For connections whose ends have
 * agreed to it. 0, -EOPNOTSUPP: no RC. [control+owner]
 */
int nic_qp_keepalive(struct nic *nic, struct nic_qp *qp, bool on, uint64_t now);

/* ---- calls: op-codes 0x18 .. 0x1c of StRoM, on queue pairs that were given them ---- */

/*
 * Kernels' WRITEs that a QP keeps at most until they are acknowledged; they take no room of the
 * program's work requests.
 */
#define NIC_RPC_SENDS 64

/* A piece of a call's message. Each byte is handed over once, in order. */
struct nic_rpc_piece {
	uint64_t op; /* the kernel's op-code */
	/* during the hook's call only, and a peer may share it: read each byte once */
	const uint8_t *data;
	uint32_t rkey;	   /* names the region of all accesses */
	uint32_t total;	   /* bytes of the message */
	uint32_t off, len; /* of this piece in it */
	bool payload;	   /* of an RPC WRITE; else the parameters, whole */
	bool last;
	/* nothing came in behind it: nobody waits for what it starts to come to an end */
	bool lone;
	uint64_t now; /* when its turn began */
};

/*
 * What serves calls (src/kernels). qp_ctx is what attach() gave. All but attach and detach are
 * called by the owner of the QP's PU, and must not block or allocate.
 */
struct nic_rpc_ops {
	/* The QP was given the op-codes, or loses them. 0 or -errno. [control+owner] */
	int (*attach)(void *ctx, struct nic_qp *qp, void **qp_ctx);
	void (*detach)(void *ctx, void *qp_ctx);
	/*
	 * Takes the piece; or not now (false): the same one is offered again later, unless the peer
	 * breaks the rules.
	 */
	bool (*deliver)(void *ctx, void *qp_ctx, const struct nic_rpc_piece *piece);
	/*
	 * A WRITE of nic_rpc_send() is acknowledged: its memory is free. Must not send from inside.
	 */
	void (*sent)(void *ctx, void *qp_ctx, uint64_t cookie);
	/*
	 * The data of a WRITE of this `call` can't be read any more: zeros go in their place, and
	 * `lost` of it and of those behind it in the place of `tail`. Must not send from inside.
	 * May be NULL.
	 */
	void (*lost)(void *ctx, void *qp_ctx, uint32_t call);
	/* The QP is at its end: calls are forgotten, what was sent is not acknowledged any more. */
	void (*stop)(void *ctx, void *qp_ctx);
	/*
	 * A work request of nic_post_kernel_wr(), of `len` bytes, has ended: its memory is free.
	 * Must not send from inside; also from control calls that own the PU, while the QP is reset
	 * or destroyed. NULL where nobody calls nic_post_kernel_wr(), and so is gone().
	 */
	void (*kernel_wr_done)(void *ctx, struct nic_qp *qp, void *owner, uint32_t number,
			       uint32_t len, enum nic_wc_status status);
	/* A QP of nic_qp_enable_kernel_wrs() is destroyed. [control+owner] */
	void (*gone)(void *ctx, struct nic_qp *qp);
	/*
	 * A bounded turn of what nic_rpc_schedule() announced. Returns the work done; *more: it
	 * wants another one.
	 */
	unsigned (*run)(void *ctx, unsigned pu, bool *more);
	/*
	 * A turn in which it called nic_rpc_ask_time() is over, at `now`. NULL where nobody calls
	 * that.
	 */
	void (*turn_ended)(void *ctx, unsigned pu, uint64_t now);
	/* The NIC ends; its QPs are gone. [control] */
	void (*close)(void *ctx);
};
/*
 * Calls are served by these from now on, until the NIC ends: for QPs that are given the op-codes
 * afterwards. 0, or -EEXIST: somebody serves them already. [control+owner of all PUs]
 */
int nic_rpc_serve(struct nic *nic, const struct nic_rpc_ops *ops, void *ctx);
/* The ctx that these ops were given with; NULL: others serve calls, or nobody. [control] */
void *nic_rpc_server(const struct nic *nic, const struct nic_rpc_ops *ops);

/*
 * Gives a QP the op-codes, until it is reset; both ends have to. 0, -EOPNOTSUPP (not RC), -EINVAL
 * (beyond INIT), -ENOMEM. [control+owner]
 */
int nic_qp_set_rpc(struct nic *nic, struct nic_qp *qp);
bool nic_qp_rpc(const struct nic_qp *qp);
/* What attach() gave for it; NULL: nothing. [control] */
void *nic_rpc_ctx(const struct nic_qp *qp);

/* For the layer that serves calls; all [owner]. */
void nic_rpc_schedule(struct nic_qp *qp);	     /* run() is called in this turn, or the next */
void nic_rpc_wake(struct nic *nic, unsigned pu);     /* the same, for no QP */
void nic_rpc_ring(struct nic *nic, unsigned pu);     /* the same of another PU, soon. [any] */
void nic_rpc_ask_time(struct nic *nic, unsigned pu); /* it wants to know when this turn is over */
/* run() is called in a turn at `when`, or after it, unless that was asked for sooner. */
void nic_rpc_at(struct nic *nic, unsigned pu, uint64_t when);
const struct pkt_addr *nic_rpc_peer(const struct nic_qp *qp); /* the address of its other end */
struct nic_rpc_turn {
	uint64_t number, began;
	bool shared; /* several QPs had packets, or calls, in the last 20 ms */
};
void nic_rpc_runs(struct nic_qp *qp); /* in this turn calls of it run */
struct nic_rpc_turn nic_rpc_turn(const struct nic *nic,
				 unsigned pu); /* the one that is running, or was last */
/*
 * What accesses name: a key that the QP's peer could use; or NIC_RPC_GRANTED(), a region of that
 * protection domain, granted to the call by the NIC's owner, whose other rights the caller has
 * looked at.
 */
typedef uint64_t nic_rpc_key;
#define NIC_RPC_GRANTED(pd, key) (((uint64_t)(pd) + 1) << 32 | (key))

/*
 * A call's accesses: what the QP's peer could READ, WRITE, or compare and swap by this key; of a
 * granted region what its owner may. 0, -EACCES (key, bounds, rights, an atomic that is not
 * aligned), -EFAULT (memory gone). dst is memory of the server's own. Memory is read in the order
 * of dma_load_up(), one access after the other.
 */
int nic_rpc_read(struct nic_qp *qp, nic_rpc_key key, uint64_t va, void *dst, uint32_t n);
int nic_rpc_write(struct nic_qp *qp, nic_rpc_key key, uint64_t va, const void *src, uint32_t n);
/*
 * As nic_rpc_write(), past the cache where that pays. Others may see it in any order until
 * nic_rpc_put_done().
 */
int nic_rpc_put(struct nic_qp *qp, nic_rpc_key key, uint64_t va, const void *src, uint32_t n);
void nic_rpc_put_done(void);
int nic_rpc_copy(struct nic_qp *qp, nic_rpc_key dst_key, uint64_t dst, nic_rpc_key src_key,
		 uint64_t src, uint32_t n);
/* 8 bytes. *value: what is expected there, then what was. */
int nic_rpc_cmp_swap(struct nic_qp *qp, nic_rpc_key key, uint64_t va, uint64_t *value,
		     uint64_t swap);
/*
 * True when such an access would be granted now (enum nic_access); its first lines are on their way
 * to the cache then.
 */
bool nic_rpc_prefetch(const struct nic_qp *qp, nic_rpc_key key, uint64_t va, uint32_t n,
		      uint32_t access);

/*
 * The same accesses for the host, which names a region as NIC_RPC_GRANTED() and has the rights of a
 * work request there. 0, -EACCES, -EFAULT. [owner of a PU]
 */
int nic_host_read(struct nic *nic, nic_rpc_key key, uint64_t va, void *dst, uint32_t n);
int nic_host_write(struct nic *nic, nic_rpc_key key, uint64_t va, const void *src, uint32_t n);
int nic_host_copy(struct nic *nic, nic_rpc_key dst_key, uint64_t dst, nic_rpc_key src_key,
		  uint64_t src, uint32_t n);
int nic_host_cmp_swap(struct nic *nic, nic_rpc_key key, uint64_t va, uint64_t *value,
		      uint64_t swap);

/*
 * An RDMA WRITE to the QP's peer: `len` bytes of memory of our own or of a region, and up to 8
 * more.
 */
struct nic_rpc_send {
	uint64_t cookie; /* handed to sent() */
	uint64_t raddr;
	uint32_t rkey;
	uint32_t len;
	const void *buf; /* stays as it is until sent() or stop(); NULL: va and key name the data */
	uint64_t va;
	nic_rpc_key key;
	uint32_t tail_len; /* 0 .. 8; in one packet, so that it comes at once */
	uint64_t tail;	   /* its bytes, as they stand in memory */
	/*
	 * those in its place when data of the call can't be read (region deregistered, memory gone)
	 */
	uint64_t lost;
	uint32_t call; /* WRITEs of one call have the same number */
	uint32_t imm;  /* in network byte order, with has_imm */
	bool has_imm;
};
/*
 * Of `len` and tail at most NIC_MAX_MSG. 0; -EAGAIN: NIC_RPC_SENDS are outstanding; -ENOTCONN: the
 * QP sends nothing in its state; -EACCES: key 0.
 */
int nic_rpc_send(struct nic_qp *qp, const struct nic_rpc_send *s);

/* ---- work requests of the layer that serves calls, beside those of the program ---- */

/* Of a QP, until they are done; they take no room of the program's. */
#define NIC_MAX_KERNEL_WRS 64

/*
 * Makes room for them, for good: an RC QP in any state, with work in flight or not. 0, -EOPNOTSUPP,
 * -ENOMEM. [control+owner]
 */
int nic_qp_enable_kernel_wrs(struct nic *nic, struct nic_qp *qp);

struct nic_kernel_wr {
	void *owner; /* this and the number are handed to kernel_wr_done() */
	uint32_t number;
	/* ROOST_OP_READ, _WRITE, _SEND, _WRITE_IMM, _SEND_IMM, _CMP_SWAP, _FETCH_ADD */
	uint8_t op;
	bool solicited; /* its receive at the other end */
	uint32_t rkey;
	uint32_t imm; /* in network byte order */
	uint64_t raddr;
	uint64_t compare, swap_add;
	uint32_t len; /* 8 of an atomic: what was there */
	uint32_t key;
	/*
	 * stays as it is until kernel_wr_done(); NULL: va, in a region of the QP's protection
	 * domain, with the rights of a work request
	 */
	void *buf;
	uint64_t va;
};
/*
 * Posts one behind those that the NIC has taken. 0: kernel_wr_done() is called once; else never:
 * -EAGAIN: NIC_MAX_KERNEL_WRS are under way; -ENOTCONN: the QP sends nothing in its state; -EACCES:
 * the region; -EINVAL: no kernel work requests enabled, too long, an atomic that is not aligned, or
 * one or a READ where none were agreed. [owner]
 */
int nic_post_kernel_wr(struct nic_qp *qp, const struct nic_kernel_wr *a);
unsigned nic_kernel_wrs(const struct nic_qp *qp); /* that are under way. [owner] */

/* ---- stream hooks: what sees the bytes of streams ---- */

#define NIC_MAX_CHAIN	2 /* on one side of a QP, one after the other */
#define NIC_MAX_WATCHED 8 /* regions with one */

/* Bytes of a WRITE, or of a SEND that leaves. Messages without bytes are not shown. */
struct nic_stream_piece {
	/*
	 * of a WRITE: on the way out as the peer names it; on the way in as the region does, not a
	 * window
	 */
	uint64_t va;
	/*
	 * during the call only. On the way in a peer may share it: read each byte once, change none
	 */
	uint8_t *data;
	uint32_t total;	   /* bytes of the message */
	uint32_t off, len; /* of these in it */
	bool last;
	unsigned pu; /* that hands them over */
};

/* Part of what its owner has; stays until it is taken away. */
struct nic_stream_hook {
	/*
	 * In order, each byte once; of a connection that is not reliable, those that come. [owner
	 * of the QP's PU]
	 */
	void (*bytes)(struct nic_stream_hook *hook, const struct nic_stream_piece *piece);
	/* Its QP goes. [control+owner] */
	void (*gone)(struct nic_stream_hook *hook);
	bool rewrites; /* on the way out: bytes() may change data */
	/*
	 * Takes nothing for now: set in bytes(), cleared by nic_stream_resume(). What comes in is
	 * refused, as where a receive is missing (of a connection that is not reliable: dropped),
	 * what is to leave stays.
	 */
	atomic_bool paused;
	/*
	 * Of one on a region, to which several PUs' packets come; NULL of others: begins a piece,
	 * before its bytes are put there, unless it is paused; and ends it, behind bytes(), or
	 * without that.
	 */
	bool (*enter)(struct nic_stream_hook *hook);
	void (*leave)(struct nic_stream_hook *hook);
	/*
	 * On the way out, of one that changes the length of WRITEs, NULL of others: after bytes(),
	 * what comes of that, at most `room` bytes; *needs_input when it is all. It may become
	 * paused here, too: the piece stays. A WRITE then leaves as several, and bytes() is asked
	 * ahead of them; SENDs are not shown. [owner of the QP's PU]
	 */
	uint32_t (*produce)(struct nic_stream_hook *hook, uint8_t *to, uint32_t room,
			    bool *needs_input);
};
/*
 * Behind those that are attached there. In: WRITEs of the peer, which are in memory already. Out:
 * the program's WRITEs and SENDs. 0; -EOPNOTSUPP: not RC (nor UC, in); -EBUSY: out, and something
 * is in flight; -ENOSPC: NIC_MAX_CHAIN, or a second one that changes lengths; -ENOMEM.
 * [control+owner]
 */
int nic_stream_attach_in(struct nic_qp *qp, struct nic_stream_hook *hook);
int nic_stream_attach_out(struct nic_qp *qp, struct nic_stream_hook *hook);
/* Is one attached on its way out? [owner] */
bool nic_stream_leaves(const struct nic_qp *qp);
/*
 * It is not paused any more; qp: to whose stream it is attached, NULL: on a region's, or none.
 * [owner]
 */
void nic_stream_resume(struct nic_stream_hook *hook, struct nic_qp *qp);
/* The same of a QP that another PU runs; it must not be destroyed meanwhile. [any] */
void nic_stream_resume_remote(struct nic_stream_hook *hook, struct nic_qp *qp);
/* 0, -ENOENT, or -EBUSY: it rewrites, and something is in flight. [control+owner] */
int nic_stream_detach(struct nic_qp *qp, struct nic_stream_hook *hook);
/*
 * On the WRITEs of all QPs whose peers name the region by this key, or a window of it by that
 * one's; on several PUs at a time. 0, -ENOSPC; -ENOENT. [control+owner of all PUs]
 */
int nic_stream_attach_region(struct nic *nic, uint32_t key, struct nic_stream_hook *hook);
int nic_stream_detach_region(struct nic *nic, struct nic_stream_hook *hook);
/* The region goes, and nobody watches it any more. [the same] */
void nic_stream_region_forget(struct nic *nic, uint32_t key);

/*
 * After index->prod of the send queue was stored, or that of the receive queue of a QP in the error
 * state (so that it is flushed): tells the PU. True when it may be asleep or idle and somebody must
 * run nic_poll. [any]
 */
bool nic_doorbell(struct nic *nic, struct nic_qp *qp);
/*
 * Asked after a doorbell that returned true: was work from before it still under way? Only a hint
 * on who had better run the turn; may say no when it was. [any]
 */
bool nic_qp_busy(struct nic_qp *qp);

#endif
