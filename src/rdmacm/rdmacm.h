/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The objects behind the structs of <rdma/rdma_cma.h>. The public struct is the first member, so
 * that a cast converts between the two. Exported functions follow the convention of librdmacm: they
 * return 0, or -1 and errno. Internal functions return negative errno values. rdmacm_ret() converts
 * them.
 *
 *   program -> rdma_*() --+                            +--> QP 1 of the engine (drive_gsi_send)
 *                         +--> agent (one lock) --> cm |
 *   QP 1, time ---------- +                            +--> event --> channel
 *                                                                       --> rdma_get_cm_event()
 *
 * The agent's lock guards ids, their events, and the state machine of src/cm. Lock order, outermost
 * first: the locks that a program holds while it polls a CQ or builds work requests
 * (verbs/objects.h), the engine's lock of QP 1's user (the service thread holds it when it calls
 * us), the agent's lock, the engine's control lock, a PU. No other lock is taken while the lock of
 * a channel's queue is held.
 *
 * ibv_modify_qp() waits for another thread that builds work requests, so the agent's lock is
 * released during the call. Meanwhile the id is `changing`: other calls that change or destroy its
 * QP, or end the id, wait for it.
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
	/*
	 * link in the list of all channels: a forked child replaces the descriptors shared with its
	 * parent
	 */
	struct list_head link;
	bool closed;
};

/* The states of rdma_cm(7), as in the Linux kernel's enum rdma_cm_state. */
enum rdmacm_state {
	RDMACM_IDLE,
	RDMACM_BOUND,
	RDMACM_ADDR_RESOLVED,
	RDMACM_ROUTE_RESOLVED,
	RDMACM_LISTEN,
	RDMACM_CONNECT, /* connecting, connected or disconnected: src/cm has the state */
	RDMACM_DEAD,	/* inherited from a parent process: may only be destroyed */
};

struct rdmacm_id {
	struct rdma_cm_id id;
	struct list_head link;	    /* in the list of all ids */
	struct list_head port_link; /* in the list of ids that hold a port */
	struct list_head events;    /* events raised or taken, and not yet acknowledged */
	struct list_head rtu_link;  /* in the list of ids that accepted and wait for the RTU */
	struct list_head groups;    /* list of multicast groups */
	enum rdmacm_state state;
	uint16_t port; /* host order */
	bool sync;     /* has a channel of its own: calls wait for their event */
	bool reuse_addr;
	bool af_only;	    /* a wildcard of IPv6 does not listen on IPv4 */
	bool af_only_set;   /* the program set af_only; otherwise it is the system's default */
	bool any;	    /* bound to a wildcard address */
	bool passive;	    /* created by a listener's request */
	bool shown;	    /* passive: the program has taken the request */
	bool connect_error; /* the QP failed to come up: later events are not reported */
	bool changing;	    /* between rdmacm_change_begin() and rdmacm_change_end() */
	uint8_t tos;
	uint8_t ack_timeout; /* 0: RDMACM_ACK_TIMEOUT */
	uint8_t responder_resources, initiator_depth;
	uint8_t gid_index;
	uint8_t mtu;	 /* enum ibv_mtu of the path */
	uint8_t refused; /* number of repeated requests after "no such service" */
	uint32_t qpn;	 /* number of the QP with which the id accepted */
	uint32_t psn;	 /* first PSN of the peer, sent in the REQ or REP */
	/* src is valid once the id is bound to the device, dst once it is resolved */
	struct pkt_addr src, dst;
	struct cm_conn *conn;
	struct cm_listener *listener;
	struct ibv_ece local_ece, remote_ece;
	struct ibv_sa_path_rec path; /* id.route.path_rec points here */
	/* for a listener of rdma_create_ep(): attributes of the QPs of its connections */
	struct ibv_qp_init_attr *qp_init;
	/* result of rdma_resolve_addrinfo(), until the program queries it */
	struct rdma_addrinfo *resolved;
	/* for rdma_create_ep(): private data that are sent before those of the program */
	void *connect;
	size_t connect_len;
};

/* Events and flags newer than rdma-core 44, with whose headers Roost is built. */
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
	/* the id that the event belongs to until it is acknowledged; for a request, the listener */
	struct rdmacm_id *owner;
	struct list_head link; /* in owner->events */
	struct evq_event queued;
	uint32_t taken;
	uint8_t data[CM_DATA_MAX];
};

