/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many clients of one node in a process, each a connection with calls in flight. Prints a JSON
 * object, and closes the connections when standard input ends. test_kv_many.py runs it.
 *
 *	kv-many ADDRESS CLIENTS CALLS ROUNDS NAME
 *
 * Connects CLIENTS clients, or as many as the node accepts. Each stores pairs with CALLS calls in
 * flight before the next one connects. Then all clients have calls in flight at the same time, for
 * ROUNDS rounds, and each result is compared. NAME is a part of the keys.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "roost/kv.h"
#include "roost/node.h"

#define CALLS_MAX 160u
#define VALUE	  24u

struct client {
	struct roost_kv *kv;
	struct roost_kv_op op[CALLS_MAX];
	char key[CALLS_MAX][32], value[CALLS_MAX][VALUE], out[CALLS_MAX][VALUE];
};

static struct client *clients;
static unsigned made, calls;
static unsigned long answered;
static const char *name;

static void must(int ok, const char *what, int rc)
{
	if (ok)
		return;
	fprintf(stderr, "client %u: %s: %s\n", made, what, strerror(rc < 0 ? -rc : rc));
	exit(1);
}

/* Each operation is a batch, and so a call. */
static void begin(unsigned who, unsigned code)
{
	struct client *c = &clients[who];

	for (unsigned i = 0; i < calls; i++) {
		snprintf(c->key[i], sizeof(c->key[i]), "%.8s-%u-%u", name, who, i);
		memset(c->value[i], 0, VALUE);
		snprintf(c->value[i], VALUE, "%u of %u", i, who);
		memset(c->out[i], 0xee, VALUE);
		c->op[i] = (struct roost_kv_op){.code = (uint8_t)code,
						.key = c->key[i],
						.key_len = (uint32_t)strlen(c->key[i]),
						.value = c->value[i],
						.value_len = code == ROOST_KV_PUT ? VALUE : 0,
						.out = c->out[i],
						.out_cap = VALUE};
		must(roost_kv_submit(c->kv, &c->op[i]) == 0, "submit", 0);
		must(roost_kv_flush(c->kv) == 0, "flush", 0);
	}
}

static void end(unsigned who)
{
	struct client *c = &clients[who];
	int rc = roost_kv_wait(c->kv);

	must(rc == 0, "wait", rc);
	for (unsigned i = 0; i < calls; i++) {
		must(c->op[i].done && c->op[i].status == 0, "an operation", c->op[i].status);
		if (c->op[i].code == ROOST_KV_GET)
			must(c->op[i].out_len == VALUE && !memcmp(c->out[i], c->value[i], VALUE),
			     "a value of another key", 0);
		answered++;
	}
}

int main(int argc, char **argv)
{
	struct roost_kv_attr attr = {.ops = 1, .timeout_ms = 60000};
	unsigned want, rounds;
	int rc = 0;

	if (argc != 6)
		return 2;
	want = (unsigned)atoi(argv[2]);
	calls = (unsigned)atoi(argv[3]);
	rounds = (unsigned)atoi(argv[4]);
	name = argv[5];
	if (!calls || calls > CALLS_MAX)
		return 2;
	attr.batches = calls;
	clients = calloc(want, sizeof(*clients));
	must(clients != NULL, "memory", 0);
	while (made < want) {
		rc = roost_kv_open(argv[1], ROOST_NODE_SERVICE, &attr, &clients[made].kv);
		if (rc)
			break;
		begin(made, ROOST_KV_PUT);
		end(made++);
	}
	while (rounds--) {
		for (unsigned i = 0; i < made; i++)
			begin(i, ROOST_KV_GET);
		for (unsigned i = 0; i < made; i++)
			end(i);
	}
	printf("{\"clients\": %u, \"error\": %d, \"answered\": %lu}\n", made, -rc, answered);
	fflush(stdout);
	while (getchar() != EOF)
		;
	for (unsigned i = 0; i < made; i++)
		roost_kv_close(clients[i].kv);
	free(clients);
	return 0;
}
