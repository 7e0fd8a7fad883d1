/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `consistency`: reads an object with a CRC-64. The kernel returns the object only if it
 * is consistent, never if it is half written.
 */
#include "example.h"

#include <roost/consistency.h>

#define DATA 1000

struct object {
	char data[DATA];
	uint64_t crc;
};

static void read_it(const char *what)
{
	struct roost_consistency_params p = roost_consistency_params(
		space_at(0), sizeof(struct object), 8, ROOST_CONSISTENCY_CRC);
	char data[DATA];
	uint32_t len;
	unsigned status = call(ROOST_CONSISTENCY_OP, &p, sizeof(p), data, DATA, &len);

	must(status == ROOST_RPC_OK || status == ROOST_RPC_BOUND, "a consistent read");
	if (status == ROOST_RPC_OK)
		printf("%s: %u bytes: %s\n", what, len, data);
	else
		printf("%s: torn, each of 8 times\n", what);
}

int main(int argc, char **argv)
{
	static struct object o;

	connect_to_node(argc, argv, DATA);
	strcpy(o.data, "the first state");
	o.crc = roost_consistency_crc(o.data, DATA);
	put(space_at(0), &o, sizeof(o));
	read_it("written");

	/* A writer stopped halfway: the data are new, the CRC is that of the old data. */
	strcpy(o.data, "the second state");
	put(space_at(0), &o, DATA);
	read_it("half written");

	o.crc = roost_consistency_crc(o.data, DATA);
	put(space_at(DATA), &o.crc, sizeof(o.crc));
	read_it("written again");
	leave_node();
	return 0;
}
