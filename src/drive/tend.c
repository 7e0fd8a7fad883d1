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
 */
#include <sys/eventfd.h>

#include "base/sys.h"
#include "drive/engine.h"

#define PAUSE_STEP     2 /* points for a poller that stopped polling; a lease found renewed takes one back */
#define PAUSE_LIMIT    6
#define JUDGE_EVERY_NS (100 * MS)
#define POLLER_NS      (1000 * MS) /* who was found to poll after all is taken for a poller so long */
/*
 * So long after a turn, ours or another's, we look so often: then turns need not wake us for their time-outs.
 */
#define ACTIVE_NS      (2 * MS)
#define ACTIVE_WAKE_NS (500 * US)
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

	tp->on_port = tp->ready = false;
	tp->wake = wake;
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

/* The service thread found the lease over after it had been left to a poller. */
static void count_pause(struct tend_pu *tp, uint64_t now)
{
	tp->pauses += PAUSE_STEP;
	if (tp->pauses < PAUSE_LIMIT || now < tp->poller_until)
		return;
	tp->hybrid = true;
	tp->pauses = 0;
	tp->useful = tp->useless = 0;
	tp->judged = now;
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

	if (!pu_arm(d, i)) {
		pu_drop(p);
		return TEND_AGAIN;
	}
	tp->wake = nic_deadline(d->nic, i);
	if (active + ACTIVE_NS > now && tp->wake > now + ACTIVE_WAKE_NS)
		tp->wake = now + ACTIVE_WAKE_NS;
	if (tp->stuck && tp->wake > now + STUCK_NAP_NS)
		tp->wake = now + STUCK_NAP_NS;
	tp->on_port = tp->look = true;
	atomic_store_explicit(&p->tend_wake, tp->wake, memory_order_relaxed);
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
	uint64_t deadline;

	if (!tp->hybrid || !t->edge)
		return nap(t, i, now + NAP_MIN_NS);
	tp->useless += tp->ready;
	judge(tp, now);
	tp->ready = false;
	tp->wake = now + ACTIVE_WAKE_NS;
	deadline = atomic_load_explicit(&t->d->pu[i].deadline, memory_order_relaxed);
	if (deadline > now && deadline < tp->wake)
		tp->wake = deadline;
	atomic_store_explicit(&t->d->pu[i].tend_wake, tp->wake, memory_order_relaxed);
	return TEND_SLEEP;
}

/* The owner's part of a visit. */
static enum tend_verdict tend_turn(struct tender *t, unsigned i, uint64_t now, bool fresh, bool may_spin)
{
	struct drive *d = t->d;
	struct tend_pu *tp = &t->pu[i];
	unsigned work;
	bool more;

	/* Reads what woke us, or the descriptor stays readable. */
	if (tp->ready && d->pu[i].armed)
		pu_disarm(d, i);
	work = nic_poll(d->nic, i, now);
	if (tp->hybrid && tp->ready) {
		/* Work so soon after a poll proves nothing: the next poll would have found it. */
		tp->useful += work && !fresh;
		tp->useless += !work;
		judge(tp, now);
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
	return sleep_on_ports(t, i, now);
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
		if (tp->nap && !tp->hybrid)
			count_pause(tp, now);
		tp->nap = 0;
	}
	if (tp->on_port && tp->ready) {
		if (!pu_try_or_kick(p))
			return leave_to_owner(t, i, now);
	} else if (!pu_try(p)) {
		return tp->on_port ? leave_to_owner(t, i, now) : nap(t, i, now + NAP_MIN_NS);
	}
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
		t->pu[i].on_port = t->pu[i].ready = false;
		atomic_fetch_and_explicit(&t->d->pu[i].sleepers, ~(uint32_t)t->bit, memory_order_release);
	}
}
