/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The service thread: one per engine. It tends the PUs (tend.c) unless a thread in drive_wait_fd() does, does
 * the ports' control work, and answers `roost stat`.
 *
 * It spins for a moment after packets, since more often follow: a peer's request is then answered without a
 * wake-up. But on a core that a program wants too, spinning costs a scheduler's time slice. So from time to
 * time it offers the core: sched_yield() returns at once when nobody waits for it. When somebody took it for
 * long, no spinning for a good while.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sys.h"
#include "drive/engine.h"

#define STACK_BYTES	   (256 * 1024)
#define TIMER_SLACK_NS	   1000
#define SLICE_NS	   (100 * US) /* the shortest the kernel grants (sched(7)) */
#define STANDBY_NS	   (1 * MS)
#define STANDBY_LIMIT_NS   (1000 * MS)
#define BASE_EVERY_NS	   (1 * MS) /* while there is no time to sleep: look at control work this often */
#define OWN_FOR_CONTROL_NS (200 * US)
#define SPIN_CHECK_NS	   (20 * US)
#define SPIN_GAP_NS	   (50 * US) /* a core given away for longer is a shared one */
#define SPIN_PENALTY_MIN   (100 * MS)
#define SPIN_PENALTY_MAX   (10000 * MS)

struct service_fds {
	struct pollfd fd[2 + 2 * TEND_MAX_FDS]; /* wake, stat, control, then the ports slept on */
	unsigned base;				/* those before the ports */
};

/* sched_setattr(2)'s argument, which libc does not declare. */
struct slice_attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

/*
 * Two requests to the scheduler, both optional: timers as exact as asked for, and short slices. Since Linux
 * 6.12 a thread with a shorter slice preempts one with a longer when it wakes; we run for microseconds, so
 * nobody is robbed.
 */
static void be_prompt(void)
{
	struct slice_attr a = {.size = sizeof(a), .policy = SCHED_OTHER, .runtime = SLICE_NS};

	prctl(PR_SET_NAME, "roost", 0, 0, 0);
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
	if (sched_getscheduler(0) != SCHED_OTHER)
		return; /* the program has its own idea */
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

static bool one_core(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) < 2;
}

static void stop_spinning(struct tender *t, uint64_t now)
{
	bool again = now - t->no_spin_until < SPIN_PENALTY_MAX;

	t->spin_penalty = again && t->spin_penalty ? t->spin_penalty * 2 : SPIN_PENALTY_MIN;
	if (t->spin_penalty > SPIN_PENALTY_MAX)
		t->spin_penalty = SPIN_PENALTY_MAX;
	t->no_spin_until = now + t->spin_penalty;
}

/* One step of waiting without sleep, no PU owned. Finds out whether the core is ours alone. */
static void spin_step(struct tender *t)
{
	uint64_t now = clock_now(), after;

	if (t->spin_seen && now - t->spin_seen > SPIN_GAP_NS && forced_switches() != t->switches) {
		stop_spinning(t, now);
		return;
	}
	t->spin_seen = now;
	if (now - t->spin_checked < SPIN_CHECK_NS) {
		cpu_pause();
		return;
	}
	if (one_core()) {
		t->no_spin_until = now + SPIN_PENALTY_MIN;
		return;
	}
	t->switches = forced_switches();
	sched_yield();
	after = clock_now();
	if (after - now > SPIN_GAP_NS && forced_switches() != t->switches)
		stop_spinning(t, after);
	t->spin_seen = t->spin_checked = after;
}

/* The ports' control work is rare: greetings and farewells of peers. */
static void control_work(struct drive *d, const struct pollfd *fd)
{
	for (unsigned i = 0; i < d->pus; i++) {
		for (unsigned k = 0; k < d->ports; k++) {
			struct port *port = d->port[k][i];

			if (port->ctl_fd < 0)
				continue;
			/* If a turn takes that long, next time: the descriptor stays readable. */
			if (fd->revents && pu_own(&d->pu[i], clock_now() + OWN_FOR_CONTROL_NS)) {
				port->ops->control(port);
				drive_disown(d, i);
			}
			fd++;
		}
	}
}

static void base_fds(struct drive *d, struct service_fds *f)
{
	f->fd[0] = (struct pollfd){.fd = d->service.wake_fd, .events = POLLIN};
	f->fd[1] = (struct pollfd){.fd = d->stat_fd, .events = POLLIN};
	f->base = 2;
	for (unsigned i = 0; i < d->pus; i++) {
		for (unsigned k = 0; k < d->ports; k++) {
			if (d->port[k][i]->ctl_fd >= 0)
				f->fd[f->base++] =
					(struct pollfd){.fd = d->port[k][i]->ctl_fd, .events = POLLIN};
		}
	}
}

