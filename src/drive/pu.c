/* SPDX-License-Identifier: BSD-2-Clause */
/* Ownership of processing units, for turns, doorbells and control calls. */
#include <sched.h>
#include <time.h>

#include "base/assert.h"
#include "base/cores.h"
#include "base/sys.h"
#include "drive/engine.h"
#include "nic/nic_rpc.h"

bool pu_try_or_kick(struct drive_pu *p)
{
	uint32_t w = atomic_load_explicit(&p->word, memory_order_relaxed);

	for (;;) {
		uint32_t to = w == 0 ? PU_OWNED : w | PU_KICKED;

		/*
		 * The kick is stored even if it is set already. The owner clears it with an
		 * exchange. The owner's next turn sees the stores of this thread only if this
		 * exchange is the earlier one in the order of the word.
		 */
		if (atomic_compare_exchange_weak_explicit(&p->word, &w, to, memory_order_acq_rel,
							  memory_order_relaxed))
			return to == PU_OWNED;
	}
}

bool pu_own(struct drive_pu *p, uint64_t until)
{
	uint32_t w = atomic_fetch_add_explicit(&p->word, PU_WANT, memory_order_relaxed) + PU_WANT;
	struct timespec nap = {.tv_nsec = 20 * US};

	for (unsigned tries = 0;; tries++) {
		bool late = tries >= 500 && clock_now() >= until;

		/*
		 * The function gives up only while another thread is the owner. That owner then
		 * handles a kick that came meanwhile.
		 */
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
			sched_yield(); /* the owner may wait for this core */
		else /* not nanosleep(2), where a thread with locks could be cancelled */
			sys_ppoll(NULL, 0, &nap, NULL);
		w = atomic_load_explicit(&p->word, memory_order_relaxed);
	}
}

/*
 * Called inside a turn of another PU. The owner of PU i, or the service thread, runs a turn of PU
 * i.
 */
void pu_call(void *host, unsigned i)
{
	struct drive *d = host;

	if (pu_try_or_kick(&d->pu[i])) {
		pu_drop(&d->pu[i]);
		service_kick(d);
	}
}

void pu_disarm(struct drive *d, unsigned i, bool woken)
{
	for (unsigned k = 0; k < drive_ports(d); k++)
		d->port[k][i]->ops->disarm(d->port[k][i], woken);
}

bool pu_arm(struct drive *d, unsigned i)
{
	bool idle = true;

	for (unsigned k = 0; k < drive_ports(d); k++)
		idle &= d->port[k][i]->ops->arm(d->port[k][i]);
	return idle;
}

/*
 * Arms the ports again after a turn that used them while a thread sleeps on them. Arming a shm port
 * also makes sure that the peers to which it sent are awake. A port with new packets, or with
 * packets still in use, needs another turn, which does not run at the end of a control call.
 * Returns false if the ports could not be armed.
 */
static bool keep_armed(struct drive *d, unsigned i, enum pu_turn turn)
{
	for (unsigned turns = 0; turns < policy_table.rearm_turns; turns++) {
		if (pu_arm(d, i))
			return true;
		if (turn == PU_IDLE || turn == PU_SENT)
			return false;
		pu_poll(d, i, clock_now());
	}
	return false;
}

static bool service_wake_needed(struct drive *d, unsigned i, uint64_t now, uint64_t wake)
{
	struct drive_pu *p = &d->pu[i];
	bool polled = atomic_load_explicit(&p->lease_end, memory_order_relaxed) > now;

	if (wake > now + policy_table.late_ok && nic_deadline(d->nic, i) < wake)
		return true;
	return (!polled || wake > now + policy_table.late_ok) && nic_pending(d->nic, i);
}

/*
 * Masks the packets. They do not wake the service thread then, because peers do not ring bells, and
 * the epoll set reports no packets at sockets. Does nothing while the program sleeps, because it
 * may just have armed a completion queue (drive_cq_armed). Returns true if it masked the packets.
 * Owner only.
 */
static bool mask(struct drive *d, unsigned i)
{
	struct drive_pu *p = &d->pu[i];

	atomic_store_explicit(&p->masked, true, memory_order_seq_cst);
	if (caller_sleeps(&p->caller)) {
		atomic_store_explicit(&p->masked, false, memory_order_relaxed);
		return false;
	}
	for (unsigned k = 0; k < drive_ports(d); k++) {
		struct port *port = d->port[k][i];

		if (!port->mask_fd)
			port->ops->disarm(port, false);
	}
	service_listen(d, i, false);
	return true;
}

