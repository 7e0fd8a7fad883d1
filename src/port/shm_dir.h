/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The private folder in which shm endpoints find each other. It has a unix socket for each address
 * and lane ("10.0.0.1.0") and a file beside it ("10.0.0.1.0.lock"). The owner of the address holds
 * the file locked as long as it lives, and the file says which process it is.
 *
 * The folder is ROOST_SHM_DIR, else $XDG_RUNTIME_DIR/roost, else /tmp/roost-UID, else
 * /dev/shm/roost-UID. It is owned by the user, has rights 0700, and is not a symbolic link. It may
 * also hold other private files of a process. Control path; any thread.
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
 * Opens the folder, and makes it if it does not exist. Returns a descriptor (O_PATH-like use only),
 * or -errno with one line in err that says what to do.
 */
int shm_dir_open(char *err, size_t errlen);

/*
 * Makes the address of a socket in the folder, through the open descriptor. It is short whatever
 * the path of the folder, and cannot be redirected. Returns the length for bind() and connect().
 * `name` has at most SHM_NAME_MAX bytes.
 */
socklen_t shm_dir_sockaddr(int dirfd, const char *name, struct sockaddr_un *sa);

/*
 * Returns a non-blocking stream socket that listens there. It replaces the socket of a dead
 * process. Errors: -EADDRINUSE (a living process has it), or another -errno. The caller that closes
 * the socket unlinks its name.
 */
int shm_dir_listen(int dirfd, const char *name);

/* Writes the name of an endpoint's socket; returns buf. */
const char *shm_dir_name(const struct pkt_addr *addr, unsigned lane, char buf[SHM_NAME_MAX]);

struct shm_claim {
	int lock_fd;
	char name[SHM_NAME_MAX];
};

/* The contents of a lock file: the process that holds an address and lane. */
struct shm_holder {
	long pid;
	uint64_t pid_ns; /* the namespace in which pid counts; 0: unknown */
	unsigned lanes;	 /* number of lanes of the address, 1 .. PORT_MAX_LANES */
	uint32_t ring;	 /* bytes; the largest ring that it accepts from a peer */
};

/*
 * Reads a lock file. Returns 0, -ENOENT (there is none), -EINVAL (its contents are invalid), or
 * another -errno.
 */
int shm_dir_holder(int dirfd, const struct pkt_addr *addr, unsigned lane, struct shm_holder *h);
/*
 * True if a process with this id, as a socket reports it (SO_PEERCRED), may be the holder. Across
 * namespaces this cannot be checked, and the result is true.
 */
bool shm_dir_may_hold(const struct shm_holder *h, pid_t pid);

/*
 * Claims an address and lane if no living process has it, and removes files of a dead process.
 * Lanes after the first require that this process has lane 0. `ring`: as in struct shm_holder.
 * Returns 0, -EADDRINUSE (*holder: the process id, or 0 if unknown), -EEXIST (a file that is no
 * socket is in the way), or another -errno.
 */
int shm_claim(int dirfd, const struct pkt_addr *addr, unsigned lane, unsigned lanes, uint32_t ring,
	      struct shm_claim *c, pid_t *holder);
/*
 * Releases a claim and removes socket and lock file. `forked`: only closes the descriptors of this
 * process.
 */
void shm_unclaim(int dirfd, struct shm_claim *c, bool forked);

/*
 * Marks this address and lane as a member of a group, in the folder. Returns 0 or -errno. Marks of
 * a dead process are removed by the next process that claims its address.
 */
int shm_dir_mark(int dirfd, const struct pkt_addr *group, const struct pkt_addr *addr,
		 unsigned lane);
void shm_dir_unmark(int dirfd, const struct pkt_addr *group, const struct pkt_addr *addr,
		    unsigned lane);
/* Calls fn for each member that left a mark. */
void shm_dir_members(int dirfd, const struct pkt_addr *group,
		     void (*fn)(void *ctx, const struct pkt_addr *addr, unsigned lane), void *ctx);
/*
 * Returns the time of the last change of the folder in ns. 0: it changed so recently that a further
 * change may not change the time (file systems count in ticks of the kernel's coarse clock).
 */
uint64_t shm_dir_changed(int dirfd);

#endif
