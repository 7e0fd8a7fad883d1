/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which thread runs the turns: pollers, doorbells, the service thread, and control calls between
 * them.
 */
#include <sys/epoll.h>

#include "base/rest.h"
#include "drive/clock.h"
#include "drive/engine.h"
#include "drive/policy.h"
#include "harness.h"

#define THREADS 4

static struct fake_pu *pu_of(struct drive *d, unsigned i)
{
	return &drive_nic(d)->pu[i];
}

static void nobody_polls(void **state)
{
	struct drive *d = *state;
	struct fake_port *port = fake_port_of(d, 0, 0);
	struct fake_pu *p = pu_of(d, 0);

	for (unsigned i = 1; i <= 50; i++) {
		fake_inject(port, 1);
		assert_true(fake_reached(&p->packets, i));
		if (i % 10 == 0)
			harness_sleep_ms(2); /* until the service thread sleeps on the port */
	}
	assert_int_equal(atomic_load(&p->overlaps), 0);
	assert_true(atomic_load(&p->last) != (uintptr_t)pthread_self());
}

static void poller_drives(void **state)
{
	struct drive *d = *state;
	struct fake_port *port = fake_port_of(d, 0, 0);
	struct fake_pu *p = pu_of(d, 0);
	time_t end = time(NULL) + 20;
	unsigned done = 0, sent = 0;

	/* The service thread may find some packets, never all: a lease keeps it away. */
	while ((sent < 20000 || done < sent / 2) && time(NULL) <= end) {
		fake_inject(port, 1);
		sent++;
		done += drive_progress(d, 0);
	}
	assert_true(done >= sent / 2);
	assert_true(fake_reached(&p->packets, sent));
	assert_int_equal(atomic_load(&p->overlaps), 0);
}

static void service_takes_over(void **state)
{
	struct drive *d = *state;
	struct fake_port *port = fake_port_of(d, 0, 0);
	struct fake_pu *p = pu_of(d, 0);
	unsigned total = 0;

	for (unsigned round = 0; round < 20; round++) {
		/* Polls until the service thread naps, then does not poll in this round. */
		for (unsigned i = 0; i < 3000; i++)
			drive_progress(d, 0);
		fake_inject(port, 3);
		total += 3;
		assert_true(fake_reached(&p->packets, total));
	}
}

/*
 * A program that polls for its completion and then spins on memory: packets must not wait until it
 * polls again.
 */
static void poll_then_spin_on_memory(void **state)
{
	struct drive *d = *state;
	struct fake_port *port = fake_port_of(d, 0, 0);
	struct fake_pu *p = pu_of(d, 0);

	for (unsigned i = 1; i <= 500; i++) {
		drive_progress(d, 0);
		fake_inject(port, 1);
		assert_true(fake_reached(&p->packets, i));
	}
	assert_int_equal(atomic_load(&p->overlaps), 0);
}

static void idle_doorbell_runs_inline(void **state)
{
	struct drive *d = *state;
	struct fake_pu *p = pu_of(d, 0);
	unsigned done_at_once = 0;

	/*
	 * No thread drives: the caller finds the PU free and runs the turn, unless the service
	 * thread looks at that moment.
	 */
	for (unsigned i = 1; i <= 1000; i++) {
		fake_post(d, 0, 1);
		done_at_once += atomic_load(&p->executed) == i;
		assert_true(fake_reached(&p->executed, i));
	}
	assert_true(done_at_once > 500);
}

/*
 * A program posts just after it has stopped polling, while the service thread naps. The peer may go
 * to sleep during the flush: the post must look at the port often enough to be sure that it wakes.
 * On a busy machine the service thread may sleep on the port instead, and most naps are over before
 * this thread runs again. Each round therefore polls until a long nap has just begun. Other threads
 * may disturb any round, but not nearly all.
 */
