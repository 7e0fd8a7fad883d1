/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What runs the core: one engine per process, its ports, the service thread, inline progress,
 * clocks, wake-ups, the control lock, fork, the socket that `roost stat` reads.
 *
 * Whoever polls drives: drive_progress() tries to own the PU, runs one bounded turn and renews a
 * lease, during which the service thread keeps away. When the lease runs out the service thread
 * takes over and, when idle, sleeps on the port.
 */
#ifndef ROOST_DRIVE_DRIVE_H
#define ROOST_DRIVE_DRIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/guard.h"
#include "nic/nic.h"

struct drive;

/*
 * Takes a reference on the process's engine, opening it on first use from the environment:
 * ROOST_PORT (specifications separated by ';', one a port), ROOST_PUS, ROOST_TIMEOUT_SCALE,
 * ROOST_SEED. Without ROOST_PORT: one udp port with an address chosen. On failure returns -errno
 * with one line in err. Thread-safe. In a forked child it opens anew.
 */
int drive_get(const struct nic_host_ops *ops, struct drive **out, char *err, size_t errlen);
/* Drops it; the last one stops the service thread, closes the ports. */
ROOST_EXPORT void drive_put(struct drive *d);

/* ---- addresses: a NIC may get more while it runs, and keeps them ---- */

struct drive_addr {
	/* as QP 1 counts, from 0: drive_gsi_send(), drive_gsi_ops.input */
	unsigned port;
	uint8_t port_num, gid_index; /* as the verbs count */
	uint32_t mtu;		     /* bytes of payload */
};

/*
 * As drive_get(), and the engine has `addr`: when none is open yet it is opened with this address
 * in the place of the one it would choose, unless ROOST_PORT names another; else drive_add_addr().
 * Errors: those of both.
 */
ROOST_EXPORT int drive_get_at(const struct nic_host_ops *ops, const struct pkt_addr *addr,
			      struct drive **out, struct drive_addr *where, char *err,
			      size_t errlen);
/*
 * Opens an address of the same kind and options as the first one, in the GID table of port 1;
 * nothing to do when the engine has it already. Errors, with one line in err: -EADDRNOTAVAIL it is
 * not this machine's (udp), -EADDRINUSE another process has it, -EINVAL no endpoint can have it,
 * -EAFNOSUPPORT the machine has no such family, -ENOSPC the table is full, -ENODEV after a fork.
 * Any thread that holds neither the control lock nor a PU.
 */
ROOST_EXPORT int drive_add_addr(struct drive *d, const struct pkt_addr *addr,
				struct drive_addr *where, char *err, size_t errlen);
/* True and *where when the engine has the address. Any thread. */
ROOST_EXPORT bool drive_find_addr(struct drive *d, const struct pkt_addr *addr,
				  struct drive_addr *where);

/*
 * True in a forked child for the engine that its parent opened: calls on it do nothing (no work,
 * nothing to own), its ports reach nobody, and the objects on it are only memory. drive_get() opens
 * the child's own.
 */
bool drive_dead(const struct drive *d);

struct nic *drive_nic(struct drive *d);

/* ns of the clock that `now` is taken from (TSC where it is invariant). Any thread. */
ROOST_EXPORT uint64_t drive_now(struct drive *d);

/*
 * One turn of a PU if nobody else drives it right now; renews the lease. Returns work done. Any
 * thread.
 */
unsigned drive_progress(struct drive *d, unsigned pu);
/*
 * The program has taken completions of this PU. For a program that spins on memory after its polls
 * this polls on for its peer's request, 100 us at most. Any thread.
 */
void drive_taken(struct drive *d, unsigned pu);

/*
 * Completion queues with a channel, for programs that sleep until an event: one is armed, which it
 * was not before (anew), or was; it fired; one that is armed is destroyed. The first ends every
 * mask, and unless the program will wait inside (drive_wait_fd) it sees that packets wake the
 * service thread. Any thread; drive_cq_fired() the owner of a PU, too.
 */
void drive_cq_armed(struct drive *d, bool anew, bool inside);
void drive_cq_fired(struct drive *d);
void drive_cq_disarmed(struct drive *d);

/*
 * Rings for a QP whose send index was stored: marks it for its PU, and sees that somebody runs the
 * PU: drives a turn inline when nobody does and the QP was idle (latency), else leaves it to the
 * poller or wakes the service thread. Any thread.
 */
