/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The drive runs the core. A process has one engine. The engine has the ports, the service thread,
 * inline progress, clocks, wake-ups, the control lock, fork handling, and the socket that `roost
 * stat` reads.
 *
 * A thread that polls drives the NIC: drive_progress() tries to own the PU, runs one bounded turn
 * and renews a lease. During the lease the service thread leaves the PU to that thread. After the
 * lease the service thread runs the turns; when it is idle, it sleeps on the port.
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
 * Takes a reference on the engine of the process. The first call opens the engine from the
 * environment: ROOST_PORT (specifications separated by ';', one for each port), ROOST_PUS,
 * ROOST_TIMEOUT_SCALE and ROOST_SEED. Without ROOST_PORT the engine has one host port, which
 * chooses its address. In a forked child the call opens a new engine. Returns 0, or -errno with one
 * line in err. Any thread.
 */
int drive_get(const struct nic_host_ops *ops, struct drive **out, char *err, size_t errlen);
/* Drops a reference. The last one stops the service thread and closes the ports. */
ROOST_EXPORT void drive_put(struct drive *d);

/* ---- addresses: a running NIC may get more addresses, which it keeps ---- */

struct drive_addr {
	/* number of the port, from 0, for drive_gsi_send() and drive_gsi_ops.input() */
	unsigned port;
	uint8_t port_num, gid_index; /* numbers of the verbs */
	uint32_t mtu;		     /* bytes of payload of a packet */
};

/*
 * Takes a reference as drive_get() does, on an engine that has the address `addr`. If no engine is
 * open, it opens one with this address instead of the chosen one, unless ROOST_PORT names another
 * address. If an engine is open, it adds the address as drive_add_addr() does. Errors: those of
 * both functions.
 */
ROOST_EXPORT int drive_get_at(const struct nic_host_ops *ops, const struct pkt_addr *addr,
			      struct drive **out, struct drive_addr *where, char *err,
			      size_t errlen);
/*
 * Adds an address to the GID table of port 1, with the kind and options of the first port. Does
 * nothing if the engine has the address already. Any thread that holds neither the control lock nor
 * a PU. Errors, with one line in err:
 *
 *   -EADDRNOTAVAIL  the address does not belong to this machine (udp)
 *   -EADDRINUSE     another process has the address
 *   -EINVAL         no endpoint can have the address
 *   -EAFNOSUPPORT   the machine does not support the address family
 *   -ENOSPC         the table is full
 *   -ENODEV         the engine belongs to the parent of a forked child
 */
ROOST_EXPORT int drive_add_addr(struct drive *d, const struct pkt_addr *addr,
				struct drive_addr *where, char *err, size_t errlen);
/* Returns true and fills in *where if the engine has the address. Any thread. */
ROOST_EXPORT bool drive_find_addr(struct drive *d, const struct pkt_addr *addr,
				  struct drive_addr *where);

/*
 * Returns true in a forked child for the engine that the parent opened. Calls on that engine do
 * nothing: they run no turns and own no PU. Its ports reach no peer, and its objects are only
 * memory. drive_get() opens an engine of the child.
 */
bool drive_dead(const struct drive *d);

/*
 * Installs the handlers for fork(2), once per process. drive_get() does so too, before it takes a
 * lock: a fork during the first open must wait for that lock, or the child inherits it locked. For
 * a user of QP 1 that installs handlers of its own before it opens the engine: a fork must take the
 * user's locks first, so its handlers must be installed after those of the engine.
 */
ROOST_EXPORT void drive_watch_forks(void);

struct nic *drive_nic(struct drive *d);

/*
 * Returns the time of clock_now() (drive/clock.h), in ns. The NIC's times are of this clock. Any
 * thread.
 */
ROOST_EXPORT uint64_t drive_now(struct drive *d);

/*
 * Runs one turn of a PU if no other thread owns the PU, and renews the lease. Returns the amount of
 * work done. Any thread.
 */
unsigned drive_progress(struct drive *d, unsigned pu);
/*
 * Reports that the program has taken completions of this PU. If the program spins on memory after
 * its polls, the call continues to poll for the next request of its peer, for 100 us at most. Any
 * thread.
 */
void drive_cqes_taken(struct drive *d, unsigned pu);

