/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The service thread. Each engine has one. It is the service poller of the PUs (service_poller.c)
 * unless a thread in drive_wait_fd() is. It also does the control work of the ports and answers
 * `roost stat`.
 *
 * After packets it busy polls for a short time if that pays (struct spinner in policy.h), so that
 * the next request of a peer is answered without a wake-up. If a program wants the same core,
 * spinning would cost the program a time slice. The thread therefore yields the core from time to
 * time; sched_yield() returns at once if no other thread waits for the core.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rest.h"
#include "base/sys.h"
#include "drive/engine.h"

#define STACK_BYTES (256 * 1024)

/* The source of an epoll event: one of these, or a port of a PU. */
enum { ON_WAKE, ON_STAT, ON_VISIT, ON_CONTROL, ON_PORT };
#define EVENT(what, pu, port) ((uint64_t)(what) << 16 | (pu) << 8 | (port))

#define MAX_EVENTS 16

struct service {
	struct drive *d;
	unsigned listening[NIC_MAX_PUS]; /* by PU: number of its ports in the epoll set */
	/* ns; time of the last look for events other than packets */
	uint64_t base_looked;
	uint64_t looked; /* ns; time of the last step of spinning; 0: the thread does not spin */
	/* number of forced context switches at the last measured step of spinning */
	long switches;
	cpu_set_t cores;  /* the affinity of the program; empty: not read yet */
	int shunned;	  /* the core that the thread avoids; -1: none */
	uint64_t steered; /* ns */
	uint64_t standby; /* ns; length of the last nap beside a waiter */
	unsigned wait_seen;
	bool refused;	  /* a port could not be added to the epoll set, and a message says so */
	struct rest rest; /* of sockets and control work; in ms of clock_now() */
};

/* The argument of sched_setattr(2), which libc does not declare. */
struct slice_attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

/*
 * Makes two optional requests to the scheduler: exact timers and a short time slice. Since Linux
 * 6.12 a thread with a shorter slice preempts a thread with a longer one when it wakes. The service
 * thread runs for microseconds, so other threads lose little time.
 */
static void set_scheduling(void)
{
	struct slice_attr a = {
		.size = sizeof(a), .policy = SCHED_OTHER, .runtime = policy_table.slice};

	prctl(PR_SET_NAME, "roost", 0, 0, 0);
	prctl(PR_SET_TIMERSLACK, policy_table.timer_slack, 0, 0, 0);
	if (sched_getscheduler(0) != SCHED_OTHER)
		return; /* the program has set a policy of its own */
	errno = 0;
	a.nice = getpriority(PRIO_PROCESS, 0);
	if (!errno)
		syscall(SYS_sched_setattr, 0, &a, 0);
}

static long forced_switches(void)
{
	struct rusage ru;

	return getrusage(RUSAGE_THREAD, &ru) ? 0 : ru.ru_nivcsw;
}

/*
 * Does one step of busy polling: measures whether other threads want the core, or yields it. Owns
 * no PU.
 */
static void spin_step(struct service *s, enum spin_action action)
{
	struct spinner *spinner = &s->d->service.spinner;
	uint64_t now = clock_now(), since = s->looked ? s->looked : now, lost;
	long switches = s->switches;

	if (action == SPIN_BUSY_POLL && s->looked && now - since <= policy_table.lost_look) {
		s->looked = now;
		cpu_pause();
		return;
	}
	if (action == SPIN_YIELD)
		sched_yield();
	s->looked = clock_now();
	s->switches = forced_switches();
	/* Without a forced switch the time was lost to the hypervisor, or to a long turn. */
	lost = s->switches == switches ? 0 : s->looked - (action == SPIN_YIELD ? now : since);
	spinner_lost(spinner, s->looked, lost, action == SPIN_YIELD, wake_cost_stake(&s->d->wake));
}

/* ---- sleeping ---- */

static int watch(struct drive *d, int op, int fd, uint32_t events, uint64_t what)
{
	struct epoll_event ev = {.events = events, .data.u64 = what};

	return fd < 0 ? 0 : sys_epoll_ctl(d->service_set, op, fd, &ev);
}

