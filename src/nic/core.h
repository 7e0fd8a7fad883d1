/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The objects of the NIC core. Only src/nic includes this header. Only the owner of the PU accesses
 * the fields and calls the functions, unless a comment says otherwise.
 *
 * Packet sequence numbers have 32 bits here and 24 on the wire. 2^32 is a multiple of 2^24, so
 * differences are right across both wraps. Comparisons use signed differences (psn_before).
 */
#ifndef ROOST_NIC_CORE_H
#define ROOST_NIC_CORE_H

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/arena.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/mpsc.h"
#include "base/spin.h"
#include "base/wheel.h"
#include "nic/dma.h"
#include "nic/mr.h"
#include "nic/nic.h"
#include "nic/sq.h"
#include "packet/headers.h"

#define NIC_RESP_BURST 32 /* READ responses of a QP before the next QP's turn */
/* Private copies of WQEs (fetched, not yet retired) per QP, at most. */
#define NIC_SQ_WINDOW 512
/* IBA 9.7.7.3.1 bounds outstanding PSNs to half the number space. */
#define NIC_PSN_WINDOW ((1u << 23) - 1)
/* Packets of a message per acknowledgement request, at most (rxe stops at 128 unacknowledged). */
#define NIC_ACKREQ_EVERY 64
/* Bytes of one READ request, at most, where the port has no READ window. */
#define NIC_READ_CHUNK (1u << 20)

struct pu;
struct dest;

struct nic_cq {
	struct roost_cqe *ring;
	struct roost_cq_index *index;
	uint32_t mask;
	uint32_t prod;	    /* completions ever produced */
	uint32_t cons_seen; /* index->cons as last read */
	uint8_t pu;
	bool shared; /* QPs of several PUs complete here and take `lock` */
	bool overrun;
	bool dirty, dirty_solicited; /* on the PU's list: `arm` is checked at the turn's end */
	struct spin lock;
	void *ctx;
	uint32_t refs; /* QPs; control */
	struct nic *nic;
	struct list_head link; /* all of the NIC; control */
};

/* A READ or atomic that the responder may have to answer (again). */
struct resp_entry {
	uint32_t psn, npkts;
	/*
	 * The running execution, in packets relative to psn: first, next to send, one past the
	 * last; cur == end: none.
	 */
	uint32_t start, cur, end;
	uint32_t limit; /* offset of this execution's end, in bytes of the READ */
	uint32_t msn;
	uint32_t rkey, len;
	uint64_t va;
	uint64_t result; /* of an atomic */
	bool atomic;
	bool done; /* its last response has been sent once */
};

/* A ring of posted receives, of one QP or of an SRQ. */
struct recv_ring {
	uint8_t *ring;
	uint64_t *wr_ids;
	struct roost_queue_index *index;
	uint32_t mask;
	uint8_t stride_shift;
	uint32_t cons; /* receives taken */
	uint32_t prod_seen;
	uint32_t pd; /* of the receives' keys */
};

struct qp_resp {
	struct recv_ring *rq; /* NULL: none */
	struct recv_ring own;
	uint32_t epsn; /* expected */
	uint32_t msn;
	uint8_t msg;	     /* enum pkt_kind of the message in progress; NONE between messages */
	uint8_t nak;	     /* syndrome to send after the READs before it; 0: none */
	bool ack;	     /* acknowledge up to epsn - 1 */
	bool nak_sent;	     /* drop later PSNs until epsn comes */
	bool has_recv;	     /* recv holds a receive */
	bool drop;	     /* UC: drop the rest of the message in progress */
	bool cnp;	     /* send a congestion notification */
	uint8_t head, count; /* replay ring: entries [head, head + count) */
	uint8_t pending;     /* entries with responses still to send */
	uint64_t cnp_next;   /* time of the next one, at the earliest */
	uint32_t nak_psn;
	uint8_t last_nak; /* syndrome of the NAK, at nak_psn, that ended the connection; 0: none */
	uint32_t rkey;	  /* of the WRITE in progress */
	uint64_t va;
	uint32_t left;
	uint32_t received; /* bytes so far of the message in progress */
	uint32_t rpc_len;  /* bytes of the RPC WRITE in progress */
	struct {
		uint64_t wr_id;
		uint32_t index, num_sge;
		uint32_t sge, sge_off; /* position of the next byte */
	} recv;
	/* max_dest_rd_atomic entries, or NULL. Allocated separately: most QPs have few */
	struct resp_entry *replay;
	uint8_t replay_size;
};

