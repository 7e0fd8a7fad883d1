/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The service poller runs a PU's turns when the program does not poll. It is the service thread, or
 * a thread that blocks in drive_wait_fd(). Its states for each PU:
 *
 *            a poller renews the lease                      lease over
 *   +------------------------------------------+   +-----------------------------------+
 *   v                                          |   |                                   v
 *  nap: sleeps on a timer, 20 us to 2 ms,      +---+ owns the PU: runs turns until nothing is
 *  longer each time the lease is renewed             left, arms the ports, and sleeps on them
 *                                                    until the core's next deadline
 *   ^                                                                                  |
 *   |            woken, and a poller is there                                          |
 *   +----------------------------------------------------------------------------------+
 *
 * During a nap beside a poller the service poller does not sleep on the ports, because a second
 * sleeper costs every packet a wake-up. For two kinds of program the service poller must sleep on
 * the ports even during a lease (struct caller in policy.h). One kind polls for its own completion
 * and then spins on the memory that its peer writes (ib_write_lat). The other kind arms a
 * completion queue and sleeps in poll(2), outside of this library. For the first kind, packets are
 * masked if the program itself polls for them. Otherwise they would wake the service poller in
 * vain. On a shared core such a thread does not run at once when it is needed, because the
 * scheduler owes it less time than the program (Linux since 6.6: eligibility in EEVDF).
 */
#include <sys/eventfd.h>

#include "base/cores.h"
#include "base/sys.h"
#include "drive/engine.h"

int service_poller_init(struct service_poller *t, struct drive *d, enum service_poller_bit bit)
{
	t->d = d;
	t->bit = bit;
	t->wake_fd = sys_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return t->wake_fd < 0 ? t->wake_fd : 0;
}

void service_poller_fini(struct service_poller *t)
{
	if (t->wake_fd >= 0)
		sys_close(t->wake_fd);
	t->wake_fd = -1;
}

void service_poller_kick(struct service_poller *t)
{
	uint64_t one = 1;

	if (atomic_exchange_explicit(&t->kicked, 1, memory_order_seq_cst))
		return;
	atomic_store_explicit(&t->kicked_at, clock_now(), memory_order_relaxed);
	sys_write(t->wake_fd, &one, sizeof(one));
}

void service_poller_drain(struct service_poller *t)
{
	uint64_t count;

	sys_read(t->wake_fd, &count, sizeof(count));
}

void service_kick(struct drive *d)
{
	if (atomic_load_explicit(&d->waiting, memory_order_seq_cst)) {
		service_poller_kick(&d->waiter);
		/*
		 * The waiter may have ended without another look. It clears `waiting` and then
		 * loads `kicked`; this thread kicks and then loads `waiting`. One of the two sees
		 * the other.
		 */
		if (atomic_load_explicit(&d->waiting, memory_order_seq_cst))
			return;
	}
	service_poller_kick(&d->service);
}

/* Returns true if the service thread sleeps on the ports even during a lease. */
static bool stays_on_ports(const struct service_poller *t, unsigned i)
{
	return t->bit == BY_SERVICE_THREAD && caller_kind(&t->d->pu[i].caller) != CALLER_POLLS;
}

/* Sleeps on a timer. The next owner disarms the ports. */
static enum service_verdict nap(struct service_poller *t, unsigned i, uint64_t wake)
{
	struct drive_pu *p = &t->d->pu[i];
	struct service_pu *tp = &t->pu[i];

	tp->on_port = tp->ready = false;
	tp->wake = wake;
	atomic_store_explicit(&p->masked, false, memory_order_relaxed);
	atomic_store_explicit(&p->next_visit, wake, memory_order_relaxed);
	atomic_fetch_and_explicit(&p->sleepers, ~(uint32_t)t->bit, memory_order_seq_cst);
	/*
	 * A program that arms a completion queue loads `sleepers` afterwards, so one of the two
	 * threads sees the other (drive_cq_armed).
	 */
	return t->bit == BY_SERVICE_THREAD && caller_sleeps(&p->caller) ? SERVICE_AGAIN
									: SERVICE_SLEEP;
}

