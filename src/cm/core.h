/* SPDX-License-Identifier: BSD-2-Clause */
/* The inside of the connection manager. */
#ifndef ROOST_CM_CORE_H
#define ROOST_CM_CORE_H

#include "base/list.h"
#include "base/wheel.h"
#include "cm/cm.h"

/* What a connection is found by. Its chains hang in cm->heads[]. */
enum cm_chain {
	CHAIN_ID,     /* our id: always */
	CHAIN_REMOTE, /* the peer's id: finds the connection that a REQ asks for again */
	CHAIN_QPN,    /* the peer's QP: finds what is stale (12.9.8.3.1) */
	CHAINS
};

/*
 * Who the peer is, for the chains. The address is part of it: a REQ from elsewhere must not end a
 * connection by naming its GUID.
 */
struct cm_peer {
	struct pkt_addr addr;
	uint64_t guid;
	uint32_t number; /* id or QP number */
	uint32_t sidr;	 /* request ids are another space than connection ids */
};

struct cm_listener {
	struct cm *cm;
	struct list_head link;	  /* of its bucket, or of the free ones */
	struct list_head waiting; /* connections that wait for an answer */
	uint32_t backlog, waiting_count;
	uint64_t service_id;
	struct pkt_addr addr;
	unsigned families; /* hears all addresses of these (CM_LISTEN_IPV4 ...); 0: the one */
	unsigned kinds;
	void *user;
};

struct cm_conn {
	struct cm *cm;
	struct cm_conn *next[CHAINS];
	/*
	 * waiting: its listener's; replied to: cm->replied; time-wait and released: cm->timewait;
	 * free: cm->free
	 */
	struct list_head link;
	struct wheel_timer timer;
	struct cm_listener *listener; /* while it waits for an answer */
	struct cm_share *share;	      /* passive: its source's */
	void *user;
	enum cm_state state;
	bool owned;    /* by the caller */
	bool active;   /* we asked */
	bool sidr;     /* asks for a UD QP */
	bool was_up;   /* was established: TIMEWAIT_EXIT is told */
	bool stranger; /* passive: not connected yet, and its peer did not show that it hears us */
	bool asked;    /* the peer was asked whether it knows of it: cm_stale() */
	bool chained[CHAINS];
	uint32_t local_id, remote_id;
	uint64_t remote_guid;
	uint64_t tid; /* of what we answer */
	struct pkt_addr src, dst;
	uint64_t service_id;
	uint32_t flow_label, local_qpn, remote_qpn, rq_psn, sq_psn;
	uint8_t tclass, hop_limit, sl, mtu, ack_timeout;
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry;
	uint8_t max_retries, retries; /* allowed; used for what is under way */
	uint64_t interval;	      /* ns between retries */
	uint64_t hold;		      /* ns that a refusal is kept to be said again */
	uint64_t asked_at;
	uint8_t saved[CM_MAD_LEN]; /* the last message sent */
};

/*
 * What peers of one source hold: an address, or a network of IPv6. Those whose hash is the same
 * share one.
 */
struct cm_share {
	uint64_t since; /* counts `asked` */
	uint32_t asked, waiting, half_open;
};
#define CM_SHARES 1024

/* A request whose sender was asked whether it is there; tid 0: none. */
struct cm_held {
	uint64_t tid;
	struct pkt_addr src, dst;
	uint8_t mad[CM_MAD_LEN];
};

struct cm {
	struct cm_ops ops;
	struct cm_config config;
	struct cm_counters counters;
	struct secret secret;
	struct wheel wheel;
	uint64_t hash_seed;
	uint32_t tid_high;
	uint32_t listening;
	uint32_t in_use, half_open;
	/* the pool; those at and after `fresh` were never used, and cost no memory yet */
	struct cm_conn *conns;
	uint32_t fresh, buckets;
	struct list_head free, timewait; /* timewait: released ones, oldest first */
	struct list_head replied;	 /* half open, and answered: oldest first */
	struct cm_share *shares;
	struct cm_held *held;
	uint32_t next_held;
	uint32_t strangers; /* believed since then, and not connected */
	uint64_t strangers_since;
	struct cm_conn **heads[CHAINS];
	struct cm_listener *listeners;
	struct list_head free_listeners, *services;
	size_t pool_size, heads_size, listeners_size, services_size, shares_size, held_size;
	uint32_t service_buckets;
};

