/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/programs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/ask.h"
#include "cli/term.h"
#include "packet/icrc.h"
#include "pool/pool.h"
#include "port/shm_dir.h"

/* The time between two looks, which rates need. */
#define LOOK_MS	 100
#define NAME_LEN 128

static long long number_of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "?";
}

/* ---- a look ---- */

/* Finds the name of a process that does not tell its name. */
static const char *name_of(long long pid, char *buf, size_t n)
{
	char path[64];
	FILE *f;

	snprintf(buf, n, "?");
	snprintf(path, sizeof(path), "/proc/%lld/comm", pid);
	f = pid > 0 ? fopen(path, "re") : NULL;
	if (!f)
		return buf;
	if (!fgets(buf, (int)n, f))
		snprintf(buf, n, "?");
	fclose(f);
	buf[strcspn(buf, "\n")] = '\0';
	return plain_text(buf);
}

/*
 * Returns true if the process is stopped, by a signal or a debugger. A stopped process does not
 * answer.
 */
static bool is_stopped(long long pid)
{
	char path[64], line[512] = "", *end;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%lld/stat", pid);
	f = pid > 0 ? fopen(path, "re") : NULL;
	if (!f)
		return false;
	if (!fgets(line, sizeof(line), f))
		line[0] = '\0';
	fclose(f);
	end = strrchr(line, ')'); /* the name before it may contain any character */
	return end && (strncmp(end, ") T", 3) == 0 || strncmp(end, ") t", 3) == 0);
}

static json_t *silent_program(long long pid, json_t *ports, bool folder)
{
	char name[NAME_LEN];

	return json_pack("{s:I,s:s,s:o,s:b,s:s}", "pid", (json_int_t)pid, "program",
			 name_of(pid, name, sizeof(name)), "ports", ports, "folder", (int)folder,
			 "state", is_stopped(pid) ? "stopped" : "silent");
}

/* Returns the ports of a member that does not answer: the addresses that its slots use. */
static json_t *ports_of(const struct pool_seen seen[POOL_SLOTS], unsigned first)
{
	json_t *ports = json_array(), *port, *slots;
	const struct pool_seen *s = &seen[first];
	char addr[POOL_ADDR_TEXT];

	for (unsigned k = 0; k < s->num_addrs; k++) {
		slots = json_array();
		for (unsigned i = 0; i < POOL_SLOTS; i++) {
			if (seen[i].known && seen[i].first == first)
				json_array_append_new(slots, json_integer(i));
		}
		port = json_pack("{s:s,s:s,s:o}", "kind", s->ring[k] ? "host" : "udp", "address",
				 pool_addr_print(&s->addr[k], s->scope[k], addr), "slots", slots);
		json_array_append_new(ports, port);
	}
	return ports;
}

/* Asks all members at once, so that stopped members delay the look only once. */
static void look_in_pool(struct programs *p, int answer_ms)
{
	struct pool_seen seen[POOL_SLOTS];
	struct ask_answer a[POOL_SLOTS];
	bool there[POOL_SLOTS];

	pool_look(seen);
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		pid_t pid = 0;

		a[i] = (struct ask_answer){.fd = seen[i].taken ? pool_visit(i, &pid) : -1};
		/*
		 * A full queue, as of a stopped program, does not mean that the program is
		 * absent.
		 */
		there[i] =
			a[i].fd >= 0 || a[i].fd == -EAGAIN || (seen[i].known && seen[i].first == i);
		seen[i].pid = pid ? pid : seen[i].pid;
		if (a[i].fd >= 0 && is_stopped(seen[i].pid)) {
			close(a[i].fd);
			a[i].fd = -1;
		}
	}
	ask_read_all(a, POOL_SLOTS, answer_ms);
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		json_t *o = a[i].text ? json_loads(a[i].text, 0, NULL) : NULL;

		if (json_is_object(o)) {
			json_object_set_new(o, "seen_pid", json_integer(seen[i].pid));
			json_array_append(p->nics, o);
		} else if (there[i] && !(a[i].text && !*a[i].text)) {
			json_array_append_new(
				p->silent, silent_program(seen[i].pid, ports_of(seen, i), false));
		}
		json_decref(o);
		free(a[i].text);
	}
}

/*
 * Finds a process of the pool, which must not be asked twice. Its socket in the folder has its own
 * process id.
 */
static json_t *in_pool(const json_t *list, int pid)
{
	json_t *o;
	size_t i;

	json_array_foreach(list, i, o)
	{
		if (number_of(o, "seen_pid") == pid && number_of(o, "pid") == pid)
			return o;
	}
	return NULL;
}

