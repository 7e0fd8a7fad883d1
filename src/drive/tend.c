/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tending: seeing to it that a PU's turns are run when no poller does. The service thread tends, and in its
 * place a thread that blocks in drive_wait_fd().
 *
 *            a poller renews the lease                      lease over
 *   +------------------------------------------+   +-----------------------------------+
 *   v                                          |   |                                   v
 *  nap: sleeps on a timer, 20 us to 1 ms,      +---+        owns the PU: turns until nothing is left,
 *  longer while the lease is found renewed                  arms the ports, sleeps on them until the
 *   ^                                                       core's next deadline
 *   |            woken, and a poller is there                                          |
 *   +----------------------------------------------------------------------------------+
 *
 * Napping beside a poller keeps us off the ports: a second sleeper costs every packet a wake-up. But a
 * program may poll for its own completion and then spin on memory for what its peer writes (ib_write_lat).
 * Packets then lie until the nap is over. A poller that pauses again and again makes the PU `hybrid`: the
 * tender sleeps on the ports at once, lease or not, as long as it is of use often enough, and not merely
 * woken by packets that the poller takes.
 *
 * On a core shared with the program even that is too much: a thread that has just run and is woken in vain is
 * not run at once when the packet comes that it should take, but milliseconds later, because it is due less
 * of the core than the program (Linux since 6.6: eligibility in EEVDF). So where the program and we take
 * packets in turns - it polls with success, then we are needed - we shut our eyes after each packet of ours,
 * and its next successful poll opens them (pu_settle). When that poll does not come, a timer wakes us, and we
 * watch again.
 */
#include <sys/eventfd.h>

#include "base/sys.h"
#include "drive/engine.h"

#define PAUSE_STEP     2 /* points for a poller that stopped polling; a lease found renewed takes one back */
#define PAUSE_LIMIT    6
#define JUDGE_EVERY_NS (100 * MS)
#define POLLER_NS      (1000 * MS) /* who was found to poll after all is taken for a poller so long */
#define ACTIVE_NS      (2 * MS) /* so long after a turn, ours or another's, we look at least every RECENT_NS */
#define BLIND_SKIP_MAX 64	/* packets not to shut our eyes after, when that went wrong again and again */
#define FRESH_POLL_NS  (3 * US) /* so soon after its last poll a poller is likely to be at it still */
#define SPIN_NS	       (50 * US)
#define BUSY_TURN      8 /* packets: more are likely to be there already */
#define STUCK_TURNS    64
#define STUCK_NAP_NS   (50 * US)

int tender_init(struct tender *t, struct drive *d, enum tender_bit bit)
{
	t->d = d;
	t->bit = bit;
	t->wake_fd = sys_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return t->wake_fd < 0 ? t->wake_fd : 0;
}

void tender_fini(struct tender *t)
{
	if (t->wake_fd >= 0)
		sys_close(t->wake_fd);
	t->wake_fd = -1;
}

void tender_kick(struct tender *t)
{
	uint64_t one = 1;

	if (!atomic_exchange_explicit(&t->kicked, 1, memory_order_seq_cst))
		sys_write(t->wake_fd, &one, sizeof(one));
}

void tender_drain(struct tender *t)
{
	uint64_t count;

	sys_read(t->wake_fd, &count, sizeof(count));
}

void tend_kick(struct drive *d)
{
	if (atomic_load_explicit(&d->waiting, memory_order_seq_cst)) {
		tender_kick(&d->waiter);
		/*
		 * It may have left just before and never look: it checks `kicked` after it has cleared
		 * `waiting`, we the other way round.
		 */
		if (atomic_load_explicit(&d->waiting, memory_order_seq_cst))
			return;
	}
	tender_kick(&d->service);
}

/* Not on the ports: the next owner disarms them. */
static enum tend_verdict nap(struct tender *t, unsigned i, uint64_t wake)
{
	struct drive_pu *p = &t->d->pu[i];
	struct tend_pu *tp = &t->pu[i];

	tp->on_port = tp->ready = tp->blind = false;
	tp->wake = wake;
	atomic_store_explicit(&p->blind, false, memory_order_relaxed);
	atomic_fetch_and_explicit(&p->sleepers, ~(uint32_t)t->bit, memory_order_release);
	atomic_store_explicit(&p->tend_wake, wake, memory_order_relaxed);
	return TEND_SLEEP;
}

static enum tend_verdict leave_to_poller(struct tender *t, unsigned i, uint64_t now, uint64_t lease,
					 bool renewed)
{
	struct tend_pu *tp = &t->pu[i];

	if (!renewed) /* looked too early */
		return nap(t, i, lease);
	if (tp->pauses > 0)
		tp->pauses--;
	tp->nap = tp->nap ? tp->nap * 2 : NAP_MIN_NS;
	if (tp->nap > NAP_MAX_NS)
		tp->nap = NAP_MAX_NS;
	return nap(t, i, now + tp->nap > lease ? now + tp->nap : lease);
}

