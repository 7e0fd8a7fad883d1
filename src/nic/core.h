/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside of the NIC core: its objects. Only src/nic includes this. Everything here is touched by
 * the owner of the PU alone, except what is marked.
 *
 * Packet sequence numbers are kept in 32 bits, of which the wire shows the low 24: 2^32 is a
 * multiple of 2^24, so differences stay right across both wraps, and comparisons are signed
 * differences (psn_before).
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
#include "packet/headers.h"

#define NIC_RESP_BURST 32 /* READ responses a QP may send in one go before the next has its turn */
/* Private copies of WQEs a QP keeps at most: fetched and not yet retired. */
#define NIC_SQ_WINDOW 512
/* IBA 9.7.7.3.1 bounds outstanding PSNs to half the number space. */
#define NIC_PSN_WINDOW ((1u << 23) - 1)
/*
 * Ask for an acknowledgement at least this often inside a message (rxe stops at 128
 * unacknowledged).
 */
#define NIC_ACKREQ_EVERY 64
/*
 * A READ of any length is cut into requests of at most this many bytes where the port sets no
 * window of its own.
 */
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
	bool shared; /* QPs of several PUs complete here: `lock` is taken */
	bool overrun;
	bool dirty, dirty_solicited; /* on the PU's list: look at `arm` at the end of the turn */
	struct spin lock;
	void *ctx;
	uint32_t refs; /* QPs; control */
	struct nic *nic;
	struct list_head link; /* all of the NIC; control */
};

/*
 * The private copy of a WQE, from fetch to retirement. The WQE follows, as long as the queue's
 * stride.
 */
struct sq_entry {
	uint64_t wr_id;
	uint32_t psn;	/* of its first packet */
	uint32_t npkts; /* PSNs it takes: request packets, or response packets of a READ */
	uint32_t len;	/* payload bytes */
	uint8_t op;	/* enum roost_op */
	uint8_t status; /* enum nic_wc_status to end with; 0 while all is well */
	uint8_t signaled;
	uint8_t num_sge;
	uint32_t index; /* of the WQE in its ring */
	bool reply;	/* of a kernel, not out of the ring: rpc.c */
	/* of a WRITE that goes through a kernel which changes its length: resize.c */
	bool part;
	bool final; /* the last of these: it ends the WQE */
	bool act;   /* of a kernel, on a QP that is bound to it: kernel_wr.c */
	struct roost_wqe wqe __attribute__((aligned(16)));
};
_Static_assert(sizeof(struct sq_entry) == 96, "private WQE");

enum qp_block { /* why a requester with work left the list of senders */
		BLOCK_NONE = 0,
		BLOCK_WINDOW, /* the destination's window is full */
		BLOCK_READS,  /* max_rd_atomic, or a fence */
		BLOCK_PSN,    /* too many PSNs or WQEs outstanding */
		BLOCK_RNR,    /* waits for the receiver's timer */
};

