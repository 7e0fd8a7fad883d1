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
 * Packets then lie until the nap is over, and it is we who find them, again and again (count_away). Such a PU
 * is `hybrid`: the tender sleeps on the ports at once, lease or not, and the program's calls say whether a
 * packet wakes it. A few polls in vain shut its eyes, one with success opens them (beside_sleeper). So it is
 * woken for the packets that the program spins for, not for those it polls for; on a shared core a thread that
 * was woken in vain would not be run at once when it is needed, because it is due less of the core than the
 * program (Linux since 6.6: eligibility in EEVDF). And its polls and posts look for more than they were called for, so
 * that there is less to wake us for (pu.c: linger(), look_after_offer()).
 */
#include <sys/eventfd.h>

#include "base/sys.h"
#include "drive/engine.h"

#define ACTIVE_NS    (2 * MS) /* so long after a turn, ours or another's, we look at least every RECENT_NS */
#define SPIN_NS	     (50 * US)
#define STUCK_TURNS  64
#define STUCK_NAP_NS (50 * US)

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

	tp->on_port = tp->ready = false;
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
	tp->nap = tp->nap ? tp->nap * 2 : NAP_MIN_NS;
	if (tp->nap > NAP_MAX_NS)
		tp->nap = NAP_MAX_NS;
	return nap(t, i, now + tp->nap > lease ? now + tp->nap : lease);
}

static uint64_t max64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
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
	if (active + ACTIVE_NS > now && (pu_hybrid(p) || wake > now + RECENT_NS))
		wake = now + RECENT_NS;
	if (tp->stuck && wake > now + STUCK_NAP_NS)
		wake = now + STUCK_NAP_NS;
	/* The owner's last words: who sleeps where, and until when. */
	tp->on_port = tp->look = true;
	tp->wake = wake;
	p->attended = true;
	p->in_vain = 0;
	atomic_store_explicit(&p->blind, false, memory_order_relaxed);
	atomic_store_explicit(&p->tend_wake, wake, memory_order_relaxed);
	atomic_fetch_or_explicit(&p->sleepers, (uint32_t)t->bit, memory_order_relaxed);
	return pu_drop(p) ? TEND_AGAIN : TEND_SLEEP;
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

	if (!pu_hybrid(&t->d->pu[i]) || !t->edge)
		return nap(t, i, now + NAP_MIN_NS);
	/* Who was woken by something else has left no kick. */
	tp->wake = now + (tp->ready ? RECENT_NS : NAP_MIN_NS);
	tp->ready = false;
	atomic_store_explicit(&t->d->pu[i].tend_wake, tp->wake, memory_order_relaxed);
	return TEND_SLEEP;
}

/*
 * Packets were waiting: for us because the program is away, though it was here a moment ago? Once for each time that it is: a poller
 * that was preempted does not come back before the turns that we run one behind the other. Owner.
 */
static void count_away(struct drive_pu *p, struct tend_pu *tp, uint64_t now)
{
	uint64_t lease = atomic_load_explicit(&p->lease_end, memory_order_relaxed);
	uint64_t here = max64(lease - LEASE_NS, atomic_load_explicit(&p->rang, memory_order_relaxed));
	uint8_t away = atomic_load_explicit(&p->away, memory_order_relaxed);

	if (here == tp->counted)
		return;
	if (lease && now > here + AWAY_NS && now < here + AWAY_LONG && away < AWAY_MAX) {
		tp->counted = here;
		atomic_store_explicit(&p->away, away + AWAY_STEP, memory_order_relaxed);
	}
}

/* The owner's part of a visit. */
static enum tend_verdict tend_turn(struct tender *t, unsigned i, uint64_t now, bool may_spin)
{
	struct drive *d = t->d;
	struct tend_pu *tp = &t->pu[i];
	bool more;
	unsigned work;

	/* Reads what woke us, or the descriptor stays readable. */
	if (tp->ready)
		pu_disarm(d, i);
	work = pu_poll(d, i, now);
	tp->ready = false;
	if (work) {
		tp->last_work = now;
		if (t->bit == TENDER_SERVICE)
			count_away(&d->pu[i], tp, now);
	}
	more = nic_pending(d->nic, i);
	tp->stuck = more && !work ? tp->stuck + 1 : 0;
	if (work >= BUSY_TURN || (more && tp->stuck < STUCK_TURNS)) {
		pu_drop(&d->pu[i]);
		return TEND_AGAIN;
	}
	if (may_spin && now - tp->last_work < SPIN_NS)
		return pu_drop(&d->pu[i]) ? TEND_AGAIN : TEND_SPIN;
	return sleep_on_ports(t, i, now);
}

enum tend_verdict tend_visit(struct tender *t, unsigned i, bool may_spin)
{
	struct drive_pu *p = &t->d->pu[i];
	struct tend_pu *tp = &t->pu[i];
	uint64_t now = clock_now();
	uint64_t lease = atomic_load_explicit(&p->lease_end, memory_order_relaxed);
	bool renewed = lease != tp->lease, hybrid = pu_hybrid(p);

	if (t->bit == TENDER_WAITER) {
		/*
		 * The lease as it stood when the wait began may be our own thread's, which polls no longer.
		 */
		if (lease > now && renewed)
			return nap(t, i, lease);
	} else {
		tp->lease = lease;
		if (lease > now && !hybrid)
			return leave_to_poller(t, i, now, lease, renewed);
	}
	if (tp->on_port && tp->ready) {
		if (!pu_try_or_kick(p))
			return leave_to_owner(t, i, now);
	} else if (!pu_try(p)) {
		if (tp->on_port)
			return leave_to_owner(t, i, now);
		/* A long turn: its poller is at work, whatever the lease says. */
		return t->bit == TENDER_WAITER ? nap(t, i, now + NAP_MIN_NS)
					       : leave_to_poller(t, i, now, now, true);
	}
	tp->nap = 0;
	return tend_turn(t, i, now, may_spin && !hybrid);
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
		t->pu[i].on_port = t->pu[i].ready = false;
		atomic_store_explicit(&t->d->pu[i].blind, false, memory_order_relaxed);
		atomic_fetch_and_explicit(&t->d->pu[i].sleepers, ~(uint32_t)t->bit, memory_order_release);
	}
}