static enum service_verdict leave_to_poller(struct service_poller *t, unsigned i, uint64_t now,
					    uint64_t lease, bool renewed)
{
	struct service_pu *tp = &t->pu[i];

	if (!renewed) /* the look came before the end of the lease */
		return nap(t, i, lease);
	tp->nap = policy_nap(&t->d->pu[i].caller, tp->nap,
			     atomic_load_explicit(&t->d->armed, memory_order_relaxed) > 0);
	return nap(t, i, now + tp->nap > lease ? now + tp->nap : lease);
}

static uint64_t max64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/*
 * Goes to sleep on the ports, unless a packet has come meanwhile. Called by the owner when no work
 * is left.
 */
static enum service_verdict sleep_on_ports(struct service_poller *t, unsigned i, uint64_t now)
{
	struct drive *d = t->d;
	struct drive_pu *p = &d->pu[i];
	struct service_pu *tp = &t->pu[i];
	uint64_t active = max64(tp->last_work,
				max64(atomic_load_explicit(&p->lease_end, memory_order_relaxed),
				      atomic_load_explicit(&p->doorbell_at, memory_order_relaxed)));
	uint64_t wake;

	if (!pu_arm(d, i)) {
		pu_drop(p);
		return SERVICE_AGAIN;
	}
	wake = nic_deadline(d->nic, i);
	/*
	 * A program that spins on memory runs the core's timers when it polls, so the thread sets
	 * no timer for a close deadline.
	 */
	if (active + policy_table.active > now &&
	    (caller_kind(&p->caller) == CALLER_SPINS || wake > now + policy_table.late_ok))
		wake = now + policy_table.late_ok;
	if (tp->stuck && wake > now + policy_table.stuck_nap)
		wake = now + policy_table.stuck_nap;
	/* The owner stores the sleeper and the time of its next look. */
	tp->on_port = tp->look = true;
	tp->wake = wake;
	p->had_sleeper = true;
	p->caller.in_vain = 0;
	atomic_store_explicit(&p->masked, false, memory_order_relaxed);
	atomic_store_explicit(&p->next_visit, wake, memory_order_relaxed);
	atomic_fetch_or_explicit(&p->sleepers, (uint32_t)t->bit, memory_order_relaxed);
	return pu_drop(p) ? SERVICE_AGAIN : SERVICE_SLEEP;
}

/*
 * Leaves the PU to its owner. A port woke the thread while another thread runs a turn. That turn
 * may have looked at the port just before the packet came; the kick makes its owner run another
 * turn. Beside a poller this happens with every packet that the poller waits for. The service
 * poller then stays on the ports. They are still readable, so this requires a sleep that only a new
 * packet ends (service_poller.edge).
 */
static enum service_verdict leave_to_owner(struct service_poller *t, unsigned i, uint64_t now)
{
	struct service_pu *tp = &t->pu[i];

	if (!stays_on_ports(t, i) || !t->edge)
		return nap(t, i, now + policy_table.nap_min);
	/* Without a ready port this thread has left no kick, so it looks again soon. */
	tp->wake = now + (tp->ready ? policy_table.late_ok : policy_table.nap_min);
	tp->ready = false;
	atomic_store_explicit(&t->d->pu[i].next_visit, tp->wake, memory_order_relaxed);
	return SERVICE_SLEEP;
}

/* Records that a turn of the service thread found work. Owner only. */
static void worked(struct service_poller *t, unsigned i, uint64_t now, bool woke)
{
	struct drive_pu *p = &t->d->pu[i];
	uint64_t lease = atomic_load_explicit(&p->lease_end, memory_order_relaxed);
	uint64_t last_call =
		lease ? max64(lease - policy_table.lease,
			      atomic_load_explicit(&p->doorbell_at, memory_order_relaxed))
		      : 0;
	uint64_t stake = wake_cost_stake(&t->d->wake);

	spinner_worked(&t->spinner, now, stake, t->slept, woke);
	caller_found_by_service(&p->caller, last_call, now);
	if (caller_may_busy_poll(&p->caller))
		caller_requests(&p->caller, now, stake, nic_rx_totals(t->d->nic, i).requests,
				t->slept);
	t->slept = false;
}

/*
 * Returns true if a busy poll pays after a turn that found nothing. It does not pay beside a
 * program that spins on memory, whose core it might take. It does not pay under a short quota of
 * CPU time either: a quota that is used up stops all threads for the rest of the period.
 */
