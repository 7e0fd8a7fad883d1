/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost kv tune`: the index ratio and the inline threshold for sizes and a utilization. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/kv/kv.h"
#include "kv/tune.h"

/* Reads SIZE or SIZE:WEIGHT, separated by commas. Returns false if the text is no such list. */
static bool read_sizes(const char *text, struct kv_tune_size *sizes, unsigned *n)
{
	const char *at = text;

	for (*n = 0; *n < KV_TUNE_SIZES; at++) {
		uint64_t bytes;

		if (!opt_read_bytes(at, &bytes, &at) || !bytes || bytes > KV_TUNE_SIZE_MAX)
			return false;
		sizes[*n].bytes = (uint32_t)bytes;
		sizes[*n].weight = 1;
		if (*at == ':') {
			char *end;

			sizes[*n].weight = strtod(at + 1, &end);
			if (end == at + 1)
				return false;
			at = end;
		}
		++*n;
		if (*at != ',')
			return !*at;
	}
	return false;
}

static void print(const struct kv_tuned *t, bool json)
{
	if (json) {
		printf("{\"inline_max\":%u,\"index_ratio\":%.4f,\"buckets\":%" PRIu64
		       ",\"size\":%" PRIu64 ",\"pairs\":%" PRIu64 ",\"get\":%.3f,\"put\":%.3f}\n",
		       t->inline_max, t->index_ratio, t->buckets, t->size, t->pairs, t->get,
		       t->put);
		return;
	}
	printf("%-14s %u\n%-14s %.4f\n%-14s %" PRIu64 "\n%-14s %" PRIu64 "\n%-14s %" PRIu64
	       "\n%-14s %.3f accesses\n%-14s %.3f accesses\n",
	       "inline_max", t->inline_max, "index_ratio", t->index_ratio, "buckets", t->buckets,
	       "size", t->size, "pairs", t->pairs, "get", t->get, "put", t->put);
	printf("%-14s roost node --kv %" PRIu64 " --kv-index %" PRIu64 " --kv-inline %u\n",
	       "serve it", t->size, t->buckets, t->inline_max);
}

int kv_tune_command(const struct opt_command *cmd, const char *memory, const char *sizes,
		    double utilization, bool json)
{
	struct kv_tune_size list[KV_TUNE_SIZES];
	struct kv_workload w = {.sizes = list, .utilization = utilization};
	struct kv_tuned t;
	const char *end;
	int rc;

	if (!opt_read_bytes(memory, &w.memory, &end) || *end)
		return opt_usage(cmd, "'%s' is no size", memory);
	if (!sizes)
		return opt_usage(cmd, "tune needs --sizes LIST");
	if (!read_sizes(sizes, list, &w.num_sizes))
		return opt_usage(cmd, "'%s' is no list of SIZE:WEIGHT, with sizes of 1 to %u bytes",
				 sizes, KV_TUNE_SIZE_MAX);
	rc = kv_tune(&w, &t);
	if (rc == -EINVAL)
		return opt_usage(cmd, "the memory must be 4 MiB to 64 TiB, and weights positive");
	if (rc == -ENOSPC)
		return opt_failed(cmd, "no setting holds these pairs: lower --utilization");
	if (rc)
		return opt_failed(cmd, "%s", strerror(-rc));
	print(&t, json);
	return CLI_OK;
}
