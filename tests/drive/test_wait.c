/* SPDX-License-Identifier: BSD-2-Clause */
/* drive_wait_fd(): the thread that blocks drives the NIC. */
#include <signal.h>
#include <sys/eventfd.h>

#include "harness.h"

#define FOREVER UINT64_MAX
#define WAITERS 3

static int event_fd; /* the fake core's completion events are written here */

static int setup(void **state)
{
	event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	*state = harness_open();
	drive_nic(*state)->event_ctx = &event_fd;
	return 0;
}

static int teardown(void **state)
{
	int rc = harness_teardown(state);

	close(event_fd);
	return rc;
}

static bool take_event(void)
{
	uint64_t n;

	return read(event_fd, &n, sizeof(n)) == sizeof(n);
}

static atomic_uint go;

static void *inject_when_told(void *arg)
{
	struct fake_port *port = arg;

	for (unsigned i = 1; fake_reached(&go, i); i++) {
		if (i % 8 == 0)
			harness_sleep_ms(3);
		if (atomic_load(&go) == UINT32_MAX)
			return NULL;
		fake_inject(port, 1);
	}
	return NULL;
}

static void packet_wakes(void **state)
{
	struct drive *d = *state;
	pthread_t t;

	atomic_store(&go, 0);
	assert_int_equal(pthread_create(&t, NULL, inject_when_told, fake_port_of(d, 0, 0)), 0);
	for (int i = 0; i < 300; i++) {
		atomic_fetch_add(&go, 1);
		assert_int_equal(drive_wait_fd(d, event_fd, FOREVER), 0);
		assert_true(take_event());
		/* As programs do: look for more events before the next wait. */
		for (int k = 0; k < i % 3; k++)
			drive_progress(d, 0);
	}
	atomic_store(&go, UINT32_MAX);
	pthread_join(t, NULL);
	assert_int_equal(atomic_load(&drive_nic(d)->pu[0].overlaps), 0);
	/* The waiting thread ran some of the turns itself. */
	assert_true(atomic_load(&drive_nic(d)->pu[0].packets) == 300);
}

static void times_out(void **state)
{
	struct drive *d = *state;
	uint64_t before = drive_now(d);

	assert_int_equal(drive_wait_fd(d, event_fd, 20000000), -ETIMEDOUT);
	assert_true(drive_now(d) - before >= 20000000);
	assert_int_equal(drive_wait_fd(d, event_fd, 0), -ETIMEDOUT);
}

static void readable_at_once(void **state)
{
	uint64_t one = 1;

	assert_int_equal(write(event_fd, &one, sizeof(one)), sizeof(one));
	assert_int_equal(drive_wait_fd(*state, event_fd, FOREVER), 0);
	assert_int_equal(drive_wait_fd(*state, event_fd, 0), 0);
}

/* After the wait the service thread takes over, however long it has stood by. */
static void service_returns(void **state)
{
	struct drive *d = *state;
	struct fake_port *port = fake_port_of(d, 0, 0);
	struct fake_pu *p = &drive_nic(d)->pu[0];

	for (unsigned i = 1; i <= 3; i++) {
		assert_int_equal(drive_wait_fd(d, event_fd, i == 3 ? 3000000000u : 30000000u),
				 -ETIMEDOUT);
		harness_sleep_ms(5);
		fake_inject(port, 1);
		assert_true(fake_reached(&p->packets, i));
		assert_true(take_event());
	}
}

static void on_signal(int sig)
{
}

static atomic_uint waiting_tid;

static void *wait_forever(void *arg)
{
	intptr_t rc;

	atomic_store(&waiting_tid, (unsigned)gettid());
	rc = drive_wait_fd(arg, event_fd, FOREVER);
	return (void *)rc;
}

/*
 * A doorbell of another thread starts a timer. The waiter must serve it: no other thread is awake.
 */
static void deadline_while_waiting(void **state)
{
	struct drive *d = *state;
	struct fake_pu *p = &drive_nic(d)->pu[0];
	uint64_t one = 1;
	void *rc;
	pthread_t t;

	atomic_store(&p->rto, 5000000);
	atomic_store(&waiting_tid, 0);
	assert_int_equal(pthread_create(&t, NULL, wait_forever, d), 0);
	assert_true(fake_reached(&waiting_tid, 1));
	for (unsigned i = 1; i <= 5; i++) {
		harness_sleep_ms(20);
		fake_post(d, 0, 1);
		assert_true(fake_reached(&p->fired, i));
	}
	assert_int_equal(write(event_fd, &one, sizeof(one)), sizeof(one));
	pthread_join(t, &rc);
	assert_int_equal((intptr_t)rc, 0);
	assert_true(take_event());
}

