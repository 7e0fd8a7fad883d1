/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A port sends and receives packets. The core (src/nic) uses only this table of functions.
 *
 * A packet here is BTH .. ICRC. Addresses, type of service and identification are passed
 * separately. The core builds a packet in place: it reserves a buffer in the memory of the port,
 * writes headers, payload and ICRC there, and flushes a burst. Received packets are descriptors of
 * memory of the port, valid until the next rx_burst.
 *
 * A port object is one lane. It belongs to one processing unit, and one thread at a time drives it
 * (the owner of the PU). A NIC with two PUs opens two lanes of the same address. The port steers a
 * received packet to a lane by its destination QP number (PORT_LANE_OF_QPN).
 */
#ifndef ROOST_PORT_PORT_H
#define ROOST_PORT_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "packet/icrc.h"

/*
 * The most packets that one rx_burst returns. All packets of a UDP_SEGMENT datagram fit, so one
 * acknowledgement covers all of them.
 */
#define PORT_BURST     128
#define PORT_MAX_LANES 4

/*
 * QP numbers: slot (6 bits) | index (14) | generation (4). The slot distinguishes the NICs that
 * share an address. Communication ids begin with the slot, too. The lane is the index modulo the
 * number of lanes.
 */
#define PORT_SLOTS		     64
#define PORT_SLOT_OF_QPN(qpn)	     ((qpn) >> 18 & (PORT_SLOTS - 1))
#define PORT_SLOT_OF_CM_ID(id)	     ((id) >> 26)
#define PORT_INDEX_OF_QPN(qpn)	     ((qpn) >> 4 & 0x3fff)
#define PORT_LANE_OF_QPN(qpn, lanes) (PORT_INDEX_OF_QPN(qpn) % (lanes))

/*
 * A sender may not know how many lanes its peer has, and a peer that starts again may have another
 * number. The lane key of a QP number tells the lane for each number of lanes: it is the key modulo
 * that number.
 */
#define PORT_LANE_KEYS		  12
#define PORT_LANE_KEY_OF_QPN(qpn) PORT_LANE_OF_QPN(qpn, PORT_LANE_KEYS)
#define PORT_QPN_OF_LANE_KEY(key) ((uint32_t)(key) << 4) /* a QP number with this key, slot 0 */
_Static_assert(PORT_LANE_KEYS % 3 == 0 && PORT_LANE_KEYS % 4 == 0 && PORT_MAX_LANES == 4,
	       "divisible by every number of lanes");

struct port;

/*
 * A destination. All QPs of a lane that send to the same address, slot and lane share it. The port
 * sets the fields when it makes the path; they do not change.
 */
struct port_path {
	struct pkt_addr dst;
	/* UDP source port of packets to this destination (host order), for the ICRC */
	uint16_t sport;
	/*
	 * like `batch` of the port, but for this path: the host port has two kinds of paths
	 * (port/host.c)
	 */
	uint16_t batch;
	uint8_t lag;
	uint32_t window, read_window;
	/*
	 * number of the process that reads the packets; 0: unknown. A later owner of the same slot
	 * has another number
	 */
	uint32_t owner;
	struct port *port; /* the port that made the path; it may be inside of another port */
			   /* each kind of port appends its own state in a derived struct */
};

struct port_buf {
	uint8_t *bth;	/* `len` bytes to fill, BTH .. ICRC */
	uint16_t ip_id; /* the IP identification of the packet, which the ICRC covers */
};

enum port_pkt_flags {
	PORT_ID_KNOWN = 1 << 0, /* ip_id comes from the header; otherwise it is a prediction */
	PORT_CE = 1 << 1,	/* congestion experienced */
	/* the IPv4 header had DF clear; only the check of the ICRC shows this, and sets the flag */
	PORT_NO_DF = 1 << 2,
};

struct port_pkt {
	/*
	 * writable; valid until the next rx_burst. A hostile peer may change it at any time on shm
	 */
	uint8_t *bth;
	const struct pkt_addr *src, *dst;
	uint32_t len; /* BTH .. ICRC */
	uint16_t sport, ip_id;
	uint8_t tos;
	uint8_t flags;
};