static void a_post_after_the_last_poll_wakes_the_peer(void **state)
{
	struct drive *d = *state;
	struct fake_port *port = fake_port_of(d, 0, 0);
	struct fake_pu *p = pu_of(d, 0);
	unsigned sure = 0;

	for (unsigned round = 0; round < 5000 && sure < 10; round++) {
		unsigned arms, polls = 0;
		uint64_t now;

		do {
			if (atomic_load(&d->pu[0].sleepers))
				fake_inject(port, 1); /* polls that find packets wake the thread */
			drive_progress(d, 0);
		} while (++polls < 100000 &&
			 (atomic_load(&d->pu[0].sleepers) ||
			  atomic_load(&d->pu[0].next_visit) < drive_now(d) + 1000 * US));
		/* The lease ends, and the nap of the service thread does not. */
		for (now = drive_now(d); drive_now(d) < now + 40000;)
			;
		arms = atomic_load(&port->arms);
		fake_post(d, 0, 1);
		sure += atomic_load(&port->unsure) == 0 && atomic_load(&port->arms) == arms &&
			atomic_load(&p->last) == (uintptr_t)pthread_self();
		assert_true(fake_reached(&p->executed, round + 1));
	}
	assert_int_equal(sure, 10);
	assert_int_equal(atomic_load(&p->overlaps), 0);
}

struct post_job {
	struct drive *d;
	unsigned first;
	unsigned count;
};

static void *post_many(void *arg)
{
	struct post_job *j = arg;

	for (unsigned i = 0; i < j->count; i++) {
		fake_post(j->d, j->first + i % 2, 1);
		if (i % 1000 == 0)
			harness_sleep_ms(1);
	}
	return NULL;
}

static void post_from_threads(struct drive *d, bool busy, bool poll, unsigned before)
{
	struct post_job job[THREADS];
	pthread_t t[THREADS];
	unsigned total = 0;

	atomic_store(&fake_busy, busy);
	for (unsigned i = 0; i < THREADS; i++) {
		job[i] = (struct post_job){d, i * 2, 5000};
		assert_int_equal(pthread_create(&t[i], NULL, post_many, &job[i]), 0);
	}
	for (unsigned i = 0; poll && i < 20000; i++)
		drive_progress(d, i % drive_nic(d)->cfg.pus);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	/* No thread polls any more: all doorbells are executed nevertheless. */
	for (unsigned i = 0; i < drive_nic(d)->cfg.pus; i++)
		total += atomic_load(&pu_of(d, i)->executed);
	for (unsigned tries = 0; total < before + THREADS * 5000 && tries < 20000; tries++) {
		harness_sleep_ms(1);
		total = 0;
		for (unsigned i = 0; i < drive_nic(d)->cfg.pus; i++)
			total += atomic_load(&pu_of(d, i)->executed);
	}
	assert_int_equal(total, before + THREADS * 5000);
	for (unsigned i = 0; i < drive_nic(d)->cfg.pus; i++)
		assert_int_equal(atomic_load(&pu_of(d, i)->overlaps), 0);
	atomic_store(&fake_busy, false);
}

static void doorbells_of_threads(void **state)
{
	post_from_threads(*state, false, false, 0);
}

static void doorbells_beside_a_poller(void **state)
{
	post_from_threads(*state, true, true, 0);
}

/* A poller takes posts of queue pairs with calls, also while no request is in progress. */
static void calls_beside_a_poller(void **state)
{
	struct drive *d = *state;
	unsigned before;

	atomic_store(&fake_batches, true);
	before = atomic_load(&pu_of(d, 0)->executed);
	fake_post(d, 0, 1); /* no poller yet: the post runs a turn, or the service thread does */
	assert_true(fake_reached(&pu_of(d, 0)->executed, before + 1));
	post_from_threads(d, false, true, before + 1);
	atomic_store(&fake_batches, false);
}

/* An inline turn starts a timer while the service thread sleeps without one. */
static void deadline_after_doorbell(void **state)
{
	struct drive *d = *state;
	struct fake_pu *p = pu_of(d, 0);

	atomic_store(&p->rto, 3000000);
	for (unsigned i = 1; i <= 5; i++) {
		harness_sleep_ms(10);
		fake_post(d, 0, 1);
		assert_true(fake_reached(&p->fired, i));
	}
}

