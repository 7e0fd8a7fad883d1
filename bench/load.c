/* SPDX-License-Identifier: BSD-2-Clause */
#include "load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "common.h"

#define DRAWS	(1u << 20)
#define SERVERS 16

static const struct load_options *opt;
static struct rng rng;
static uint32_t *ranks; /* drawn in advance: pow() takes longer than an operation */
static unsigned at;

static clockid_t clocks[SERVERS];
static unsigned servers;
static uint64_t began_ns, began_cpu_ns[SERVERS + 1];

void load_fail(const char *what)
{
	fprintf(stderr, "bench: %s\n", what);
	exit(1);
}

static void set(struct load_options *o, const char *name, const char *value)
{
	struct {
		const char *name;
		unsigned *number;
		double *real;
		const char **text;
		bool *yes;
	} all[] = {
		{"store", .text = &o->store},	  {"at", .text = &o->at},
		{"fill", .yes = &o->fill},	  {"batch", .number = &o->batch},
		{"depth", .number = &o->depth},	  {"keys", .number = &o->keys},
		{"value", .number = &o->value},	  {"put", .number = &o->put},
		{"zipf", .real = &o->zipf},	  {"seconds", .real = &o->seconds},
		{"rate", .real = &o->rate},	  {"poisson", .yes = &o->poisson},
		{"servers", .text = &o->servers},
	};

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (strcmp(all[i].name, name) != 0)
			continue;
		if (all[i].number)
			*all[i].number = (unsigned)strtoul(value, NULL, 10);
		else if (all[i].real)
			*all[i].real = strtod(value, NULL);
		else if (all[i].text)
			*all[i].text = value;
		else
			*all[i].yes = *value == '1';
		return;
	}
	load_fail("unknown option");
}

static void find_servers(void)
{
	char *end;

	for (const char *s = opt->servers; s && *s; s = *end == ',' ? end + 1 : end) {
		long pid = strtol(s, &end, 10);

		if (servers == SERVERS)
			load_fail("too many servers");
		if (end == s || clock_getcpuclockid((pid_t)pid, &clocks[servers++]))
			load_fail("no such server");
	}
}

unsigned load_servers(void)
{
	return servers ? servers : 1;
}

void load_parse(struct load_options *o, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value)
			load_fail("an option has no value");
		*value = 0;
		set(o, argv[i], value + 1);
	}
	if (!o->batch || !o->depth || !o->keys || o->keys > 99999999 || o->value > 1024 ||
	    !o->seconds)
		load_fail("a number is out of range");
	opt = o;
	find_servers();
}

/* Draws ranks as in Gray and others, "Quickly generating billion-record synthetic databases". */
static void draw_zipf(void)
{
	double n = opt->keys, s = opt->zipf, zeta = 0, two = 1 + pow(0.5, s), eta;

	for (unsigned i = 1; i <= opt->keys; i++)
		zeta += pow(i, -s);
	eta = (1 - pow(2 / n, 1 - s)) / (1 - two / zeta);
	for (unsigned i = 0; i < DRAWS; i++) {
		double u = rng_double(&rng);
		double r = u * zeta < 1	    ? 0
			   : u * zeta < two ? 1
					    : n * pow(eta * u - eta + 1, 1 / (1 - s));

		/* Neighbours in rank are no neighbours in the store. */
		ranks[i] = (uint32_t)((uint64_t)r * 2654435761u % opt->keys);
	}
}

void load_prepare(const struct load_options *o)
{
	rng_seed(&rng, 1 + (uint64_t)(o->servers ? monotonic_ns() : 0));
	if (o->zipf <= 0)
		return;
	ranks = malloc(DRAWS * sizeof(*ranks));
	if (!ranks)
		load_fail("no memory");
	draw_zipf();
}

uint64_t load_key(void)
{
	return ranks ? ranks[at++ % DRAWS] : rng_below(&rng, opt->keys);
}

void load_digits(char *to, uint64_t key)
{
	for (unsigned i = LOAD_KEY; i-- > 0; key /= 10)
		to[i] = (char)('0' + key % 10);
}

uint64_t load_below(uint64_t n)
{
	return rng_below(&rng, n);
}

double load_random(void)
{
	return rng_double(&rng);
}

static uint64_t cpu_ns(clockid_t clock)
{
	struct timespec t;

	if (clock_gettime(clock, &t))
		load_fail("a server has ended");
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void load_begin(void)
{
	for (unsigned i = 0; i < servers; i++)
		began_cpu_ns[i] = cpu_ns(clocks[i]);
	began_cpu_ns[SERVERS] = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
	began_ns = monotonic_ns();
}

void load_print(const char *tool, uint64_t operations, const struct hist *h)
{
	double seconds = (double)(monotonic_ns() - began_ns) / 1e9, server = 0;
	double own = (double)(cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - began_cpu_ns[SERVERS]) / 1e9;

	for (unsigned i = 0; i < servers; i++)
		server += (double)(cpu_ns(clocks[i]) - began_cpu_ns[i]) / 1e9;
	printf("{\"tool\": \"%s\", \"batch\": %u, \"depth\": %u, \"per_second\": %.0f, "
	       "\"mean_us\": %.3f, \"p50_us\": %.3f, \"p90_us\": %.3f, \"p99_us\": %.3f, \"max_us\": %.3f, "
	       "\"client_cpus\": %.3f, \"server_cpus\": %.3f, \"per_cpu_second\": %.0f}\n",
	       tool, opt->batch, opt->depth, (double)operations / seconds, hist_mean(h) / 1e3,
	       (double)hist_percentile(h, 50) / 1e3, (double)hist_percentile(h, 90) / 1e3,
	       (double)hist_percentile(h, 99) / 1e3, (double)hist_max(h) / 1e3, own / seconds,
	       server / seconds, (double)operations / (own + server));
}
