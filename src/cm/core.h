/* SPDX-License-Identifier: BSD-2-Clause */
/* Internals of the connection manager. */
#ifndef ROOST_CM_CORE_H
#define ROOST_CM_CORE_H

#include "base/list.h"
#include "base/wheel.h"
#include "cm/cm.h"

/* The keys of a connection. Its chains are in cm->heads[]. */
enum cm_chain {
	CHAIN_ID,     /* the local id; always */
	CHAIN_REMOTE, /* the id of the peer: finds the connection of a repeated REQ */
	CHAIN_QPN,    /* the QP of the peer: finds a stale connection (12.9.8.3.1) */
	CHAINS
};

/*
 * The identity of a peer, for the chains. The address is part of it, because a REQ from another
 * address must not end a connection by naming its GUID.
 */
struct cm_peer {
	struct pkt_addr addr;
	uint64_t guid;
	uint32_t number; /* id or QP number */
	uint32_t sidr;	 /* request ids are in another space than connection ids */
};

struct cm_listener {
	struct cm *cm;
	struct list_head link;	  /* in its bucket, or in the free list */
	struct list_head waiting; /* connections that wait for an answer */
	uint32_t backlog, waiting_count;
	uint64_t service_id;
	struct pkt_addr addr;
	/* listens on all addresses of these families (CM_LISTEN_IPV4 ...); 0: on addr */
	unsigned families;
	unsigned kinds;
	void *user;
};

struct cm_conn {
	struct cm *cm;
	struct cm_conn *next[CHAINS];
	/*
	 * in the list of its state. Waiting: the list of the listener; replied to: cm->replied;
	 * time-wait and released: cm->timewait; free: cm->free
	 */
	struct list_head link;
	struct wheel_timer timer;
	struct cm_listener *listener; /* set while the connection waits for an answer */
	struct cm_share *share;	      /* passive: the share of its source */
	void *user;
	enum cm_state state;
	bool owned;	      /* the caller owns it */
	bool active;	      /* this end sent the request */
	bool sidr;	      /* the request is for a UD QP */
	bool was_established; /* the connection was established: TIMEWAIT_EXIT is reported */
	/* passive: not connected yet, and the peer has not shown that it receives answers */
	bool unverified;
	bool peer_probed; /* the peer was asked if it knows the connection: cm_stale() */
	bool chained[CHAINS];
	uint32_t local_id, remote_id;
	uint64_t remote_guid;
	uint64_t tid; /* transaction id of the message to answer */
	struct pkt_addr src, dst;
	uint64_t service_id;
	uint32_t flow_label, local_qpn, remote_qpn, rq_psn, sq_psn;
	uint8_t tclass, hop_limit, sl, mtu, ack_timeout;
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry;
	uint8_t max_retries, retries; /* allowed retries; retries used for the current message */
	uint64_t interval;	      /* ns between retries */
	uint64_t keep_ns;	      /* ns; time for which a refusal is kept, to be repeated */
	uint64_t probed_at;
	uint8_t saved[CM_MAD_LEN]; /* the last message sent */
};

/*
 * The connections of the peers of one source: an address, or an IPv6 network. Sources with the same
 * hash use the same share.
 */
struct cm_share {
	uint64_t since; /* start of the count `challenges` */
	uint32_t challenges, waiting, half_open;
};
#define CM_SHARES 1024

/*
 * An address that completed a connection: its REQs that need no challenge. Addresses with the same
 * hash replace each other.
 */
struct cm_known {
	struct pkt_addr addr;
	uint32_t credits;
};
#define CM_KNOWN 1024

/* A request whose sender must first show that it receives answers; tid 0: none. */
struct cm_challenge {
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
	/* count of the sequence, if the caller stores none */
	_Atomic uint32_t own_ids;
	_Atomic uint64_t own_entered;
	uint32_t tid_high;
	uint32_t listening;
	uint32_t in_use, half_open;
	/* the pool; connections from `first_unused` on were never used and take no memory yet */
	struct cm_conn *conns;
	uint32_t first_unused, buckets;
	struct list_head free, timewait; /* timewait: released connections, oldest first */
	/* half-open connections that were replied to, oldest first */
	struct list_head replied;
	struct cm_share *shares;
	struct cm_known *known;
	struct cm_challenge *challenges;
	uint32_t next_challenge;
	uint32_t num_unverified; /* unconnected senders, trusted since unverified_since */
	uint64_t unverified_since;
	struct cm_conn **heads[CHAINS];
	struct cm_listener *listeners;
	struct list_head free_listeners, *services;
	size_t pool_size, heads_size, listeners_size, services_size, shares_size, known_size,
		challenges_size;
	uint32_t service_buckets;
};

