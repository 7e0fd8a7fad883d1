/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client of the nodes of a table of partitions. test_kv_parts.py and test_kv_moves.py run it.
 *
 *	kv-parts TABLE load NAME [slow]	stores a new pair again and again, many at once, until its
 *					input ends; then prints their number. Each must be stored
 *					once.
 *	kv-parts TABLE count		adds 1 to the numbers of COUNTERS keys again and again, many
 *					at once, until its input ends; then prints how often
 *	kv-parts TABLE sum		prints the sum of these numbers
 *	kv-parts TABLE ask		for each KEY in a line of input, stores it and prints 0 or
 *					the error. +KEY: adds 1 to its number, which is 0 at first;
 *					?KEY: prints the number. !all uses all descriptors
 *					of the process, !none no more than needed, and they
 *					print their number, as ! does
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "must.h"
#include "roost/kv.h"

#define DEPTH	    64u
#define COUNTERS    48u
#define DESCRIPTORS 200u     /* of a process in which they are scarce */
#define LIMIT_MS    120000   /* a machine may be slow */
#define NAP_NS	    10000000 /* leaves the processor to the nodes and to the command */
#define SLOW_NS	    20000000

static struct roost_kv *kv;

static struct store {
	struct roost_kv_op op;
	char key[64];
} stores[DEPTH];
static const char *name;
static unsigned long begun, done;
static int ended, slow;

static uint32_t counter_key(char key[64], unsigned long i)
{
	return (uint32_t)snprintf(key, 64, "counter-%lu", i % COUNTERS);
}

static void begin(struct store *s)
{
	static const uint64_t one = 1;
	int rc;

	s->op.key = s->key;
	s->op.context = s;
	if (name) {
		s->op.code = ROOST_KV_PUT_ABSENT;
		s->op.key_len = (uint32_t)snprintf(s->key, sizeof(s->key), "%s-%lu", name, begun++);
	} else {
		s->op.code = ROOST_KV_UPDATE;
		s->op.type = ROOST_KV_U64;
		s->op.function = ROOST_KV_ADD;
		s->op.value = &one;
		s->op.value_len = sizeof(one);
		s->op.key_len = counter_key(s->key, begun++);
	}
	rc = roost_kv_submit(kv, &s->op);
	must(!rc, "submit", rc);
}

static void stored(struct roost_kv_op *op)
{
	must(!op->status, name ? "a pair that is new" : "a number", op->status);
	done++;
	if (!ended)
		begin(op->context);
}

static void load(void)
{
	char byte;
	int rc;

	fcntl(0, F_SETFL, O_NONBLOCK);
	for (unsigned i = 0; i < DEPTH; i++) {
		stores[i].op.complete = stored;
		begin(&stores[i]);
	}
	while (!ended) {
		roost_kv_flush(kv);
		roost_kv_poll(kv);
		nanosleep(&(struct timespec){.tv_nsec = slow ? SLOW_NS : NAP_NS}, NULL);
		ended = read(0, &byte, 1) == 0;
	}
	rc = roost_kv_wait(kv);
	must(!rc && done == begun, "wait", rc);
	printf("%lu\n", done);
}

/* The numbers are 0 at first. */
static void begin_counters(void)
{
	static const uint64_t none = 0;
	char key[64];

	for (unsigned i = 0; i < COUNTERS; i++) {
		struct roost_kv_op op = {.code = ROOST_KV_PUT_ABSENT,
					 .key = key,
					 .key_len = counter_key(key, i),
					 .value = &none,
					 .value_len = sizeof(none)};
		int rc = roost_kv_run(kv, &op, 1);

		must(!rc && (!op.status || op.status == -EEXIST), "a first number",
		     rc ? rc : op.status);
	}
}

static void print_sum(void)
{
	uint64_t sum = 0, value;
	char key[64];
	size_t len;

	for (unsigned i = 0; i < COUNTERS; i++) {
		int rc = roost_kv_get(kv, key, counter_key(key, i), &value, sizeof(value), &len);

		must(!rc && len == sizeof(value), "a number", rc);
		sum += value;
	}
	printf("%lu\n", (unsigned long)sum);
}

/* Adds 1 to a number. Returns 0 or a negative errno. */
static int count_one(const char *key)
{
	static const uint64_t none = 0, one = 1;
	struct roost_kv_op ops[] = {{.code = ROOST_KV_PUT_ABSENT, .value = &none},
				    {.code = ROOST_KV_UPDATE,
				     .type = ROOST_KV_U64,
				     .function = ROOST_KV_ADD,
				     .value = &one}};

	for (unsigned i = 0; i < 2; i++) {
		int rc;

		ops[i].key = key;
		ops[i].key_len = (uint32_t)strlen(key);
		ops[i].value_len = sizeof(none);
		rc = roost_kv_run(kv, &ops[i], 1);
		if (!rc)
			rc = ops[i].status;
		if (rc && (i || rc != -EEXIST))
			return rc;
	}
	return 0;
}

static void print_one(const char *key)
{
	uint64_t value;
	size_t len;
	int rc = roost_kv_get(kv, key, strlen(key), &value, sizeof(value), &len);

	if (rc)
		puts(strerrorname_np(-rc));
	else
		printf("%lu\n", (unsigned long)value);
	fflush(stdout);
}

static int spare[DESCRIPTORS];
static unsigned spares;

/* Opens files until this process has no descriptor left, or closes them. */
static void use_descriptors(int all)
{
	const struct rlimit few = {DESCRIPTORS, DESCRIPTORS};

	must(!setrlimit(RLIMIT_NOFILE, &few), "setrlimit", -errno);
	while (all && (spare[spares] = open("/dev/null", O_RDONLY)) >= 0)
		spares++;
	while (!all && spares)
		close(spare[--spares]);
}

static void print_descriptors(void)
{
	unsigned n = 0;

	for (int i = 0; i < (int)DESCRIPTORS; i++)
		n += fcntl(i, F_GETFD) >= 0;
	printf("%u\n", n);
	fflush(stdout);
}

static void ask(void)
{
	char line[256];

	while (fgets(line, sizeof(line), stdin)) {
		size_t len = strcspn(line, "\n");
		int rc;

		line[len] = '\0';
		if (*line == '?') {
			print_one(line + 1);
			continue;
		}
		if (*line == '!') {
			if (line[1])
				use_descriptors(line[1] == 'a');
			print_descriptors();
			continue;
		}
		rc = *line == '+' ? count_one(line + 1) : roost_kv_put(kv, line, len, "x", 1, 0);
		puts(rc ? strerrorname_np(-rc) : "0");
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	static const struct roost_kv_attr patient = {.timeout_ms = LIMIT_MS};
	char why[300];
	int rc, asks;

	must(argc >= 3, "arguments", -EINVAL);
	asks = !strcmp(argv[2], "ask");
	rc = roost_kv_open_table(argv[1], asks ? NULL : &patient, &kv, why, sizeof(why));
	must(!rc, why, rc);
	name = argc >= 4 ? argv[3] : NULL;
	slow = argc == 5;
	if (asks) {
		ask();
	} else if (!strcmp(argv[2], "sum")) {
		print_sum();
	} else {
		if (!name)
			begin_counters();
		load();
	}
	roost_kv_close(kv);
	return 0;
}
