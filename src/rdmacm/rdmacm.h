/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The objects behind the structs of <rdma/rdma_cma.h>, and who does what with them. The public
 * struct is the first member, so a cast leads from one to the other. Conventions at the surface are
 * librdmacm's: 0, or -1 with errno; inside, negative errno values, turned by rdmacm_ret().
 *
 *   program -> rdma_*() --+                            +--> QP 1 of the engine (drive_gsi_send)
 *                         +--> agent (one lock) --> cm |
 *   QP 1, time ---------- +                            +--> event --> channel --> rdma_get_cm_event()
 *
 * One lock, the agent's, guards ids, their events, and the machine of src/cm. Locks, outermost
 * first: the engine's lock of QP 1's user (taken around us by the service thread), the agent's, the
 * engine's control lock, a PU; a channel's queue is a leaf.
 */
#ifndef ROOST_RDMACM_RDMACM_H
#define ROOST_RDMACM_RDMACM_H

#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "base/export.h"
#include "base/list.h"
#include "base/secret.h"
#include "cm/cm.h"
#include "verbs/evq.h"
#include "verbs/private.h"

struct rdmacm_channel {
	struct rdma_event_channel channel;
	struct evq queue;
	/* all of them: a forked child has to part with its parent's descriptors */
	struct list_head link;
	bool closed;
};

/* As rdma_cm(7) has it, and the kernel's enum rdma_cm_state. */
enum rdmacm_state {
	RDMACM_IDLE,
	RDMACM_BOUND,
	RDMACM_ADDR_RESOLVED,
	RDMACM_ROUTE_RESOLVED,
	RDMACM_LISTEN,
	RDMACM_CONNECT, /* asked, asks, connected, or was: src/cm knows which */
	RDMACM_DEAD,	/* of a parent process: only to be destroyed */
};

struct rdmacm_id {
	struct rdma_cm_id id;
	struct list_head link;	    /* all of them */
	struct list_head port_link; /* those that hold a port */
	struct list_head events;    /* raised or taken, and not acknowledged */
	struct list_head rtu_link;  /* accepted, and no RTU yet */
	struct list_head groups;    /* multicast */
	enum rdmacm_state state;
	uint16_t port; /* host order */
	bool sync;     /* its channel is its own: calls wait for their event */
	bool reuse_addr;
	bool af_only;	    /* a wildcard of IPv6 hears no IPv4 */
	bool af_only_said;  /* the program has decided that, not the system */
	bool any;	    /* bound, and to no address in particular */
	bool passive;	    /* came from a listener */
	bool connect_error; /* the QP did not come up: what the peer says of it is no news */
	uint8_t tos;
	uint8_t ack_timeout; /* 0: RDMACM_ACK_TIMEOUT */
	uint8_t responder_resources, initiator_depth;
	uint8_t gid_index;
	uint8_t mtu;		  /* of the path: enum ibv_mtu */
	uint8_t refused;	  /* how often it was told that nobody serves, and asked again */
	uint32_t qpn;		  /* accepted with */
	uint32_t psn;		  /* what the peer starts to send with */
	struct pkt_addr src, dst; /* once bound to the device, once resolved */
	struct cm_conn *conn;
	struct cm_listener *listener;
	struct ibv_ece local_ece, remote_ece;
	struct ibv_sa_path_rec path; /* what id.route.path_rec points to */
	/* rdma_create_ep() of a listener: for the QPs of its connections */
	struct ibv_qp_init_attr *qp_init;
	struct rdma_addrinfo *resolved; /* rdma_resolve_addrinfo()'s, until it is asked for */
	/* rdma_create_ep(): private data in front of the program's */
	void *connect;
	size_t connect_len;
};

/* Events and flags that came after rdma-core 44, whose headers we build with. */
enum {
	RDMACM_EVENT_ADDRINFO_RESOLVED = RDMA_CM_EVENT_TIMEWAIT_EXIT + 1,
	RDMACM_EVENT_ADDRINFO_ERROR,
	RDMACM_EVENT_USER,
	RDMACM_EVENT_INTERNAL,
};
#define RDMACM_RAI_SA  0x10
#define RDMACM_RAI_DNS 0x20

struct rdmacm_event {
	struct rdma_cm_event event;
	/* waits for its acknowledgement: the id, or the listener of a request */
	struct rdmacm_id *owner;
	struct list_head link; /* of the owner's */
	struct evq_event queued;
	uint32_t taken;
	uint8_t data[CM_DATA_MAX];
};