/* Returns 4.096 us << code in ns (12.6: all timeouts of messages). */
static inline uint64_t cm_time_ns(unsigned code)
{
	return 4096ull << (code & 31);
}

/* Returns a communication id: slot (6 bits) | 26 bits. The slot steers messages to this NIC. */
#define CM_ID_BITS 26
static inline uint32_t cm_id(const struct cm *cm, uint32_t low)
{
	return (uint32_t)(cm->config.slot & 63) << CM_ID_BITS | (low & ((1u << CM_ID_BITS) - 1));
}

/* Returns the slot of a peer's id, with zeros behind it. */
static inline uint32_t cm_id_slot(uint32_t id)
{
	return id >> CM_ID_BITS << CM_ID_BITS;
}

#define CM_INTERVAL_MIN cm_time_ns(14)

/*
 * Returns the interval of retries for the timeouts of a message, in ns, limited to 67 ms to 69 s.
 */
uint64_t cm_interval(unsigned ack_timeout, unsigned response_timeout);

/* ---- table.c ---- */

int cm_table_init(struct cm *cm);
void cm_table_free(struct cm *cm);
/*
 * Returns a connection in CM_IDLE, owned, with a new id. If there is no space, the oldest released
 * connection in time-wait is replaced. Returns NULL if there is no space, or if all free ids were
 * used in the last 60 s.
 */
struct cm_conn *cm_conn_new(struct cm *cm, uint64_t now);
void cm_conn_free(struct cm_conn *c);
struct cm_conn *cm_find_id(struct cm *cm, uint32_t id);
struct cm_conn *cm_find_peer(struct cm *cm, enum cm_chain chain, const struct cm_peer *peer);
/*
 * Adds a connection to a chain by dst, remote_guid and remote_id or remote_qpn, which must not
 * change while the connection is in the chain.
 */
void cm_chain(struct cm_conn *c, enum cm_chain chain);
void cm_unchain(struct cm_conn *c, enum cm_chain chain);
/* Returns the bucket of the listeners of a service. */
struct list_head *cm_service_bucket(struct cm *cm, uint64_t service_id);

/* ---- send.c ---- */

/*
 * Starts a message of a connection with its ids, and with its own transaction id or that of the
 * message to answer.
 */
void cm_msg_init(const struct cm_conn *c, struct cm_msg *m, enum cm_attr attr, bool own_tid);
/* Saves and sends a message. */
void cm_send(struct cm_conn *c, const struct cm_msg *m);
/* Sends the saved message again, as the answer to a duplicate or as a retry. */
void cm_send_again(struct cm_conn *c);
enum cm_attr cm_saved_attr(const struct cm_conn *c);
/* Sends an answer that no connection saves. */
void cm_answer(struct cm *cm, const struct pkt_addr *src, const struct pkt_addr *dst,
	       const struct cm_msg *m);
/* Refuses a message without making a connection. */
void cm_refuse(struct cm *cm, const struct pkt_addr *src, const struct pkt_addr *dst,
	       const struct cm_msg *to, uint8_t about, uint16_t reason, const void *info,
	       size_t info_len);
void cm_send_rej(struct cm_conn *c, uint8_t about, uint16_t reason, const void *info,
		 size_t info_len, const void *data, size_t data_len);
/*
 * Sends the REJ of a timeout. It names this end by its GUID, because the peer may not know its id
 * (12.6.7.2).
 */
void cm_send_rej_timeout(struct cm_conn *c);
void cm_send_mra(struct cm_conn *c, uint8_t service_timeout);
/*
 * Sends a DREQ that ends no connection, because it names QP 0. A peer that knows the connection
 * drops it for that reason (12.6.10; cm_dreq_handler() of Linux). A peer that does not know it
 * answers with a DREP.
 */
void cm_probe_peer(struct cm_conn *c);
/* Keeps the DREQ of a connection as its will, or removes the will: cm_ops.will. */
void cm_leave_will(struct cm_conn *c, bool established);
void cm_send_dreq(struct cm_conn *c, uint64_t now, const void *data, size_t data_len);
void cm_send_drep(struct cm_conn *c, const void *data, size_t data_len);