/* A shared receive queue: srq.c. */
struct nic_srq {
	struct recv_ring rq;
	uint32_t limit; /* raise the event when fewer are posted; 0: not armed */
	uint32_t refs;	/* QPs; control */
	uint8_t pu;	/* of its QPs */
	bool broken;	/* the program stored an invalid index */
	struct nic *nic;
	void *ctx;
	struct list_head link; /* all of the NIC; control */
};

struct nic_qp {
	/* [any] */
	_Atomic uint32_t db_active; /* the PU knows of posted work and will check for more */
	_Atomic uint32_t db_queued; /* the QP is in the PU's ring of doorbells */
	_Atomic uint32_t db_prod;   /* index->prod at the last nic_qp_busy() */
	_Atomic uint8_t state_hint;
	uint32_t qpn;
	uint8_t pu_index;

	uint8_t state; /* enum nic_qp_state */
	uint8_t type;
	/* enum pkt_service: the class of the op-codes that it sends and accepts */
	uint8_t service;
	uint8_t port;		 /* from 0 */
	bool loop;		 /* the peer is a QP of this NIC on the same PU */
	bool rpc;		 /* op-codes 0x18 .. 0x1c are calls */
	bool kernel_wrs_enabled; /* kernels may post to it */
	bool sig_all;
	bool heard;		 /* received a packet since RESET */
	uint8_t num_in, num_out; /* hooks: stream.c */
	uint8_t mtu_shift;
	uint32_t mtu;
	uint32_t read_chunk; /* response packets of one READ request, at most */
	uint32_t dest_qpn;
	uint32_t pd;
	uint32_t access;
	uint8_t tos;
	/* UDP source port of the peer's packets (rx.c); above 65535: none received yet */
	uint32_t peer_port;
	struct pu *pu;
	struct dest *dest;
	struct list_head dest_link; /* among the QPs of dest */
	bool keepalive;
	struct nic_cq *send_cq, *recv_cq;
	struct nic_srq *srq; /* NULL: the QP has its own receive queue */
	struct qp_sq sq;
	struct qp_resp resp;
	struct list_head tx_link;   /* senders, or waiters of a window */
	struct list_head resp_link; /* QPs with responses to send */
	struct list_head lost_link; /* pu->lost */
	struct wheel_timer timer;
	struct nic_qp_attr attr;
	struct nic *nic;
	void *ctx;
	struct qp_resize *resize;   /* NULL: no kernel changes the length of WRITEs */
	struct qp_streams *streams; /* NULL: no hook was ever attached */
	void *rpc_ctx;		    /* of the layer that serves calls, or NULL */
	uint32_t max_inline, max_send_sge;
	uint32_t events;  /* asynchronous events already raised */
	uint32_t groups;  /* multicast groups it is attached to */
	uint32_t windows; /* list of type 2 windows bound to it: mw.c */
	uint64_t bytes;	  /* memory of this QP */
	struct roost_sge recv_sges[ROOST_MAX_SGE];
};

