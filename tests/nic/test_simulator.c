/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulator: random programs over random links, a seed each (see runner.h, program.h).
 *
 *   test-nic-simulator                   500 seeds (100 under a sanitizer), or the number in
 *                                        ROOST_SIM_SEEDS
 *   test-nic-simulator --count 10000     10,000 seeds
 *   test-nic-simulator --jobs 2          in 2 processes; 0: one for each CPU. At a terminal it
 *                                        shows the progress
 *   test-nic-simulator --seed 1234       one seed, with its parameters: repeats a failure
 *   test-nic-simulator --trace --seed 1234   prints every packet too
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runner.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SEEDS 100
#else
#define SEEDS 500
#endif

static uint64_t number(const char *text)
{
	char *end;
	uint64_t v = strtoull(text, &end, 0);

	if (!*text || *end) {
		fprintf(stderr, "%s is not a number\n", text);
		exit(2);
	}
	return v;
}

#define MAX_JOBS 64

/* Memory that all processes share. */
struct shared {
	_Atomic uint64_t next, done, failed;
	struct run_stats st[MAX_JOBS];
};

struct options {
	uint64_t first, count, jobs;
	bool verbose;
	FILE *live;
	const char *name;
};

/* Runs seeds until all were run or one has failed. */
static void work(struct shared *s, const struct options *o, struct run_stats *st)
{
	uint64_t end = o->first + o->count, seed;

	while (!atomic_load(&s->failed) && (seed = atomic_fetch_add(&s->next, 1)) < end) {
		if (!run_seed(seed, o->verbose, o->live, st)) {
			atomic_fetch_add(&s->failed, 1);
			fprintf(stderr, "replay: %s --seed %" PRIu64 "\n", o->name, seed);
			return;
		}
		atomic_fetch_add(&s->done, 1);
	}
}

static void draw(uint64_t done, uint64_t count)
{
	char bar[41];

	for (unsigned i = 0; i < sizeof(bar) - 1; i++)
		bar[i] = (i + 1) * count <= done * (sizeof(bar) - 1) ? '#' : '.';
	bar[sizeof(bar) - 1] = 0;
	fprintf(stderr, "\r[%s] %" PRIu64 " of %" PRIu64 " seeds ", bar, done, count);
}

/* Returns false if a process has failed. */
static bool await(struct shared *s, const struct options *o, unsigned jobs)
{
	const struct timespec tick = {.tv_nsec = 100000000};
	bool shown = isatty(STDERR_FILENO), ok = true;
	int status;

	while (jobs) {
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid > 0) {
			jobs--;
			ok &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
			continue;
		}
		if (shown)
			draw(atomic_load(&s->done), o->count);
		nanosleep(&tick, NULL);
	}
	if (shown) {
		draw(atomic_load(&s->done), o->count);
		fprintf(stderr, "\n");
	}
	return ok;
}

static bool run_all(struct shared *s, const struct options *o)
{
	unsigned started = 0;

	if (o->jobs == 1) {
		work(s, o, &s->st[0]);
		return !atomic_load(&s->failed);
	}
	for (; started < o->jobs && started < MAX_JOBS; started++) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (pid > 0)
			continue;
		work(s, o, &s->st[started]);
		_exit(atomic_load(&s->failed) != 0);
	}
	return await(s, o, started) && started;
}

static void add(struct run_stats *sum, const struct run_stats *st)
{
	for (size_t i = 0; i < sizeof(*sum) / sizeof(uint64_t); i++)
		((uint64_t *)sum)[i] += ((const uint64_t *)st)[i];
}

int main(int argc, char **argv)
{
	const char *env = getenv("ROOST_SIM_SEEDS");
	struct options o = {
		.first = 1, .count = env ? number(env) : SEEDS, .jobs = 1, .name = argv[0]};
	struct run_stats st = {0};
	struct shared *s;

	for (int i = 1; i < argc; i += 2) {
		if (!strcmp(argv[i], "--trace")) {
			o.live = stdout;
			i--;
			continue;
		}
		if (i + 1 == argc) {
			fprintf(stderr,
				"usage: %s [--trace] [--seed S | --count N | --first S | --jobs J]\n",
				argv[0]);
			return 2;
		}
		if (!strcmp(argv[i], "--seed")) {
			o.first = number(argv[i + 1]);
			o.count = 1;
			o.verbose = true;
		} else if (!strcmp(argv[i], "--count")) {
			o.count = number(argv[i + 1]);
		} else if (!strcmp(argv[i], "--first")) {
			o.first = number(argv[i + 1]);
		} else if (!strcmp(argv[i], "--jobs")) {
			o.jobs = number(argv[i + 1]);
		} else {
			fprintf(stderr, "no option %s\n", argv[i]);
			return 2;
		}
	}
	if (!o.jobs)
		o.jobs = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s == MAP_FAILED)
		abort();
	atomic_store(&s->next, o.first);
	if (!run_all(s, &o))
		return 1;
	for (unsigned i = 0; i < MAX_JOBS; i++)
		add(&st, &s->st[i]);
	munmap(s, sizeof(*s));
	printf("%" PRIu64 " runs: %" PRIu64 " requests (%" PRIu64 " calls), %.1f MB, %" PRIu64
	       " packets seen, %" PRIu64 " sent again, %" PRIu64 " ended by a fault, %" PRIu64
	       " of %" PRIu64 " unreliable messages came, %.3f s of virtual time\n",
	       o.count, st.ops, st.calls, (double)st.bytes / 1e6, st.packets, st.retransmitted,
	       st.faults, st.loose_got, st.loose_sent, (double)st.virtual_ns / 1e9);
	return 0;
}
