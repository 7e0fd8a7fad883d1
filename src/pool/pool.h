/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pool: the programs of one user that share an address, in one network namespace.
 *
 * The address has POOL_SLOTS sockets on UDP port 4791, one a slot, in one SO_REUSEPORT group. The
 * first program (the founder) binds all of them; every member holds duplicates of all of them, so
 * that the order of the group outlives each member. One BPF program steers the group. A
 * program owns as many slots as it has processing units. QP numbers and communication ids begin
 * with the slot of their owner.
 *
 * This is the interface only: nothing of it is built yet.
 *
 * A slot that nobody owns has a receive buffer of the least size; the next owner drains it. No
 * socket of the group is ever connected (it would take every datagram of its peer), and none gets
 * SO_REUSEADDR.
 *
 * Threads: pool_open(), pool_close(), pool_publish() and pool_withdraw() are [control];
 * the rest is for any thread.
 */
#ifndef ROOST_POOL_POOL_H
#define ROOST_POOL_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "packet/icrc.h"

#define POOL_SLOTS    64
#define POOL_NAME_MAX 32
#define POOL_MAX_OWN  4		/* slots of one program */
#define POOL_QPS      (1 << 14) /* indices of a slot's QP numbers */
#define POOL_NO_SLOT  0xff

struct pool;

struct pool_config {
	struct pkt_addr addr;
	uint32_t scope;	  /* interface of a link-local address, else 0 */
	unsigned slots;	  /* wanted: 1 .. POOL_MAX_OWN */
	const char *name; /* of the program, for lists; NULL: the kernel's name of it */
	/*
	 * Sets the options of a new socket, before it is bound. The founder calls it for each.
	 * 0 or -errno.
	 */
	int (*configure)(void *ctx, int fd);
	void *ctx;
};

/*
 * Founds the pool of an address or joins it. NULL with errno, and one line in err that names the
 * cause and says what still works:
 *
 *	EADDRINUSE	port 4791 is taken, and no pool of ours can be reached: take another address
 *	ENOSPC		fewer slots are free than wanted
 *	EPERM, EINVAL	the folder or the file is not ours, or of another version
 *	others		as bind(2)
 *
 * Waits at most a second for a founder in progress or for members that do not answer.
 */
struct pool *pool_open(const struct pool_config *config, char *err, size_t errlen);
/* Gives the slots back, withdraws their services. Sockets taken by pool_sock() are closed. */
void pool_close(struct pool *p);
/* In a forked child: closes its copies and frees, changes nothing of the parent's. */
void pool_after_fork(struct pool *p);

/* Our slot number i (0 .. config.slots - 1), ascending. */
unsigned pool_slot(const struct pool *p, unsigned i);
/* The socket of our slot number i. The pool's: don't close it, never connect it. */
int pool_sock(const struct pool *p, unsigned i);

struct pool_member {
	pid_t pid;	/* in the namespace of who wrote it */
	uint64_t start; /* ticks since boot, /proc/PID/stat: tells apart those with one pid */
	char name[POOL_NAME_MAX];
};

/* Does a living program own the slot? out (may be NULL): which. One system call or two. */
bool pool_alive(struct pool *p, unsigned slot, struct pool_member *out);

/*
 * ---- services: who listens on a service id of connection management ----
 *
 * REQ and SIDR_REQ with this id come to the slot. 0, -EADDRINUSE (another living member has it),
 * -ENOSPC (the table is full), or another -errno. i: number of our slot, as in pool_slot().
 */
int pool_publish(struct pool *p, unsigned i, uint64_t service);
void pool_withdraw(struct pool *p, unsigned i, uint64_t service);

/*
 * ---- what outlives a program ----
 *
 * Of our slot number i, in the pool file: the successor goes on where we stop, so that no number
 * returns soon. Written by the owner alone. Any value may be found there; it is to be used modulo
 * the range of the field.
 */
struct pool_history {
	_Atomic uint32_t epoch;	   /* owners so far */
	_Atomic uint32_t qp_hint;  /* index at which the search for a free QP number goes on */
	_Atomic uint32_t cm_id;	   /* last communication id, without the slot */
	_Atomic uint32_t key_seed; /* of memory keys */
	uint8_t qp_gen[POOL_QPS];  /* last generation of an index */
};
struct pool_history *pool_history(struct pool *p, unsigned i);

#endif
