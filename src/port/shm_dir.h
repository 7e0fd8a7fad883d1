/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The private folder in which shm endpoints find each other. It has a unix socket for each address
 * and lane ("10.0.0.1.0") and a file beside it ("10.0.0.1.0.lock"). The process that has the
 * address holds a lock on the file as long as it lives, and the file contains its process id.
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
 * Opens the folder, and makes it if it does not exist. Returns a descriptor to use as a directory
 * only, or -errno with one line in err with the remedy.
 */
int shm_dir_open(char *err, size_t errlen);

/*
 * Makes the address of a socket in the folder, through the open descriptor. It is short for any
 * path of the folder, and other users cannot redirect it. Returns the length for bind() and
 * connect(). `name` has at most SHM_NAME_MAX bytes.
 */
socklen_t shm_dir_sockaddr(int dirfd, const char *name, struct sockaddr_un *sa);

/*
 * Makes a non-blocking stream socket that listens under this name, and replaces the socket of a
 * dead process. Returns it, -EADDRINUSE (a living process has the name), or another -errno. The
 * caller closes the socket and unlinks the name.
 */
int shm_dir_listen(int dirfd, const char *name);
/*
 * Removes the sockets that processes left when they were killed. Their names are the prefix and a
 * process id ("stat.4711").
 */
void shm_dir_sweep(int dirfd, const char *prefix);

/* Writes the name of an endpoint's socket; returns buf. */
const char *shm_dir_name(const struct pkt_addr *addr, unsigned lane, char buf[SHM_NAME_MAX]);

struct shm_claim {
	int lock_fd;
	char name[SHM_NAME_MAX];
};

/* The contents of a lock file: the process that has an address and lane. */
struct shm_holder {
	long pid;
	uint64_t pid_ns; /* the namespace in which pid counts; 0: unknown */
	unsigned lanes;	 /* number of lanes of the address, 1 .. PORT_MAX_LANES */
	uint32_t ring;	 /* bytes; the largest ring that it accepts from a peer */
};

/*
 * Reads a lock file. Returns 0, -ENOENT (it does not exist), -EINVAL (its contents are invalid), or
 * another -errno.
 */
int shm_dir_holder(int dirfd, const struct pkt_addr *addr, unsigned lane, struct shm_holder *h);
/*
 * Returns true if a process with this id, as a socket reports it (SO_PEERCRED), may be the holder.
 * Ids of another namespace cannot be compared; the result is then true.
 */
bool shm_dir_may_hold(const struct shm_holder *h, pid_t pid);

/*
 * Claims an address and lane if no living process has it, and removes the files of a dead process.
 * Lanes after the first require that this process has lane 0. `ring` is stored as in struct
 * shm_holder. Returns 0, -EADDRINUSE (*holder is the process id, or 0 if it is unknown), -EEXIST (a
 * file that is no socket has the name), or another -errno.
 */
int shm_claim(int dirfd, const struct pkt_addr *addr, unsigned lane, unsigned lanes, uint32_t ring,
	      struct shm_claim *c, pid_t *holder);
/*
 * Releases a claim and removes the socket and the lock file. With `forked`, only closes the
 * descriptors of this process.
 */
void shm_unclaim(int dirfd, struct shm_claim *c, bool forked);

/*
 * Marks this address and lane as a member of a group, in the folder. Returns 0 or -errno. Marks of
 * a dead process are removed by the next process that claims its address.
 */
int shm_dir_mark(int dirfd, const struct pkt_addr *group, const struct pkt_addr *addr,
		 unsigned lane);
/* Removes the mark of this address and lane for a group. */
void shm_dir_unmark(int dirfd, const struct pkt_addr *group, const struct pkt_addr *addr,
		    unsigned lane);
/* Calls fn for each marked member of the group. */
void shm_dir_members(int dirfd, const struct pkt_addr *group,
		     void (*fn)(void *ctx, const struct pkt_addr *addr, unsigned lane), void *ctx);
/*
 * Returns the time of the last change of the folder in ns, or 0 if it changed so recently that
 * another change might have the same time (file systems count in ticks of Linux's coarse
 * clock).
 */
uint64_t shm_dir_changed(int dirfd);

#endif
