/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connection management as a pure machine: (state, event, now) -> (state, datagrams, events). It
 * opens nothing, reads no clock, starts no thread. Who owns it hands it datagrams that came to QP 1
 * and the time, and gets datagrams to send from QP 1, and events.
 *
 *        active                                       passive
 *   cm_connect     ---- REQ ---->  CM_EV_REQUEST
 *   CM_EV_REPLY    <--- REP -----  cm_accept     (or REJ: cm_reject, CM_EV_REJECTED)
 *   cm_ready       ---- RTU ---->  CM_EV_ESTABLISHED (or the first packet of data: cm_established)
 *   cm_disconnect  ---- DREQ --->  CM_EV_DISCONNECTED
 *   CM_EV_DISCONNECTED <-- DREP -  cm_disconnect
 *   CM_EV_TIMEWAIT_EXIT            CM_EV_TIMEWAIT_EXIT
 *   cm_release                     cm_release
 *
 *   cm_sidr        -- SIDR_REQ ->  CM_EV_SIDR_REQUEST
 *   CM_EV_SIDR_REPLY <- SIDR_REP   cm_sidr_reply
 *   cm_release                     cm_release
 *
 * Whatever is lost is sent again, and what comes twice is answered again from the message that was
 * kept. docs/cm.md has the states in a picture, and what the verbs need of it: which attributes RTR
 * and RTS take from where, which RDMA_CM_EVENT_* an event becomes.
 *
 * Rules for callers: one thread at a time per struct cm. Callbacks come from within cm_input(),
 * cm_expire() and the calls below, as the last thing that these do with a connection: a callback
 * may call anything here, also release the connection that the event is about, but for cm_input(),
 * cm_expire() and cm_free(). Errors are negative errno; -EINVAL: the state does not allow it, or an
 * argument is out of range. `now` is nanoseconds, from any start, and does not go back. All memory
 * is taken by cm_new(); nothing else allocates.
 *
 * A connection belongs to the caller from cm_connect() or its CM_EV_REQUEST on, until cm_release():
 * exactly once. What is still under way then is brought to its end without events.
 *
 * Sources: InfiniBand Architecture Specification, volume 1, chapter 12; where it leaves a choice,
 * the Linux kernel's drivers/infiniband/core/cm.c. Differences are in docs/cm.md.
 */
#ifndef ROOST_CM_CM_H
#define ROOST_CM_CM_H

#include "base/secret.h"
#include "cm/mad.h"

struct cm;
struct cm_conn;
struct cm_listener;

enum cm_state {
	CM_IDLE,	 /* over: waits for cm_release() */
	CM_REQ_SENT,	 /* active: no answer yet */
	CM_MRA_REQ_RCVD, /* active: the peer asked for more time */
	CM_REP_RCVD,	 /* active: accepted; waits for cm_ready() */
	CM_MRA_REP_SENT, /* active: the same, and the peer knows that it takes longer */
	CM_REQ_RCVD,	 /* passive: waits for cm_accept() or cm_reject() */
	CM_MRA_REQ_SENT, /* passive: the same, and the peer knows that it takes longer */
	CM_REP_SENT,	 /* passive: accepted; no RTU yet */
	CM_MRA_REP_RCVD, /* passive: the same, and the peer asked for more time */
	CM_ESTABLISHED,
	CM_DREQ_SENT,
	CM_DREQ_RCVD, /* waits for cm_disconnect() */
	CM_TIMEWAIT,  /* answers latecomers with the last message until the path is empty */
	CM_SIDR_REQ_SENT,
	CM_SIDR_REQ_RCVD, /* waits for cm_sidr_reply() */
	CM_STATES
};

const char *cm_state_str(enum cm_state s);