/* A destination of one PU: an address and a slot. All QPs that send to it share its window. */
struct dest {
	struct list_head link;
	struct port *port;
	struct port_path *path;
	struct pu *pu;
	uint8_t port_index, slot; /* the slot is the peer's */
	uint32_t refs;
	uint32_t window; /* bytes in flight, at most; 0: the port has flow control */
	uint32_t inflight;
	/* bytes sent on unacknowledged services; they decay with time */
	uint32_t paced;
	uint64_t paced_at; /* time of the last decay */
	/* ns; 0: no sample yet. rtt_min is the smallest sample */
	uint64_t srtt, rttvar, rtt_min;
	/* ns; 1.5 times the round trip, or its estimate, with nothing else in flight; 0: unknown */
	uint64_t trip;
	bool trip_sure; /* measured with a packet that was sent once */
	uint64_t cut;	/* time of the window's last cut */
	struct list_head waiters;
	/* liveness of the peer: alive.c */
	struct list_head qps;
	struct wheel_timer alive_timer; /* its owner is NULL, unlike a QP's timer */
	uint64_t suspected;		/* since when; 0: not suspected */
	uint64_t hinted, asked;		/* times of the last hint and of the last question */
	uint32_t num_hints, silent;
	uint32_t keepers; /* QPs with keep-alive */
	/* no packet has come since alive.c began to wait for one. [any PU's owner] */
	atomic_bool quiet;
	struct icrc_flow tx, rx;
	/* nic->ticks at the last packet that ended `quiet`. [any PU's owner] */
	_Atomic uint64_t heard;
	uint64_t looked; /* time and result of the last port_reader_of() */
	enum port_reader reader;
	/* alive_listen() at the time when the peer was found stalled; 0: heard since */
	uint64_t stalled_at;
};

/* An address handle (ah.c). */
struct nic_ah {
	uint32_t handle, pd;
	uint8_t port_num, tos;
	uint32_t mtu;
	struct dest *dest[NIC_MAX_PUS][PORT_MAX_LANES]; /* by PU and the receiver's lane */
};

/* A multicast group of a port number, with one PU's attached QPs (mcast.c). */
struct nic_group {
	struct list_head link; /* in pu->groups, by hash */
	struct pkt_addr addr;
	uint8_t port_num;
	uint32_t joined; /* bit mask of the ports that are members */
	uint32_t count;
	struct nic_qp *qp[NIC_MAX_GROUP_QPS];
};
#define GROUP_BUCKETS 64 /* a power of two */

/* A packet that is complete except for its ICRC: tx.h. */
struct late_packet {
	uint8_t *bth; /* NULL: none */
	const struct icrc_flow *flow;
	uint32_t len;
	uint16_t ip_id;
};

struct pu_port {
	struct port *port;
	struct late_packet late; /* empty between turns */
	/* of the last datagram received; the next one often has the same source */
	struct icrc_flow ud_rx;
	uint32_t read_out; /* READ bytes requested by all QPs */
	struct list_head read_waiters;
	uint8_t num;  /* port number whose GID table has this port */
	bool blocked; /* the port had no room; the next turn tries again */
};

struct pu {
	struct nic *nic;
	unsigned index;
	uint64_t now;
	struct pu_port ports[NIC_MAX_PORTS];
	struct wheel wheel;
	struct mpsc doorbells;
	struct list_head senders;    /* QPs that have requests to send */
	struct list_head responders; /* QPs that have responses to send */
	struct list_head lost;	     /* QPs that end since a CQ overran: qp_end_lost() */
	struct list_head dests;	     /* changed under nic->dests_lock: other PUs read it */
	struct list_head groups[GROUP_BUCKETS];
	struct nic_cq *dirty[64];
	unsigned num_dirty;
	struct nic_counters ctr;
	struct mr_last rpc_last;      /* of calls' accesses */
	bool rpc_work, rpc_time;      /* run() is due; nic_rpc_ask_time() was called */
	uint64_t polls;		      /* turns, with or without work */
	const struct nic_qp *rx_qp;   /* of the last packet; compared only, not accessed */
	uint64_t rx_at,		      /* time of the last packet */
		rx_mixed;	      /* time of the last change between QPs, in packets or calls */
	atomic_bool rung;	      /* RPC_RING is in the ring of doorbells */
	bool sent_unseen;	      /* the last turn did not receive */
	bool rx_last;		      /* the current packet is the last of its burst */
	struct wheel_timer rpc_timer; /* nic_rpc_at(); its owner is NULL, unlike a QP's timer */
	uint64_t hints_at;	      /* start time of the count in hints_looks */
	/* queue pairs and destinations that hints were compared with since */
	unsigned hints_looks;
};

