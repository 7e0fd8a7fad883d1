/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside of the driver. Only src/drive includes this.
 *
 * Who runs a processing unit (PU):
 *
 *   owner	whoever has set PU_OWNED in its word: for one turn, or for one control call.
 *   poller	a program that calls drive_progress(). Each call renews the lease; while it lasts
 *		nobody else
 *		runs turns.
 *   service poller	runs turns when no poller does: the service thread, or a thread blocked in
 *			drive_wait_fd().
 *		It sleeps on a timer while there is a poller, else on the ports.
 *
 * A service poller that goes to sleep leaves in `next_visit` when it will look again by itself, and
 * in `sleepers` whether the port wakes it. It does so as owner, so the owner after it knows what it
 * may count on, and wakes it when that is not enough (pu_settle).
 *
 * Memory order, by pairs of accesses:
 *
 *   word		An owner takes it with acquire and gives it up with release: all that the
 *			core keeps without atomics travels so. A kick is a
 *			read-modify-write with release, and who gives the word up acquires it: the turn that follows sees what was rung for.
 *   kicked		service_poller_kick() stores what is to be seen, then exchanges 1; the
 *			service poller exchanges 0, then looks. One word: the later one sees what
 *			stood before the earlier one.
 *   waiting, kicked	service_kick() kicks, then loads `waiting`; a waiter that ends clears
 *			`waiting`, then loads `kicked`. Two words, each stored and
 *			then the other loaded: sequentially consistent, as are service_until and `waiting` (stand_by, end_wait).
 *   caller.hits, armed, outside_seq / masked, sleepers
 *			The same, of a program that goes to sleep: drive_cq_armed().
 *   lease_end, next_visit, rang, cpu, events
 *			Relaxed: an old value costs time, which the service poller's next look at `next_visit` bounds.
 */
#ifndef ROOST_DRIVE_ENGINE_H
#define ROOST_DRIVE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/spin.h"
#include "drive/clock.h"
#include "drive/drive.h"
#include "drive/policy.h"

/* The word of a PU: the two bits, and above them the number of control calls that wait for it. */
#define PU_OWNED  1u
#define PU_KICKED 2u /* the owner runs another turn after this one: somebody rang meanwhile */
#define PU_WANT	  4u

enum service_poller_bit { BY_SERVICE_THREAD = 1, BY_WAITER = 2 };

struct drive_pu {
	/* written by every turn */
	_Atomic uint32_t word CACHE_ALIGNED;
	/* owner's: since the last look a service poller went to sleep on the ports */
	bool had_sleeper;
	_Atomic uint64_t lease_end; /* ns; before it a poller is at work */
	_Atomic uint64_t rang;	    /* ns; last turn run by a doorbell */
	struct caller caller;	    /* what the program does between its calls */
	/* written by service pollers, read by every turn */
	_Atomic uint64_t next_visit
		CACHE_ALIGNED;	   /* ns; a service poller looks at the PU then at the latest */
	_Atomic uint32_t sleepers; /* enum service_poller_bit: who sleeps on the ports */
	/*
	 * Packets do not wake the service thread, though it sleeps on the ports. Written by the
	 * owner, and by a service poller that naps.
	 */
	atomic_bool masked;
	atomic_int cpu; /* where the last turn beside a sleeper ran */
};
_Static_assert(sizeof(struct drive_pu) <= 3 * CACHE_LINE,
	       "a PU is two lines for pollers, one for service pollers");

/* What a service poller knows of one PU. Its own thread's. */
struct service_pu {
	uint64_t lease;	    /* lease_end when it last looked */
	uint64_t nap;	    /* ns until the next look, while a poller is at work */
	uint64_t last_work; /* ns */
	uint64_t wake;	    /* ns: when to look again */
	uint32_t stuck;	    /* turns in a row that left work pending and did none */
	bool on_port;	    /* sleeps on the ports */
	bool ready;	    /* and one of them woke it */
	/* whether they are readable now counts, not only what comes from now on */
	bool look;
};

struct service_poller {
	struct drive *d;
	enum service_poller_bit bit;
	int wake_fd; /* eventfd */
	bool edge;   /* sleeps so that only news wakes it; the waiter's poll(2) can't */
	_Atomic uint32_t kicked CACHE_ALIGNED;
	_Atomic uint64_t kicked_at; /* ns */
	/* service thread only */
	struct spinner spinner;
	enum spin_action spin; /* what follows from its last visits */
	bool slept;	       /* since a turn of its own found work */
	struct service_pu pu[NIC_MAX_PUS];
};

/* management datagrams that wait for the service thread, or for QP 1's first user */
#define GSI_QUEUE 256