/* Ends the mask. Returns false if a port has work to do at once. Owner only. */
static bool unmask(struct drive *d, unsigned i, enum pu_turn turn)
{
	if (!keep_armed(d, i, turn))
		return false;
	atomic_store_explicit(&d->pu[i].masked, false, memory_order_relaxed);
	service_listen(d, i, true);
	return true;
}

/*
 * Handles a turn while a service poller sleeps on the ports. Returns true if the service poller
 * must be woken.
 */
static bool handle_sleeper(struct drive *d, unsigned i, uint64_t now, uint64_t wake,
			   enum pu_turn turn)
{
	struct drive_pu *p = &d->pu[i];
	bool masked = atomic_load_explicit(&p->masked, memory_order_relaxed);
	/* an armed queue: its thread may sleep outside of this library */
	bool waiter = atomic_load_explicit(&p->sleepers, memory_order_relaxed) & BY_WAITER ||
		      atomic_load_explicit(&d->armed, memory_order_relaxed) > 0;

	switch (caller_beside(&p->caller, turn, masked, now, wake, waiter)) {
	case CALLER_KEEP:
		break;
	case CALLER_REARM:
		return !keep_armed(d, i, turn);
	case CALLER_MASK: /* mask() returns false if a completion queue was armed meanwhile */
		return !mask(d, i) && !keep_armed(d, i, turn);
	case CALLER_UNMASK:
		return !unmask(d, i, turn);
	case CALLER_WAKE:
		return true;
	}
	return false;
}

static void __attribute__((noinline))
settle_slow(struct drive *d, unsigned i, uint64_t now, uint64_t wake, enum pu_turn turn)
{
	struct drive_pu *p = &d->pu[i];
	bool kick;

	if (!atomic_load_explicit(&p->sleepers, memory_order_acquire)) {
		/*
		 * The service poller has left the ports to a poller, so peers need not wake a
		 * thread.
		 */
		if (p->had_sleeper)
			pu_disarm(d, i, false);
		p->had_sleeper = false;
		kick = wake > now + policy_table.horizon;
	} else {
		kick = handle_sleeper(d, i, now, wake, turn);
		/* After the turns that arm the ports: they too may leave work, or a delayed ACK. */
		kick |= service_wake_needed(d, i, now, wake);
		atomic_store_explicit(&p->cpu, sched_getcpu(), memory_order_relaxed);
	}
	if (kick)
		service_kick(d);
}

void pu_settle(struct drive *d, unsigned i, uint64_t now, enum pu_turn turn)
{
	struct drive_pu *p = &d->pu[i];
	uint64_t wake = atomic_load_explicit(&p->next_visit, memory_order_relaxed);

	if (unlikely(p->had_sleeper || wake > now + policy_table.horizon))
		settle_slow(d, i, now, wake, turn);
}

/*
 * Called when the owner leaves the PU. Without a poller and a sleeper on the ports, the service
 * poller still naps because of a poller that has stopped. Work that is left must not wait for the
 * end of that nap.
 */
static void kick_if_work_left(struct drive *d, unsigned i, uint64_t now)
{
	struct drive_pu *p = &d->pu[i];

	if (atomic_load_explicit(&p->lease_end, memory_order_relaxed) > now ||
	    atomic_load_explicit(&p->sleepers, memory_order_relaxed) ||
	    atomic_load_explicit(&p->next_visit, memory_order_relaxed) <=
		    now + policy_table.nap_min)
		return;
	/*
	 * Looks at an empty shm port also make sure that its peers are awake. The first look after
	 * a flush leaves out the fence that this takes (rx_burst in shm.c), so there are two.
	 */
	if (pu_poll(d, i, now) || pu_poll(d, i, now) || nic_pending(d->nic, i))
		service_kick(d);
}

void pu_turn(struct drive *d, unsigned i, uint64_t now, enum pu_turn turn)
{
	pu_poll(d, i, now);
	kick_if_work_left(d, i, now);
	/*
	 * Settles the PU after a turn without work, too: the thread that kicked may be the service
	 * poller, which a packet had woken. The next packet must wake it again.
	 */
	pu_settle(d, i, now, turn);
}