/* The state of librdmacm in this process, the only user of QP 1. */
struct rdmacm_agent {
	pthread_mutex_t lock;
	int cancel_state;	 /* of the thread that holds the lock, before it took the lock */
	pthread_cond_t progress; /* an event was acknowledged, or a change of a QP has ended */
	struct list_head ids, channels, without_rtu;
#define RDMACM_PORT_BUCKETS 1024 /* a power of two */
	struct list_head ports[RDMACM_PORT_BUCKETS];
	/* NULL until the device is open. The device stays open until the process ends. */
	struct ibv_context *verbs;
	struct ibv_pd *pd; /* for ids that the program gives no PD */
	struct drive *drive;
	struct cm *cm;
	struct secret secret; /* used only by rdmacm_draw() */
	bool seeded;
};

extern struct rdmacm_agent agent;

/*
 * Values of the Linux kernel's rdma_cm (drivers/infiniband/core/cma.c). The unit of times is 4.096
 * us << n.
 */
#define RDMACM_RESPONSE_TIMEOUT 20
#define RDMACM_ACK_TIMEOUT	19 /* packet life time 18, plus one for the way back */
#define RDMACM_MAX_RETRIES	15
#define RDMACM_HOP_LIMIT	64
/*
 * The largest backlog of Linux is 1024 (net.rdma_ucm.max_backlog), and one client may fill it. Here
 * one source gets three quarters of a backlog (cm/challenge.c), so the largest one is longer.
 */
#define RDMACM_MAX_BACKLOG (1024 * 4 / 3 + 1)

static inline struct rdmacm_id *rdmacm_id(struct rdma_cm_id *id)
{
	return (struct rdmacm_id *)id;
}

/*
 * Converts an internal return value for the program: 0 stays 0, and -errno becomes -1 with errno
 * set.
 */
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
 * Draws an unpredictable number below n. The first call seeds the generator, also in a child after
 * fork(2). Returns 0, or -errno if the kernel gives no random numbers. Lock held.
 */
int rdmacm_draw(uint32_t n, uint32_t *number);
/*
 * Take and release the agent's lock. A thread that holds the lock cannot be cancelled: others would
 * wait for the lock for ever.
 */
void rdmacm_lock(void);
void rdmacm_unlock(void);
/*
 * Waits until an event is acknowledged or a change of a QP ends. Lock held; the lock is released
 * during the wait.
 */
void rdmacm_wait(void);
/*
 * Calls ibv_modify_qp(). Returns 0 or -errno. Lock held; the lock is released during the call,
 * which may wait for another thread that is between ibv_wr_start() and ibv_wr_complete(), and that
 * thread may be waiting for the lock.
 */
int rdmacm_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
/*
 * Opens the device and QP 1 at the first call. Adds the address to the NIC if the NIC does not have
 * it (NULL: any address will do). Takes the agent's lock, which must not be held. Returns 0, or the
 * -errno of drive_get_at(): -EADDRNOTAVAIL, -EADDRINUSE ...
 */
int rdmacm_agent_open(const struct pkt_addr *addr);
/*
 * Calls rdmacm_agent_open() for an id with an address from the program. NULL, AF_UNSPEC and
 * wildcards mean any address. Returns the same, or -EINVAL if the id was inherited from a parent
 * process.
 */
int rdmacm_agent_open_for(struct rdmacm_id *id, const struct sockaddr *sa);
/* Returns the time of the engine's clock, in ns. The agent must be open. */
uint64_t rdmacm_now(void);
/* Makes the service thread look at the new time-out of an operation that was started. Lock held. */
void rdmacm_started(void);

/* ---- channel.c ---- */

/*
 * Allocates an event of type `type` about the id `about`, which belongs to `owner` and is not on a
 * list yet. Returns NULL if there is no memory. Lock held.
 */
struct rdmacm_event *rdmacm_event_new(struct rdmacm_id *owner, struct rdmacm_id *about,
				      enum rdma_cm_event_type type);
/* Copies private data into the event. `data` may be NULL. Lock held. */
void rdmacm_event_data(struct rdmacm_event *e, const void *data, size_t len);
/* Puts the event on its owner's channel. Lock held. */
void rdmacm_event_raise(struct rdmacm_event *e);
/* Raises an event that has only a type and a status. Returns 0 or -ENOMEM. Lock held. */
int rdmacm_event_simple(struct rdmacm_id *id, enum rdma_cm_event_type type, int status);
/* Drops the id's events that were not taken, and waits until the others are acknowledged. */
void rdmacm_events_end(struct rdmacm_id *id);
/* Drops the events about a multicast group of the id that were not taken. Lock held. */
void rdmacm_events_drop_group(struct rdmacm_id *id, const struct pkt_addr *group);
/*
 * Waits for the event of the operation that a synchronous id has started. For other ids it returns
 * 0 at once. Returns 0, or the event's status as -errno. Lock not held.
 */
