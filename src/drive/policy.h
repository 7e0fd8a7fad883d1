/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The policy of the drive: it decides when threads spin, sleep and yield, when packets are masked,
 * and when the service thread is woken. The functions are pure: (state, event, now) -> action. They
 * use no clocks, no threads and no system calls. The rest of src/drive reports events and carries
 * out the actions. tests/drive/test_policy.c and test_caller.c run the functions in virtual time;
 * test_models.c runs them beside models of programs. All times are in ns.
 *
 * There are three state machines:
 *
 *   wake_cost	the measured cost of a wake-up: 5 us on one machine, 100 us on another.
 *   spinner	decides what an idle service thread does: busy poll, yield its core, or sleep.
 *   caller	classifies the program by its calls into a processing unit. The program polls for
 *		all its packets, sleeps until a completion event, or spins on memory. The class
 *		decides which thread looks for packets, and which packets wake the service thread.
 *
 * A busy poll, by the service thread or in place of the program, is a bet as in the ski-rental
 * problem. It lasts at most as long as a wake-up. If nothing comes in that time, the thread sleeps
 * and pays for the wake-up, too.
 */
#ifndef ROOST_DRIVE_POLICY_H
#define ROOST_DRIVE_POLICY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define US 1000ull
#define MS 1000000ull

/*
 * All constants of the policy. Times are in ns. The initializer below names the source of each
 * value. A quoted name is a record in docs/decisions/drive.md, which has the reason or the
 * measurement. Other values follow from another constant, or were not measured; their comments name
 * the bounds.
 */
