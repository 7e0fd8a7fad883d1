/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `shuffle-out`, in this process's own NIC: partitions tuples before they are sent. They
 * reach the node in WRITEs of a path MTU each. The table has a queue pair for each partition, so
 * partitions could also go to different nodes.
 */
#include "example.h"

#include <roost/shuffle.h>

#define TUPLES	   4096
#define PARTITIONS 8

static uint64_t tuples[TUPLES], arrived[TUPLES];
static struct roost_shuffle_target table[PARTITIONS];

int main(int argc, char **argv)
{
	struct roost_shuffle_params p = {
		.partitions = PARTITIONS, .tuple = 8, .how = ROOST_SHUFFLE_RADIX};
	struct roost_shuffle_out_params q = roost_shuffle_out_params(table, &p, 1024);
	struct roost_shuffle_out_result result;
	struct roost_invocation_attr a = {.op = ROOST_SHUFFLE_OUT_OP,
					  .params = &q,
					  .params_len = sizeof(q),
					  .reply = &result,
					  .space = sizeof(result)};
	uint64_t counts[PARTITIONS] = {0}, at;
	struct ibv_context *ctx;
	struct roost_result r;
	unsigned number;

	connect_to_node(argc, argv, 64);
	ctx = node->id->verbs;
	for (uint64_t i = 0; i < TUPLES; i++)
		tuples[i] = i * i % 1009;
	roost_shuffle_count(counts, &p, tuples, TUPLES);
	must(roost_kernel_deploy(ctx, roost_kernel_builtin("shuffle-out"), NULL) == 0,
	     "deploying a kernel");
	must(roost_kernel_bind_qp(ctx, ROOST_SHUFFLE_OUT_OP, node->id->qp, NULL, &number) == 0,
	     "binding a queue pair");
	at = space_at(0);
	for (uint32_t i = 0; i < PARTITIONS; at += table[i++].len)
		table[i] = (struct roost_shuffle_target){at, counts[i] * 8, node->hello.rkey,
							 number, 0};
	a.mr = ibv_reg_mr(node->id->qp->pd, table, sizeof(table), IBV_ACCESS_LOCAL_WRITE);
	must(a.mr != NULL, "registering memory");
	must(roost_kernel_run(ctx, &a, tuples, sizeof(tuples), &r) == 0 && r.status == ROOST_RPC_OK,
	     "a shuffle");
	printf("%" PRIu64 " tuples in %u WRITEs\n", result.tuples, result.writes);
	take(arrived, space_at(0), sizeof(arrived));
	at = 0;
	for (uint32_t i = 0; i < PARTITIONS; i++) {
		uint64_t sum = 0;

		must(table[i].tuples == counts[i], "counting");
		for (uint64_t k = 0; k < counts[i]; k++) {
			must(arrived[at] % PARTITIONS == i, "a tuple in its partition");
			sum += arrived[at++];
		}
		printf("partition %u: %" PRIu64 " tuples, sum %" PRIu64 "\n", i, counts[i], sum);
	}
	ibv_dereg_mr(a.mr);
	leave_node();
	return 0;
}
