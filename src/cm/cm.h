/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection manager, as a pure state machine: (state, event, now) -> (state, datagrams,
 * events). It opens nothing, reads no clock and starts no thread. The caller passes in the time and
 * the datagrams of QP 1, and receives events, and datagrams to send from QP 1.
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
 * Lost messages are sent again, and a duplicate is answered with the saved answer. docs/cm.md has a
 * picture of the states and the use by the verbs: the sources of the attributes for RTR and RTS,
 * and the RDMA_CM_EVENT_* of each event.
 *
 * Rules for callers: One thread at a time per struct cm. Callbacks are called within cm_input(),
 * cm_expire() and the functions below, as the last action of these on a connection. A callback may
 * call any function here except cm_input(), cm_expire() and cm_free(); it may also release the
 * connection of the event. Errors are negative errno; -EINVAL: the state does not allow the call,
 * or an argument is out of range. `now` is in nanoseconds from any start, and does not go back.
 * cm_new() allocates all memory; no other function allocates.
 *
 * A connection belongs to the caller from cm_connect() or its CM_EV_REQUEST until cm_release(),
 * which must be called exactly once. Work in progress then ends without events.
 *
 * Sources: InfiniBand Architecture Specification, volume 1, chapter 12; where it leaves a choice,
 * the Linux kernel's drivers/infiniband/core/cm.c. Differences are in docs/cm.md.
 */
#ifndef ROOST_CM_CM_H
#define ROOST_CM_CM_H

#include "base/numbers.h"
#include "base/secret.h"
#include "cm/mad.h"

struct cm;
struct cm_conn;
struct cm_listener;

enum cm_state {
	CM_IDLE,	 /* the connection is over; waits for cm_release() */
	CM_REQ_SENT,	 /* active: no answer yet */
	CM_MRA_REQ_RCVD, /* active: the peer asked for more time */
	CM_REP_RCVD,	 /* active: accepted; waits for cm_ready() */
	CM_MRA_REP_SENT, /* active: as REP_RCVD, and the peer knows that it takes longer */
	CM_REQ_RCVD,	 /* passive: waits for cm_accept() or cm_reject() */
	CM_MRA_REQ_SENT, /* passive: as REQ_RCVD, and the peer knows that it takes longer */
	CM_REP_SENT,	 /* passive: accepted; no RTU yet */
	CM_MRA_REP_RCVD, /* passive: as REP_SENT, and the peer asked for more time */
	CM_ESTABLISHED,
	CM_DREQ_SENT,
	CM_DREQ_RCVD, /* waits for cm_disconnect() */
	CM_TIMEWAIT,  /* answers late messages with the last message until the path is empty */
	CM_SIDR_REQ_SENT,
	CM_SIDR_REQ_RCVD, /* waits for cm_sidr_reply() */
	CM_STATES
};

const char *cm_state_str(enum cm_state s);

/* Counters: sent and received messages by type, other events by cause. */
#define CM_COUNTERS(X)                                                                             \
	X(malformed, "datagrams dropped: no message")                                              \
	X(wrong_source, "datagrams dropped: not from the connection's peer")                       \
	X(unknown_id, "datagrams for a connection that does not exist")                            \
	X(unexpected, "datagrams dropped: not valid in the state")                                 \
	X(wrong_qpn, "DREQs dropped: for another QP than the connection's")                        \
	X(no_listener, "REQs and SIDR_REQs to a service that no program serves")                   \
	X(backlog_full, "REQs and SIDR_REQs dropped: the listener's backlog is full")              \
	X(half_open_full, "REQs and SIDR_REQs dropped: too many connections are half open")        \
	X(table_full, "REQs and SIDR_REQs dropped: no space for a connection")                     \
	X(bad_request, "REQs rejected: an invalid transport, MTU or address")                      \
	X(half_open_cut, "half-open connections given up to make space, oldest first")             \
	X(source_full, "REQs and SIDR_REQs dropped: the share of their source is in use")          \
	X(asked, "REQs and SIDR_REQs whose senders were challenged first")                         \
	X(known, "REQs of known addresses that were not challenged in a flood")                    \
	X(stale, "REQs and REPs rejected: for a QP that is connected already")                     \
	X(stale_ended, "connections ended: after such a REQ or REP the peer did not know them")    \
	X(no_nic, "REQs and SIDR_REQs that found no NIC: ICMP errors, rings without a reader")     \
	X(timeouts, "messages given up: never answered")                                           \
	X(timewait_cut, "time-waits ended early to make space")                                    \
	X(established_early, "connections established by data before their RTU")                   \
	X(connected, "connections established")                                                    \
	X(disconnected, "established connections ended")