static const struct policy_table {
	/* ---- a program polls: the service thread stays away ---- */
	uint64_t lease;	   /* time after a poll during which the service thread stays away */
	uint64_t nap_min;  /* the service thread's first nap beside a poller */
	uint64_t nap_max;  /* the longest such nap */
	unsigned nap_grow; /* each nap is this many times as long as the nap before */
	/* the longest nap while another thread may sleep until a completion event */
	uint64_t nap_armed;
	/*
	 * A service thread that wakes within this time is not woken for the core's timers. The
	 * timers may be late by this time while no thread polls. The value is more than a
	 * scheduler's tick (4 ms on many kernels): a timer before the tick costs two writes to the
	 * timer's hardware, which take some microseconds each in a virtual machine.
	 */
	uint64_t late_ok;
	/*
	 * Packets are masked only if the service thread wakes within this time. The value is more
	 * than late_ok, because the service thread may have set its wake-up time after `now` was
	 * read, during the same turn.
	 */
	uint64_t mask_most;
	/* a service thread that looks within this time is not woken to find a poller */
	uint64_t horizon;
	/*
	 * For this time after a turn the service thread looks at least every late_ok. A program
	 * that posts after a pause then need not wake the thread for the core's timers. Otherwise
	 * two service threads, the program's and the peer's, are woken at the same time and compete
	 * for a core.
	 */
	uint64_t active;
	/* two successful polls within this time make an active poller; the service thread naps */
	uint64_t dense;
	unsigned busy;	      /* after a turn with this many packets, more are expected */
	unsigned stuck_turns; /* after this many turns with work pending and none done ... */
	uint64_t stuck_nap;   /* ... the service thread sleeps for at most this time */
	/* ---- bets ---- */
	uint64_t wake_first; /* the assumed cost of a wake-up before the first measurement */
	uint64_t wake_min;   /* the smallest stake */
	uint64_t wake_max;   /* the largest stake */
	unsigned bet_cap;    /* the sum of a bet is limited to this many stakes, won or lost */
	/* ---- spinning on a core that other threads want ---- */
	uint64_t yield_every; /* interval of the yields of a spinning service thread */
	uint64_t yield_again; /* the same, after a yield that another thread took */
	/* two taken yields within this time are attributed to the same thread */
	uint64_t in_a_row;
	/* a step of spinning that takes this long is checked for a forced context switch */
	uint64_t lost_look;
	/* a thread that took the core and ran for this long wants the core for itself */
	uint64_t lost_min;
	/* spinning stops for this many times the lost time; a loss soon after doubles it ... */
	unsigned lost_factor;
	unsigned lost_most; /* ... up to this many times the lost time */
	uint64_t lost_max;  /* ... and up to this time in any case */
	/* ---- programs that spin on memory ---- */
	/* a program spins on memory if packets come at least this long ... */
	uint64_t mem_spin_min;
	uint64_t mem_spin_max;	/* ... and at most this long after its last call */
	unsigned mem_spin_step; /* points for each such call; a successful poll removes one */
	unsigned mem_spin_from; /* a program with this many points spins on memory */
	unsigned mem_spin_cap;	/* the points are limited to about this number */
	unsigned vain_polls; /* after this many polls in vain the program is expected to poll on */
	/* after this many posts that were each followed by a poll, the next poll is expected */
	unsigned posts_polled;
	/* after busy polls found this many requests in a row, the program counts as a poller */
	unsigned poller_from;
	/* the same, at most, after such rows in which other requests waited for a thread */
	unsigned poller_most;
	/*
	 * A new program gets at most this many busy polls in vain before it is taken for a poller;
	 * one, unless requests of its peer come late.
	 */
	unsigned trial;
	/* ---- programs that sleep ---- */
	/*
	 * a program that has armed a completion queue is a poller again after this many successful
	 * polls
	 */
	unsigned armed_hits;
	/* ---- yielding the only core, after posts and in busy polls ---- */
	unsigned yield_rarely; /* the most posts, or looks of busy polls, between two yields */
	/*
	 * no other thread took a yield that lasted less than this; in `struct caller`, nor one that
	 * lasted less than yield_calls times another system call
	 */
	uint64_t yield_untaken;
	unsigned yield_calls;
	/* another thread used a longer yield for unrelated work, if no answer came */
	uint64_t yield_long;
	unsigned yield_factor; /* the next yield waits for this many times that yield's length */
	uint64_t core_recheck; /* interval of checks whether the thread may use several cores */
	/* ---- the service thread ---- */
	uint64_t slice;	      /* the time slice requested from the scheduler */
	uint64_t timer_slack; /* the time by which the Linux kernel may delay the thread's timers */
	/*
	 * the first nap while a thread in drive_wait_fd() is the service poller; each nap doubles
	 * the last
	 */
	uint64_t standby_min;
	uint64_t standby_max; /* the longest such nap; then the thread sleeps until it is woken */
	/* interval of looks at control work while the thread does not sleep */
	uint64_t control_every;
	uint64_t control_own; /* the longest wait to own a PU for a port's control work */
	uint64_t steer_every; /* the shortest interval between changes of the thread's cores */
	/* number of timers at the thread's start, which measure the cost of a wake-up */
	unsigned first_wakes;
	/* ---- owners of a PU ---- */
	/* the turns that an owner runs to arm the ports before it wakes the service poller */
	unsigned rearm_turns;
	/*
	 * the turns that an owner runs for kicks of other threads before it wakes the service
	 * poller
	 */
	unsigned kicked_turns;
	unsigned receive_turns; /* the most turns that drive_receive() runs */
	/* after this many waits inside this library a program no longer sleeps outside of it */
	unsigned outside_waits;
} policy_table = {
	/* nap_min: a nap also lasts at least until the end of the lease */
	.lease = 20 * US,
	.nap_min = 20 * US, /* "naps beside a poller" */
	.nap_max = 2 * MS,  /* "naps beside a poller" */
	.nap_grow = 8,	    /* "naps beside a poller" */
	/* wake_max: the delay of a completion event stays in the range of a wake-up */
	.nap_armed = 100 * US,
	.late_ok = 5 * MS,    /* more than a tick of 4 ms (CONFIG_HZ=250) */
	.mask_most = 10 * MS, /* 2 * late_ok */
	.horizon = 2500 * US, /* more than nap_max, so a nap needs no kick; less than late_ok */
	.active = 100 * MS,   /* "the first post after a pause" */
	.dense = 200 * US,    /* "the first post after a pause" */
	/* not measured; a wrong guess costs an empty turn, or a kick of the service thread */
	.busy = 8,
	/* not measured; limits the CPU time spent on a port that takes nothing */
	.stuck_turns = 64,
	/* not measured; limits the delay after such a port takes packets again */
	.stuck_nap = 50 * US,
	/* its stake, 50 us, lies between wake_min and wake_max; used until the first sample */
	.wake_first = 25 * US,
	.wake_min = 20 * US,  /* "spinning and sleeping" */
	.wake_max = 100 * US, /* "spinning and sleeping" */
	/*
	 * Not measured. Bounds the cost above three times the best choice to 8 stakes, and the
	 * events that turn a bet round to 9 (test_policy.c: bets_cost_three_times_the_best,
	 * bets_forget).
	 */
	.bet_cap = 8,
	.yield_every = 20 * US, /* wake_min: a busy poll of the smallest stake has one yield */
	.yield_again = 5 * US,	/* not measured; between yield_untaken and yield_every */
	.in_a_row = 1 * MS,	/* "two taken yields within 1 ms" */
	.lost_look = 50 * US,	/* "spinning and sleeping" */
	.lost_min = 200 * US,	/* "the first run of another service thread" */
	.lost_factor = 1,	/* "two taken yields within 1 ms" */
	.lost_most = 512,	/* not measured; nine doublings: 10 ms for the smallest stake */
	/* not measured; the longest time for which a loss of the core prevents spinning */
	.lost_max = 10000 * MS,
	.mem_spin_min = 4 * US,	 /* "programs that spin on memory" */
	.mem_spin_max = 10 * MS, /* "programs that spin on memory" */
	.mem_spin_step = 8,	 /* not measured; less than mem_spin_from: one call is too few */
	/* "two late packets make a program that spins on memory" */
	.mem_spin_from = 12,
	.mem_spin_cap = 32, /* four steps */
	.vain_polls = 4,    /* "programs that spin on memory" */
	.posts_polled = 4,  /* "programs that spin on memory" */
	.poller_from = 8,   /* "a program whose busy polls find every request" */
	/*
	 * Not measured. Bounds the share of the time that requests wait for the service thread to
	 * look by itself (late_ok) if wake-ups for the others take 20 us or more each: a fifth.
	 */
	.poller_most = 1024,
	.trial = 4,	  /* "the first polls of a new program" */
	.armed_hits = 16, /* "programs that arm a completion queue" */
	/* not measured; one untaken yield in 256 posts adds less than 8 ns a post */
	.yield_rarely = 256,
	.yield_untaken = 2 * US, /* "untaken yields where system calls are slow" */
	.yield_calls = 3,	 /* "untaken yields where system calls are slow" */
	/* not measured; more than wake_max, less than a scheduler's time slice of some ms */
	.yield_long = 200 * US,
	.yield_factor = 5, /* not measured; such yields take a sixth of the time at most */
	/* not measured; at most ten checks a second, and a change is noticed within 100 ms */
	.core_recheck = 100 * MS,
	.slice = 100 * US, /* the shortest slice that Linux grants (sched(7)) */
	/* not measured; a twentieth of wake_min. The default of Linux is 50 us (prctl(2)) */
	.timer_slack = 1 * US,
	.standby_min = 1 * MS, /* less than horizon, so the end of a wait need not kick */
	/* not measured; ten naps that double, about 1 s in all, then no more timers */
	.standby_max = 1000 * MS,
	/* not measured; one epoll_wait(2) a ms, and control work is late by about 1 ms */
	.control_every = 1 * MS,
	/*
	 * not measured; limits how long other PUs wait. The event stays, so the thread tries again
	 */
	.control_own = 200 * US,
	/* not measured; at most 100 changes a second, each of up to two system calls */
	.steer_every = 10 * MS,
	/* not measured; delays the thread's first look by 4 * nap_min and four wake-ups */
	.first_wakes = 4,
	/* not measured; limits the turns that one call of the program runs to arm the ports */
	.rearm_turns = 4,
	/* not measured; limits the turns that one call of the program runs for others */
	.kicked_turns = 8,
	/*
	 * "packets that have arrived are processed before a queue pair ends"; the number was not
	 * measured: it limits the turns beside peers that send without a pause
	 */
	.receive_turns = 64,
	.outside_waits = 16, /* armed_hits */
};