int rdmacm_complete(struct rdmacm_id *id);

/* ---- id.c ---- */

/*
 * Creates an id. Without a channel the id gets a channel of its own, and is synchronous. Returns 0,
 * -EINVAL for an unknown port space, or the -errno of the channel or the memory. Lock not held.
 */
int rdmacm_create_id(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps,
		     enum ibv_qp_type qp_type, struct rdma_cm_id **out);
/* Creates an id. Returns NULL if there is no memory. Lock held. */
struct rdmacm_id *rdmacm_id_new(struct rdma_event_channel *channel, void *context,
				enum rdma_port_space ps, enum ibv_qp_type qp_type);
/*
 * Waits until no thread changes the id's QP. Ends the id's connection, listener and groups,
 * releases its port, waits until the program has acknowledged its events, and frees it. Lock held;
 * the lock is released during the waits.
 */
void rdmacm_id_end(struct rdmacm_id *id);

/* ---- address.c ---- */

/*
 * Converts a socket address; *port is in host order. Returns 0, -EAFNOSUPPORT, or -EINVAL if `sa`
 * is NULL.
 */
int rdmacm_addr_from(const struct sockaddr *sa, struct pkt_addr *addr, uint16_t *port);
/* Converts an address and a port in host order to a socket address of the address's family. */
void rdmacm_addr_to(const struct pkt_addr *addr, uint16_t port, struct sockaddr_storage *sa);
/* Returns true if the address is a wildcard. */
bool rdmacm_addr_is_any(const struct sockaddr *sa);
socklen_t rdmacm_addr_len(const struct sockaddr *sa);
/*
 * Binds the id to the device's port that has its source address `src`. Returns 0 or -EADDRNOTAVAIL.
 * Lock held, agent open.
 */
int rdmacm_attach(struct rdmacm_id *id);
/*
 * Stores an address of the device in *src: `like` if the device has it, otherwise an address of the
 * same family. Returns 0 or -ENETUNREACH.
 */
int rdmacm_source_for(const struct pkt_addr *like, struct pkt_addr *src);
/*
 * Takes a port for the id and its source address; `port` 0 takes a free one. Returns 0,
 * -EADDRINUSE, or -EADDRNOTAVAIL if no port is free. Lock held.
 */
int rdmacm_port_take(struct rdmacm_id *id, uint16_t port);
/*
 * Returns whether another id with an overlapping address holds this port. With `reuse`, ids that
 * share their port do not count.
 */
bool rdmacm_port_conflicts(const struct rdmacm_id *id, uint16_t port, bool reuse);
/* Gives up the id's port, if it has one. Lock held. */
void rdmacm_port_release(struct rdmacm_id *id);
/*
 * Returns the list in which the ids that hold this port are. The list may have ids with other
 * ports, too.
 */
struct list_head *rdmacm_port_bucket(uint16_t port);
/*
 * Binds the id to a source address, which may be a wildcard. Returns 0 or -errno. Lock held, agent
 * open.
 */
int rdmacm_bind(struct rdmacm_id *id, const struct sockaddr *sa);

/* ---- resolve.c ---- */

/*
 * Opens an IPv6 address for a listener on all addresses, if the NIC has none: the source address of
 * the default route, else the first address of an interface, else ::1. It is no error if the
 * machine has no IPv6 address. Agent open, lock not held.
 */
void rdmacm_open_ipv6(struct rdmacm_id *id);
/* Fills in the path record of the id, and sets id.route.path_rec and num_paths. */
void rdmacm_set_path(struct rdmacm_id *id);
/* Returns the service id for the id's port space and a port in host order. */
uint64_t rdmacm_service_id(const struct rdmacm_id *id, uint16_t port);

/* ---- connect.c ---- */

/* Handles the events of the state machine. Lock held. */
void rdmacm_on_cm_event(void *ctx, const struct cm_event *e);
/*
 * Handles CM_EV_REPLY when the program takes it: brings the QP up and sends the RTU. Changes the
 * event to ESTABLISHED or CONNECT_ERROR. Does nothing if the id has no QP. Lock held; the lock is
 * released for a while.
 */
void rdmacm_take_reply(struct rdmacm_event *e);

