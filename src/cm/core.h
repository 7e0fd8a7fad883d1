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

/* Who the peer is, for the chains. The address is part of it: a REQ from elsewhere must not end a connection by naming its GUID. */
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
	struct list_head
		link; /* waiting: its listener's; time-wait and released: cm->timewait; free: cm->free */
	struct wheel_timer timer;
	struct cm_listener *listener; /* while it waits for an answer */
	void *user;
	enum cm_state state;
	bool owned;  /* by the caller */
	bool active; /* we asked */
	bool sidr;   /* asks for a UD QP */
	bool was_up; /* was established: TIMEWAIT_EXIT is told */
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
	uint8_t saved[CM_MAD_LEN];    /* the last message sent */
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
	struct cm_conn
		*conns; /* the pool; those at and after `fresh` were never used, and cost no memory yet */
	uint32_t fresh, buckets;
	struct list_head free, timewait; /* timewait: released ones, oldest first */
	struct cm_conn **heads[CHAINS];
	struct cm_listener *listeners;
	struct list_head free_listeners, *services;
	size_t pool_size, heads_size, listeners_size, services_size;
	uint32_t service_buckets;
};

/* 4.096 us << code (12.6: all time-outs of messages). */
static inline uint64_t cm_time_ns(unsigned code)
{
	return 4096ull << (code & 31);
}

/* The interval of retries for what the messages say, within bounds: 67 ms to 69 s. */
uint64_t cm_interval(unsigned ack_timeout, unsigned response_timeout);

/* ---- table.c ---- */

int cm_table_init(struct cm *cm);
void cm_table_free(struct cm *cm);
/* A connection in CM_IDLE, owned, with an id of its own; the oldest released time-wait gives way if need be. NULL: no room. */
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

/* A message of the connection's, with its ids filled in; with its own transaction id, or with that of what it answers. */
void cm_msg_init(const struct cm_conn *c, struct cm_msg *m, enum cm_attr attr, bool own_tid);
/* Keeps and sends it. */
void cm_send(struct cm_conn *c, const struct cm_msg *m);
/* The kept one again; a duplicate's answer, or a retry. */
void cm_send_again(struct cm_conn *c);
enum cm_attr cm_saved_attr(const struct cm_conn *c);
/* An answer that no connection keeps. */
void cm_answer(struct cm *cm, const struct pkt_addr *src, const struct pkt_addr *dst, const struct cm_msg *m);
/* Refuses a message of which no connection is made. */
void cm_refuse(struct cm *cm, const struct pkt_addr *src, const struct pkt_addr *dst, const struct cm_msg *to,
	       uint8_t about, uint16_t reason, const void *info, size_t info_len);
void cm_send_rej(struct cm_conn *c, uint8_t about, uint16_t reason, const void *info, size_t info_len,
		 const void *data, size_t data_len);
/* The REJ that says that we waited long enough: names us by our GUID, since the peer may not know our id (12.6.7.2). */
void cm_send_rej_timeout(struct cm_conn *c);
void cm_send_mra(struct cm_conn *c, uint8_t service_timeout);
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
void cm_timer(void *ctx, struct wheel_timer *t);

/* ---- rx.c, rx_end.c, listen.c: one function a message ---- */

/* What came in, and where. */
struct cm_rx {
	uint64_t now;
	struct pkt_addr src, dst;
	struct cm_msg m;
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

/* The connection that a message names by our id (and the peer's, if both are meant); NULL and counted: none, or not from its peer. */
struct cm_conn *cm_rx_conn(struct cm *cm, const struct cm_rx *rx, bool both_ids);

/* The peer's QP is connected to us already, it says otherwise: the old connection is stale, and ends (12.9.8.3.1). */
void cm_end_stale(struct cm_conn *old, uint64_t now);

/* Ours being the time-out of the REQ or of what was agreed since: the kernel's cm_ack_timeout(). */
uint8_t cm_ack_timeout(unsigned ack_delay, unsigned life_time);

/* How long the peer is told that a program may take: 69 s, as the kernel says (CMA_CM_MRA_SETTING). */
#define CM_SERVICE_TIMEOUT 24

static inline void cm_count_duplicate(struct cm *cm, enum cm_attr a)
{
	cm->counters.duplicates[a - CM_ATTR_FIRST]++;
}

#endif
