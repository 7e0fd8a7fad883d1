/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The limit of a program that spins on memory, without a NIC. As in ib_write_lat, two processes
 * exchange a byte 1,000 times. The program of each one waits for the byte in its memory, notes the
 * time, posts its own byte, and polls until the peer has acknowledged it. Only a thread of the
 * receiver writes to the memory: it takes the message from a ring in shared memory, checks its CRC,
 * copies it, and sends the acknowledgement. The program can do this inside its calls only, so each
 * process has a helper thread, too. No thread chooses a core. A policy says which of the two
 * threads takes messages while the program waits for the byte.
 *
 *	bench-spin [RUNS]
 *
 * All policies run in turns, each run in processes of its own. Prints JSON: for each policy the
 * number of runs, and the medians over them of the typical time (median of 1,000), of p99 and of
 * their ratio, in microseconds and for half of a round trip, as perftest prints them; `within`: the
 * share of runs whose p99 is at most five times the typical value; `slow`: the median number of
 * operations that took longer than that.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/futex.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "packet/crc32.h"
#include "common.h"

#define OPS	  1000u
#define PAYLOAD	  64u
#define SLOTS	  64u
#define RUNS	  16u
#define MOST_RUNS 200u
#define POLICY_NS 2000000000ull /* a policy gets no more runs after this time */
#define TAIL	  5.0
#define US	  1000ull
#define FOR_EVER  UINT64_MAX
#define PAUSE_NS  5000000 /* between runs: cores become idle, as they do while a program starts */

enum helper {
	SLEEPS, /* until the end of the run */
	POLLS,	/* the ring without end, and yields its core after each look */
	NAPS,	/* looks after each nap */
	WOKEN,	/* sleeps until the sender of a message wakes it, unless the program is in a call */
};

static const struct policy {
	const char *name;
	/* ns; for so long the program takes messages itself after the completion of its post */
	uint64_t takes;
	enum helper helper;
	uint64_t nap, nap_most; /* ns; the first nap, and the longest */
	unsigned nap_grow;
	unsigned ops; /* 0: OPS */
} policies[] = {
	{"program", FOR_EVER, SLEEPS, 0, 0, 0, 0},
	{"program; helper naps 2 ms", FOR_EVER, NAPS, 2000 * US, 2000 * US, 1, 0},
	{"program; helper naps 20 us, 160 us ... 2 ms", FOR_EVER, NAPS, 20 * US, 2000 * US, 8, 0},
	{"program; helper naps 200 us", FOR_EVER, NAPS, 200 * US, 200 * US, 1, 0},
	{"program; helper naps 20 us", FOR_EVER, NAPS, 20 * US, 20 * US, 1, 0},
	{"program for 100 us, then helper, woken", 100 * US, WOKEN, 0, 0, 0, 0},
	{"program for 20 us, then helper, woken", 20 * US, WOKEN, 0, 0, 0, 0},
	{"helper, woken by each sender", 0, WOKEN, 0, 0, 0, 0},
	{"helper naps 5 us", 0, NAPS, 5 * US, 5 * US, 1, 0},
	/* a message waits for the end of a time slice of the program, some ms */
	{"helper polls and yields (100 round trips)", 0, POLLS, 0, 0, 0, 100},
};
#define POLICIES (sizeof(policies) / sizeof(policies[0]))

static unsigned ops_of(const struct policy *p)
{
	return p->ops ? p->ops : OPS;
}

/* `seq`, the number of the message from 1, is written last. */
struct slot {
	_Alignas(128) uint8_t payload[PAYLOAD];
	uint32_t crc;
	bool ack;
	_Atomic uint32_t seq;
};

/* One process. The peer writes only to `ring` and `bell`. */
struct side {
	struct slot ring[SLOTS]; /* messages to this side */
	_Alignas(128) _Atomic uint32_t bell;
	atomic_bool armed; /* the sender of a message rings the bell */
	_Alignas(128) volatile uint8_t memory[PAYLOAD];
	_Alignas(128) _Atomic uint32_t completions;
	/* `owned`: a thread uses the members that follow */
	_Alignas(128) atomic_bool owned;
	uint32_t taken, sent;
	uint8_t copy[PAYLOAD];
	bool failed;
	_Alignas(128) atomic_bool over;
	double ns[OPS]; /* the result */
};

static struct side *sides; /* of both processes, in shared memory */

/* What one process runs. */
struct run {
	const struct policy *policy;
	struct side *own, *peer;
};

