/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Internals of the drive. Only files of src/drive include this header.
 *
 * The threads that run a processing unit (PU):
 *
 *   owner	the thread that has set PU_OWNED in the PU's word, for one turn or one control
 *		call.
 *   poller	a thread of the program that calls drive_progress(). Each call renews the lease.
 *		During the lease the service poller leaves the turns to the poller, unless
 *		packets must wake it (struct caller).
 *   service poller	the thread that runs turns when there is no poller: the service thread, or
 *			a thread that is blocked in drive_wait_fd(). It sleeps on a timer while
 *			there is a poller, otherwise on the ports.
 *
 * Before it goes to sleep, a service poller stores in `next_visit` the time of its next look, and
 * in `sleepers` whether the ports wake it. It stores both as the owner. So the next owner knows
 * when the service poller looks, and wakes it if that is too late (pu_settle).
 *
 * Memory order, by pairs of accesses:
 *
 *   word		An owner takes the word with acquire and gives it up with release. This
 *			orders everything that the core keeps without atomics. A kick is a
 *			read-modify-write with release, and the owner that gives up the word
 *			acquires it. The turn that follows sees the stores before the kick.
 *   kicked		service_poller_kick() stores the new work, then exchanges 1. The service
 *			poller exchanges 0, then looks for work. Both use one word, so the later
 *			exchange sees the stores before the earlier one.
 *   waiting, kicked	service_kick() kicks, then loads `waiting`. A waiter that ends clears
 *			`waiting`, then loads `kicked`. Each thread stores one word and then loads
 *			the other, so all accesses are sequentially consistent. The same holds for
 *			service_until and `waiting` (nap_beside_waiter, end_wait).
 *   caller.hits, armed, outside_seq / masked, sleepers
 *			These have the same pattern, for a program that goes to sleep:
 *			drive_cq_armed().
 *   lease_end, next_visit, doorbell_at, cpu, events
 *			These accesses are relaxed. An old value only costs time, at most until the
 *			service poller's next look at `next_visit`.
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
#include "base/thread.h"
#include "drive/clock.h"
#include "drive/drive.h"
#include "drive/policy.h"

/*
 * The word of a PU has two bits, and above them the number of control calls that wait for the PU.
 */
#define PU_OWNED  1u
#define PU_KICKED 2u /* another thread rang during the turn; the owner must run one turn more */
#define PU_WANT	  4u

enum service_poller_bit { BY_SERVICE_THREAD = 1, BY_WAITER = 2 };

struct drive_pu {
	/* written by every turn */
	_Atomic uint32_t word CACHE_ALIGNED;
	/*
	 * owner only: a service poller has gone to sleep on the ports, which were not disarmed
	 * since
	 */
	bool had_sleeper;
	_Atomic uint64_t lease_end;   /* ns; a poller runs the PU until then */
	_Atomic uint64_t doorbell_at; /* ns; time of the last turn that a doorbell ran */
	struct caller caller;	      /* the class of the program: policy.h */
	/* written by service pollers, read by every turn */
	_Atomic uint64_t next_visit
		CACHE_ALIGNED;	   /* ns; the latest time of a service poller's next look */
	_Atomic uint32_t sleepers; /* enum service_poller_bit: the sleepers on the ports */
	/*
	 * Packets do not wake the service thread, although it sleeps on the ports. The owner writes
	 * this field, and so does a service poller that begins a nap or leaves the ports.
	 */
	atomic_bool masked;
	/* core of the last turn while a service poller slept on the ports; -1: none */
	atomic_int cpu;
};
_Static_assert(sizeof(struct drive_pu) <= 3 * CACHE_LINE,
	       "a PU is two lines for pollers, one for service pollers");

/* A service poller's state of one PU. Only its own thread uses it. */
struct service_pu {
	uint64_t lease;	    /* lease_end at the last look */
	uint64_t nap;	    /* ns; length of the last nap beside a poller */
	uint64_t last_work; /* ns */
	uint64_t wake;	    /* ns; time of the next look */
	uint32_t stuck;	    /* turns in a row with work that was pending and was not done */
	bool on_port;	    /* the service poller sleeps on the ports */
	bool ready;	    /* one of the ports woke the service poller */
	/*
	 * ports that are readable already must wake the service poller, too, not only later packets
	 */
	bool look;
};

