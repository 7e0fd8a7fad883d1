/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A world for tests of the core: NICs on a simulated link in virtual time, endpoints with queues
 * and memory, and helpers that resemble the verbs. The seed determines all of it.
 */
#ifndef ROOST_TESTS_WORLD_H
#define ROOST_TESTS_WORLD_H

#include "nic/nic_chain.h"
#include "nic/nic_rpc.h"
#include "port/sim.h"

#define WORLD_MAX_NICS 8

struct ep;
struct shared_rq;

struct world {
	struct sim *sim;
	struct nic *nic[WORLD_MAX_NICS];
	struct port *port[WORLD_MAX_NICS][NIC_MAX_PORTS][NIC_MAX_PUS];
	unsigned nics, ports, pus;
	uint64_t turn_ns; /* length of a turn, as nic_turn_ended() reports it */
	uint64_t paused_until[WORLD_MAX_NICS]; /* the NIC is not polled before */
	uint64_t cq_events, cq_errors, peers_gone;
	struct {
		uint64_t count;
		unsigned port;
		struct pkt_addr src, dst;
		uint8_t mad[NIC_GSI_LEN];
	} gsi; /* the last datagram that a QP 1 received */
	struct {
		uint64_t count;
		struct pkt_addr dst;
		uint64_t tid;
	} gsi_lost; /* the last datagram of a QP 1 that found no NIC */
};

struct world_shape {
	unsigned nics, ports, pus; /* ports and PUs of each NIC; 0: 1 */
	unsigned timeout_scale;	   /* as in struct nic_config */
	bool one_address;	   /* all NICs share NIC 0's; PU l of NIC i has slot i * pus + l */
	bool v6;		   /* addresses of IPv6: fd00::PORT:NIC, instead of 10.0.PORT.NIC */
	struct qp_numbers *qp_numbers; /* by slot, with one_address; NULL: each NIC has its own */
	struct key_sequence keys;      /* of all NICs; drawn NULL: each NIC has its own */
	struct port *(*open)(
		/* one port for each NIC that is not on the simulated link; NULL: all are */
		unsigned nic);
};

struct ep_params {
	enum nic_qp_type type; /* 0: RC */
	uint32_t qkey;	       /* UD; 0: 0x11111111 */
	uint32_t depth;	       /* of each queue; 0: 64 */
	uint32_t max_sge;      /* 0: 1 */
	uint32_t max_inline;   /* 0: none */
	uint64_t mem;	       /* bytes of registered memory; 0: 64 KiB */
	uint32_t mtu;	       /* 0: 1024 */
	uint32_t psn;	       /* sq_psn of both sides */
	uint32_t cq_depth;     /* 0: four times `depth` */
	uint8_t pu, port, gid; /* from 0; its address is that GID of the port */
	bool sig_all;
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer,
		rd_atomic;     /* 0 means 14, 7, 7, 1, 4; 255 means 0 */
	uint32_t access;       /* of QP and MR; 0: everything */
	struct shared_rq *srq; /* receives come from it */
	bool own_srq;	       /* the receive queue is an SRQ that only this QP uses */
	bool rpc;	       /* it has the op-codes of calls */
	bool calc;	       /* calculations are enabled */
	bool counts;	       /* its CQs only count */
	bool chain; /* it is set up for chains and watches its own CQs: 0 sends, 1 receives */
	bool managed_send, managed_recv;
	const struct ep *watch[2]; /* also watches the receives of these, at 2 and 3 */
	bool watch_sends;	   /* their sends instead of their receives */
	const struct ep *
		recv_cq_of; /* its receives complete in the CQ of this endpoint; NULL: in its own */
	const struct ep *audit; /* the endpoint whose receive CQ audits it */
	struct nic_chain_limit limit;
	uint32_t first; /* start of all its counts */
	bool no_mem;	/* no memory of its own */
	bool only_cqs;	/* no memory, and no QP */
	/* has its protection domain, and frees it; NULL: one of its own */
	const struct ep *pd_of;
};

/* A shared receive queue with its ring, and memory for its receives in a PD of its own. */
struct shared_rq {
	struct nic *nic;
	struct nic_srq *srq;
	uint32_t pd, key, depth;
	uint8_t *mem, *ring;
	uint64_t *wr_ids;
	struct roost_queue_index index;
	uint32_t limit_events, errors;
};
#define SHARED_RQ_MEM 65536

/* One end of a connection: a QP with its CQs, rings and one memory region. */
struct ep {
	struct world *w;
	unsigned nic_index;
	struct nic *nic;
	uint32_t pd, key;
	uint8_t *mem;
	uint64_t mem_len;
	struct ep_params p;
	struct nic_cq *scq, *rcq;
	struct roost_cqe *sring, *rring;
	struct roost_cq_index sidx, ridx;
	uint32_t scons, rcons, cq_mask;
	struct nic_qp *qp;
	struct nic_srq *own_srq;
	uint8_t *sq, *rq;
	uint64_t *sq_wr, *rq_wr;
	struct roost_queue_index sqi, rqi;
	uint8_t sq_shift, rq_shift;
	uint32_t sq_key, rq_key; /* chain: of the rings as regions */
	uint32_t events;	 /* bit per enum nic_event */
};

struct wr {
	enum roost_op op;
	uint64_t wr_id;
	uint16_t flags; /* 0: signaled */
	struct roost_sge sge[ROOST_MAX_SGE];
	unsigned num_sge;
	const void *inl;
	uint32_t inline_len;
	uint64_t raddr;
	uint32_t rkey, imm;
	uint64_t swap_add, compare;
};

