/* SPDX-License-Identifier: BSD-2-Clause */
/* Ownership of a processing unit: turns, doorbells, control calls. */
#include <sched.h>
#include <time.h>

#include "drive/engine.h"

/* See offer_core(). */
#define OFFER_RARELY	 256 /* doorbells */
#define OFFER_UNTAKEN_NS (2 * US)
#define OFFER_LONG_NS	 (200 * US)
#define OFFER_RECHECK_NS (100 * MS)

/* See linger(). */
#define LINGER_NS	 (20 * US)
#define LINGER_CREDIT	 8
#define LINGER_PAUSE_MIN 64
#define LINGER_PAUSE_MAX 16384
#define LINGER_STAYS	 64

#define REARM_TURNS  4
#define KICKED_TURNS 8 /* turns an owner runs for others' doorbells before it leaves them to the tender */
#define IN_VAIN	     4 /* polls in vain after which a program is taken to go on polling */

bool pu_try_or_kick(struct drive_pu *p)
{
	uint32_t w = atomic_load_explicit(&p->word, memory_order_relaxed);

	for (;;) {
		uint32_t to = w == 0 ? PU_OWNED : w | PU_KICKED;

		/*
		 * Even where the kick is there already it is set again: the owner takes it back with an
		 * exchange of its own, and only if ours comes before that exchange in the order of the word
		 * does its turn see what we did before.
		 */
		if (atomic_compare_exchange_weak_explicit(&p->word, &w, to, memory_order_acq_rel,
							  memory_order_relaxed))
			return to == PU_OWNED;
	}
}

/* May this thread run on one core only? A system call. */
static bool one_core(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) < 2;
}

bool pu_own(struct drive_pu *p, uint64_t until)
{
	uint32_t w = atomic_fetch_add_explicit(&p->word, PU_WANT, memory_order_relaxed) + PU_WANT;
	struct timespec nap = {.tv_nsec = 20 * US};

	for (unsigned tries = 0;; tries++) {
		bool late = tries >= 500 && clock_now() >= until;

		/* Gives up only while somebody else is owner: a kick that came meanwhile is his to see. */
		while (late || !(w & PU_OWNED)) {
			bool free = !(w & PU_OWNED);

			if (atomic_compare_exchange_weak_explicit(
				    &p->word, &w, free ? (w - PU_WANT) | PU_OWNED : w - PU_WANT,
				    memory_order_acquire, memory_order_relaxed))
				return free;
		}
		if (tries < 500)
			cpu_pause();
		else if (tries < 520)
			sched_yield(); /* the owner may be waiting for this very core */
		else
			nanosleep(&nap, NULL);
		w = atomic_load_explicit(&p->word, memory_order_relaxed);
	}
}

/* From inside of another PU's turn, so that its owner, or the service thread, runs the turn. */
void pu_call(void *host, unsigned i)
{
	struct drive *d = host;

	if (pu_try_or_kick(&d->pu[i])) {
		pu_drop(&d->pu[i]);
		tend_kick(d);
	}
}

void pu_disarm(struct drive *d, unsigned i)
{
	for (unsigned k = 0; k < drive_ports(d); k++)
		d->port[k][i]->ops->disarm(d->port[k][i]);
}

bool pu_arm(struct drive *d, unsigned i)
{
	bool idle = true;

	for (unsigned k = 0; k < drive_ports(d); k++)
		idle &= d->port[k][i]->ops->arm(d->port[k][i]);
	return idle;
}

/*
 * A turn beside somebody who sleeps on the ports used them: they are armed anew (shm's arming also makes sure
 * that the peers we sent to are awake). Packets that came meanwhile, or still count as in use, want a turn
 * more.
 */
static bool keep_armed(struct drive *d, unsigned i)
{
	for (int turns = 0; turns < REARM_TURNS; turns++) {
		if (pu_arm(d, i))
			return true;
		pu_poll(d, i, clock_now());
	}
	return false;
}

static bool wake_tender_needed(struct drive *d, unsigned i, uint64_t now, uint64_t wake)
{
	struct drive_pu *p = &d->pu[i];
	bool polled = atomic_load_explicit(&p->lease_end, memory_order_relaxed) > now;

	if (wake > now + RECENT_NS && nic_deadline(d->nic, i) < wake)
		return true;
	return (!polled || wake > now + RECENT_NS) && nic_pending(d->nic, i);
}

/* After this a packet wakes the service thread again. False: there is something to do right away. Owner. */
static bool open_eyes(struct drive *d, unsigned i)
{
	/* A bell that peers ring (shm) has rung for nothing; a socket only has packets, and is armed still. */
	for (unsigned k = 0; k < drive_ports(d); k++) {
		struct port *port = d->port[k][i];

		if (!port->gather)
			port->ops->disarm(port);
	}
	if (!keep_armed(d, i))
		return false;
	atomic_store_explicit(&d->pu[i].blind, false, memory_order_relaxed);
	service_open_eyes(d, i);
	return true;
}