struct service_poller {
	struct drive *d;
	enum service_poller_bit bit;
	int wake_fd; /* eventfd */
	/*
	 * only new packets wake the service poller (EPOLLET); false for a waiter, which uses
	 * poll(2)
	 */
	bool edge;
	_Atomic uint32_t kicked CACHE_ALIGNED;
	_Atomic uint64_t kicked_at; /* ns */
	/* only the service thread uses the fields below, up to `pu` */
	struct spinner spinner;
	enum spin_action spin; /* the decision after its last visits */
	bool slept;	       /* the thread has slept since its own turns last found work */
	struct service_pu pu[NIC_MAX_PUS];
};

/*
 * The most management datagrams that wait for the service thread, or for QP 1's first user. A
 * sender repeats a lost one after seconds. Turns of other threads receive bursts of PORT_BURST
 * while the service thread waits for a core or for the user's lock.
 */
#define GSI_QUEUE 1024

/* the most datagrams that the service thread hands to the user before it does other work */
#define GSI_ROUND 256

enum gsi_state { GSI_AWAITED, GSI_OPEN, GSI_CLOSED };

/*
 * The most QPs whose peer is gone that the user gets with one call. Reports that wait for the
 * service thread have no limit but the number of QPs: each has a place for its index.
 */
#define GSI_GONE_AT_ONCE 256

/* the most reports of datagrams without a receiver that wait for the service thread */
#define GSI_LOST 256

struct gsi_lost {
	struct pkt_addr dst;
	uint64_t tid;
};

/*
 * The most datagrams that the user gets while its lock is held. The program's threads wait for the
 * lock, so it is held for microseconds.
 */
#define GSI_AT_ONCE 8

/* the most answers that the service thread keeps, and the number from which on it sends them */
#define GSI_ANSWERS	 64
#define GSI_ANSWERS_MANY 32

struct gsi_answer {
	unsigned port;
	struct pkt_addr dst;
	uint8_t tclass;
	uint8_t mad[NIC_GSI_LEN];
};

struct gsi_datagram {
	unsigned port;
	struct pkt_addr src, dst;
	uint8_t mad[NIC_GSI_LEN];
};

struct gsi {
	pthread_mutex_t user_lock; /* protects ops and ctx; held while the user's functions run */
	const struct drive_gsi_ops *ops;
	void *ctx;
	struct gsi_answer answer[GSI_ANSWERS]; /* only for the thread that has user_lock */
	unsigned num_answers;
	struct spin queue_lock; /* protects the fields up to num_lost; a leaf lock */
	enum gsi_state state;
	uint32_t head, tail;
	uint64_t dropped;
	struct gsi_datagram queue[GSI_QUEUE];
	uint64_t gone_at[NIC_MAX_QPS / 64]; /* bits of the places of `gone` that hold a report */
	uint32_t gone[NIC_MAX_QPS];	    /* QP numbers; the place is the index of the QP */
	uint32_t num_gone;
	struct gsi_lost lost[GSI_LOST];
	uint32_t num_lost;
	_Atomic uint64_t due;	/* ns */
	_Atomic uint32_t woken; /* datagrams or reports wait, or expire() is to be called */
};

#define STAT_GROUPS 4

/* The watchdog thread, which ends steps that do not return: watch.c. */
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
	struct nic_host_ops ops; /* the caller's functions, and those for QP 1 */
	unsigned pus;
	/* the first `ports` ports are complete; the number may grow at any time: drive_ports() */
	atomic_uint ports;
	atomic_bool dead; /* in a forked child: the engine belongs to the parent */
	atomic_bool stop;
	struct port *port[NIC_MAX_PORTS][NIC_MAX_PUS];
	struct drive_pu pu[NIC_MAX_PUS];

	pthread_mutex_t control;
	int cancel_state; /* of the thread that holds `control`, before it took the mutex */
	unsigned refs;	  /* under the engine lock */

	struct service_poller service;
	int service_set; /* epoll set of the service thread */
	pthread_t thread;
	bool running;
	_Atomic uint64_t service_until
		/* ns; the service thread sleeps until then; 0: the thread is awake */
		CACHE_ALIGNED;

	struct service_poller waiter;
	atomic_uint waiting;  /* a thread in drive_wait_fd() is the service poller */
	atomic_uint wait_seq; /* number of such waits so far */

	struct wake_cost wake; /* measured by the service thread */
	atomic_uint events;    /* number of completion events raised */
	atomic_int armed;      /* number of armed completion queues with a channel */
	/* wait_seq when a program that sleeps outside of this library last armed such a queue */
	atomic_uint outside_seq;

	struct gsi gsi;
	struct watch watch;

	_Atomic(const struct drive_stat_group *) stat_group[STAT_GROUPS];
	int stat_fd;	   /* listening socket; -1: none */
	int stat_dir;	   /* the private folder of that socket */
	int visit_fd;	   /* listening socket for clients that come through the pool; -1: none */
	int spare_fd;	   /* for these two sockets (base/spare.h) */
	uint64_t instance; /* a random number that tells this engine apart from others */
	uint64_t started;  /* ns */
	char spec[NIC_MAX_PORTS][512];
	struct drive *next_dead;
};