void world_init(struct world *w, unsigned nics, uint64_t seed, const struct sim_params *params);
void world_init_shape(struct world *w, const struct world_shape *shape, uint64_t seed,
		      const struct sim_params *params);
void world_fini(struct world *w);
/*
 * Ends the NIC as if its process was killed, without a message to its peers. Call ep_forget() for
 * its endpoints.
 */
void world_kill(struct world *w, unsigned nic);
/* Adds an address to port `port_num` of a NIC. Returns the result of nic_port_add(). */
int world_add_addr(struct world *w, unsigned nic, unsigned port_num, const char *text);
/* Returns the NIC that has the address; WORLD_MAX_NICS: none. */
unsigned world_nic_of(const struct world *w, const struct pkt_addr *a);
/*
 * Runs one turn of all NICs, or jumps to the time of the next event. Returns false if there is no
 * event before `until`.
 */
bool world_step(struct world *w, uint64_t until);
/* Runs until there are no more events before `until` (virtual ns). */
void world_run(struct world *w, uint64_t until);
uint64_t world_now(const struct world *w);

void ep_init(struct ep *e, struct world *w, unsigned nic, const struct ep_params *p);
void ep_fini(struct ep *e);
/* Frees the program's memory of an endpoint whose NIC was destroyed before. */
void ep_forget(struct ep *e);
/* Moves both from RESET to RTS. */
void ep_connect(struct ep *a, struct ep *b);
void ep_connect_self(struct ep *e);
void ep_to_init(struct ep *e);
/* Moves from INIT to RTR, or from RTR to RTS, with the required attributes of `a`. */
void ep_to_rtr(struct ep *e, const struct nic_qp_attr *a);
void ep_to_rts(struct ep *e, const struct nic_qp_attr *a);
/* Returns the address of the endpoint. */
const struct pkt_addr *ep_addr(const struct ep *e);
void ep_attr(const struct ep *e, const struct ep *peer, struct nic_qp_attr *a);
int ep_modify(struct ep *e, const struct nic_qp_attr *a, uint32_t mask);

void shared_rq_init(struct shared_rq *q, struct nic *nic, uint32_t depth);
/* Returns -EBUSY, and frees nothing, while a QP uses it. */
int shared_rq_fini(struct shared_rq *q);
void shared_rq_post(struct shared_rq *q, uint64_t wr_id, const struct roost_sge *sge,
		    unsigned num_sge);
static inline struct roost_sge shared_rq_sge(const struct shared_rq *q, uint64_t off, uint32_t len)
{
	return (struct roost_sge){(uintptr_t)q->mem + off, len, q->key};
}

void ep_post(struct ep *e, const struct wr *wr);
void ep_post_recv(struct ep *e, uint64_t wr_id, const struct roost_sge *sge, unsigned num_sge);
/* Takes one completion. Returns false if there is none. */
bool ep_poll_send(struct ep *e, struct roost_cqe *out);
bool ep_poll_recv(struct ep *e, struct roost_cqe *out);
/* Runs the world until a completion comes or `ns` of virtual time have passed. */
bool ep_wait_send(struct ep *e, struct roost_cqe *out, uint64_t ns);
bool ep_wait_recv(struct ep *e, struct roost_cqe *out, uint64_t ns);

static inline struct roost_sge ep_sge(const struct ep *e, uint64_t off, uint32_t len)
{
	return (struct roost_sge){(uintptr_t)e->mem + off, len, e->key};
}

static inline struct wr wr_rdma(enum roost_op op, const struct ep *e, uint64_t off, uint32_t len,
				const struct ep *peer, uint64_t roff)
{
	return (struct wr){.op = op,
			   .sge = {ep_sge(e, off, len)},
			   .num_sge = 1,
			   .raddr = (uintptr_t)peer->mem + roff,
			   .rkey = peer->key};
}

/* The attributes that the transitions of RC, UC and UD require. */
#define MASK_INIT (NIC_QPA_STATE | NIC_QPA_PKEY_INDEX | NIC_QPA_PORT | NIC_QPA_ACCESS_FLAGS)
#define MASK_RTR                                                                                   \
	(NIC_QPA_STATE | NIC_QPA_AV | NIC_QPA_PATH_MTU | NIC_QPA_DEST_QPN | NIC_QPA_RQ_PSN |       \
	 NIC_QPA_MAX_DEST_RD_ATOMIC | NIC_QPA_MIN_RNR_TIMER)
#define MASK_RTS                                                                                   \
	(NIC_QPA_STATE | NIC_QPA_TIMEOUT | NIC_QPA_RETRY_CNT | NIC_QPA_RNR_RETRY |                 \
	 NIC_QPA_SQ_PSN | NIC_QPA_MAX_QP_RD_ATOMIC)

#define MASK_INIT_UD (NIC_QPA_STATE | NIC_QPA_PKEY_INDEX | NIC_QPA_PORT | NIC_QPA_QKEY)
#define MASK_RTR_UC                                                                                \
	(NIC_QPA_STATE | NIC_QPA_AV | NIC_QPA_PATH_MTU | NIC_QPA_DEST_QPN | NIC_QPA_RQ_PSN)
#define MASK_RTR_UD NIC_QPA_STATE
#define MASK_RTS_UX (NIC_QPA_STATE | NIC_QPA_SQ_PSN)

#define SEC  1000000000ull
#define MSEC 1000000ull

#endif
