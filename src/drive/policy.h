/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The policy of the drive: when to spin, sleep, yield, mask wake-ups and wake the service thread.
 * Pure: (state, event, now) -> action, without clocks, threads or system calls. The rest of
 * src/drive reports events and does what it is told; tests/drive/test_policy.c runs the same
 * machines in virtual time, test_models.c beside models of programs. All times are ns.
 *
 * Three machines:
 *
 *   wake_cost	what a wake-up costs on this machine, measured: 5 us on one, 100 us on another.
 *   spinner	the service thread has nothing to do: does it busy poll, yield its core, or sleep?
 *   caller	what the program that calls into a processing unit does between its calls: it polls
 *		on, it sleeps until a completion
 *		event, or it spins on memory. From that follow who looks for packets, and which packets wake the service thread.
 *
 * A busy poll, by the service thread or in the program's place, is a bet of the ski-rental kind: it
 * lasts for up to the price of a wake-up, or that price is paid.
 */
#ifndef ROOST_DRIVE_POLICY_H
#define ROOST_DRIVE_POLICY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define US 1000ull
#define MS 1000000ull

/*
 * Every constant of the policy. Times are ns. Below, each value has its source: a row of
 * docs/decisions.md by its name, another constant, or "chosen" where nothing was measured: such a
 * value may change.
 */