/*
 * Report changes of completion queues that have a channel, for programs that sleep until an event.
 *
 * drive_cq_armed(): a queue was armed; `anew`: it was not armed before. The call ends every mask.
 * Unless the program will wait inside this library (`inside`: drive_wait_fd), the call makes
 * packets wake the service thread. Any thread.
 *
 * drive_cq_fired(): an armed queue raised its event. Any thread, also the owner of a PU.
 *
 * drive_cq_disarmed(): an armed queue was destroyed. Any thread.
 */
void drive_cq_armed(struct drive *d, bool anew, bool inside);
void drive_cq_fired(struct drive *d);
void drive_cq_disarmed(struct drive *d);

/*
 * Rings the doorbell of a QP, after the program has stored its send index. Marks the QP for its PU
 * and makes sure that a thread runs the PU. If another thread owns the PU, that thread runs one
 * turn more. If a poller is active and earlier work of the QP is under way, the poller's next turn
 * sends the new work. Otherwise the call runs a turn itself, for low latency. Any thread.
 */
void drive_doorbell(struct drive *d, struct nic_qp *qp);

/*
 * Take and release the control mutex and the ownership of PUs, for control calls. drive_own() waits
 * until the current turn ends. Lock order: control, then PU. A thread that holds the mutex cannot
 * be cancelled: the others would wait for it for ever.
 */
void drive_control_lock(struct drive *d);
void drive_control_unlock(struct drive *d);
void drive_own(struct drive *d, unsigned pu);
/* Gives up the PU. Wakes the service thread if the PU has work. Runs no turn. */
void drive_disown(struct drive *d, unsigned pu);
/*
 * Sends the datagrams that are posted on the UD QPs of a PU. For the owner of the PU, before it
 * destroys an address handle or a UD QP. Does nothing after a fork.
 */
void drive_send_datagrams(struct drive *d, unsigned pu);
/*
 * Runs turns of a PU until two find no work, at most receive_turns (policy.h): the packets that
 * have arrived are processed, and their answers sent. For control calls that end a queue pair,
 * before they take the control mutex. Stops early if many management datagrams wait for the service
 * thread: in a flood of REQs, as many turns would receive more than can wait. Does nothing after a
 * fork. Any thread.
 */
void drive_receive(struct drive *d, unsigned pu);
/*
 * Owns and releases every PU once. When the call returns, all accesses of PUs that began before it
 * have ended.
 */
void drive_quiesce(struct drive *d);

/*
 * Waits until `fd` is readable, and runs the turns of all PUs meanwhile. Blocking calls of the
 * verbs (ibv_get_cq_event) use it. Returns 0, -EINTR, or -ETIMEDOUT after timeout_ns; UINT64_MAX:
 * no timeout. The call is a cancellation point. Any thread.
 */
int drive_wait_fd(struct drive *d, int fd, uint64_t timeout_ns);

/* ---- QP 1: management datagrams, for src/cm ---- */

/*
 * The functions of the user of QP 1. The service thread calls them, one at a time, and owns no PU
 * meanwhile. They may send datagrams, but must not open or close QP 1.
 */
struct drive_gsi_ops {
	/*
	 * The service thread calls them before and after some calls of input(), so that a lock of
	 * the user is taken once for many datagrams. Both may be NULL. What input() sends leaves
	 * after end(), because a send takes longer than the handling of a datagram.
	 */
	void (*begin)(void *ctx);
	void (*end)(void *ctx);
	/*
	 * A datagram of NIC_GSI_LEN bytes came to QP 1 at `port`, from src to dst. All pointers are
	 * valid during the call. The contents are not trusted.
	 */
	void (*input)(void *ctx, unsigned port, const struct pkt_addr *src,
		      const struct pkt_addr *dst, const uint8_t *mad);
	/*
	 * Runs the work that is due. Returns the latest time of the next call, in ns of
	 * drive_now(), or UINT64_MAX if no call is needed.
	 */
	uint64_t (*expire)(void *ctx, uint64_t now);
	/*
	 * The datagram with this transaction id, which was sent to dst, seems to have reached no
	 * NIC (nic_host_ops.gsi_lost). May be NULL. If many reports come at once, some may be
	 * dropped.
	 */
	void (*lost)(void *ctx, const struct pkt_addr *dst, uint64_t tid);
	/*
	 * The NIC has ended these QPs, because their peers are gone. The numbers ascend. May be
	 * NULL. Many QPs take several calls; no report is dropped.
	 */
	void (*gone)(void *ctx, const uint32_t *qpns, unsigned n);
};

