/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pool: the programs of one user that share addresses, in one network namespace.
 *
 * A program owns a slot for each of its processing units. QP numbers and communication ids begin
 * with the slot of their owner. Each address has one UDP socket for each slot, all in one
 * SO_REUSEPORT group with one BPF program that steers datagrams to slots:
 *
 *	           +- socket of slot 0 --> program A
 *	datagram --+- socket of slot 1 --> program B
 *	  filter   +- socket of slot 2     (no owner: the datagram stays there)
 *
 * The first program that opens an address binds all sockets. Every program of the address has
 * duplicates of all sockets, so the order of the group does not change when a program ends. No
 * socket of the group is ever connected (it would take all datagrams of its peer), and none gets
 * SO_REUSEADDR (it would let other users bind over the group).
 *
 *	pool.c	   the membership of this process: slots, the thread that answers and watches
 *	ask.c	   requests to other members, and their answers
 *	state.c	   memory that all members map: what each member serves
 *	service.c  services: which slot listens for connection requests
 *	route.c	   management datagrams that the BPF program does not steer to their slots
 *	addr.c	   the sockets of an address
 *	leftover.c   datagrams for programs that have ended
 *	will.c	   datagrams that members leave for the others to send
 *	filter.c   the BPF program of an address
 *	view.c	   the pool as an observer sees it, which need not be a member
 *
 * Programs find each other by names in the abstract namespace of Unix sockets. It belongs to the
 * network namespace and does not depend on the environment or on a file system. Linux removes
 * a name when its owner dies. All programs check the user id of the other end.
 *
 * The functions belong to the control path. Any thread may call them, unless a function says
 * otherwise.
 */
#ifndef ROOST_POOL_POOL_H
#define ROOST_POOL_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/numbers.h"
#include "packet/icrc.h"

#define POOL_SLOTS   64
#define POOL_MAX_OWN 4 /* slots of one program: its processing units */

struct pool;
struct pool_addr;

/*
 * Makes this process a member, or adds a reference to its membership. Returns NULL with errno set;
 * EFBIG: the limit of file sizes (RLIMIT_FSIZE) is below pool_file_bytes(), which the first member
 * needs. Waits at most about a second for members that do not answer; time in which the machine did
 * not run this process does not count. pool_put() drops the reference; the last one ends the
 * membership and frees the slots. In a forked child, pool_put() only closes the descriptors of the
 * child, and pool_get() makes a new membership.
 */
struct pool *pool_get(void);
/* Drops a reference to the membership; see pool_get(). */
void pool_put(struct pool *p);
/*
 * Must be called before a fork, and after it in the parent and in the child, before any other
 * function. Meanwhile no other thread changes the pool, so that the child finds complete lists. The
 * caller serializes forks. Waits at most `ns` for each of two locks, because a signal handler may
 * fork while its own thread holds them; the child may then find a list in the middle of a change.
 */
void pool_before_fork(uint64_t ns);
void pool_after_fork(void);

/*
 * Returns true if other members did not understand this process when it founded a pool. These
 * members run another version of Roost and have addresses of their own.
 */
bool pool_is_foreign(const struct pool *p);

/* Returns the bytes of the memory that the members share. */
uint64_t pool_file_bytes(void);

/*
 * Returns the slot of processing unit `unit` (below POOL_MAX_OWN). The first call claims the slot.
 * Returns -ENOSPC if all slots have owners, or another -errno.
 */
int pool_slot(struct pool *p, unsigned unit);

/* Returns true if a living process owns the slot. Makes two system calls. */
bool pool_alive(struct pool *p, unsigned slot);

/* ---- numbers ---- */

/*
 * The numbers of a program continue after those of earlier programs, so that no number returns
 * soon. The pool remembers them as long as it has members. The memory belongs to the pool, and is
 * valid until pool_put(). The worst that a hostile member can do is to make numbers return or be
 * refused.
 */
#define POOL_ID_BITS 26
/* Returns the QP numbers of an own slot. */
struct qp_numbers *pool_qp_numbers(struct pool *p, unsigned slot);
/* Gets the sequence of memory keys, which all programs share. */
void pool_keys(struct pool *p, struct key_sequence *out);
/* Gets the sequence of communication ids of an own slot, without the bits of the slot. */
void pool_ids(struct pool *p, unsigned slot, struct sequence *out);