static void sleep_until(struct drive *d, struct service_fds *f, unsigned ports, uint64_t wake)
{
	struct tender *t = &d->service;
	struct timespec ts;

	if (sys_ppoll(f->fd, f->base + ports, tend_timeout(wake, &ts), NULL) <= 0)
		return;
	tend_woken(t, f->fd + f->base, ports);
	if (f->fd[0].revents)
		tender_drain(t);
	if (f->fd[1].revents)
		stat_serve(d);
	control_work(d, &f->fd[2]);
}

/*
 * While a thread in drive_wait_fd() tends; not beside a hybrid program, whose packets shall not wait for
 * anything.
 */
static bool standing_by(struct drive *d)
{
	if (!atomic_load_explicit(&d->waiting, memory_order_seq_cst))
		return false;
	for (unsigned i = 0; i < d->pus; i++) {
		if (d->service.pu[i].hybrid)
			return false;
	}
	return true;
}

/*
 * Waits come and go, so this is a nap, not a wait for their end: that would cost each of them a wake-up. It
 * grows while one and the same goes on; who ends a long one wakes us.
 */
static void stand_by(struct drive *d, struct service_fds *f, uint64_t *nap, unsigned *seen)
{
	unsigned seq = atomic_load_explicit(&d->wait_seq, memory_order_relaxed);
	uint64_t wake;

	tend_leave_ports(&d->service);
	for (unsigned i = 0; i < d->pus; i++)
		d->service.pu[i].nap = NAP_MIN_NS;
	*nap = seq == *seen ? *nap * 2 : STANDBY_NS;
	*seen = seq;
	wake = *nap > STANDBY_LIMIT_NS ? UINT64_MAX : clock_now() + *nap;
	atomic_store_explicit(&d->service_until, wake, memory_order_seq_cst);
	/* Left before it could know how long we sleep? */
	if (atomic_load_explicit(&d->waiting, memory_order_seq_cst))
		sleep_until(d, f, 0, wake);
}

static void tend(struct drive *d, struct service_fds *f, uint64_t *base_looked)
{
	struct tender *t = &d->service;
	bool may_spin = clock_now() >= t->no_spin_until;
	enum tend_verdict v = TEND_SLEEP;

	for (unsigned i = 0; i < d->pus; i++) {
		enum tend_verdict one = tend_visit(t, i, may_spin);

		v = one < v ? one : v;
	}
	if (v == TEND_SLEEP) {
		uint64_t wake = tend_wake(t);

		atomic_store_explicit(&d->service_until, wake, memory_order_seq_cst);
		t->spin_seen = t->spin_checked = 0;
		sleep_until(d, f, tend_fds(t, f->fd + f->base), wake);
		*base_looked = clock_now();
		return;
	}
	if (v == TEND_SPIN)
		spin_step(t);
	else
		t->spin_seen = 0;
	if (clock_now() - *base_looked > BASE_EVERY_NS) {
		sleep_until(d, f, 0, 0);
		*base_looked = clock_now();
	}
}

static void *service_main(void *arg)
{
	struct drive *d = arg;
	struct service_fds f;
	uint64_t nap = 0, base_looked = 0;
	unsigned seen = atomic_load(&d->wait_seq) - 1;

	be_prompt();
	base_fds(d, &f);
	for (;;) {
		/*
		 * Before looking at anything: a kick from here on is seen by the eventfd, one from before by
		 * the look.
		 */
		atomic_exchange_explicit(&d->service.kicked, 0, memory_order_seq_cst);
		if (atomic_load_explicit(&d->stop, memory_order_acquire))
			return NULL;
		atomic_store_explicit(&d->service_until, 0, memory_order_relaxed);
		if (standing_by(d))
			stand_by(d, &f, &nap, &seen);
		else
			tend(d, &f, &base_looked);
	}
}

int service_start(struct drive *d)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int rc;

	/*
	 * Signals are the program's own affair, but those that an instruction of ours raises: blocked, they
	 * would kill.
	 */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	sigdelset(&all, SIGTRAP);
	sigdelset(&all, SIGSYS);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&d->thread, &attr, service_main, d);
	if (rc == EINVAL) /* a program whose thread-local data are larger than that */
		rc = pthread_create(&d->thread, NULL, service_main, d);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (rc)
		return -rc;
	d->running = true;
	return 0;
}

void service_stop(struct drive *d)
{
	if (!d->running)
		return;
	atomic_store_explicit(&d->stop, true, memory_order_release);
	tender_kick(&d->service);
	pthread_join(d->thread, NULL);
	d->running = false;
}