/* Counters of every port. `roost stat` prints them. */
struct port_stats {
	uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes; /* BTH .. ICRC */
	/* system calls; on shm, publications of an index */
	uint64_t rx_bursts, tx_bursts;
	uint64_t rx_bad;     /* refused by the port, or lost between slots (udp_mail.c) */
	uint64_t tx_dropped; /* the port could not send the packet */
	uint64_t tx_blocked; /* reserve returned -EAGAIN */
	/* the packets of the host port that used shared memory; the counts above include them */
	uint64_t rx_shm_packets, tx_shm_packets;
	/*
	 * paths of a host port to host ports of its pool that take udp, because no ring could be
	 * made
	 */
	uint64_t tx_shm_fallbacks;
};

/* The state of the process that reads the packets of a path. */
enum port_reader {
	PORT_READER_UNKNOWN, /* unknown: the process is on another machine, or does not exist */
	PORT_READER_READS,   /* it has read all packets */
	/*
	 * the process lives but has not read them: it is stopped (signal, debugger) or gets no CPU
	 */
	PORT_READER_STALLED,
};

/*
 * The progress of a reader. It begins with zeros. The port sets `taken`; the other fields are the
 * core's notes about a wait for this reader.
 */
struct port_progress {
	uint64_t taken; /* a number that changes when the reader takes packets */
	uint64_t seen;	/* `taken` at the last failed reservation of the core ... */
	uint64_t since; /* ... and the time when the core first saw this number */
	bool noted;	/* `seen` and `since` are valid */
};

struct port_ops {
	const char *name;

	/*
	 * Finds or makes the path to an address, which may be a group. Control path: may make
	 * system calls. path_put drops the reference. Returns NULL with errno set if the address
	 * cannot be reached in principle (address family, no route). If the peer is absent now,
	 * this is no error: packets to it are lost, and the port looks for it again from time to
	 * time.
	 */
	struct port_path *(*path_get)(struct port *p, const struct pkt_addr *dst, uint32_t dqpn);
	void (*path_put)(struct port *p, struct port_path *path);

	/*
	 * Returns the MTU of a connected QP whose program states `mtu` (256 .. 4096), and whose
	 * peer is `dqpn` at `dst`. It is never smaller. The port of the peer returns the same
	 * number if it is told the same one. Control path: may make system calls. NULL: it is
	 * `mtu`.
	 */
	uint32_t (*qp_mtu)(struct port *p, const struct pkt_addr *dst, uint32_t dqpn, uint32_t mtu);

	/*
	 * Says that paths from QP 1 to these addresses are about to be asked for, so that the port
	 * may find out about all of them at once. What it finds is used until the next call; n is 0
	 * when the paths were made. NULL: the port needs no system call for them.
	 */
	void (*expect)(struct port *p, const struct pkt_addr *dst, unsigned n);

	/*
	 * Returns the state of the reader. The core calls this before it declares a silent peer
	 * dead. May make system calls. NULL: the port never knows the reader.
	 */
	enum port_reader (*reader)(struct port *p, const struct port_path *path);

	/*
	 * After -EAGAIN of reserve: returns the progress of the reader of the path, so that the
	 * core notices a reader that takes no packets. Paths whose packets wait for each other have
	 * the same one, and the next reader of a path has another one. It is valid until the next
	 * call of the port. Returns NULL if the space does not depend on the reader. Makes no
	 * system call. NULL: it never does.
	 */
	struct port_progress *(*progress)(struct port *p, const struct port_path *path);

	/*
	 * join: makes the port receive packets to the group, with the address of the group as dst.
	 * These include packets from this port and from others on the same machine. A sender need
	 * not be a member. The caller counts its users and joins a group once. Control path: may
	 * make system calls. Returns 0, -EAFNOSUPPORT (other address family), -ENOMEM, or another
	 * error of the host.
	 *
	 * leave: ends the membership.
	 */
	int (*join)(struct port *p, const struct pkt_addr *group);
	void (*leave)(struct port *p, const struct pkt_addr *group);

