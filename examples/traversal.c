/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `traversal`: searches a linked list in the node's memory, in one round trip. With
 * READs the last element would take as many round trips as the list has elements, and one more for
 * its value.
 */
#include "example.h"

#include <roost/traversal.h>

#define ELEMENTS 32
#define VALUE	 64

struct element {
	uint64_t key, value, next; /* value and next: addresses in the node's region */
};

/* Element i has the key 100 + i; elements first, then values. */
static uint64_t make_list(void)
{
	static struct element list[ELEMENTS];
	static char values[ELEMENTS][VALUE];
	uint64_t value_at = space_at(sizeof(list));

	for (unsigned i = 0; i < ELEMENTS; i++) {
		list[i].key = 100 + i;
		list[i].value = value_at + i * VALUE;
		list[i].next = i + 1 < ELEMENTS ? space_at((i + 1) * sizeof(list[0])) : 0;
		snprintf(values[i], VALUE, "element %u of %d", i + 1, ELEMENTS);
	}
	put(space_at(0), list, sizeof(list));
	put(value_at, values, sizeof(values));
	return space_at(0);
}

int main(int argc, char **argv)
{
	static const uint64_t keys[] = {100, 131, 132};
	char value[VALUE];
	uint64_t root;

	connect_to_node(argc, argv, VALUE);
	root = make_list();
	for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		/*
		 * Positions in units of 4 bytes: the key at 0, the value's address at 2, the next
		 * element's address at 4.
		 */
		struct roost_traversal_params p =
			roost_traversal_list(root, sizeof(struct element), keys[i], 0, 2, 4, VALUE);
		unsigned status = call(ROOST_TRAVERSAL_OP, &p, sizeof(p), value, VALUE, NULL);

		must(status == ROOST_RPC_OK || status == ROOST_RPC_MISS, "a walk");
		printf("%" PRIu64 ": %s\n", keys[i],
		       status == ROOST_RPC_OK ? value : "not in the list");
	}
	leave_node();
	return 0;
}