struct qp_sq {
	uint8_t *ring;
	uint64_t *wr_ids;
	struct roost_queue_index *index;
	uint32_t mask;
	uint8_t stride_shift;
	uint8_t *entries; /* private copies */
	uint32_t entry_mask, entry_size;
	/* counts of private copies: una <= next <= fetched */
	uint32_t una, next, fetched;
	uint32_t taken;	       /* WQEs taken from the ring */
	uint32_t window;       /* so many copies of them at most */
	uint32_t copies;       /* are there; what else is there are replies */
	uint32_t replies;      /* of kernels, which have entries of their own */
	uint32_t kernel_wrs;   /* of the kernels that the QP is bound to, likewise */
	uint32_t next_pkt;     /* packet inside WQE `next` */
	uint32_t psn_una;      /* oldest unacknowledged */
	uint32_t psn_next;     /* next to send */
	uint32_t psn_max;      /* one past the highest ever sent */
	uint32_t psn_fetch;    /* first PSN of the next WQE to fetch */
	uint32_t since_ackreq; /* packets since the last that asked for an ACK */
	uint32_t rd_out;       /* READ requests and atomics outstanding */
	uint32_t rd_slow;      /* so many of them at most after a loss; 0: as many as agreed */
	uint32_t read_bytes;   /* asked for and not yet received */
	uint32_t inflight;     /* bytes of requests in flight, as the window counts them */
	uint32_t nak_psn;      /* PSN of the last sequence NAK acted on */
	uint32_t probe_end;    /* psn_max when the probe went out */
	uint32_t rtt_psn;
	uint64_t gathers_since; /* requests wait for more since then; 0: none do */
	uint64_t rtt_start;	/* 0: no sample running */
	/*
	 * Of the last acknowledgement that moved psn_una, of the last time-out, or of sending
	 * psn_una: the latest.
	 */
	uint64_t progress;
	uint64_t since;	 /* likewise, but for time-outs */
	uint64_t probed; /* time of the last probe */
	uint64_t rnr_until;
	uint8_t block;		      /* enum qp_block */
	uint8_t retries, rnr_retries; /* left */
	uint8_t probes;		      /* sent since the last progress */
	uint8_t backoff;	      /* time-outs since the last progress */
	bool nak_seen;		      /* nak_psn is valid */
	bool gap;		      /* responses were missing and have been asked for again */
	bool probing;
	bool rtt_alone; /* nothing was in flight before rtt_psn */
	bool lone;	/* the last ACK was for a probe alone, or for the packet's first copy */
	bool drained_event;
	/*
	 * Retries were renewed for a stalled peer: alive_listen() of then; 0: not since the last
	 * progress.
	 */
	uint64_t stalled_at;
};

/* READ or atomic that the responder may have to answer (again). */
struct resp_entry {
	uint32_t psn, npkts;
	/*
	 * the running execution, in packets relative to psn: first, next to send, one past the
	 * last; cur == end: none
	 */
	uint32_t start, cur, end;
	uint32_t limit; /* bytes of the READ up to where this execution goes */
	uint32_t msn;
	uint32_t rkey, len;
	uint64_t va;
	uint64_t result; /* of an atomic */
	bool atomic;
	bool done; /* its last response has been sent once */
};

/* A ring of posted receives: a QP's own, or one that QPs share. */
struct recv_ring {
	uint8_t *ring;
	uint64_t *wr_ids;
	struct roost_queue_index *index;
	uint32_t mask;
	uint8_t stride_shift;
	uint32_t cons; /* receives taken */
	uint32_t prod_seen;
	uint32_t pd; /* against which their keys are checked */
};

struct qp_resp {
	struct recv_ring *rq; /* NULL: none */
	struct recv_ring own;
	uint32_t epsn; /* expected */
	uint32_t msn;
	uint8_t msg;	     /* enum pkt_kind of the message in progress; NONE between messages */
	uint8_t nak;	     /* syndrome to send when the READs before it are done; 0: none */
	bool ack;	     /* acknowledge up to epsn - 1 */
	bool nak_sent;	     /* drop later PSNs until epsn comes */
	bool has_recv;	     /* recv holds a receive that was taken */
	bool drop;	     /* UC: the rest of the message in progress is dropped */
	bool cnp;	     /* a congestion notification is to go */
	uint8_t head, count; /* replay ring: entries [head, head + count) */
	uint8_t pending;     /* entries with responses still to send */
	uint64_t cnp_next;   /* none before that */
	uint32_t nak_psn;
	uint8_t last_nak; /* syndrome of the NAK that ended the connection, with nak_psn; 0: none */
	uint32_t rkey;	  /* WRITE in progress */
	uint64_t va;
	uint32_t left;
	uint32_t received; /* message in progress: bytes so far */
	uint32_t rpc_len;  /* RPC WRITE in progress: bytes of it */
	struct {
		uint64_t wr_id;
		uint32_t index, num_sge;
		uint32_t sge, sge_off; /* where the next byte goes */
	} recv;
	/* max_dest_rd_atomic entries; NULL: none. Memory of its own: most QPs ask for few */
	struct resp_entry *replay;
	uint8_t replay_size;
};

/* A shared receive queue: srq.c. */
struct nic_srq {
	struct recv_ring rq;
	uint32_t limit; /* tell when fewer are posted; 0: not asked */
	uint32_t refs;	/* QPs; control */
	uint8_t pu;	/* of its QPs */
	bool broken;	/* its index is no count of postings */
	struct nic *nic;
	void *ctx;
	struct list_head link; /* all of the NIC; control */
};

