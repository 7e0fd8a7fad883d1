/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Round trips in a short program: two threads that were created for the run, are not pinned and
 * spin, and 1,000 round trips from the first one on, which is the number of perftest. In such a
 * short run, ten slow round trips determine the p99. It therefore shows the costs that the machine
 * adds to each run (cold caches, a timer tick, the migration of a thread), which a run of a second
 * does not show.
 */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/sys.h"
#include "cli/limits/limit.h"
#include "cli/term.h"
#include "packet/crc32.h"

#define TRIPS	 1000u
#define PAYLOAD	 64u
#define SLOTS	 64u
#define MOST	 1000u /* runs */
#define LEAST	 9u
#define PAUSE_NS 5000000u /* pause between runs: cores become idle, as while a program starts */

/* A slot of the ring. `seq`, the number of its message from 1, is written last. */
struct slot {
	_Alignas(128) uint8_t payload[PAYLOAD];
	uint32_t crc;
	_Atomic uint32_t seq;
};

struct run {
	uint64_t ns[TRIPS];
	int fd[2]; /* -1: rings */
	atomic_int error;
	uint8_t from[PAYLOAD], to[2][PAYLOAD];
	struct slot slot[2][SLOTS]; /* slot[i]: written by side i */
	/* The members below live longer than a run. */
	struct limit_pair pair; /* for limit_wait() */
	pthread_barrier_t begin;
};

static void fail(struct run *r, int error)
{
	int none = 0;

	atomic_compare_exchange_strong(&r->error, &none, error);
}

static void send_one(struct run *r, int side, uint32_t seq)
{
	struct slot *s = &r->slot[side][seq % SLOTS];
	ssize_t n;

	if (r->fd[side] >= 0) {
		n = sys_sendto(r->fd[side], r->from, PAYLOAD, 0, NULL, 0);
		if (n < 0)
			fail(r, (int)n);
		return;
	}
	memcpy(s->payload, r->from, PAYLOAD);
	s->crc = crc32_update(0, s->payload, PAYLOAD);
	atomic_store_explicit(&s->seq, seq, memory_order_release);
}

/* Returns true if the message has arrived. */
static bool take_one(struct run *r, int side, uint32_t seq)
{
	struct slot *s = &r->slot[!side][seq % SLOTS];
	ssize_t n;

	if (r->fd[side] >= 0) {
		n = sys_recvfrom(r->fd[side], r->to[side], PAYLOAD, MSG_DONTWAIT, NULL, NULL);
		if (n < 0 && n != -EAGAIN)
			fail(r, (int)n);
		return n >= 0;
	}
	if (atomic_load_explicit(&s->seq, memory_order_acquire) != seq)
		return false;
	memcpy(r->to[side], s->payload, PAYLOAD);
	if (crc32_update(0, r->to[side], PAYLOAD) != s->crc)
		fail(r, -EIO);
	return true;
}

static bool await(struct run *r, int side, uint32_t seq)
{
	unsigned spins = 0;

	while (!take_one(r, side, seq)) {
		if (atomic_load_explicit(&r->error, memory_order_relaxed))
			return false;
		if (r->pair.shared)
			limit_wait(&r->pair, &spins);
	}
	return true;
}

static void *answer(void *arg)
{
	struct run *r = arg;

	pthread_barrier_wait(&r->begin);
	for (uint32_t i = 1; i <= TRIPS && await(r, 1, i); i++)
		send_one(r, 1, i);
	return NULL;
}

static void ask(struct run *r)
{
	uint64_t start, end;

	pthread_barrier_wait(&r->begin);
	start = clock_ns();
	for (uint32_t i = 1; i <= TRIPS; i++, start = end) {
		send_one(r, 0, i);
		if (!await(r, 0, i))
			break;
		end = clock_ns();
		r->ns[i - 1] = end - start;
	}
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static int open_sockets(struct run *r)
{
	struct sockaddr_in addr[2];
	socklen_t len = sizeof(addr[0]);
	int rc = 0;

	for (int i = 0; i < 2 && rc == 0; i++) {
		addr[i] = (struct sockaddr_in){.sin_family = AF_INET,
					       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		r->fd[i] = sys_socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		rc = r->fd[i] < 0 ? r->fd[i] : sys_bind(r->fd[i], (struct sockaddr *)&addr[i], len);
		if (rc == 0)
			rc = sys_getsockname(r->fd[i], (struct sockaddr *)&addr[i], &len);
	}
	for (int i = 0; i < 2 && rc == 0; i++)
		rc = sys_connect(r->fd[i], (struct sockaddr *)&addr[!i], len);
	return rc;
}

static int run_once(struct run *r, bool udp)
{
	pthread_t peer;
	int rc;

	memset(r, 0, offsetof(struct run, pair));
	r->fd[0] = r->fd[1] = -1;
	rc = udp ? open_sockets(r) : 0;
	if (rc == 0)
		rc = -pthread_create(&peer, NULL, answer, r);
	if (rc == 0) {
		ask(r);
		pthread_join(peer, NULL);
		rc = r->error;
	}
	for (int i = 0; i < 2; i++) {
		if (r->fd[i] >= 0)
			sys_close(r->fd[i]);
	}
	return rc;
}

int limit_short(const struct limit_cores *c, bool udp, unsigned percentile, double seconds,
		double *ns)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	struct run *r = aligned_alloc(128, sizeof(*r));
	uint64_t of_run[MOST], start = clock_ns();
	/* On one core a run takes as long as the scheduler lets it. */
	unsigned runs = 0, least = c->shared ? 1 : LEAST;
	int rc = 0;

	if (!r)
		return -ENOMEM;
	r->pair = (struct limit_pair){.shared = c->shared};
	pthread_barrier_init(&r->begin, NULL, 2);
	do {
		nanosleep(&pause, NULL);
		rc = run_once(r, udp);
		qsort(r->ns, TRIPS, sizeof(r->ns[0]), compare);
		of_run[runs++] = r->ns[TRIPS * percentile / 100]; /* as perftest computes it */
	} while (rc == 0 && runs < MOST &&
		 (runs < least || (double)(clock_ns() - start) < seconds * 1e9));
	pthread_barrier_destroy(&r->begin);
	free(r);
	qsort(of_run, runs, sizeof(of_run[0]), compare);
	*ns = (double)of_run[runs / 2];
	return rc;
}