static void deadline_after_poll(void **state)
{
	struct drive *d = *state;
	struct fake_pu *p = pu_of(d, 0);

	atomic_store(&fake_busy, true);
	atomic_store(&p->rto, 3000000);
	for (unsigned i = 1; i <= 5; i++) {
		harness_sleep_ms(10);
		drive_progress(d, 0);
		fake_post(d, 0, 1);
		drive_progress(d, 0);
		assert_true(fake_reached(&p->fired, i));
	}
	atomic_store(&fake_busy, false);
}

/* A turn leaves work (a long message), and the caller makes no further call. */
static void rest_of_the_work(void **state)
{
	struct drive *d = *state;
	struct fake_pu *p = pu_of(d, 0);
	unsigned expect = 0;

	for (unsigned i = 0; i < 20; i++) {
		if (i % 2)
			harness_sleep_ms(5);
		atomic_fetch_add(&p->leave, 100);
		if (i % 4 < 2)
			drive_progress(d, 0);
		fake_post(d, 0, 1);
		expect += 101;
		assert_true(fake_reached(&p->executed, expect));
	}
}

/*
 * A packet comes while a post arms the ports again, beside a service thread that sleeps for good.
 * The turns that arm them take it, and leave the rest of its answer.
 */
static void work_of_the_turns_that_arm_the_ports(void **state)
{
	struct drive *d = *state;
	struct fake_port *port = fake_port_of(d, 0, 0);
	struct fake_pu *p = pu_of(d, 0);

	while (!atomic_load(&d->pu[0].sleepers) || atomic_load(&d->pu[0].next_visit) != UINT64_MAX)
		harness_sleep_ms(1);
	atomic_store(&p->answers, 100);
	atomic_store(&port->late, 1);
	fake_post(d, 0, 1);
	assert_true(fake_reached(&p->packets, 1));
	assert_true(fake_reached(&p->executed, 101));
}

/* ---- control calls ---- */

static atomic_bool stop_polling;

static void *poll_forever(void *arg)
{
	while (!atomic_load(&stop_polling))
		drive_progress(arg, 0);
	return NULL;
}

static void control_among_pollers(void **state)
{
	struct drive *d = *state;
	struct fake_pu *p = pu_of(d, 0);
	pthread_t t[THREADS];

	atomic_store(&stop_polling, false);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, poll_forever, d), 0);
	for (int i = 0; i < 2000; i++) {
		unsigned before;

		drive_control_lock(d);
		drive_own(d, 0);
		before = atomic_load(&p->turns);
		if (i % 100 == 0)
			harness_sleep_ms(1);
		assert_int_equal(atomic_load(&p->inside), 0);
		assert_int_equal(atomic_load(&p->turns), before);
		drive_disown(d, 0);
		drive_control_unlock(d);
	}
	drive_quiesce(d);
	atomic_store(&stop_polling, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(atomic_load(&p->overlaps), 0);
}

/* Work that comes while a control call owns the PU is done when the call ends. */
static void work_during_control(void **state)
{
	struct drive *d = *state;
	struct fake_port *port = fake_port_of(d, 0, 0);
	struct fake_pu *p = pu_of(d, 0);

	for (unsigned i = 1; i <= 20; i++) {
		drive_own(d, 0);
		fake_inject(port, 1);
		fake_post(d, 0, 1);
		if (i % 5 == 0)
			harness_sleep_ms(3);
		drive_disown(d, 0);
		assert_true(fake_reached(&p->packets, i));
		assert_true(fake_reached(&p->executed, i));
	}
}

static void control_descriptor(void **state)
{
	struct drive *d = *state;
	struct fake_port *port = fake_port_of(d, 0, 0);
	uint64_t one = 1;

	for (unsigned i = 1; i <= 10; i++) {
		if (i % 2)
			for (int k = 0; k < 2000; k++)
				drive_progress(d, 0);
		assert_int_equal(write(port->base.ctl_fd, &one, sizeof(one)), sizeof(one));
		assert_true(fake_reached(&port->controls, i));
	}
}

/*
 * Control work that cannot be done now leaves the descriptor readable. The service thread rests
 * between its looks, and the work is done later.
 */
