/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `roost limits`: measures the limits of this machine's cores, memory and sockets. It measures all
 * figures in several rounds and reports the median with the minimum and the maximum, since a single
 * figure means little on a shared machine.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/machine.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/limits/limit.h"
#include "cli/limits/sockets.h"
#include "cli/options.h"
#include "cli/term.h"

#define MAX_ROUNDS 99
#define SMALL	   64
#define LARGE	   4096

struct bench {
	struct limit_cores cores;
	struct limit_memory memory;
	double seconds; /* seconds of one run */
};

/* Measures a figure. Returns 0 and sets *v in the figure's own unit, or returns -errno. */
typedef int measure(const struct bench *b, unsigned arg, double *v);

static int ring(const struct bench *b, unsigned payload, double *v)
{
	return limit_ring(&b->cores, payload, false, b->seconds, v);
}

static int ring_bidir(const struct bench *b, unsigned payload, double *v)
{
	return limit_ring(&b->cores, payload, true, b->seconds, v);
}

static int shm_port(const struct bench *b, unsigned payload, double *v)
{
	return limit_shm(&b->cores, payload, b->seconds, v);
}

static int core_rtt(const struct bench *b, unsigned percentile, double *v)
{
	return limit_core_rtt(&b->cores, percentile, b->seconds, v);
}

static int wake_idle(const struct bench *b, unsigned percentile, double *v)
{
	return limit_wake(&b->cores, false, percentile, b->seconds, v);
}

static int wake_beside(const struct bench *b, unsigned percentile, double *v)
{
	return limit_wake(&b->cores, true, percentile, b->seconds, v);
}

static int udp_gso(const struct bench *b, unsigned arg, double *v)
{
	return limit_udp_gso(&b->cores, b->seconds, v);
}

static int udp_gso_small(const struct bench *b, unsigned arg, double *v)
{
	return limit_udp_gso_small(&b->cores, b->seconds, v);
}

static int udp_rtt(const struct bench *b, unsigned percentile, double *v)
{
	return limit_udp_rtt(&b->cores, false, percentile, b->seconds, v);
}

static int udp_wake(const struct bench *b, unsigned percentile, double *v)
{
	return limit_udp_rtt(&b->cores, true, percentile, b->seconds, v);
}

static int ring_short(const struct bench *b, unsigned percentile, double *v)
{
	return limit_short(&b->cores, false, percentile, b->seconds, v);
}

static int udp_short(const struct bench *b, unsigned percentile, double *v)
{
	return limit_short(&b->cores, true, percentile, b->seconds, v);
}

static const char *const stall_parts[LIMIT_STALLS] = {"per_second", "ms_per_second", "p50_ns"};

/* All parts are of one run: the first one of a round measures them. */
static int stalls(const struct bench *b, unsigned part, double *v)
{
	static double parts[LIMIT_STALLS];

	if (part == 0)
		limit_stalls(b->seconds, parts);
	*v = parts[part];
	return 0;
}

static int random_mops(const struct bench *b, unsigned arg, double *v)
{
	int rc = limit_random_read(&b->memory, LIMIT_CHAINS, b->seconds, v);

	*v /= 1e6;
	return rc;
}

static int random_ns(const struct bench *b, unsigned arg, double *v)
{
	int rc = limit_random_read(&b->memory, 1, b->seconds, v);

	*v = 1e9 / *v;
	return rc;
}

static int copy_cached(const struct bench *b, unsigned arg, double *v)
{
	int rc = limit_copy_cached(b->seconds, v);

	*v /= 1e9;
	return rc;
}

static int copy_stream(const struct bench *b, unsigned arg, double *v)
{
	int rc = limit_copy_stream(&b->memory, b->seconds, v);

	*v /= 1e9;
	return rc;
}

static int crc32(const struct bench *b, unsigned arg, double *v)
{
	int rc = limit_crc32(b->seconds, v);

	*v /= 1e9;
	return rc;
}

/*
 * `arg` is a payload if the figure counts messages a second, a part of the stalls, else a
 * percentile. A figure with a payload appears in Gbit/s under `key` and in messages a second under
 * `rate_key`, each an object by payload. The stalls are an object by part.
 */
struct figure {
	const char *key, *rate_key, *label, *unit;
	measure *fn;
	unsigned arg;
	bool on_core; /* runs in this thread, on the first core */
	bool memory;  /* accesses much memory at random */
};

