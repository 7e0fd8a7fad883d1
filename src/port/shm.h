/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Internals of the shm port. shm_open.c opens and closes endpoints, shm.c moves packets (port_ops),
 * shm_conn.c makes and ends connections, shm_admit.c accepts those of peers, shm_publish.c
 * publishes how long a ring may be, shm_wake.c sleeps and wakes, shm_find.c finds peers, and
 * shm_mcast.c sends to groups and joins them.
 *
 * Endpoints find each other by the private folder (shm_dir.h), or, in a host port, by the pool. An
 * endpoint is an address and a lane; in a pool the lane is the slot. `owner` is the number of the
 * slot's owner in the pool, so no ring leads to a later owner; it is 0 without a pool.
 *
 * A connection is one unix socket (SEQPACKET) and one ring. The sending side makes both. It
 * connects to the socket of the peer in the private folder and sends a hello with the descriptor of
 * the ring. It may write into the ring at once; the service thread of the receiver maps it later.
 * After the hello the socket carries wake-ups, one byte each, in both directions. Its hang-up says
 * that the other side is gone. Two endpoints that exchange packets have two connections, one for
 * each direction.
 *
 * Only the thread that owns the processing unit calls these functions, unless they say otherwise.
 */
#ifndef ROOST_PORT_SHM_H
#define ROOST_PORT_SHM_H

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "pool/pool.h"
#include "port/port_impl.h"
#include "port/shm_dir.h"
#include "port/shm_ring.h"

#define SHM_MAX_RX	256 /* incoming rings; further peers are refused until one leaves */
#define SHM_MAX_TX	256 /* outgoing rings; further peers count as absent */
#define SHM_MAX_PENDING 32  /* connections whose hello has not come yet; the oldest gives way */
/*
 * Limit of the bytes of all incoming rings. A single ring may be longer. A sender whose ring is
 * refused offers a ring of half the size.
 */
#define SHM_RX_BYTES (256u << 20)

/*
 * Intervals in ms between attempts to reach an absent peer. They grow if a peer repeatedly hangs up
 * soon.
 */
#define SHM_RETRY_MS	 4
#define SHM_RETRY_MAX_MS 256
#define SHM_SETTLED_MS	 1000

/*
 * A reservation publishes after this many bytes or packets, so that the receiver works while the
 * rest of the burst is built.
 */
#define SHM_PUBLISH_BYTES   (64u << 10)
#define SHM_PUBLISH_PACKETS 64
/* The most bytes that one rx_burst hands out, so that the sender gets free space back in pieces. */
#define SHM_BURST_BYTES (128u << 10)
/*
 * Incoming rings are hot or cold. A hot ring becomes cold after SHM_HOT_POLLS empty polls. Each
 * burst polls SHM_COLD_POLLS cold rings.
 */
#define SHM_HOT_POLLS  4096
#define SHM_COLD_POLLS 4

#define SHM_HELLO_MAGIC	  0x6d68732d74736f72ull
#define SHM_HELLO_VERSION 5

/*
 * The first and only message of a connection, with one descriptor. It is in host byte order,
 * because both ends are on one machine.
 */
struct shm_hello {
	uint64_t magic;
	uint32_t version;
	uint32_t ring_size;
	uint8_t addr[16]; /* address of the sender */
	/* the group of all packets of this ring; zeros: the packets are for the receiver only */
	uint8_t group[16];
	uint8_t lane;
	uint8_t zero[7];
	uint32_t owner, to_owner; /* of the sender and of the receiver */
};
_Static_assert(sizeof(struct shm_hello) == 64, "hello");

/* An endpoint: one end of a connection. */
struct shm_peer {
	struct pkt_addr addr;
	uint32_t owner;
	uint8_t lane;
};

enum shm_end_kind { SHM_END_LISTEN, SHM_END_PENDING, SHM_END_RX, SHM_END_TX, SHM_END_KICK };

/* The target of an epoll event: the first member of every object that owns a descriptor. */
struct shm_end {
	enum shm_end_kind kind;
	int fd;
};

