/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Internals of the udp port. Each lane has two unconnected sockets: it receives on the socket of
 * its slot, which the pool binds to the address and port 4791 (pool/pool.h), and sends from a
 * socket with a source port of its own. Therefore no other lane or program gets ICMP errors about
 * its packets, and network devices merge only packets of one lane.
 *
 *   udp_claim.c	  the choice of the address, and the two sockets
 *   udp_open.c	  opens and closes the port: MTU, windows, the descriptor to sleep on
 *   udp_path.c	  destinations
 *   udp_tx.c	  staging memory, groups for UDP_SEGMENT, errors of sends
 *   udp_join.c	  packets of different lengths in one datagram, between two ports of one machine
 *   udp_rx.c	  datagrams (merged by UDP_GRO) cut into packets
 *   udp_exchange.c  a flush that also receives
 *   udp_err.c	  errors that the network reports for sent packets
 *   udp_mcast.c	  multicast groups: a socket for each
 *   udp_mail.c	  packets that came to the socket of another slot
 *   udp_diag.c	  asks Linux for the socket at an address
 *   udp_route.c	  addresses without a route
 *   udp_probe.c	  abilities of the running kernel, probed once
 *
 * Only the thread that owns the processing unit calls these functions, unless they say otherwise.
 */
#ifndef ROOST_PORT_UDP_H
#define ROOST_PORT_UDP_H

#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/list.h"
#include "base/uring.h"
#include "packet/headers.h"
#include "pool/pool.h"
#include "port/port_impl.h"
#include "port/udp_exchange.h"

/* Some C libraries do not define these. Values: include/uapi/linux/udp.h. */
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

/* UDP_MAX_SEGMENTS of the Linux kernel: 64, and 128 since Linux 6.9. */
#define UDP_SEGS_OLD 64
#define UDP_SEGS_NEW 128
/* The longest UDP payload that fits the 16-bit length of IPv4. IPv6 would take 20 bytes more. */
#define UDP_MAX_DATAGRAM (65535 - 20 - 8)

/*
 * The header of a datagram with packets of different lengths (udp_join.c). Its first byte is at the
 * place of an op-code: 0xff is one of the op-codes that InfiniBand leaves to manufacturers, and
 * this NIC sends no packet with it. The last 16 bytes are zeros.
 */
#define UDP_JOIN_MAX   123 /* packets in a datagram */
#define UDP_JOIN_ALIGN 16
struct udp_join_head {
	uint8_t mark[4];
	/*
	 * destination QP of the first packet, at its usual place, by which Linux steers the
	 * datagram
	 */
	uint8_t zero, dqpn[3];
	uint16_t count; /* network byte order, as for the lengths */
	uint16_t len[UDP_JOIN_MAX];
};
/* The bytes of packets that fit after the header. */
#define UDP_JOIN_BYTES (UDP_MAX_DATAGRAM - sizeof(struct udp_join_head))

#define UDP_MAX_GROUPS	64
#define UDP_STAGE_ALIGN 64
/*
 * A flush precedes a new group if this many bytes are staged, so that the receiver works while the
 * rest is built.
 */
#define UDP_BATCH_BYTES (56u << 10)
/*
 * Value of port.batch. Requests of 64 bytes by lists of 32: 1.4 million/s without a batch, 2.3 with
 * 64, 2.7 with 128, no more with 256.
 */
#define UDP_BATCH	128
#define UDP_STAGE_BYTES (UDP_BATCH_BYTES + (64u << 10))

/*
 * Each receive buffer holds the longest datagram. The skew prevents the buffers from sharing a few
 * cache sets.
 */
#define UDP_RX_BUFS   64
#define UDP_RX_SPARE  2 /* buffers of exchanges, which take turns */
#define UDP_RX_STRIDE (65536 + 5 * 64)