/* ---- addresses ---- */

/*
 * Opens the sockets of an address: those of the members that have the address, or new ones. Adds a
 * reference if this process has the address already. `scope`: the interface of a link-local
 * address, else 0. The look-ups below take a scope for any address, and use that of a link-local
 * one: on another interface it is the address of another machine.
 *
 * Returns NULL with errno set: EADDRINUSE (no member has the address, and a program outside of the
 * pool has its UDP port 4791; or the members that have it do not answer), EMFILE (members have it,
 * and its sockets do not fit into the limit of descriptors of this process), EADDRNOTAVAIL, or
 * another error of Linux. Sets *silent to the number of members that did not answer within a
 * second.
 */
struct pool_addr *pool_addr_get(struct pool *p, const struct pkt_addr *addr, uint32_t scope,
				unsigned *silent);
/* Drops a reference. The last one closes the sockets. */
void pool_addr_put(struct pool_addr *a);
/*
 * Returns 0 if other programs can use the address too. Otherwise the address has one socket, which
 * belongs to this process alone: Linux refused to steer datagrams with this -errno (a
 * container's rules, or an emulation without SO_ATTACH_REUSEPORT_CBPF), or -EMFILE: no more sockets
 * fit. The first slot in use receives all datagrams then, and passes on those of other slots
 * (port/udp_mail.c).
 */
int pool_addr_alone(const struct pool_addr *a);
/* Returns a socket with the address and UDP port 4791, for sending. It belongs to the pool. */
int pool_addr_sender(const struct pool_addr *a, unsigned slot);

/* The facts about its socket that a program tells the other programs. */
struct pool_socket {
	uint16_t sport; /* source port of its packets */
	bool joins;	/* the program accepts joined packets (port/udp_join.c) */
	bool host;	/* the socket belongs to a host port, which takes rings if it can */
	uint32_t mtu;	/* path MTU of the program's port */
	/* the same for packets between programs of the pool (port/udp_path.c); 0: `mtu` */
	uint32_t local_mtu;
	/* pool_find() also sets the members below */
	uint32_t ring;	/* pool_tell_ring(); 0: no shared memory */
	uint32_t owner; /* pool_owner() */
};

/*
 * Takes the socket of an own slot into use: empties it, and steers management datagrams without a
 * better receiver to the lowest slot in use. Returns the socket, -EADDRINUSE (this process uses the
 * slot already), or another -errno. The socket belongs to the pool: the caller neither closes nor
 * connects it.
 */
int pool_addr_use(struct pool_addr *a, unsigned slot);
/*
 * Tells the other programs about the socket. Must be called once after pool_addr_use(). Returns 0,
 * or -ENOSPC: the slot has POOL_SEEN_ADDRS addresses already, and other programs do not find it at
 * this address.
 */
int pool_addr_tell(struct pool_addr *a, unsigned slot, const struct pool_socket *sock);
/*
 * Gives up the socket of an own slot: steers its datagrams to other slots, and tells the other
 * programs.
 */
void pool_addr_unuse(struct pool_addr *a, unsigned slot);

/*
 * Leftovers are datagrams that came for a program that has ended without receiving them. Connection
 * requests among them now belong to another program. Each member that notices the end lets its
 * ports of the address take them.
 *
 * pool_addr_leftovers() returns a bit mask of the slots whose sockets have leftovers; it is valid
 * until pool_addr_put(). When the pool sets a bit, it wakes a port of the address by an empty mail.
 * pool_addr_adopt() removes a slot from the mask and stores it in *slot. It returns the socket of
 * the slot, or -1 if the mask is empty. The caller receives from the socket until it is empty, or
 * until pool_owner() of the slot is not 0. Makes no system call.
 */
const _Atomic uint64_t *pool_addr_leftovers(const struct pool_addr *a);
int pool_addr_adopt(struct pool_addr *a, unsigned *slot);

/*
 * Finds the socket that the owner of (addr, slot) has told the others about. Returns false if no
 * living program serves the slot there, as far as this pool knows. Makes two system calls.
 */
bool pool_find(struct pool *p, const struct pkt_addr *addr, uint32_t scope, unsigned slot,
	       struct pool_socket *sock);