/* An outgoing connection, shared by the paths that lead to its address and lane. */
struct shm_tx {
	struct shm_end end;
	struct shm_prod ring;
	struct list_head node; /* shm_port.tx */
	struct shm_peer to;
	struct pkt_addr group; /* as in struct shm_hello */
	uint32_t refs;	       /* number of paths that use it */
	bool dirty;	       /* it is in shm_port.dirty, because it has unpublished records */
	/* it is in shm_port.unfenced, because it was published since the last fence */
	bool unfenced;
	bool blocked;	  /* a reservation failed; the sender must learn of space */
	uint32_t made_ms; /* ms; when it was connected */
	/* ms; when a blocked connection last checked whether the peer lives */
	uint32_t check_ms;
	struct port_progress progress;
	struct shm_tx *next_dead;
};

struct shm_rx {
	struct shm_end end;
	struct shm_cons ring;
	struct shm_peer from;
	/* destination of all packets: the address of this port, or of a group */
	struct pkt_addr dst;
	/*
	 * descriptor of this ring, kept until the connection back to the sender needs a descriptor;
	 * -1: that connection exists, or will not be made
	 */
	int return_fd;
	uint32_t empty_polls;
	bool hung_up; /* the sender is gone; packets left in the ring are still delivered */
	bool broken;  /* the ring has invalid contents; no more packets are delivered */
	struct shm_rx *next_dead;
};

struct shm_path {
	struct port_path base;
	struct list_head node; /* shm_port.paths */
	struct shm_tx *tx;     /* NULL: the peer is absent */
	uint32_t refs;
	/*
	 * PORT_LANE_KEY_OF_QPN(): it chooses the lane, once the lanes of the peer are known; in a
	 * pool, the slot
	 */
	uint32_t lane_key;
	uint32_t retry_ms;	   /* ms; time of the next attempt */
	uint32_t pause_ms;	   /* ms; interval after that attempt */
	uint32_t ring_size;	   /* bytes of the next ring, if the peer accepts that size */
	struct shm_fanout *fanout; /* members of a group; NULL: the path has one address */
};

/* The receivers of the packets of a group. */
struct shm_fanout {
	uint64_t seen; /* ns; time of the last change of the folder, as seen at the last look */
	unsigned count;
	struct shm_tx *tx[SHM_MAX_TX];
};

/*
 * A packet to a group. It is built here, and copied to the ring of each member when it is complete.
 */
struct shm_staged {
	struct shm_path *path;
	uint32_t len;
	uint8_t tos;
	uint8_t data[PKT_MAX_LEN] __attribute__((aligned(64)));
};

struct shm_member {
	struct list_head node; /* shm_port.groups */
	struct pkt_addr group;
};

struct shm_port {
	struct port base;
	/* kick: an eventfd that wakes a sleeper on base.fd from control() */
	struct shm_end listen, kick;
	int dirfd, spare_fd;
	struct pool *pool; /* NULL: the folder is used */
	uint32_t scope;	   /* in the pool: the interface of a link-local address */
	uint8_t slot;	   /* in the pool */
	uint32_t owner;
	uint32_t published_ring; /* bytes: shm_publish_ring() */
	bool ending;
	bool logged_descriptors, logged_memory, logged_full;
	struct shm_claim claim;
	uint32_t ring_size;
	bool armed, forked;
	uint32_t hint_ms;	/* ms; time of the last hint about an absent peer */
	struct shm_peer hinted; /* that peer */
	bool flushed;		/* packets were published since the last rx_burst */

	/* Outgoing. */
	struct list_head tx, paths;
	unsigned num_tx, num_dirty, num_unfenced, num_blocked;
	struct shm_tx *dirty[SHM_MAX_TX], *unfenced[SHM_MAX_TX];
	struct shm_tx *dead_tx; /* ended connections, unmapped at the next flush */
	/* ring of the last reservation; NULL: it is in scratch, or was cancelled */
	struct shm_tx *last_tx;
	uint32_t last_len;
	bool last_dropped;
	/* the last packet had no receiver, and quote_lost() has not examined it yet */
	bool quote_due;
	struct pkt_addr lost_dst; /* with last_dropped: destination of the packet */
	uint8_t *scratch;	  /* space for packets to absent peers */
	/*
	 * Packets to groups: `count` of two, from `first` on. They are a complete packet, and the
	 * last reservation, which may lack its ICRC.
	 */
	struct shm_staged *staged; /* NULL: the port has had no path to a group yet */
	unsigned staged_first, staged_count;
	bool last_staged; /* the last reservation is among them */

	struct list_head groups; /* groups that the port has joined */