/* The two processes share the word, so the call is not the private one of base/sys.h. */
static void futex(_Atomic uint32_t *word, int op, uint32_t value)
{
	syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

/* ---- what the library does: the owner moves messages ---- */

static bool own(struct side *s)
{
	return !atomic_load_explicit(&s->owned, memory_order_relaxed) &&
	       !atomic_exchange_explicit(&s->owned, true, memory_order_acquire);
}

static void disown(struct side *s)
{
	atomic_store_explicit(&s->owned, false, memory_order_release);
}

static void ring_bell(struct side *s)
{
	atomic_fetch_add(&s->bell, 1);
	futex(&s->bell, FUTEX_WAKE, 1);
}

static void send_one(struct run *r, const uint8_t *payload, bool ack)
{
	struct slot *to = &r->peer->ring[++r->own->sent % SLOTS];

	memcpy(to->payload, payload, PAYLOAD);
	to->crc = crc32_update(0, to->payload, PAYLOAD);
	to->ack = ack;
	if (r->policy->helper != WOKEN) {
		atomic_store_explicit(&to->seq, r->own->sent, memory_order_release);
		return;
	}
	/* The receiver stores `armed` and loads `seq`, so one of the two sees the other. */
	atomic_store(&to->seq, r->own->sent);
	if (atomic_load(&r->peer->armed))
		ring_bell(r->peer);
}

static void turn(struct run *r)
{
	struct side *s = r->own;
	struct slot *from;

	while (from = &s->ring[(s->taken + 1) % SLOTS],
	       atomic_load_explicit(&from->seq, memory_order_acquire) == s->taken + 1) {
		s->taken++;
		memcpy(s->copy, from->payload, PAYLOAD);
		s->failed |= crc32_update(0, s->copy, PAYLOAD) != from->crc;
		if (from->ack) {
			atomic_fetch_add_explicit(&s->completions, 1, memory_order_release);
			continue;
		}
		for (unsigned i = 1; i < PAYLOAD; i++)
			s->memory[i] = s->copy[i];
		s->memory[0] = s->copy[0];
		send_one(r, s->copy, true);
	}
}

static bool try_turn(struct run *r)
{
	if (!own(r->own))
		return false;
	turn(r);
	disown(r->own);
	return true;
}

/* The same, if the other thread is the owner, whose last look may have been too early. */
static void must_turn(struct run *r)
{
	atomic_thread_fence(memory_order_seq_cst);
	while (!try_turn(r))
		sched_yield();
}

static void post(struct run *r, const uint8_t *payload)
{
	while (!own(r->own))
		cpu_pause();
	send_one(r, payload, false);
	disown(r->own);
}

static bool poll_completion(struct run *r, uint32_t done)
{
	if (atomic_load_explicit(&r->own->completions, memory_order_acquire) > done)
		return true;
	if (!try_turn(r))
		cpu_pause();
	return atomic_load_explicit(&r->own->completions, memory_order_acquire) > done;
}

/*
 * The program has its completion. The call takes messages in its place until the next byte is there
 * or the time is over.
 */
static void take_for_program(struct run *r, uint8_t byte)
{
	uint64_t until =
		r->policy->takes == FOR_EVER ? FOR_EVER : monotonic_ns() + r->policy->takes;

	while (r->policy->takes && r->own->memory[0] != byte &&
	       (until == FOR_EVER || monotonic_ns() < until))
		try_turn(r);
	if (r->policy->helper != WOKEN || r->own->memory[0] == byte)
		return;
	atomic_store(&r->own->armed, true);
	must_turn(r); /* a message may have come before */
}

/* ---- the helper ---- */

static void nap(uint64_t ns)
{
	const struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000u),
				    .tv_nsec = (long)(ns % 1000000000u)};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
}

static void *help(void *arg)
{
	struct run *r = arg;
	struct side *s = r->own;
	uint64_t ns = r->policy->nap;
	uint32_t bell = 0;

	prctl(PR_SET_TIMERSLACK, US, 0, 0, 0);
	while (!atomic_load_explicit(&s->over, memory_order_relaxed)) {
		switch (r->policy->helper) {
		case SLEEPS:
			futex(&s->bell, FUTEX_WAIT, 0);
			continue;
		case POLLS:
			sched_yield();
			break;
		case NAPS:
			nap(ns);
			ns = ns * r->policy->nap_grow < r->policy->nap_most
				     ? ns * r->policy->nap_grow
				     : r->policy->nap_most;
			break;
		case WOKEN:
			futex(&s->bell, FUTEX_WAIT, bell);
			bell = atomic_load(&s->bell);
			must_turn(r);
			continue;
		}
		/* A message that the owner has not seen is taken at its next look. */
		try_turn(r);
	}
	return NULL;
}

/* ---- the program ---- */

/* `starts`: this side posts first. */
static void ping_pong(struct run *r, bool starts)
{
	struct side *s = r->own;
	static uint64_t stamps[OPS + 1];
	uint8_t payload[PAYLOAD] = {0};
	unsigned ops = ops_of(r->policy);

	if (!starts) /* a helper that sleeps does not take the first message */
		take_for_program(r, 1);
	memset(stamps, 1, sizeof(stamps)); /* its pages are there, as those of perftest's array */
	for (uint32_t i = 1; i <= ops; i++) {
		uint8_t byte = (uint8_t)(starts ? i - 1 : i);

		if (!starts || i > 1) {
			while (s->memory[0] != byte)
				;
		}
		stamps[i - 1] = monotonic_ns();
		payload[0] = (uint8_t)i;
		if (r->policy->helper == WOKEN)
			atomic_store_explicit(&s->armed, false, memory_order_relaxed);
		post(r, payload);
		while (!poll_completion(r, i - 1))
			;
		if (i < ops || starts)
			take_for_program(r, (uint8_t)(byte + 1));
	}
	while (starts && s->memory[0] != (uint8_t)ops)
		;
	stamps[ops] = monotonic_ns();
	for (unsigned i = 0; i < ops; i++)
		s->ns[i] = (double)(stamps[i + 1] - stamps[i]);
}