struct nic_qp {
	/* read by [any] threads */
	_Atomic uint32_t db_active; /* the PU knows of posted work and will look again */
	_Atomic uint32_t db_queued; /* it stands in the PU's ring of doorbells */
	_Atomic uint32_t db_prod;   /* how far work was posted at the last nic_qp_busy() */
	_Atomic uint8_t state_hint;
	uint32_t qpn;
	uint8_t pu_index;

	uint8_t state; /* enum nic_qp_state */
	uint8_t type;
	/* enum pkt_service: added to the op-codes it sends, asked of those it hears */
	uint8_t service;
	uint8_t port;		 /* from 0 */
	bool loop;		 /* peer is a QP of this NIC on the same PU */
	bool rpc;		 /* op-codes 0x18 .. 0x1c are calls */
	bool kernel_wrs_enabled; /* kernels may post to it */
	bool sig_all;
	bool heard;		 /* something came since RESET */
	uint8_t num_in, num_out; /* hooks: stream.c */
	uint8_t mtu_shift;
	uint32_t mtu;
	uint32_t read_chunk; /* packets one READ request asks for at most */
	uint32_t dest_qpn;
	uint32_t pd;
	uint32_t access;
	uint8_t tos;
	/* UDP source port of the peer's packets (rx.c); above 65535: nothing came yet */
	uint32_t peer_port;
	struct pu *pu;
	struct dest *dest;
	struct list_head dest_link; /* among the QPs of dest */
	bool keepalive;
	struct nic_cq *send_cq, *recv_cq;
	struct nic_srq *srq; /* NULL: receives of its own */
	struct qp_sq sq;
	struct qp_resp resp;
	struct list_head tx_link;   /* senders, or waiters of a window */
	struct list_head resp_link; /* QPs with responses to send */
	struct list_head lost_link; /* QPs that end: a completion queue had no room */
	struct wheel_timer timer;
	struct nic_qp_attr attr;
	struct nic *nic;
	void *ctx;
	struct qp_resize *resize;   /* NULL: no kernel changes the length of what leaves */
	struct qp_streams *streams; /* NULL: no hook was ever attached */
	void *rpc_ctx;		    /* of the layer that serves calls; NULL: none does */
	uint32_t max_inline, max_send_sge;
	uint32_t events;  /* asynchronous events already raised */
	uint32_t groups;  /* multicast groups it is attached to */
	uint32_t windows; /* list of type 2 windows bound to it: mw.c */
	uint64_t bytes;	  /* memory of this QP */
	struct roost_sge recv_sges[ROOST_MAX_SGE];
};

/* A destination as seen from one PU: all QPs that talk to it share its window. */
struct dest {
	struct list_head link;
	struct port *port;
	struct port_path *path;
	struct pu *pu;
	uint8_t port_index, slot; /* the slot is the peer's */
	uint32_t refs;
	uint32_t window; /* bytes in flight allowed; 0: the port pushes back */
	uint32_t inflight;
	/* bytes sent of which nobody will say that they arrived; time takes them off */
	uint32_t paced;
	uint64_t paced_at; /* until when it has */
	/* ns; 0: no sample yet. The smallest is that of all samples */
	uint64_t srtt, rttvar, rtt_min;
	/*
	 * ns; half more than an answer takes, or seems to take, if nothing else is in flight; 0:
	 * unknown
	 */
	uint64_t trip;
	bool trip_sure; /* it is seen from a packet that was sent once */
	uint64_t cut;	/* when the window was last cut */
	struct list_head waiters;
	/* Is anybody there? alive.c */
	struct list_head qps;
	struct wheel_timer alive_timer; /* owner NULL: that tells it from a QP's */
	uint64_t suspected;		/* since when; 0: not */
	uint64_t hinted, asked;		/* when the last hint came, the last question went */
	uint32_t num_hints, silent;
	uint32_t keepers; /* QPs that are kept alive */
	/* nothing has come since somebody began to listen for it. [any PU's owner] */
	atomic_bool quiet;
	struct icrc_flow tx, rx;
	/* nic->ticks when something came that was listened for. [any PU's owner] */
	_Atomic uint64_t heard;
	uint64_t looked; /* when it was last asked who reads there, and the answer */
	enum port_reader reader;
	/*
	 * Silence was stalled_at, since the peer stands: alive_listen() of then; 0: not since it
	 * was heard.
	 */
	uint64_t stalled_at;
};