struct cm_counters {
	uint64_t sent[CM_ATTRS];       /* indexed by attr - CM_ATTR_FIRST; retries included */
	uint64_t retried[CM_ATTRS];    /* sent again because no answer came */
	uint64_t received[CM_ATTRS];   /* parsed */
	uint64_t duplicates[CM_ATTRS]; /* received again */
	uint64_t rejects_sent[CM_REASONS], rejects_received[CM_REASONS];
#define CM_COUNTER_FIELD(name, help) uint64_t name;
	CM_COUNTERS(CM_COUNTER_FIELD)
#undef CM_COUNTER_FIELD
};

/*
 * ECE: the vendor features of an end. The machine passes the values on and does not interpret
 * them.
 */
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
	/* a peer connects to a listener: cm_accept(), cm_reject() or cm_release() */
	CM_EV_REQUEST,
	/* the peer accepts: bring the QP to RTS, then cm_ready(); or cm_reject() */
	CM_EV_REPLY,
	CM_EV_ESTABLISHED, /* passive: the peer is ready (the active end knows from cm_ready()) */
	CM_EV_REJECTED,	   /* not connected: reason, info */
	CM_EV_UNREACHABLE, /* not connected: no answer; status -ETIMEDOUT */
	/*
	 * the connection ended; status 0, -ETIMEDOUT (no answer to DREQ) or -ECONNRESET (rejected
	 * afterwards, with a reason)
	 */
	CM_EV_DISCONNECTED,
	CM_EV_TIMEWAIT_EXIT, /* the QP may be used again */
	/* a peer asks a listener for a UD QP: cm_sidr_reply() or cm_release() */
	CM_EV_SIDR_REQUEST,
	CM_EV_SIDR_REPLY, /* the answer: status (CM_SIDR_OK or the reason), qpn, qkey */
	CM_EVENTS
};

const char *cm_event_str(enum cm_event_type t);

/* An event. It is valid during the call. Fields that the type does not mention are 0. */
struct cm_event {
	enum cm_event_type type;
	struct cm_conn *conn;
	/* `user` of the connection, or of the listener for REQUEST and SIDR_REQUEST */
	void *user;
	struct cm_listener *listener; /* REQUEST, SIDR_REQUEST */
	int status;
	uint16_t reason;     /* REJECTED, DISCONNECTED: enum cm_reason */
	const uint8_t *info; /* REJECTED: additional information; SIDR_REPLY too */
	uint8_t info_len;
	/* private data after the addresses of annex A11, padded with zeros to data_len; or NULL */
	const uint8_t *data;
	uint8_t data_len;
	bool has_ip; /* REQUEST, SIDR_REQUEST to an IP service: ip is set */
	struct cm_ip ip;
	uint64_t service_id;
	/*
	 * REQUEST, REPLY: the values for this end, so that a program may pass them back (struct
	 * rdma_conn_param of librdmacm).
	 */
	/* READs and atomics that the peer wants to have in flight to this end */
	uint8_t responder_resources;
	uint8_t initiator_depth; /* READs and atomics that this end may have in flight to it */
	uint8_t flow_control, retry_count, rnr_retry, srq;
	uint8_t transport; /* REQUEST: CM_TRANSPORT_* */
	/* the QP of the peer (SIDR_REPLY, too); the first PSN that this end sends */
	uint32_t qpn, psn;
	uint32_t qkey;	   /* SIDR_REPLY */
	struct cm_ece ece; /* ECE of the peer */
};

/* The functions that the machine calls. */
struct cm_ops {
	void *ctx;
	/*
	 * Sends a datagram. May drop the datagram, because important messages are repeated. Must
	 * call no function of this header.
	 */
	void (*send)(void *ctx, const struct cm_datagram *d);
	void (*event)(void *ctx, const struct cm_event *e);
	/*
	 * Keeps the DREQ of an established connection, for another process to send if this process
	 * is killed. d NULL: the connection has ended. `index` distinguishes the connections. The
	 * function may be NULL: no process keeps the DREQs. Must call no function of this header.
	 */
	void (*will)(void *ctx, uint32_t index, const struct cm_datagram *d);
};

