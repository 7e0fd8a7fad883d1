/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The udp port inside: an unconnected socket bound to our address and port 4791, for each lane.
 *
 *   udp_open.c	  socket, address, MTU, windows
 *   udp_path.c	  destinations
 *   udp_tx.c	  staging memory, groups for UDP_SEGMENT, what to do when the kernel refuses
 *   udp_join.c	  packets of different lengths in one datagram, between two ports of one machine
 *   udp_rx.c	  datagrams (merged by UDP_GRO) cut into packets
 *   udp_err.c	  what the network says of packets that we sent
 *   udp_mcast.c  groups: a socket for each
 *   udp_lanes.c  several sockets of one address: steering, and packets that came to the wrong one
 *   udp_probe.c  what the running kernel can do, found out once
 *
 * All functions: [owner], the thread that owns the processing unit, unless they say otherwise.
 */
#ifndef ROOST_PORT_UDP_H
#define ROOST_PORT_UDP_H

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include "base/list.h"
#include "packet/headers.h"
#include "port/port_impl.h"

/* Not in the headers of every libc. Values: include/uapi/linux/udp.h. */
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

/* The kernel's UDP_MAX_SEGMENTS: 64, since Linux 6.9 128. */
#define UDP_SEGS_OLD 64
#define UDP_SEGS_NEW 128
/* Longest UDP payload that IPv4's 16-bit length holds; IPv6 would take 20 bytes more. */
#define UDP_MAX_DATAGRAM (65535 - 20 - 8)

/*
 * What stands ahead of packets of different lengths that share a datagram (udp_join.c). The first
 * byte stands where a packet has its op-code: 0xff is among those that InfiniBand leaves to
 * manufacturers, and no packet of ours has it. Zeroes fill the last 16 bytes.
 */
#define UDP_JOIN_MAX   123 /* packets a datagram */
#define UDP_JOIN_ALIGN 16
struct udp_join_head {
	uint8_t mark[4];
	uint8_t zero,
		dqpn[3]; /* of the first packet, where that has it: the kernel steers a datagram to a lane by it */
	uint16_t count; /* network byte order, as the lengths */
	uint16_t len[UDP_JOIN_MAX];
};
/* Bytes of packets that fit behind it. */
#define UDP_JOIN_BYTES (UDP_MAX_DATAGRAM - sizeof(struct udp_join_head))

#define UDP_MAX_GROUPS	64
#define UDP_STAGE_ALIGN 64
/*
 * So much staged is sent before a new group is begun, so that the receiver works while the rest is
 * built.
 */
#define UDP_BATCH_BYTES (56u << 10)
/*
 * Requests of 64 bytes by lists of 32: 1.4 million/s without, 2.3 with 64, 2.7 with 128, no more
 * with 256.
 */
#define UDP_GATHER	128
#define UDP_STAGE_BYTES (UDP_BATCH_BYTES + (64u << 10))

/*
 * A receive buffer holds the longest datagram; the skew keeps buffers from sharing the same few
 * cache sets.
 */
#define UDP_RX_BUFS   64
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
	uint32_t mtu; /* the kernel's idea of the path's, IP header included; 0: unknown */
	uint8_t slot; /* of the peer */
	uint8_t lane; /* of the peer, which is taken to have as many as we do */
	/* UDP_SEGMENT was refused on the way there: one packet a datagram, identification 0 */
	bool single;
	bool probed; /* there is a way, and `mtu` is what the kernel said of it */
	bool warned; /* its error was logged; */
	bool told;   /* so was what somebody says of its MTU */
	/* a packet goes without the smaller one behind it: others of the smaller size follow */
	bool apart;
	bool joins; /* the port there takes packets of different lengths in one datagram */
	struct icrc_flow flow; /* to build ICRCs anew */
	union udp_name name;
};

/*
 * Packets of one destination and type of service, contiguous: one datagram, or one call of
 * UDP_SEGMENT. They are of one size, and the last may be smaller, or the path takes them mixed.
 */
struct udp_group {
	struct udp_path *path; /* NULL: gone, and the packets with it */
	uint8_t *data;
	uint32_t bytes;
	uint16_t size; /* of every packet but the last, which may be smaller */
	uint16_t count;
	uint16_t sent; /* packets of it that went singly already */
	uint8_t tos;
	bool closed; /* no packet of the same size fits behind a smaller last one */
	bool mixed;
	/* of a path that joins: the lengths, filled in as packets come */
	struct udp_join_head head;
};

