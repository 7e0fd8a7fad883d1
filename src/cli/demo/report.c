/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/demo/report.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/term.h"

const char *const demo_file_names[DEMO_FILES] = {"sent", "received", "returned"};

static double gbps(const struct demo_report *r, const struct demo_step *s)
{
	return s->seconds > 0 ? (double)r->size * 8 / s->seconds / 1e9 : 0;
}

static void print_lookups(const struct demo_lookups *d)
{
	printf("\n%" PRIu64
	       " keys looked up in a hash table of the other process, one after the other\n",
	       d->keys);
	printf("  by RDMA READ       %5.2f round trips each, median %.1f us\n",
	       (double)d->reads / (double)d->keys, d->read_us);
	printf("  by the kernel get  %5.2f round trips each, median %.1f us\n",
	       (double)d->calls / (double)d->keys, d->call_us);
	printf("  by a chain         %5.2f round trips each, median %.1f us\n",
	       (double)d->sends / (double)d->keys, d->chain_us);
}

void demo_print_text(const struct demo_report *r)
{
	static const char *const head[] = {"",	     "bytes",	"seconds",
					   "Gbit/s", "packets", "sent again"};
	char bytes[32], seconds[32], rate[32], packets[32], again[32];
	struct table t;

	printf("%s, %s and %s\n\n", r->port, r->address, r->peer_address);
	table_init(&t, 6);
	table_row(&t, head);
	fmt_count(bytes, sizeof(bytes), r->size);
	for (unsigned i = 0; i < 2; i++) {
		const char *cells[] = {r->step[i].what, bytes, seconds, rate, packets, again};

		snprintf(seconds, sizeof(seconds), "%.4f", r->step[i].seconds);
		snprintf(rate, sizeof(rate), "%.2f", gbps(r, &r->step[i]));
		fmt_count(packets, sizeof(packets), r->step[i].packets);
		fmt_count(again, sizeof(again), r->step[i].again);
		table_row(&t, cells);
	}
	table_print(&t, stdout, 1);
	table_free(&t);
	printf("\n");
	for (unsigned i = 0; i < DEMO_FILES; i++)
		printf("%-8s  XXH3 %s\n", demo_file_names[i], r->hash[i]);
	if (r->equal)
		printf("all three are equal, byte by byte\n");
	if (r->keep)
		printf("the files are in %s\n", r->keep);
	print_lookups(&r->lookups);
}

void demo_print_json(const struct demo_report *r)
{
	const struct demo_lookups *d = &r->lookups;
	json_t *steps = json_array(), *lookups, *top;

	for (unsigned i = 0; i < 2; i++)
		json_array_append_new(
			steps,
			json_pack("{s:s,s:f,s:f,s:I,s:I}", "name", r->step[i].name, "seconds",
				  r->step[i].seconds, "goodput_gbps", gbps(r, &r->step[i]),
				  "packets", (json_int_t)r->step[i].packets, "retransmitted_pkts",
				  (json_int_t)r->step[i].again));
	lookups =
		json_pack("{s:I,s:{s:I,s:f},s:{s:I,s:f},s:{s:I,s:f}}", "keys", (json_int_t)d->keys,
			  "read", "round_trips", (json_int_t)d->reads, "p50_us", d->read_us,
			  "kernel", "round_trips", (json_int_t)d->calls, "p50_us", d->call_us,
			  "chain", "round_trips", (json_int_t)d->sends, "p50_us", d->chain_us);
	top = json_pack("{s:s,s:s,s:I,s:o,s:o,s:s,s:s,s:s,s:b,s:o}", "tool", "demo", "port",
			r->port, "size", (json_int_t)r->size, "steps", steps, "lookups", lookups,
			"sent", r->hash[DEMO_SENT], "received", r->hash[DEMO_RECEIVED], "returned",
			r->hash[DEMO_RETURNED], "equal", r->equal, "machine", r->machine);
	json_dumpf(top, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(top);
}