/*
 * Returns the number of ports. It does not change while the calling thread owns a PU; otherwise it
 * may grow between calls.
 */
static inline unsigned drive_ports(const struct drive *d)
{
	return atomic_load_explicit(&d->ports, memory_order_acquire);
}

/* ---- ports.c ---- */

/*
 * Reads ROOST_PORT into d->spec. If the specification of the first port has no address, the port
 * gets `addr`, unless that is NULL. Returns 0, or -EINVAL with one line in err.
 */
int ports_configure(struct drive *d, const struct pkt_addr *addr, char *err, size_t errlen);
/*
 * Opens all lanes of all configured ports. Returns 0, or -errno with one line in err. After a
 * failure the lanes that were opened stay open; ports_close() closes them.
 */
int ports_open(struct drive *d, char *err, size_t errlen);
void ports_close(struct drive *d);
/* Does the work of drive_add_addr(). Engine lock held. */
int ports_add(struct drive *d, const struct pkt_addr *addr, struct drive_addr *where, char *err,
	      size_t errlen);

/* ---- pu.c ---- */

/*
 * Owns the PU and returns true. Returns false if it has an owner, or a control call waits for it.
 */
static inline bool pu_try(struct drive_pu *p)
{
	uint32_t free = 0;

	/*
	 * The load comes first, because even a failed compare-and-swap takes the cache line from
	 * the owner.
	 */
	return atomic_load_explicit(&p->word, memory_order_relaxed) == 0 &&
	       atomic_compare_exchange_strong_explicit(&p->word, &free, PU_OWNED,
						       memory_order_acquire, memory_order_relaxed);
}

/*
 * Owns the PU and returns true, or leaves a kick and returns false. After a kick the present owner,
 * or the next one, runs a turn after this call.
 */
bool pu_try_or_kick(struct drive_pu *p);
/*
 * Owns the PU for a control call, ahead of pollers. Waits until the current turn ends. Returns
 * false if it could not own the PU until `until`, in ns.
 */
bool pu_own(struct drive_pu *p, uint64_t until);
/*
 * Ends a turn of the owner. Disarms the ports if no thread sleeps on them, otherwise arms them
 * again. Wakes the service poller if it would look too late.
 */
void pu_settle(struct drive *d, unsigned i, uint64_t now, enum pu_turn turn);
/* Arms all ports. Returns false if a port has work to do at once. Owner only. */
bool pu_arm(struct drive *d, unsigned i);
/* Gives up the PU. If it was kicked meanwhile, runs another turn. */
void pu_release(struct drive *d, unsigned i);
/* Gives up the PU. Returns true if it was kicked meanwhile: the caller must look again. */
bool pu_drop(struct drive_pu *p);
/*
 * Runs one turn and returns the amount of work done. Reads the clock a second time only if the NIC
 * wants to know how long the turn took. Owner only.
 */
static inline unsigned pu_poll(struct drive *d, unsigned i, uint64_t now)
{
	unsigned work;

	fault_thread();
	work = nic_poll(d->nic, i, now);
	if (work && unlikely(nic_turn_end_requested(d->nic, i)))
		nic_turn_ended(d->nic, i, clock_now());
	return work;
}
/* Runs one turn and settles the PU; `turn` is the purpose of the turn. Owner only. */
void pu_turn(struct drive *d, unsigned i, uint64_t now, enum pu_turn turn);
/*
 * Ends a control call: `turn` is PU_IDLE, or PU_SENT if it sent packets. Runs no turn, because the
 * caller may hold locks that the host's callbacks take.
 */