static void report_refusal(struct service *s, int rc)
{
	if (!s->refused)
		log_warn(
			"drive: packets cannot wake the service thread: %s; it looks for them every "
			"%u ms. Look at the limit fs.epoll.max_user_watches (sysctl) and at the "
			"memory of the machine",
			strerror(-rc), (unsigned)(policy_table.nap_max / MS));
	s->refused = true;
}

/*
 * Puts into the epoll set only the ports that the thread sleeps on. A descriptor in the set costs
 * time for each packet, whether a thread sleeps or not. EPOLL_CTL_MOD checks again whether the
 * descriptor is readable. Without it only later packets wake the thread. Returns false if a port
 * that the thread sleeps on is not in the set.
 */
static bool listen_on_ports(struct service *s)
{
	struct drive *d = s->d;
	unsigned ports = drive_ports(d);
	bool all = true;

	for (unsigned i = 0; i < d->pus; i++) {
		struct service_pu *tp = &d->service.pu[i];
		unsigned had = s->listening[i], want = tp->on_port ? ports : 0;

		if (had == want && !(want && tp->look))
			continue;
		for (unsigned k = 0; k < (want ? want : had); k++) {
			int op = !want ? EPOLL_CTL_DEL : k < had ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
			int rc = watch(d, op, d->port[k][i]->fd, EPOLLIN | EPOLLET,
				       EVENT(ON_PORT, i, k));

			if (rc && op == EPOLL_CTL_ADD) {
				report_refusal(s, rc);
				all = false;
				want = k;
				break;
			}
		}
		s->listening[i] = want;
		tp->look = false;
	}
	return all;
}

void service_listen(struct drive *d, unsigned i, bool listen)
{
	for (unsigned k = 0; k < drive_ports(d); k++) {
		struct epoll_event ev = {.events = listen ? EPOLLIN | EPOLLET : 0,
					 .data.u64 = EVENT(ON_PORT, i, k)};

		/* peers ring the bells of other ports only while these are armed */
		if (d->port[k][i]->mask_fd)
			sys_epoll_ctl(d->service_set, EPOLL_CTL_MOD, d->port[k][i]->fd, &ev);
	}
}

/* ---- events other than packets ---- */

/* The descriptor stays readable, and must not wake the thread until the rest ends. */
static void let_rest(struct service *s, int fd, uint64_t what)
{
	watch(s->d, EPOLL_CTL_MOD, fd, 0, what);
	rest_begin(&s->rest, clock_now() / MS);
}

static void end_rest(struct service *s)
{
	struct drive *d = s->d;

	if (!s->rest.until || !rest_ends(&s->rest, clock_now() / MS))
		return;
	watch(d, EPOLL_CTL_MOD, d->stat_fd, EPOLLIN, EVENT(ON_STAT, 0, 0));
	watch(d, EPOLL_CTL_MOD, d->visit_fd, EPOLLIN, EVENT(ON_VISIT, 0, 0));
	for (unsigned k = 0; k < drive_ports(d); k++) {
		for (unsigned i = 0; i < d->pus; i++)
			watch(d, EPOLL_CTL_MOD, d->port[k][i]->ctl_fd, EPOLLIN,
			      EVENT(ON_CONTROL, i, k));
	}
}

/* Returns the earliest of a time, the next work for QP 1, and the end of a rest. */
static uint64_t next_time(struct service *s, uint64_t at)
{
	uint64_t due = gsi_due(s->d), rest = s->rest.until ? s->rest.until * MS : UINT64_MAX;

	at = at < due ? at : due;
	return at < rest ? at : rest;
}

/* Does the control work of a port. It is rare: peers connect and disconnect. */
static void control_work(struct service *s, unsigned i, unsigned k)
{
	struct drive *d = s->d;

	/* If a turn takes longer, the next look tries again: the descriptor stays readable. */
	if (pu_own(&d->pu[i], clock_now() + policy_table.control_own)) {
		struct port *p = k < drive_ports(d) ? d->port[k][i] : NULL;

		if (p) /* otherwise the new port was closed again */
			p->ops->control(p);
		if (p && p->rests)
			let_rest(s, p->ctl_fd, EVENT(ON_CONTROL, i, k));
		drive_disown(d, i);
	}
}

