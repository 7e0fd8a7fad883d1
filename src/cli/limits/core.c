/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits of one core, or of two cores without anything in between: round trip of a cache line,
 * random reads, copies, CRC-32.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hist.h"
#include "base/mem.h"
#include "cli/limits/limit.h"
#include "cli/term.h"
#include "packet/crc32.h"

#define GIB	   (1ull << 30)
#define LEAST	   (16ull << 20)
#define ROUND	   64 /* round trips between two readings of the clock, for the median */
#define BLOCK	   4096u
#define LINE	   64u
#define BLOCK_AREA (16u << 10) /* blocks are used in turn; all fit in the first-level cache */

/* ---- core to core ---- */

struct ping {
	_Alignas(128) _Atomic uint64_t there;
	_Alignas(128) _Atomic uint64_t back;
	_Alignas(128) struct hist hist; /* ps of a round trip, one entry for `trips` of them */
	int trips;
	_Atomic bool stop;
};

static void ping_side(void *arg, int me, struct limit_pair *p)
{
	struct ping *g = arg;
	unsigned spins = 0;
	uint64_t n = 0, seen;

	if (me == 1) {
		for (;;) {
			while ((seen = atomic_load_explicit(&g->there, memory_order_acquire)) ==
			       n) {
				if (atomic_load_explicit(&g->stop, memory_order_relaxed)) {
					limit_count(p, me, 0);
					return;
				}
				if (p->shared)
					limit_wait(p, &spins);
			}
			n = seen;
			atomic_store_explicit(&g->back, n, memory_order_release);
		}
	}
	do {
		uint64_t start = clock_ns();

		for (int i = 0; i < g->trips; i++) {
			atomic_store_explicit(&g->there, ++n, memory_order_release);
			while (atomic_load_explicit(&g->back, memory_order_acquire) != n) {
				if (p->shared)
					limit_wait(p, &spins);
			}
		}
		/* The histogram has picoseconds, for a fine resolution. */
		hist_add(&g->hist, (clock_ns() - start) * 1000 / (unsigned)g->trips);
	} while (limit_count(p, me, (uint64_t)g->trips));
	atomic_store(&g->stop, true);
}

int limit_core_rtt(const struct limit_cores *c, unsigned percentile, double seconds, double *ns)
{
	struct ping *g = aligned_alloc(128, ALIGN_UP(sizeof(*g), 128));
	double sides[2];
	int rc;

	if (!g)
		return -ENOMEM;
	memset(g, 0, sizeof(*g));
	g->trips = percentile == 50 ? ROUND : 1;
	rc = limit_pair_run(c, ping_side, g, seconds, sides);
	*ns = (double)hist_percentile(&g->hist, percentile) / 1000;
	free(g);
	return rc;
}

/* ---- memory ---- */

/*
 * Returns the number behind `name` in a file of numbers, or the first number in the file when
 * `name` is "". Returns UINT64_MAX when there is no number, or when it is "max".
 */
static uint64_t number_in(const char *path, const char *name)
{
	FILE *f = fopen(path, "re");
	unsigned long long v = UINT64_MAX;
	char line[256];

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, name, strlen(name)) == 0) {
			if (sscanf(line + strlen(name), "%llu", &v) != 1)
				v = UINT64_MAX;
			break;
		}
	}
	if (f)
		fclose(f);
	return v;
}