/* The process's one user of QP 1. */
struct rdmacm_agent {
	pthread_mutex_t lock;
	pthread_cond_t acked; /* some event was acknowledged */
	struct list_head ids, channels, without_rtu;
#define RDMACM_PORT_BUCKETS 1024 /* a power of two */
	struct list_head ports[RDMACM_PORT_BUCKETS];
	/* NULL: the device is not open yet. Stays open until the process ends */
	struct ibv_context *verbs;
	struct ibv_pd *pd; /* for ids whose program brings none */
	struct drive *drive;
	struct cm *cm;
	struct secret secret; /* for rdmacm_draw() alone */
	bool seeded;
};

extern struct rdmacm_agent agent;

/* What the Linux kernel's rdma_cm uses (drivers/infiniband/core/cma.c): 4.096 us << each. */
#define RDMACM_RESPONSE_TIMEOUT 20
#define RDMACM_ACK_TIMEOUT	19 /* packet life time 18, and one more for the way back */
#define RDMACM_MAX_RETRIES	15
#define RDMACM_HOP_LIMIT	64
#define RDMACM_MAX_BACKLOG	1024

static inline struct rdmacm_id *rdmacm_id(struct rdma_cm_id *id)
{
	return (struct rdmacm_id *)id;
}

/* 0 stays 0; -errno becomes -1 with errno. */
static inline int rdmacm_ret(int ret)
{
	if (ret >= 0)
		return 0;
	errno = -ret;
	return -1;
}

static inline bool rdmacm_is_ud(const struct rdmacm_id *id)
{
	return id->id.qp_type == IBV_QPT_UD;
}

/* ---- agent.c ---- */

/*
 * A number below n that nobody can guess. Seeds itself, also in a child after fork(2). [agent's
 * lock]
 */
uint64_t rdmacm_draw(uint64_t n);
void rdmacm_lock(void);
void rdmacm_unlock(void);
/*
 * Opens the device and QP 1, once, and sees that it has the address (NULL: any). 0, or -errno:
 * -EADDRNOTAVAIL, -EADDRINUSE ...; those of drive_get_at(). Takes the lock; don't hold it.
 */
int rdmacm_agent_open(const struct pkt_addr *addr);
/*
 * The same for an id, with the address of a program; NULL, no family and wildcards are any.
 * -EINVAL: the id is a parent process's.
 */
int rdmacm_agent_open_for(struct rdmacm_id *id, const struct sockaddr *sa);
uint64_t rdmacm_now(void);
/* Something was started whose time-out counts. Lock held. */
void rdmacm_started(void);

/* ---- channel.c ---- */

/* Of no id yet, or NULL: no memory. */
struct rdmacm_event *rdmacm_event_new(struct rdmacm_id *owner, struct rdmacm_id *about,
				      enum rdma_cm_event_type type);
/* Private data into it; NULL is none. */
void rdmacm_event_data(struct rdmacm_event *e, const void *data, size_t len);
/* Puts it on its owner's channel. All with the lock held. */
void rdmacm_event_raise(struct rdmacm_event *e);
/* An event that says no more than its type. -ENOMEM. */
int rdmacm_event_simple(struct rdmacm_id *id, enum rdma_cm_event_type type, int status);
/* Drops what was not taken and waits until the rest is acknowledged. */
void rdmacm_events_end(struct rdmacm_id *id);
/*
 * Synchronous ids wait for the event of what they started: 0, or -errno of how it went. Lock not
 * held.
 */
int rdmacm_complete(struct rdmacm_id *id);

/* ---- id.c ---- */

int rdmacm_create_id(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps,
		     enum ibv_qp_type qp_type, struct rdma_cm_id **out);
/* Lock held. NULL: no memory. */
struct rdmacm_id *rdmacm_id_new(struct rdma_event_channel *channel, void *context,
				enum rdma_port_space ps, enum ibv_qp_type qp_type);
/*
 * Ends what it has and is part of, waits for the program's acknowledgements, frees it. Lock held,
 * let go while it waits.
 */
void rdmacm_id_end(struct rdmacm_id *id);

/* ---- address.c ---- */

int rdmacm_addr_from(const struct sockaddr *sa, struct pkt_addr *addr, uint16_t *port);
void rdmacm_addr_to(const struct pkt_addr *addr, uint16_t port, struct sockaddr_storage *sa);
bool rdmacm_addr_is_any(const struct sockaddr *sa);
socklen_t rdmacm_addr_len(const struct sockaddr *sa);
/*
 * Ties the id to the device's port that has its source address, .src. -EADDRNOTAVAIL. Lock held,
 * agent open.
 */