void drive_doorbell(struct drive *d, struct nic_qp *qp);

/*
 * Control path: the control mutex, and owning PUs (waits for the current turn to end). Order:
 * control, then PU.
 */
void drive_control_lock(struct drive *d);
void drive_control_unlock(struct drive *d);
void drive_own(struct drive *d, unsigned pu);
void drive_disown(struct drive *d,
		  unsigned pu); /* wakes the service thread when the PU has work; runs no turn */
/* Has owned and released every PU once: no access begun before is still running. */
void drive_quiesce(struct drive *d);

/*
 * Waits until `fd` is readable, driving all PUs meanwhile: for blocking calls of the verbs
 * (get_cq_event). 0, or -EINTR. timeout_ns UINT64_MAX: for ever; -ETIMEDOUT.
 */
int drive_wait_fd(struct drive *d, int fd, uint64_t timeout_ns);

/* ---- QP 1: management datagrams, for src/cm ---- */

/*
 * The service thread calls these, never two at a time, no PU owned. They may send, and must not
 * open or close.
 */
struct drive_gsi_ops {
	/*
	 * NIC_GSI_LEN bytes came to QP 1 by `port`, from src to dst; all valid during the call, and
	 * not to be trusted.
	 */
	void (*input)(void *ctx, unsigned port, const struct pkt_addr *src,
		      const struct pkt_addr *dst, const uint8_t *mad);
	/*
	 * Runs what is due; returns when it wants to be called next at the latest, ns of
	 * drive_now(); UINT64_MAX: never.
	 */
	uint64_t (*expire)(void *ctx, uint64_t now);
	/*
	 * What was sent there, with this transaction id, seems to have found no NIC:
	 * nic_host_ops.gsi_lost. The same as of gone().
	 */
	void (*lost)(void *ctx, const struct pkt_addr *dst, uint64_t tid);
	/*
	 * The NIC has ended this QP: its peer is gone. May be NULL; of many at once some may not be
	 * told.
	 */
	void (*gone)(void *ctx, uint32_t qpn);
};

/*
 * One user at a time. 0, -EBUSY. The first one gets what came before it, as far as there was room.
 * Any thread that holds no lock which the user's functions want, nor the control lock.
 */
ROOST_EXPORT int drive_gsi_open(struct drive *d, const struct drive_gsi_ops *ops, void *ctx);
/* Waits for a call that is running: none comes after. As above, and not the service thread. */
ROOST_EXPORT void drive_gsi_close(struct drive *d);
/* Something may be due earlier than was said: expire() is called soon. Any thread. */
ROOST_EXPORT void drive_gsi_wake(struct drive *d);
/*
 * Sends a datagram from QP 1 to QP 1 of dst. Unreliable; errors as of nic_gsi_send(), and -ENODEV
 * after a fork. Any thread that holds neither the control lock nor a PU.
 */
ROOST_EXPORT int drive_gsi_send(struct drive *d, unsigned port, const struct pkt_addr *dst,
				uint8_t tclass, const uint8_t *mad);

/*
 * Steps that are run under these guards (base/guard.h) and do not return for a fifth of a second,
 * or a third when their thread does not run meanwhile, are ended. They stay until the engine ends;
 * once. 0, or why there is no thread for it. Control lock held.
 */
int drive_watch(struct drive *d, struct guard *const *guards, unsigned n);

/*
 * Numbers of a layer above, shown by the stat socket as an object `name`; the service thread calls.
 * Either `read`, which fills them in, no lock held and no PU owned, or `read_pu` for each PU,
 * owned, whose numbers are added up. Few groups, none twice, for as long as the engine lives; all
 * of one stays valid. Any thread.
 */
#define DRIVE_STAT_VALUES 128
struct drive_stat_group {
	const char *name;
	size_t count; /* up to DRIVE_STAT_VALUES */
	const char *(*label)(size_t i);
	void (*read)(uint64_t *values);
	void (*read_pu)(const struct nic *nic, unsigned pu, uint64_t *values);
};
ROOST_EXPORT void drive_stat_show(struct drive *d, const struct drive_stat_group *group);

/*
 * Path of the stat socket of process `pid` in the private folder (port/shm_dir.h). Whoever connects
 * gets one JSON object and the end of the stream. 0, -ENAMETOOLONG, or why there is no such folder
 * (-EPERM: it is not ours alone).
 */
int drive_stat_path(char *buf, size_t n, int pid);

#endif
