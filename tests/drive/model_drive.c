/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ends of the model: a processing unit with one port, the program that calls it, and its
 * service thread. Functions have the names of the functions in src/drive that they model. Comments
 * name the parts that they leave out.
 */
#include <stdlib.h>

#include "model.h"

/* Costs in ns, of the order of current machines. */
#define TURN_NS	  100 /* a turn that finds nothing */
#define PACKET_NS 150 /* each packet in it */
#define BELL_NS	  800 /* a bell that wakes a thread */

static uint64_t max64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t stake(const struct end *e)
{
	return wake_cost_stake(&e->wake_cost);
}

/* ---- the port and the NIC ---- */

static void send_packet(struct end *e, struct task *t, struct packet p)
{
	struct end *to = e->peer;

	e->m->stale = true;
	p.at = clk(t) + e->m->wire;
	to->flight[to->sent++ % MODEL_FLIGHT] = p;
	if (to->sent - to->taken > MODEL_FLIGHT)
		abort();
}

uint64_t end_next_packet(const struct end *e)
{
	return e->came == e->sent ? NEVER : e->flight[e->came % MODEL_FLIGHT].at;
}

/* The packet arrives at the port. It wakes the service thread if the port is armed. */
void end_packet_came(struct end *e)
{
	e->came++;
	if (!e->armed)
		return;
	e->armed = e->udp;
	if (!e->on_port)
		return;
	e->ready = e->bell = true;
	model_wake(e->service);
}

static bool arm(struct end *e)
{
	e->armed = e->came == e->taken;
	return e->armed;
}

static void complete(struct end *e)
{
	e->cqes++;
	if (!e->cq_armed)
		return;
	e->cq_armed = false;
	e->event = true;
	e->events++;
	model_wake(e->program);
}

static void receive(struct end *e, struct task *t, const struct packet *p)
{
	uint64_t waited = clk(t) - p->at;

	t->cost += PACKET_NS;
	e->packets++;
	e->worst_wait = max64(e->worst_wait, waited);
	e->late_packets += waited > e->m->late_at;
	if (p->completes)
		complete(e);
	if (!p->request) {
		e->outstanding--;
		return;
	}
	e->requests++;
	e->memory++;
	/* The ACK of a SEND makes no completion here: its program waits only for the answer. */
	if (!p->no_ack)
		send_packet(e, t, (struct packet){.completes = !p->completes});
}

static unsigned nic_poll(struct end *e, struct task *t)
{
	unsigned work = 0;

	t->cost += TURN_NS;
	while (e->taken != e->came) {
		receive(e, t, &e->flight[e->taken++ % MODEL_FLIGHT]);
		work++;
	}
	for (; e->posted; e->posted--, work++) {
		t->cost += PACKET_NS;
		send_packet(e, t,
			    (struct packet){.request = true,
					    .completes = e->script.verb == V_SEND,
					    .no_ack = e->script.verb == V_UC_WRITE});
		if (e->script.verb == V_UC_WRITE)
			complete(e);
		else
			e->outstanding++;
	}
	return work;
}

/* ---- pu.c; there is one service poller, the service thread, and the core has no timers ---- */

static void service_kick(struct end *e, struct task *t)
{
	if (e->wake_flag)
		return;
	e->wake_flag = e->wake_fd = true;
	e->kicked_at = clk(t);
	t->cost += BELL_NS;
	model_wake(e->service);
}

static bool try_or_kick(struct end *e)
{
	if (e->owned) {
		e->kicked = true;
		return false;
	}
	return e->owned = true;
}

static bool drop(struct end *e)
{
	bool kicked = e->kicked;

	e->owned = e->kicked = false;
	return kicked;
}

static bool keep_armed(struct end *e, struct task *t)
{
	for (unsigned turns = 0; turns < policy_table.rearm_turns; turns++) {
		if (arm(e))
			return true;
		nic_poll(e, t);
	}
	return false;
}

static void mask(struct end *e, struct task *t)
{
	if (caller_sleeps(&e->caller))
		return;
	e->masked = true;
	e->armed = false;
	if (e->udp)
		t->cost += SYS_NS;
}

static bool unmask(struct end *e, struct task *t)
{
	if (!keep_armed(e, t))
		return false;
	e->masked = false;
	if (e->udp)
		t->cost += SYS_NS;
	return true;
}