static const struct policy_table {
	/* ---- a program polls: the service thread stays away ---- */
	uint64_t lease;	   /* a poll keeps the service thread away for so long */
	uint64_t nap_min;  /* the service thread's naps meanwhile: from ... */
	uint64_t nap_max;  /* ... to */
	unsigned nap_grow; /* each so many times as long as the one before */
	/* the longest while another thread may sleep until a completion event */
	uint64_t nap_armed;
	/*
	 * A service thread that wakes within this time is not woken for the core's timers: they may
	 * be late by it while nobody polls. It is more than a scheduler's tick (4 ms on many
	 * kernels): a timer before the tick costs two writes to the timer's hardware, some
	 * microseconds each in a virtual machine.
	 */
	uint64_t late_ok;
	/*
	 * Packets are masked only beside a service thread that wakes within this time. More than
	 * late_ok: it may have said when it wakes during the turn that `now` is the beginning of.
	 */
	uint64_t mask_most;
	/* one that looks again before this is not woken to see that a program polls */
	uint64_t horizon;
	/*
	 * So long after a turn the service thread looks at least every late_ok. A program that
	 * posts after a pause need not wake it for the core's timers: two threads woken at once,
	 * its own and the peer's, wait for each other's core.
	 */
	uint64_t active;
	/*
	 * polls with success that are closer to each other: a poller at work, beside which it naps
	 */
	uint64_t dense;
	unsigned busy;	      /* packets in a turn: more are likely to be there already */
	unsigned stuck_turns; /* turns in a row with work left and none done: then it sleeps ... */
	uint64_t stuck_nap;   /* ... this long */
	/* ---- bets ---- */
	uint64_t wake_first; /* what a wake-up is taken to cost before one was measured */
	uint64_t wake_min;   /* what is staked on a bet: from ... */
	uint64_t wake_max;   /* ... to */
	unsigned bet_cap;    /* stakes that a bet remembers having won or lost */
	/* ---- spinning on a core that others want ---- */
	uint64_t yield_every; /* a spinning service thread yields its core this often */
	uint64_t yield_again; /* or this long after a yield that was taken */
	/* yields that are closer to each other went to the same thread, if they were taken */
	uint64_t in_a_row;
	/* a thread that took the core and runs for longer wants it for itself */
	uint64_t lost_min;
	/* no spinning for so many times as long; twice that if it recurs at once ... */
	unsigned lost_factor;
	unsigned lost_most; /* ... up to so many times */
	uint64_t lost_max;  /* and never longer than this */
	/* ---- programs that spin on memory ---- */
	uint64_t mem_spin_min;	/* packets that come so long after a program's last call ... */
	uint64_t mem_spin_max;	/* ... and not longer find it spinning on memory */
	unsigned mem_spin_step; /* points for it; a poll with success takes one back */
	unsigned mem_spin_from; /* so many points: it is such a program */
	unsigned mem_spin_cap;
	unsigned vain_polls; /* polls in vain after which a program is taken to poll on */
	/* posts in a row that were followed by a poll: the next one will be, too */
	unsigned posts_polled;
	/* so many requests in a row that busy polls found: it is as good as a poller */
	unsigned poller_from;
	/* busy polls in vain after which a new program is taken to poll for all that it wants */
	unsigned trial;
	/* ---- programs that sleep ---- */
	/*
	 * Successful polls after which a program that armed a completion queue is taken to poll on.
	 */
	unsigned armed_hits;
	/* ---- yielding the only core after a post ---- */
	unsigned yield_rarely;	/* posts from one yield to the next, at most */
	uint64_t yield_untaken; /* a yield that took less was not taken */
	uint64_t yield_long;	/* one that took longer and brought nothing went to other work */
	unsigned yield_factor;	/* and is not repeated for so many times as long */
	uint64_t core_recheck;	/* how often to ask anew whether there is more than one core */
	/* ---- the service thread ---- */
	uint64_t slice;	      /* its time slice, as asked of the scheduler */
	uint64_t timer_slack; /* by how much the kernel may delay its timers */
	/* its naps while a thread in drive_wait_fd() is the service poller: from ... */
	uint64_t standby_min;
	uint64_t standby_max;	/* ... to; after a longer one it sleeps until it is woken */
	uint64_t control_every; /* while it does not sleep: how often it looks at control work */
	uint64_t control_own;	/* so long it waits to own a PU for a port's control work */
	uint64_t steer_every;	/* how often it may change the cores that it runs on */
	/* timers that it takes at its start, to learn what a wake-up costs */
	unsigned first_wakes;
	/* ---- owners of a PU ---- */
	/* turns that arming the ports may take before the service poller is woken */
	unsigned rearm_turns;
	/* turns an owner runs for others' doorbells before it leaves them to the service poller */
	unsigned kicked_turns;
	/* waits after which a program that slept outside of this library does so no longer */
	unsigned outside_waits;
} policy_table = {
	.lease = 20 * US,      /* chosen: as nap_min */
	.nap_min = 20 * US,    /* "naps beside a poller" */
	.nap_max = 2 * MS,     /* "naps beside a poller" */
	.nap_grow = 8,	       /* "naps beside a poller" */
	.nap_armed = 100 * US, /* chosen: as wake_max */
	.late_ok = 5 * MS,     /* more than a tick of 4 ms (CONFIG_HZ=250) */
	.mask_most = 10 * MS,  /* 2 * late_ok */
	.horizon = 2500 * US,  /* more than nap_max, so a nap needs no kick; less than late_ok */
	.active = 100 * MS,    /* "the first post after a pause" */
	.dense = 200 * US,     /* "the first post after a pause" */
	.busy = 8,	       /* chosen */
	.stuck_turns = 64,     /* chosen */
	.stuck_nap = 50 * US,  /* chosen */
	/* chosen: between the 5 us and 100 us that machines show (top of this file) */
	.wake_first = 25 * US,
	.wake_min = 20 * US,	  /* "spinning and sleeping" */
	.wake_max = 100 * US,	  /* "spinning and sleeping" */
	.bet_cap = 8,		  /* chosen */
	.yield_every = 20 * US,	  /* chosen: as wake_min */
	.yield_again = 5 * US,	  /* chosen */
	.in_a_row = 1 * MS,	  /* "spinning and sleeping" */
	.lost_min = 50 * US,	  /* "spinning and sleeping" */
	.lost_factor = 1,	  /* "spinning and sleeping" */
	.lost_most = 512,	  /* chosen */
	.lost_max = 10000 * MS,	  /* chosen */
	.mem_spin_min = 4 * US,	  /* "programs that spin on memory" */
	.mem_spin_max = 10 * MS,  /* "programs that spin on memory" */
	.mem_spin_step = 8,	  /* chosen */
	.mem_spin_from = 12,	  /* two steps, less what a few polls take back */
	.mem_spin_cap = 32,	  /* four steps */
	.vain_polls = 4,	  /* "programs that spin on memory" */
	.posts_polled = 4,	  /* "programs that spin on memory" */
	.poller_from = 8,	  /* "a program whose busy polls find every request" */
	.trial = 4,		  /* "the first polls of a new program" */
	.armed_hits = 16,	  /* "programs that arm a completion queue" */
	.yield_rarely = 256,	  /* chosen */
	.yield_untaken = 2 * US,  /* chosen: more than sched_yield(2) takes */
	.yield_long = 200 * US,	  /* chosen */
	.yield_factor = 5,	  /* chosen */
	.core_recheck = 100 * MS, /* chosen */
	.slice = 100 * US,	  /* the shortest that the kernel grants (sched(7)) */
	.timer_slack = 1 * US,	  /* chosen; Linux has 50 us (prctl(2)) */
	.standby_min = 1 * MS,	  /* chosen */
	.standby_max = 1000 * MS, /* chosen */
	.control_every = 1 * MS,  /* chosen */
	.control_own = 200 * US,  /* chosen */
	.steer_every = 10 * MS,	  /* chosen */
	.first_wakes = 4,	  /* chosen */
	.rearm_turns = 4,	  /* chosen */
	.kicked_turns = 8,	  /* chosen */
	.outside_waits = 16,	  /* chosen: as armed_hits */
};