/* Was it right to sleep on the ports beside a poller? */
static void judge(struct tend_pu *tp, uint64_t now)
{
	if (now - tp->judged < JUDGE_EVERY_NS)
		return;
	if (tp->useless > 3 * tp->useful) {
		tp->hybrid = false;
		tp->poller_until = now + POLLER_NS;
	}
	tp->useful = tp->useless = 0;
	tp->judged = now;
}

static void become_hybrid(struct tend_pu *tp, uint64_t now)
{
	tp->hybrid = true;
	tp->pauses = 0;
	tp->useful = tp->useless = 0;
	tp->judged = now;
}

/* The service thread found the lease over after it had been left to a poller. */
static void count_pause(struct tend_pu *tp, uint64_t now)
{
	tp->pauses += PAUSE_STEP;
	if (tp->pauses >= PAUSE_LIMIT && now >= tp->poller_until)
		become_hybrid(tp, now);
}

static uint64_t max64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The owner's last words: who sleeps where, and until when. */
static enum tend_verdict fall_asleep(struct tender *t, unsigned i, uint64_t wake, bool blind)
{
	struct drive_pu *p = &t->d->pu[i];
	struct tend_pu *tp = &t->pu[i];

	tp->on_port = true;
	tp->look = !blind;
	tp->blind = blind;
	tp->wake = wake;
	p->attended = true;
	atomic_store_explicit(&p->blind, blind, memory_order_relaxed);
	atomic_store_explicit(&p->tend_wake, wake, memory_order_relaxed);
	atomic_fetch_or_explicit(&p->sleepers, (uint32_t)t->bit, memory_order_relaxed);
	return pu_drop(p) ? TEND_AGAIN : TEND_SLEEP;
}

/* Owner, nothing left to do: goes to sleep on the ports, unless something came after all. */
static enum tend_verdict sleep_on_ports(struct tender *t, unsigned i, uint64_t now)
{
	struct drive *d = t->d;
	struct drive_pu *p = &d->pu[i];
	struct tend_pu *tp = &t->pu[i];
	uint64_t active =
		max64(tp->last_work, max64(atomic_load_explicit(&p->lease_end, memory_order_relaxed),
					   atomic_load_explicit(&p->rang, memory_order_relaxed)));
	uint64_t wake;

	if (!pu_arm(d, i)) {
		pu_drop(p);
		return TEND_AGAIN;
	}
	wake = nic_deadline(d->nic, i);
	/* A hybrid program runs the core's timers when it polls: close ones are not worth the setting. */
	if (active + ACTIVE_NS > now && (tp->hybrid || wake > now + RECENT_NS))
		wake = now + RECENT_NS;
	if (tp->stuck && wake > now + STUCK_NAP_NS)
		wake = now + STUCK_NAP_NS;
	return fall_asleep(t, i, wake, false);
}

/* Owner: the same with eyes shut. The ports are not armed; the poll that opens our eyes does it. */
static enum tend_verdict sleep_blind(struct tender *t, unsigned i, uint64_t now)
{
	/* If it was a poll that opened them, they shut with the packet that woke us. */
	if (!t->pu[i].blind)
		service_shut_eyes(t->d, i);
	return fall_asleep(t, i, now + RECENT_NS, true);
}

/*
 * A port woke us, and somebody is in a turn, which may have looked at the port just before the packet came:
 * kicked, he runs another. Beside a poller that happens with every packet it waits for; then we stay on the
 * ports. They are as readable as before, so this takes a sleep that ends with the next packet only
 * (tender.edge).
 */
static enum tend_verdict leave_to_owner(struct tender *t, unsigned i, uint64_t now)
{
	struct tend_pu *tp = &t->pu[i];

	if (!tp->hybrid || !t->edge)
		return nap(t, i, now + NAP_MIN_NS);
	tp->useless += tp->ready;
	judge(tp, now);
	tp->ready = false;
	tp->wake = now + RECENT_NS;
	atomic_store_explicit(&t->d->pu[i].tend_wake, tp->wake, memory_order_relaxed);
	return TEND_SLEEP;
}

/*
 * May we shut our eyes after this turn, which did `work`? When the packet was one that the program now reacts
 * to (it posts, polls for its completion, and so opens them), not when it was the completion. Owner of the
 * PU.
 */