static void control_rests(void **state)
{
	struct drive *d = *state;
	struct fake_port *port = fake_port_of(d, 0, 0);
	uint64_t one = 1, since, ms;
	unsigned looks;

	atomic_store(&fake_rests, true);
	assert_int_equal(write(port->base.ctl_fd, &one, sizeof(one)), sizeof(one));
	assert_true(fake_reached(&port->controls, 1));
	since = clock_system();
	do
		harness_sleep_ms(10);
	while ((ms = (clock_system() - since) / MS) < 5 * REST_MS);
	looks = atomic_load(&port->controls);
	atomic_store(&fake_rests, false);
	assert_in_range(looks, 1, 2 + ms / REST_MS);
	assert_true(fake_reached(&port->controls, looks + 1));
}

/* ---- sleeping ---- */

static void assert_asleep(int tid)
{
	long before = 0, after;
	int quiet = 0;

	assert_true(tid > 0);
	/*
	 * The service thread comes to rest. Then two seconds pass without a switch, in one of a few
	 * tries: the machine may be busy.
	 */
	for (int tries = 0; tries < 5 && !quiet; tries++) {
		harness_sleep_ms(300);
		before = harness_switches(tid);
		harness_sleep_ms(2000);
		after = harness_switches(tid);
		quiet = before > 0 && after == before;
	}
	assert_true(quiet);
}

static void idle_costs_nothing(void **state)
{
	struct drive *d = *state;

	/* After some of each activity. */
	for (int i = 0; i < 1000; i++)
		drive_progress(d, 0);
	fake_post(d, 0, 1);
	fake_inject(fake_port_of(d, 0, 0), 1);
	drive_quiesce(d);
	assert_asleep(harness_find_service());
}

/* A port that only a poller uses is not armed, so peers write no wake-ups. */
static void polled_port_is_disarmed(void **state)
{
	struct drive *d = *state;
	struct fake_port *port = fake_port_of(d, 0, 0);
	struct fake_pu *p = pu_of(d, 0);
	unsigned n = 0, wakes = 0, quiet = 0;
	time_t end = time(NULL) + 20;

	assert_true(fake_reached(&port->arms, 1)); /* the service thread slept on it */
	/* Until 1000 packets in a row woke no thread. */
	while (quiet < 1000 && time(NULL) <= end) {
		fake_inject(port, 1);
		n++;
		for (int i = 0; i < 20; i++)
			drive_progress(d, 0);
		quiet = atomic_load(&port->wakes) == wakes ? quiet + 1 : 0;
		wakes = atomic_load(&port->wakes);
	}
	assert_int_equal(quiet, 1000);
	assert_true(fake_reached(&port->disarms, 1)); /* it may have slept all the time */
	assert_true(fake_reached(&p->packets, n));
}

static int setup_two_by_two(void **state)
{
	setenv("ROOST_PUS", "2", 1);
	setenv("ROOST_PORT", "fake;fake:10.0.0.2", 1);
	*state = harness_open();
	unsetenv("ROOST_PUS");
	setenv("ROOST_PORT", "fake", 1);
	return 0;
}

static void two_ports_two_pus(void **state)
{
	struct drive *d = *state;
	unsigned n[2] = {0};

	assert_int_equal(nic_pus(drive_nic(d)), 2);
	for (unsigned i = 0; i < 200; i++) {
		unsigned pu = i % 2;

		/* PU 1 has a poller, PU 0 none. */
		for (int k = 0; k < 50; k++)
			drive_progress(d, 1);
		fake_inject(fake_port_of(d, i / 2 % 2, pu), 1);
		n[pu]++;
		assert_true(fake_reached(&pu_of(d, pu)->packets, n[pu]));
	}
	post_from_threads(d, false, true, 0);
}

static int setup_with_control(void **state)
{
	atomic_store(&fake_ctl_fd, 1);
	*state = harness_open();
	atomic_store(&fake_ctl_fd, 0);
	return 0;
}

#define T(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

static atomic_int control_tid;