static const struct figure figures[] = {
	{"ring_gbps", "ring_rate", "ring, copy and CRC-32 on both sides, 4096 bytes", NULL, ring,
	 LARGE, false, false},
	{"ring_gbps", "ring_rate", "ring, 64 bytes", NULL, ring, SMALL, false, false},
	{"ring_bidir_gbps", "ring_bidir_rate", "ring, both directions in sum, 4096 bytes", NULL,
	 ring_bidir, LARGE, false, false},
	{"ring_bidir_gbps", "ring_bidir_rate", "ring, both directions in sum, 64 bytes", NULL,
	 ring_bidir, SMALL, false, false},
	{"shm_port_gbps", "shm_port_rate", "our shm port alone, 4096 bytes", NULL, shm_port, LARGE,
	 false, false},
	{"shm_port_gbps", "shm_port_rate", "our shm port alone, 64 bytes", NULL, shm_port, SMALL,
	 false, false},
	{"core_rtt_ns", NULL, "core to core and back, p50", "ns", core_rtt, 50, false, false},
	{"core_rtt_p99_ns", NULL, "core to core and back, p99", "ns", core_rtt, 99, false, false},
	{"wake_ns", NULL, "a sleeping thread woken, p50", "ns", wake_idle, 50, false, false},
	{"wake_p99_ns", NULL, "a sleeping thread woken, p99", "ns", wake_idle, 99, false, false},
	{"wake_beside_ns", NULL, "the same where another thread spins, p50", "ns", wake_beside, 50,
	 false, false},
	{"udp_gso_gbps", NULL, "UDP_SEGMENT over loopback, copy and CRC-32", "Gbit/s", udp_gso, 0,
	 false, false},
	{"udp_gso_small_mops", NULL, "UDP_SEGMENT over loopback, packets of 64 bytes", "M/s",
	 udp_gso_small, 0, false, false},
	{"udp_rtt_ns", NULL, "UDP round trip over loopback, 64 bytes, p50", "ns", udp_rtt, 50,
	 false, false},
	{"udp_rtt_p99_ns", NULL, "UDP round trip over loopback, 64 bytes, p99", "ns", udp_rtt, 99,
	 false, false},
	{"udp_wake_ns", NULL, "the same, both threads asleep before, p50", "ns", udp_wake, 50,
	 false, false},
	{"udp_wake_p99_ns", NULL, "the same, both threads asleep before, p99", "ns", udp_wake, 99,
	 false, false},
	{"ring_short_ns", NULL, "ring round trip in runs of 1,000, no core chosen, p50", "ns",
	 ring_short, 50, false, false},
	{"ring_short_p99_ns", NULL, "ring round trip in runs of 1,000, no core chosen, p99", "ns",
	 ring_short, 99, false, false},
	{"udp_short_ns", NULL, "UDP round trip in runs of 1,000, no core chosen, p50", "ns",
	 udp_short, 50, false, false},
	{"udp_short_p99_ns", NULL, "UDP round trip in runs of 1,000, no core chosen, p99", "ns",
	 udp_short, 99, false, false},
	{"stalls", NULL, "stalls of a spinning core, more than 5 us", "/s", stalls,
	 LIMIT_STALLS_PER_SECOND, true, false},
	{"stalls", NULL, "stalls of a spinning core, in sum", "ms/s", stalls, LIMIT_STALLS_MS, true,
	 false},
	{"stalls", NULL, "stalls of a spinning core, p50", "ns", stalls, LIMIT_STALLS_P50, true,
	 false},
	{"random_read_mops", NULL, "random 64-byte reads, 16 in flight", "M/s", random_mops, 0,
	 true, true},
	{"random_read_ns", NULL, "random 64-byte read, one after the other", "ns", random_ns, 0,
	 true, true},
	{"copy_gbs", NULL, "copy, blocks of 4 KiB in the cache", "GB/s", copy_cached, 0, true,
	 false},
	{"copy_stream_gbs", NULL, "copy, through memory", "GB/s", copy_stream, 0, true, true},
	{"crc32_gbs", NULL, "CRC-32, blocks of 4 KiB in the cache", "GB/s", crc32, 0, true, false},
};

#define NUM_FIGURES ARRAY_SIZE(figures)

static double values[NUM_FIGURES][MAX_ROUNDS];
static bool absent[NUM_FIGURES]; /* figures that this machine does not support */
static bool wanted[NUM_FIGURES];

