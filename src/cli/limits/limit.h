/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost limits`: what its measurements share. Each is a bare program of a page, the least that
 * could be done: the yardstick for what Roost does on the same machine.
 */
#ifndef ROOST_CLI_LIMIT_H
#define ROOST_CLI_LIMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The two cores that pairs of threads are pinned to. */
struct limit_cores {
	int cpu[2];
	bool shared; /* both the same: this process may use one core only */
};

/*
 * The first allowed core, and the first that is not the same core's other hyper-thread. 0 or
 * -errno.
 */
int limit_pick_cores(struct limit_cores *c);

enum limit_phase { LIMIT_WARM_UP, LIMIT_MEASURE, LIMIT_STOP };

struct limit_pair;

/* One side of a pair: works until limit_count() says that it is over. */
typedef void limit_side(void *arg, int side, struct limit_pair *p);

struct limit_pair {
	_Atomic int phase;
	bool shared;
	struct {
		_Alignas(128) int seen; /* the phase this side has come to */
		uint64_t done;		/* what it did while measuring */
		uint64_t from, to;	/* ns */
	} side[2];
};

/*
 * Runs `fn` on both cores, a warm-up and then `seconds`; sets rate[side] to what each side counted,
 * per second. 0 or -errno (threads can't be made).
 */
int limit_pair_run(const struct limit_cores *c, limit_side *fn, void *arg, double seconds,
		   double rate[2]);

/* Called by a side now and then: `n` more were done. False when the run is over. */
bool limit_count(struct limit_pair *p, int side, uint64_t n);

/* Inside a loop that waits for the other side. */
void limit_wait(const struct limit_pair *p, unsigned *spins);

/*
 * A ring of 1024 slots of 4,160 bytes (limit_ring.c). *rate: messages a second, both directions in
 * sum. 0, -errno, -EIO: a CRC was wrong.
 */
int limit_ring(const struct limit_cores *c, uint32_t payload, bool both_ways, double seconds,
	       double *rate);

/* The shm port by itself (limit_shm.c): packets of WRITEs, CRC and copy on both sides. As above. */
int limit_shm(const struct limit_cores *c, uint32_t payload, double seconds, double *rate);

/*
 * Nanoseconds of a round trip of one cache line between the cores (limit_core.c). The median is
 * that of means over 64 round trips, without the clock's own cost; any other percentile is of
 * single round trips and includes it (some 25 ns).
 */
int limit_core_rtt(const struct limit_cores *c, unsigned percentile, double seconds, double *ns);

/*
 * Nanoseconds of a round trip of 64 bytes between two threads that spin and choose no core, through
 * rings with copy and CRC-32 on both sides, or through UDP sockets (limit_short.c): the percentile
 * of a run of 1,000, as perftest takes it; the median over runs that take `seconds`, and at least
 * 9. 0 or -errno.
 */
int limit_short(const struct limit_cores *c, bool udp, unsigned percentile, double seconds,
		double *ns);

/*
 * Nanoseconds until a thread that slept in read(2) for 20 ms runs after it was woken from the other
 * core (limit_wake.c); `beside`: another thread spins on the sleeper's core.
 */
int limit_wake(const struct limit_cores *c, bool beside, unsigned percentile, double seconds,
	       double *ns);

/*
 * As long as a NIC sleeps in what is compared with this (roost perf --gap 20ms): the longer the
 * sleep, the colder the core and its caches.
 */
#define LIMIT_SLEEP_NS 20000000
#define LIMIT_WAKES    50 /* at least, for a percentile */

/* Large memory for the figures below: filled, huge pages advised. NULL when there is none. */
struct limit_memory {
	uint8_t *p;
	size_t size;
};
int limit_memory_get(struct limit_memory *m);
void limit_memory_put(struct limit_memory *m);

/*
 * Reads of 64 bytes at random places, `in_flight` chains at once (1: each waits for the last, or
 * LIMIT_CHAINS). *rate: a second.
 */
#define LIMIT_CHAINS 16
int limit_random_read(const struct limit_memory *m, unsigned in_flight, double seconds,
		      double *rate);
/*
 * Bytes a second: copying blocks of 4 KiB in the cache, copying from one half of the memory to the
 * other, CRC-32 over 4 KiB.
 */
int limit_copy_cached(double seconds, double *rate);
int limit_copy_stream(const struct limit_memory *m, double seconds, double *rate);
int limit_crc32(double seconds, double *rate);

#endif