/* Returns true if a program of the pool serves the address in any slot. */
bool pool_serves(struct pool *p, const struct pkt_addr *addr, uint32_t scope);
/*
 * Returns true if a member sends from this address and source port. The answer holds as long as
 * pool_version() does not change. Makes no system call.
 */
bool pool_sends(struct pool *p, const struct pkt_addr *addr, uint32_t scope, uint16_t sport);
/*
 * Returns true if a member that has ended sent from there in the last ten seconds, unless another
 * program has taken its slot. A datagram may be read after its sender has ended. Later any user may
 * have the port.
 */
bool pool_sent_lately(struct pool *p, const struct pkt_addr *addr, uint32_t scope, uint16_t sport);

/* ---- shared memory between members (port/shm.h) ---- */

/*
 * Returns a number that identifies the program that owns a slot, or 0 if none does, as far as this
 * pool knows. The next owner of the slot has another number. Makes no system call.
 */
uint32_t pool_owner(const struct pool *p, unsigned slot);
/*
 * Tells the others that the own slot takes rings of up to `bytes` at this address, under the name
 * of pool_ring_name(); 0: it takes none any more. To be called after pool_addr_tell().
 */
void pool_tell_ring(struct pool *p, const struct pkt_addr *addr, uint32_t scope, unsigned slot,
		    uint32_t bytes);
/*
 * Makes the name under which the owner of (addr, slot) listens for rings. Returns the length of the
 * name for bind() and connect().
 */
struct sockaddr_un;
unsigned pool_ring_name(struct sockaddr_un *n, const struct pkt_addr *addr, unsigned slot);

/* Returns a number that changes whenever a member changes its record. */
uint64_t pool_version(const struct pool *p);

/*
 * Returns the inode number that Linux lists for the socket of (addr, slot), or 0 if it is
 * unknown.
 */
uint64_t pool_inode(struct pool *p, const struct pkt_addr *addr, uint32_t scope, unsigned slot);

/*
 * What was sent by mail (port/udp_mail.c) to a slot of an address. The sender increments both after
 * it has sent: first the packets, then the mails.
 */
struct pool_mailbox {
	_Atomic unsigned mails;
	_Atomic unsigned packets; /* that the mails carried */
};
/*
 * Returns the mailbox of a slot of an address, in the memory of the pool, and stores the source
 * port of the slot. Returns NULL if no program uses the slot there. Makes no system call.
 */
struct pool_mailbox *pool_mailbox(struct pool *p, const struct pkt_addr *addr, uint32_t scope,
				  unsigned slot, uint16_t *sport);

/* ---- wills: datagrams to QP 1 that another program sends if this one is killed ---- */

#define POOL_WILLS    256 /* wills of a slot */
#define POOL_WILL_LEN 256

struct pool_will {
	struct pkt_addr src, dst;
	uint32_t scope; /* of `src`, if it is link-local */
	uint8_t tclass;
	uint8_t mad[POOL_WILL_LEN];
};

/*
 * Stores a will of an own slot at `index`, or removes it if `w` is NULL. Has no effect if `index`
 * is POOL_WILLS or more.
 */
void pool_leave_will(struct pool *p, unsigned slot, uint32_t index, const struct pool_will *w);
/*
 * Sets the function `fn` that sends the wills of a killed program, and `can`, which returns true if
 * `fn` can send from an address: this process may have opened the address, and have no port with it
 * yet. A will that it cannot send is left for another member or for a later look. The thread of the
 * pool calls them, or a thread in pool_publish() or pool_execute_wills(). NULL for both removes
 * them; they are not running any more when the call returns.
 */
void pool_execute(struct pool *p,
		  bool (*can)(void *ctx, const struct pkt_addr *src, uint32_t scope),
		  void (*fn)(void *ctx, const struct pool_will *w), void *ctx);
/*
 * Sends the wills of killed programs that this process can send, and nobody has sent. To be called
 * when `can` of pool_execute() has become true for an address.
 */
void pool_execute_wills(struct pool *p);

/* ---- observers: `roost devices`, `roost stat`, `roost doctor` ---- */

/*
 * Opens a socket that pool_visit() finds. Returns a non-blocking, listening stream socket that the
 * caller owns, or -errno. Each process may have one. To be called after pool_slot().
 */