static bool handle_sleeper(struct end *e, struct task *t, uint64_t now, enum pu_turn turn)
{
	switch (caller_beside(&e->caller, turn, e->masked, now, e->next_visit, false)) {
	case CALLER_KEEP:
		break;
	case CALLER_REARM:
		return !keep_armed(e, t);
	case CALLER_MASK:
		mask(e, t);
		break;
	case CALLER_UNMASK:
		return !unmask(e, t);
	case CALLER_WAKE:
		return true;
	}
	return false;
}

static void settle(struct end *e, struct task *t, uint64_t now, enum pu_turn turn)
{
	bool kick;

	if (!e->had_sleeper && e->next_visit <= now + policy_table.horizon)
		return;
	if (!e->sleeper) {
		if (e->had_sleeper)
			e->armed = false;
		e->had_sleeper = false;
		kick = e->next_visit > now + policy_table.horizon;
	} else {
		kick = handle_sleeper(e, t, now, turn);
	}
	if (kick)
		service_kick(e, t);
}

static void kick_if_work_left(struct end *e, struct task *t, uint64_t now)
{
	if (e->lease_end > now || e->sleeper || e->next_visit <= now + policy_table.nap_min)
		return;
	if (nic_poll(e, t) || nic_poll(e, t))
		service_kick(e, t);
}

static void turn_of(struct end *e, struct task *t, enum pu_turn turn)
{
	uint64_t now = clk(t);

	nic_poll(e, t);
	kick_if_work_left(e, t, now);
	settle(e, t, now, turn);
}

static void release(struct end *e, struct task *t)
{
	while (drop(e)) {
		e->owned = true;
		turn_of(e, t, PU_WORKED);
	}
}

static void posted(struct end *e, uint64_t now)
{
	if (caller_may_busy_poll(&e->caller))
		caller_posted(&e->caller, now, e->requests, stake(e));
}

unsigned drive_progress(struct end *e, struct task *t)
{
	uint64_t now = clk(t);
	unsigned done;

	t->cost += CALL_NS;
	if (e->owned)
		return 0;
	e->owned = true;
	if (e->lease_end <= now)
		e->caller.in_vain = 0;
	if (caller_was_left(&e->caller))
		posted(e, now);
	done = nic_poll(e, t);
	if (done)
		now = clk(t);
	e->lease_end = now + policy_table.lease;
	caller_polled(&e->caller, done != 0);
	settle(e, t, now, !done ? PU_IN_VAIN : done < policy_table.busy ? PU_POLLED : PU_BUSY);
	release(e, t);
	return done;
}

/* Models drive_cqes_taken() up to the loop of busy_poll(). */
bool drive_cqes_taken(struct end *e, struct task *t)
{
	uint64_t now = clk(t);

	if (!caller_may_busy_poll(&e->caller) || e->owned)
		return false;
	e->owned = true;
	caller_polled(&e->caller, false);
	e->busy_poll_requests = e->requests;
	e->until = caller_busy_poll(&e->caller, now, stake(e), e->requests);
	if (e->until && e->sleeper && !e->masked)
		mask(e, t);
	return true;
}

void drive_busy_poll(struct end *e, struct task *t)
{
	uint64_t now = clk(t);
	bool gone;

	if (now < e->until && e->requests == e->busy_poll_requests && !e->kicked) {
		nic_poll(e, t);
		if (e->requests != e->busy_poll_requests || !e->caller.one_core)
			return;
		release(e, t);
		t->cost += SYS_NS;
		t->yields = true;
		e->doing = D_BUSY_POLL_BACK;
		return;
	}
	gone = e->requests == e->caller.requests;
	if (gone)
		caller_gone(&e->caller);
	caller_requests(&e->caller, now, stake(e), e->requests, false);
	e->lease_end = now + policy_table.lease;
	settle(e, t, now, PU_TAKEN);
	gone &= !e->sleeper;
	release(e, t);
	if (gone)
		service_kick(e, t);
	e->doing = D_WAIT;
}

void drive_busy_poll_back(struct end *e, struct task *t)
{
	t->cost += TURN_NS;
	if (e->owned) {
		service_kick(e, t);
		e->doing = D_WAIT;
		return;
	}
	e->owned = true;
	e->doing = D_BUSY_POLL;
}

