/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost kv`: what nodes contain, all pairs or counts. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/kv/kv.h"
#include "cli/term.h"

void kv_print(const void *bytes, size_t len)
{
	char *text;

	if (!isatty(STDOUT_FILENO)) {
		fwrite(bytes, 1, len, stdout);
		return;
	}
	text = malloc(len + 1);
	if (!text) {
		fputs("roost kv: out of memory\n", stderr);
		return;
	}
	for (size_t i = 0; i < len; i++)
		text[i] = ((const char *)bytes)[i] ? ((const char *)bytes)[i] : '?';
	text[len] = '\0';
	for (char *at = text, end = '\n'; end; at += strlen(at) + 1) {
		char *stop = at + strcspn(at, "\n\t");

		end = *stop;
		*stop = '\0';
		fputs(plain_text(at), stdout);
		if (end)
			putchar(end);
	}
	free(text);
}

/* Prints all pairs of a node. Returns 0 or a negative errno value. */
static int scan(struct roost_kv *kv, bool keys_only)
{
	uint32_t cap = 2 * ROOST_KV_VALUE_MAX;
	struct roost_kv_op op = {.code = ROOST_KV_SCAN,
				 .function = keys_only ? ROOST_KV_SCAN_KEYS : 0,
				 .out = malloc(cap),
				 .out_cap = cap};
	struct roost_kv_pair p;
	int rc = op.out ? 0 : -ENOMEM;

	while (!rc) {
		uint32_t at = 0;

		rc = roost_kv_run(kv, &op, 1);
		if (!rc)
			rc = op.status;
		if (rc)
			break;
		while (roost_kv_next_pair(&op, &at, &p, &op.cursor)) {
			kv_print(p.key, p.key_len);
			if (!keys_only) {
				putchar('\t');
				kv_print(p.value, p.value_len);
			}
			putchar('\n');
		}
		if (!op.cursor)
			break;
	}
	free(op.out);
	return rc;
}

/* Prints which nodes of the table do not answer, and their partitions. */
static void print_lost(const struct kv_view *view, bool json, json_t *o)
{
	json_t *nodes = json_array();

	for (unsigned i = 0; i < view->nodes; i++) {
		const struct kv_table_node *n = &view->table.node[i];

		if (view->kv[i])
			continue;
		json_array_append_new(nodes, json_pack("{s:s,s:i}", "address", n->address,
						       "service", n->service));
		if (!json)
			printf("lost node      %s, service %u\n", n->address, n->service);
	}
	json_object_set_new(o, "lost_nodes", nodes);
	json_object_set_new(o, "lost", json_integer(kv_view_lost(view)));
	if (!json)
		printf("%-14s %u\n", "lost", kv_view_lost(view));
}

int kv_show_stat(const struct opt_command *cmd, struct kv_view *view, bool json)
{
	struct roost_kv_stat s = {0};
	const struct {
		const char *name;
		uint64_t *value;
	} rows[] = {{"pairs", &s.pairs},
		    {"inline_pairs", &s.inline_pairs},
		    {"buckets", &s.buckets},
		    {"chained", &s.chained},
		    {"slots", &s.slots},
		    {"used", &s.used},
		    {"limit", &s.limit},
		    {"evicted", &s.evicted},
		    {"expired", &s.expired},
		    {"operations", &s.operations},
		    {"batches", &s.batches},
		    {"accesses", &s.accesses},
		    {"far_reads", &s.far_reads},
		    {"far_writes", &s.far_writes},
		    {"parked", &s.parked},
		    {"forwarded", &s.forwarded},
		    {"merged", &s.merged},
		    {"near_hits", &s.near_hits},
		    {"far_errors", &s.far_errors},
		    /* only of nodes with partitions */
		    {"table_version", &s.table_version},
		    {"partitions", &s.partitions},
		    {"hottest", &s.hottest},
		    {"hottest_ops", &s.hottest_operations}};
	size_t n = ARRAY_SIZE(rows);
	json_t *o;
	int rc = kv_view_read(view, &s);

	if (rc)
		return opt_failed(cmd, "%s", kv_error(rc));
	o = json_object();
	if (!s.table_version)
		n -= 4;
	for (size_t i = 0; i < n; i++) {
		json_object_set_new(o, rows[i].name, json_integer((json_int_t)*rows[i].value));
		if (!json)
			printf("%-14s %" PRIu64 "\n", rows[i].name, *rows[i].value);
	}
	if (view->table.partitions)
		print_lost(view, json, o);
	if (json) {
		json_dumpf(o, stdout, JSON_COMPACT);
		putchar('\n');
	}
	json_decref(o);
	return CLI_OK;
}

int kv_show_pairs(const struct opt_command *cmd, struct kv_view *view, bool keys_only)
{
	int status = CLI_OK;

	for (unsigned i = 0; i < view->nodes; i++) {
		int rc = view->kv[i] ? scan(view->kv[i], keys_only) : 0;

		if (rc)
			status = opt_failed(
				cmd, "%s",
				rc == -EREMCHG ? "a node has no lease in etcd, and serves nothing"
					       : kv_error(rc));
	}
	if (!status && kv_view_lost(view))
		status = opt_failed(cmd, "%u partitions are lost", kv_view_lost(view));
	return status;
}
