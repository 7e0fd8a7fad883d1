/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/stat/print.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cli/term.h"
#include "cm/cm.h"
#include "kernels/runtime.h"
#include "nic/counters.h"

#define TEXT_MAX 128

static const struct {
	const char *name, *help;
} port_counters[] = {
	{"rx_packets", "packets received"},
	{"rx_bytes", "bytes received, BTH to ICRC"},
	{"rx_bursts", "system calls, or looks at a ring, that brought packets"},
	{"rx_bad", "refused by the port, or lost on the way to it from another slot"},
	{"tx_packets", "packets sent"},
	{"tx_bytes", "bytes sent, BTH to ICRC"},
	{"tx_bursts", "system calls, or ring updates, that sent packets"},
	{"tx_dropped", "could not be sent"},
	{"tx_blocked", "times that the port had no space"},
	{"rx_shm_packets", "packets of rx_packets that a host port got by shared memory"},
	{"tx_shm_packets", "packets of tx_packets that a host port sent by shared memory"},
	{"tx_shm_fallbacks", "peers for which a host port used udp, because it had no ring"},
};

/* Copies text of an answer into buf. The text is untrusted, since a program chooses it. */
static const char *text_of(const json_t *o, const char *key, char buf[TEXT_MAX])
{
	const char *s = json_string_value(json_object_get(o, key));

	snprintf(buf, TEXT_MAX, "%s", s ? s : "?");
	return plain_text(buf);
}

static long long number_of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

/* ---- tables ---- */

struct view {
	struct table t;
	double seconds; /* seconds since `before`; 0: no rates */
	bool all;
};

/* Adds a row for a counter. `before`: the earlier values of the counters, or NULL. */
static void counter_row(struct view *w, const char *name, const json_t *now, const json_t *before,
			const char *key, const char *help)
{
	uint64_t v = (uint64_t)number_of(now, key),
		 was = before ? (uint64_t)number_of(before, key) : v;
	char value[40], rate[40] = "";
	const char *cells[4] = {name, fmt_count(value, sizeof(value), v), help};

	if (w->seconds > 0) {
		cells[2] = fmt_count(rate, sizeof(rate),
				     (uint64_t)((double)(v - was) / w->seconds + 0.5));
		cells[3] = help;
	}
	if (v || w->all)
		table_row(&w->t, cells);
}

static void print_head(const json_t *nic)
{
	const json_t *u = json_object_get(nic, "usage"), *port;
	char program[TEXT_MAX], kind[TEXT_MAX], address[TEXT_MAX], used[32], limit[32];
	size_t i;

	printf("%s, process %lld, up %.0f s", text_of(nic, "program", program),
	       number_of(nic, "pid"), json_real_value(json_object_get(nic, "uptime_s")));
	if (u) /* otherwise a control call of the program takes long */
		printf(": %lld QPs, %lld CQs, %lld MRs", number_of(u, "qps"), number_of(u, "cqs"),
		       number_of(u, "mrs"));
	if (number_of(u, "memory_limit"))
		printf(", %s of %s for connections",
		       fmt_bytes(used, sizeof(used), (uint64_t)number_of(u, "memory")),
		       fmt_bytes(limit, sizeof(limit), (uint64_t)number_of(u, "memory_limit")));
	json_array_foreach(json_object_get(nic, "ports"), i, port)
		printf("; %s %s, MTU %lld", text_of(port, "kind", kind),
		       text_of(port, "address", address), number_of(port, "mtu"));
	putchar('\n');
}

static void print_nic(const json_t *nic, const json_t *before, double seconds, bool all)
{
	static const char *const head[] = {"counter", "value", "what it counts"};
	static const char *const head_rates[] = {"counter", "value", "a second", "what it counts"};
	const json_t *port;
	struct view w = {.seconds = seconds, .all = all};
	char name[64];
	size_t k;

	print_head(nic);
	table_init(&w.t, seconds > 0 ? 4 : 3);
	table_row(&w.t, seconds > 0 ? head_rates : head);
	for (size_t i = 0; i < NIC_COUNTER_COUNT; i++)
		counter_row(&w, nic_counter_info[i].name, json_object_get(nic, "counters"),
			    json_object_get(before, "counters"), nic_counter_info[i].name,
			    nic_counter_info[i].help);
	json_array_foreach(json_object_get(nic, "ports"), k, port)
	{
		const json_t *was = json_array_get(json_object_get(before, "ports"), k);

		for (size_t i = 0; i < sizeof(port_counters) / sizeof(port_counters[0]); i++) {
			snprintf(name, sizeof(name), "port %zu %s", k + 1, port_counters[i].name);
			counter_row(&w, name, json_object_get(port, "stats"),
				    json_object_get(was, "stats"), port_counters[i].name,
				    port_counters[i].help);
		}
	}
	for (size_t i = 0; i < CM_STATS; i++) {
		snprintf(name, sizeof(name), "cm %s", cm_stat_info[i].name);
		counter_row(&w, name, json_object_get(nic, "cm"), json_object_get(before, "cm"),
			    cm_stat_info[i].name, cm_stat_info[i].help);
	}
	for (size_t i = 0; i < RUNTIME_COUNTER_COUNT; i++) {
		snprintf(name, sizeof(name), "kernels %s", runtime_counter_info[i].name);
		counter_row(&w, name, json_object_get(nic, "kernels"),
			    json_object_get(before, "kernels"), runtime_counter_info[i].name,
			    runtime_counter_info[i].help);
	}
	if (w.t.num_rows > 1)
		table_print(&w.t, stdout, seconds > 0 ? 1 << 0 | 1 << 3 : 1 << 0 | 1 << 2);
	else
		printf("nothing counted yet\n");
	table_free(&w.t);
}