/* Returns a quarter of the free memory of the machine, or of the container if that is less. */
static uint64_t memory_to_use(void)
{
	uint64_t kib = number_in("/proc/meminfo", "MemAvailable:"),
		 least = kib < UINT64_MAX / 1024 ? kib * 1024 : GIB;
	uint64_t limits[] = {number_in("/sys/fs/cgroup/memory.max", ""),
			     number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", "")};

	for (unsigned i = 0; i < ARRAY_SIZE(limits); i++) {
		if (limits[i] < least)
			least = limits[i];
	}
	return least / 4;
}

/*
 * Allocates four times the last-level cache, between 1 GiB and 4 GiB; less if memory_to_use() is
 * less.
 */
int limit_memory_get(struct limit_memory *m)
{
	long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
	uint64_t size = cache > 0 ? pow2_ceil(4 * (uint64_t)cache) : GIB, most = memory_to_use();

	if (size < GIB)
		size = GIB;
	if (size > 4 * GIB)
		size = 4 * GIB;
	while (size > most && size > LEAST)
		size /= 2;
	m->p = mem_alloc_pages(size);
	if (!m->p)
		return -ENOMEM;
	m->size = size;
	memset(m->p, 0, size);
	return 0;
}

void limit_memory_put(struct limit_memory *m)
{
	mem_free_pages(m->p, m->size);
	m->p = NULL;
}

/*
 * Reads the whole line. The memory holds zeros, which the compiler does not know, so the next
 * address depends on this value.
 */
static uint64_t read_line(const uint8_t *at)
{
	const volatile uint64_t *w = (const volatile void *)at;
	uint64_t sum = 0;

	for (unsigned i = 0; i < LINE / 8; i++)
		sum |= w[i];
	return sum;
}

int limit_random_read(const struct limit_memory *m, unsigned in_flight, double seconds,
		      double *rate)
{
	uint64_t lines = m->size / LINE, x[LIMIT_CHAINS], reads = 0, start = clock_ns(), now;
	uint64_t mask = lines - 1; /* sizes are powers of two */

	for (unsigned c = 0; c < LIMIT_CHAINS; c++)
		x[c] = start * (2 * c + 1);
	do {
		for (unsigned i = 0; i < 256; i++) {
			for (unsigned c = 0; c < in_flight; c++) {
				x[c] = x[c] * 6364136223846793005u + 1442695040888963407u;
				x[c] += read_line(m->p + ((x[c] >> 20) & mask) * LINE);
			}
		}
		reads += 256 * in_flight;
		now = clock_ns();
	} while ((double)(now - start) < seconds * 1e9);
	*rate = (double)reads * 1e9 / (double)(now - start);
	return 0;
}

int limit_copy_cached(double seconds, double *rate)
{
	uint8_t *from = mem_alloc_pages(BLOCK_AREA), *to = mem_alloc_pages(BLOCK_AREA);
	uint64_t start, now, bytes = 0;

	if (!from || !to) {
		mem_free_pages(from, BLOCK_AREA);
		mem_free_pages(to, BLOCK_AREA);
		return -ENOMEM;
	}
	memset(from, 1, BLOCK_AREA);
	memset(to, 2, BLOCK_AREA);
	start = clock_ns();
	do {
		for (unsigned i = 0; i < 1024; i++) {
			memcpy(to + i * BLOCK % BLOCK_AREA, from + i * BLOCK % BLOCK_AREA, BLOCK);
			__asm__ volatile("" : : "r"(to) : "memory");
		}
		bytes += 1024 * BLOCK;
		now = clock_ns();
	} while ((double)(now - start) < seconds * 1e9);
	*rate = (double)bytes * 1e9 / (double)(now - start);
	mem_free_pages(from, BLOCK_AREA);
	mem_free_pages(to, BLOCK_AREA);
	return 0;
}

int limit_copy_stream(const struct limit_memory *m, double seconds, double *rate)
{
	size_t half = m->size / 2, piece = half < GIB / 8 ? half : GIB / 8;
	uint64_t start = clock_ns(), now, bytes = 0;
	size_t at = 0;

	do {
		memcpy(m->p + half + at, m->p + at, piece);
		__asm__ volatile("" : : "r"(m->p) : "memory");
		at = (at + piece) % half;
		bytes += piece;
		now = clock_ns();
	} while ((double)(now - start) < seconds * 1e9);
	*rate = (double)bytes * 1e9 / (double)(now - start);
	return 0;
}

int limit_crc32(double seconds, double *rate)
{
	uint8_t *from = mem_alloc_pages(BLOCK_AREA);
	uint64_t start, now, bytes = 0;
	volatile uint32_t sink = 0;

	if (!from)
		return -ENOMEM;
	memset(from, 3, BLOCK_AREA);
	start = clock_ns();
	do {
		for (unsigned i = 0; i < 1024; i++)
			sink ^= crc32_update(0, from + i * BLOCK % BLOCK_AREA, BLOCK);
		bytes += 1024 * BLOCK;
		now = clock_ns();
	} while ((double)(now - start) < seconds * 1e9);
	(void)sink;
	*rate = (double)bytes * 1e9 / (double)(now - start);
	mem_free_pages(from, BLOCK_AREA);
	return 0;
}