/* Counters, by the message for what is sent and received, by cause for the rest. */
#define CM_COUNTERS(X)                                                                             \
	X(malformed, "datagrams dropped: no message")                                              \
	X(wrong_source, "datagrams dropped: not from the connection's peer")                       \
	X(unknown_id, "datagrams for a connection that is not there")                              \
	X(unexpected, "datagrams dropped: the state has no use for them")                          \
	X(wrong_qpn, "DREQs dropped: for another QP than the connection's")                        \
	X(no_listener, "REQs and SIDR_REQs to a service that nobody serves")                       \
	X(backlog_full, "REQs and SIDR_REQs dropped: the listener's backlog is full")              \
	X(half_open_full, "REQs and SIDR_REQs dropped: too many connections are half open")        \
	X(table_full, "REQs and SIDR_REQs dropped: no room for a connection")                      \
	X(bad_request, "REQs rejected: a transport, MTU or address that can't be")                 \
	X(half_open_cut, "half-open connections given up to make room, oldest first")              \
	X(source_full, "REQs and SIDR_REQs dropped: others of the same source hold its share")     \
	X(asked, "REQs and SIDR_REQs whose sender had to show first that it hears us")             \
	X(stale, "REQs and REPs rejected: for a QP that is connected already")                     \
	X(stale_ended, "connections ended: after such a REQ or REP the peer did not know of them") \
	X(no_nic, "REQs and SIDR_REQs that found no NIC: ICMP errors, rings without a reader")     \
	X(timeouts, "messages given up: never answered")                                           \
	X(timewait_cut, "time-waits ended early to make room")                                     \
	X(established_early, "connections established by data before their RTU")                   \
	X(connected, "connections established")                                                    \
	X(disconnected, "established connections ended")

struct cm_counters {
	uint64_t sent[CM_ATTRS];       /* by attr - CM_ATTR_FIRST, retries included */
	uint64_t retried[CM_ATTRS];    /* sent again because no answer came */
	uint64_t received[CM_ATTRS];   /* parsed */
	uint64_t duplicates[CM_ATTRS]; /* received again */
	uint64_t rejects_sent[CM_REASONS], rejects_received[CM_REASONS];
#define CM_COUNTER_FIELD(name, help) uint64_t name;
	CM_COUNTERS(CM_COUNTER_FIELD)
#undef CM_COUNTER_FIELD
};

/* ECE: what the ends say of vendor features. Carried, not understood. */
struct cm_ece {
	uint32_t vendor_id; /* 24 bits */
	uint32_t options;
};

/* A datagram to send from QP 1 to QP 1, Q_Key CM_QKEY. Valid during the call. */
struct cm_datagram {
	struct pkt_addr src, dst;
	uint8_t tclass;
	const uint8_t *mad; /* CM_MAD_LEN bytes */
};

enum cm_event_type {
	/* somebody connects to a listener: cm_accept(), cm_reject() or cm_release() */
	CM_EV_REQUEST,
	/* the peer accepts: bring the QP to RTS, then cm_ready(); or cm_reject() */
	CM_EV_REPLY,
	CM_EV_ESTABLISHED, /* passive: the peer is ready. (Active: cm_ready() has said it.) */
	CM_EV_REJECTED,	   /* not connected: reason, info */
	CM_EV_UNREACHABLE, /* not connected: no answer; status -ETIMEDOUT */
	/*
	 * was connected: 0, -ETIMEDOUT: no answer to DREQ, -ECONNRESET: rejected afterwards, reason
	 * says why
	 */
	CM_EV_DISCONNECTED,
	CM_EV_TIMEWAIT_EXIT, /* the QP may be used anew */
	/* somebody asks a listener for a UD QP: cm_sidr_reply() or cm_release() */
	CM_EV_SIDR_REQUEST,
	CM_EV_SIDR_REPLY, /* the answer: status (CM_SIDR_OK or why not), qpn, qkey */
	CM_EVENTS
};

const char *cm_event_str(enum cm_event_type t);