bool pu_drop(struct drive_pu *p)
{
	/*
	 * The count of waiting control calls stays. The exchange acquires, because the caller must
	 * see the stores before a kick.
	 */
	return atomic_fetch_and_explicit(&p->word, ~(PU_OWNED | PU_KICKED), memory_order_acq_rel) &
	       PU_KICKED;
}

static void __attribute__((noinline)) release_slow(struct drive *d, unsigned i)
{
	struct drive_pu *p = &d->pu[i];

	ROOST_ASSERT(atomic_load_explicit(&p->word, memory_order_relaxed) & PU_OWNED);
	for (unsigned turns = 0; pu_drop(p); turns++) {
		if (!pu_try_or_kick(p))
			return; /* another owner runs the turn */
		if (turns == policy_table.kicked_turns) {
			pu_drop(p);
			service_kick(d);
			return;
		}
		pu_turn(d, i, clock_now(), PU_WORKED);
	}
}

void pu_release(struct drive *d, unsigned i)
{
	uint32_t w = PU_OWNED;

	if (unlikely(!atomic_compare_exchange_strong_explicit(
		    &d->pu[i].word, &w, 0, memory_order_release, memory_order_relaxed)))
		release_slow(d, i);
}

/* Records a post. Owner only, before its answer can have come. */
static void posted(struct drive *d, unsigned i, uint64_t now)
{
	struct drive_pu *p = &d->pu[i];

	if (unlikely(caller_may_busy_poll(&p->caller)))
		caller_posted(&p->caller, now, nic_rx_totals(d->nic, i).requests,
			      wake_cost_stake(&d->wake));
}

unsigned drive_progress(struct drive *d, unsigned i)
{
	struct drive_pu *p = &d->pu[i];
	uint64_t now;
	unsigned done;

	/* The PUs of a dead engine stay owned for ever. */
	if (unlikely(!pu_try(p))) {
		cpu_pause();
		return 0;
	}
	now = clock_now();
	if (atomic_load_explicit(&p->lease_end, memory_order_relaxed) <= now)
		p->caller.in_vain = 0; /* the earlier polls in vain do not count after a pause */
	if (unlikely(caller_was_left(&p->caller)))
		posted(d, i, now);
	done = pu_poll(d, i, now);
	/*
	 * One packet that makes space may have sent a whole batch, so the lease counts from the
	 * turn's end.
	 */
	if (done)
		now = clock_now();
	atomic_store_explicit(&p->lease_end, now + policy_table.lease, memory_order_relaxed);
	caller_polled(&p->caller, done != 0);
	pu_settle(d, i, now, !done ? PU_IN_VAIN : done < policy_table.busy ? PU_POLLED : PU_BUSY);
	pu_release(d, i);
	return done;
}

/*
 * Yields the core if the program may use only one, because the program of the peer can't answer
 * during a busy poll. It yields rarely if no other thread takes these yields. Returns false if
 * another thread owns the PU afterwards; the service thread has then been kicked. Owner only.
 */
static bool yield_to_peer(struct drive *d, unsigned i)
{
	struct drive_pu *p = &d->pu[i];
	uint64_t began;

	if (!caller_yields_in_poll(&p->caller))
		return true;
	pu_release(d, i);
	began = clock_now();
	sched_yield();
	caller_yielded_in_poll(&p->caller, clock_now() - began);
	if (pu_try(p))
		return true;
	service_kick(d);
	return false;
}

/*
 * Continues to poll in place of a program that would now spin on the memory that its peer writes.
 * The wake-up of the service thread often takes many times as long as the packet. The peer of a
 * ping-pong (ib_write_lat) writes as soon as it has the request, directly after its ACK, so this
 * thread polls for up to one stake.
 */
