/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes the parser of tables of partitions. A table that was read is written and read again: it is
 * the same. A text that was refused has one line about the error.
 */
#include <string.h>

#include "input.h"
#include "kvwire/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool equal(const struct kv_table *a, const struct kv_table *b)
{
	if (a->version != b->version || a->seed != b->seed || a->partitions != b->partitions ||
	    a->nodes != b->nodes || memcmp(a->owner, b->owner, sizeof(a->owner)) != 0 ||
	    memcmp(a->from, b->from, sizeof(a->from)) != 0 ||
	    memcmp(a->lost, b->lost, sizeof(a->lost)) != 0)
		return false;
	for (unsigned i = 0; i < a->nodes; i++) {
		if (a->node[i].service != b->node[i].service ||
		    strcmp(a->node[i].address, b->node[i].address) != 0)
			return false;
	}
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct kv_table t, again;
	static char text[KV_TABLE_TEXT];
	char why[200] = "";
	size_t len;

	if (kv_table_parse(&t, (const char *)data, size, why, sizeof(why))) {
		must(*why && !strchr(why, '\n'), "an error is not one line");
		return 0;
	}
	len = kv_table_format(&t, text, sizeof(text));
	must(len < sizeof(text), "a table is longer than its file may be");
	must(!kv_table_parse(&again, text, len, why, sizeof(why)), "written, and not read");
	must(equal(&t, &again), "another table");
	for (unsigned i = 0; i < t.partitions; i++)
		must((t.owner[i] == KV_TABLE_NOBODY || t.owner[i] < t.nodes) &&
			     (t.from[i] == KV_TABLE_NOBODY || t.from[i] < t.nodes),
		     "an index of no node");
	must(kv_table_partition(t.seed, t.partitions, data, size) < t.partitions, "a partition");
	return 0;
}