/* ---- the cost of a wake-up ---- */

/*
 * An estimate of the median cost. Each sample moves the estimate by an eighth, so one sample of a
 * thread that had lost its core changes little.
 */
struct wake_cost {
	_Atomic uint64_t ns; /* 0: not measured yet; written by one thread */
};

/* Adds a sample: a thread ran `late` ns after the event that woke it. */
void wake_cost_learn(struct wake_cost *w, uint64_t late);

/*
 * Returns the stake of a bet in ns: twice the measured delay, but at least wake_min and at most
 * wake_max. The delay begins when the thread is woken and ends when it runs. The system calls and
 * cold caches around the wake-up cost about as much again.
 */
uint64_t wake_cost_stake(const struct wake_cost *w);

/* ---- bets ---- */

/*
 * A busy poll of up to `stake` ns saves a wake-up, which costs `stake`, if the event comes in that
 * time. The gain or loss is known afterwards, even if no busy poll was run. The thread takes the
 * next bet if the sum of gains and losses is not negative.
 *
 * The cost is at most three times that of the best choice in hindsight, which pays best = min(gap,
 * stake) for each event. A bet that is taken pays at most 2 best. A bet that is not taken pays
 * stake. If stake is more than best, the difference is added to a negative sum. All such
 * differences together are therefore at most the earlier losses. Each loss is one stake, which the
 * best choice paid as well.
 */