int pool_receive_visits(const struct pool *p);
/*
 * Connects to the socket of pool_receive_visits() in the program whose first slot is `slot`.
 * Returns a blocking stream socket; -ECONNREFUSED (no program), -EPERM (the socket is another
 * user's), -EAGAIN (the program is stopped and other visitors wait), or another -errno. Sets *pid
 * to the process as this process sees it; 0: unknown.
 */
int pool_visit(unsigned slot, pid_t *pid);

#define POOL_SEEN_ADDRS 16

/* A slot that has an owner. The text and numbers come from members, and are checked. */
struct pool_seen {
	bool taken;
	bool known;    /* the members below are valid */
	uint8_t first; /* the first slot of the same program */
	pid_t pid;     /* of a first slot, as this process sees it; 0: unknown */
	unsigned num_addrs;
	struct pkt_addr addr[POOL_SEEN_ADDRS];
	uint32_t scope[POOL_SEEN_ADDRS]; /* the interface of a link-local address */
	bool ring[POOL_SEEN_ADDRS];	 /* the program takes rings there: pool_tell_ring() */
};

/* Bytes that pool_addr_print() needs: an address, %, the name of an interface. */
#define POOL_ADDR_TEXT 64
/*
 * Prints an address. A link-local one gets its interface, as in fe80::1%eth0, or the interface's
 * number if it has no name. `scope`: as in pool_addr_get(); 0: unknown. Returns buf.
 */
const char *pool_addr_print(const struct pkt_addr *addr, uint32_t scope, char buf[POOL_ADDR_TEXT]);

/*
 * Looks at all slots; the caller need not be a member. Returns the number of members that did not
 * answer, or 0 if one answered. Waits at most a second.
 */
unsigned pool_look(struct pool_seen seen[POOL_SLOTS]);

/*
 * Counts the names of this user's pool that processes of another user hold, and stores the user id
 * of one of them in *uid. Returns the number, or -errno if this system does not tell.
 */
int pool_strangers(uid_t *uid);
/* Returns 0 if this process may steer the datagrams of an address to slots, or -errno. */
int pool_can_steer(void);

/* ---- services ---- */

/*
 * Returns the membership of this process without a reference, or NULL if it has none because it has
 * no udp port.
 */
struct pool *pool_mine(void);

/*
 * Sets whether an own slot has a connection manager. Requests for a service that no program has go
 * to such a slot, which refuses them.
 */
void pool_manages(struct pool *p, unsigned slot, bool manages);

#define POOL_IPV4 1
#define POOL_IPV6 2

/*
 * Takes the name that one program of the user has at a time while it publishes a service: of two
 * programs that publish the same one at the same time, one gets it. Returns a descriptor to close
 * after pool_publish(), or -1. Waits at most a second for a program that is stopped meanwhile, or
 * for another user who holds the name, so the caller must not hold a lock that the service thread
 * takes.
 */
int pool_hold_publisher(void);
/*
 * Makes connection requests (REQ, SIDR_REQ) for a service id come to an own slot. `addr` limits
 * this to one address; NULL means all addresses of the slot of these families. `scope`: as in
 * pool_addr_get(). A listener on the exact address takes precedence. The caller called
 * pool_hold_publisher(). Returns 0, -EADDRINUSE (another program listens there), or -ENOSPC (too
 * many services).
 */
int pool_publish(struct pool *p, unsigned slot, uint64_t service, const struct pkt_addr *addr,
		 uint32_t scope, unsigned families);
/* Ends a listener of pool_publish(). The arguments are those of the call that published it. */
void pool_withdraw(struct pool *p, unsigned slot, uint64_t service, const struct pkt_addr *addr,
		   uint32_t scope, unsigned families);
/*
 * Returns the slot to which a management datagram to `addr` belongs. A connection request belongs
 * to the slot that listens on its service. Another message of connection management belongs to the
 * slot in the receiver's id, which may have no owner. Returns -1 if no slot listens, and for other
 * datagrams. Linux's filter of an address has a limited number of services, and gives a group
 * of datagrams to the slot of the first one. A slot that gets a datagram of another slot passes it
 * on. Makes no system call.
 */
int pool_management_slot(struct pool *p, const struct pkt_addr *addr, uint32_t scope,
			 const uint8_t *bth, uint32_t len);

#endif
