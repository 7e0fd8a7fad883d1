/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocking calls of the verbs. The blocked thread is the service poller while it sleeps, so its
 * event costs only one wake-up. If several threads block, one of them is the service poller; the
 * others sleep only on their descriptors.
 */
#include <errno.h>
#include <poll.h>
#include <time.h>

#include "base/sys.h"
#include "drive/engine.h"

/* Converts the time from now to `wake`. Returns NULL if there is no timeout. */
static const struct timespec *time_until(uint64_t wake, struct timespec *ts)
{
	uint64_t now, ns;

	if (wake == UINT64_MAX)
		return NULL;
	now = clock_now();
	ns = wake > now ? wake - now : 0;
	ts->tv_sec = (time_t)(ns / 1000000000u);
	ts->tv_nsec = (long)(ns % 1000000000u);
	return ts;
}

/*
 * Sleeps as a cancellation point, like the read(2) that the program expects in ibv_get_cq_event().
 * Programs cancel threads that are blocked there. A raw system call is no cancellation point, so
 * asynchronous cancellation is enabled around this one call.
 */
static int sleep_on(struct pollfd *fds, unsigned n, uint64_t wake)
{
	struct timespec ts;
	const struct timespec *timeout = time_until(wake, &ts);
	int old, rc;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
	rc = sys_ppoll(fds, n, timeout, NULL);
	pthread_setcanceltype(old, NULL);
	return rc;
}

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static int wait_alone(int fd, uint64_t until)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int rc = sleep_on(&p, 1, until);

	if (rc < 0)
		return rc;
	return rc ? 0 : -ETIMEDOUT;
}

#define MAX_FDS (2 + NIC_MAX_PORTS * NIC_MAX_PUS)

/* Adds the first `ports` ports that the thread sleeps on. Returns the new number of descriptors. */
static unsigned add_ports(const struct service_poller *t, unsigned ports, struct pollfd *fds,
			  unsigned n)
{
	for (unsigned i = 0; i < t->d->pus; i++) {
		for (unsigned k = 0; t->pu[i].on_port && k < ports; k++)
			fds[n++] = (struct pollfd){.fd = t->d->port[k][i]->fd, .events = POLLIN};
	}
	return n;
}

static void note_ready(struct service_poller *t, unsigned ports, const struct pollfd *fds)
{
	for (unsigned i = 0; i < t->d->pus; i++) {
		for (unsigned k = 0; t->pu[i].on_port && k < ports; k++)
			t->pu[i].ready |= (fds++)->revents != 0;
	}
}

static bool begin_wait(struct drive *d)
{
	struct service_poller *t = &d->waiter;
	unsigned free = 0;

	if (!atomic_compare_exchange_strong_explicit(&d->waiting, &free, 1, memory_order_seq_cst,
						     memory_order_relaxed))
		return false;
	atomic_fetch_add_explicit(&d->wait_seq, 1, memory_order_relaxed);
	atomic_exchange_explicit(&t->kicked, 0, memory_order_seq_cst);
	for (unsigned i = 0; i < d->pus; i++) {
		t->pu[i].lease = atomic_load_explicit(&d->pu[i].lease_end, memory_order_relaxed);
		t->pu[i].last_work = 0;
		t->pu[i].stuck = 0;
	}
	return true;
}

/* Returns true if other threads of the program may sleep until events outside of this library. */
static bool others_sleep(const struct drive *d)
{
	unsigned waits = atomic_load_explicit(&d->wait_seq, memory_order_relaxed) -
			 atomic_load_explicit(&d->outside_seq, memory_order_seq_cst);

	return waits < policy_table.outside_waits &&
	       atomic_load_explicit(&d->armed, memory_order_seq_cst) > 0;
}

/*
 * Ends a wait. The program is likely to poll or to wait again soon, so it gets a lease. The service
 * thread takes over after the lease. It naps while waits come and go, and is woken only from a long
 * sleep.
 */
static void end_wait(void *arg)
{
	struct drive *d = arg;
	uint64_t now = clock_now();
	uint64_t until = atomic_load_explicit(&d->service_until, memory_order_relaxed);

	service_leave_ports(&d->waiter);
	for (unsigned i = 0; i < d->pus; i++) {
		atomic_store_explicit(&d->pu[i].lease_end, now + policy_table.lease,
				      memory_order_relaxed);
		/*
		 * This store comes before the end of the wait: afterwards only the service thread
		 * may write the field.
		 */
		atomic_store_explicit(&d->pu[i].next_visit, until > now ? until : now,
				      memory_order_relaxed);
	}
	atomic_store_explicit(&d->waiting, 0, memory_order_seq_cst);
	until = atomic_load_explicit(&d->service_until, memory_order_seq_cst);
	if (until > now + policy_table.horizon || others_sleep(d) ||
	    atomic_load_explicit(&d->waiter.kicked, memory_order_seq_cst))
		service_poller_kick(&d->service);
}

static int serve_until_readable(struct drive *d, int fd, uint64_t until)
{
	struct service_poller *t = &d->waiter;
	struct pollfd fds[MAX_FDS];

	for (;;) {
		enum service_verdict v = SERVICE_SLEEP;
		unsigned n = 2, ports;
		int rc;

		atomic_exchange_explicit(&t->kicked, 0, memory_order_seq_cst);
		for (unsigned i = 0; i < d->pus; i++) {
			enum service_verdict one = service_visit(t, i);

			v = one < v ? one : v;
		}
		ports = drive_ports(d); /* a port added later kicks this thread */
		fds[0] = (struct pollfd){.fd = fd, .events = POLLIN};
		fds[1] = (struct pollfd){.fd = t->wake_fd, .events = POLLIN};
		if (v == SERVICE_SLEEP)
			n = add_ports(t, ports, fds, n);
		rc = sleep_on(fds, n, v == SERVICE_SLEEP ? min64(service_next_visit(t), until) : 0);
		if (rc < 0)
			return rc;
		if (fds[0].revents)
			return 0;
		if (clock_now() >= until)
			return -ETIMEDOUT;
		if (v == SERVICE_SLEEP)
			note_ready(t, ports, fds + 2);
		if (fds[1].revents)
			service_poller_drain(t);
	}
}

int drive_wait_fd(struct drive *d, int fd, uint64_t timeout_ns)
{
	uint64_t now = clock_now();
	uint64_t until = timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX;
	int rc;

	if (atomic_load_explicit(&d->dead, memory_order_relaxed) || !begin_wait(d))
		return wait_alone(fd, until);
	pthread_cleanup_push(end_wait, d);
	rc = serve_until_readable(d, fd, until);
	pthread_cleanup_pop(1);
	return rc;
}