/*
 * A poll, or a turn without one, while a tender sleeps on the ports. True: it is wanted awake, to see that somebody polls
 * and to leave the ports to him. Beside a hybrid program it stays: not to be woken by what that is polling for, but by
 * what comes when it has got it, and may turn to other things.
 */
static bool beside_sleeper(struct drive *d, unsigned i, uint64_t now, uint64_t wake, enum pu_turn turn)
{
	struct drive_pu *p = &d->pu[i];
	bool blind = atomic_load_explicit(&p->blind, memory_order_relaxed);

	switch (turn) {
	case PU_IDLE:
		return false;
	case PU_WORKED:
		return !blind && !keep_armed(d, i);
	case PU_POLLED:
		p->in_vain = 0;
		if (!pu_hybrid(p))
			return true;
		if (!blind)
			return !keep_armed(d, i);
		return !open_eyes(d, i);
	case PU_IN_VAIN:
		if (blind || !pu_hybrid(p) || ++p->in_vain < IN_VAIN)
			return false;
		break;
	case PU_BUSY:
		if (!pu_hybrid(p))
			return true;
		if (blind)
			return false;
		break;
	}
	/* The program may never poll again: the tender must look by itself before long. */
	if (wake > now + RECENT_NS)
		return true;
	atomic_store_explicit(&p->blind, true, memory_order_relaxed);
	service_shut_eyes(d, i);
	return false;
}

static void __attribute__((noinline))
settle_slow(struct drive *d, unsigned i, uint64_t now, uint64_t wake, enum pu_turn turn)
{
	struct drive_pu *p = &d->pu[i];
	bool kick;

	if (!atomic_load_explicit(&p->sleepers, memory_order_acquire)) {
		/* The tender left the ports to a poller: peers need not wake anybody any more. */
		if (p->attended)
			pu_disarm(d, i);
		p->attended = false;
		kick = wake > now + HORIZON_NS;
	} else {
		kick = wake_tender_needed(d, i, now, wake);
		kick |= beside_sleeper(d, i, now, wake, turn);
		atomic_store_explicit(&p->cpu, sched_getcpu(), memory_order_relaxed);
	}
	if (kick)
		tend_kick(d);
}

void pu_settle(struct drive *d, unsigned i, uint64_t now, enum pu_turn turn)
{
	struct drive_pu *p = &d->pu[i];
	uint64_t wake = atomic_load_explicit(&p->tend_wake, memory_order_relaxed);

	if (unlikely(p->attended || wake > now + HORIZON_NS))
		settle_slow(d, i, now, wake, turn);
}

/*
 * The owner leaves, no poller is about, and nobody sleeps on the ports: the tender naps after a poller that
 * has gone. Then what is left must not wait for the end of its nap.
 */
static void leave_work(struct drive *d, unsigned i, uint64_t now)
{
	struct drive_pu *p = &d->pu[i];

	if (atomic_load_explicit(&p->lease_end, memory_order_relaxed) > now ||
	    atomic_load_explicit(&p->sleepers, memory_order_relaxed) ||
	    atomic_load_explicit(&p->tend_wake, memory_order_relaxed) <= now + NAP_MIN_NS)
		return;
	/* The empty look at the port is what makes sure that shm's peers are awake. */
	if (pu_poll(d, i, now) || nic_pending(d->nic, i))
		tend_kick(d);
}

void pu_turn(struct drive *d, unsigned i, uint64_t now)
{
	pu_poll(d, i, now);
	leave_work(d, i, now);
	/* Worked or not: who kicked us may have been woken, and is to be woken again. */
	pu_settle(d, i, now, PU_WORKED);
}

bool pu_drop(struct drive_pu *p)
{
	/* Wants stay. Acquire too: who kicked did so after what it wants seen. */
	return atomic_fetch_and_explicit(&p->word, ~(PU_OWNED | PU_KICKED), memory_order_acq_rel) & PU_KICKED;
}

static void __attribute__((noinline)) release_slow(struct drive *d, unsigned i)
{
	struct drive_pu *p = &d->pu[i];

	for (int turns = 0; pu_drop(p); turns++) {
		if (!pu_try_or_kick(p))
			return; /* another owner runs the turn */
		if (turns == KICKED_TURNS) {
			pu_drop(p);
			tend_kick(d);
			return;
		}
		pu_turn(d, i, clock_now());
	}
}

