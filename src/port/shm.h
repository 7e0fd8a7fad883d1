/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shm port inside: shm.c moves packets (port_ops), shm_conn.c makes and ends connections,
 * shm_admit.c takes in those of peers, shm_wake.c sleeps and wakes, shm_mcast.c sends to groups and
 * is a member of them.
 *
 * A connection is one unix socket (SEQPACKET) and one ring, made by the sending side: it connects
 * to the peer's socket in the private folder and sends a hello with the ring's descriptor; it may
 * write into the ring at once, the receiver maps it when its service thread comes to it. Afterwards
 * the socket carries wake-ups, one byte each, both ways, and its hang-up says that the other side
 * is gone. Two endpoints that talk so have two connections, one a direction.
 *
 * All functions: [owner], the thread that owns the processing unit.
 */
#ifndef ROOST_PORT_SHM_H
#define ROOST_PORT_SHM_H

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "port/port_impl.h"
#include "port/shm_dir.h"
#include "port/shm_ring.h"

#define SHM_MAX_RX	256 /* incoming rings; more peers are refused until one leaves */
#define SHM_MAX_TX	256 /* outgoing rings: a peer beyond is as if absent */
#define SHM_MAX_PENDING 32  /* accepted, hello not read yet */
/*
 * Bytes of all incoming rings, or of one if that alone is longer. A sender that is refused offers a
 * ring of half the size.
 */
#define SHM_RX_BYTES (256u << 20)

/*
 * A peer that is not there: how often to look, ms. A peer that hangs up on us soon and again: rarer
 * and rarer.
 */
#define SHM_RETRY_MS	 4
#define SHM_RETRY_MAX_MS 256
#define SHM_SETTLED_MS	 1000

/*
 * Reserving publishes by itself at so many bytes, so that the receiver works while the burst is
 * still being built.
 */
#define SHM_PUBLISH_BYTES   (64u << 10)
#define SHM_PUBLISH_PACKETS 64
/* One rx_burst hands out at most so many bytes: space returns to the sender in pieces. */
#define SHM_BURST_BYTES (128u << 10)
/*
 * Incoming rings are hot or cold; a hot one becomes cold after so many empty looks, and so many
 * cold ones are looked at a burst.
 */
#define SHM_HOT_LOOKS 4096
#define SHM_COLD_LOOK 4

#define SHM_HELLO_MAGIC	  0x6d68732d74736f72ull
#define SHM_HELLO_VERSION 4

/*
 * The first and only message on a connection, with one descriptor. Host byte order: both ends are
 * on one machine.
 */
struct shm_hello {
	uint64_t magic;
	uint32_t version;
	uint32_t ring_size;
	uint8_t addr[16]; /* the sender's */
	/* to which all packets of this ring are sent; zero: to the receiver alone */
	uint8_t group[16];
	uint8_t lane;
	uint8_t zero[7];
};
_Static_assert(sizeof(struct shm_hello) == 56, "hello");

enum shm_end_kind { SHM_END_LISTEN, SHM_END_PENDING, SHM_END_RX, SHM_END_TX, SHM_END_KICK };

/* What an epoll event points to: the first member of everything that owns a descriptor. */
struct shm_end {
	enum shm_end_kind kind;
	int fd;
};

/* An outgoing connection, shared by the paths that lead to its address and lane. */
struct shm_tx {
	struct shm_end end;
	struct shm_prod ring;
	struct list_head node;	    /* shm_port.tx */
	struct pkt_addr dst, group; /* group: as in the hello */
	uint32_t refs;		    /* paths */
	uint8_t lane;
	bool dirty;	   /* in shm_port.dirty: has records not published */
	bool unfenced;	   /* in shm_port.unfenced: published since the last fence */
	bool blocked;	   /* a reservation failed; wants to know of room */
	uint32_t made_ms;  /* when it was connected */
	uint32_t check_ms; /* when a blocked one last looked whether the peer lives */
	struct shm_tx *next_dead;
};