int rdmacm_attach(struct rdmacm_id *id);
/*
 * An address of the device of the family of `like`; `like` itself if the device has it.
 * -ENETUNREACH.
 */
int rdmacm_source_for(const struct pkt_addr *like, struct pkt_addr *src);
/* Takes a port, or finds one (0), for the id and its source address. -EADDRINUSE. Lock held. */
int rdmacm_port_take(struct rdmacm_id *id, uint16_t port);
/* Has another id, whose address overlaps, this port? With `reuse` those that share are left out. */
bool rdmacm_port_conflicts(const struct rdmacm_id *id, uint16_t port, bool reuse);
void rdmacm_port_release(struct rdmacm_id *id);
/* The ids that hold this port, and others. */
struct list_head *rdmacm_port_bucket(uint16_t port);
/* Binds to a source address, wildcards too. Lock held, agent open. */
int rdmacm_bind(struct rdmacm_id *id, const struct sockaddr *sa);

/* ---- resolve.c ---- */

/*
 * Opens the machine's own address of IPv6, for who is to hear all of them, if the NIC has none:
 * that of the route to the outside, else an interface's first, else ::1. That there may be none to
 * be had is no error. Agent open, lock not held.
 */
void rdmacm_open_ipv6(struct rdmacm_id *id);
/* The path record, and that there is one. */
void rdmacm_set_path(struct rdmacm_id *id);
uint64_t rdmacm_service_id(const struct rdmacm_id *id, uint16_t port);

/* ---- connect.c ---- */

/* The machine's events. Lock held. */
void rdmacm_on_cm_event(void *ctx, const struct cm_event *e);
/*
 * A program takes CM_EV_REPLY: brings the QP up and says so to the peer; the event becomes what
 * came of it.
 */
void rdmacm_take_reply(struct rdmacm_event *e);

/* Responder resources and initiator depth; -EINVAL: more than the device has, or nobody said. */
int rdmacm_settle_depths(struct rdmacm_id *id, const struct rdma_conn_param *p);
/* Of the id's QP, or the one that the program names. */
uint32_t rdmacm_qp_number(const struct rdmacm_id *id, const struct rdma_conn_param *p);
bool rdmacm_has_srq(const struct rdmacm_id *id, const struct rdma_conn_param *p);
struct cm_ece rdmacm_cm_ece(const struct ibv_ece *e);
void rdmacm_fill_conn(struct rdma_conn_param *to, const struct cm_event *e);

/* ---- listen.c ---- */

void rdmacm_on_request(const struct cm_event *e);

/* Is any id of this service in this state: listening, or bound only? Lock held. */
bool rdmacm_any_in(enum rdmacm_state state, uint64_t service_id);

/* ---- early.c: all with the lock held ---- */

/* A listener of the service ends, or begins: requests that were held for it come to it. */
void rdmacm_early_unlisten(uint64_t service_id);
void rdmacm_early_listen(uint64_t service_id);
/* True: keeps the datagram, which is a request to a service that will be listened for, it seems. */
bool rdmacm_early_hold(const struct pkt_addr *src, const struct pkt_addr *dst, const uint8_t *mad);
/*
 * Lets go of those held too long, which are refused then. When it wants to be called next;
 * UINT64_MAX: never.
 */
uint64_t rdmacm_early_expire(uint64_t now);
/* In a forked child. */
void rdmacm_early_forget(void);

/* ---- heard.c: with the lock held but for the first ---- */

/* The first packet has come to a QP. Inside of a turn. */
void rdmacm_heard(uint32_t qpn);
/* From accepting to whatever comes next. */
void rdmacm_await_rtu(struct rdmacm_id *id, uint32_t qpn);
void rdmacm_await_no_rtu(struct rdmacm_id *id);
/* Tells the machine of what was heard. The service thread. */
void rdmacm_tell_heard(void);
/* In a forked child. */
void rdmacm_heard_forget(void);

/* ---- mcast.c ---- */

/* Lock held. */
void rdmacm_leave_all(struct rdmacm_id *id);

/* ---- qp.c ---- */

int rdmacm_qp_to_init(struct rdmacm_id *id, struct ibv_qp *qp);
int rdmacm_qp_to_rtr(struct rdmacm_id *id);
int rdmacm_qp_to_rts(struct rdmacm_id *id);
int rdmacm_qp_to_error(struct rdmacm_id *id);
void rdmacm_destroy_cqs(struct rdma_cm_id *id);
/* Whom a UD event is about. */
void rdmacm_fill_ah(const struct rdmacm_id *id, struct ibv_ah_attr *ah);

#endif