struct bet {
	int64_t sum; /* ns */
};

static inline bool bet_on(const struct bet *b)
{
	return b->sum >= 0;
}

/*
 * Adds the outcome of a bet, taken or not. The event came `gap` ns after the busy poll began or
 * would have begun; UINT64_MAX: the event never came.
 */
void bet_settle(struct bet *b, uint64_t stake, uint64_t gap);

/* ---- the service thread ---- */

enum spin_action {
	SPIN_SLEEP, /* a busy poll does not pay */
	SPIN_BUSY_POLL,
	SPIN_YIELD, /* yield the core, report the time with spinner_lost(), then busy poll */
};

struct spinner {
	struct bet bet;
	uint64_t idle_since;  /* time of the last turn with work; 0: none yet */
	uint64_t until;	      /* the thread does not spin before this time */
	uint64_t pause;	      /* length of the last such pause */
	uint64_t yielded;     /* time of the last yield of the core */
	uint64_t slept_at;    /* start of the sleep after a busy poll in vain; 0: none */
	bool busy_polled;     /* the thread has busy polled since its last work */
	uint64_t yield_ended; /* time at which spinner_lost() was told of the last yield */
	bool taken;	      /* another thread took the last yield */
	bool waited;	      /* packets came within one stake of the thread's last sleep */
	/* the last turn woke a thread of the program, which may wait for this core */
	bool woke;
};

/*
 * Initializes the state. The first bets are taken: a NIC that is used for the first time is likely
 * to be used again at once.
 */
void spinner_init(struct spinner *s);
/* Records that the service thread goes to sleep. */
void spinner_sleeps(struct spinner *s, uint64_t now);
/*
 * Records that a turn of the service thread found work. `slept`: a wake-up came before the turn.
 * `woke`: the turn raised an event of the program. If twice in a row packets come as soon as the
 * thread sleeps, and not while it busy polled, their sender waits for the core of the service
 * thread: this counts as a loss of the core.
 */
void spinner_worked(struct spinner *s, uint64_t now, uint64_t stake, bool slept, bool woke);
/* Returns the action after turns that found no work. */
enum spin_action spinner_idle(struct spinner *s, uint64_t now, uint64_t stake);
/*
 * Records that the service thread has its core again after `ns`, during which another thread ran on
 * it (0: none did). `yielded`: the service thread had yielded the core. Spinning pauses if the
 * other thread ran for lost_min or longer, or took two yields within in_a_row, however short. A
 * single short run may be a timer of any thread and does not count.
 */
void spinner_lost(struct spinner *s, uint64_t now, uint64_t ns, bool yielded, uint64_t stake);

/* ---- the program ---- */

enum caller_kind {
	/*
	 * The program polls for its packets, or busy polls find the packets that its own polls
	 * miss. While the program polls, the service thread does not sleep on the ports. If the
	 * program posts only now and then, the service thread sleeps on the ports, and packets are
	 * masked while a poll is expected.
	 */
	CALLER_POLLS,
	/* The program armed a completion queue recently. Any packet may have to wake it. */
	CALLER_SLEEPS,
	/*
	 * The program spins on memory between its polls. The service thread must write to that
	 * memory.
	 */
	CALLER_SPINS,
};