struct shm_rx {
	struct shm_end end;
	struct shm_cons ring;
	struct pkt_addr src, dst; /* dst: our address, or a group's */
	uint8_t src_lane;
	/*
	 * this ring's, kept until the one back to the sender wants a descriptor; -1: that is there,
	 * or will not be
	 */
	int back_fd;
	uint32_t empty_looks;
	bool hung_up; /* the sender is gone; what it left in the ring is still delivered */
	bool broken;  /* nonsense in the ring: nothing more is delivered */
	struct shm_rx *next_dead;
};

struct shm_path {
	struct port_path base;
	struct list_head node; /* shm_port.paths */
	struct shm_tx *tx;     /* NULL: nobody there */
	uint32_t refs;
	/* the QP number's part that chooses the lane, once the peer's lanes are known */
	uint32_t lane_key;
	uint32_t retry_ms;	   /* when to look again */
	uint32_t pause_ms;	   /* and how long to wait after that */
	uint32_t ring_size;	   /* of the next ring, if the peer takes so long ones */
	struct shm_fanout *fanout; /* of a group; NULL: one address */
};

/* Whom a group's packets go to. */
struct shm_fanout {
	uint64_t seen; /* when the folder had changed last, as we looked; ns */
	unsigned count;
	struct shm_tx *tx[SHM_MAX_TX];
};

/* A packet to a group: built here, copied to each member's ring when it is complete. */
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
	bool said_descriptors, said_memory;
	struct shm_claim claim;
	uint32_t ring_size;
	bool armed, forked;
	uint32_t hint_ms; /* when it last hinted at a peer that is not there */
	bool flushed;	  /* something was published since the last rx_burst */

	/* Outgoing. */
	struct list_head tx, paths;
	unsigned num_tx, num_dirty, num_unfenced, num_blocked;
	struct shm_tx *dirty[SHM_MAX_TX], *unfenced[SHM_MAX_TX];
	/* The last reservation. */
	struct shm_tx *dead_tx; /* ended; to be unmapped at the next flush */
	struct shm_tx *last_tx; /* NULL: it went to scratch, or was taken back */
	uint32_t last_len;
	bool last_dropped;
	/* the last packet found nobody, and was not looked at since: quote_lost() */
	bool quote_due;
	struct pkt_addr lost_dst; /* with last_dropped: where it was to go */
	uint8_t *scratch;	  /* room for packets to absent peers */
	/*
	 * Packets to groups, [first, first + count) of two: one that is complete, and the last
	 * reservation, which may lack its ICRC.
	 */
	struct shm_staged *staged; /* NULL: no path to a group was asked for yet */
	unsigned staged_first, staged_count;
	bool last_staged; /* the last reservation is among them */

	struct list_head groups; /* that we are a member of */

	/* Incoming: rx[0 .. num_hot) are looked at in each burst, the others in turns. */
	unsigned num_rx, num_hot, turn, cold_turn;
	uint64_t rx_bytes; /* of their rings */
	struct shm_rx *rx[SHM_MAX_RX];
	bool untidy;		 /* one of them wants to be ended, or to become cold */
	unsigned num_unreleased; /* the last burst's packets are from these */
	struct shm_rx *unreleased[PORT_BURST];
	/* ended; to be unmapped when the last burst's packets are no longer used */
	struct shm_rx *dead_rx;

	unsigned num_pending;
	struct shm_end *pending[SHM_MAX_PENDING];
};

/*
 * Zeroed memory on cache lines of its own: what one processing unit writes for each packet must not
 * share a line with what another thread uses. NULL when there is none; free() it.
 */
static inline void *shm_alloc(size_t size)
{
	void *p;

	size = ALIGN_UP(size, 128);
	p = aligned_alloc(128, size);
	return p ? memset(p, 0, size) : NULL;
}

static inline struct shm_port *shm_of(struct port *p)
{
	return (struct shm_port *)p;
}

/* A packet found nobody, or a reader hung up: says so, once a millisecond. */
void shm_hint(struct shm_port *s, const struct pkt_addr *dst);

/* Milliseconds of a coarse monotonic clock: no system call. */
uint32_t shm_now_ms(void);

/* shm_conn.c */
int shm_listen(struct shm_port *s);
/* Connects a path whose time has come. True when it has a ring now. */
bool shm_connect(struct shm_port *s, struct shm_path *path);
/*
 * The peer is gone or made no sense: ends the connection and detaches its paths. Its memory stays
 * until the next flush.
 */