/* 4.096 us << code (12.6: all time-outs of messages). */
static inline uint64_t cm_time_ns(unsigned code)
{
	return 4096ull << (code & 31);
}

/* A communication id: slot (6 bits) | 26 bits. By the slot it finds the way back to this NIC. */
#define CM_ID_BITS 26
static inline uint32_t cm_id(const struct cm *cm, uint32_t low)
{
	return (uint32_t)(cm->config.slot & 63) << CM_ID_BITS | (low & ((1u << CM_ID_BITS) - 1));
}

#define CM_INTERVAL_MIN cm_time_ns(14)

/* The interval of retries for what the messages say, within bounds: 67 ms to 69 s. */
uint64_t cm_interval(unsigned ack_timeout, unsigned response_timeout);

/* ---- table.c ---- */

int cm_table_init(struct cm *cm);
void cm_table_free(struct cm *cm);
/*
 * A connection in CM_IDLE, owned, with an id of its own; the oldest released time-wait gives way if
 * need be. NULL: no room.
 */
struct cm_conn *cm_conn_new(struct cm *cm);
void cm_conn_free(struct cm_conn *c);
struct cm_conn *cm_find_id(struct cm *cm, uint32_t id);
struct cm_conn *cm_find_peer(struct cm *cm, enum cm_chain chain, const struct cm_peer *peer);
/* By dst, remote_guid and remote_id or remote_qpn, which stay as they are while it hangs there. */
void cm_chain(struct cm_conn *c, enum cm_chain chain);
void cm_unchain(struct cm_conn *c, enum cm_chain chain);
/* Listeners' bucket of a service. */
struct list_head *cm_service_bucket(struct cm *cm, uint64_t service_id);

/* ---- send.c ---- */

/*
 * A message of the connection's, with its ids filled in; with its own transaction id, or with that
 * of what it answers.
 */
void cm_msg_init(const struct cm_conn *c, struct cm_msg *m, enum cm_attr attr, bool own_tid);
/* Keeps and sends it. */
void cm_send(struct cm_conn *c, const struct cm_msg *m);
/* The kept one again; a duplicate's answer, or a retry. */
void cm_send_again(struct cm_conn *c);
enum cm_attr cm_saved_attr(const struct cm_conn *c);
/* An answer that no connection keeps. */
void cm_answer(struct cm *cm, const struct pkt_addr *src, const struct pkt_addr *dst,
	       const struct cm_msg *m);
/* Refuses a message of which no connection is made. */
void cm_refuse(struct cm *cm, const struct pkt_addr *src, const struct pkt_addr *dst,
	       const struct cm_msg *to, uint8_t about, uint16_t reason, const void *info,
	       size_t info_len);
void cm_send_rej(struct cm_conn *c, uint8_t about, uint16_t reason, const void *info,
		 size_t info_len, const void *data, size_t data_len);
/*
 * The REJ that says that we waited long enough: names us by our GUID, since the peer may not know
 * our id (12.6.7.2).
 */
void cm_send_rej_timeout(struct cm_conn *c);
void cm_send_mra(struct cm_conn *c, uint8_t service_timeout);
/*
 * A DREQ that ends nothing: it names QP 0. A peer that knows the connection drops it for that
 * (12.6.10; the kernel's cm_dreq_handler()), one that does not says so by a DREP.
 */
void cm_send_question(struct cm_conn *c);
void cm_send_dreq(struct cm_conn *c, uint64_t now, const void *data, size_t data_len);
void cm_send_drep(struct cm_conn *c, const void *data, size_t data_len);

/* ---- state.c ---- */