/* The last turn of the owner of a processing unit. */
enum pu_turn {
	PU_IDLE,    /* no turn was run; a control call ends */
	PU_SENT,    /* no turn was run; a control call that sent datagrams of QP 1 ends */
	PU_WORKED,  /* a turn that is neither for a poll nor for a post of the program */
	PU_POSTED,  /* a turn for a post of the program */
	PU_YIELDS,  /* the same, and the thread yields its core to the peer after the turn */
	PU_POLLED,  /* a poll that found work */
	PU_BUSY,    /* a poll that found much work; more is likely to come */
	PU_IN_VAIN, /* a poll that found no work */
	PU_TAKEN,   /* the program has taken completions and stops polling */
};

/* The action for a service thread that sleeps on the ports. */
enum caller_action {
	CALLER_KEEP,   /* do nothing */
	CALLER_REARM,  /* arm the ports again, because they were used */
	CALLER_MASK,   /* mask the packets, because the program is about to poll for them */
	CALLER_UNMASK, /* let packets wake the service thread again */
	CALLER_WAKE,   /* wake the service thread */
};

/* How often a thread yields: rarely while no other thread takes its yields. */
struct yield_rate {
	_Atomic uint32_t in, every; /* occasions until the next yield, and between two */
};

/* Only the owner of the processing unit accesses fields without a note. */
struct caller {
	/* points for spinning on memory; the owner writes them, any thread reads them */
	_Atomic uint8_t mem_spin;
	/*
	 * successful polls since a completion queue was armed; the thread that arms writes it, too
	 */
	_Atomic uint8_t hits;
	/*
	 * Requests in a row that busy polls found, up to `enough`, with which the program counts as
	 * a poller. A row in which other requests waited doubles `enough`, and a row that ends with
	 * a busy poll in vain halves it. Threads: as for mem_spin.
	 */
	_Atomic uint16_t found, enough;
	/* busy polls that are left of policy_table.trial; threads: as for mem_spin */
	_Atomic uint8_t trial;
	/*
	 * A post came while earlier ones were under way, so no answer is awaited. Any thread sets
	 * it, the owner clears it.
	 */
	atomic_bool batch;
	/* the turn of a post was left to another thread; any thread sets it, the owner clears it */
	atomic_bool left;
	uint8_t in_vain;      /* polls in vain in a row */
	uint8_t posts_polled; /* posts in a row that were followed by a poll */
	bool posted;	      /* the program has posted since the last poll */
	/*
	 * the program has posted with nothing else under way, and no poll has become a busy poll
	 * since
	 */
	bool awaits;
	struct bet busy_poll;
	uint64_t requests; /* requests of peers that had come at the program's last post */
	/* time since when the answer to that post is awaited; 0: it came, or is not awaited */
	uint64_t awaits_since;
	/* time of the last successful poll beside a service thread that sleeps on the ports */
	uint64_t found_at;
	/* time of the last call that counted for mem_spin; each call counts once */
	uint64_t counted;
	/*
	 * For yields. Any thread that posts uses these fields; a race between two threads costs a
	 * yield.
	 */
	atomic_bool one_core; /* the program may use only one core, as far as is known */
	struct yield_rate post_yields, poll_yields;
	_Atomic uint64_t no_yield_until;
	_Atomic uint64_t call_ns; /* of a system call that is no yield, as last measured */
};

void caller_init(struct caller *c);

enum caller_kind caller_kind(const struct caller *c);

static inline bool caller_spins(const struct caller *c)
{
	return atomic_load_explicit(&c->mem_spin, memory_order_relaxed) >=
	       policy_table.mem_spin_from;
}

/*
 * Returns true if polls of the program may continue as busy polls: it spins on memory, or it is
 * new. Without the busy polls of a new program, each of the first operations of a ping-pong would
 * cost a wake-up at both ends until the program is known to spin on memory.
 */
static inline bool caller_may_busy_poll(const struct caller *c)
{
	return caller_spins(c) || atomic_load_explicit(&c->trial, memory_order_relaxed);
}

static inline bool caller_sleeps(const struct caller *c)
{
	return atomic_load_explicit(&c->hits, memory_order_seq_cst) < policy_table.armed_hits;
}

