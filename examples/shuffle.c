/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `shuffle`: partitions tuples for a join. They are sent in any order, and the node
 * stores them partitioned in its memory.
 */
#include "example.h"

#include <roost/shuffle.h>

#define TUPLES	   4096
#define PARTITIONS 8
#define ALIGN	   64

/* The payload begins with the table, so the table need not be in the node's memory. */
static struct {
	struct roost_shuffle_part table[PARTITIONS];
	uint64_t tuples[TUPLES];
} payload;

static uint64_t arrived[TUPLES + PARTITIONS * ALIGN / 8];

int main(int argc, char **argv)
{
	struct roost_shuffle_params p = {
		.partitions = PARTITIONS, .tuple = 8, .how = ROOST_SHUFFLE_RADIX};
	uint64_t counts[PARTITIONS] = {0}, base, bytes;
	struct roost_shuffle_result result;

	connect_to_node(argc, argv, 4096);
	base = space_at(0);
	for (uint64_t i = 0; i < TUPLES; i++)
		payload.tuples[i] = i * i % 1009;
	roost_shuffle_count(counts, &p, payload.tuples, TUPLES);
	bytes = roost_shuffle_layout(payload.table, counts, &p, base, ALIGN);
	must(call_with(ROOST_SHUFFLE_OP, &p, sizeof(p), &payload, sizeof(payload), &result,
		       sizeof(result), NULL) == ROOST_RPC_OK,
	     "a shuffle");
	printf("%" PRIu64 " tuples\n", result.tuples);
	take(arrived, base, bytes);
	for (uint32_t i = 0; i < PARTITIONS; i++) {
		const uint64_t *part = arrived + (payload.table[i].addr - base) / 8;
		uint64_t sum = 0;

		for (uint64_t k = 0; k < counts[i]; k++) {
			must(part[k] % PARTITIONS == i, "a tuple in its partition");
			sum += part[k];
		}
		printf("partition %u: %" PRIu64 " tuples, sum %" PRIu64 "\n", i, counts[i], sum);
	}
	leave_node();
	return 0;
}
