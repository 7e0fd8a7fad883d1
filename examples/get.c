/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `get`: reads values of a hash table in the node's memory (roost node --fill 1000).
 * Each takes one round trip.
 */
#include "example.h"

#include <roost/get.h>

static void look_up(uint64_t key)
{
	struct roost_get_params p =
		roost_get_params(node->hello.table, node->hello.entries, key, node->hello.flags);
	char value[256];
	uint32_t len;

	switch (call(ROOST_GET_OP, &p, sizeof(p), value, sizeof(value), &len)) {
	case ROOST_RPC_OK:
		printf("%" PRIu64 " is %.*s\n", key, (int)len, value);
		break;
	case ROOST_RPC_MISS:
		printf("%" PRIu64 " is not there\n", key);
		break;
	default:
		must(0, "a look-up");
	}
}

int main(int argc, char **argv)
{
	connect_to_node(argc, argv, 256);
	must(node->hello.entries != 0, "a node without a table (roost node --fill 1000)");
	look_up(1);
	look_up(17);
	look_up(1000);
	look_up(1001);
	leave_node();
	return 0;
}