	/* Incoming. Each burst looks at rx[0 .. num_hot), and at some of the others in turn. */
	unsigned num_rx, num_hot, turn, cold_turn;
	uint64_t rx_bytes; /* bytes of all incoming rings */
	struct shm_rx *rx[SHM_MAX_RX];
	bool untidy;		 /* a connection must be ended, or a ring must become cold */
	unsigned num_unreleased; /* the packets of the last burst are from these rings */
	struct shm_rx *unreleased[PORT_BURST];
	/* ended connections, unmapped when no packet of the last burst is in use any more */
	struct shm_rx *dead_rx;

	unsigned num_pending;
	struct shm_end *pending[SHM_MAX_PENDING]; /* the oldest first */
};

/*
 * Allocates zeroed memory on cache lines of its own; free() frees it. Memory that one processing
 * unit writes for each packet must not share a line with data of another thread. Returns NULL if
 * there is no memory.
 */
static inline void *shm_alloc(size_t size)
{
	void *p;

	size = ALIGN_UP(size, 128);
	p = aligned_alloc(128, size);
	return p ? memset(p, 0, size) : NULL;
}

static inline bool shm_peer_eq(const struct shm_peer *a, const struct shm_peer *b)
{
	return a->lane == b->lane && a->owner == b->owner && pkt_addr_eq(&a->addr, &b->addr);
}

static inline struct shm_port *shm_of(struct port *p)
{
	return (struct shm_port *)p;
}

/* Returns the number that identifies this endpoint in its hellos and in names. */
static inline uint8_t shm_lane(const struct shm_port *s)
{
	return s->pool ? s->slot : s->base.lane;
}

/*
 * Adds a hint that packets for the peer have no receiver, or that it hung up. It adds at most one
 * per millisecond for a peer.
 */
void shm_hint(struct shm_port *s, const struct shm_peer *peer);

/* Returns the milliseconds of a coarse monotonic clock. Makes no system call. */
uint32_t shm_now_ms(void);

/* shm_publish.c */
/*
 * In a pool: tells the other programs the length of the longest ring that the port can take, if it
 * has changed.
 */
void shm_publish_ring(struct shm_port *s);
/* Tells the other programs that the port takes no more rings. */
void shm_publish_end(struct shm_port *s);

/* shm_conn.c */
int shm_listen(struct shm_port *s);
/* Tries to connect a path if its time has come. Returns true if the path has a ring now. */
bool shm_connect(struct shm_port *s, struct shm_path *path);
/*
 * Ends a connection whose peer is gone or sent invalid data, and detaches its paths. The memory of
 * the ring stays mapped until the next flush.
 */
void shm_tx_end(struct shm_port *s, struct shm_tx *tx);
/*
 * Frees the ended outgoing connections, with their rings. The last reservation must not be in them.
 */
void shm_free_dead_tx(struct shm_port *s);
/*
 * Ends an incoming connection at once. The memory of the ring stays mapped until the next rx_burst.
 */
void shm_rx_end(struct shm_port *s, unsigned i);
/*
 * Frees the ended incoming connections, with their rings. No packet of the last burst may be in
 * use.
 */
void shm_free_dead_rx(struct shm_port *s);
void shm_control(struct port *p);
/*
 * Makes data and hang-up of a connection wake the sleeper, and the hang-up also trigger control
 * work. Returns 0 or -errno.
 */
int shm_watch_connection(struct shm_port *s, struct shm_end *end);
/* Adds a descriptor to an epoll set. Returns 0 or -errno. */
int shm_watch(int epfd, uint32_t events, struct shm_end *end);
/* Closes a descriptor and removes it from the epoll sets. Has no effect if it is closed already. */
void shm_end_close(struct shm_port *s, struct shm_end *end);
/* Returns true if the process at the other end of a socket has the same user. */
bool shm_same_user(int fd);
/*
 * Logs, once for each limit, that a limit of this machine keeps a peer out, if `rc` (-errno) is the
 * error of one. The peer itself only notices that no answer comes.
 */
void shm_log_limit(struct shm_port *s, int rc);
/* Checks that rings can be made here: makes a short one and frees it. Returns 0 or -errno. */
int shm_try_ring(void);
/* Ends all connections and closes their descriptors, the listener and the kick. */
void shm_close_all(struct shm_port *s);

/* shm_find.c */
/* Finds the endpoint that a path leads to. Returns 0, or -errno if it is absent. */
int shm_find(struct shm_port *s, const struct shm_path *path, struct shm_peer *peer);
/*
 * Gets the size in bytes of the longest ring that an endpoint accepts. Returns 0, or -errno if the
 * endpoint is absent. Works even if this process has no free descriptor.
 */