/* The doorbell of nic_rpc_ring(). The other doorbells are QP numbers, which have 24 bits. */
#define RPC_RING UINT32_MAX

#define NIC_GSI_DESTS 32

struct nic {
	struct nic_config cfg; /* except the number of ports, which grows */
	atomic_uint ports;     /* control; ports below it are complete. [any] */
	struct pu *pus[NIC_MAX_PUS];
	struct mr_table mrs;
	_Atomic(struct nic_qp *) qps[NIC_MAX_QPS];
	uint8_t slot[NIC_MAX_PUS]; /* of QP numbers; without a pool all PUs have the same */
	uint8_t qp_gen[NIC_MAX_QPS];
	uint32_t qp_hint[NIC_MAX_PUS]; /* start of the search for a free index */
	_Atomic(struct nic_ah *) ahs[NIC_MAX_AHS];
	uint32_t ah_hint, num_ahs;
	uint32_t num_groups; /* a group on several PUs counts once */
	struct list_head cqs, srqs;
	uint32_t num_qps, num_cqs, num_pds, num_srqs;
	uint64_t qp_bytes;
	_Atomic uint64_t memory, memory_limit, memory_refused; /* nic_memory_take() */
	/* memory of queue pairs; control */
	struct arena arena;
	struct spin dests_lock;
	/* logical clock of alive_listen() and alive_heard(): PUs' times differ */
	_Atomic uint64_t ticks;
	uint32_t *pd_refs; /* UINT32_MAX: free */
	uint32_t pd_cap;
	struct secret secret;
	uint32_t gsi_psn; /* of QP 1's next datagram; PU 0's owner */
	/* QP 1's last destinations, with a reference each; PU 0's owner */
	struct dest *gsi_dests[NIC_GSI_DESTS];
	unsigned gsi_oldest;
	unsigned num_watched;
	struct {
		uint32_t key;
		struct nic_stream_hook *hook;
	} watched[NIC_MAX_WATCHED];
	const struct nic_rpc_ops *rpc_ops; /* NULL: calls are not served */
	void *rpc_ctx;
};

static inline bool psn_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* The 32-bit PSN nearest to `ref` whose low 24 bits are `wire`. */
static inline uint32_t psn_extend(uint32_t ref, uint32_t wire)
{
	return ref + (uint32_t)((int32_t)((wire - ref) << 8) >> 8);
}

/* Ports in use. A port is added with all PUs owned, so the number is constant within a turn. */
static inline unsigned port_count(const struct nic *nic)
{
	return atomic_load_explicit(&nic->ports, memory_order_acquire);
}

/* nic.c */
bool nic_pd_ref(struct nic *nic, uint32_t pd);
void nic_pd_unref(struct nic *nic, uint32_t pd);
/* Requests a turn of the PU. [any] */
void nic_kick(struct nic *nic, unsigned pu);
void nic_ring(struct nic_qp *qp);	   /* the QP's PU schedules it. [any] */
void nic_schedule(struct nic_qp *qp);	   /* the requester has work */
void nic_schedule_resp(struct nic_qp *qp); /* the responder has work */
static inline struct nic_qp *nic_find_qp(struct nic *nic, uint32_t qpn)
{
	struct nic_qp *qp = atomic_load_explicit(&nic->qps[(qpn >> 4) & (NIC_MAX_QPS - 1)],
						 memory_order_acquire);

	return qp && qp->qpn == qpn ? qp : NULL;
}

/* Resolves a peer's key: regions and type 1 windows of the QP's PD, type 2 windows of the QP. */
static inline void *qp_resolve(const struct nic_qp *qp, uint32_t key, uint64_t va, uint64_t len,
			       uint32_t access)
{
	void *p = mr_resolve(&qp->nic->mrs, key, qp->pd, va, len, access);

	if (likely(p))
		return p;
	return mr_resolve(&qp->nic->mrs, key, MR_QP_DOMAIN(qp->qpn), va, len, access);
}