bool drive_doorbell(struct end *e, struct task *t)
{
	uint64_t now = clk(t);
	bool polled, yield, busy = e->posted || e->outstanding;

	t->cost += CALL_NS;
	e->posted++;
	if ((busy && e->lease_end > now + US && e->next_visit <= now + policy_table.horizon &&
	     !caller_sleeps(&e->caller)) ||
	    !try_or_kick(e)) {
		caller_left(&e->caller, busy);
		return false;
	}
	polled = e->lease_end > now;
	e->rang = now;
	if (busy)
		caller_left(&e->caller, true);
	else
		posted(e, now);
	yield = caller_yields(&e->caller, now);
	turn_of(e, t, yield ? PU_YIELDS : PU_POSTED);
	if (polled)
		e->lease_end = clk(t) + policy_table.lease;
	release(e, t);
	return yield;
}

void drive_yield_back(struct end *e, struct task *t, bool one)
{
	uint64_t now = e->yielded_at, took = one ? clk(t) - now : 0, packets;

	if (!one)
		caller_yield_needless(&e->caller, now);
	if (!one && !e->masked)
		return;
	if (e->owned) {
		service_kick(e, t);
		return;
	}
	e->owned = true;
	packets = e->packets;
	nic_poll(e, t);
	if (one)
		caller_yielded(&e->caller, now, took, 0, e->packets != packets);
	settle(e, t, now + took, PU_POSTED);
	release(e, t);
}

void drive_cq_armed(struct end *e, struct task *t)
{
	caller_armed(&e->caller);
	if (e->masked || !e->sleeper)
		service_kick(e, t);
}

/* ---- service_poller.c ---- */

enum verdict { AGAIN, SPIN, SLEEP };

static enum verdict nap(struct end *e, uint64_t wake)
{
	e->on_port = e->ready = e->masked = e->sleeper = false;
	e->wake = e->next_visit = wake;
	return caller_sleeps(&e->caller) ? AGAIN : SLEEP;
}

static enum verdict leave_to_poller(struct end *e, uint64_t now, uint64_t lease, bool renewed)
{
	if (!renewed)
		return nap(e, lease);
	e->nap = policy_nap(&e->caller, e->nap, e->cq_armed);
	return nap(e, max64(now + e->nap, lease));
}

static enum verdict sleep_on_ports(struct end *e, uint64_t now)
{
	uint64_t active = max64(e->last_work, max64(e->lease_end, e->rang)), wake = NEVER;

	if (!arm(e)) {
		drop(e);
		return AGAIN;
	}
	if (active + policy_table.active > now)
		wake = now + policy_table.late_ok;
	e->on_port = e->had_sleeper = e->sleeper = true;
	e->caller.in_vain = 0;
	e->masked = false;
	e->wake = e->next_visit = wake;
	return drop(e) ? AGAIN : SLEEP;
}

static enum verdict leave_to_owner(struct end *e, uint64_t now)
{
	if (caller_kind(&e->caller) == CALLER_POLLS)
		return nap(e, now + policy_table.nap_min);
	e->wake = e->next_visit = now + (e->ready ? policy_table.late_ok : policy_table.nap_min);
	e->ready = false;
	return SLEEP;
}

static void worked(struct end *e, uint64_t now, bool woke)
{
	uint64_t called = e->lease_end ? max64(e->lease_end - policy_table.lease, e->rang) : 0;

	spinner_worked(&e->spinner, now, stake(e), e->slept, woke);
	caller_found_by_service(&e->caller, called, now);
	if (caller_may_busy_poll(&e->caller))
		caller_requests(&e->caller, now, stake(e), e->requests, e->slept);
	e->slept = false;
}

static enum spin_action spins(struct end *e, uint64_t now)
{
	switch (e->strategy) {
	case SPIN_ALWAYS:
		return SPIN_BUSY_POLL;
	case SPIN_NEVER:
		return SPIN_SLEEP;
	case BY_POLICY:
		break;
	}
	return spinner_idle(&e->spinner, now, stake(e));
}

static enum verdict service_turn(struct end *e, struct task *t, uint64_t now)
{
	unsigned events = e->events, work;

	if (e->ready)
		e->armed = false;
	e->ready = false;
	work = nic_poll(e, t);
	if (work) {
		e->last_work = now;
		worked(e, now, e->events != events);
	}
	if (work >= policy_table.busy) {
		drop(e);
		return AGAIN;
	}
	e->spin = caller_kind(&e->caller) == CALLER_SPINS ? SPIN_SLEEP : spins(e, now);
	if (e->spin != SPIN_SLEEP)
		return drop(e) ? AGAIN : SPIN;
	return sleep_on_ports(e, now);
}

