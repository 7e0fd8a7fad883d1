/* SPDX-License-Identifier: BSD-2-Clause */
/* Internals of the pool. Only files of src/pool include this header. */
#ifndef ROOST_POOL_CORE_H
#define ROOST_POOL_CORE_H

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/list.h"
#include "base/rest.h"
#include "pool/pool.h"
#include "pool/state.h"

#define POOL_UDP_PORT 4791
#define ANSWER_MS     1000 /* the longest pool_wait for members that do not answer */

struct pool_addr {
	struct list_head link;
	struct pool *pool;
	struct pkt_addr addr;
	uint32_t scope;
	unsigned refs;
	uint64_t in_use;	    /* bit mask of slots that this process uses here */
	_Atomic uint64_t leftovers; /* pool_addr_leftovers() */
	int alone;		    /* pool_addr_alone() */
	/*
	 * If the address is not shared (`alone`), `only` is its socket. `sock` then has `only`, or
	 * sockets that receive nothing.
	 */
	int only;
	int sock[POOL_SLOTS];
};

struct pool {
	pid_t pid; /* process of the pool: a forked child does not use the pool of its parent */
	unsigned refs;
	/*
	 * guards the lists, the slots and the descriptors; no thread waits while it holds
	 * the lock
	 */
	pthread_mutex_t lock;
	unsigned num_slots;
	uint8_t slot[POOL_MAX_OWN];
	int claim[POOL_MAX_OWN]; /* the name of this socket (abstract namespace) is the claim */
	int listener, epoll, stop;
	int state_fd;
	struct pool_state *state;
	struct list_head addrs;
	struct list_head links; /* list of struct member */
	pthread_t thread;
	bool running;
	pthread_mutex_t will_lock; /* guards the next three members; held while a function runs */
	bool (*can_execute)(void *ctx, const struct pkt_addr *src, uint32_t scope);
	void (*execute)(void *ctx, const struct pool_will *w);
	void *execute_ctx;
	struct rest rest;  /* of the listener; only for the pool's thread */
	struct rest owes;  /* answers that Linux refused for a while; the same */
	uint64_t repaired; /* pool_version() at the last repair; only the pool's thread uses it */
	bool alone;	   /* the other members could not be reached */
	bool foreign;	   /* pool_is_foreign() */
	/* 0, or the -errno with which Linux refuses programs for groups of sockets */
	int steers;
};

enum question {
	ASK_WATCH = 1, /* keep this connection: it ends when the member ends */
	ASK_STATE,
	ASK_ADDR,
};

struct ask {
	uint64_t magic; /* STATE_MAGIC */
	uint32_t what;
	uint32_t slot;
	struct pkt_addr addr;
	uint32_t scope;
	uint32_t pad;
};

/* ---- pool.c ---- */

/*
 * Reclaims a slot of a dead program: removes its ownership. Returns false if the owner lives. The
 * caller then calls pool_execute_wills(), without the lock.
 */
bool pool_reclaim_slot(struct pool *p, unsigned slot);

/* ---- ask.c ---- */

/* kinds of names in the abstract namespace */
enum name_kind { NAME_CLAIM, NAME_MEMBER, NAME_FOUNDER, NAME_PUBLISHER, NAME_STAT, NAME_KINDS };

/*
 * Makes a name in the abstract namespace for a slot. Returns its length for bind() and connect().
 */
socklen_t pool_name(struct sockaddr_un *n, enum name_kind kind, unsigned slot);
/* Binds a name without a listener. Returns a descriptor, -EADDRINUSE, or another -errno. */
int pool_bind_name(enum name_kind kind, unsigned slot);
/* Returns true if the process at the other end belongs to this user. */
bool pool_same_user(int fd);
/*
 * Connects to a name of a slot, with a non-blocking socket of this type. The other end must be a
 * process of this user. Returns a descriptor or -errno.
 */
int pool_connect(enum name_kind kind, int type, unsigned slot);
/*
 * Asks all members other than this process, and takes the first answer with `want` descriptors.
 * Returns their number, 0 if no member has them, or -errno. Sets *silent to the number of members
 * that did not answer in time, and *hung_up if a member hung up instead of answering, as members
 * with another STATE_MAGIC do.
 */
int pool_ask(const struct pool *p, const struct ask *ask, int *fds, unsigned want, unsigned *silent,
	     bool *hung_up);
/*
 * Sends an answer with `n` descriptors, which may be 0. Does not block. Returns 0 or -errno;
 * -ETOOMANYREFS: too many descriptors of this user are under way.
 */
int pool_answer(int fd, const int *fds, unsigned n);
/* Moves a descriptor out of the low numbers, which select(2) needs. Returns the new descriptor. */
int pool_high(int fd);
/* Raises the soft limit of descriptors, so that the sockets of many addresses fit. */
void pool_raise_limit(void);
void pool_sleep_ms(unsigned ms);
/*
 * A wait for other programs. Each look counts at most a few milliseconds, whatever time has passed:
 * on a machine that is too busy, or was halted, this process did not run either. A plain deadline
 * would then end before the others had a chance, or although their answers had come.
 */
struct pool_wait {
	unsigned left; /* ms */
	uint64_t last; /* pool_clock_ms() of the last look */
};

struct pool_wait pool_wait_begin(unsigned ms);
/* Counts a look. Returns the milliseconds until the next one, or 0 if the wait is over. */
unsigned pool_wait_look(struct pool_wait *w);
/* Returns the milliseconds of a monotonic clock. */
uint64_t pool_clock_ms(void);

/* ---- addr.c ---- */

/* Returns the address if this process has it, or NULL. Lock held. */
struct pool_addr *addr_find(struct pool *p, const struct pkt_addr *addr, uint32_t scope);
/* Returns 0 if this process may attach steering programs to groups of sockets, or -errno. */
int addr_can_steer(void);
/* Attaches the program for the present members and services, unless it is attached already. */
void addr_steer(struct pool_addr *a);
/*
 * Returns true if two slots use the same address of one of these families (POOL_IPV4 |
 * POOL_IPV6).
 */
bool addr_shared(struct pool *p, unsigned a, unsigned b, unsigned families);
/* Calls addr_steer() for all addresses. */
void pool_steer(struct pool *p);
/*
 * Looks for datagrams in sockets without an owner, at all addresses, and lets a port of this
 * process take them. Must be called after pool_steer(), which directs later datagrams to other
 * sockets.
 */
void pool_find_leftovers(struct pool *p);

/* ---- service.c ---- */

/* Addresses to listen on: one address, or, if `addr` is NULL, all addresses of the families. */
struct service_addrs {
	const struct pkt_addr *addr;
	uint32_t scope;
	unsigned families;
};

/*
 * Gets the addresses of the listeners that get a request to an address, in order of precedence: the
 * exact address, and all addresses of its family.
 */
void service_takers(const struct pkt_addr *addr, uint32_t scope, struct service_addrs at[2]);
/* Returns the entry of a listener of a slot on the service at these addresses, or NULL. */
struct slot_service *service_find(struct pool *p, unsigned slot, uint64_t id,
				  const struct service_addrs *at);
struct pool_table;
/* Fills in the routes of an address. Routes of exact addresses come first. */
void service_routes(const struct pool_addr *a, uint64_t alive, struct pool_table *t);

#endif