static void *one_control_call(void *arg)
{
	atomic_store(&control_tid, gettid());
	drive_control_lock(arg);
	drive_own(arg, 0);
	pthread_testcancel(); /* as system calls of ports */
	drive_disown(arg, 0);
	drive_control_unlock(arg);
	return arg;
}

/*
 * A thread that is cancelled while its control call waits for the PU ends the call first. Otherwise
 * it would keep the mutex, and its wait would keep all others from the PU.
 */
static void a_control_call_is_not_cancelled(void **state)
{
	struct drive *d = *state;
	pthread_t t;
	void *result = NULL;

	drive_own(d, 0);
	assert_int_equal(pthread_create(&t, NULL, one_control_call, d), 0);
	while (atomic_load(&d->pu[0].word) < PU_WANT)
		harness_sleep_ms(1);
	/* More switches than it yields: it sleeps, again and again. */
	while (harness_switches(atomic_load(&control_tid)) < 200)
		harness_sleep_ms(1);
	assert_int_equal(pthread_cancel(t), 0);
	harness_sleep_ms(20);
	drive_disown(d, 0);
	assert_int_equal(pthread_join(t, &result), 0);
	assert_ptr_equal(result, d);
	fake_inject(fake_port_of(d, 0, 0), 1);
	assert_true(fake_reached(&pu_of(d, 0)->packets, 1));
	one_control_call(d);
}

/* No descriptor can be added to an epoll set, as if the user had used up its watches. */
static atomic_bool full;
static atomic_uint refusals;

int __real_sys_epoll_ctl(int epoll, int op, int fd, struct epoll_event *ev);
int __wrap_sys_epoll_ctl(int epoll, int op, int fd, struct epoll_event *ev);
int __wrap_sys_epoll_ctl(int epoll, int op, int fd, struct epoll_event *ev)
{
	if (op != EPOLL_CTL_ADD || !(ev->events & EPOLLET) || !atomic_load(&full))
		return __real_sys_epoll_ctl(epoll, op, fd, ev);
	atomic_fetch_add(&refusals, 1);
	return -ENOSPC;
}

/*
 * The service thread cannot wait for the packets of a port. It looks for them by itself, and tries
 * again to wait for them.
 */
static void a_port_that_cannot_be_watched(void **state)
{
	struct fake_port *port;
	struct drive *d;

	atomic_store(&refusals, 0);
	atomic_store(&full, true);
	d = harness_open();
	port = fake_port_of(d, 0, 0);
	for (unsigned i = 1; i <= 5; i++) {
		assert_true(fake_reached(&refusals, i));
		fake_inject(port, 1);
		assert_true(fake_reached(&pu_of(d, 0)->packets, i));
	}
	atomic_store(&full, false);
	for (unsigned i = 6; i <= 10; i++) {
		harness_sleep_ms(5);
		fake_inject(port, 1);
		assert_true(fake_reached(&pu_of(d, 0)->packets, i));
	}
	drive_put(d);
	assert_true(harness_service_ended());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(nobody_polls),
		T(poller_drives),
		T(service_takes_over),
		T(poll_then_spin_on_memory),
		T(idle_doorbell_runs_inline),
		T(a_post_after_the_last_poll_wakes_the_peer),
		T(doorbells_of_threads),
		T(doorbells_beside_a_poller),
		T(calls_beside_a_poller),
		T(deadline_after_doorbell),
		T(deadline_after_poll),
		T(rest_of_the_work),
		cmocka_unit_test_setup_teardown(work_of_the_turns_that_arm_the_ports, harness_setup,
						harness_teardown),
		T(control_among_pollers),
		T(work_during_control),
		T(a_control_call_is_not_cancelled),
		cmocka_unit_test(a_port_that_cannot_be_watched),
		cmocka_unit_test_setup_teardown(control_descriptor, setup_with_control,
						harness_teardown),
		cmocka_unit_test_setup_teardown(control_rests, setup_with_control,
						harness_teardown),
		T(idle_costs_nothing),
		T(polled_port_is_disarmed),
		cmocka_unit_test_setup_teardown(two_ports_two_pus, setup_two_by_two,
						harness_teardown),
	};

	return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