/*
 * Sets responder resources and initiator depth. Returns 0, or -EINVAL if they exceed the device's,
 * or if neither a QP nor parameters were given.
 */
int rdmacm_settle_depths(struct rdmacm_id *id, const struct rdma_conn_param *p);
/* Returns the number of the id's QP, or of the QP that the program names in `p`. */
uint32_t rdmacm_qp_number(const struct rdmacm_id *id, const struct rdma_conn_param *p);
/* Returns true if the id's QP has a shared receive queue, or, without a QP, if `p` says so. */
bool rdmacm_has_srq(const struct rdmacm_id *id, const struct rdma_conn_param *p);
struct cm_ece rdmacm_cm_ece(const struct ibv_ece *e);
/* Copies the connection parameters of the peer from an event. */
void rdmacm_fill_conn(struct rdma_conn_param *to, const struct cm_event *e);

/* ---- listen.c ---- */

/* Creates an id for a request, and raises its event at the listener. Lock held. */
void rdmacm_on_request(const struct cm_event *e);

/*
 * Returns whether an id with this service is in this state (RDMACM_LISTEN or RDMACM_BOUND). Lock
 * held.
 */
bool rdmacm_any_in(enum rdmacm_state state, uint64_t service_id);
/* Ends the listener of an id, if it has one. Lock held. */
void rdmacm_close_listener(struct rdmacm_id *id);

/* ---- early.c; lock held ---- */

/*
 * Note that a listener of the service has ended, and that a listener has started. The second
 * function passes the requests that were kept for the service to the new listener.
 */
void rdmacm_early_unlisten(uint64_t service_id);
void rdmacm_early_listen(uint64_t service_id);
/*
 * Keeps the datagram if it is a request to a service that will probably get a listener soon.
 * Returns whether it was kept.
 */
bool rdmacm_early_keep(const struct pkt_addr *src, const struct pkt_addr *dst, const uint8_t *mad);
/*
 * Passes on the requests that were kept for too long; they are refused then. Returns the time of
 * the next call, or UINT64_MAX if no request is kept.
 */
uint64_t rdmacm_early_expire(uint64_t now);
/* Drops all kept requests and remembered services. For a forked child. */
void rdmacm_early_forget(void);

/* ---- comm_est.c; lock held, except for rdmacm_comm_est() ---- */

/* Notes that the first packet arrived at a QP. Called inside of a turn, without the lock. */
void rdmacm_comm_est(uint32_t qpn);
/* Add and remove an id that has accepted with the QP and waits for the RTU. */
void rdmacm_await_rtu(struct rdmacm_id *id, uint32_t qpn);
void rdmacm_await_no_rtu(struct rdmacm_id *id);
/* Reports the noted first packets to the state machine. Called by the service thread. */
void rdmacm_comm_est_report(void);
/* Drops all ids and noted packets. For a forked child. */
void rdmacm_comm_est_forget(void);

/* ---- mcast.c ---- */

/* Leaves all multicast groups of the id. Lock held. */
void rdmacm_leave_all(struct rdmacm_id *id);

/* ---- qp.c ---- */

/* Waits until no thread changes the id's QP. Lock held; the lock is released during the wait. */
void rdmacm_change_await(struct rdmacm_id *id);
/*
 * Begin and end a change of the state of the id's QP. In between the id and its QP exist, and no
 * other thread changes or destroys the QP; the id may lose its connection (exit(3), fork(2)). The
 * first function waits for the changes of other threads. Lock held; the lock is released during the
 * wait.
 */
void rdmacm_change_begin(struct rdmacm_id *id);
void rdmacm_change_end(struct rdmacm_id *id);
/*
 * Change the QP's state, with the attributes of the id and its connection. They return 0 or -errno.
 * Lock held; the lock is released for a while. Called during a change of the id's QP; for a QP that
 * is not the id's yet, rdmacm_qp_to_init() needs none.
 */
int rdmacm_qp_to_init(struct rdmacm_id *id, struct ibv_qp *qp);
int rdmacm_qp_to_rtr(struct rdmacm_id *id);
int rdmacm_qp_to_rts(struct rdmacm_id *id);
/* Moves the id's QP to the error state. Returns 0 or -errno; 0 if the id has no QP. */
int rdmacm_qp_to_error(struct rdmacm_id *id);
/* Destroys the CQs that the library has created for the id. */
void rdmacm_destroy_cqs(struct rdma_cm_id *id);
/* Fills in the address of the peer for a UD event. */
void rdmacm_fill_ah(const struct rdmacm_id *id, struct ibv_ah_attr *ah);

#endif