	/*
	 * Reserves a buffer for one packet of exactly `len` bytes with this type of service.
	 * Returns 0, or -EAGAIN if there is no space now: flush, and try again when the fd of the
	 * port is readable or at the next poll. The packet before it counts as complete, except for
	 * `lag`. Makes no system call unless a batch is full.
	 */
	int (*reserve)(struct port *p, struct port_path *path, uint32_t len, uint8_t tos,
		       struct port_buf *buf);
	/*
	 * Cancels the last reservation, because the packet cannot be built (its memory is gone).
	 * The packet before it is complete.
	 */
	void (*cancel)(struct port *p);
	/*
	 * Sends the complete packets. Returns true if no packet is left. Afterwards the port must
	 * be armed, or looked at (rx_burst) twice: a peer on shm may be going to sleep
	 * (shm_wake.c). While the port is not armed, a flush may receive packets for the next
	 * rx_burst, for which fd is not readable; arm then returns false.
	 */
	bool (*flush)(struct port *p);

	/*
	 * Fills at most `max` (<= PORT_BURST) descriptors and returns their number. Frees the
	 * packets of the previous call.
	 */
	int (*rx_burst)(struct port *p, struct port_pkt *pkts, int max);

	/*
	 * arm: called before a thread sleeps on p->fd. Returns false if there is work to do at
	 * once. p->fd is level triggered: it is readable while packets wait, or when space is free
	 * after -EAGAIN.
	 *
	 * disarm: called when the thread is awake again. It is cheap if the port is not armed.
	 * `woken`: p->fd was readable, and the call reads its cause.
	 */
	bool (*arm)(struct port *p);
	void (*disarm)(struct port *p, bool woken);

	/*
	 * Does control work, with the PU owned. The service thread calls it when p->ctl_fd is
	 * readable; other threads may call it at any time. Sets p->rests. NULL: there is none.
	 */
	void (*control)(struct port *p);

	/* Returns the counters. NULL: they are in the struct port. */
	struct port_stats (*stats)(const struct port *p);

	/*
	 * In a forked child: closes the descriptors of the parent without telling peers. `close`
	 * follows.
	 */
	void (*after_fork)(struct port *p);
	void (*close)(struct port *p);
};

/*
 * A report that a packet reached no NIC: an ICMP error, or a ring whose reader is gone. A report
 * may be forged, late or repeated. It may also be missing although there is no receiver.
 */
#define PORT_HINTS 32
struct port_hint {
	struct pkt_addr dst; /* destination of the packet */
	/* the process that the hint is about, as `owner` of the path; 0: all processes at dst */
	uint32_t owner;
	uint8_t slot; /* of that process */
	bool quotes;  /* the report comes from the network and quotes the packet: */
	uint8_t opcode;
	uint32_t dqpn, psn;
	/* transaction id of a quoted management datagram to QP 1; 0: none */
	uint64_t tid;
};