static const json_t *same_process(const json_t *nics, long long pid)
{
	const json_t *nic;
	size_t i;

	json_array_foreach(nics, i, nic)
	{
		if (number_of(nic, "pid") == pid)
			return nic;
	}
	return NULL;
}

void stat_print_tables(const json_t *nics, const json_t *before, double seconds, bool all)
{
	const json_t *nic;
	size_t i;

	json_array_foreach(nics, i, nic)
	{
		if (i)
			putchar('\n');
		print_nic(nic, same_process(before, number_of(nic, "pid")), before ? seconds : 0,
			  all);
	}
}

/* ---- Prometheus ---- */

/* Prints a label. Its value comes from the answer; backslash and quote are escaped. */
static void print_label(const char *name, const json_t *o)
{
	char value[TEXT_MAX];

	printf("%s=\"", name);
	for (const char *s = text_of(o, name, value); *s; s++)
		printf(*s == '\\' || *s == '"' ? "\\%c" : "%c", *s);
	putchar('"');
}

static void print_process(const json_t *nic)
{
	printf("{pid=\"%lld\",", number_of(nic, "pid"));
	print_label("program", nic);
}

/*
 * Prints one number of each NIC: the member of this name of the object `group`, for each answer
 * that has it.
 */
static void print_metric(const json_t *nics, const char *group, const char *type, const char *key,
			 const char *name, const char *suffix, const char *help)
{
	const json_t *nic;
	size_t i;
	bool headed = false;

	json_array_foreach(nics, i, nic)
	{
		if (!json_object_get(nic, group))
			continue;
		if (!headed)
			printf("# HELP roost_%s%s %s\n# TYPE roost_%s%s %s\n", name, suffix, help,
			       name, suffix, type);
		headed = true;
		printf("roost_%s%s", name, suffix);
		print_process(nic);
		printf("} %lld\n", number_of(json_object_get(nic, group), key));
	}
}

static void print_gauge(const json_t *nics, const char *name, const char *help)
{
	print_metric(nics, "usage", "gauge", name, name, "", help);
}

static void print_port_counter(const json_t *nics, const char *name, const char *help)
{
	const json_t *nic, *port;
	size_t i, k;

	printf("# HELP roost_port_%s_total %s\n# TYPE roost_port_%s_total counter\n", name, help,
	       name);
	json_array_foreach(nics, i, nic)
	{
		json_array_foreach(json_object_get(nic, "ports"), k, port)
		{
			printf("roost_port_%s_total", name);
			print_process(nic);
			printf(",port=\"%zu\",", k + 1);
			print_label("kind", port);
			putchar(',');
			print_label("address", port);
			printf("} %lld\n", number_of(json_object_get(port, "stats"), name));
		}
	}
}

/* Prints 1 for each program that answered, and 0 for the others. */
static void print_up(const json_t *nics, const json_t *silent)
{
	const json_t *lists[] = {silent, nics}, *o;
	size_t i;

	if (json_array_size(nics) + json_array_size(silent) == 0)
		return;
	printf("# HELP roost_up whether the program answers\n# TYPE roost_up gauge\n");
	for (int up = 0; up <= 1; up++) {
		json_array_foreach(lists[up], i, o)
		{
			printf("roost_up");
			print_process(o);
			printf("} %d\n", up);
		}
	}
}

void stat_print_prometheus(const json_t *nics, const json_t *silent)
{
	char name[64];

	print_up(nics, silent);
	print_gauge(nics, "qps", "queue pairs");
	print_gauge(nics, "connections", "RC and UC queue pairs that are connected");
	print_gauge(nics, "cqs", "completion queues");
	print_gauge(nics, "mrs", "memory regions");
	print_gauge(nics, "mws", "memory windows");
	print_gauge(nics, "groups", "multicast groups that queue pairs are attached to");
	print_gauge(nics, "srqs", "shared receive queues");
	print_gauge(nics, "memory", "bytes of connections and kernels");
	print_gauge(nics, "memory_limit", "limit of these bytes; 0: no limit");
	print_gauge(nics, "memory_refused", "times that more memory was refused");
	for (size_t i = 0; i < NIC_COUNTER_COUNT; i++)
		print_metric(nics, "counters", "counter", nic_counter_info[i].name,
			     nic_counter_info[i].name, "_total", nic_counter_info[i].help);
	for (size_t i = 0; i < CM_STATS; i++) {
		snprintf(name, sizeof(name), "cm_%s", cm_stat_info[i].name);
		print_metric(nics, "cm", i < CM_GAUGES ? "gauge" : "counter", cm_stat_info[i].name,
			     name, i < CM_GAUGES ? "" : "_total", cm_stat_info[i].help);
	}
	for (size_t i = 0; i < RUNTIME_COUNTER_COUNT; i++) {
		snprintf(name, sizeof(name), "kernels_%s", runtime_counter_info[i].name);
		print_metric(nics, "kernels", "counter", runtime_counter_info[i].name, name,
			     "_total", runtime_counter_info[i].help);
	}
	for (size_t i = 0; i < sizeof(port_counters) / sizeof(port_counters[0]); i++)
		print_port_counter(nics, port_counters[i].name, port_counters[i].help);
}