static void handle(struct service *s, uint64_t event)
{
	unsigned i = event >> 8 & 0xff, k = event & 0xff;
	uint64_t rung_at;

	switch (event >> 16) {
	case ON_WAKE:
		rung_at = atomic_load_explicit(&s->d->service.kicked_at, memory_order_relaxed);
		if (s->d->service.slept && s->base_looked > rung_at)
			wake_cost_learn(&s->d->wake, s->base_looked - rung_at);
		service_poller_drain(&s->d->service);
		break;
	case ON_STAT:
		if (!stat_serve(s->d, s->d->stat_fd))
			let_rest(s, s->d->stat_fd, event);
		break;
	case ON_VISIT:
		if (!stat_serve(s->d, s->d->visit_fd))
			let_rest(s, s->d->visit_fd, event);
		break;
	case ON_CONTROL:
		control_work(s, i, k);
		break;
	case ON_PORT:
		s->d->service.pu[i].ready = true;
		break;
	}
}

static void sleep_until(struct service *s, uint64_t wake)
{
	struct epoll_event ev[MAX_EVENTS];
	uint64_t now = wake == UINT64_MAX ? 0 : clock_now();
	int64_t ns = wake == UINT64_MAX ? -1 : wake > now ? (int64_t)(wake - now) : 0;
	int n = sys_epoll_wait_ns(s->d->service_set, ev, MAX_EVENTS, ns);
	uint64_t then = clock_now();

	s->base_looked = then;
	if (ns != 0) {
		s->d->service.slept = true;
		if (n == 0 && then > wake)
			wake_cost_learn(&s->d->wake, then - wake);
	}
	for (int e = 0; e < n; e++)
		handle(s, ev[e].data.u64);
}

int service_watch_port(struct drive *d, unsigned k)
{
	int rc = 0;

	for (unsigned i = 0; i < d->pus && rc == 0; i++)
		rc = watch(d, EPOLL_CTL_ADD, d->port[k][i]->ctl_fd, EPOLLIN,
			   EVENT(ON_CONTROL, i, k));
	return rc;
}

static int open_set(struct drive *d)
{
	int rc;

	d->service_set = sys_epoll_create1(EPOLL_CLOEXEC);
	if (d->service_set < 0)
		return d->service_set;
	rc = watch(d, EPOLL_CTL_ADD, d->service.wake_fd, EPOLLIN, EVENT(ON_WAKE, 0, 0));
	if (rc == 0)
		rc = watch(d, EPOLL_CTL_ADD, d->stat_fd, EPOLLIN, EVENT(ON_STAT, 0, 0));
	if (rc == 0)
		rc = watch(d, EPOLL_CTL_ADD, d->visit_fd, EPOLLIN, EVENT(ON_VISIT, 0, 0));
	for (unsigned k = 0; k < drive_ports(d) && rc == 0; k++)
		rc = service_watch_port(d, k);
	d->service.edge = true;
	return rc;
}

/*
 * Moves the service thread away from the core on which a program spins on memory. On that core the
 * thread would preempt the program with each packet. If a peer on this machine sent the packet, the
 * wake-up would also come from another core. Elsewhere the thread runs on an idle core, or on the
 * core that sent the packet.
 */
static void steer(struct service *s)
{
	struct drive *d = s->d;
	uint64_t now = clock_now();
	int cpu = -1;
	cpu_set_t set;

	for (unsigned i = 0; i < d->pus && cpu < 0; i++) {
		if (caller_spins(&d->pu[i].caller) && !caller_sleeps(&d->pu[i].caller))
			cpu = atomic_load_explicit(&d->pu[i].cpu, memory_order_relaxed);
	}
	if (cpu == s->shunned || now - s->steered < policy_table.steer_every)
		return;
	s->steered = now;
	if (s->shunned < 0 && sched_getaffinity(0, sizeof(s->cores), &s->cores))
		return;
	set = s->cores;
	if (cpu >= 0)
		CPU_CLR(cpu, &set);
	if (CPU_COUNT(&set) > 0 && sched_setaffinity(0, sizeof(set), &set) == 0)
		s->shunned = cpu;
}

/* ---- the thread ---- */

/*
 * Returns true while a thread in drive_wait_fd() is the service poller, except beside a program
 * that spins on memory, because its packets must not wait.
 */