struct port {
	const struct port_ops *ops;
	struct pkt_addr addr; /* address of the port */
	/* largest path MTU whose packets fit: 256, 512, 1024, 2048 or 4096 */
	uint32_t mtu;
	/*
	 * Defaults of the paths. window: bytes in flight that a receiver of this kind can always
	 * take; 0: the port never drops packets, but blocks the sender.
	 */
	uint32_t window;
	/* READ bytes requested at a time, over all paths with a limit; 0: no limit */
	uint32_t read_window;
	/*
	 * A look (rx_burst) and a flush each cost a system call. This many small packets should
	 * share the call of a flush if they are available without waiting. 0: the calls cost
	 * nothing. rx_burst and flush may change it.
	 */
	uint16_t batch;
	/*
	 * To mask packets from a sleeper, its fd is taken out of the sleeper's epoll set, and the
	 * port stays armed. Otherwise the port is disarmed.
	 */
	bool mask_fd;
	int fd;	    /* descriptor to sleep on; -1: none (simulator) */
	int ctl_fd; /* control work; -1: none */
	/*
	 * ports with the same number receive the same groups, so one member among them is enough;
	 * 0: the port receives only its own groups
	 */
	uint32_t medium;
	uint8_t lane, lanes;
	/*
	 * Other NICs may have the same address. QP numbers of this lane begin with its slot, and
	 * the slot steers packets. If `shared` is false, the NIC chooses the slot and the field
	 * `slot` is unused.
	 */
	bool shared;
	uint8_t slot;
	/* changes when path_get() may return a path that differs from earlier ones */
	uint32_t path_generation;
	/*
	 * This many of the last reserved packets may still lack their ICRC when reserve is called.
	 * At flush all packets are complete. 0: none may. Reading a packet back while its stores
	 * wait for cache lines of the other core costs as much as building it. Where a port allows
	 * it, the ICRC is therefore better computed after the next packet was staged. The `lag` of
	 * the packet's path must allow it, too.
	 */
	uint8_t lag;
	/* -EAGAIN of reserve is about the path: other paths may have space */
	bool paths_block;
	/*
	 * ctl_fd stays readable, because a connection could not be accepted: control is to be
	 * called again after a rest (base/rest.h)
	 */
	bool rests;
	struct port_stats stats; /* read them by port_stats_of() */
	/*
	 * Hints left by rx_burst, flush and control. The driver of the port takes them by setting
	 * the number to 0.
	 */
	unsigned num_hints;
	struct port_hint hint[PORT_HINTS];
};

/*
 * Opens a lane from its specification: KIND[:ADDRESS][,OPTION=VALUE...]. KIND is host, udp or shm.
 * The options are loss= dup= reorder= corrupt= delay= seed= mtu= pcap= (fault injection and capture
 * wrap the port) and window= buffer= offload= ring= (port/open.c has the table). Without ADDRESS
 * the port chooses an address. host and udp choose the primary address of the machine, which all
 * programs of a user share; if another program has it, they choose a free address of 127/8. shm
 * chooses 10.0.0.1, or the next free address. Lanes after the first pass the address that lane 0
 * got. Control path: allocates memory.
 *
 * On failure it returns NULL, writes one line with the remedy into err (errlen bytes), and sets
 * errno: EADDRNOTAVAIL (not an address of this machine), EADDRINUSE, EAFNOSUPPORT, EINVAL (bad
 * specification, or not the address of one endpoint), ENOMEM, or the error of Linux.
 */
struct port *port_open(const char *spec, unsigned lane, unsigned lanes, char *err, size_t errlen);

#define PORT_DEFAULT_SPEC "host" /* the specification if the user gives none */

/* Returns true if `word` is the name of a kind. */
bool port_is_kind(const char *word);

/*
 * Gets the address that port_open() would take in the first process of this machine: the address in
 * the specification, or else the first choice of the kind. Opens nothing. Returns 0, or -EINVAL for
 * a bad specification; *out is then all zeros.
 */
int port_first_address(const char *spec, struct pkt_addr *out);

static inline enum port_reader port_reader_of(struct port *p, const struct port_path *path)
{
	return p->ops->reader ? p->ops->reader(p, path) : PORT_READER_UNKNOWN;
}

static inline struct port_progress *port_progress_of(struct port *p, const struct port_path *path)
{
	return p->ops->progress ? p->ops->progress(p, path) : NULL;
}

static inline uint32_t port_qp_mtu(struct port *p, const struct pkt_addr *dst, uint32_t dqpn,
				   uint32_t mtu)
{
	return p->ops->qp_mtu ? p->ops->qp_mtu(p, dst, dqpn, mtu) : mtu;
}

static inline struct port_stats port_stats_of(const struct port *p)
{
	return p->ops->stats ? p->ops->stats(p) : p->stats;
}

static inline void port_close(struct port *p)
{
	if (p)
		p->ops->close(p);
}

#endif