struct cm_config {
	/* seed of ids and of the hash of the tables: from secret_entropy(), or fixed in tests */
	uint64_t seed[SECRET_WORDS];
	uint8_t slot; /* slot of this NIC; its ids begin with these 6 bits */
	/*
	 * the other 26 bits of the ids, after those of earlier programs of the slot; its `next` and
	 * `entered` are borrowed until cm_free(). NULL: a sequence of `seed`
	 */
	struct sequence ids;
	uint64_t guid;		/* GUID of this NIC; distinguishes its ids from others */
	uint32_t max_conns;	/* connections of all kinds and states; 0: 16384 */
	uint32_t max_half_open; /* connections that are passive and not established; 0: 4096 */
	uint32_t max_listeners; /* listeners; 0: 1024 */
	/*
	 * requests of challenged senders, which must first show that they receive answers; a power
	 * of two; 0: 16384
	 */
	uint32_t max_challenges;
	uint8_t ack_delay; /* local CA ACK delay, 4.096 us << this; 0: 15, as in rxe */
};

/*
 * Makes a connection manager. Returns NULL with errno set if there is no memory or a limit is above
 * 2^24. Takes about 700 bytes per connection once it has been used, and 300 for each challenge.
 */
struct cm *cm_new(const struct cm_config *config, const struct cm_ops *ops, uint64_t now);
/* Frees a connection manager. Connections and listeners end without messages and events. */
void cm_free(struct cm *cm);

/* Handles a datagram that came to QP 1 of address dst. Its contents are not trusted. */
void cm_input(struct cm *cm, uint64_t now, const struct pkt_addr *src, const struct pkt_addr *dst,
	      const uint8_t *mad, size_t len);

/*
 * Returns true if both addresses count as one source: the same IPv4 address, or the same IPv6
 * network of 64 bits. Any thread.
 */
bool cm_same_source(const struct pkt_addr *a, const struct pkt_addr *b);

/*
 * cm_expire() runs the work that is due. Call it when `now` reaches cm_next(). If cm_next() returns
 * WHEEL_NEVER (all ones), no work is pending.
 */
void cm_expire(struct cm *cm, uint64_t now);
uint64_t cm_next(const struct cm *cm);

const struct cm_counters *cm_counters(const struct cm *cm);
/* Returns the number of connections in use, in any state. */
uint32_t cm_in_use(const struct cm *cm);

/* Connections, listeners, and the counters, in the order of the table. */
#define CM_STAT_COUNTER(name, help) +1
#define CM_GAUGES		    2 /* the first values are gauges; the others only grow */
enum { CM_STATS = CM_GAUGES + 4 * CM_ATTRS CM_COUNTERS(CM_STAT_COUNTER) };
struct cm_stat_info {
	const char *name, *help;
};
extern const struct cm_stat_info cm_stat_info[CM_STATS];
void cm_stat(const struct cm *cm, uint64_t values[CM_STATS]);

/* ---- listeners ---- */

#define CM_LISTEN_CONN 1 /* answers REQs */
#define CM_LISTEN_UD   2 /* answers SIDR_REQs */
#define CM_LISTEN_IPV4 4 /* addr NULL: only addresses of this family; with neither flag: of both */
#define CM_LISTEN_IPV6 8

/*
 * Listens to a service, on one address or on all (NULL), including later ones. A listener on the
 * exact address takes precedence. `kinds`: CM_LISTEN_*. At most `backlog` requests wait for an
 * answer; 0: the limit of half-open connections. Further requests are dropped, and the peer repeats
 * them. Errors: -EADDRINUSE (another listener has the same address, or one of the same families),
 * -ENOSPC (the limit).
 */
int cm_listen(struct cm *cm, uint64_t service_id, const struct pkt_addr *addr, unsigned kinds,
	      uint32_t backlog, void *user, struct cm_listener **out);
/* Ends a listener. Delivered requests stay with the caller. */
void cm_unlisten(struct cm_listener *l);

/* ---- connections ---- */

/*
 * The parameters of cm_connect(). Limits are those of rdma_conn_param. The path is as in struct
 * cm_path: gids, mtu code, ack_timeout (packet life time + 1; 19 in rxe).
 */
struct cm_connect {
	uint64_t service_id;
	struct pkt_addr src, dst;
	uint32_t flow_label;
	uint8_t tclass, hop_limit, sl;
	uint8_t mtu;	     /* code: 1 is 256 bytes, 5 4096 */
	uint8_t ack_timeout; /* 4.096 us << this */
	/* time that the CM of each end has to answer, 4.096 us << this; 20 is 4.3 s */
	uint8_t response_timeout;
	uint8_t max_retries; /* retries of each message; 15 */
	uint8_t transport;   /* CM_TRANSPORT_RC or UC */
	uint32_t qpn, psn;   /* the QP of this end; the first PSN that the peer sends */
	uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry, srq;
	struct cm_ece ece;
	/* placed before the private data; NULL: not an IP service */
	const struct cm_ip *ip;
	const void *data;
	size_t data_len; /* at most CM_REQ_DATA, less CM_IP_LEN with ip */
};