void pu_release(struct drive *d, unsigned i)
{
	uint32_t w = PU_OWNED;

	if (unlikely(!atomic_compare_exchange_strong_explicit(&d->pu[i].word, &w, 0, memory_order_release,
							      memory_order_relaxed)))
		release_slow(d, i);
}

/* It got what it polled for, and was not away; where it got more, that may be because we lingered. Owner. */
static void pu_stays(struct drive_pu *p, bool lingered)
{
	uint8_t away = atomic_load_explicit(&p->away, memory_order_relaxed);

	if (lingered && ++p->lingered_well % LINGER_STAYS)
		return;
	if (away > 0)
		atomic_store_explicit(&p->away, away - 1, memory_order_relaxed);
}

/* Lingering pays where nearly each time a request comes: in vain it weighs twice. */
static void weigh_lingering(struct drive_pu *p, bool well)
{
	if (well) {
		p->linger_credit += p->linger_credit < LINGER_CREDIT;
		p->linger_pause /= 2;
		return;
	}
	p->linger_credit -= 2;
	if (p->linger_credit > -LINGER_CREDIT)
		return;
	p->linger_credit = 0;
	p->linger_pause = p->linger_pause < LINGER_PAUSE_MIN ? LINGER_PAUSE_MIN : p->linger_pause;
	p->no_linger = p->linger_pause;
	if (p->linger_pause < LINGER_PAUSE_MAX)
		p->linger_pause *= 2;
}

/*
 * A hybrid program has got what it polled for, and goes on to spin on memory for what its peer writes: that will cost a wake-up of the
 * service thread, often many times what the packet's way takes. The peer of a ping-pong (ib_write_lat) writes as soon as our request is
 * there, so right behind its ACK: we go on polling in the program's place for as long. True: a request came, with the completion or after
 * it. Where none does, programs are left alone for a while, longer each time. Owner.
 */
static bool linger(struct drive *d, unsigned i, struct nic_came before)
{
	struct drive_pu *p = &d->pu[i];
	struct nic_came came = nic_came(d->nic, i);

	if (came.requests != before.requests)
		return true;
	if (came.packets == before.packets)
		return false; /* what was done is no completion */
	if (p->no_linger) {
		p->no_linger--;
		return false;
	}
	for (uint64_t now = clock_now(), until = now + LINGER_NS; now < until; now = clock_now()) {
		pu_poll(d, i, now);
		if (nic_came(d->nic, i).requests != before.requests) {
			weigh_lingering(p, true);
			return true;
		}
		/* Somebody wants the PU, or has rung. */
		if (atomic_load_explicit(&p->word, memory_order_relaxed) != PU_OWNED)
			return false;
	}
	weigh_lingering(p, false);
	return false;
}

unsigned drive_progress(struct drive *d, unsigned i)
{
	struct drive_pu *p = &d->pu[i];
	struct nic_came before = {0};
	uint64_t now;
	bool hybrid;
	unsigned done;

	/* A dead engine's PUs stay owned for ever. */
	if (unlikely(!pu_try(p))) {
		cpu_pause();
		return 0;
	}
	now = clock_now();
	if (atomic_load_explicit(&p->lease_end, memory_order_relaxed) <= now)
		p->in_vain = 0; /* those before were long ago */
	hybrid = pu_hybrid(p);
	if (unlikely(hybrid))
		before = nic_came(d->nic, i);
	done = pu_poll(d, i, now);
	if (done) {
		pu_stays(p, unlikely(hybrid) && linger(d, i, before));
		/* One packet that makes room may have sent a whole batch: the lease counts from its end. */
		now = clock_now();
	}
	atomic_store_explicit(&p->lease_end, now + LEASE_NS, memory_order_relaxed);
	pu_settle(d, i, now, !done ? PU_IN_VAIN : done < BUSY_TURN ? PU_POLLED : PU_BUSY);
	pu_release(d, i);
	return done;
}

/*
 * Leaves the new work to a poller that is at it: posts that come while earlier ones are under way then leave
 * together, at the next poll. The poller may never poll again; that is well as long as a tender looks soon.
 */
static bool poller_takes_it(const struct drive_pu *p)
{
	uint64_t now = clock_now();

	return atomic_load_explicit(&p->lease_end, memory_order_relaxed) > now + US &&
	       atomic_load_explicit(&p->tend_wake, memory_order_relaxed) <= now + HORIZON_NS;
}

/*
 * On a core that is the only one we may use, the peer's program may be waiting for it: what we just sent has
 * been delivered, but if we go on to spin on memory for the answer (ib_write_lat), it runs only when the
 * scheduler takes the core away from us, milliseconds later. So a doorbell that ran its own turn offers the
 * core once. An offer that nobody took makes us offer rarely; one that took long went to somebody with other
 * work, and is not repeated for a multiple of that time.
 */