static json_t *same(const json_t *list, const char *key, const json_t *value)
{
	json_t *o;
	size_t i;

	json_array_foreach(list, i, o)
	{
		if (value && json_equal(json_object_get(o, key), value))
			return o;
	}
	return NULL;
}

static void look_in_folder(int dirfd, struct programs *p, int answer_ms)
{
	int *pids;
	unsigned count = ask_list(dirfd, "stat.", &pids);

	for (unsigned i = 0; i < count; i++) {
		json_t *pid = json_integer(pids[i]), *known = same(p->silent, "pid", pid), *nic;
		char name[SHM_NAME_MAX];
		bool mute;

		if (known)
			json_object_set_new(known, "folder", json_true());
		snprintf(name, sizeof(name), "stat.%d", pids[i]);
		nic = known || in_pool(p->nics, pids[i]) ? NULL
							 : ask(dirfd, name, NULL, answer_ms, &mute);
		if (nic && !same(p->nics, "instance", json_object_get(nic, "instance")))
			json_array_append(p->nics, nic);
		else if (!nic && !known && !in_pool(p->nics, pids[i]) && mute)
			json_array_append_new(p->silent,
					      silent_program(pids[i], json_array(), true));
		json_decref(nic);
		json_decref(pid);
	}
	free(pids);
}

static int by_pid(const void *a, const void *b)
{
	long long x = number_of(*(json_t *const *)a, "pid"),
		  y = number_of(*(json_t *const *)b, "pid");

	return (x > y) - (x < y);
}

static void sort(json_t *array, int (*compare)(const void *, const void *))
{
	size_t n = json_array_size(array);
	json_t **o = n ? calloc(n, sizeof(json_t *)) : NULL;

	if (!o)
		return;
	for (size_t i = 0; i < n; i++)
		o[i] = json_incref(json_array_get(array, i));
	qsort(o, n, sizeof(json_t *), compare);
	for (size_t i = 0; i < n; i++)
		json_array_set_new(array, i, o[i]);
	free(o);
}

void programs_look(int dirfd, int answer_ms, struct programs *p)
{
	json_t *o;
	size_t i;

	*p = (struct programs){json_array(), json_array(), clock_ns()};
	look_in_pool(p, answer_ms);
	if (dirfd >= 0)
		look_in_folder(dirfd, p, answer_ms);
	json_array_foreach(p->nics, i, o) json_object_del(o, "seen_pid");
	sort(p->nics, by_pid);
}

void programs_look_twice(int dirfd, struct programs *before, struct programs *now)
{
	struct timespec pause;
	uint64_t ns;

	programs_look(dirfd, LOOK_MS, before);
	ns = clock_ns() - before->at;
	pause = (struct timespec){.tv_nsec = ns < LOOK_MS * 1000000l ? LOOK_MS * 1000000l - (long)ns
								     : 0};
	if (json_array_size(before->nics))
		nanosleep(&pause, NULL);
	programs_look(dirfd, PROGRAMS_ANSWER_MS, now);
}

void programs_free(struct programs *p)
{
	json_decref(p->nics);
	json_decref(p->silent);
	p->nics = p->silent = NULL;
}

bool programs_is(const json_t *program, const char *name)
{
	char number[24];

	snprintf(number, sizeof(number), "%lld", number_of(program, "pid"));
	return strcmp(name, number) == 0 || strcmp(name, text_of(program, "program")) == 0;
}

/* ---- rows ---- */

static double rate(const json_t *now, const json_t *before, const char *key, uint64_t ns)
{
	long long more = number_of(json_object_get(now, "stats"), key) -
			 number_of(json_object_get(before, "stats"), key);

	return more > 0 && ns ? (double)more * 8e9 / (double)ns : 0;
}

static json_t *row_of(const json_t *program, const json_t *port, const char *state)
{
	json_t *slots = json_object_get(port, "slots");

	return json_pack("{s:s,s:s,s:O,s:O,s:O,s:s}", "address", text_of(port, "address"), "kind",
			 text_of(port, "kind"), "slots", slots ? slots : json_null(), "pid",
			 json_object_get(program, "pid"), "program",
			 json_object_get(program, "program"), "state", state);
}

static void add_rows(json_t *rows, const json_t *nic, const json_t *was, uint64_t ns)
{
	const json_t *usage = json_object_get(nic, "usage"), *port;
	size_t k;

	json_array_foreach(json_object_get(nic, "ports"), k, port)
	{
		json_t *row = row_of(nic, port, "running");
		const json_t *earlier = json_array_get(json_object_get(was, "ports"), k);

		if (!row) /* an answer with other fields */
			continue;
		json_object_set(row, "qps", json_object_get(usage, "qps"));
		json_object_set(row, "connections", json_object_get(usage, "connections"));
		json_object_set(row, "rx_bytes",
				json_object_get(json_object_get(port, "stats"), "rx_bytes"));
		json_object_set(row, "tx_bytes",
				json_object_get(json_object_get(port, "stats"), "tx_bytes"));
		if (earlier) {
			json_object_set_new(row, "rx_bits_s",
					    json_real(rate(port, earlier, "rx_bytes", ns)));
			json_object_set_new(row, "tx_bits_s",
					    json_real(rate(port, earlier, "tx_bytes", ns)));
		}
		json_array_append_new(rows, row);
	}
}