static bool takes_turns(struct drive_pu *p, struct tend_pu *tp, uint64_t now, unsigned work)
{
	bool polled = p->polled != tp->polled, answer;

	if (!work)
		return false;
	if (tp->blind && polled && tp->ready) {
		tp->blind_skip -= tp->blind_skip > 0;
	} else if (tp->blind && !tp->ready) {
		/* The poll did not come, but packets did. */
		tp->blind_skip =
			tp->blind_skip * 2 < BLIND_SKIP_MAX ? tp->blind_skip * 2 + 1 : BLIND_SKIP_MAX;
		tp->skip = tp->blind_skip;
	}
	answer = !polled && atomic_load_explicit(&p->rang, memory_order_relaxed) > tp->last_turn;
	tp->polled = p->polled;
	tp->last_turn = now;
	if (!tp->ready || answer ||
	    atomic_load_explicit(&p->lease_end, memory_order_relaxed) + ACTIVE_NS < now)
		return false;
	if (tp->skip > 0) {
		tp->skip--;
		return false;
	}
	return true;
}

/* How useful is it to sleep on the ports beside a poller? */
static void weigh(struct tend_pu *tp, uint64_t now, unsigned work, bool fresh)
{
	if (!tp->hybrid || !tp->ready)
		return;
	/* Work so soon after a poll proves nothing: the next poll would have found it. */
	tp->useful += work && !fresh;
	tp->useless += !work;
	judge(tp, now);
}

/* The owner's part of a visit. */
static enum tend_verdict tend_turn(struct tender *t, unsigned i, uint64_t now, bool fresh, bool may_spin)
{
	struct drive *d = t->d;
	struct tend_pu *tp = &t->pu[i];
	bool more, in_turns = false;
	unsigned work;

	/* Reads what woke us, or the descriptor stays readable. */
	if (tp->ready)
		pu_disarm(d, i);
	work = nic_poll(d->nic, i, now);
	if (t->bit == TENDER_SERVICE) {
		weigh(tp, now, work, fresh);
		in_turns = takes_turns(&d->pu[i], tp, now, work);
		if (in_turns && !tp->hybrid)
			become_hybrid(tp, now);
	}
	tp->ready = false;
	if (work)
		tp->last_work = now;
	more = nic_pending(d->nic, i);
	tp->stuck = more && !work ? tp->stuck + 1 : 0;
	if (work >= BUSY_TURN || (more && tp->stuck < STUCK_TURNS)) {
		pu_drop(&d->pu[i]);
		return TEND_AGAIN;
	}
	if (may_spin && now - tp->last_work < SPIN_NS)
		return pu_drop(&d->pu[i]) ? TEND_AGAIN : TEND_SPIN;
	return in_turns ? sleep_blind(t, i, now) : sleep_on_ports(t, i, now);
}

enum tend_verdict tend_visit(struct tender *t, unsigned i, bool may_spin)
{
	struct drive_pu *p = &t->d->pu[i];
	struct tend_pu *tp = &t->pu[i];
	uint64_t now = clock_now();
	uint64_t lease = atomic_load_explicit(&p->lease_end, memory_order_relaxed);
	bool renewed = lease != tp->lease, fresh = lease + FRESH_POLL_NS > now + LEASE_NS;

	if (t->bit == TENDER_WAITER) {
		/*
		 * The lease as it stood when the wait began may be our own thread's, which polls no longer.
		 */
		if (lease > now && renewed)
			return nap(t, i, lease);
	} else {
		tp->lease = lease;
		if (lease > now && !tp->hybrid)
			return leave_to_poller(t, i, now, lease, renewed);
		if (tp->hybrid && may_spin && fresh && now - tp->last_work < SPIN_NS)
			return TEND_SPIN;
	}
	if (tp->on_port && tp->ready) {
		if (tp->blind) /* again, before the owner's last turn */
			atomic_store_explicit(&p->blind, true, memory_order_relaxed);
		if (!pu_try_or_kick(p))
			return leave_to_owner(t, i, now);
	} else if (!pu_try(p)) {
		if (tp->on_port)
			return leave_to_owner(t, i, now);
		/* A long turn: its poller is at work, whatever the lease says. */
		return t->bit == TENDER_WAITER ? nap(t, i, now + NAP_MIN_NS)
					       : leave_to_poller(t, i, now, now, true);
	}
	if (tp->nap && !tp->hybrid && t->bit == TENDER_SERVICE)
		count_pause(tp, now);
	tp->nap = 0;
	return tend_turn(t, i, now, fresh, may_spin);
}

uint64_t tend_wake(const struct tender *t)
{
	uint64_t wake = UINT64_MAX;

	for (unsigned i = 0; i < t->d->pus; i++) {
		if (t->pu[i].wake < wake)
			wake = t->pu[i].wake;
	}
	return wake;
}

void tend_leave_ports(struct tender *t)
{
	for (unsigned i = 0; i < t->d->pus; i++) {
		t->pu[i].on_port = t->pu[i].ready = t->pu[i].blind = false;
		atomic_store_explicit(&t->d->pu[i].blind, false, memory_order_relaxed);
		atomic_fetch_and_explicit(&t->d->pu[i].sleepers, ~(uint32_t)t->bit, memory_order_release);
	}
}
