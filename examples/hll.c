/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `hll`: counts the distinct items of a stream. The items are payload of a call and are
 * not stored in the node's memory.
 */
#include "example.h"

#include <roost/hll.h>

#define ITEMS	  200000
#define DIFFERENT 50000
#define SKETCH	  42 /* its name */
#define PRECISION 14 /* 16,384 registers: an error of 0.8% */

static uint64_t items[ITEMS];

static unsigned ask(uint32_t what, uint32_t precision, struct roost_hll_info *info)
{
	struct roost_hll_params p = roost_hll_params(SKETCH, what, precision);

	return call(ROOST_HLL_OP, &p, sizeof(p), info, info ? sizeof(*info) : 0, NULL);
}

int main(int argc, char **argv)
{
	struct roost_hll_params add = roost_hll_params(SKETCH, ROOST_HLL_ADD, PRECISION);
	struct roost_hll_info info;

	connect_to_node(argc, argv, 4096);
	ask(ROOST_HLL_DROP, 0, NULL); /* a sketch of a previous run, if there is one */
	for (unsigned i = 0; i < ITEMS; i++)
		items[i] = i * 7919ull % DIFFERENT;
	must(call_with(ROOST_HLL_OP, &add, sizeof(add), items, sizeof(items), NULL, 0, NULL) ==
		     ROOST_RPC_OK,
	     "adding items");
	must(ask(ROOST_HLL_ESTIMATE, 0, &info) == ROOST_RPC_OK, "an estimate");
	printf("%" PRIu64 " items, %" PRIu64 " of them different; %d really are\n", info.items,
	       info.estimate, DIFFERENT);
	must(ask(ROOST_HLL_DROP, 0, NULL) == ROOST_RPC_OK, "ending the sketch");
	leave_node();
	return 0;
}