/* The state alone, with what is counted by state. */
void cm_set_state(struct cm_conn *c, enum cm_state s);
/* A message was sent that wants an answer. */
void cm_await(struct cm_conn *c, uint64_t now, enum cm_state s);
void cm_enter_timewait(struct cm_conn *c, uint64_t now, uint64_t ns);
void cm_up(struct cm_conn *c);
/* Tells the caller, if it is still there. The last thing that is done with a connection. */
void cm_tell(struct cm_conn *c, struct cm_event *e);
/* Nothing is left to do: CM_IDLE, told to the caller if e is given, or freed if it is gone. */
void cm_over(struct cm_conn *c, struct cm_event *e);
/* No answer comes any more. */
void cm_give_up(struct cm_conn *c, uint64_t now);
void cm_timer(void *ctx, struct wheel_timer *t);

/* ---- rx.c, rx_end.c, listen.c: one function a message ---- */

/* What came in, and where. */
struct cm_rx {
	uint64_t now;
	struct pkt_addr src, dst;
	const uint8_t *mad;
	struct cm_msg m;
	bool heard; /* its sender has shown that it hears us: stranger.c */
};

void cm_rx_req(struct cm *cm, const struct cm_rx *rx);
void cm_rx_mra(struct cm *cm, const struct cm_rx *rx);
void cm_rx_rej(struct cm *cm, const struct cm_rx *rx);
void cm_rx_rep(struct cm *cm, const struct cm_rx *rx);
void cm_rx_rtu(struct cm *cm, const struct cm_rx *rx);
void cm_rx_dreq(struct cm *cm, const struct cm_rx *rx);
void cm_rx_drep(struct cm *cm, const struct cm_rx *rx);
void cm_rx_sidr_req(struct cm *cm, const struct cm_rx *rx);
void cm_rx_sidr_rep(struct cm *cm, const struct cm_rx *rx);
void cm_rx_lap(struct cm *cm, const struct cm_rx *rx);
void cm_rx_apr(struct cm *cm, const struct cm_rx *rx);

/*
 * The connection that a message names by our id (and the peer's, if both are meant); NULL and
 * counted: none, or not from its peer.
 */
struct cm_conn *cm_rx_conn(struct cm *cm, const struct cm_rx *rx, bool both_ids);

/*
 * The peer's QP is connected to us already, and somebody who has its address says otherwise: the
 * old connection may be stale (12.9.8.3.1). The peer is asked, and ends it if it does not know of
 * it: cm_rx_drep().
 */
void cm_stale(struct cm_conn *old, uint64_t now);

/* ---- stranger.c ---- */

struct cm_share *cm_share_of(struct cm *cm, const struct pkt_addr *src);
/* True: the request is kept until its sender shows that it hears us, or dropped. */
bool cm_held_back(struct cm *cm, const struct cm_listener *l, const struct cm_rx *rx);
/* Is the DREP of one who was asked so? Its request goes on. */
bool cm_stranger_answers(struct cm *cm, const struct cm_rx *rx);
/* The source holds its share of the listener, or of all half-open connections: counted. */
bool cm_share_full(struct cm *cm, const struct cm_listener *l, const struct pkt_addr *src);
/*
 * True: there were too many half-open connections, and the oldest that waited for its RTU was given
 * up. An event came of it.
 */
bool cm_make_room(struct cm *cm, uint64_t now);

/* Ours being the time-out of the REQ or of what was agreed since: the kernel's cm_ack_timeout(). */
uint8_t cm_ack_timeout(unsigned ack_delay, unsigned life_time);

/*
 * A REP is sent again so often, and after this long at most: a peer that never answers keeps a
 * connection half open for 10 s.
 */
#define CM_REP_RETRIES	3
#define CM_REP_INTERVAL 2500000000u

/*
 * How long the peer is told that a program may take: 69 s, as the kernel says (CMA_CM_MRA_SETTING).
 */
#define CM_SERVICE_TIMEOUT 24

static inline void cm_count_duplicate(struct cm *cm, enum cm_attr a)
{
	cm->counters.duplicates[a - CM_ATTR_FIRST]++;
}

#endif
