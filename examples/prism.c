/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `prism`: replaces a value in one round trip, like a lock-free key-value store. A chain
 * takes a buffer from a free list and writes it, then swaps the pointer to the value if the pointer
 * is unchanged. Readers follow the pointer in one round trip too.
 */
#include "example.h"

#include <stddef.h>

#include <roost/prism.h>

#define BUFFER	64
#define BUFFERS 8

/* In the node's memory. */
struct shared {
	uint64_t pointer;   /* to the value */
	uint64_t allocated; /* ALLOCATE stores its result here for the CAS */
	struct roost_prism_list list;
	uint64_t slots[BUFFERS];
	char buffer[BUFFERS][BUFFER];
};

#define AT(member) space_at(offsetof(struct shared, member))

static uint64_t replace(uint64_t old, const char *value)
{
	uint64_t params[64], was = 0;
	uint8_t reply[256];
	struct roost_prism_chain c = roost_prism_chain(params, sizeof(params));
	struct roost_prism_result r;
	const void *found;
	uint32_t len;

	roost_prism_allocate(&c, ROOST_PRISM_REDIRECT, AT(list), value, (uint32_t)strlen(value) + 1)
		->redirect = AT(allocated);
	roost_prism_cas(&c, ROOST_PRISM_CONDITIONAL | ROOST_PRISM_DATA_INDIRECT, AT(pointer),
			ROOST_PRISM_EQUAL, old, 0)
		->data = AT(allocated);
	must(call(ROOST_PRISM_OP, params, c.len, reply, sizeof(reply), &len) == ROOST_RPC_OK,
	     "a chain");
	found = roost_prism_output(&c, reply, len, 1, &r);
	must(found != NULL, "a CAS");
	memcpy(&was, found, sizeof(was));
	printf("%s: %s\n", value, r.status == ROOST_RPC_OK ? "stored" : "another client was first");
	return was;
}

static uint64_t show(void)
{
	uint64_t params[64], reply[BUFFER / 8 + 4], pointer;
	struct roost_prism_chain c = roost_prism_chain(params, sizeof(params));
	struct roost_prism_result r;
	const void *p, *value;
	uint32_t len;

	roost_prism_read(&c, 0, AT(pointer), 8);
	roost_prism_read(&c, ROOST_PRISM_INDIRECT, AT(pointer), BUFFER);
	must(call(ROOST_PRISM_OP, params, c.len, reply, sizeof(reply), &len) == ROOST_RPC_OK,
	     "a chain");
	p = roost_prism_output(&c, reply, len, 0, &r);
	value = roost_prism_output(&c, reply, len, 1, &r);
	must(p != NULL, "reading the pointer");
	memcpy(&pointer, p, sizeof(pointer));
	printf("the value is: %s\n", value ? (const char *)value : "none yet");
	return pointer;
}

int main(int argc, char **argv)
{
	static struct shared s;
	uint64_t pointer;

	connect_to_node(argc, argv, 256);
	roost_prism_list_init(&s.list, BUFFERS, BUFFER);
	for (unsigned i = 0; i < BUFFERS; i++)
		roost_prism_list_give(&s.list, AT(buffer[i]));
	put(space_at(0), &s, sizeof(s));
	pointer = show();
	replace(pointer, "one");
	replace(pointer, "two"); /* fails: the pointer is not current any more */
	pointer = show();
	replace(pointer, "three");
	show();
	leave_node();
	return 0;
}