/* Valid during the call. Fields that the type does not mention are 0. */
struct cm_event {
	enum cm_event_type type;
	struct cm_conn *conn;
	/* of the connection; of the listener for REQUEST and SIDR_REQUEST */
	void *user;
	struct cm_listener *listener; /* REQUEST, SIDR_REQUEST */
	int status;
	uint16_t reason;     /* REJECTED, DISCONNECTED: enum cm_reason */
	const uint8_t *info; /* REJECTED: additional information; SIDR_REPLY too */
	uint8_t info_len;
	/*
	 * private data, behind the addresses of annex A11; padded with zeros to data_len, or NULL
	 */
	const uint8_t *data;
	uint8_t data_len;
	bool has_ip; /* REQUEST, SIDR_REQUEST to an IP service: ip is there */
	struct cm_ip ip;
	uint64_t service_id;
	/*
	 * REQUEST, REPLY: as this end is to use them, so that a program may hand them back (struct
	 * ibv's rdma_conn_param).
	 */
	/* READs and atomics that the peer wants to have in flight to us */
	uint8_t responder_resources;
	uint8_t initiator_depth; /* and lets us have in flight to it */
	uint8_t flow_control, retry_count, rnr_retry, srq;
	uint8_t transport; /* REQUEST: CM_TRANSPORT_* */
	uint32_t qpn, psn; /* the peer's QP; SIDR_REPLY's too. What we start to send with */
	uint32_t qkey;	   /* SIDR_REPLY */
	struct cm_ece ece; /* the peer's */
};

/* What the machine calls. */
struct cm_ops {
	void *ctx;
	/* May drop it: what matters is sent again. Calls nothing here. */
	void (*send)(void *ctx, const struct cm_datagram *d);
	void (*event)(void *ctx, const struct cm_event *e);
};

struct cm_config {
	uint64_t seed
		[SECRET_WORDS]; /* of ids and of the tables' hash: from secret_entropy(), or fixed in tests */
	uint8_t slot;		/* of this NIC: its ids begin with these 6 bits */
	uint64_t guid;		/* of this NIC: tells our ids from others' */
	uint32_t max_conns;	/* connections of all kinds and states; 0: 16384 */
	uint32_t max_half_open; /* of them, passive and not established; 0: 4096 */
	uint32_t max_listeners; /* 0: 1024 */
	/* requests whose sender has yet to show that it hears us, a power of two; 0: 16384 */
	uint32_t max_held;
	uint8_t ack_delay; /* local CA ACK delay, 4.096 us << this; 0: 15, what rxe says */
};

/*
 * NULL with errno set when there is no memory or a limit is above 2^24. Takes about 700 bytes per
 * connection once it has been used, 300 for each request that is held.
 */
struct cm *cm_new(const struct cm_config *config, const struct cm_ops *ops, uint64_t now);
/* Connections and listeners end with it, without a word. */
void cm_free(struct cm *cm);

/* A datagram came to QP 1 of address dst. Anything may be in it. */
void cm_input(struct cm *cm, uint64_t now, const struct pkt_addr *src, const struct pkt_addr *dst,
	      const uint8_t *mad, size_t len);

/*
 * Does whoever is at `a` have what is at `b` as well? An IPv4 address, or an IPv6 network of 64
 * bits. Any thread.
 */
bool cm_same_source(const struct pkt_addr *a, const struct pkt_addr *b);

/* Runs what is due. Call when now reaches cm_next(); WHEEL_NEVER (all ones): nothing waits. */
void cm_expire(struct cm *cm, uint64_t now);
uint64_t cm_next(const struct cm *cm);

const struct cm_counters *cm_counters(const struct cm *cm);
/* Connections that take room, in whatever state. */
uint32_t cm_in_use(const struct cm *cm);