/* An address handle (ah.c). */
struct nic_ah {
	uint32_t handle, pd;
	uint8_t port_num, tos;
	uint32_t mtu;
	struct dest *dest[NIC_MAX_PUS][PORT_MAX_LANES]; /* by our PU and the receiver's lane */
};

/* A multicast group at a port number, as one PU sees it: its QPs that are attached (mcast.c). */
struct nic_group {
	struct list_head link; /* in pu->groups, by hash */
	struct pkt_addr addr;
	uint8_t port_num;
	uint32_t joined; /* a bit for each of our ports that is a member */
	uint32_t count;
	struct nic_qp *qp[NIC_MAX_GROUP_QPS];
};
#define GROUP_BUCKETS 64 /* a power of two */

/* A packet that is complete but for its ICRC: tx.h. */
struct late_packet {
	uint8_t *bth; /* NULL: none */
	const struct icrc_flow *flow;
	uint32_t len;
	uint16_t ip_id;
};

struct pu_port {
	struct port *port;
	struct late_packet late; /* never from one turn to the next */
	/* of the last datagram received: the next is often from there too */
	struct icrc_flow ud_rx;
	uint32_t read_out; /* READ bytes asked for over all QPs */
	struct list_head read_waiters;
	uint8_t num;  /* programs' number of the port in whose GID table this is */
	bool blocked; /* the port had no room: try again at the next turn */
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
	struct list_head lost;	     /* QPs that end: qp_end_lost() */
	struct list_head dests;	     /* changed under nic->dests_lock: other PUs look through it */
	struct list_head groups[GROUP_BUCKETS];
	struct nic_cq *dirty[64];
	unsigned num_dirty;
	struct nic_counters ctr;
	struct mr_last rpc_last;    /* of calls' accesses */
	bool rpc_work, rpc_time;    /* calls want to run; nic_rpc_ask_time() */
	uint64_t polls;		    /* turns, with or without work */
	const struct nic_qp *rx_qp; /* of the last packet: to be compared only */
	uint64_t rx_at,
		rx_mixed; /* when the last one came; when packets of two QPs last met, or of one met calls of another */
	atomic_bool rung;	      /* RPC_RING stands among the doorbells */
	bool sent_unseen;	      /* the last turn did not look at what came in */
	bool rx_last;		      /* the packet at hand is the last of its burst */
	struct wheel_timer rpc_timer; /* nic_rpc_at(): without an owner, as those of destinations */
	uint64_t hints_at;	      /* when hints_looks began to count */
	/* queue pairs and destinations that hints were compared with since */
	unsigned hints_looks;
};

/* Among doorbells, where QP numbers stand, which have 24 bits: nic_rpc_ring(). */
#define RPC_RING UINT32_MAX

#define NIC_GSI_DESTS 32

