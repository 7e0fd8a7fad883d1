/* SPDX-License-Identifier: BSD-2-Clause */
/* Processing units, and the packets that come in. */
#ifndef ROOST_NIC_PU_H
#define ROOST_NIC_PU_H

#include "base/list.h"
#include "base/mpsc.h"
#include "base/wheel.h"
#include "nic/ack_delay.h"
#include "nic/mr.h"
#include "nic/nic.h"

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
	/* the flow of the last datagram received; the next datagram often has the same source */
	struct icrc_flow ud_rx;
	uint32_t read_out; /* READ bytes that all QPs have requested and not received */
	struct list_head read_waiters;
	uint8_t num;  /* the port number whose GID table has this port */
	bool blocked; /* the port had no space; the next turn tries again */
};

#define GROUP_BUCKETS 64 /* a power of two */

struct pu {
	struct nic *nic;
	unsigned index;
	bool rpc_work, turn_end_requested; /* run() is due; nic_rpc_request_turn_end() was called */
	bool skipped_rx;		   /* the last turn sent and did not receive */
	bool rx_last;			   /* the current packet is the last of its burst */
	struct ack_delay ack_delay;
	uint64_t now;
	uint64_t polls;		    /* turns, with or without work */
	const struct nic_qp *rx_qp; /* QP of the last packet; only compared, never accessed */
	uint64_t rx_at;		    /* time of the last packet */
	struct pu_port ports[NIC_MAX_PORTS];
	struct wheel wheel;
	struct mpsc doorbells;
	struct list_head senders;    /* QPs that have requests to send */
	struct list_head responders; /* QPs that have responses to send */
	/*
	 * QPs of these two lists that found no space on their path (port.h); they try again each
	 * turn
	 */
	struct list_head stuck_senders, stuck_responders;
	/*
	 * one of these two lists is not empty, or was not empty when the turn began, or datagrams
	 * of QP 1 wait (gsi_wait.c)
	 */
	bool stuck;
	struct list_head lost; /* QPs that are about to end because a CQ overran: qp_end_lost() */
	struct list_head chain_later; /* managed queues that continue in the next turn */
	unsigned num_dirty;
	struct nic_cq *dirty[64]; /* CQs with completions of this turn */
	struct list_head dests;	  /* changed under nic->dests_lock: other PUs read it */
	struct list_head groups[GROUP_BUCKETS];
	struct nic_counters ctr;
	struct nic_qp *reply_qp; /* the QP whose reply ack_delay observes; NULL: none */
	struct mr_last rpc_last; /* the last region that a call has accessed */
	uint64_t rx_mixed; /* time when packets or calls last changed from one QP to another */
	atomic_bool rpc_ring_queued; /* RPC_RING is in the ring of doorbells */
	/* timer of nic_rpc_at(); its owner is NULL, unlike that of a QP's timer */
	struct wheel_timer rpc_timer;
	uint64_t hint_checks_at; /* time when the count in hint_checks began */
	/* number of queue pairs and destinations that hints were compared with since then */
	unsigned hint_checks;
	/* the numbers of managed queues that take WQEs (chain_pace.c) */
	uint64_t chain_turn; /* value of `polls` for which the counts are valid */
	unsigned chain_queues, chain_queues_before;
	uint32_t chain_lives;	  /* the last `life` of a struct qp_chain */
	atomic_bool chain_mailed; /* CHAIN_MAIL is in the ring of doorbells */
	/*
	 * Mailboxes by the sending PU; NULL: none. They are made while all PUs are owned
	 * (chain_mail.c).
	 */
	struct chain_box *chain_box[NIC_MAX_PUS];
};

/* Each turn looks at the fields of these two lines. */
#define PU_LINE(first, last)                                                                       \
	_Static_assert(offsetof(struct pu, first) / ROOST_CACHE_LINE ==                            \
			       offsetof(struct pu, last) / ROOST_CACHE_LINE,                       \
		       "hot fields of a PU in one cache line")
PU_LINE(nic, ports[0].port);
PU_LINE(stuck, dirty);
#undef PU_LINE

/* The doorbell of nic_rpc_ring(). It differs from all QP numbers, which have 24 bits. */
#define RPC_RING UINT32_MAX
/* The doorbell for mail between chains. */
#define CHAIN_MAIL (UINT32_MAX - 1)

/* ports.c: sets the port at index `at`; the caller updates nic->ports */
void pu_add_port(struct pu *pu, unsigned at, unsigned port_num, struct port *port);

/* rx.c */
/*
 * Returns the flow for a datagram's ICRC check: the last flow if the addresses and the source port
 * are the same.
 */
struct icrc_flow *rx_ud_flow(struct pu_port *pp, const struct port_pkt *pkt);
/* Returns true if the ICRC of a packet is right. May set PORT_NO_DF in pkt->flags. */
bool rx_icrc_right(const struct icrc_flow *flow, struct port_pkt *pkt);
void rx_packets(struct pu *pu, struct pu_port *pp, struct port_pkt *pkts, int n);

#endif
