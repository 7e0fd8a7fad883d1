/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client of a node's key-value store (roost node --kv 64M): stores pairs and reads them back,
 * with many operations in flight.
 *
 *	cc -o kv kv.c $(pkg-config --cflags --libs roost)
 *	./kv ADDRESS-OF-THE-NODE
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <roost/kv.h>
#include <roost/node.h>

#define PAIRS 1000

static struct pair {
	struct roost_kv_op op;
	char key[16], value[32], out[32];
} pairs[PAIRS];

static void must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(-rc));
	exit(1);
}

int main(int argc, char **argv)
{
	struct roost_kv *kv;
	unsigned right = 0;

	must(argc == 2 ? 0 : -22, "usage: kv ADDRESS");
	must(roost_kv_open(argv[1], ROOST_NODE_SERVICE, NULL, &kv), argv[1]);
	for (unsigned i = 0; i < PAIRS; i++) {
		struct pair *p = &pairs[i];

		snprintf(p->key, sizeof(p->key), "key %u", i);
		snprintf(p->value, sizeof(p->value), "value of %u", i);
		p->op.code = ROOST_KV_PUT;
		p->op.key = p->key;
		p->op.key_len = (uint32_t)strlen(p->key);
		p->op.value = p->value;
		p->op.value_len = (uint32_t)strlen(p->value);
		must(roost_kv_submit(kv, &p->op), "a PUT");
	}
	must(roost_kv_wait(kv), "the PUTs");
	for (unsigned i = 0; i < PAIRS; i++) {
		struct pair *p = &pairs[i];

		p->op.code = ROOST_KV_GET;
		p->op.out = p->out;
		p->op.out_cap = sizeof(p->out);
		must(roost_kv_submit(kv, &p->op), "a GET");
	}
	must(roost_kv_wait(kv), "the GETs");
	for (unsigned i = 0; i < PAIRS; i++)
		right += !pairs[i].op.status && !strncmp(pairs[i].out, pairs[i].value, 32);
	printf("%u of %u values are right\n", right, PAIRS);
	roost_kv_close(kv);
	return right != PAIRS;
}