static void offer_core(struct drive_pu *p)
{
	uint32_t every = atomic_load_explicit(&p->offer_every, memory_order_relaxed);
	uint64_t now = clock_now(), took;

	atomic_store_explicit(&p->offer_in, every, memory_order_relaxed);
	if (now < atomic_load_explicit(&p->no_offer_until, memory_order_relaxed))
		return;
	if (!one_core()) {
		atomic_store_explicit(&p->no_offer_until, now + OFFER_RECHECK_NS, memory_order_relaxed);
		return;
	}
	sched_yield();
	took = clock_now() - now;
	if (took < OFFER_UNTAKEN_NS)
		every = every < OFFER_RARELY ? every * 2 : every;
	else
		every = 1;
	if (took > OFFER_LONG_NS)
		atomic_store_explicit(&p->no_offer_until, now + took * 5, memory_order_relaxed);
	atomic_store_explicit(&p->offer_every, every, memory_order_relaxed);
}

static inline bool offer_due(struct drive_pu *p)
{
	uint32_t left = atomic_load_explicit(&p->offer_in, memory_order_relaxed);

	atomic_store_explicit(&p->offer_in, left - 1, memory_order_relaxed);
	return left <= 1;
}

/*
 * While a hybrid program offers its core, its peer's answer need not wake the service thread, which would run before the program, on the core that
 * both want: the program looks for itself when it has the core again. Owner.
 */
static bool shut_for_offer(struct drive *d, unsigned i, uint64_t now)
{
	struct drive_pu *p = &d->pu[i];

	if (!pu_hybrid(p) || now < atomic_load_explicit(&p->no_offer_until, memory_order_relaxed) ||
	    !(atomic_load_explicit(&p->sleepers, memory_order_relaxed) & TENDER_SERVICE) ||
	    atomic_load_explicit(&p->blind, memory_order_relaxed) ||
	    atomic_load_explicit(&p->tend_wake, memory_order_relaxed) > now + RECENT_NS)
		return false;
	atomic_store_explicit(&p->blind, true, memory_order_relaxed);
	service_shut_eyes(d, i);
	return true;
}

static void look_after_offer(struct drive *d, unsigned i)
{
	struct drive_pu *p = &d->pu[i];

	/* Nobody may poll after this, so the eyes open here, or the service thread sees to it. */
	if (!pu_try(p)) {
		tend_kick(d);
		return;
	}
	pu_poll(d, i, clock_now());
	if (atomic_load_explicit(&p->blind, memory_order_relaxed) && !open_eyes(d, i))
		tend_kick(d);
	pu_release(d, i);
}

void drive_doorbell(struct drive *d, struct nic_qp *qp)
{
	unsigned i;
	struct drive_pu *p;
	uint64_t now;
	bool polled, offer, shut;

	if (!nic_doorbell(d->nic, qp))
		return;
	i = nic_qp_pu(qp);
	p = &d->pu[i];
	if (nic_qp_busy(qp) && poller_takes_it(p))
		return;
	if (!pu_try_or_kick(p))
		return;
	now = clock_now();
	polled = atomic_load_explicit(&p->lease_end, memory_order_relaxed) > now;
	atomic_store_explicit(&p->rang, now, memory_order_relaxed);
	offer = unlikely(offer_due(p));
	shut = offer && shut_for_offer(d, i, now);
	pu_turn(d, i, now);
	if (polled) /* a long turn is no reason to take it for gone */
		atomic_store_explicit(&p->lease_end, clock_now() + LEASE_NS, memory_order_relaxed);
	pu_release(d, i);
	if (offer)
		offer_core(p);
	if (shut)
		look_after_offer(d, i);
}

void drive_own(struct drive *d, unsigned i)
{
	if (!atomic_load_explicit(&d->dead, memory_order_relaxed))
		pu_own(&d->pu[i], UINT64_MAX);
}

/* Runs no turn: the caller may hold locks that the host's callbacks want. */
void drive_disown(struct drive *d, unsigned i)
{
	struct drive_pu *p = &d->pu[i];
	uint64_t now;
	bool work;

	if (atomic_load_explicit(&d->dead, memory_order_relaxed))
		return;
	now = clock_now();
	pu_settle(d, i, now, PU_IDLE);
	work = atomic_load_explicit(&p->lease_end, memory_order_relaxed) <= now && nic_pending(d->nic, i);
	if (pu_drop(p) || work)
		tend_kick(d);
}

void drive_quiesce(struct drive *d)
{
	for (unsigned i = 0; i < d->pus; i++) {
		drive_own(d, i);
		drive_disown(d, i);
	}
}
