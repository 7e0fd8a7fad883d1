/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client of the nodes of a table of partitions. test_kv_parts.py runs it.
 *
 *	kv-parts TABLE load NAME	stores a new pair again and again, many at once, until its input
 *					ends; then prints their number. Each must be stored once.
 *	kv-parts TABLE ask		for each KEY in a line of input, stores it and prints 0 or the
 *					error
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "roost/kv.h"

#define DEPTH 64u

static struct roost_kv *kv;

static void must(int ok, const char *what, int rc)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(-rc));
	exit(1);
}

static struct store {
	struct roost_kv_op op;
	char key[64];
} stores[DEPTH];
static const char *name;
static unsigned long begun, done;
static int ended;

static void begin(struct store *s)
{
	int rc;

	s->op.code = ROOST_KV_PUT_ABSENT;
	s->op.key = s->key;
	s->op.key_len = (uint32_t)snprintf(s->key, sizeof(s->key), "%s-%lu", name, begun++);
	s->op.context = s;
	rc = roost_kv_submit(kv, &s->op);
	must(!rc, "submit", rc);
}

static void stored(struct roost_kv_op *op)
{
	must(!op->status, "a pair that is new", op->status);
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
		ended = read(0, &byte, 1) == 0;
	}
	rc = roost_kv_wait(kv);
	must(!rc && done == begun, "wait", rc);
	printf("%lu\n", done);
}

static void ask(void)
{
	char line[256];

	while (fgets(line, sizeof(line), stdin)) {
		size_t len = strcspn(line, "\n");
		int rc = roost_kv_put(kv, line, len, "x", 1, 0);

		puts(rc ? strerrorname_np(-rc) : "0");
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	char why[300];
	int rc;

	must(argc >= 3, "arguments", -EINVAL);
	rc = roost_kv_open_table(argv[1], NULL, &kv, why, sizeof(why));
	must(!rc, why, rc);
	if (argc == 4) {
		name = argv[3];
		load();
	} else {
		ask();
	}
	roost_kv_close(kv);
	return 0;
}
