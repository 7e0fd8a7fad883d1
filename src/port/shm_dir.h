/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The private folder in which shm endpoints find each other: a unix socket per address and lane
 * ("10.0.0.1.0"), and beside it a file ("10.0.0.1.0.lock") that its owner holds locked as long as
 * it lives and that says who it is.
 *
 * The folder is ROOST_SHM_DIR, else $XDG_RUNTIME_DIR/roost, else /tmp/roost-UID, else
 * /dev/shm/roost-UID; owned by us, rights 0700, not a symbolic link. Other private things of a
 * process may live there too. Control path; any thread.
 */
#ifndef ROOST_PORT_SHM_DIR_H
#define ROOST_PORT_SHM_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "packet/icrc.h"

#define SHM_NAME_MAX 80 /* address, lane, ".lock" */

/*
 * Opens the folder, making it if need be. A descriptor (O_PATH-like use only), or -errno with one
 * line in err that says what to do.
 */
int shm_dir_open(char *err, size_t errlen);

/*
 * The address of a socket in the folder, through the open descriptor: short whatever the folder's
 * own path, and not to be redirected. Returns the length for bind() and connect(). `name` has at
 * most SHM_NAME_MAX bytes.
 */
socklen_t shm_dir_sockaddr(int dirfd, const char *name, struct sockaddr_un *sa);

/*
 * A stream socket that listens there, non-blocking; one that a dead process left is replaced.
 * -EADDRINUSE: a living process has it, or another -errno. Whoever closes it unlinks the name.
 */
int shm_dir_listen(int dirfd, const char *name);

/* Writes the name of an endpoint's socket; returns buf. */
const char *shm_dir_name(const struct pkt_addr *addr, unsigned lane, char buf[SHM_NAME_MAX]);

struct shm_claim {
	int lock_fd;
	char name[SHM_NAME_MAX];
};

/* What a lock file says of the process that holds an address and lane. */
struct shm_holder {
	long pid;
	uint64_t pid_ns; /* the namespace in which pid counts; 0: unknown */
	unsigned lanes;	 /* of the address, 1 .. PORT_MAX_LANES */
	uint32_t ring;	 /* bytes: the largest ring that it takes from a peer */
};

/* Reads it. 0, -ENOENT: there is none, -EINVAL: it makes no sense, or another -errno. */
int shm_dir_holder(int dirfd, const struct pkt_addr *addr, unsigned lane, struct shm_holder *h);
/*
 * May a process with this number, as a socket reports it (SO_PEERCRED), be the holder? Across
 * namespaces that cannot be told, and is true.
 */
bool shm_dir_may_hold(const struct shm_holder *h, pid_t pid);

/*
 * Takes an address and lane, if no living process has it; what a dead one left is removed. Lanes
 * after the first want lane 0 to be ours. `ring`: as in struct shm_holder. 0, -EADDRINUSE (*holder:
 * its process id, or 0 when unknown), -EEXIST (something stands in the way that is no socket), or
 * another -errno.
 */
int shm_claim(int dirfd, const struct pkt_addr *addr, unsigned lane, unsigned lanes, uint32_t ring,
	      struct shm_claim *c, pid_t *holder);
/* Gives it back and removes socket and lock. With `forked`: only closes our copies. */
void shm_unclaim(int dirfd, struct shm_claim *c, bool forked);

/*
 * Groups: a member leaves a mark for each in the folder, its address and lane. 0 or -errno. What a
 * process that died left is removed by the next one that claims its address.
 */
int shm_dir_mark(int dirfd, const struct pkt_addr *group, const struct pkt_addr *addr,
		 unsigned lane);
void shm_dir_unmark(int dirfd, const struct pkt_addr *group, const struct pkt_addr *addr,
		    unsigned lane);
/* Calls fn for each member that left a mark. */
void shm_dir_members(int dirfd, const struct pkt_addr *group,
		     void (*fn)(void *ctx, const struct pkt_addr *addr, unsigned lane), void *ctx);
/*
 * When the folder changed last, in ns; 0: so lately that it may change again without this number
 * doing so (file systems count in ticks of the kernel's coarse clock).
 */
uint64_t shm_dir_changed(int dirfd);

#endif