/* One process: begins when the other one has its threads, too. */
static void process(const struct policy *p, unsigned side, int fd)
{
	struct run r = {p, &sides[side], &sides[!side]};
	pthread_t helper;
	char c = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (pthread_create(&helper, NULL, help, &r))
		die("pthread_create");
	if (write(fd, &c, 1) != 1 || read(fd, &c, 1) != 1)
		die("the other process");
	ping_pong(&r, side == 0);
	/* The peer may wait for the last acknowledgement. */
	if (write(fd, &c, 1) != 1 || read(fd, &c, 1) != 1)
		die("the other process");
	atomic_store(&r.own->over, true);
	atomic_fetch_add(&r.own->bell, 1);
	futex(&r.own->bell, FUTEX_WAKE, 1);
	pthread_join(helper, NULL);
	_exit(r.own->failed);
}

/* ---- runs ---- */

struct result {
	double typical, p99, ratio, slow;
};

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static struct result run_once(const struct policy *p)
{
	double *ns = sides[0].ns;
	struct result r = {0};
	unsigned ops = ops_of(p);
	int fds[2], status;
	pid_t pid[2];
	bool failed = false;

	memset(sides, 0, 2 * sizeof(*sides));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		die("socketpair");
	for (unsigned i = 0; i < 2; i++) {
		pid[i] = fork();
		if (pid[i] < 0)
			die("fork");
		if (pid[i] == 0)
			process(p, i, fds[i]);
	}
	close(fds[0]);
	close(fds[1]);
	for (pid_t ended; (ended = wait(&status)) > 0;) {
		if (status && !failed) /* the other process would wait without end */
			kill(pid[ended == pid[0]], SIGKILL);
		failed |= status != 0;
	}
	if (failed) {
		fprintf(stderr, "bench-spin: a process of \"%s\" failed\n", p->name);
		exit(1);
	}
	qsort(ns, ops, sizeof(ns[0]), ascending);
	r.typical = ns[ops / 2] / 2e3;
	r.p99 = ns[ops * 99 / 100] / 2e3;
	r.ratio = r.p99 / r.typical;
	for (unsigned i = 0; i < ops; i++)
		r.slow += ns[i] / 2e3 > TAIL * r.typical;
	return r;
}

static double median(const struct result *results, unsigned runs, size_t offset)
{
	double v[MOST_RUNS];

	for (unsigned i = 0; i < runs; i++)
		v[i] = *(const double *)((const char *)&results[i] + offset);
	qsort(v, runs, sizeof(v[0]), ascending);
	return v[runs / 2];
}

static void print_row(const struct policy *p, const struct result *results, unsigned runs)
{
	unsigned within = 0;

	for (unsigned i = 0; i < runs; i++)
		within += results[i].ratio <= TAIL;
	printf("{\"policy\": \"%s\", \"runs\": %u, \"typical_us\": %.3f, \"p99_us\": %.3f, \"ratio\": %.2f, "
	       "\"within\": %.2f, \"slow\": %.0f}",
	       p->name, runs, median(results, runs, offsetof(struct result, typical)),
	       median(results, runs, offsetof(struct result, p99)),
	       median(results, runs, offsetof(struct result, ratio)), (double)within / runs,
	       median(results, runs, offsetof(struct result, slow)));
}

int main(int argc, char **argv)
{
	static struct result results[POLICIES][MOST_RUNS];
	static unsigned done[POLICIES];
	static uint64_t spent[POLICIES];
	unsigned runs = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : RUNS;

	if (argc > 2 || runs < 1 || runs > MOST_RUNS) {
		fprintf(stderr, "usage: bench-spin [RUNS, 1 to %u]\n", MOST_RUNS);
		return 2;
	}
	sides = mmap(NULL, 2 * sizeof(*sides), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	if (sides == MAP_FAILED)
		die("mmap");
	for (unsigned k = 0; k < runs; k++) {
		for (unsigned i = 0; i < POLICIES; i++) {
			uint64_t start;

			if (spent[i] > POLICY_NS)
				continue;
			nap(PAUSE_NS);
			start = monotonic_ns();
			results[i][done[i]++] = run_once(&policies[i]);
			spent[i] += monotonic_ns() - start;
		}
	}
	printf("{\"tool\": \"bench-spin\", \"rows\": [");
	for (unsigned i = 0; i < POLICIES; i++) {
		printf("%s", i ? ", " : "");
		print_row(&policies[i], results[i], done[i]);
	}
	printf("]}\n");
	return 0;
}