/* ---- state.c ---- */

/* Sets the state and the counts by state, and nothing else. */
void cm_set_state(struct cm_conn *c, enum cm_state s);
/* Records that a message was sent that needs an answer. */
void cm_await(struct cm_conn *c, uint64_t now, enum cm_state s);
/* Shortens the wait of cm_await() where the peer's interval does not count any more. */
void cm_hurry(struct cm_conn *c, uint64_t now);
/*
 * Returns the time after which no packet of the connection is under way any more: its ACK time-out,
 * but at most 69 s.
 */
uint64_t cm_path_ns(const struct cm_conn *c);
void cm_enter_timewait(struct cm_conn *c, uint64_t now, uint64_t ns);
void cm_set_established(struct cm_conn *c);
/*
 * Reports an event to the caller, if the caller still owns the connection. It must be the last
 * action on a connection.
 */
void cm_report_event(struct cm_conn *c, struct cm_event *e);
/*
 * Ends a connection: sets CM_IDLE and reports event e, unless e is NULL. Frees the connection if
 * the caller has released it.
 */
void cm_end(struct cm_conn *c, struct cm_event *e);
/* Gives up waiting for an answer. */
void cm_give_up(struct cm_conn *c, uint64_t now);
void cm_timer(void *ctx, struct wheel_timer *t);

/* ---- rx.c, rx_end.c, listen.c: one function a message ---- */

/* A received message, with its addresses. */
struct cm_rx {
	uint64_t now;
	struct pkt_addr src, dst;
	const uint8_t *mad;
	struct cm_msg m;
	bool src_verified; /* the sender has shown that it receives answers: challenge.c */
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
 * Returns the connection that a message names by the local id (and the id of the peer, if
 * `both_ids`). Returns NULL, and counts the message, if there is no such connection or the message
 * is not from its peer.
 */
struct cm_conn *cm_rx_conn(struct cm *cm, const struct cm_rx *rx, bool both_ids);

/*
 * Handles a message that names a QP of the peer that is connected already: the old connection may
 * be stale (12.9.8.3.1), or the sender may only have the address of the peer. This end asks the
 * peer whether it knows the old connection, which ends if it does not: cm_rx_drep().
 */
void cm_stale(struct cm_conn *old, uint64_t now);

/* ---- challenge.c ---- */

struct cm_share *cm_share_of(struct cm *cm, const struct pkt_addr *src);
/* Records that a connection with this address was completed: it receives our datagrams. */
void cm_earn_credits(struct cm *cm, const struct pkt_addr *addr);
/*
 * Challenges the sender of a request if necessary. Returns true if the sender was challenged, or
 * the request was dropped; false: the request may continue.
 */
bool cm_challenged(struct cm *cm, const struct cm_listener *l, const struct cm_rx *rx);
/* Returns true if the DREP answers a challenge, whose request then continues. */
bool cm_challenge_answered(struct cm *cm, const struct cm_rx *rx);
/*
 * Returns true, and counts the request, if the source has its full share of the listener, or of all
 * half-open connections.
 */
bool cm_share_full(struct cm *cm, const struct cm_listener *l, const struct pkt_addr *src);
/*
 * If there are too many half-open connections, gives up the oldest one that waits for its RTU,
 * which causes an event. Returns true in this case.
 */
bool cm_limit_half_open(struct cm *cm, uint64_t now);

/*
 * Returns the timeout of the QP. life_time is that of the REQ or of the values agreed since. The
 * calculation is that of Linux's cm_ack_timeout().
 */
uint8_t cm_ack_timeout(unsigned ack_delay, unsigned life_time);

/*
 * The most repetitions of a REP, and of the DREQ of a released connection, and their longest
 * interval: a peer that never answers keeps such a connection for 10 s.
 */
#define CM_BRIEF_RETRIES  3
#define CM_BRIEF_INTERVAL 2500000000u

/*
 * The time for an answer of the program that this end announces to the peer: 69 s, as in Linux
 * (CMA_CM_MRA_SETTING).
 */
#define CM_SERVICE_TIMEOUT 24

static inline void cm_count_duplicate(struct cm *cm, enum cm_attr a)
{
	cm->counters.duplicates[a - CM_ATTR_FIRST]++;
}

#endif
