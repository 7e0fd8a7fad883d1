/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost limits`: declarations of its measurements. Each measurement is a small bare program that
 * does the minimum of work, as a reference for the figures of Roost on the same machine.
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
	bool shared; /* both cores are the same: this process may use one core only */
};

/*
 * Picks the first allowed core, and the first core that is not its hyper-thread sibling. Returns 0
 * or -errno.
 */
int limit_pick_cores(struct limit_cores *c);

enum limit_phase { LIMIT_WARM_UP, LIMIT_MEASURE, LIMIT_STOP };

struct limit_pair;

/* One side of a pair. Works until limit_count() returns false. */
typedef void limit_side(void *arg, int side, struct limit_pair *p);

struct limit_pair {
	_Atomic int phase;
	bool shared;
	struct {
		_Alignas(128) int seen; /* the last phase that this side has seen */
		uint64_t done;		/* operations during the measurement */
		uint64_t from, to;	/* ns */
	} side[2];
};

/*
 * Runs `fn` on both cores, for a warm-up and then for `seconds`. Sets rate[side] to the operations
 * a second of each side. Returns 0, or -errno if threads cannot be created.
 */
int limit_pair_run(const struct limit_cores *c, limit_side *fn, void *arg, double seconds,
		   double rate[2]);

/* Adds `n` operations to the count of a side. Returns false when the run is over. */
bool limit_count(struct limit_pair *p, int side, uint64_t n);

/* Waits a moment, inside a loop that waits for the other side. */
void limit_wait(const struct limit_pair *p, unsigned *spins);

/*
 * Measures a ring of 1024 slots of 4,160 bytes (limits/ring.c). *rate: messages a second, as the
 * sum of both directions. Returns 0 or -errno; -EIO: a CRC was wrong.
 */
int limit_ring(const struct limit_cores *c, uint32_t payload, bool both_ways, double seconds,
	       double *rate);

/*
 * Measures the shm port without a NIC (limits/shm.c): packets of WRITEs, with CRC and copy on both
 * sides. Parameters and return value as above.
 */
int limit_shm(const struct limit_cores *c, uint32_t payload, double seconds, double *rate);

/*
 * Measures the round trip of one cache line between the cores, in ns (limits/core.c). The median is
 * the median of means over 64 round trips, without the cost of the clock. Any other percentile is
 * one of single round trips and includes the cost of the clock (about 25 ns).
 */
int limit_core_rtt(const struct limit_cores *c, unsigned percentile, double seconds, double *ns);

/*
 * Measures the round trip of 64 bytes between two threads that spin and are not pinned, in ns:
 * through rings with copy and CRC-32 on both sides, or through UDP sockets (limits/short.c). The
 * result is the percentile of a run of 1,000 round trips, as in perftest; the median over runs for
 * `seconds`, at least 9 runs. Returns 0 or -errno.
 */
int limit_short(const struct limit_cores *c, bool udp, unsigned percentile, double seconds,
		double *ns);

/*
 * Measures the ns from the wake-up of a thread, which slept in read(2) for 20 ms, by the other core
 * until the thread runs (limits/wake.c). `beside`: another thread spins on the core of the sleeping
 * thread.
 */
int limit_wake(const struct limit_cores *c, bool beside, unsigned percentile, double seconds,
	       double *ns);

/*
 * Measures the stalls of a core, on which this thread spins and reads the clock (limits/stalls.c):
 * the times of more than 5 us between two readings. Sets `part` to their number a second, their sum
 * in ms a second, and their median in ns; all are 0 if there are none.
 */
enum { LIMIT_STALLS_PER_SECOND, LIMIT_STALLS_MS, LIMIT_STALLS_P50, LIMIT_STALLS };
void limit_stalls(double seconds, double part[LIMIT_STALLS]);

/*
 * The time that the NIC sleeps in the measurement with which this limit is compared (roost perf
 * --gap 20ms). A longer sleep leaves the core and its caches colder.
 */
#define LIMIT_SLEEP_NS 20000000
#define LIMIT_WAKES    50 /* minimum number of wake-ups for a percentile */

/*
 * Large memory for the measurements below: filled, with advice for huge pages. limit_memory_get()
 * fails if there is not enough memory.
 */
struct limit_memory {
	uint8_t *p;
	size_t size;
};
int limit_memory_get(struct limit_memory *m);
void limit_memory_put(struct limit_memory *m);

/*
 * Measures reads of 64 bytes at random places, with `in_flight` chains at once (1: each read waits
 * for the last; or LIMIT_CHAINS). *rate: reads a second.
 */
#define LIMIT_CHAINS 16
int limit_random_read(const struct limit_memory *m, unsigned in_flight, double seconds,
		      double *rate);
/*
 * Measure bytes a second: copies of 4 KiB blocks in the cache, copies from one half of the memory
 * to the other, CRC-32 over 4 KiB.
 */
int limit_copy_cached(double seconds, double *rate);
int limit_copy_stream(const struct limit_memory *m, double seconds, double *rate);
int limit_crc32(double seconds, double *rate);

#endif