static double seconds = 1;
static uint64_t rounds = 5;
static const char *only;
static bool json;

static const struct opt opts[] = {
	OPT_VALUE("seconds", 's', OPT_NUMBER, &seconds, "S",
		  "for each figure, over all rounds (default: 1)", .min = 0.1, .max = 1000),
	OPT_VALUE("rounds", 'r', OPT_COUNT, &rounds, "N",
		  "measurements of each figure, for the median (default: 5)", .min = 1,
		  .max = MAX_ROUNDS),
	OPT_VALUE("only", 'o', OPT_STRING, &only, "KEY",
		  "measure only this figure, by its key in the JSON object"),
	OPT_JSON(&json), OPT_END};

static const struct opt_command cmd = {
	.name = "limits",
	.synopsis = "[--seconds S] [--rounds N] [--only KEY] [--json]",
	.about =
		"Measures the limits of this machine, with bare programs of a few lines, as a reference for Roost's\n"
		"figures. Two cores pass messages through a ring (1024 slots of 4,160 bytes, published every 16\n"
		"messages, or 32 small ones; payload copied and a CRC-32 computed on both sides), a cache line goes\n"
		"there and back, UDP packets go over loopback, threads are woken, a core spins and counts its\n"
		"stalls, memory is read at random, copied and checked.",
	.opts = opts,
	.examples = "  roost limits\n"
		    "  roost limits --only ring_gbps --json | jq .ring_gbps\n",
};

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(unsigned i)
{
	return values[i][rounds / 2];
}

/*
 * Selects the figures that the user requested, and sets *memory if a figure needs memory. Returns
 * false if no figure is selected.
 */
static bool choose(bool *memory)
{
	bool any = false;

	for (unsigned i = 0; i < NUM_FIGURES; i++) {
		const struct figure *f = &figures[i];

		wanted[i] = !only || strcmp(only, f->key) == 0 ||
			    (f->rate_key && strcmp(only, f->rate_key) == 0);
		any |= wanted[i];
		*memory |= wanted[i] && f->memory;
	}
	return any;
}

/* ---- measuring ---- */

static int run_figure(const struct bench *b, unsigned i, unsigned round)
{
	const struct figure *f = &figures[i];
	cpu_set_t all, one;
	int rc;

	if (f->on_core && sched_getaffinity(0, sizeof(all), &all) == 0) {
		CPU_ZERO(&one);
		CPU_SET(b->cores.cpu[0], &one);
		sched_setaffinity(0, sizeof(one), &one);
		rc = f->fn(b, f->arg, &values[i][round]);
		sched_setaffinity(0, sizeof(all), &all);
	} else {
		rc = f->fn(b, f->arg, &values[i][round]);
	}
	if (rc == -ENOPROTOOPT) {
		absent[i] = true;
		return 0;
	}
	if (rc == -EIO)
		return opt_failed(&cmd, "%s: data arrived damaged; memory or CPU can't be trusted",
				  f->label);
	return rc ? opt_failed(&cmd, "%s: %s", f->label, strerror(-rc)) : 0;
}

static int run_all(const struct bench *b)
{
	struct progress progress;
	unsigned done = 0;
	int rc = 0;

	progress_start(&progress, "limits", (double)(rounds * NUM_FIGURES));
	for (unsigned round = 0; round < rounds && rc == 0; round++) {
		for (unsigned i = 0; i < NUM_FIGURES && rc == 0; i++) {
			progress_at(&progress, done++, figures[i].label);
			if (wanted[i] && !absent[i])
				rc = run_figure(b, i, round);
		}
	}
	progress_end(&progress);
	for (unsigned i = 0; i < NUM_FIGURES; i++)
		qsort(values[i], rounds, sizeof(values[i][0]), compare);
	return rc;
}

/* ---- reporting ---- */

static double gbps(const struct figure *f, double rate)
{
	return rate * f->arg * 8 / 1e9;
}

static void row(struct table *t, const char *label, const char *unit, const double *v, double scale)
{
	char cell[3][32];
	const double shown[3] = {v[rounds / 2], v[0], v[rounds - 1]};

	for (int i = 0; i < 3; i++)
		snprintf(cell[i], sizeof(cell[i]), "%.1f", shown[i] * scale);
	table_row(t, (const char *const[]){label, cell[0], unit, cell[1], cell[2]});
}