/* Sends a REQ. -ENOBUFS: no space for a connection. */
int cm_connect(struct cm *cm, uint64_t now, const struct cm_connect *c, void *user,
	       struct cm_conn **out);

/*
 * Repeats a refused request with the same message after `delay` ns. May be called during or after
 * CM_EV_REJECTED of a REQ, or CM_EV_SIDR_REPLY. The repetition counts in max_retries. Errors:
 * -EINVAL (no request, or it was not refused), -EAGAIN (no retries left).
 */
int cm_repeat_request(struct cm_conn *c, uint64_t now, uint64_t delay);

/*
 * Reports that the program has taken the request, which no longer counts against the backlog. It
 * may be called before or after cm_accept() and the like.
 */
void cm_request_taken(struct cm_conn *c);

struct cm_accept {
	uint32_t qpn, psn;
	uint8_t responder_resources, initiator_depth, flow_control, rnr_retry, srq;
	struct cm_ece ece;
	const void *data;
	size_t data_len; /* at most CM_REP_DATA */
};

/*
 * In REQ_RCVD: sends a REP. The QP must be in RTR before the next datagram is received: data may
 * come before the RTU.
 */
int cm_accept(struct cm_conn *c, uint64_t now, const struct cm_accept *a);

/*
 * In REQ_RCVD or REP_RCVD: sends a REJ. The connection is then over, and answers duplicates for
 * some time.
 */
int cm_reject(struct cm_conn *c, uint64_t now, uint16_t reason, const void *info, size_t info_len,
	      const void *data, size_t data_len);

/* In REP_RCVD: sends the RTU. The connection is established, and no event follows. */
int cm_ready(struct cm_conn *c, const void *data, size_t data_len);

/*
 * In REP_SENT: data came in, so the peer is ready although its RTU has not come. CM_EV_ESTABLISHED
 * follows. -EISCONN: the connection is established already.
 */
int cm_established(struct cm_conn *c);

/*
 * In REQ_RCVD or REP_RCVD: tells the peer at once that the answer takes 4.096 us <<
 * service_timeout. Without this call the peer is told when it repeats its message.
 */
int cm_delay(struct cm_conn *c, uint8_t service_timeout);

/*
 * In ESTABLISHED: sends a DREQ; CM_EV_DISCONNECTED follows. In DREQ_RCVD: sends the DREP, which
 * ends the connection. Otherwise -ENOTCONN.
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

/* Sends a SIDR_REQ. -ENOBUFS: no space. */
int cm_sidr(struct cm *cm, uint64_t now, const struct cm_sidr *s, void *user, struct cm_conn **out);

/*
 * In SIDR_REQ_RCVD: sends the SIDR_REP: CM_SIDR_OK with qpn and qkey, or the reason of the refusal.
 */
int cm_sidr_reply(struct cm_conn *c, uint64_t now, uint8_t status, uint32_t qpn, uint32_t qkey,
		  struct cm_ece ece, const void *data, size_t data_len);

/*
 * Releases a connection. No event follows, and the pointer is invalid. An unanswered request is
 * rejected, a request of this end is given up, and an established connection is disconnected.
 */
void cm_release(struct cm_conn *c, uint64_t now);

void cm_set_user(struct cm_conn *c, void *user);
enum cm_state cm_conn_state(const struct cm_conn *c);
/*
 * Reports that the NIC found the peers of n local QPs gone, whose numbers ascend. Their established
 * connections get CM_EV_DISCONNECTED with -ETIMEDOUT. Nothing is sent to the peers.
 */
void cm_peers_gone(struct cm *cm, uint64_t now, const uint32_t *local_qpns, unsigned n);

/*
 * Reports that the message with this transaction id found no NIC at dst, according to the network.
 * A REQ or SIDR_REQ that waits for its first answer ends as if the connection manager of the peer
 * had refused it: CM_EV_REJECTED with CM_REJ_INVALID_SERVICE_ID, or CM_EV_SIDR_REPLY with
 * CM_SIDR_UNSUPPORTED. A DREQ is not repeated: CM_EV_DISCONNECTED with -EHOSTUNREACH. Other
 * messages do not end. Nothing ends if the id or the address does not match.
 */
void cm_lost(struct cm *cm, uint64_t now, const struct pkt_addr *dst, uint64_t tid);

/* The attributes of the QP. They are valid from REP_RCVD or REQ_RCVD on, for RTR and for RTS. */
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
