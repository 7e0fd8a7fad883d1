/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A port: how packets get in and out. The core (src/nic) sees only this table of functions.
 *
 * A packet here is BTH .. ICRC; addresses, type of service and identification travel beside it. The
 * core builds in place: it reserves room in the port's own memory, writes headers, payload and ICRC
 * there, and flushes a burst. Received packets are descriptors into the port's memory, valid until
 * the next rx_burst.
 *
 * A port object is one lane: it belongs to one processing unit, and one thread drives it at a time
 * (the PU's owner). A NIC with two PUs opens two lanes of the same address; the port steers a
 * received packet to a lane by its destination QP number (PORT_LANE_OF_QPN).
 */
#ifndef ROOST_PORT_PORT_H
#define ROOST_PORT_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "packet/icrc.h"

/*
 * Most packets one rx_burst returns: those of a datagram of UDP_SEGMENT, so that they have one
 * acknowledgement.
 */
#define PORT_BURST     128
#define PORT_MAX_LANES 4

/*
 * QP numbers: slot (6 bits) | index (14) | generation (4). The slot tells apart the NICs that share
 * an address; communication ids begin with it, too. The lane is in the low bits of the index.
 */
#define PORT_SLOTS		     64
#define PORT_SLOT_OF_QPN(qpn)	     ((qpn) >> 18 & (PORT_SLOTS - 1))
#define PORT_SLOT_OF_CM_ID(id)	     ((id) >> 26)
#define PORT_LANE_OF_QPN(qpn, lanes) (((qpn) >> 4) % (lanes))

struct port;

/*
 * A destination as the port knows it. Shared by all QPs of a lane that talk to that address, and
 * slot and lane there.
 */
struct port_path {
	struct pkt_addr dst;
	/* UDP source port that our packets to it carry (host order), for the ICRC */
	uint16_t sport;
	/* the port's own state follows in its derived struct */
};

struct port_room {
	uint8_t *bth;	/* `len` bytes to fill, BTH .. ICRC */
	uint16_t ip_id; /* the identification this packet will leave with: the ICRC covers it */
};

enum port_pkt_flags {
	PORT_ID_KNOWN = 1 << 0, /* ip_id is what the header says, else it is a prediction */
	PORT_CE = 1 << 1,	/* congestion experienced */
	/* its IPv4 header had DF clear: set by who verifies the ICRC, which alone shows it */
	PORT_NO_DF = 1 << 2,
};

struct port_pkt {
	/*
	 * writable, valid until the next rx_burst; on shm a hostile peer may change it at any time
	 */
	uint8_t *bth;
	const struct pkt_addr *src, *dst;
	uint32_t len; /* BTH .. ICRC */
	uint16_t sport, ip_id;
	uint8_t tos;
	uint8_t flags;
};

/* Counters every port keeps; printed by `roost stat`. */
struct port_stats {
	uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes; /* BTH .. ICRC */
	/* system calls, or index publications */
	uint64_t rx_bursts, tx_bursts;
	uint64_t rx_bad;     /* refused before the core saw it */
	uint64_t tx_dropped; /* the port could not send it */
	uint64_t tx_blocked; /* reserve said -EAGAIN */
};

/* What a port knows of who reads what it sends. */
enum port_reader {
	PORT_READER_UNKNOWN, /* nothing: it is on another machine, or nobody is there */
	PORT_READER_READS,   /* has taken all of it */
	/* lives, and has not: its process is stopped (by a signal, a debugger), or gets no CPU */
	PORT_READER_STALLED,
};

struct port_ops {
	const char *name;

	/*
	 * Finds or makes the path to an address, which may be a group's. May do system calls:
	 * control path. The reference is dropped by path_put. NULL with errno set when the address
	 * can't be reached in principle (family, no route). A peer that is merely not there (yet)
	 * is not an error: what is sent to it is lost, and the port tries again now and then.
	 */
	struct port_path *(*path_get)(struct port *p, const struct pkt_addr *dst, uint32_t dqpn);
	void (*path_put)(struct port *p, struct port_path *path);

	/*
	 * Asked when silence is about to be taken for an end. May do system calls. NULL: it never
	 * knows.
	 */
	enum port_reader (*reader)(struct port *p, const struct port_path *path);

	/*
	 * From now on (no more) what is sent to the group comes in, with the group's address as
	 * dst: also what this port sends, and what others on the same machine do. Whoever sends
	 * need not be a member. Once a group: the caller counts its users. May do system calls:
	 * control path. 0, -EAFNOSUPPORT (of the other family), -ENOMEM, or another error of the
	 * host's.
	 */
	int (*join)(struct port *p, const struct pkt_addr *group);
	void (*leave)(struct port *p, const struct pkt_addr *group);

	/*
	 * Room for one packet of exactly `len` bytes with that type of service. 0, or -EAGAIN when
	 * there is none now (flush, and try again when the port's fd says so or at the next poll).
	 * The packet before it counts as complete, but for `lag`. No system call unless a batch is
	 * full.
	 */
	int (*reserve)(struct port *p, struct port_path *path, uint32_t len, uint8_t tos,
		       struct port_room *room);
	/*
	 * Takes the last reservation back: the packet can't be built (its memory is gone). The one
	 * before it is complete.
	 */
	void (*cancel)(struct port *p);
	/* Sends what is complete. True when nothing is left waiting. */
	bool (*flush)(struct port *p);

	/*
	 * Fills at most max (<= PORT_BURST) descriptors, returns how many. Frees those of the call
	 * before.
	 */
	int (*rx_burst)(struct port *p, struct port_pkt *pkts, int max);

	/*
	 * Before sleeping: asks to be woken through p->fd. False when there is something to do
	 * right away. Level triggered; p->fd becomes
	 * readable when packets wait, or when room came free after -EAGAIN. disarm when awake again
	 * (cheap when not armed);
	 * `woken`: p->fd was readable, and what made it so is taken.
	 */
	bool (*arm)(struct port *p);
	void (*disarm)(struct port *p, bool woken);

	/*
	 * Control work, called by the service thread with the PU owned, when p->ctl_fd is readable.
	 * NULL: none.
	 */
	void (*control)(struct port *p);

	/* In a forked child: close what the parent owns without telling peers. Then close. */
	void (*after_fork)(struct port *p);
	void (*close)(struct port *p);
};

/*
 * Somebody says that a packet of ours found nobody: an ICMP error, or a ring whose reader is gone.
 * It may be forged, late or repeated, and there may be none although nobody is there.
 */
#define PORT_HINTS 32
struct port_hint {
	struct pkt_addr dst; /* where the packet went */
	bool quotes;	     /* it comes from outside, and quotes that packet: */
	uint8_t opcode;
	uint32_t dqpn, psn;
	/* quoted from a management datagram to QP 1: its transaction id; 0: there is none */
	uint64_t tid;
};

struct port {
	const struct port_ops *ops;
	struct pkt_addr addr; /* our address on this port */
	/* largest payload (path MTU) that fits: 256, 512, 1024, 2048 or 4096 */
	uint32_t mtu;
	/*
	 * bytes in flight that a receiver of this kind surely takes; 0: the port pushes back, never
	 * drops
	 */
	uint32_t window;
	uint32_t read_window; /* READ bytes asked for at a time, per port; 0: no limit */
	/*
	 * A look (rx_burst) and a flush cost a system call each; a flush's so many small packets
	 * should share where they can be had without a wait. 0: they cost nothing.
	 */
	uint16_t gather;
	int fd;	    /* to sleep on; -1: never sleeps (simulator) */
	int ctl_fd; /* control work; -1: none */
	/*
	 * ports of the same number hear the same groups: one member among them is enough; 0:
	 * nobody's but its own
	 */
	uint32_t medium;
	uint8_t lane, lanes;
	/*
	 * Other NICs may have the same address: QP numbers of this lane have its slot, by which
	 * packets find it. Without `shared` the NIC chooses the slot, and `slot` says nothing.
	 */
	bool shared;
	uint8_t slot;
	/*
	 * When reserve is called, so many of the packets reserved last may still lack their ICRC;
	 * at flush all are complete. 0: none. Reading a packet back while its stores wait for cache
	 * lines of the other core costs as much as building it: where a port allows it, the ICRC is
	 * better computed after the next packet was staged.
	 */
	uint8_t lag;
	struct port_stats stats;
	/*
	 * Left by rx_burst, flush and control for whoever drives the port, who takes them by
	 * setting the number to 0.
	 */
	unsigned num_hints;
	struct port_hint hint[PORT_HINTS];
};

/*
 * Opens a lane from its specification: KIND[:ADDRESS][,OPTION=VALUE...] with KIND udp or shm and
 * options loss= dup= reorder= corrupt= delay= seed= mtu= pcap= (fault injection and capture wrap
 * the port), window= buffer= offload= ring= (port/open.c has the table). Without ADDRESS one is
 * chosen: the first process on a machine takes its primary address (udp) or 10.0.0.1 (shm), later
 * ones a free one. Lanes after the first pass the address that lane 0 got. On failure returns NULL
 * and writes one line that says what to do into err (errlen bytes), with errno: EADDRNOTAVAIL (not
 * this machine's), EADDRINUSE, EAFNOSUPPORT, EINVAL (the specification, or no address of one
 * endpoint), ENOMEM, or what the kernel said. Allocates; control path.
 */
struct port *port_open(const char *spec, unsigned lane, unsigned lanes, char *err, size_t errlen);

/*
 * The address that port_open() would take for the first process of this machine: the one that the
 * specification names, or the kind's first choice. Opens nothing. -EINVAL: no specification; *out
 * is then all zeros.
 */
int port_first_address(const char *spec, struct pkt_addr *out);

static inline enum port_reader port_reader_of(struct port *p, const struct port_path *path)
{
	return p->ops->reader ? p->ops->reader(p, path) : PORT_READER_UNKNOWN;
}

static inline void port_close(struct port *p)
{
	if (p)
		p->ops->close(p);
}

#endif