int shm_find_ring(struct shm_port *s, const struct shm_peer *peer, uint32_t *ring);
/*
 * Returns true if the process at the other end of an accepted connection is the endpoint, or was
 * the last process that was.
 */
bool shm_is_owner(struct shm_port *s, const struct shm_peer *peer, int fd);
/* Makes the address of an endpoint's socket. Returns the length of the address. */
socklen_t shm_sockaddr(const struct shm_port *s, const struct pkt_addr *addr, unsigned lane,
		       struct sockaddr_un *sa);
/* Returns the number of the owner of a slot if it takes rings, or else 0. */
uint32_t shm_pool_owner(const struct shm_port *s, const struct pkt_addr *addr, unsigned slot);

/* shm_open.c */
void shm_after_fork(struct port *p);
void shm_close(struct port *p);

/* shm.c */
extern const struct port_ops shm_ops;

/* shm_admit.c */
/* Handles an accepted connection whose hello has come, or whose peer hung up. */
void shm_pending_ready(struct shm_port *s, struct shm_end *end);
/*
 * Accepts waiting connections and reads the hellos that have come. Refuses them if there is no free
 * descriptor. Returns false if it can do neither, and the listener must rest (base/rest.h).
 */
bool shm_accept_all(struct shm_port *s);

/*
 * Returns the ring to a lane of a peer, for a group, or for the peer's own address if the group is
 * zeros. Returns NULL if there is none.
 */
struct shm_tx *shm_tx_find(const struct shm_port *s, const struct shm_peer *peer,
			   const struct pkt_addr *group);
/*
 * Does the same as shm_tx_find(), but makes a ring of at most `ring_size` bytes if there is none.
 * Returns NULL if the peer is absent. The caller counts the reference.
 */
struct shm_tx *shm_tx_get(struct shm_port *s, const struct shm_peer *peer,
			  const struct pkt_addr *group, uint32_t ring_size);

/* shm_mcast.c */
int shm_join(struct port *p, const struct pkt_addr *group);
void shm_leave(struct port *p, const struct pkt_addr *group);
/* Returns true if the port has joined the group. */
bool shm_is_member(const struct shm_port *s, const struct pkt_addr *group);
/* Turns a new path into a path to a group. Returns 0 or -ENOMEM. */
int shm_fanout_make(struct shm_port *s, struct shm_path *path);
/* Frees the members of a path to a group. Waiting packets are sent first. */
void shm_fanout_free(struct shm_port *s, struct shm_path *path);
/* Looks for new members of the group. */
void shm_fanout_update(struct shm_port *s, struct shm_path *path);
/* Removes a connection from the receivers. Returns true if it was one of them. */
bool shm_fanout_forget(struct shm_path *path, const struct shm_tx *tx);
/*
 * Reserves space for a packet to a group. It is never full: a UD packet is lost if a member has no
 * space.
 */
int shm_stage(struct shm_port *s, struct shm_path *path, uint32_t len, uint8_t tos,
	      struct port_buf *buf);
/* Copies staged packets to the members; `all`: also the last reservation. */
void shm_staged_send(struct shm_port *s, bool all);
/* Cancels the last reservation, which is a packet to a group. */
void shm_staged_cancel(struct shm_port *s);
/* Leaves all groups. */
void shm_leave_all(struct shm_port *s);

/* shm.c */
/* Notes that the ring was published. Its receiver may have to be woken. */
void shm_note_published(struct shm_port *s, struct shm_tx *tx);
/* Notes that the ring has unpublished records. */
void shm_note_dirty(struct shm_port *s, struct shm_tx *tx);

/* shm_wake.c */
bool shm_arm(struct port *p);
void shm_disarm(struct port *p, bool woken);
/* Reads the wake-ups and ends connections that hung up. */
void shm_drain(struct shm_port *s);
/*
 * Wakes the sleeping receivers of packets published since the last fence. Without `fence` it may
 * miss a receiver that is about to sleep.
 */
void shm_wake_receivers(struct shm_port *s, bool fence);
/* Wakes the sender of a ring if it waits for space. */
void shm_wake_sender(struct shm_rx *rx);
/*
 * Reads the wake-ups of a socket that became readable or hung up. Returns false if the peer hung
 * up.
 */
bool shm_take_wakeups(int fd);

#endif