/* ---- what a wake-up costs ---- */

/*
 * An estimate of the median: each sample moves it by an eighth, so that a thread that lost its core
 * once changes little.
 */
struct wake_cost {
	_Atomic uint64_t ns; /* 0: not measured yet. Written by one thread */
};

/* A thread ran this long after the event that woke it. */
void wake_cost_learn(struct wake_cost *w, uint64_t late);

/*
 * What to stake on a bet. Twice the delay: the delay begins when the thread is woken and ends when
 * it runs; the system calls and cold caches around it cost about as much again.
 */
uint64_t wake_cost_stake(const struct wake_cost *w);

/* ---- bets ---- */

/*
 * Busy polling for up to `stake` saves a wake-up of `stake` if the event comes within it. What
 * would have been won or lost is known afterwards, whether the bet was taken or not, and the sum
 * says whether to take the next one.
 *
 * Let best be what a choice in hindsight pays, min(gap, stake) an event. A bet taken pays at most 2
 * best. One not taken pays stake; where that is more than best, the difference is added to a
 * negative sum, so all such differences together are at most what bets lost before: a stake each
 * time, which best paid, too. Together at most 3 best.
 */
struct bet {
	int64_t sum; /* ns */
};

static inline bool bet_on(const struct bet *b)
{
	return b->sum >= 0;
}

/* The event came `gap` after the busy poll began, or would have. UINT64_MAX: never. */
void bet_settle(struct bet *b, uint64_t stake, uint64_t gap);

/* ---- the service thread ---- */

enum spin_action {
	SPIN_SLEEP, /* it does not pay */
	SPIN_BUSY_POLL,
	SPIN_YIELD, /* yield the core, report how long that took (spinner_lost), and busy poll */
};

struct spinner {
	struct bet bet;
	uint64_t idle_since;  /* end of the last turn with work; 0: none yet */
	uint64_t until;	      /* no spinning before this */
	uint64_t held;	      /* so long the last time */
	uint64_t yielded;     /* last yield of the core */
	uint64_t slept_at;    /* it went to sleep after a busy poll in vain; 0: it did not */
	bool busy_polled;     /* since its last work */
	uint64_t yield_ended; /* when spinner_lost() heard of the last yield of the core */
	bool taken;	      /* that yield */
	bool waited;	      /* packets came as soon as it slept last */
	/* the last turn woke a thread of the program, which may wait for this very core */
	bool woke;
};

/*
 * The first bets are taken: a NIC that is used for the first time is likely to be used again at
 * once.
 */
void spinner_init(struct spinner *s);
/* The service thread goes to sleep. */
void spinner_sleeps(struct spinner *s, uint64_t now);
/*
 * A turn of it found work. `slept`: a wake-up came between. `woke`: it raised an event of the
 * program's. Packets that come as soon as it sleeps, and not while it busy polled, had waited for
 * the core that it held, if that happens twice in a row.
 */