static void signal_interrupts(void **state)
{
	struct sigaction sa = {.sa_handler = on_signal}, old;
	void *rc = NULL;
	pthread_t t;

	sigaction(SIGUSR1, &sa, &old);
	atomic_store(&waiting_tid, 0);
	assert_int_equal(pthread_create(&t, NULL, wait_forever, *state), 0);
	assert_true(fake_reached(&waiting_tid, 1));
	/*
	 * The signal may come before the thread sleeps. So the test repeats until one interrupts
	 * the sleep.
	 */
	while (pthread_tryjoin_np(t, &rc)) {
		pthread_kill(t, SIGUSR1);
		harness_sleep_ms(2);
	}
	assert_int_equal((intptr_t)rc, -EINTR);
	sigaction(SIGUSR1, &old, NULL);
}

/* Programs cancel threads that block in ibv_get_cq_event(). The NIC must continue. */
static void cancelled_in_the_wait(void **state)
{
	struct drive *d = *state;
	void *rc;
	pthread_t t;

#ifdef __SANITIZE_ADDRESS__
	print_message(
		"SKIPPED: gcc 12's ASan trips over the stack of any thread that was cancelled in mid-call\n");
	skip(); /* other builds run this test */
#endif
	for (unsigned i = 1; i <= 5; i++) {
		atomic_store(&waiting_tid, 0);
		assert_int_equal(pthread_create(&t, NULL, wait_forever, d), 0);
		assert_true(fake_reached(&waiting_tid, 1));
		harness_sleep_ms(i * 5);
		assert_int_equal(pthread_cancel(t), 0);
		assert_int_equal(pthread_join(t, &rc), 0);
		assert_ptr_equal(rc, PTHREAD_CANCELED);
		fake_inject(fake_port_of(d, 0, 0), 1);
		assert_true(fake_reached(&drive_nic(d)->pu[0].packets, i));
		assert_int_equal(drive_wait_fd(d, event_fd, FOREVER), 0);
		assert_true(take_event());
	}
}

/* Several threads wait, each for its own descriptor. One of them drives for all. */
struct waiter {
	struct drive *d;
	int fd;
	atomic_uint woken;
};

static void *wait_and_count(void *arg)
{
	struct waiter *w = arg;
	uint64_t n;

	for (int i = 0; i < 50; i++) {
		if (drive_wait_fd(w->d, w->fd, FOREVER) || read(w->fd, &n, sizeof(n)) != sizeof(n))
			break;
		atomic_fetch_add(&w->woken, 1);
	}
	return NULL;
}

static void several_waiters(void **state)
{
	struct drive *d = *state;
	struct waiter w[WAITERS];
	pthread_t t[WAITERS];

	for (int i = 0; i < WAITERS; i++) {
		w[i].d = d;
		w[i].fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		atomic_store(&w[i].woken, 0);
		assert_int_equal(pthread_create(&t[i], NULL, wait_and_count, &w[i]), 0);
	}
	for (unsigned n = 1; n <= 50; n++) {
		for (int i = 0; i < WAITERS; i++) {
			/* The packet's event goes to waiter i, whichever thread runs the turn. */
			drive_own(d, 0);
			drive_nic(d)->event_ctx = &w[i].fd;
			drive_disown(d, 0);
			fake_inject(fake_port_of(d, 0, 0), 1);
			assert_true(fake_reached(&w[i].woken, n));
		}
	}
	for (int i = 0; i < WAITERS; i++) {
		pthread_join(t[i], NULL);
		close(w[i].fd);
	}
	drive_own(d, 0);
	drive_nic(d)->event_ctx = &event_fd;
	drive_disown(d, 0);
}

/* A thread blocks and nothing happens: neither it nor the service thread runs. */
static void idle_wait_costs_nothing(void **state)
{
	struct drive *d = *state;
	uint64_t one = 1;
	int quiet = 0, tid = harness_find_service();
	pthread_t t;

	atomic_store(&waiting_tid, 0);
	assert_int_equal(pthread_create(&t, NULL, wait_forever, d), 0);
	assert_true(fake_reached(&waiting_tid, 1));
	harness_sleep_ms(3000); /* until the service thread that stands by sleeps */
	for (int tries = 0; tries < 5 && !quiet; tries++) {
		long service = harness_switches(tid),
		     waiter = harness_switches((int)atomic_load(&waiting_tid));

		harness_sleep_ms(2000);
		quiet = service > 0 && service == harness_switches(tid) &&
			waiter == harness_switches((int)atomic_load(&waiting_tid));
	}
	assert_int_equal(write(event_fd, &one, sizeof(one)), sizeof(one));
	pthread_join(t, NULL);
	assert_true(quiet);
	take_event();
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(packet_wakes),	   T(times_out),       T(readable_at_once),
		T(deadline_while_waiting), T(service_returns), T(signal_interrupts),
		T(cancelled_in_the_wait),  T(several_waiters), T(idle_wait_costs_nothing),
	};

	return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