static void __attribute__((noinline)) busy_poll(struct drive *d, unsigned i)
{
	struct drive_pu *p = &d->pu[i];
	uint64_t now = clock_now(), until, stake = wake_cost_stake(&d->wake);
	struct nic_rx_totals rx;
	bool gone, received = false;

	if (!pu_try(p))
		return;
	/* the program has polled, and the service thread had found the completion before */
	caller_polled(&p->caller, false);
	rx = nic_rx_totals(d->nic, i);
	until = caller_busy_poll(&p->caller, now, stake, rx.requests);
	if (until &&
	    atomic_load_explicit(&p->sleepers, memory_order_relaxed) == BY_SERVICE_THREAD &&
	    !atomic_load_explicit(&p->masked, memory_order_relaxed))
		mask(d, i);
	/* The loop ends as soon as another thread wants the PU or rings. */
	while (now < until && rx.requests == p->caller.requests && !received &&
	       atomic_load_explicit(&p->word, memory_order_relaxed) == PU_OWNED) {
		uint64_t receives = rx.receives;

		pu_poll(d, i, now);
		rx = nic_rx_totals(d->nic, i);
		received = rx.receives != receives;
		if (rx.requests == p->caller.requests && !received && !yield_to_peer(d, i))
			return;
		now = clock_now();
	}
	gone = rx.requests == p->caller.requests;
	if (received)
		caller_received(&p->caller);
	else if (gone)
		caller_gone(&p->caller);
	caller_requests(&p->caller, now, stake, rx.requests, false);
	atomic_store_explicit(&p->lease_end, now + policy_table.lease, memory_order_relaxed);
	pu_settle(d, i, now, PU_TAKEN);
	/*
	 * The service thread may nap because it took the program for a poller. From now on the
	 * ports must wake the thread.
	 */
	gone &= !atomic_load_explicit(&p->sleepers, memory_order_relaxed);
	pu_release(d, i);
	if (gone)
		service_kick(d);
}

void drive_cqes_taken(struct drive *d, unsigned i)
{
	if (unlikely(caller_may_busy_poll(&d->pu[i].caller)))
		busy_poll(d, i);
}

/*
 * Returns true if an active poller can take the new work. Posts that come while earlier ones are
 * under way then leave together, at the next poll. If the program never polls again, a service
 * poller looks soon; for that, no thread may sleep until an event.
 */
static bool poller_takes_work(const struct drive_pu *p)
{
	uint64_t now = clock_now();

	return atomic_load_explicit(&p->lease_end, memory_order_relaxed) > now + US &&
	       atomic_load_explicit(&p->next_visit, memory_order_relaxed) <=
		       now + policy_table.horizon &&
	       !caller_sleeps(&p->caller);
}

/*
 * Yields the core after a post, because the program of the peer may wait for the only core. The
 * answer may be there when this thread runs again. This thread then takes the answer, and if
 * packets are masked, no other thread is woken.
 */
static void yield_core(struct drive *d, unsigned i)
{
	struct drive_pu *p = &d->pu[i];
	uint64_t began = clock_now(), now, took = 0, packets = 0;
	bool one = cores_allowed() < 2 || cores_quota_short(); /* this makes a system call */

	now = clock_now();
	if (one) {
		sched_yield();
		took = clock_now() - now;
	} else {
		caller_yield_needless(&p->caller, now);
	}
	if (!one && !atomic_load_explicit(&p->masked, memory_order_relaxed))
		return;
	/*
	 * The program may never poll again, so the mask ends here, or the service thread ends it.
	 */
	if (!pu_try(p)) {
		service_kick(d);
		return;
	}
	packets = nic_rx_totals(d->nic, i).packets;
	pu_poll(d, i, now + took);
	if (one)
		caller_yielded(&p->caller, now, took, now - began,
			       nic_rx_totals(d->nic, i).packets != packets);
	pu_settle(d, i, now + took, PU_POSTED);
	pu_release(d, i);
}

void drive_doorbell(struct drive *d, struct nic_qp *qp)
{
	unsigned i;
	struct drive_pu *p;
	uint64_t now;
	bool polled, yield, busy;

	if (!nic_doorbell(d->nic, qp))
		return;
	i = nic_qp_pu(qp);
	p = &d->pu[i];
	busy = nic_qp_busy(qp);
	if (((busy || nic_qp_batches(qp)) && poller_takes_work(p)) || !pu_try_or_kick(p)) {
		caller_left(&p->caller, busy);
		return;
	}
	now = clock_now();
	polled = atomic_load_explicit(&p->lease_end, memory_order_relaxed) > now;
	atomic_store_explicit(&p->doorbell_at, now, memory_order_relaxed);
	if (busy)
		caller_left(&p->caller, true);
	else
		posted(d, i, now);
	yield = unlikely(caller_yields(&p->caller, now));
	pu_turn(d, i, now, yield ? PU_YIELDS : PU_POSTED);
	if (polled) /* the lease of a poller must not end because of a long turn */
		atomic_store_explicit(&p->lease_end, clock_now() + policy_table.lease,
				      memory_order_relaxed);
	pu_release(d, i);
	if (yield)
		yield_core(d, i);
}