void spinner_worked(struct spinner *s, uint64_t now, uint64_t stake, bool slept, bool woke);
/* Turns found nothing. */
enum spin_action spinner_idle(struct spinner *s, uint64_t now, uint64_t stake);
/*
 * It has its core back after `ns`, in which another thread had it (0: none did). `yielded`: it had
 * yielded the core. A thread that ran for long wants the core. So does one that takes two yields in
 * a row (policy_table.in_a_row), however short: it has waited for them. One short turn alone may be
 * anybody's timer.
 */
void spinner_lost(struct spinner *s, uint64_t now, uint64_t ns, bool yielded, uint64_t stake);

/* ---- the program ---- */

enum caller_kind {
	/*
	 * It drives its packets itself, or busy polls find those that it would not. The service
	 * thread keeps off the ports while it is at work; beside one that posts now and then it
	 * sleeps on them, masked while a poll is expected.
	 */
	CALLER_POLLS,
	/* it armed a completion queue lately: any packet may be the one that must wake it */
	CALLER_SLEEPS,
	/* between its polls it spins on memory, for what only the service thread can put there */
	CALLER_SPINS,
};

/* What a processing unit's owner has just done. */
enum pu_turn {
	PU_IDLE,    /* nothing */
	PU_WORKED,  /* a turn that did something, without a poll */
	PU_POSTED,  /* the same for a post of the program's */
	PU_YIELDS,  /* the same, and the program's core is yielded to its peer behind it */
	PU_POLLED,  /* a poll that did something */
	PU_BUSY,    /* ... and more is likely to come */
	PU_IN_VAIN, /* a poll that did nothing */
	PU_TAKEN,   /* the program has taken completions and goes its way */
};

/* To do with a service thread that sleeps on the ports. */
enum caller_action {
	CALLER_KEEP,   /* nothing */
	CALLER_REARM,  /* the ports were used: arm them anew */
	CALLER_MASK,   /* packets do not wake it: the program is about to poll for them */
	CALLER_UNMASK, /* they do again */
	CALLER_WAKE,   /* it must not sleep on */
};

/* Fields without a note are the owner's of the processing unit. */
struct caller {
	/* points for spinning on memory. Written by the owner, read by any thread */
	_Atomic uint8_t mem_spin;
	/* successful polls since a completion queue was armed. Arming writes it, too */
	_Atomic uint8_t hits;
	/* requests in a row that busy polls found, up to policy_table.poller_from. As `mem_spin` */
	_Atomic uint8_t found;
	_Atomic uint8_t trial; /* busy polls that are left of policy_table.trial. As `mem_spin` */
	/*
	 * A post came while earlier ones were under way: no answer is waited for. Set by any
	 * thread, taken back by the owner.
	 */
	atomic_bool batch;
	/* a post's turn was left to somebody else. Set by any thread, taken back by the owner */
	atomic_bool left;
	uint8_t in_vain;      /* polls in a row */
	uint8_t posts_polled; /* posts in a row that were followed by a poll */
	bool posted;	      /* since the last poll */
	/* it posted, with nothing else under way, and no poll has become a busy poll since */
	bool awaits;
	struct bet busy_poll;
	uint64_t requests; /* that had come from peers when the program posted last */
	/* since when the answer to that post is awaited; 0: it came, or nobody waits */
	uint64_t awaits_since;
	/* its last poll with success beside a service thread that sleeps on the ports */
	uint64_t found_at;
	uint64_t counted; /* the last call after which packets came too late; each counts once */
	/* yields: any thread that posts; a race between two costs a yield */
	atomic_bool one_core; /* as far as known we may use no other */
	_Atomic uint32_t yield_in, yield_every;
	_Atomic uint64_t no_yield_until;
};

void caller_init(struct caller *c);

enum caller_kind caller_kind(const struct caller *c);

static inline bool caller_spins(const struct caller *c)
{
	return atomic_load_explicit(&c->mem_spin, memory_order_relaxed) >=
	       policy_table.mem_spin_from;
}

