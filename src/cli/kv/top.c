/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost kv top`: the rates of a store, again and again. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "cli/commands.h"
#include "cli/kv/kv.h"
#include "cli/term.h"

struct top {
	const struct opt_command *cmd;
	struct kv_view *view;
	struct roost_kv_stat before;
	uint64_t operations_before[KV_TABLE_PARTITIONS];
	bool json;
};

/* Returns a rate per second. The sum of a counter over all nodes decreases when a node is lost. */
static double rate(uint64_t now, uint64_t before, double since)
{
	return since > 0 && now > before ? (double)(now - before) / since : 0;
}

static void print_json(const struct roost_kv_stat *s, const struct top *t, double since)
{
	json_t *o =
		json_pack("{s:s,s:I,s:I,s:I,s:I,s:f,s:f,s:f,s:f}", "tool", "kv top", "pairs",
			  (json_int_t)s->pairs, "used", (json_int_t)s->used, "limit",
			  (json_int_t)s->limit, "operations", (json_int_t)s->operations,
			  "operations_per_second", rate(s->operations, t->before.operations, since),
			  "batches_per_second", rate(s->batches, t->before.batches, since),
			  "evicted_per_second", rate(s->evicted, t->before.evicted, since),
			  "expired_per_second", rate(s->expired, t->before.expired, since));

	if (t->view->partitions) {
		uint64_t most;
		unsigned hottest = kv_view_hottest(t->view, t->operations_before, &most);

		json_object_set_new(o, "hottest", json_integer(hottest));
		json_object_set_new(o, "hottest_per_second", json_real(rate(most, 0, since)));
		json_object_set_new(o, "lost", json_integer(kv_view_lost(t->view)));
	}
	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
}

static const char *per_second(char buf[40], uint64_t now, uint64_t before, double since)
{
	return since > 0 ? fmt_count(buf, 40, (uint64_t)(rate(now, before, since) + 0.5)) : NULL;
}

static void print_table(const struct roost_kv_stat *s, const struct top *t, double since)
{
	static const char *const head[] = {
		"pairs",     "memory",	  "full",    "operations/s",	 "batches/s", "a batch",
		"evicted/s", "expired/s", "hottest", "its operations/s", "lost"};
	const unsigned columns = t->view->partitions ? 11 : 8;
	const struct roost_kv_stat *b = &t->before;
	char value[11][40];
	const char *cells[11] = {value[0], value[1], value[2]};
	struct table table;

	fmt_count(value[0], sizeof(value[0]), s->pairs);
	fmt_bytes(value[1], sizeof(value[1]), s->used);
	snprintf(value[2], sizeof(value[2]), "%.0f%%",
		 s->limit ? 100 * (double)s->used / (double)s->limit : 0);
	cells[3] = per_second(value[3], s->operations, b->operations, since);
	cells[4] = per_second(value[4], s->batches, b->batches, since);
	if (since > 0 && s->batches > b->batches) {
		snprintf(value[5], sizeof(value[5]), "%.1f",
			 (double)(s->operations - b->operations) /
				 (double)(s->batches - b->batches));
		cells[5] = value[5];
	}
	cells[6] = per_second(value[6], s->evicted, b->evicted, since);
	cells[7] = per_second(value[7], s->expired, b->expired, since);
	if (t->view->partitions) {
		uint64_t most;

		snprintf(value[8], sizeof(value[8]), "%u",
			 kv_view_hottest(t->view, t->operations_before, &most));
		snprintf(value[10], sizeof(value[10]), "%u", kv_view_lost(t->view));
		cells[8] = most ? value[8] : NULL;
		cells[9] = per_second(value[9], most, 0, since);
		cells[10] = value[10];
	}
	table_init(&table, columns);
	table_row(&table, head);
	table_row(&table, cells);
	table_print(&table, stdout, 0);
	table_free(&table);
}

/* Prints the rates once. Sets *end when the node has ended. */
static int look(void *ctx, double since, bool *end)
{
	struct top *t = ctx;
	struct roost_kv_stat s = {0};
	int rc = kv_view_read(t->view, &s);

	*end = rc != 0;
	if (rc)
		return opt_failed(t->cmd, "%s", kv_error(rc));
	if (t->json) {
		print_json(&s, t, since);
	} else {
		watch_page(since);
		print_table(&s, t, since);
	}
	t->before = s;
	memcpy(t->operations_before, t->view->operations, sizeof(t->operations_before));
	return CLI_OK;
}

int kv_top(const struct opt_command *cmd, struct kv_view *v, const struct watch *w, bool json)
{
	struct top t = {.cmd = cmd, .view = v, .json = json};

	return watch_run(w, look, &t);
}