/*
 * Stores that the program sleeps (armed, outside_seq, caller.hits), then loads whether packets wake
 * a thread (masked, sleepers). Threads that change the latter use the opposite order. mask() and
 * nap() store, then load caller.hits. A waiter that ends (end_wait()) stores, then loads armed and
 * outside_seq. All accesses are sequentially consistent, so at least one side sees the other and
 * wakes the service thread.
 */
void drive_cq_armed(struct drive *d, bool anew, bool inside)
{
	bool kick = false;

	if (anew)
		atomic_fetch_add_explicit(&d->armed, 1, memory_order_seq_cst);
	if (!inside)
		atomic_store_explicit(&d->outside_seq,
				      atomic_load_explicit(&d->wait_seq, memory_order_relaxed),
				      memory_order_seq_cst);
	for (unsigned i = 0; i < d->pus; i++) {
		struct drive_pu *p = &d->pu[i];

		/*
		 * A thread that waits inside this library runs the turns of the PUs itself, so the
		 * service thread may nap.
		 */
		if (!inside)
			caller_armed(&p->caller);
		kick |= atomic_load_explicit(&p->masked, memory_order_seq_cst);
		kick |= !inside && !atomic_load_explicit(&p->sleepers, memory_order_seq_cst);
	}
	if (kick)
		service_kick(d);
}

void drive_cq_disarmed(struct drive *d)
{
	atomic_fetch_sub_explicit(&d->armed, 1, memory_order_relaxed);
}

void drive_cq_fired(struct drive *d)
{
	drive_cq_disarmed(d);
	atomic_fetch_add_explicit(&d->events, 1, memory_order_relaxed);
}

void drive_own(struct drive *d, unsigned i)
{
	if (!atomic_load_explicit(&d->dead, memory_order_relaxed))
		pu_own(&d->pu[i], UINT64_MAX);
}

void pu_disown(struct drive *d, unsigned i, enum pu_turn turn)
{
	struct drive_pu *p = &d->pu[i];
	uint64_t now;
	bool work;

	if (atomic_load_explicit(&d->dead, memory_order_relaxed))
		return;
	now = clock_now();
	pu_settle(d, i, now, turn);
	work = atomic_load_explicit(&p->lease_end, memory_order_relaxed) <= now &&
	       nic_pending(d->nic, i);
	if (pu_drop(p) || work)
		service_kick(d);
}

void drive_disown(struct drive *d, unsigned i)
{
	pu_disown(d, i, PU_IDLE);
}

void drive_send_datagrams(struct drive *d, unsigned i)
{
	if (drive_dead(d))
		return;
	fault_thread(); /* the NIC reads memory that the program may have unmapped */
	nic_send_datagrams(d->nic, i, clock_now());
}

void drive_receive(struct drive *d, unsigned i)
{
	unsigned in_vain = 0;

	/*
	 * One of two turns may send only, and not look at the ports (nic_poll()). A peer may have
	 * made its ring just before: the first control work accepts it, and the second one takes
	 * its hello.
	 */
	for (unsigned n = 0;
	     in_vain < 2 && n < policy_table.receive_turns && !drive_dead(d) && !gsi_is_filling(d);
	     n++) {
		uint64_t now;

		pu_own(&d->pu[i], UINT64_MAX);
		for (unsigned k = 0; k < drive_ports(d); k++) {
			struct port *p = d->port[k][i];

			if (p && p->ops->control)
				p->ops->control(p);
		}
		now = clock_now();
		in_vain = pu_poll(d, i, now) ? 0 : in_vain + 1;
		pu_settle(d, i, now, PU_WORKED);
		pu_release(d, i);
	}
}

void drive_quiesce(struct drive *d)
{
	for (unsigned i = 0; i < d->pus; i++) {
		drive_own(d, i);
		drive_disown(d, i);
	}
}
