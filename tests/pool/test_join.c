/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program is stopped or killed at a step of joining: before its n-th system call. The next
 * program that joins waits at most a second. Each case has a network of its own, and many run at a
 * time. The second counts only while the machine runs the program that joins.
 */
#include "../common/child.h"
#include "../common/network.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"
#include "pool/pool.h"

#define MOST_WAIT_MS 1100 /* a second, and sleeps of 2 ms meanwhile */
#define AT_A_TIME    16

/* ---- steps: the system calls of the thread that joins ---- */

static _Thread_local bool joining;
static unsigned step, stop_at;
static int stop_how;
static double waited_ms; /* in waits that ended without an event */

static void at_step(void)
{
	if (joining && ++step == stop_at)
		raise(stop_how);
}

#define STEP(name, parameters, arguments)                                                          \
	int __real_##name parameters;                                                              \
	int __wrap_##name parameters;                                                              \
	int __wrap_##name parameters                                                               \
	{                                                                                          \
		at_step();                                                                         \
		return __real_##name arguments;                                                    \
	}

STEP(sys_socket, (int domain, int type, int protocol), (domain, type, protocol))
STEP(sys_bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
STEP(sys_listen, (int fd, int backlog), (fd, backlog))
STEP(sys_connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
STEP(sys_setsockopt, (int fd, int level, int name, const void *value, socklen_t n),
     (fd, level, name, value, n))

int __real_sys_ppoll(struct pollfd *fds, unsigned n, const struct timespec *ts,
		     const sigset_t *mask);
int __wrap_sys_ppoll(struct pollfd *fds, unsigned n, const struct timespec *ts,
		     const sigset_t *mask);

/* ---- a program that joins on a slow machine: each look at the members takes SLOW_US ---- */

#define SLOW_US	   300000
#define SLOW_LOOKS 8 /* longer than a second */

static atomic_uint *slow_looks; /* shared with the test; NULL: the machine is not slow */

int __wrap_sys_ppoll(struct pollfd *fds, unsigned n, const struct timespec *ts,
		     const sigset_t *mask)
{
	int rc;

	at_step();
	if (joining && slow_looks) {
		atomic_fetch_add(slow_looks, 1);
		usleep(SLOW_US);
	}
	rc = __real_sys_ppoll(fds, n, ts, mask);
	if (joining && rc == 0)
		waited_ms += (double)ts->tv_sec * 1e3 + (double)ts->tv_nsec / 1e6;
	return rc;
}

/* ---- a member that cannot be watched ---- */

static bool no_watches;
static unsigned adds; /* to the epoll set, by the thread that joins */
static atomic_uint closed_twice;

int __real_sys_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
int __wrap_sys_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);

/* The first two are the pool's own descriptors. */
int __wrap_sys_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	if (no_watches && joining && op == EPOLL_CTL_ADD && ++adds > 2)
		return -ENOSPC;
	return __real_sys_epoll_ctl(epfd, op, fd, ev);
}

int __real_sys_close(int fd);
int __wrap_sys_close(int fd);

int __wrap_sys_close(int fd)
{
	int rc = __real_sys_close(fd);

	if (rc == -EBADF)
		atomic_fetch_add(&closed_twice, 1);
	return rc;
}

/* ---- programs ---- */

struct result {
	int rc;
	unsigned silent;
	double waited_ms;
};

static struct result join(void)
{
	struct result r = {0};
	struct pkt_addr addr;
	struct pool_addr *opened = NULL;
	struct pool *p;

	joining = true;
	pkt_addr_parse("127.0.93.1", &addr);
	p = pool_get();
	if (p)
		r.rc = pool_slot(p, 0);
	if (p && r.rc >= 0)
		opened = pool_addr_get(p, &addr, 0, &r.silent);
	if (!p || (r.rc >= 0 && !opened))
		r.rc = -errno;
	if (opened) {
		unsigned slot = (unsigned)r.rc;

		r.rc = pool_addr_use(opened, slot);
		pool_addr_tell(opened, slot, &(struct pool_socket){.sport = 4791});
	}
	joining = false;
	r.rc = r.rc < 0 ? r.rc : 0;
	r.waited_ms = waited_ms;
	return r;
}

/* Starts a program, which is stopped or killed before step `at`, or stops when it has joined. */
static pid_t start_partly(unsigned at, int how)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		stop_at = at;
		stop_how = how;
		join();
		raise(how);
	}
	waitpid(pid, &status, WUNTRACED);
	return pid;
}

/* Starts a program that joins and stays. */
static pid_t start_whole(struct result *r)
{
	int fd[2];
	pid_t pid;

	if (pipe(fd))
		_exit(2);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		*r = join();
		if (write(fd[1], r, sizeof(*r)) == sizeof(*r))
			pause();
		_exit(1);
	}
	close(fd[1]);
	if (read(fd[0], r, sizeof(*r)) != sizeof(*r))
		r->rc = -EPIPE;
	close(fd[0]);
	return pid;
}

/* ---- cases ---- */

struct one_case {
	unsigned at;
	int how;
	bool keeper; /* a program has joined before, and can answer */
};