static inline void *qp_resolve_region_addr(const struct nic_qp *qp, uint32_t key, uint64_t va,
					   uint64_t len, uint32_t access,
					   struct mr_region_addr *out)
{
	void *p = mr_resolve_region_addr(&qp->nic->mrs, key, qp->pd, va, len, access, out);

	return p ? p
		 : mr_resolve_region_addr(&qp->nic->mrs, key, MR_QP_DOMAIN(qp->qpn), va, len,
					  access, out);
}

/* ports.c: sets the port at index `at`; the caller updates nic->ports */
void pu_add_port(struct pu *pu, unsigned at, unsigned port_num, struct port *port);

/* cq.c */
struct cqe_fields {
	uint64_t wr_id;
	uint32_t byte_len, imm, wqe;
	uint32_t src_qpn; /* UD only */
	uint16_t status, opcode, flags;
	uint8_t sl; /* UD only: enum roost_cqe_network */
	bool solicited;
};
void cq_push(struct nic_cq *cq, struct nic_qp *qp, const struct cqe_fields *f);
void cq_notify_dirty(struct pu *pu);

/* gsi.c: releases the destinations */
void gsi_forget(struct nic *nic);
/* gsi.c: a packet for QP 1: does the remaining checks and delivers it */
enum pkt_error gsi_rx(struct pu *pu, const struct pu_port *pp, const struct port_pkt *pkt,
		      const struct pkt_view *v);

/* mcast.c */
/* A multicast packet: does the remaining checks and delivers it. */
enum pkt_error mcast_rx(struct pu *pu, struct pu_port *pp, struct port_pkt *pkt,
			const struct pkt_view *v);
void mcast_detach_all(struct nic_qp *qp);

/* rx.c */
/* The flow for a datagram's ICRC check: the last one if the source is the same. */
struct icrc_flow *rx_ud_flow(struct pu_port *pp, const struct port_pkt *pkt);
bool rx_icrc_right(const struct icrc_flow *flow, struct port_pkt *pkt); /* notes PORT_NO_DF */
void rx_packets(struct pu *pu, struct pu_port *pp, struct port_pkt *pkts, int n);

/* req.c */
enum req_result { REQ_IDLE, REQ_MORE, REQ_PORT_FULL };
enum req_result req_run(struct nic_qp *qp);
bool req_idle(struct nic_qp *qp);
int req_send_packet(struct nic_qp *qp, struct sq_entry *e, uint32_t pkt, bool ackreq);
uint32_t req_covers(const struct nic_qp *qp, const struct sq_entry *e, uint32_t pkt);
uint32_t req_payload(const struct nic_qp *qp, const struct sq_entry *e,
		     uint32_t pkt); /* payload bytes of this packet */
uint32_t req_bytes(const struct nic_qp *qp, const struct sq_entry *e, uint32_t from, uint32_t to);

/* req_resp.c */
void req_rx(struct nic_qp *qp, const struct pkt_view *v);
void req_rewind(struct nic_qp *qp);
/* ends the oldest WQE with this status and takes the QP to the error state */
void req_fail(struct nic_qp *qp, enum nic_wc_status status);

/* retry.c */
void retry_arm(struct nic_qp *qp);
void retry_rnr_wait(struct nic_qp *qp, uint64_t ns);
void retry_fire(struct nic_qp *qp);
uint64_t retry_rnr_ns(uint8_t timer);
bool retry_count(struct nic_qp *qp); /* false: exhausted */

/* srq.c */
void srq_taken(struct nic_srq *srq);  /* a QP has taken a receive from the ring */
void srq_broken(struct nic_srq *srq); /* the index is invalid: raises the event once */