void pu_disown(struct drive *d, unsigned i, enum pu_turn turn);
/* Disarms all ports. `woken`: as for port_ops.disarm. Owner only. */
void pu_disarm(struct drive *d, unsigned i, bool woken);
/* Implements nic_host_ops.kick. `host` is the struct drive. */
void pu_call(void *host, unsigned i);

/* ---- service_poller.c ---- */

enum service_verdict {
	SERVICE_AGAIN,	   /* work is left: the service poller looks again at once */
	SERVICE_BUSY_POLL, /* no work, but a busy poll pays: service_poller.spin */
	/* the service poller sleeps until service_pu.wake, on the ports if service_pu.on_port */
	SERVICE_SLEEP,
};

/* Runs a turn of PU i, or leaves the PU to its poller. Service poller only. */
enum service_verdict service_visit(struct service_poller *t, unsigned i);
/* Returns the earliest time, in ns, at which the service poller must look again by itself. */
uint64_t service_next_visit(const struct service_poller *t);
/* Records that the service poller no longer sleeps on ports. The next turn disarms them. */
void service_leave_ports(struct service_poller *t);
/* Wakes the service poller. Any thread. */
void service_kick(struct drive *d);
void service_poller_kick(struct service_poller *t);
void service_poller_drain(struct service_poller *t);
int service_poller_init(struct service_poller *t, struct drive *d, enum service_poller_bit bit);
void service_poller_fini(struct service_poller *t);

/* ---- watch.c ---- */
void watch_stop(struct watch *w);

/* ---- service.c ---- */
int service_start(struct drive *d);
/* Hands the control work of the new port k to the service thread. Returns 0 or -errno. */
int service_watch_port(struct drive *d, unsigned k);
/*
 * Sets whether packets at the sockets of PU i wake the service thread, which sleeps on them. Makes
 * a system call for each socket. Owner only.
 */
void service_listen(struct drive *d, unsigned i, bool listen);
/* Ends the service thread. Returns false if it has not ended after `ns`; UINT64_MAX: no limit. */
bool service_stop(struct drive *d, uint64_t ns);

/* ---- gsi.c ---- */
void gsi_init(struct drive *d);
void gsi_fini(struct drive *d);
/* Implements nic_host_ops.gsi. `host` is the struct drive. */
void gsi_arrived(void *host, unsigned port, const struct pkt_addr *src, const struct pkt_addr *dst,
		 const uint8_t *mad);
/* Implements nic_host_ops.gsi_lost. */
void gsi_lost(void *host, const struct pkt_addr *dst, uint64_t tid);
/* Implements nic_host_ops.peer_gone. */
void gsi_peer_gone(void *host, uint32_t qpn);
/*
 * Makes this process send the datagrams that killed programs of its addresses left
 * (drive_gsi_will()). To be called again after each new address. [engine lock, no control lock]
 */
void gsi_begin_wills(struct drive *d);
void gsi_end_wills(struct drive *d);
/*
 * Hands queued datagrams and reports to the user of QP 1, and runs expire() if it is due. Service
 * thread only.
 */
void gsi_serve(struct drive *d);
/* Returns whether a thread that can wait should receive no more before gsi_serve(). Any thread. */
bool gsi_is_filling(struct drive *d);
/* Returns when gsi_serve() is due, in ns; 0: now. Service thread only. */
uint64_t gsi_due(struct drive *d);

/* ---- stat.c ---- */

/* Opens the stat socket. A failure is only logged: the NIC works without the socket. */
void stat_open(struct drive *d);
/* Removes the file of the socket. */
void stat_unlink(struct drive *d);
void stat_close(struct drive *d);
/* Closes the descriptors in a forked child, and leaves the parent's file in place. */
void stat_forget(struct drive *d);
/*
 * Answers a client that has connected to one of the sockets. Returns false if the socket must rest
 * (base/rest.h). Service thread only.
 */
bool stat_serve(struct drive *d, int listener);

/* ---- drive.c ---- */

/* Takes the control lock and returns true, or returns false after `ns`. */
bool control_lock_for(struct drive *d, uint64_t ns);

/* ---- fork.c ---- */

/* Takes the engine lock and returns true, or returns false after `ns`. */
bool engine_lock_for(uint64_t ns);

/* The engine of the process, and its lock: drive.c, fork.c. */
extern pthread_mutex_t engine_lock;
extern struct drive *engine;
/* in a forked child: the parent's engines. They stay reachable. */
extern struct drive *dead_engines;

#endif