/* Connections, listeners, and the counters, in the order of the table. */
#define CM_STAT_COUNTER(name, help) +1
#define CM_GAUGES		    2 /* the first; the others only grow */
enum { CM_STATS = CM_GAUGES + 4 * CM_ATTRS CM_COUNTERS(CM_STAT_COUNTER) };
struct cm_stat_info {
	const char *name, *help;
};
extern const struct cm_stat_info cm_stat_info[CM_STATS];
void cm_stat(const struct cm *cm, uint64_t values[CM_STATS]);

/* ---- listeners ---- */

#define CM_LISTEN_CONN 1 /* answers REQs */
#define CM_LISTEN_UD   2 /* answers SIDR_REQs */
#define CM_LISTEN_IPV4 4 /* of all addresses those of this family; with neither: of both */
#define CM_LISTEN_IPV6 8

/*
 * Listens to a service, on one address or on all (NULL), those of tomorrow included; one on the
 * very address goes first. `kinds`: CM_LISTEN_*. `backlog` requests at most wait for an answer:
 * those beyond are dropped, and come again. 0: as many as half-open connections are allowed.
 * -EADDRINUSE: another one hears the same address, or some of the same families; -ENOSPC: the
 * limit.
 */
int cm_listen(struct cm *cm, uint64_t service_id, const struct pkt_addr *addr, unsigned kinds,
	      uint32_t backlog, void *user, struct cm_listener **out);
/* Requests that were delivered stay with the caller. */
void cm_unlisten(struct cm_listener *l);

/* ---- connections ---- */

/*
 * Limits are those of rdma_conn_param; path as in struct cm_path: gids, mtu code, ack_timeout (19
 * is rxe's; packet life time + 1).
 */
struct cm_connect {
	uint64_t service_id;
	struct pkt_addr src, dst;
	uint32_t flow_label;
	uint8_t tclass, hop_limit, sl;
	uint8_t mtu;	     /* code: 1 is 256 bytes, 5 4096 */
	uint8_t ack_timeout; /* 4.096 us << this */
	/* what both ends' CMs are given to answer, 4.096 us << this; 20 is 4.3 s */
	uint8_t response_timeout;
	uint8_t max_retries; /* of each message; 15 */
	uint8_t transport;   /* CM_TRANSPORT_RC or UC */
	uint32_t qpn, psn;   /* ours; what the peer is to start with */
	uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry, srq;
	struct cm_ece ece;
	/* put in front of the private data; NULL: the service is none of IP's */
	const struct cm_ip *ip;
	const void *data;
	size_t data_len; /* at most CM_REQ_DATA, less CM_IP_LEN with ip */
};

/* Sends a REQ. -ENOBUFS: no room for a connection. */
int cm_connect(struct cm *cm, uint64_t now, const struct cm_connect *c, void *user,
	       struct cm_conn **out);

/*
 * Asks once more what was refused, in `delay` ns and with the same message; from CM_EV_REJECTED of
 * a REQ, or CM_EV_SIDR_REPLY, on. Counts among max_retries. -EINVAL: nothing was asked, or it was
 * not refused. -EAGAIN: no retries are left.
 */
int cm_ask_again(struct cm_conn *c, uint64_t now, uint64_t delay);

/*
 * The program has the request: it no longer counts against the listener's backlog. Before or after,
 * cm_accept() and the like.
 */
void cm_taken(struct cm_conn *c);

struct cm_accept {
	uint32_t qpn, psn;
	uint8_t responder_resources, initiator_depth, flow_control, rnr_retry, srq;
	struct cm_ece ece;
	const void *data;
	size_t data_len; /* at most CM_REP_DATA */
};

/*
 * REQ_RCVD: sends a REP. Have the QP in RTR before anything more is received: data may come before
 * the RTU.
 */
int cm_accept(struct cm_conn *c, uint64_t now, const struct cm_accept *a);

/* REQ_RCVD, REP_RCVD: sends a REJ; the connection is over, and answers duplicates for a while. */
int cm_reject(struct cm_conn *c, uint64_t now, uint16_t reason, const void *info, size_t info_len,
	      const void *data, size_t data_len);