static void print_table(const struct bench *b)
{
	struct table t;
	char memory[64] = "";

	if (b->memory.p)
		snprintf(memory, sizeof(memory), " | random reads over %zu MiB",
			 b->memory.size >> 20);
	if (b->cores.shared)
		printf("one core only: threads that should have one each take turns on core %d; ring and round-trip "
		       "figures mean little\n",
		       b->cores.cpu[0]);
	else
		printf("cores %d and %d | median of %u rounds%s\n", b->cores.cpu[0],
		       b->cores.cpu[1], (unsigned)rounds, memory);
	table_init(&t, 5);
	table_row(&t, (const char *const[]){"limit", "median", "", "low", "high"});
	for (unsigned i = 0; i < NUM_FIGURES; i++) {
		const struct figure *f = &figures[i];

		if (!wanted[i])
			continue;
		if (absent[i]) {
			table_row(&t, (const char *const[]){f->label, "-", "not possible here", "",
							    ""});
		} else if (f->rate_key) {
			row(&t, f->label, "Gbit/s", values[i], f->arg * 8 / 1e9);
			row(&t, "", "M/s", values[i], 1e-6);
		} else {
			row(&t, f->label, f->unit, values[i], 1);
		}
	}
	table_print(&t, stdout, 1u << 0 | 1u << 2);
	table_free(&t);
}

/* Sets top[key][part] to v. */
static void set_part(json_t *top, const char *key, const char *part, double v)
{
	json_t *o = json_object_get(top, key);

	if (!o) {
		o = json_object();
		json_object_set_new(top, key, o);
	}
	json_object_set_new(o, part, json_real(v));
}

/* Sets top[key][payload] to v. */
static void set_by_payload(json_t *top, const char *key, unsigned payload, double v)
{
	char part[16];

	snprintf(part, sizeof(part), "%u", payload);
	set_part(top, key, part, v);
}

static int print_json(const struct bench *b)
{
	json_t *top = json_object();

	if (!top)
		return opt_failed(&cmd, "out of memory");
	json_object_set_new(top, "tool", json_string("limits"));
	json_object_set_new(top, "seconds", json_real(seconds));
	json_object_set_new(top, "rounds", json_integer((json_int_t)rounds));
	for (unsigned i = 0; i < NUM_FIGURES; i++) {
		const struct figure *f = &figures[i];

		if (!wanted[i])
			continue;
		if (absent[i]) {
			json_object_set_new(top, f->key, json_null());
		} else if (f->rate_key) {
			set_by_payload(top, f->key, f->arg, gbps(f, median(i)));
			set_by_payload(top, f->rate_key, f->arg, median(i));
		} else if (f->fn == stalls) {
			set_part(top, f->key, stall_parts[f->arg], median(i));
		} else {
			json_object_set_new(top, f->key, json_real(median(i)));
		}
	}
	if (b->memory.p)
		json_object_set_new(top, "random_read_bytes",
				    json_integer((json_int_t)b->memory.size));
	json_object_set_new(top, "cores", json_pack("[ii]", b->cores.cpu[0], b->cores.cpu[1]));
	json_object_set_new(top, "cores_shared", json_boolean(b->cores.shared));
	json_object_set_new(top, "machine", machine_describe());
	json_dumpf(top, stdout, JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(top);
	return CLI_OK;
}

int cmd_limits(int argc, char **argv)
{
	struct bench b = {0};
	bool memory = false;
	int at = opt_parse(&cmd, argc, argv, false), rc;

	if (at < 0)
		return at == OPT_HELP ? CLI_OK : CLI_USAGE;
	if (at < argc)
		return opt_usage(&cmd, "takes no operands, so not '%s'", argv[at]);
	if (!choose(&memory))
		return opt_usage(&cmd,
				 "no limit is called '%s': they are the keys that --json prints",
				 only);
	b.seconds = seconds / (double)rounds;
	rc = limit_pick_cores(&b.cores);
	if (rc == 0 && memory)
		rc = limit_memory_get(&b.memory);
	if (rc)
		return opt_failed(&cmd, "can't set up: %s", strerror(-rc));
	rc = run_all(&b);
	if (rc == 0) {
		if (json)
			rc = print_json(&b);
		else
			print_table(&b);
	}
	if (memory)
		limit_memory_put(&b.memory);
	return rc;
}