static int run_case(const struct one_case *c)
{
	struct result first = {0}, r;

	if (!network_own())
		return 77;
	if (c->keeper)
		start_whole(&first);
	start_partly(c->at, c->how);
	start_whole(&r);
	/* If all that could answer is stopped, another address is left: an error, in time. */
	if (!first.rc && r.waited_ms <= MOST_WAIT_MS &&
	    (!r.rc || (r.rc == -EADDRINUSE && r.silent && !c->keeper && c->how == SIGSTOP)))
		return 0;
	printf("%s before step %u, %s: %s (%u silent), waited %.0f ms\n",
	       c->how == SIGSTOP ? "stopped" : "killed", c->at,
	       c->keeper ? "beside a member" : "the first", r.rc ? strerror(-r.rc) : "joined",
	       r.silent, r.waited_ms);
	return 1;
}

static unsigned bad, skipped;

static void collect(void)
{
	int status = 0;

	wait(&status);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skipped++;
	else
		bad += status != 0;
}

static void run_all(const struct one_case *cases, unsigned n)
{
	unsigned running = 0;

	bad = skipped = 0;
	fflush(stdout);
	for (unsigned i = 0; i < n; i++) {
		pid_t pid;

		if (running == AT_A_TIME) {
			collect();
			running--;
		}
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			int rc = run_case(&cases[i]);

			fflush(stdout);
			_exit(rc);
		}
		running++;
	}
	while (running--)
		collect();
	assert_int_equal(bad, 0);
	if (skipped)
		skip();
}

/* A join has about 350 steps as the first, and 140 beside a member. */
static const unsigned steps[] = {1,  2,	 3,  5,	 8,   11,  15,	20,  40,  66,  67,
				 68, 70, 75, 90, 110, 135, 140, 145, 200, 300, 1000};
#define STEPS	    (sizeof(steps) / sizeof(steps[0]))
#define EVERY_STEP  360
#define BOTH_BESIDE 2 /* as the first, and beside a member */

static void every_step(int how)
{
	static struct one_case c[BOTH_BESIDE * EVERY_STEP];

	for (unsigned i = 0; i < BOTH_BESIDE * EVERY_STEP; i++)
		c[i] = (struct one_case){1 + i / BOTH_BESIDE, how, i % BOTH_BESIDE};
	run_all(c, BOTH_BESIDE * EVERY_STEP);
}

static void killed_at_every_step(void **state)
{
	every_step(SIGKILL);
}

static void stopped_at_every_step(void **state)
{
	every_step(SIGSTOP);
}

static void killed(void **state)
{
	struct one_case c[2 * STEPS];

	for (unsigned i = 0; i < 2 * STEPS; i++)
		c[i] = (struct one_case){steps[i / 2], SIGKILL, i & 1};
	run_all(c, 2 * STEPS);
}

static void stopped(void **state)
{
	struct one_case c[2 * STEPS];
	unsigned n = 0;

	for (unsigned i = 0; i < STEPS; i++) {
		c[n++] = (struct one_case){steps[i], SIGSTOP, true};
		if (i % 2) /* these take a second */
			c[n++] = (struct one_case){steps[i], SIGSTOP, false};
	}
	run_all(c, n);
}

/* Runs a test in a process with a network of its own. `run` returns 0, or 77 to skip the test. */
static void in_child(int (*run)(void))
{
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int rc = run();

		fflush(stdout);
		_exit(rc);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

static int run_unwatched(void)
{
	struct result first = {0}, r;

	if (!network_own())
		return 77;
	start_whole(&first);
	no_watches = true;
	r = join();
	printf("%u additions, closed twice: %u\n", adds, atomic_load(&closed_twice));
	return first.rc || r.rc || adds <= 2 || atomic_load(&closed_twice);
}

/*
 * The kernel allows no more watches (max_user_watches). The descriptor is closed once: a second
 * time it may be another thread's.
 */
static void unwatched(void **state)
{
	in_child(run_unwatched);
}

static int run_slow(void)
{
	struct result first = {0}, r;
	pid_t member, joiner;
	int status = 1;

	if (!network_own())
		return 77;
	slow_looks = mmap(NULL, sizeof(*slow_looks), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (slow_looks == MAP_FAILED)
		return 1;
	member = start_whole(&first);
	atomic_store(slow_looks, 0);
	child_stop(member);
	joiner = fork();
	if (joiner == 0) {
		r = join();
		printf("%s, %u silent, %u looks\n", r.rc ? strerror(-r.rc) : "joined", r.silent,
		       atomic_load(slow_looks));
		fflush(stdout);
		_exit(r.rc || r.silent);
	}
	while (atomic_load(slow_looks) < SLOW_LOOKS && waitpid(joiner, &status, WNOHANG) == 0)
		usleep(1000);
	kill(member, SIGCONT);
	if (atomic_load(slow_looks) >= SLOW_LOOKS)
		waitpid(joiner, &status, 0);
	return first.rc || status;
}

/* The member answers late, but then the program that joins has hardly waited for it. */
static void slow_machine(void **state)
{
	in_child(run_slow);
}

/* Usage: test_pool_join [every]	every step, in about a minute */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed),
		cmocka_unit_test(stopped),
		cmocka_unit_test(unwatched),
		cmocka_unit_test(slow_machine),
	};
	const struct CMUnitTest every[] = {
		cmocka_unit_test(killed_at_every_step),
		cmocka_unit_test(stopped_at_every_step),
	};

	if (argc > 1)
		return cmocka_run_group_tests(every, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