struct udp_tx {
	uint8_t *stage; /* UDP_STAGE_BYTES */
	uint32_t used;
	unsigned first, count;	    /* groups [first, count) wait */
	bool blocked;		    /* the kernel had no room; the batch is kept */
	bool again;		    /* what failed for an error of doubtful origin is tried again */
	uint32_t reserved;	    /* bytes of the last reservation, while it can be taken back; */
	bool was_closed, was_mixed; /* and what its group was before */
	uint16_t max_segs;	    /* a group's; 1: no UDP_SEGMENT */
	struct udp_group group[UDP_MAX_GROUPS];
};

/* A datagram received, and how far it has been handed out. */
struct udp_rx_buf {
	struct pkt_addr src, dst;
	uint8_t *data;
	uint32_t len, off, seg;
	/* the lengths of mixed packets; NULL: all have seg bytes, the last perhaps fewer */
	const struct udp_join_head *head;
	uint16_t sport, index; /* index: of the next packet in its datagram */
	uint8_t tos, flags;
};

struct udp_rx {
	uint8_t *mem; /* UDP_RX_BUFS * UDP_RX_STRIDE */
	struct mmsghdr *msgs;
	unsigned next, count; /* buffers [next, count) hold packets to hand out */
	unsigned want;	      /* datagrams to ask for at a time */
	bool group;	      /* they are from a group's socket */
	struct udp_rx_buf buf[UDP_RX_BUFS];
};

struct udp_lanes;

/* A group that we are a member of. */
struct udp_mcast {
	struct list_head link;
	struct pkt_addr addr;
	int sock;
};

struct udp_port {
	struct port port; /* first */
	int sock, epoll;
	int join; /* says that this address takes mixed packets; -1: it does not */
	bool v6;
	/* events that the epoll looks for at the socket; 0: it is not in the epoll */
	uint32_t watched;
	/* the interface that has our address: for link-local addresses and groups; 0: unknown */
	uint32_t scope;
	uint32_t buffer;	 /* bytes to ask for as a socket's buffers */
	bool joins;		 /* may send mixed packets to those who take them */
	bool merge;		 /* what the kernel merged, or never cut, is taken whole */
	struct list_head groups; /* struct udp_mcast */
	int groups_epoll;	 /* of their sockets; -1: no group yet */
	bool groups_turn;	 /* to be looked at first */
	struct list_head paths;
	struct udp_lanes *lanes; /* NULL: one lane */
	uint32_t rcvbuf;
	bool unsure; /* an error may wait on the socket that no call will report */
	/*
	 * errors from the network were taken since something could be sent: the next failure may be
	 * theirs
	 */
	bool doubt;
	bool errors_off; /* the kernel keeps no errors: there were too many since */
	uint32_t errors;
	uint64_t errors_since; /* ns of port_clock() */
	struct udp_tx tx;
	struct udp_rx rx;
};

static inline struct udp_port *udp_port(struct port *p)
{
	return (struct udp_port *)p;
}