void shm_tx_end(struct shm_port *s, struct shm_tx *tx);
void shm_free_dead_tx(struct shm_port *s);
/* Ends an incoming connection at once; its memory stays mapped until the next rx_burst. */
void shm_rx_end(struct shm_port *s, unsigned i);
void shm_free_dead_rx(struct shm_port *s);
void shm_control(struct port *p);
/*
 * A connection wakes the sleeper by data or hang-up, and the control work by hang-up alone. 0 or
 * -errno.
 */
int shm_watch_connection(struct shm_port *s, struct shm_end *end);
int shm_watch(int epfd, uint32_t events, struct shm_end *end);
void shm_end_close(struct shm_port *s, struct shm_end *end);
/* Is the process at the other end of a socket of our user? */
bool shm_same_user(int fd);
/*
 * What the lock file of an address and lane says, even when the last descriptor is gone; 0 or
 * -errno.
 */
int shm_holder_of(struct shm_port *s, const struct pkt_addr *addr, unsigned lane,
		  struct shm_holder *h);
/*
 * Says so, once, when `rc` (-errno) tells that a limit of this machine keeps a peer out, who sees
 * no more than that nobody answers.
 */
void shm_say_limit(struct shm_port *s, int rc);
void shm_close_all(struct shm_port *s);

/* shm_admit.c */
/* A connection was accepted before; its hello is there now, or it hung up. */
void shm_pending_ready(struct shm_port *s, struct shm_end *end);
void shm_accept_all(struct shm_port *s);

/* The ring to a peer's lane for a group or (zero) for its own address; NULL: there is none. */
struct shm_tx *shm_tx_find(const struct shm_port *s, const struct pkt_addr *dst, unsigned lane,
			   const struct pkt_addr *group);
/*
 * The same, made if there is none, of at most `ring_size` bytes. NULL: nobody there. The caller
 * counts.
 */
struct shm_tx *shm_tx_get(struct shm_port *s, const struct pkt_addr *dst, unsigned lane,
			  const struct pkt_addr *group, uint32_t ring_size);

/* shm_mcast.c */
int shm_join(struct port *p, const struct pkt_addr *group);
void shm_leave(struct port *p, const struct pkt_addr *group);
bool shm_is_member(const struct shm_port *s, const struct pkt_addr *group);
/* Makes a new path one to a group; 0 or -ENOMEM. */
int shm_fanout_make(struct shm_port *s, struct shm_path *path);
/* What waits for it is sent first. */
void shm_fanout_free(struct shm_port *s, struct shm_path *path);
/* Finds members that have come since. */
void shm_fanout_look(struct shm_port *s, struct shm_path *path);
/* True when it was among them. */
bool shm_fanout_forget(struct shm_path *path, const struct shm_tx *tx);
/* Room for a packet to a group. Never full: UD loses what a member has no room for. */
int shm_stage(struct shm_port *s, struct shm_path *path, uint32_t len, uint8_t tos,
	      struct port_room *room);
/* Copies what is staged to the members; `all`: the last reservation, too. */
void shm_staged_send(struct shm_port *s, bool all);
void shm_staged_cancel(struct shm_port *s);
void shm_leave_all(struct shm_port *s);

/* shm.c */
/* The ring's tail was published. */
void shm_note_published(struct shm_port *s, struct shm_tx *tx);
void shm_note_dirty(struct shm_port *s, struct shm_tx *tx);

/* shm_wake.c */
bool shm_arm(struct port *p);
void shm_disarm(struct port *p, bool woken);
/* Reads what woke us, ends what hung up. */
void shm_drain(struct shm_port *s);
/*
 * Wakes the receivers of what was published since the last fence and which said that they sleep;
 * with `fence`, surely.
 */
void shm_wake_receivers(struct shm_port *s, bool fence);
/* Wakes the sender of a ring if it waits for room. */
void shm_wake_sender(struct shm_rx *rx);
/* A socket became readable or hung up: reads the wake-ups. False: it hung up. */
bool shm_take_wakeups(int fd);

#endif