/* resp.c */
void resp_rx(struct nic_qp *qp, const struct pkt_view *v);
void resp_nak(struct nic_qp *qp, uint8_t syndrome, uint32_t psn);
bool resp_take_recv(struct nic_qp *qp);
enum scatter_result { SCATTER_OK, SCATTER_TOO_LONG, SCATTER_BAD_MEMORY };
enum scatter_result resp_scatter(struct nic_qp *qp, const uint8_t *src, uint32_t n);
void resp_complete_recv(struct nic_qp *qp, const struct cqe_fields *f);
/*
 * Appends to the current receive. 0, or the NAK syndrome of a reliable connection; its receive has
 * then completed in error.
 */
uint8_t resp_scatter_or_nak(struct nic_qp *qp, const uint8_t *payload, uint32_t n);
/* Rewinds the receive of a dropped message, so that the next message fills it. */
static inline void resp_keep_recv(struct nic_qp *qp)
{
	qp->resp.recv.sge = qp->resp.recv.sge_off = 0;
}
bool resp_in_sequence(const struct nic_qp *qp, const struct pkt_view *v);
uint8_t resp_rnr(const struct nic_qp *qp); /* the syndrome of an RNR NAK */
/* Execute an in-sequence packet. 0, or the NAK syndrome of a reliable connection. */
uint8_t resp_send(struct nic_qp *qp, const struct pkt_view *v);
uint8_t resp_write(struct nic_qp *qp, const struct pkt_view *v);
void resp_flush(struct nic_qp *qp);
uint8_t resp_execute_atomic(struct nic_qp *qp, uint8_t op, uint64_t va, uint32_t rkey,
			    uint64_t swap_add, uint64_t compare,
			    uint64_t *old); /* 0 or a NAK syndrome */

/* resp_send.c */
void resp_queue_read(struct nic_qp *qp, const struct pkt_view *v, uint32_t psn, uint32_t npkts);
void resp_queue_atomic(struct nic_qp *qp, uint32_t psn, uint64_t result);
void resp_duplicate(struct nic_qp *qp, const struct pkt_view *v, uint32_t psn);
enum req_result resp_run(struct nic_qp *qp);
void resp_congested(struct nic_qp *qp, const struct pkt_view *v); /* the packet has an ECN mark */
void resp_refuse_again(struct nic_qp *qp, const struct pkt_view *v);
/*
 * Moves the latest READs and atomics that fit to a new replay ring and installs it. The caller
 * frees the old one.
 */
void resp_move_replay(struct qp_resp *r, struct resp_entry *to, uint8_t size);

/* dest.c */
int dest_get(struct pu *pu, uint8_t port, const struct pkt_addr *addr, uint32_t dqpn,
	     struct dest **out);
void dest_put(struct dest *d);
bool dest_admit(struct nic_qp *qp, uint32_t bytes);
void dest_release(struct nic_qp *qp, uint32_t bytes);
void dest_acked(struct dest *d, uint32_t bytes);
bool dest_admit_unacked(struct nic_qp *qp, struct dest *d, uint32_t bytes);
void dest_sent_unacked(struct dest *d, uint32_t bytes);
void dest_lost(struct dest *d);
void dest_rtt(struct dest *d, uint64_t ns, bool alone);
void dest_waited(struct dest *d, uint64_t ns, uint64_t last);
uint64_t dest_rto(const struct dest *d);
bool dest_admit_read(struct nic_qp *qp, uint32_t bytes);
void dest_release_read(struct nic_qp *qp, uint32_t bytes);

/* unacked.c */
enum req_result unacked_run(struct nic_qp *qp);

/* ah.c */
struct nic_ah *ah_find(struct nic *nic, uint32_t handle); /* NULL: none. [owner of a PU] */
void ah_table_fini(struct nic *nic);

/* ud.c */
/* The address handle of a WQE: 0 and *out, or the WQE's completion status. */
uint8_t ud_address(const struct nic_qp *qp, const struct sq_entry *e, struct nic_ah **out);
int ud_send_packet(struct nic_qp *qp, struct sq_entry *e, const struct nic_ah *ah, struct dest *d);
void ud_rx(struct nic_qp *qp, const struct pkt_view *v, const struct port_pkt *pkt);