enum gsi_state { GSI_AWAITED, GSI_OPEN, GSI_CLOSED };

#define GSI_GONE 256 /* QPs whose peer is gone, the same */

#define GSI_LOST 256 /* datagrams that found nobody, the same */

struct gsi_lost {
	struct pkt_addr dst;
	uint64_t tid;
};

struct gsi_datagram {
	unsigned port;
	struct pkt_addr src, dst;
	uint8_t mad[NIC_GSI_LEN];
};

struct gsi {
	pthread_mutex_t user_lock; /* ops, ctx; held while the user is called */
	const struct drive_gsi_ops *ops;
	void *ctx;
	struct spin queue_lock; /* what follows; leaf */
	enum gsi_state state;
	uint32_t head, tail;
	uint64_t dropped;
	struct gsi_datagram queue[GSI_QUEUE];
	uint32_t gone[GSI_GONE], num_gone;
	struct gsi_lost lost[GSI_LOST];
	uint32_t num_lost;
	_Atomic uint64_t due;	/* ns */
	_Atomic uint32_t woken; /* something waits */
};

#define STAT_GROUPS 4

/* The thread that ends steps which never return: watch.c. */
struct watch {
	struct guard_watch shared;
	struct guard *guard[NIC_MAX_PUS];
	atomic_uint num;
	atomic_bool stop;
	pthread_t thread;
	bool running;
};

struct drive {
	struct nic *nic;
	struct nic_host_ops ops; /* the caller's, and QP 1's */
	unsigned pus;
	atomic_uint ports; /* grows while PUs run; those in front of it are whole: drive_ports() */
	atomic_bool dead;  /* a fork's child: its engine belongs to the parent */
	atomic_bool stop;
	struct port *port[NIC_MAX_PORTS][NIC_MAX_PUS];
	struct drive_pu pu[NIC_MAX_PUS];

	pthread_mutex_t control;
	unsigned refs; /* under the engine lock */

	struct service_poller service;
	int service_set; /* epoll: what wakes it */
	pthread_t thread;
	bool running;
	_Atomic uint64_t service_until
		CACHE_ALIGNED; /* ns; the service thread sleeps until then, 0: it is awake */

	struct service_poller waiter;
	atomic_uint waiting;  /* a thread in drive_wait_fd() is the service poller */
	atomic_uint wait_seq; /* counts such waits */

	struct wake_cost wake; /* measured by the service thread */
	atomic_uint events;    /* completion events raised */
	atomic_int armed;      /* completion queues with a channel that are armed */
	/* wait_seq when one was armed last by a program that sleeps outside of this library */
	atomic_uint outside_seq;

	struct gsi gsi;
	struct watch watch;

	_Atomic(const struct drive_stat_group *) stat_group[STAT_GROUPS];
	int stat_fd;	  /* listening, -1: none */
	int stat_dir;	  /* the private folder, with stat_fd */
	uint64_t started; /* ns */
	char spec[NIC_MAX_PORTS][512];
	struct drive *next_dead;
};

/* Of the owner of a PU the number stands, other threads may find more each time. */
static inline unsigned drive_ports(const struct drive *d)
{
	return atomic_load_explicit(&d->ports, memory_order_acquire);
}

/* ---- ports.c ---- */

/*
 * Reads ROOST_PORT into d->spec; `addr`, if any, goes to a first port that leaves its address to
 * us. 0 or -EINVAL.
 */
int ports_configure(struct drive *d, const struct pkt_addr *addr, char *err, size_t errlen);
/*
 * Opens all lanes of all ports configured. 0, or -errno with one line in err; what was opened
 * stays, for ports_close().
 */
int ports_open(struct drive *d, char *err, size_t errlen);
void ports_close(struct drive *d);
/* drive_add_addr() under the engine lock. */
int ports_add(struct drive *d, const struct pkt_addr *addr, struct drive_addr *where, char *err,
	      size_t errlen);

/* ---- pu.c ---- */

static inline bool pu_try(struct drive_pu *p)
{
	uint32_t free = 0;

	/*
	 * A look first: a failed compare-and-swap takes the line away from the owner all the same.
	 */
	return atomic_load_explicit(&p->word, memory_order_relaxed) == 0 &&
	       atomic_compare_exchange_strong_explicit(&p->word, &free, PU_OWNED,
						       memory_order_acquire, memory_order_relaxed);
}

/*
 * Owns the PU, or else leaves a kick: true, or false when the present (or next) owner will run a
 * turn after this call.
 */
bool pu_try_or_kick(struct drive_pu *p);
/* Owns it, before any poller, waiting for turns to end; gives up (false) at `until`, ns. */
bool pu_own(struct drive_pu *p, uint64_t until);
/*
 * After a turn: disarms ports nobody sleeps on, keeps those armed that somebody does, wakes the
 * service poller if it counts on more than is true now. Owner.
 */
