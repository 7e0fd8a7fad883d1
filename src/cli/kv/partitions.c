/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost kv`: tables of partitions, and the statistics of their nodes. */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "cli/commands.h"
#include "cli/kv/kv.h"

#define WHY 400

/* ---- creating a table ---- */

bool kv_parse_node(const char *text, uint16_t service, struct kv_table_node *n)
{
	bool bracket = *text == '[';
	const char *from = text + bracket, *colon = strchr(from, ':'), *to = NULL;
	unsigned long number = service;
	char *end;

	if (bracket)
		to = strchr(from, ']');
	else if (colon && !strchr(colon + 1, ':'))
		to = colon;
	if (bracket && !to)
		return false;
	if (!to)
		to = from + strlen(from);
	colon = to + bracket;
	if (*colon == ':') {
		number = strtoul(colon + 1, &end, 10);
		if (end == colon + 1 || *end)
			return false;
	} else if (*colon) {
		return false;
	}
	if (to == from || (size_t)(to - from) >= sizeof(n->address) || !number || number > 65535)
		return false;
	*n = (struct kv_table_node){.service = (uint16_t)number};
	memcpy(n->address, from, (size_t)(to - from));
	return !strpbrk(n->address, " \n");
}

int kv_create_table(const struct opt_command *cmd, const char *file, const char *count,
		    char **nodes, int num_nodes, uint16_t service)
{
	static struct kv_table t;
	unsigned long partitions;
	char why[WHY], *end;

	partitions = strtoul(count, &end, 10);
	if (*end || !partitions || partitions > KV_TABLE_PARTITIONS ||
	    partitions & (partitions - 1))
		return opt_usage(cmd, "'%s': the number of partitions is a power of two, up to %u",
				 count, KV_TABLE_PARTITIONS);
	if (num_nodes > (int)KV_TABLE_NODES)
		return opt_usage(cmd, "a table has at most %u nodes", KV_TABLE_NODES);
	t.version = 1;
	memset(t.from, 0xff, sizeof(t.from));
	t.partitions = (unsigned)partitions;
	t.nodes = (unsigned)num_nodes;
	if (getrandom(&t.seed, sizeof(t.seed), 0) != (ssize_t)sizeof(t.seed))
		return opt_failed(cmd, "can't get random bytes: %s", strerror(errno));
	for (unsigned i = 0; i < t.nodes; i++) {
		struct kv_table_node *n = &t.node[i];

		if (!kv_parse_node(nodes[i], service, n))
			return opt_usage(cmd, "'%s' is no ADDRESS or ADDRESS:SERVICE", nodes[i]);
		if (kv_table_find(&t, n->address, n->service) != (int)i)
			return opt_usage(cmd, "'%s' is twice in the list", nodes[i]);
	}
	for (unsigned i = 0; i < t.partitions; i++)
		t.owner[i] = (uint16_t)(i * t.nodes / t.partitions);
	if (kv_table_create(&t, file, why, sizeof(why)))
		return opt_failed(cmd, "%s", why);
	return CLI_OK;
}

int kv_show_table(const struct opt_command *cmd, const char *file)
{
	static struct kv_table t;
	static char text[KV_TABLE_TEXT];
	unsigned lease_s[KV_TABLE_NODES];
	char why[WHY];

	if (kv_table_read(&t, file, why, sizeof(why)))
		return opt_failed(cmd, "%s", why);
	kv_table_format(&t, text, sizeof(text));
	fputs(text, stdout);
	if (!kv_table_is_remote(file))
		return CLI_OK;
	if (kv_table_remote->look_up(&t, file, lease_s, why, sizeof(why)))
		return opt_failed(cmd, "%s", why);
	for (unsigned i = 0; i < t.nodes; i++) {
		if (!lease_s[i])
			printf("lost node      %s, service %u\n", t.node[i].address,
			       t.node[i].service);
	}
	return CLI_OK;
}

/* ---- the nodes of a table ---- */

int kv_view_open(const struct opt_command *cmd, struct kv_view *v, const char *file,
		 const struct roost_kv_attr *attr)
{
	char why[WHY];

	if (kv_table_read(&v->table, file, why, sizeof(why)))
		return opt_failed(cmd, "%s", why);
	v->nodes = v->table.nodes;
	v->partitions = v->table.partitions;
	for (unsigned i = 0; i < v->nodes; i++) {
		const struct kv_table_node *n = &v->table.node[i];

		if (roost_kv_open(n->address, n->service, attr, &v->kv[i]))
			v->kv[i] = NULL;
	}
	return CLI_OK;
}

void kv_view_close(struct kv_view *v)
{
	for (unsigned i = 0; i < v->nodes; i++) {
		if (v->kv[i])
			roost_kv_close(v->kv[i]);
		v->kv[i] = NULL;
	}
}

static int run(struct roost_kv *kv, struct roost_kv_op *op)
{
	int rc = roost_kv_run(kv, op, 1);

	return rc ? rc : op->status;
}

static int read_partitions(struct kv_view *v, struct roost_kv *kv)
{
	static uint64_t numbers[1 + KV_TABLE_PARTITIONS];
	struct roost_kv_op op = {
		.code = ROOST_KV_PARTITIONS, .out = numbers, .out_cap = sizeof(numbers)};
	int rc = run(kv, &op);

	if (rc)
		return rc;
	/* The version, and a number for each partition: a node may send anything. */
	if (op.out_len < 8 || op.out_len % 8 || op.out_len > sizeof(numbers))
		return -EBADMSG;
	if (!v->partitions)
		v->partitions = (unsigned)(op.out_len / 8 - 1);
	for (unsigned i = 0; i < v->partitions && (i + 2) * 8 <= op.out_len; i++) {
		uint64_t n = le64toh(numbers[1 + i]);

		if (n != ROOST_KV_NOT_OWNED)
			v->operations[i] = n;
	}
	return 0;
}

static int read_node(struct kv_view *v, struct roost_kv *kv, struct roost_kv_stat *sum)
{
	struct roost_kv_stat s = {0};
	struct roost_kv_op op = {.code = ROOST_KV_STAT, .out = &s, .out_cap = sizeof(s)};
	uint64_t version = sum->table_version, *to = (uint64_t *)sum, *from = (uint64_t *)&s;
	int rc = run(kv, &op);

	for (size_t i = 0; !rc && i < sizeof(s) / sizeof(*to); i++)
		to[i] += le64toh(from[i]);
	if (rc || !s.table_version)
		return rc;
	sum->table_version = le64toh(s.table_version);
	if (sum->table_version < version)
		sum->table_version = version;
	return read_partitions(v, kv);
}

int kv_view_read(struct kv_view *v, struct roost_kv_stat *sum)
{
	static const uint64_t none[KV_TABLE_PARTITIONS];

	*sum = (struct roost_kv_stat){0};
	for (unsigned i = 0; i < v->nodes; i++) {
		int rc = v->kv[i] ? read_node(v, v->kv[i], sum) : 0;

		if (rc && !v->table.partitions)
			return rc;
		if (rc) {
			roost_kv_close(v->kv[i]);
			v->kv[i] = NULL;
		}
	}
	sum->hottest = kv_view_hottest(v, none, &sum->hottest_operations);
	return 0;
}

unsigned kv_view_hottest(const struct kv_view *v, const uint64_t *before, uint64_t *most)
{
	unsigned hottest = 0;

	*most = 0;
	for (unsigned i = 0; i < v->partitions; i++) {
		/* If another node owns the partition now, that node counts from 0. */
		uint64_t n = v->operations[i] < before[i] ? 0 : v->operations[i] - before[i];

		if (n > *most) {
			*most = n;
			hottest = i;
		}
	}
	return hottest;
}

unsigned kv_view_lost(const struct kv_view *v)
{
	unsigned lost = 0;

	for (unsigned i = 0; i < v->table.partitions; i++)
		lost += v->table.owner[i] == KV_TABLE_NOBODY || !v->kv[v->table.owner[i]];
	return lost;
}