/* stream.c */
/* True if hooks may see the peer's WRITEs. */
static inline bool stream_watched(const struct nic_qp *qp)
{
	return qp->num_in | qp->nic->num_watched;
}
/* Shows bytes in memory to the hooks. key: of the region, even if the peer named a window. */
void stream_landed(struct nic_qp *qp, uint32_t key, const struct nic_stream_piece *piece);
/*
 * Begins a piece for its hooks. False: a hook is paused. stream_landed() ends the piece, or
 * stream_missed() if the bytes could not be stored.
 */
bool stream_enter(const struct nic_qp *qp, uint32_t key);
void stream_missed(const struct nic_qp *qp, uint32_t key);
/* True if hooks see this outgoing message. */
static inline bool stream_leaves(const struct nic_qp *qp, const struct sq_entry *e)
{
	return qp->num_out && sq_origins[e->origin].hooked && e->op >= ROOST_OP_WRITE &&
	       e->op <= ROOST_OP_SEND_INV;
}
void stream_leave(struct nic_qp *qp, const struct sq_entry *e, uint8_t *data, uint32_t off,
		  uint32_t n);
bool stream_room(const struct nic_qp *qp);   /* true if another packet may leave */
bool stream_paused(const struct nic_qp *qp); /* true if an outgoing hook is paused */
int stream_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t pkt, uint8_t *dst,
		  uint32_t n); /* as sq_gather() */
void stream_detach(struct nic_qp *qp);
bool stream_on_region(const struct nic *nic, uint32_t key); /* true: it has a hook. [control] */
/* Show a WRITE to the hooks before, and behind, the hook that changes its length. */
void stream_before(struct nic_qp *qp, const struct nic_stream_hook *hook,
		   const struct nic_stream_piece *piece);
void stream_behind(struct nic_qp *qp, const struct nic_stream_hook *hook,
		   const struct nic_stream_piece *piece);

/* resize.c */
int resize_begin(struct nic_qp *qp, struct nic_stream_hook *hook); /* sets qp->resize */
void resize_end(struct nic_qp *qp);
bool resize_fetch(struct nic_qp *qp); /* as sq_fetch() */
/* True if all segments are in use or a hook is paused. An ACK or the hook schedules the QP then. */
bool resize_stuck(const struct nic_qp *qp);
bool resize_active(const struct nic_qp *qp);
int resize_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t off, uint8_t *dst,
		  uint32_t n);
void resize_retired(struct nic_qp *qp, const struct sq_entry *e);
void resize_flush(struct nic_qp *qp);
void resize_reset(struct nic_qp *qp);
/* uc.c */
void uc_rx(struct nic_qp *qp, const struct pkt_view *v);
/* loop.c */
enum req_result loop_run(struct nic_qp *qp);
/* qp.c */
/*
 * Makes room for copies of `window` WQEs and `more` entries of kernels, and moves the present
 * entries. 0 or -ENOMEM.
 */
int qp_size_entries(struct nic_qp *qp, uint32_t window, uint32_t more);
bool queue_ok(const struct nic_queue_attr *q);
void recv_ring_init(struct recv_ring *rq, const struct nic_queue_attr *q, uint32_t pd);
void qp_error(struct nic_qp *qp);
void qp_end_all_lost(struct pu *pu);
static inline void qp_end_lost(struct pu *pu)
{
	if (unlikely(!list_empty(&pu->lost)))
		qp_end_all_lost(pu);
}
void qp_sq_error(struct nic_qp *qp);
void qp_event(struct nic_qp *qp, enum nic_event ev);
void qp_first_packet(struct nic_qp *qp);
/* qp_state.c */
int qp_check_modify(const struct nic_qp *qp, const struct nic_qp_attr *a, uint32_t mask);

#include "nic/rpc.h"

#endif