void pu_settle(struct drive *d, unsigned i, uint64_t now, enum pu_turn turn);
/* Arms all ports; false when one has something to do right away. Owner. */
bool pu_arm(struct drive *d, unsigned i);
/* Gives it up; runs a turn more when kicked meanwhile. */
void pu_release(struct drive *d, unsigned i);
/* Gives it up; true when kicked meanwhile, and the caller must look again. */
bool pu_drop(struct drive_pu *p);
/*
 * One turn. The clock is read a second time only where somebody wants to know how long it took.
 * Owner.
 */
static inline unsigned pu_poll(struct drive *d, unsigned i, uint64_t now)
{
	unsigned work;

	fault_thread();
	work = nic_poll(d->nic, i, now);
	if (work && unlikely(nic_wants_time(d->nic, i)))
		nic_tell_time(d->nic, i, clock_now());
	return work;
}
/* One turn and what belongs after it; `turn` says what for. Owner. */
void pu_turn(struct drive *d, unsigned i, uint64_t now, enum pu_turn turn);
/* `woken`: as of port_ops.disarm. Owner. */
void pu_disarm(struct drive *d, unsigned i, bool woken);
/* nic_host_ops.kick; host is the struct drive. */
void pu_call(void *host, unsigned i);

/* ---- service_poller.c ---- */

enum service_verdict {
	SERVICE_AGAIN,	   /* work is left: look again at once */
	SERVICE_BUSY_POLL, /* nothing now, but it pays to busy poll: service_poller.spin */
	SERVICE_SLEEP,	   /* until service_pu.wake, on the ports if service_pu.on_port */
};

/* Looks at PU i: runs a turn, or leaves it to its poller. Service poller's thread. */
enum service_verdict service_visit(struct service_poller *t, unsigned i);
/* The earliest time at which it has to look again by itself. */
uint64_t service_next_visit(const struct service_poller *t);
/* No longer sleeps on ports: the next turn disarms them. */
void service_leave_ports(struct service_poller *t);
/* Wakes the service poller. Any thread. */
void service_kick(struct drive *d);
void service_poller_kick(struct service_poller *t);
void service_poller_drain(struct service_poller *t);
int service_poller_init(struct service_poller *t, struct drive *d, enum service_poller_bit bit);
void service_poller_fini(struct service_poller *t);

/* ---- thread.c ---- */

/* A thread that takes no signals of the program's. 0 or -errno. */
int thread_start(pthread_t *thread, size_t stack, void *(*fn)(void *), void *arg);

/* May this thread run on one core only? A system call. */
bool one_core(void);

/* ---- watch.c ---- */
void watch_stop(struct watch *w);

/* ---- service.c ---- */
int service_start(struct drive *d);
/* Port k is new: its control work is the service thread's. 0 or -errno. */
int service_watch_port(struct drive *d, unsigned k);
/*
 * Do packets at the sockets of PU i wake the service thread, which sleeps on them? Owner; a system
 * call a socket.
 */
void service_listen(struct drive *d, unsigned i, bool listen);
void service_stop(struct drive *d);

/* ---- gsi.c ---- */
void gsi_init(struct drive *d);
void gsi_fini(struct drive *d);
/* nic_host_ops.gsi; host is the struct drive. */
void gsi_arrived(void *host, unsigned port, const struct pkt_addr *src, const struct pkt_addr *dst,
		 const uint8_t *mad);
/* nic_host_ops.gsi_lost */
void gsi_lost(void *host, const struct pkt_addr *dst, uint64_t tid);
/* nic_host_ops.peer_gone */
void gsi_peer_gone(void *host, uint32_t qpn);
/* Hands over what came, runs what is due. Service thread. */
void gsi_serve(struct drive *d);
/* When it wants to: ns, 0: now. Service thread. */
uint64_t gsi_due(struct drive *d);

/* ---- stat.c ---- */

/* A NIC without a stat socket is a NIC all the same: failures are logged. */
void stat_open(struct drive *d);
void stat_close(struct drive *d);
/* In a forked child: lets go of the descriptor, leaves the parent's file alone. */
void stat_forget(struct drive *d);
/* Answers whoever connected. Service thread. */
void stat_serve(struct drive *d);

/* ---- fork.c ---- */

void fork_watch(void); /* installs the handlers, once per process */

/* drive.c: the one engine and its lock, for fork.c */
extern pthread_mutex_t engine_lock;
extern struct drive *engine;
extern struct drive *dead_engines; /* the parents', in a forked child: kept reachable */

#endif