union udp_name {
	struct sockaddr sa;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

struct udp_path {
	struct port_path path; /* first */
	struct list_head link;
	uint32_t refs;
	uint32_t mtu; /* MTU of the path as Linux reports it, IP header included; 0: unknown */
	uint8_t slot; /* slot of the peer */
	/* the path is only for QP 1. Each datagram may be for another slot, so each leaves alone */
	bool gsi;
	int sock; /* the socket that sends */
	/*
	 * UDP_SEGMENT was refused on this path: each datagram has one packet, with identification 0
	 */
	bool no_gso;
	bool probed;	   /* a route exists, and `mtu` comes from Linux */
	bool error_logged; /* its error was logged */
	bool mtu_logged;   /* a report of a smaller MTU was logged */
	/*
	 * a longer packet is sent without the smaller one after it, because more packets of the
	 * smaller size follow
	 */
	bool first_alone;
	bool joins; /* the port of the peer accepts packets of different lengths in one datagram */
	struct icrc_flow flow; /* flow to compute ICRCs again */
	union udp_name name;
};

/*
 * Contiguous packets of one destination and type of service: one datagram, or one call with
 * UDP_SEGMENT. Either all packets have one size and the last may be smaller, or the path accepts
 * packets of different lengths.
 */
struct udp_group {
	struct udp_path *path; /* NULL: the path is gone, and its packets are dropped */
	uint8_t *data;
	uint32_t bytes;
	uint16_t size; /* bytes of every packet but the last, which may be smaller */
	uint16_t count;
	uint16_t sent; /* packets of the group that were already sent singly */
	uint8_t tos;
	bool closed; /* no packet may follow, because the last one is smaller */
	bool mixed;
	/* for a path that joins packets: their lengths, filled in as packets are added */
	struct udp_join_head head;
};

struct udp_tx {
	uint8_t *stage; /* UDP_STAGE_BYTES */
	uint32_t used;
	unsigned first, count; /* groups [first, count) wait */
	bool blocked;	       /* Linux had no space; the batch is kept */
	/* a failed send is repeated, because an earlier packet may have caused the error */
	bool retry_send;
	/* bytes of the last reservation, while it can be cancelled ... */
	uint32_t reserved;
	bool was_closed, was_mixed; /* ... and the state of its group before it */
	uint16_t max_segs;	    /* the most packets of a group; 1: no UDP_SEGMENT */
	struct udp_group group[UDP_MAX_GROUPS];
};

/* A received datagram, and the position of the next packet to hand out. */
struct udp_rx_buf {
	struct pkt_addr src, dst;
	uint8_t *data;
	uint32_t len, off, seg;
	/*
	 * the lengths of mixed packets; NULL: all packets have `seg` bytes, except that the last
	 * may be shorter
	 */
	const struct udp_join_head *head;
	uint16_t sport, index; /* index: place of the next packet in its datagram */
	uint8_t tos, flags;
};

struct udp_rx {
	uint8_t *mem; /* UDP_RX_STRIDE for each buffer */
	struct mmsghdr *msgs;
	unsigned next, count; /* buffers [next, count) hold packets to hand out */
	unsigned want;	      /* datagrams to request in one call */
	unsigned got;	      /* datagrams of the last look that found any */
	bool group;	      /* the datagrams are from the socket of a multicast group */
	bool adopted;	      /* the datagrams were for a program that has ended */
	unsigned ahead;	      /* the buffer with a datagram of an exchange; 0: none */
	unsigned spare;	      /* the buffer of the next exchange */
	struct udp_rx_buf buf[UDP_RX_BUFS + UDP_RX_SPARE];
};

struct udp_exchange {
	struct uring ring;
	struct exchange_history history;
	bool suits; /* the last burst was a group of packets */
	bool disabled;
};

struct udp_mail;

/* A member of the pool that sends over loopback. */
struct udp_known {
	struct pkt_addr src;
	uint64_t version; /* pool_version() at the look-up; 0: never looked up */
	uint16_t sport;
};
#define UDP_KNOWN 64

/* A multicast group that the port has joined. */
struct udp_mcast {
	struct list_head link;
	struct pkt_addr addr;
	int sock;
};

enum udp_presence { UDP_ABSENT, UDP_PRESENT, UDP_UNKNOWN };

/* An address, and whether a socket receives there. */
struct udp_found {
	struct pkt_addr addr;
	enum udp_presence there;
};
#define UDP_EXPECT_MAX	64
#define UDP_READER_BITS 8192

/* The addresses whose first `len` bits are those of `addr`. */
struct udp_prefix {
	struct pkt_addr addr;
	uint8_t len;
};
#define UDP_PREFIXES 64

/* What is known about routes (udp_route.c), and when it is needed. */
struct udp_routes {
	uint64_t since;	 /* ns of port_clock() */
	uint32_t failed; /* sends from QP 1 that failed since then */
	bool known;	 /* the prefixes are those of all routes */
	unsigned count;
	struct udp_prefix prefix[UDP_PREFIXES]; /* none covers another one */
};

struct udp_port {
	struct port port; /* first */
	int sock;	  /* receives packets; it belongs to the pool */
	int out;	  /* sends packets */
	uint16_t sport;	  /* UDP source port of `out` */
	int epoll;
	struct pool *pool;
	struct pool_addr *pool_addr;
	const _Atomic uint64_t *leftovers; /* pool_addr_leftovers() */
	/* the socket of an ended program that is being emptied; -1: none */
	int leftover;
	unsigned leftover_slot;
	bool leftovers_turn; /* leftovers are read first next time */
	bool slot_used;	     /* the socket of the slot is in use */
	bool v6;
	/* events of the two sockets that the epoll set watches; 0: the socket is not in the set */
	uint32_t watched, watched_out;
	/* the interface of the address, for link-local addresses and groups; 0: unknown */
	uint32_t scope;
	/* port.mtu for packets to programs of the pool; 0: there is no other */
	uint32_t local_mtu;
	uint32_t buffer; /* bytes to request for the buffers of a socket */
	bool joins;	 /* this port may send mixed packets to ports that accept them */
	/*
	 * Linux delivers merged datagrams, and groups that it did not segment, as one datagram
	 */
	bool merge;
	struct list_head groups; /* struct udp_mcast */
	int groups_epoll;	 /* epoll set of the groups' sockets; -1: no group yet */
	bool groups_turn;	 /* the groups are read first next time */
	struct list_head paths;
	struct udp_mail *mail;
	struct udp_known known[UDP_KNOWN];
	uint32_t rcvbuf;
	bool error_pending;   /* an error that no call reports may wait on the sending socket */
	bool woken;	      /* the descriptor was readable, and nothing has come since */
	uint32_t empty_polls; /* polls without a datagram since the last look for errors */
	/*
	 * errors of the network were read since the last successful send, so the next failure may
	 * be caused by one of them
	 */
	bool errors_read;
	/* Linux keeps no errors until later, because too many came since errors_since */
	bool errors_off;
	uint32_t errors;
	uint64_t errors_since; /* ns of port_clock() */
	/* counts for paths to QP 1 at loopback addresses since gsi_since: */
	uint32_t searches;  /* lists of sockets that were read */
	uint32_t no_reader; /* addresses without a reader */
	uint32_t questions; /* addresses whose reader the kernel was asked for */
	bool listed;	    /* `readers` is from this time */
	uint64_t gsi_since;
	int diag; /* netlink socket of udp_diag.c; -1: none */
	uint32_t diag_seq;
	bool diag_tried; /* a further try to open it is in vain */
	/* what udp_expect() has found; num_found is 0 after the paths were made */
	struct udp_found found[UDP_EXPECT_MAX];
	unsigned num_found;
	/* a bit for each hash of an address that has a reader, and perhaps for others */
	uint64_t readers[UDP_READER_BITS / 64];
	struct udp_routes routes;
	struct udp_exchange exchange;
	struct udp_tx tx;
	struct udp_rx rx;
};

static inline struct udp_port *udp_port(struct port *p)
{
	return (struct udp_port *)p;
}

/* Makes the socket address of addr:port. Returns the length of the socket address. */
socklen_t udp_name(union udp_name *n, const struct pkt_addr *addr, uint16_t port, uint32_t scope);
/* Gets the address and port of a socket address. */
void udp_addr(const union udp_name *n, struct pkt_addr *addr, uint16_t *port);
/*
 * Returns true for an address that one endpoint may have: it is specified, no group and no
 * broadcast.
 */
bool udp_is_unicast(const struct pkt_addr *a);
static inline socklen_t udp_name_len(const struct udp_port *u)
{
	return u->v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* udp_open.c */
/* Sets the options that all sockets of the port need. Returns 0 or -errno. */
int udp_configure(const struct udp_port *u, int fd);

/* udp_mcast.c */
int udp_join(struct port *p, const struct pkt_addr *group);
void udp_leave(struct port *p, const struct pkt_addr *group);
/*
 * Makes packets to groups leave by the interface of the port, and reach this machine too. Returns 0
 * or -errno.
 */
int udp_mcast_out(const struct udp_port *u, int fd);
/* Returns a group whose socket has packets, or NULL if there is none. */
struct udp_mcast *udp_mcast_ready(struct udp_port *u);
/* Closes the sockets of all groups and their epoll set. */
void udp_mcast_close(struct udp_port *u);

/* udp_path.c */
struct port_path *udp_path_get(struct port *p, const struct pkt_addr *dst, uint32_t dqpn);
void udp_path_put(struct port *p, struct port_path *path);
uint32_t udp_qp_mtu(struct port *p, const struct pkt_addr *dst, uint32_t dqpn, uint32_t mtu);
/* Asks for the readers of loopback addresses, for udp_path_get(). */
void udp_expect(struct port *p, const struct pkt_addr *dst, unsigned n);
/* Logs, once for each path, that a send failed permanently. */
void udp_path_warn(struct udp_port *u, struct udp_path *path, int rc, uint32_t len);

/*
 * Logs, once for each path, that an ICMP error limits the path to `mtu` bytes, IP header included.
 * The error may be forged.
 */
void udp_path_too_long(struct udp_port *u, const struct pkt_addr *dst, uint32_t mtu);

/* udp_diag.c */
/*
 * Finds out whether a socket of this network namespace receives at the address and port 4791. Makes
 * two system calls.
 */
enum udp_presence udp_diag(struct udp_port *u, const struct pkt_addr *dst);
/*
 * Does the same for n addresses, at most UDP_EXPECT_MAX, with two or three system calls. Where
 * there is no answer, the result is UDP_UNKNOWN.
 */
void udp_diag_all(struct udp_port *u, struct udp_found *found, unsigned n);
void udp_diag_close(struct udp_port *u);

/* udp_route.c */
/* Counts a send from QP 1 that failed. May read the list of routes. */
void udp_route_failed(struct udp_port *u);
/*
 * Returns false if many sends from QP 1 failed lately, and no route covered this address then.
 * Makes no system call.
 */
bool udp_route_may_exist(const struct udp_port *u, const struct pkt_addr *dst);

/* udp_reader.c */
enum port_reader udp_reader(struct port *p, const struct port_path *path);
/* Fills in `readers` from the list of all sockets. */
void udp_readers_list(struct udp_port *u);
/* Returns false if no socket received at this address when the list was read. */
bool udp_readers_may_have(const struct udp_port *u, const struct pkt_addr *addr);
/*
 * Returns true if a socket of this network namespace has the address and port 4791. Reads a whole
 * file of /proc.
 */
bool udp_reader_is_there(const struct udp_port *u, const struct pkt_addr *addr);

/* udp_tx.c */
int udp_tx_init(struct udp_port *u);
/* Frees the memory of the sending side. Waiting packets are lost. */
void udp_tx_fini(struct udp_port *u);
int udp_reserve(struct port *p, struct port_path *path, uint32_t len, uint8_t tos,
		struct port_buf *buf);
void udp_cancel(struct port *p);
bool udp_flush(struct port *p);
/* Removes a path. Its waiting packets are sent first; they are lost if this fails. */
void udp_tx_forget(struct udp_port *u, const struct udp_path *path);

/* udp_join.c */
/*
 * Returns true if the port at the end of the path accepts joined packets. Looks it up at each call.
 * Control path.
 */
bool udp_join_path(const struct udp_port *u, const struct udp_path *path);
/*
 * Completes the header of a group of mixed packets; `bth` is its first packet. Returns the length
 * of the header on the wire.
 */
uint32_t udp_join_close(struct udp_join_head *h, uint16_t count, const uint8_t *bth);
/*
 * Returns the header of a datagram with mixed packets, and sets *skip to the length of the header.
 * Returns NULL if there is no header, or if its lengths do not add up to `len`.
 */
const struct udp_join_head *udp_join_open(const uint8_t *data, uint32_t len, uint32_t *skip);

/* udp_rx.c */
int udp_rx_init(struct udp_port *u);
void udp_rx_fini(struct udp_port *u);
int udp_rx_burst(struct port *p, struct port_pkt *pkts, int max);
static inline bool udp_rx_waiting(const struct udp_port *u)
{
	return u->rx.next < u->rx.count || u->rx.ahead;
}
/* Returns true if datagrams of programs that have ended may wait. Makes no system call. */
static inline bool udp_leftovers_wait(const struct udp_port *u)
{
	return u->leftover >= 0 || atomic_load_explicit(u->leftovers, memory_order_acquire);
}

/*
 * Returns false if a datagram of an exchange would be in the way: other packets, sockets or errors
 * are to be read, or a thread sleeps on the port.
 */
bool udp_rx_may_receive(const struct udp_port *u);
/* Returns the arguments of recvmsg() for the datagram of an exchange. */
struct msghdr *udp_rx_spare(struct udp_port *u);
/* An exchange has received `len` bytes, or failed to (-errno). */
void udp_rx_ahead(struct udp_port *u, int len);

/*
 * udp_exchange.c
 *
 * Sends m, and receives a datagram for the next burst, if this pays and no thread sleeps on the
 * port. Returns false if the datagram was not sent: the caller sends it.
 */
bool udp_exchange(struct udp_port *u, int sock, struct msghdr *m);

/*
 * udp_err.c
 *
 * Reads the errors that wait on the socket and leaves hints of them. Returns true if any error came
 * from the network. To be called after a failed call on the socket: any call reports errors of
 * earlier packets, and unread errors keep waking a sleeper.
 */
bool udp_take_errors(struct udp_port *u);
/* Sets whether Linux keeps the errors. Returns 0 or -errno. */
int udp_set_recverr(const struct udp_port *u, int fd, bool enable);
/* Makes Linux keep errors again, some time after there were too many. */
void udp_resume_errors(struct udp_port *u);

/* udp_mail.c */
#define UDP_MAIL_BYTES 65000
#define UDP_MAIL_OUT   PORT_MAX_LANES /* number of slots for which mail is collected at a time */
int udp_mail_open(struct udp_port *u);
void udp_mail_close(struct udp_port *u);
/*
 * Copies a packet of another slot; udp_mail_flush() sends it. Returns false if no program has the
 * slot.
 */
bool udp_mail_pass(struct udp_port *u, unsigned slot, const struct port_pkt *pkt);
/* Sends the collected mail. Mail that does not fit into the buffer of the receiver is lost. */
void udp_mail_flush(struct udp_port *u);
/* Returns true if mail waits. Makes no system call. */
bool udp_mail_waits(const struct udp_port *u);
/* Makes the next burst look for mail that was not counted yet. */
void udp_mail_look(struct udp_port *u);
/* Hands out packets of mail. They stay valid until the next call. */
int udp_mail_take(struct udp_port *u, struct port_pkt *pkts, int max);

/* The abilities of Linux, and the cost of a packet in a receive buffer. */
struct udp_abilities {
	uint16_t max_segs; /* 1: no UDP_SEGMENT */
	/* bytes of receive buffer that a single packet of the largest size takes */
	uint32_t cost;
};
/*
 * Probes Linux: sends from `addr` to `addr` on sockets of its own. `len` is the length of the
 * largest packet in bytes.
 */
void udp_probe(const struct pkt_addr *addr, uint32_t scope, uint32_t len,
	       struct udp_abilities *out);

/* ---- udp_owner.c ---- */

struct udp_holder {
	/* as this process sees it; 0 is also the value for a socket of Linux */
	unsigned uid;
	unsigned long inode; /* inode number of the socket */
};
/*
 * Finds the socket that has port 4791 of an address, or of all addresses. Returns false if no such
 * socket is visible.
 */
bool udp_owner(const struct pkt_addr *addr, struct udp_holder *h);

#endif