/* Socket address of addr:port. Returns its length. */
socklen_t udp_name(union udp_name *n, const struct pkt_addr *addr, uint16_t port, uint32_t scope);
void udp_addr(const union udp_name *n, struct pkt_addr *addr, uint16_t *port);
/* An address that one endpoint may have: not the unspecified one, no group, no broadcast. */
bool udp_is_unicast(const struct pkt_addr *a);
static inline socklen_t udp_name_len(const struct udp_port *u)
{
	return u->v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* udp_open.c */
/* What all our sockets have in common. 0 or -errno. */
int udp_configure(const struct udp_port *u, int fd);

/* udp_mcast.c */
int udp_join(struct port *p, const struct pkt_addr *group);
void udp_leave(struct port *p, const struct pkt_addr *group);
/*
 * What the socket sends to groups leaves by our interface, and is heard on this machine too. 0 or
 * -errno.
 */
int udp_mcast_out(const struct udp_port *u, int fd);
/* A group whose socket has packets; NULL: none. */
struct udp_mcast *udp_mcast_ready(struct udp_port *u);
void udp_mcast_close(struct udp_port *u);

/* udp_path.c */
struct port_path *udp_path_get(struct port *p, const struct pkt_addr *dst, uint32_t dqpn);
void udp_path_put(struct port *p, struct port_path *path);
/* Something sent to it failed for good: says so, once a path. */
void udp_path_warn(struct udp_port *u, struct udp_path *path, int rc, uint32_t len);

/*
 * An ICMP error says that the path takes no more than `mtu` bytes, IP header included: says so,
 * once a path. It may be forged.
 */
void udp_path_too_long(struct udp_port *u, const struct pkt_addr *dst, uint32_t mtu);

/* udp_reader.c */
enum port_reader udp_reader(struct port *p, const struct port_path *path);

/* udp_tx.c */
int udp_tx_init(struct udp_port *u);
void udp_tx_fini(struct udp_port *u);
int udp_reserve(struct port *p, struct port_path *path, uint32_t len, uint8_t tos,
		struct port_room *room);
void udp_cancel(struct port *p);
bool udp_flush(struct port *p);
/* The path goes away: what waits for it goes first, or is lost. */
void udp_tx_forget(struct udp_port *u, const struct udp_path *path);

/* udp_join.c */
/* Lets the other ports of this machine know that this one takes mixed packets. [control] */
void udp_join_offer(struct udp_port *u);
/* Does the port at the path's end? Looks anew each time. [control] */
bool udp_join_path(const struct udp_port *u, const struct udp_path *path);
/*
 * Completes the head of a group of mixed packets, of which the first one is given. Returns its
 * length on the wire.
 */
uint32_t udp_join_close(struct udp_join_head *h, uint16_t count, const uint8_t *bth);
/*
 * The head of a datagram that has one, and *skip, its length; NULL: none, or what it says does not
 * add up to len.
 */
const struct udp_join_head *udp_join_open(const uint8_t *data, uint32_t len, uint32_t *skip);

/* udp_rx.c */
int udp_rx_init(struct udp_port *u);
void udp_rx_fini(struct udp_port *u);
int udp_rx_burst(struct port *p, struct port_pkt *pkts, int max);
static inline bool udp_rx_waiting(const struct udp_port *u)
{
	return u->rx.next < u->rx.count;
}

/*
 * udp_err.c. Takes the errors that wait on the socket, leaves hints of them; true when there were
 * any from the network. A call on the socket failed: errors of packets sent before are reported by
 * any call, and keep a sleeper awake until they are taken.
 */
bool udp_take_errors(struct udp_port *u);
/* Whether the kernel keeps them for us. 0 or -errno. */
int udp_set_heard(const struct udp_port *u, int fd, bool heard);
/* After too many, when their time is over: the kernel is to keep them again. */
void udp_hear_errors(struct udp_port *u);

/*
 * udp_lanes.c. The group a socket belongs to is found by address and number of lanes, process-wide.
 * join: [control], after bind; makes the kernel steer. 0 or -errno.
 */
int udp_lanes_join(struct udp_port *u);
void udp_lanes_leave(struct udp_port *u);
/* Copies a packet that belongs to another lane of ours into its inbox; false: no room there. */
bool udp_lanes_pass(struct udp_port *u, unsigned lane, const struct port_pkt *pkt);
/* A hint for all other lanes: the error came to the socket of one of them. */
void udp_lanes_hint(struct udp_port *u, const struct port_hint *hint);
/*
 * Hands out packets (and hints, to the port) that other lanes left for us; they stay valid until
 * udp_lanes_free().
 */
int udp_lanes_take(struct udp_port *u, struct port_pkt *pkts, int max);
void udp_lanes_free(struct udp_port *u);
/* Before sleeping: false when packets are there. */
bool udp_lanes_arm(struct udp_port *u);
void udp_lanes_disarm(struct udp_port *u);

/* What the kernel can do, and what a packet costs in a receive buffer. */
struct udp_abilities {
	uint16_t max_segs; /* 1: no UDP_SEGMENT */
	/* bytes of receive buffer that one packet of full size takes when it comes alone */
	uint32_t cost;
};
/*
 * Asks the kernel by sending to ourselves, from `addr` to `addr`, on sockets of its own. len: of a
 * packet of full size.
 */
void udp_probe(const struct pkt_addr *addr, uint32_t scope, uint32_t len,
	       struct udp_abilities *out);

#endif