static bool pays_to_busy_poll(struct service_poller *t, unsigned i, uint64_t now)
{
	enum spin_action action;

	if (t->bit != BY_SERVICE_THREAD || caller_kind(&t->d->pu[i].caller) == CALLER_SPINS ||
	    cores_quota_short())
		return false;
	action = spinner_idle(&t->spinner, now, wake_cost_stake(&t->d->wake));
	if (action > t->spin)
		t->spin = action;
	return action != SPIN_SLEEP;
}

/* Does the part of a visit that owns the PU. */
static enum service_verdict service_turn(struct service_poller *t, unsigned i, uint64_t now)
{
	struct drive *d = t->d;
	struct service_pu *tp = &t->pu[i];
	unsigned events = atomic_load_explicit(&d->events, memory_order_relaxed);
	bool more;
	unsigned work;

	work = pu_poll(d, i, now);
	/*
	 * Reads the descriptor that woke the thread, because it stays readable otherwise. This
	 * comes after the turn, because a peer waits for the answer.
	 */
	if (tp->ready)
		pu_disarm(d, i, true);
	tp->ready = false;
	if (work) {
		tp->last_work = now;
		if (t->bit == BY_SERVICE_THREAD)
			worked(t, i, now,
			       atomic_load_explicit(&d->events, memory_order_relaxed) != events);
	}
	more = nic_pending(d->nic, i);
	tp->stuck = more && !work ? tp->stuck + 1 : 0;
	/*
	 * Datagrams for QP 1 that this turn received come first: to arm the ports before them would
	 * cost system calls for each burst of requests.
	 */
	if (work >= policy_table.busy || (more && tp->stuck < policy_table.stuck_turns) ||
	    (t->bit == BY_SERVICE_THREAD && work && !gsi_due(d))) {
		pu_drop(&d->pu[i]);
		return SERVICE_AGAIN;
	}
	if (pays_to_busy_poll(t, i, now))
		return pu_drop(&d->pu[i]) ? SERVICE_AGAIN : SERVICE_BUSY_POLL;
	return sleep_on_ports(t, i, now);
}

enum service_verdict service_visit(struct service_poller *t, unsigned i)
{
	struct drive_pu *p = &t->d->pu[i];
	struct service_pu *tp = &t->pu[i];
	uint64_t now = clock_now();
	uint64_t lease = atomic_load_explicit(&p->lease_end, memory_order_relaxed);
	bool renewed = lease != tp->lease;

	if (t->bit == BY_WAITER) {
		/*
		 * A lease from before the wait may be that of this thread, which no longer polls.
		 */
		if (lease > now && renewed)
			return nap(t, i, lease);
	} else {
		tp->lease = lease;
		if (lease > now && !stays_on_ports(t, i))
			return leave_to_poller(t, i, now, lease, renewed);
	}
	if (tp->on_port && tp->ready) {
		if (!pu_try_or_kick(p))
			return leave_to_owner(t, i, now);
	} else if (!pu_try(p)) {
		if (tp->on_port)
			return leave_to_owner(t, i, now);
		/* The turn takes long: its poller is at work, even if the lease has ended. */
		return t->bit == BY_WAITER ? nap(t, i, now + policy_table.nap_min)
					   : leave_to_poller(t, i, now, now, true);
	}
	tp->nap = 0;
	return service_turn(t, i, now);
}

uint64_t service_next_visit(const struct service_poller *t)
{
	uint64_t wake = UINT64_MAX;

	for (unsigned i = 0; i < t->d->pus; i++) {
		if (t->pu[i].wake < wake)
			wake = t->pu[i].wake;
	}
	return wake;
}

void service_leave_ports(struct service_poller *t)
{
	for (unsigned i = 0; i < t->d->pus; i++) {
		t->pu[i].on_port = t->pu[i].ready = false;
		atomic_store_explicit(&t->d->pu[i].masked, false, memory_order_relaxed);
		/*
		 * This store comes before the load of `armed` in others_sleep(). drive_cq_armed()
		 * stores `armed` and then loads `sleepers`.
		 */
		atomic_fetch_and_explicit(&t->d->pu[i].sleepers, ~(uint32_t)t->bit,
					  memory_order_seq_cst);
	}
}