/*
 * Makes the caller the user of QP 1. Returns 0, or -EBUSY if there is a user already. The first
 * user gets the datagrams that came before it, as far as they fit into the queue. Any thread that
 * holds neither the control lock nor a lock that the user's functions take.
 */
ROOST_EXPORT int drive_gsi_open(struct drive *d, const struct drive_gsi_ops *ops, void *ctx);
/*
 * Ends the use of QP 1. Waits until a running call of the user's functions ends; later none is
 * called. Threads: as for drive_gsi_open(), but not the service thread.
 */
ROOST_EXPORT void drive_gsi_close(struct drive *d);
/*
 * Waits until no other program of the user publishes a service, at most a second. Returns a
 * descriptor to close after drive_gsi_listen(), or -1. The caller holds no lock that functions of
 * drive_gsi_open() take, since the service thread would wait for it.
 */
ROOST_EXPORT int drive_gsi_hold(struct drive *d);
/*
 * Makes connection requests for a service come to this process, if other programs have the same
 * address: requests to `addr`, or, if that is NULL, to all addresses of the families (POOL_IPV4 |
 * POOL_IPV6). The caller has called drive_gsi_hold(). drive_gsi_unlisten() ends this, with the same
 * arguments. Returns 0, -EADDRINUSE (another program listens there), or -ENOSPC. May make system
 * calls. Any thread that owns no PU.
 */
ROOST_EXPORT int drive_gsi_listen(struct drive *d, uint64_t service, const struct pkt_addr *addr,
				  unsigned families);
ROOST_EXPORT void drive_gsi_unlisten(struct drive *d, uint64_t service, const struct pkt_addr *addr,
				     unsigned families);
/*
 * Stores in *out the sequence of communication ids of this program, which continues after those of
 * earlier programs of its slot. out->next is NULL if no pool stores the sequence. The sequence is
 * valid until the engine is closed.
 */
ROOST_EXPORT void drive_gsi_ids(struct drive *d, struct sequence *out);
/*
 * Stores a datagram, from `src` to QP 1 of `dst`, that another program of the address sends if this
 * process is killed. mad NULL: removes it. `index`: as in pool_leave_will(). Any thread.
 */
ROOST_EXPORT void drive_gsi_will(struct drive *d, uint32_t index, const struct pkt_addr *src,
				 const struct pkt_addr *dst, uint8_t tclass, const uint8_t *mad);
/*
 * Makes the service thread call expire() soon, because work may be due before the time that the
 * last call returned. Any thread.
 */
ROOST_EXPORT void drive_gsi_wake(struct drive *d);
/*
 * Sends a datagram from QP 1 to QP 1 of dst. Delivery is not guaranteed. Errors: those of
 * nic_gsi_send(), and -ENODEV after a fork. Inside input() the datagram leaves later, with others,
 * and these errors are not reported. Any thread that holds neither the control lock nor a PU.
 */
ROOST_EXPORT int drive_gsi_send(struct drive *d, unsigned port, const struct pkt_addr *dst,
				uint8_t tclass, const uint8_t *mad);
/*
 * Returns whether the user may send datagrams at exit(). A signal handler that calls exit() may
 * have interrupted a turn of its own thread: this turn never ends, and drive_gsi_send() would wait
 * for it. Waits for a tenth of a second at most. Threads: as for drive_gsi_send().
 */
ROOST_EXPORT bool drive_gsi_may_send_at_exit(struct drive *d);

/*
 * Starts the watchdog thread, which watches steps that run under these guards (base/guard.h). It
 * ends a step that does not return within a fifth of a second, or within a third if the step's
 * thread does not run meanwhile. The guards must stay valid until the engine is closed. May be
 * called once. Returns 0, or -errno if the thread could not be started. Control lock held.
 */
int drive_watch(struct drive *d, struct guard *const *guards, unsigned n);

/*
 * Numbers of a layer above, which the stat socket shows as an object `name`. The service thread
 * calls one of two functions. `read` fills in the values; no lock is held and no PU is owned.
 * `read_pu` is called for each PU, which is owned, and the values are summed. There is space for a
 * few groups only. A group may be added once and must stay valid as long as the engine lives. Any
 * thread.
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
 * Writes to buf the path of the stat socket of process `pid`, in the private folder
 * (port/shm_dir.h). A client that connects gets one JSON object and the end of the stream. Returns
 * 0, -ENAMETOOLONG, or the error of opening the folder (-EPERM: other users can access it).
 */
int drive_stat_path(char *buf, size_t n, int pid);

#endif