static enum verdict service_visit(struct end *e, struct task *t)
{
	uint64_t now = clk(t), lease = e->lease_end;
	bool renewed = lease != e->lease, mine;

	e->lease = lease;
	if (lease > now && caller_kind(&e->caller) == CALLER_POLLS)
		return leave_to_poller(e, now, lease, renewed);
	mine = e->on_port && e->ready ? try_or_kick(e) : !e->owned;
	if (!mine && e->on_port)
		return leave_to_owner(e, now);
	if (!mine)
		return leave_to_poller(e, now, now, true);
	e->owned = true;
	e->nap = 0;
	return service_turn(e, t, now);
}

/* ---- service.c; without control work ---- */

/* The end of a step of busy polling, after the yield if there was one. */
static void looked(struct end *e, struct task *t, uint64_t since, bool yielded)
{
	long switches = e->switches;

	e->looked = clk(t);
	e->switches = t->forced;
	spinner_lost(&e->spinner, e->looked, e->switches != switches ? e->looked - since : 0,
		     yielded, stake(e));
}

static void spin_step(struct end *e, struct task *t)
{
	uint64_t now = clk(t), since = e->looked ? e->looked : now;

	if (e->spin == SPIN_BUSY_POLL && e->looked && now - since <= policy_table.lost_look) {
		e->looked = now;
		return;
	}
	if (e->spin == SPIN_YIELD) {
		t->cost += SYS_NS;
		t->yields = true;
		e->look_began = now; /* looked() follows at the next step */
		return;
	}
	looked(e, t, since, false);
}

static void fall_asleep(struct end *e, struct task *t)
{
	t->cost += SYS_NS;
	e->looked = 0;
	spinner_sleeps(&e->spinner, clk(t));
	e->was_asleep = true;
	if (e->wake_fd)
		return;
	t->sleeps = true;
	t->until = e->wake;
}

static void woke_up(struct end *e, struct task *t)
{
	uint64_t then = clk(t);

	e->was_asleep = false;
	e->slept = true;
	if (e->wake_fd && then > e->kicked_at)
		wake_cost_learn(&e->wake_cost, then - e->kicked_at);
	else if (!e->wake_fd && !e->bell && then > e->wake)
		wake_cost_learn(&e->wake_cost, then - e->wake);
	e->wake_fd = e->bell = false;
}

static void service_step(struct task *t)
{
	struct end *e = t->end;
	enum verdict v;

	if (e->was_asleep)
		woke_up(e, t);
	if (e->look_began)
		looked(e, t, e->look_began, true);
	e->look_began = 0;
	e->wake_flag = false;
	v = service_visit(e, t);
	if (v == SLEEP) {
		fall_asleep(e, t);
		return;
	}
	if (v == SPIN)
		spin_step(e, t);
	else
		e->looked = 0;
	if (v == SPIN)
		e->busy_polled_ns += t->cost;
}

static struct end *new_end(struct model *m, const struct script *s, unsigned cores, bool udp)
{
	struct end *e = &m->end[m->num_ends++];

	e->m = m;
	e->script = *s;
	e->udp = udp;
	e->doing = s->late ? D_BEGIN : s->starts ? D_POST : D_WAIT;
	e->until = m->now + s->late;
	caller_init(&e->caller);
	spinner_init(&e->spinner);
	e->service = model_task(m, service_step, cores);
	e->program = model_task(m, program_step, cores);
	e->service->end = e->program->end = e;
	return e;
}

void model_connect(struct model *m, const struct script *client, const struct script *server,
		   unsigned client_cores, unsigned server_cores, bool udp)
{
	struct end *c = new_end(m, client, client_cores, udp),
		   *s = new_end(m, server, server_cores, udp);

	c->peer = s;
	s->peer = c;
}

void end_measure(struct end *e)
{
	e->samples = e->late_packets = 0;
	e->worst_wait = e->busy_polled_ns = 0;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

uint64_t end_latency(struct end *e, unsigned percent)
{
	if (!e->samples)
		return NEVER;
	qsort(e->lat, e->samples, sizeof(e->lat[0]), compare);
	return e->lat[(uint64_t)(e->samples - 1) * percent / 100];
}