/*
 * Its polls may go on as busy polls: it spins on memory, or it is new. The first operations of a
 * ping-pong would otherwise cost a wake-up each, at both ends, until it is known for what it is.
 */
static inline bool caller_may_busy_poll(const struct caller *c)
{
	return caller_spins(c) || atomic_load_explicit(&c->trial, memory_order_relaxed);
}

static inline bool caller_sleeps(const struct caller *c)
{
	return atomic_load_explicit(&c->hits, memory_order_seq_cst) < policy_table.armed_hits;
}

void caller_hit(struct caller *c);
/* It polled, with success or not. */
static inline void caller_polled(struct caller *c, bool found)
{
	if (c->posted) {
		c->posted = false;
		c->posts_polled += c->posts_polled < policy_table.posts_polled;
	}
	if (found &&
	    (atomic_load_explicit(&c->mem_spin, memory_order_relaxed) ||
	     atomic_load_explicit(&c->hits, memory_order_relaxed) < policy_table.armed_hits))
		caller_hit(c);
}
/* The program armed a completion queue with a channel. Any thread. */
void caller_armed(struct caller *c);
/*
 * It posts with nothing else under way, and its polls may go on as busy polls; `requests` had come
 * before.
 */
void caller_posted(struct caller *c, uint64_t now, uint64_t requests, uint64_t stake);
/*
 * It posts, but the turn is somebody else's, who does not know of it, or earlier posts are under
 * way (`batch`), whose answers nobody can tell from this one's. Any thread.
 */
static inline void caller_left(struct caller *c, bool batch)
{
	if (caller_may_busy_poll(c)) /* else the line stays the poller's */
		atomic_store_explicit(batch ? &c->batch : &c->left, true, memory_order_relaxed);
}
/*
 * True, once: such a post has not been seen by caller_posted() yet. Owner, before the turn of the
 * poll that follows it.
 */
static inline bool caller_was_left(struct caller *c)
{
	if (!atomic_load_explicit(&c->left, memory_order_relaxed))
		return false;
	atomic_store_explicit(&c->left, false, memory_order_relaxed);
	return true;
}
/* The service thread found packets; `here` is when the program called last (0: never). */
void caller_found_by_service(struct caller *c, uint64_t here, uint64_t now);
/*
 * What follows from a turn beside a service thread that sleeps on the ports until `wake` at the
 * latest, masked or not.
 */
enum caller_action caller_beside(struct caller *c, enum pu_turn turn, bool masked, uint64_t now,
				 uint64_t wake);
/*
 * A program whose polls may go on as busy polls has taken its completion. Returns until when to
 * poll in its place for its peer's request; 0: not at all.
 */
uint64_t caller_busy_poll(struct caller *c, uint64_t now, uint64_t stake, uint64_t requests);
/*
 * It goes its way, and its peer's request has not come: from here on the service thread must be
 * woken by packets.
 */
void caller_gone(struct caller *c);
/* A receive completed instead: it polls for what it waits for. */
void caller_received(struct caller *c);
/* So many requests have come by now; `slept`: the service thread was woken to find them. */
void caller_requests(struct caller *c, uint64_t now, uint64_t stake, uint64_t requests, bool slept);

/*
 * On a core that is the only one we may use, the peer's program may be waiting for it: what a post
 * sent was delivered, but while we spin on memory for the answer the peer runs only when the
 * scheduler takes the core away from us, milliseconds later. True: it is time to yield the core, if
 * there is only one.
 */
bool caller_yields(struct caller *c, uint64_t now);
/* There are several cores. */
void caller_yield_needless(struct caller *c, uint64_t now);
/*
 * The yield was made at `now` and took `took`. `answered`: packets had come by its end, so it went
 * to those we wait for.
 */
void caller_yielded(struct caller *c, uint64_t now, uint64_t took, bool answered);

/*
 * The service thread's next nap beside a poller whose lease it found renewed; `last` is the nap
 * before, 0: the first. `armed`: some thread may sleep until a completion event.
 */
uint64_t policy_nap(uint64_t last, bool armed);

#endif