/* Records a successful poll. */
void caller_hit(struct caller *c);
/* Records a poll; `found`: it was successful. */
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
/* Records that the program armed a completion queue with a channel. Any thread. */
void caller_armed(struct caller *c);
/*
 * Records a post with nothing else under way, of a program whose polls may continue as busy polls.
 * `requests`: the number of requests of peers that came before the post.
 */
void caller_posted(struct caller *c, uint64_t now, uint64_t requests, uint64_t stake);
/*
 * Records a post that caller_posted() cannot record: another thread runs its turn, or earlier posts
 * are under way (`batch`), whose answers cannot be told from the answer to this one. Any thread.
 */
static inline void caller_left(struct caller *c, bool batch)
{
	if (caller_may_busy_poll(c)) /* otherwise the cache line stays with the poller */
		atomic_store_explicit(batch ? &c->batch : &c->left, true, memory_order_relaxed);
}
/*
 * Returns true, once, if a post came that caller_posted() has not recorded yet. The owner calls
 * this function before the turn of the next poll.
 */
static inline bool caller_was_left(struct caller *c)
{
	if (!atomic_load_explicit(&c->left, memory_order_relaxed))
		return false;
	atomic_store_explicit(&c->left, false, memory_order_relaxed);
	return true;
}
/* Records that the service thread found packets. `last_call`: the program's last call; 0: none. */
void caller_found_by_service(struct caller *c, uint64_t last_call, uint64_t now);
/*
 * Returns the action after a turn beside a service thread that sleeps on the ports, masked or not,
 * until `wake` at the latest. `waiter`: another thread of the program may sleep until a completion
 * event.
 */
enum caller_action caller_beside(struct caller *c, enum pu_turn turn, bool masked, uint64_t now,
				 uint64_t wake, bool waiter);
/*
 * Records that a program whose polls may continue as busy polls has taken its completion. Returns
 * the end of a busy poll that the drive runs in its place, for the request of its peer; 0: no busy
 * poll.
 */
uint64_t caller_busy_poll(struct caller *c, uint64_t now, uint64_t stake, uint64_t requests);
/*
 * Records that the program stops polling and the request of its peer has not come. From then on
 * packets must wake the service thread. A new program therefore counts as spinning on memory until
 * its next successful poll.
 */
void caller_gone(struct caller *c);
/* Records that a receive completed instead, for which the program polls itself. */
void caller_received(struct caller *c);
/*
 * Records the number of requests of peers that have come until `now`. `slept`: the service thread
 * was woken to find them. A late request does not end the busy polls of a new program before the
 * trial is over, because the peer may have begun later than this program.
 */
void caller_requests(struct caller *c, uint64_t now, uint64_t stake, uint64_t requests, bool slept);

/*
 * Counts a post. Returns true if the thread should yield its core after the post, provided that it
 * may use only one core. The program of the peer may wait for that core. The post was delivered,
 * but while the program spins on memory for the answer, the peer runs only when the scheduler takes
 * the core away, milliseconds later.
 */
bool caller_yields(struct caller *c, uint64_t now);
/* Records that the thread may use several cores. */
void caller_yield_needless(struct caller *c, uint64_t now);
/*
 * Records a yield that began at `now` and lasted `took` ns. `call`: ns of another system call just
 * before, which shows what they cost on this machine. `answered`: packets had come when the yield
 * ended, so the peer used the core.
 */
void caller_yielded(struct caller *c, uint64_t now, uint64_t took, uint64_t call, bool answered);
/*
 * Counts a look of a busy poll that found nothing. Returns true if the thread should yield its core
 * before the next look, because the program of the peer may wait for the only core.
 */
bool caller_yields_in_poll(struct caller *c);
/* Records a yield in a busy poll, which lasted `took` ns. */
void caller_yielded_in_poll(struct caller *c, uint64_t took);

/*
 * Returns the length of the service thread's next nap beside a poller whose lease it found renewed.
 * `last`: the nap before, 0: none. `armed`: a thread may sleep until a completion event. The first
 * nap is the longest if busy polls find every request, because the program wakes the thread when
 * they no longer do. Any thread.
 */
uint64_t policy_nap(const struct caller *c, uint64_t last, bool armed);

#endif