struct nic {
	struct nic_config cfg; /* but for the number of ports, which grows */
	atomic_uint ports;     /* control; those in front of it are whole. [any] */
	struct pu *pus[NIC_MAX_PUS];
	struct mr_table mrs;
	_Atomic(struct nic_qp *) qps[NIC_MAX_QPS];
	uint8_t slot[NIC_MAX_PUS]; /* of QP numbers; without a pool one for all PUs */
	uint8_t qp_gen[NIC_MAX_QPS];
	uint32_t qp_hint[NIC_MAX_PUS]; /* where the search for a free index goes on */
	_Atomic(struct nic_ah *) ahs[NIC_MAX_AHS];
	uint32_t ah_hint, num_ahs;
	uint32_t num_groups; /* one that several PUs have counts once */
	struct list_head cqs, srqs;
	uint32_t num_qps, num_cqs, num_pds, num_srqs;
	uint64_t qp_bytes;
	_Atomic uint64_t memory, memory_limit, memory_refused; /* nic_memory_take() */
	/* queue pairs and what they hold; control */
	struct arena arena;
	struct spin dests_lock;
	/* order what is listened for and what is heard: PUs' clocks are not alike */
	_Atomic uint64_t ticks;
	uint32_t *pd_refs; /* UINT32_MAX: free */
	uint32_t pd_cap;
	struct secret secret;
	uint32_t gsi_psn; /* of PU 0's owner: the next datagram's from QP 1 */
	struct dest *gsi_dests
		[NIC_GSI_DESTS]; /* the last ones it sent to, with a reference each; of PU 0's owner */
	unsigned gsi_oldest;
	unsigned num_watched;
	struct {
		uint32_t key;
		struct nic_stream_hook *hook;
	} watched[NIC_MAX_WATCHED];
	const struct nic_rpc_ops *rpc_ops; /* NULL: nobody serves calls */
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

static inline struct sq_entry *sq_entry(const struct qp_sq *sq, uint32_t n)
{
	return (struct sq_entry *)(sq->entries + (size_t)(n & sq->entry_mask) * sq->entry_size);
}

static inline bool op_is_read(uint8_t op)
{
	return op == ROOST_OP_READ;
}

/* Executed here alone: no packet, no PSN. */
static inline bool op_is_local(uint8_t op)
{
	return op == ROOST_OP_NOP || op == ROOST_OP_LOCAL_INV || op == ROOST_OP_BIND_MW;
}

static inline bool op_is_rpc(uint8_t op)
{
	return op == ROOST_OP_RPC || op == ROOST_OP_RPC_WRITE;
}

static inline bool op_is_atomic(uint8_t op)
{
	return op == ROOST_OP_CMP_SWAP || op == ROOST_OP_FETCH_ADD;
}

/*
 * Ports in use. They may become more, never while a PU is owned by another: in a turn the number
 * stands.
 */
static inline unsigned port_count(const struct nic *nic)
{
	return atomic_load_explicit(&nic->ports, memory_order_acquire);
}

/* nic.c */
bool nic_pd_ref(struct nic *nic, uint32_t pd);
void nic_pd_unref(struct nic *nic, uint32_t pd);
/* its owner, or somebody, is to run a turn of it. [any] */
void nic_kick(struct nic *nic, unsigned pu);
void nic_ring(struct nic_qp *qp);	   /* has its PU schedule it. [any] */
void nic_schedule(struct nic_qp *qp);	   /* requester has work */
void nic_schedule_resp(struct nic_qp *qp); /* responder has work */
static inline struct nic_qp *nic_find_qp(struct nic *nic, uint32_t qpn)
{
	struct nic_qp *qp = atomic_load_explicit(&nic->qps[(qpn >> 4) & (NIC_MAX_QPS - 1)],
						 memory_order_acquire);

	return qp && qp->qpn == qpn ? qp : NULL;
}

/* What the QP's peer may reach: regions and type 1 windows of its PD, type 2 windows of its own. */
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

/* ports.c: the port is the `at`th from now on; the caller counts it */
void pu_add_port(struct pu *pu, unsigned at, unsigned port_num, struct port *port);

/* cq.c */
struct cqe_fields {
	uint64_t wr_id;
	uint32_t byte_len, imm, wqe;
	uint32_t src_qpn; /* UD only: the others know their peer */
	uint16_t status, opcode, flags;
	uint8_t sl; /* UD only: enum roost_cqe_network */
	bool solicited;
};
void cq_push(struct nic_cq *cq, struct nic_qp *qp, const struct cqe_fields *f);
void cq_notify_dirty(struct pu *pu);

/* gsi.c: lets the destinations go */
void gsi_forget(struct nic *nic);
/* gsi.c: the packet is for QP 1; what is left to check, and what becomes of it */
enum pkt_error gsi_rx(struct pu *pu, const struct pu_port *pp, const struct port_pkt *pkt,
		      const struct pkt_view *v);

/* mcast.c */

/* The packet is for everybody: what is left to check, and what becomes of it. */
enum pkt_error mcast_rx(struct pu *pu, struct pu_port *pp, struct port_pkt *pkt,
			const struct pkt_view *v);
void mcast_detach_all(struct nic_qp *qp);

/* rx.c */
/*
 * The flow that a datagram's ICRC is checked with: it may come from anywhere, but the next is often
 * from there too.
 */
struct icrc_flow *rx_ud_flow(struct pu_port *pp, const struct port_pkt *pkt);
bool rx_icrc_right(const struct icrc_flow *flow, struct port_pkt *pkt); /* notes PORT_NO_DF */
void rx_packets(struct pu *pu, struct pu_port *pp, struct port_pkt *pkts, int n);

/* sq.c */
bool sq_fetch(struct nic_qp *qp);
/* fetches, where kernels' entries might keep the program's out for ever */
void sq_mix(struct nic_qp *qp);
bool sq_take(struct nic_qp *qp,
	     unsigned max); /* at most so many, whatever is to become of them; false: none */
/* the program hears how its WQE ended */
void sq_complete(struct nic_qp *qp, const struct sq_entry *e);
void sq_retire(struct nic_qp *qp, struct sq_entry *e); /* completes the WQE at sq.una */
/* executes such a one; false: e->status says why not */
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

/* Are there as many copies as there is room for? */
static inline bool sq_full(const struct qp_sq *sq)
{
	return sq->copies == sq->window;
}

/* req.c */
enum req_result { REQ_IDLE, REQ_MORE, REQ_PORT_FULL };
enum req_result req_run(struct nic_qp *qp);
bool req_idle(struct nic_qp *qp);
int req_send_packet(struct nic_qp *qp, struct sq_entry *e, uint32_t pkt, bool ackreq);
uint32_t req_covers(const struct nic_qp *qp, const struct sq_entry *e, uint32_t pkt);
uint32_t req_payload(const struct nic_qp *qp, const struct sq_entry *e,
		     uint32_t pkt); /* bytes of that packet */
uint32_t req_bytes(const struct nic_qp *qp, const struct sq_entry *e, uint32_t from, uint32_t to);

/* req_resp.c */
void req_rx(struct nic_qp *qp, const struct pkt_view *v);
void req_rewind(struct nic_qp *qp);
/* ends the oldest WQE so, and the QP */
void req_fail(struct nic_qp *qp, enum nic_wc_status status);

/* retry.c */
void retry_arm(struct nic_qp *qp);
void retry_rnr_wait(struct nic_qp *qp, uint64_t ns);
void retry_fire(struct nic_qp *qp);
uint64_t retry_rnr_ns(uint8_t timer);
bool retry_count(struct nic_qp *qp); /* false: exhausted */

/* srq.c */
void srq_taken(struct nic_srq *srq);  /* a receive has been taken from its ring */
void srq_broken(struct nic_srq *srq); /* its index is no count of postings: says so once */

/* resp.c */
void resp_rx(struct nic_qp *qp, const struct pkt_view *v);
void resp_nak(struct nic_qp *qp, uint8_t syndrome, uint32_t psn);
bool resp_take_recv(struct nic_qp *qp);
enum scatter_result { SCATTER_OK, SCATTER_TOO_LONG, SCATTER_BAD_MEMORY };
enum scatter_result resp_scatter(struct nic_qp *qp, const uint8_t *src, uint32_t n);
void resp_complete_recv(struct nic_qp *qp, const struct cqe_fields *f);
/*
 * Appends to the receive taken last: 0, or what a reliable connection answers; the receive has then
 * completed with that error.
 */
uint8_t resp_scatter_or_nak(struct nic_qp *qp, const uint8_t *payload, uint32_t n);
/* Of a message that is dropped the receive stays, to be filled from its beginning. */
static inline void resp_keep_recv(struct nic_qp *qp)
{
	qp->resp.recv.sge = qp->resp.recv.sge_off = 0;
}
/*
 * A packet of a SEND or WRITE in its place: 0, or the syndrome of the NAK that a reliable
 * connection answers with.
 */
bool resp_in_sequence(const struct nic_qp *qp, const struct pkt_view *v);
uint8_t resp_rnr(const struct nic_qp *qp); /* the syndrome for "not now" */
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
void resp_congested(struct nic_qp *qp, const struct pkt_view *v); /* the packet came marked so */
void resp_refuse_again(struct nic_qp *qp, const struct pkt_view *v);
/*
 * Puts the latest READs and atomics that fit into a new replay ring, which is the QP's from then
 * on; the old one is the caller's to free.
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
struct nic_ah *ah_find(struct nic *nic, uint32_t handle); /* NULL: none. Owner of a PU */
void ah_table_fini(struct nic *nic);

/* ud.c */
/* Where the WQE wants to go; 0 and *out, or the status that it ends with. */
uint8_t ud_address(const struct nic_qp *qp, const struct sq_entry *e, struct nic_ah **out);
int ud_send_packet(struct nic_qp *qp, struct sq_entry *e, const struct nic_ah *ah, struct dest *d);
void ud_rx(struct nic_qp *qp, const struct pkt_view *v, const struct port_pkt *pkt);

/* kernel_wr.c */
/* as sq_gather() */
int kernel_wr_gather(const struct sq_entry *e, uint32_t off, uint8_t *dst, uint32_t n);
int kernel_wr_scatter(const struct sq_entry *e, uint32_t off, const uint8_t *src,
		      uint32_t n); /* as sq_scatter() */
void kernel_wr_retired(struct nic_qp *qp, const struct sq_entry *e);
/* what is not done ends as flushed: the QP forgets it */
void kernel_wr_drop_all(struct nic_qp *qp);
void kernel_wr_qp_gone(struct nic_qp *qp); /* the QP goes */

/* stream.c */
/* Does somebody see WRITEs of the peer's? */
static inline bool stream_watched(const struct nic_qp *qp)
{
	return qp->num_in | qp->nic->num_watched;
}
/* Bytes are in memory, in the region of this key, whatever key the peer named. */
void stream_landed(struct nic_qp *qp, uint32_t key, const struct nic_stream_piece *piece);
/*
 * Begins a piece for those that would see it, which stream_landed() ends, or stream_missed(), when
 * it did not come there; false: one of them can't take it now.
 */
bool stream_enter(const struct nic_qp *qp, uint32_t key);
void stream_missed(const struct nic_qp *qp, uint32_t key);
/* Does somebody see this message leave? */
static inline bool stream_leaves(const struct nic_qp *qp, const struct sq_entry *e)
{
	return qp->num_out && !(e->reply | e->part | e->act) && e->op >= ROOST_OP_WRITE &&
	       e->op <= ROOST_OP_SEND_INV;
}
void stream_leave(struct nic_qp *qp, const struct sq_entry *e, uint8_t *data, uint32_t off,
		  uint32_t n);
bool stream_room(const struct nic_qp *qp);   /* may another packet leave? */
bool stream_paused(const struct nic_qp *qp); /* does one on the way out wait? */
int stream_gather(struct nic_qp *qp, const struct sq_entry *e, uint32_t pkt, uint8_t *dst,
		  uint32_t n); /* as sq_gather() */
void stream_detach(struct nic_qp *qp);
bool stream_on_region(const struct nic *nic, uint32_t key); /* is a hook attached there? Control */
/* A WRITE that goes through a hook which changes its length: for those before it, and behind it. */
void stream_before(struct nic_qp *qp, const struct nic_stream_hook *hook,
		   const struct nic_stream_piece *piece);
void stream_behind(struct nic_qp *qp, const struct nic_stream_hook *hook,
		   const struct nic_stream_piece *piece);

/* resize.c */
int resize_begin(struct nic_qp *qp, struct nic_stream_hook *hook); /* qp->resize, from now on */
void resize_end(struct nic_qp *qp);
bool resize_fetch(struct nic_qp *qp); /* as sq_fetch() */
/*
 * All segments are on their way, or a hook waits: an ACK, or who waits, has the QP looked at again.
 */
bool resize_stuck(const struct nic_qp *qp);
bool resize_active(const struct nic_qp *qp);
/* A part has ended. True: its WQE has, with it. */
bool resize_retired(struct nic_qp *qp, const struct sq_entry *e);
void resize_flush(struct nic_qp *qp);
void resize_reset(struct nic_qp *qp);
/* uc.c */
void uc_rx(struct nic_qp *qp, const struct pkt_view *v);
/* loop.c */
enum req_result loop_run(struct nic_qp *qp);
/* qp.c */
/*
 * Room for copies of `window` WQEs, and for `more` of kernels. Those that are there move over. 0 or
 * -ENOMEM.
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