/* REP_RCVD: sends the RTU; the connection is established, no event follows. */
int cm_ready(struct cm_conn *c, const void *data, size_t data_len);

/*
 * REP_SENT: data came in, so the peer is ready, although its RTU is not here. CM_EV_ESTABLISHED
 * follows. -EISCONN: it is already.
 */
int cm_established(struct cm_conn *c);

/*
 * REQ_RCVD, REP_RCVD: tells the peer at once that it takes 4.096 us << service_timeout. It is told
 * by itself when it asks again.
 */
int cm_delay(struct cm_conn *c, uint8_t service_timeout);

/*
 * ESTABLISHED: sends a DREQ; CM_EV_DISCONNECTED follows. DREQ_RCVD: sends the DREP, the end.
 * -ENOTCONN otherwise.
 */
int cm_disconnect(struct cm_conn *c, uint64_t now, const void *data, size_t data_len);

struct cm_sidr {
	uint64_t service_id;
	struct pkt_addr src, dst;
	uint8_t tclass, response_timeout, max_retries;
	const struct cm_ip *ip;
	const void *data;
	size_t data_len; /* at most CM_SIDR_REQ_DATA, less CM_IP_LEN with ip */
};

/* Sends a SIDR_REQ. -ENOBUFS: no room. */
int cm_sidr(struct cm *cm, uint64_t now, const struct cm_sidr *s, void *user, struct cm_conn **out);

/* SIDR_REQ_RCVD: sends the SIDR_REP: CM_SIDR_OK with qpn and qkey, or why not. */
int cm_sidr_reply(struct cm_conn *c, uint64_t now, uint8_t status, uint32_t qpn, uint32_t qkey,
		  struct cm_ece ece, const void *data, size_t data_len);

/*
 * The caller is done with it: no event comes any more, the pointer is dead. An unanswered request
 * is rejected, an answer that is waited for given up, a connection disconnected.
 */
void cm_release(struct cm_conn *c, uint64_t now);

void cm_set_user(struct cm_conn *c, void *user);
enum cm_state cm_conn_state(const struct cm_conn *c);
/*
 * The peer of the established connection whose QP of ours this is has gone, as the NIC found out:
 * CM_EV_DISCONNECTED, -ETIMEDOUT. Nothing is sent to it.
 */
void cm_peer_gone(struct cm *cm, uint64_t now, uint32_t local_qpn);

/*
 * The network says that a message of ours, with this transaction id, found no NIC at dst. A REQ or
 * SIDR_REQ that waits for its first answer ends as if the peer's connection manager had refused it:
 * CM_EV_REJECTED with CM_REJ_INVALID_SERVICE_ID, CM_EV_SIDR_REPLY with CM_SIDR_UNSUPPORTED. Nothing
 * else ends, and nothing where id or address are not the message's.
 */
void cm_lost(struct cm *cm, const struct pkt_addr *dst, uint64_t tid);

/* What the QP's attributes are to be: for RTR from REP_RCVD or REQ_RCVD on, for RTS too. */
struct cm_qp_attr {
	struct pkt_addr sgid, dgid;
	uint32_t flow_label;
	uint8_t tclass, hop_limit, sl;
	uint8_t path_mtu;	      /* code */
	uint32_t dest_qpn;	      /* RTR */
	uint32_t rq_psn;	      /* RTR; passive: that of cm_accept() */
	uint8_t max_dest_rd_atomic;   /* RTR */
	uint32_t sq_psn;	      /* RTS */
	uint8_t max_rd_atomic;	      /* RTS */
	uint8_t timeout;	      /* RTS, 4.096 us << this */
	uint8_t retry_cnt, rnr_retry; /* RTS */
};

void cm_qp_attr(const struct cm_conn *c, struct cm_qp_attr *a);

#endif