/* Parses an address without its interface. */
static void parse_address(const char *text, struct pkt_addr *addr)
{
	char buf[POOL_ADDR_TEXT];

	snprintf(buf, sizeof(buf), "%.*s", (int)strcspn(text, "%"), text);
	pkt_addr_parse(buf, addr);
}

static int by_address(const void *a, const void *b)
{
	const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
	struct pkt_addr p = {{0}}, q = {{0}};
	long long s, t;
	int c;

	parse_address(text_of(x, "address"), &p);
	parse_address(text_of(y, "address"), &q);
	c = memcmp(&p, &q, sizeof(p));
	if (c == 0) /* the interfaces of link-local addresses may differ */
		c = strcmp(text_of(x, "address"), text_of(y, "address"));
	if (c == 0)
		c = strcmp(text_of(x, "kind"), text_of(y, "kind"));
	if (c)
		return c;
	s = json_integer_value(json_array_get(json_object_get(x, "slots"), 0));
	t = json_integer_value(json_array_get(json_object_get(y, "slots"), 0));
	return s != t ? (s > t) - (s < t) : by_pid(a, b);
}

json_t *programs_rows(const struct programs *p, const struct programs *before)
{
	json_t *rows = json_array(), *o, *port;
	size_t i, k;

	json_array_foreach(p->nics, i, o)
	{
		json_t *instance = json_object_get(o, "instance");

		add_rows(rows, o, before ? same(before->nics, "instance", instance) : NULL,
			 before ? p->at - before->at : 0);
	}
	json_array_foreach(p->silent, i, o)
	{
		json_array_foreach(json_object_get(o, "ports"), k, port)
			json_array_append_new(rows, row_of(o, port, text_of(o, "state")));
	}
	sort(rows, by_address);
	return rows;
}

/* ---- the table ---- */

static void number_cell(const json_t *row, const char *key, char *buf, size_t n)
{
	const json_t *v = json_object_get(row, key);

	if (v)
		fmt_count(buf, n, (uint64_t)json_integer_value(v));
	else
		snprintf(buf, n, "-");
}

static void rate_cell(const json_t *row, const char *key, char *buf, size_t n)
{
	const json_t *v = json_object_get(row, key);

	if (v)
		snprintf(buf, n, "%.1f", json_real_value(v) / 1e6);
	else
		snprintf(buf, n, "-");
}

static void slots_cell(const json_t *row, char *buf, size_t n)
{
	struct text t = {.buf = buf, .n = n};
	const json_t *slot;
	size_t i;

	json_array_foreach(json_object_get(row, "slots"), i, slot)
		text_put(&t, "%s%lld", i ? "," : "", json_integer_value(slot));
	if (!t.used)
		text_put(&t, "-");
}

void programs_print(const json_t *rows)
{
	static const char *const head[] = {"address",	"port", "slots",       "program",
					   "pid",	"QPs",	"connections", "rx Mbit/s",
					   "tx Mbit/s", "state"};
	char slots[64], pid[32], qps[32], connections[32], rx[48], tx[48];
	const json_t *row;
	struct table t;
	size_t i;

	table_init(&t, 10);
	table_row(&t, head);
	json_array_foreach(rows, i, row)
	{
		const char *cells[10] = {text_of(row, "address"),
					 text_of(row, "kind"),
					 slots,
					 text_of(row, "program"),
					 pid,
					 qps,
					 connections,
					 rx,
					 tx,
					 strcmp(text_of(row, "state"), "silent") == 0
						 ? "does not answer"
						 : text_of(row, "state")};

		slots_cell(row, slots, sizeof(slots));
		snprintf(pid, sizeof(pid), "%lld", number_of(row, "pid"));
		if (!number_of(row, "pid"))
			snprintf(pid, sizeof(pid), "-");
		number_cell(row, "qps", qps, sizeof(qps));
		number_cell(row, "connections", connections, sizeof(connections));
		rate_cell(row, "rx_bits_s", rx, sizeof(rx));
		rate_cell(row, "tx_bits_s", tx, sizeof(tx));
		table_row(&t, cells);
	}
	table_print(&t, stdout, 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 9);
	table_free(&t);
}