static bool waiter_polls(struct drive *d)
{
	if (!atomic_load_explicit(&d->waiting, memory_order_seq_cst))
		return false;
	for (unsigned i = 0; i < d->pus; i++) {
		if (caller_kind(&d->pu[i].caller) == CALLER_SPINS)
			return false;
	}
	return true;
}

/*
 * Naps while a waiter is the service poller. Waits are short and frequent. If the thread slept
 * until the wait ends, each wait would cost a wake-up. The nap grows while the same wait lasts. A
 * waiter that ends wakes the thread only from a long nap.
 */
static void nap_beside_waiter(struct service *s)
{
	struct drive *d = s->d;
	unsigned seq = atomic_load_explicit(&d->wait_seq, memory_order_relaxed);
	uint64_t wake;

	service_leave_ports(&d->service);
	for (unsigned i = 0; i < d->pus; i++)
		d->service.pu[i].nap = policy_table.nap_min;
	listen_on_ports(s);
	s->standby = seq == s->wait_seen ? s->standby * 2 : policy_table.standby_min;
	s->wait_seen = seq;
	wake = s->standby > policy_table.standby_max ? UINT64_MAX : clock_now() + s->standby;
	wake = next_time(s, wake);
	atomic_store_explicit(&d->service_until, wake, memory_order_seq_cst);
	/* The waiter may have ended before service_until was stored. */
	if (atomic_load_explicit(&d->waiting, memory_order_seq_cst))
		sleep_until(s, wake);
}

static void visit_all(struct service *s)
{
	struct drive *d = s->d;
	struct service_poller *t = &d->service;
	enum service_verdict v = SERVICE_SLEEP;

	t->spin = SPIN_SLEEP;
	for (unsigned i = 0; i < d->pus; i++) {
		enum service_verdict one = service_visit(t, i);

		v = one < v ? one : v;
	}
	if (v == SERVICE_SLEEP) {
		uint64_t wake = next_time(s, service_next_visit(t));

		steer(s);
		if (!listen_on_ports(s)) { /* it looks by itself, and tries again */
			uint64_t look = clock_now() + policy_table.nap_max;

			wake = wake < look ? wake : look;
		}
		atomic_store_explicit(&d->service_until, wake, memory_order_seq_cst);
		s->looked = 0;
		spinner_sleeps(&t->spinner, clock_now());
		sleep_until(s, wake);
		return;
	}
	if (v == SERVICE_BUSY_POLL)
		spin_step(s, t->spin);
	else
		s->looked = 0;
	if (clock_now() - s->base_looked > policy_table.control_every)
		sleep_until(s, 0);
}

static void *service_main(void *arg)
{
	struct drive *d = arg;
	struct service s = {.d = d, .shunned = -1};

	set_scheduling();
	spinner_init(&d->service.spinner);
	/*
	 * Only timers and kicks measure the cost of a wake-up; packets do not. The thread of a NIC
	 * that only serves is woken by packets alone, so it measures with timers before the first
	 * packet.
	 */
	for (unsigned i = 0; i < policy_table.first_wakes; i++)
		sleep_until(&s, clock_now() + policy_table.nap_min);
	s.wait_seen = atomic_load(&d->wait_seq) - 1;
	for (;;) {
		/*
		 * This exchange comes before any look for work. The eventfd reports later kicks,
		 * and the look finds the work of earlier kicks.
		 */
		atomic_exchange_explicit(&d->service.kicked, 0, memory_order_seq_cst);
		if (atomic_load_explicit(&d->stop, memory_order_acquire))
			return NULL;
		atomic_store_explicit(&d->service_until, 0, memory_order_relaxed);
		gsi_serve(d);
		end_rest(&s);
		if (waiter_polls(d))
			nap_beside_waiter(&s);
		else
			visit_all(&s);
	}
}

int service_start(struct drive *d)
{
	int rc = open_set(d);

	if (rc)
		return rc;
	rc = thread_start(&d->thread, STACK_BYTES, service_main, d);
	if (rc)
		return rc;
	d->running = true;
	return 0;
}

bool service_stop(struct drive *d, uint64_t ns)
{
	if (!d->running)
		return true;
	atomic_store_explicit(&d->stop, true, memory_order_release);
	service_poller_kick(&d->service);
	if (ns == UINT64_MAX)
		thread_join(d->thread);
	else if (!thread_join_for(d->thread, ns))
		return false;
	d->running = false;
	return true;
}
