/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hull: a process that owns queue pairs and registered memory, and continues to serve them while
 * the program that works on this memory, its child, is killed and started again. READs, WRITEs,
 * atomics and kernel calls of peers continue without an error. The functions are in Roost's
 * libibverbs.so.1; link with `pkg-config --cflags --libs roost`. See roost_hull(3).
 *
 *	hull = roost_hull_create();
 *	table = roost_hull_memory(hull, "table", size);
 *	mr = ibv_reg_mr(pd, table, size, access);
 *	... connect queue pairs ...
 *	roost_hull(hull, &(struct roost_hull_program){.run = work, .arg = table});
 *
 * Errors are the verbs': 0 or a positive errno, or NULL with errno.
 */
#ifndef ROOST_HULL_H
#define ROOST_HULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct roost_hull;

#define ROOST_HULL_MEMORIES    16
#define ROOST_HULL_NAME_MAX    31    /* letters, digits, '-' and '_' */
#define ROOST_HULL_MESSAGE_MAX 65536 /* bytes of a request, and of its reply */

struct roost_hull_program {
	/* Runs in a forked process, the child. Its return value is the exit status. */
	int (*run)(struct roost_hull *hull, void *arg);
	void *arg;
	/*
	 * If not NULL, this program is executed instead of run(), as execvp(3) does. It calls
	 * roost_hull_join().
	 */
	char *const *argv;
	/*
	 * Answers a request of the child, in the hull's process, by the thread in roost_hull().
	 * The reply has space for ROOST_HULL_MESSAGE_MAX bytes. Returns the reply's length, or a
	 * negative errno, which the child gets. Requests come from a program that may be broken:
	 * check them. NULL: every request gets EOPNOTSUPP.
	 */
	long (*request)(void *ctx, const void *request, size_t len, void *reply);
	/*
	 * Returns true to start a child again that has ended. wait_status is that of waitpid(2).
	 * NULL: every child is started again, unless it exited with status 0.
	 */
	bool (*ended)(void *ctx, int wait_status);
	void *ctx;
};

/* Creates a hull. NULL: ENOMEM, EMFILE. */
struct roost_hull *roost_hull_create(void);
/* Destroys a hull and unmaps its memory, which must no longer be registered. */
void roost_hull_destroy(struct roost_hull *hull);

/*
 * Creates memory that outlives children, or finds it in a child. It is a memfd of zeros, mapped
 * shared at the same address in the hull and in each child. Call it before roost_hull(), by one
 * thread. Returns the memory, or NULL with errno:
 *   EEXIST	hull: the name is in use
 *   ENOSPC	hull: there are ROOST_HULL_MEMORIES memories
 *   EINVAL	hull: invalid name, or length 0; child: len is neither 0 nor the memory's length
 *   ENOENT	child: no memory has this name
 *   and the errors of memfd_create(2), ftruncate(2) and mmap(2)
 */
void *roost_hull_memory(struct roost_hull *hull, const char *name, size_t len);

/*
 * Starts the program, waits, and starts it again when it ends. The NIC serves meanwhile. Returns 0
 * when the program ended for good or after roost_hull_stop(); EAGAIN, ENOMEM: no child could be
 * started. A child that ends by itself within a second of its start is started again after a pause:
 * 10 ms at first, twice as long each time, and at most a second. A child that was killed by SIGKILL
 * is started again at once. A child does not outlive the hull.
 */
int roost_hull(struct roost_hull *hull, const struct roost_hull_program *program);
/* Kills the child and makes roost_hull() return. Any thread and a signal handler may call it. */
void roost_hull_stop(struct roost_hull *hull);

/* ---- in the child ---- */

/*
 * Returns the hull of a program that was executed, and maps its memory. NULL: ENOENT (no hull
 * started this process), EINVAL (ROOST_HULL was not set by a hull), ENOMEM, or EEXIST (an address
 * is in use).
 */
struct roost_hull *roost_hull_join(void);

/*
 * Sends a request of 1 to ROOST_HULL_MESSAGE_MAX bytes to the hull and waits for the reply. Stores
 * at most `size` bytes of it. One thread at a time. Returns the length of the whole reply, or
 * - the negative errno of the hull's request(),
 * - -EINVAL: a request of 0 bytes,
 * - -EMSGSIZE: a request or a reply that is too long,
 * - -EPIPE: this process is no child of a hull, or the hull has ended.
 */
long roost_hull_ask(struct roost_hull *hull, const void *request, size_t len, void *reply,
		    size_t size);

#ifdef __cplusplus
}
#endif

#endif
