/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel `aggregate`: computes "select country, count(*), sum(amount) where amount > 900 group
 * by country" over a stream of records.
 */
#include "example.h"

#include <stddef.h>

#include <roost/aggregate.h>

#define RECORDS	  100000
#define COUNTRIES 4

struct record {
	uint32_t id;
	uint16_t country;
	uint16_t unused;
	uint32_t amount;
};

static struct record records[RECORDS];

int main(int argc, char **argv)
{
	struct roost_aggregate_params p = roost_aggregate_params(sizeof(struct record));
	struct roost_aggregate_field amount =
		roost_aggregate_field(offsetof(struct record, amount), sizeof(records->amount), 0);
	struct {
		struct roost_aggregate_group group[COUNTRIES];
		struct roost_aggregate_result result;
	} reply;
	uint32_t len;

	connect_to_node(argc, argv, sizeof(reply));
	for (uint32_t i = 0; i < RECORDS; i++)
		records[i] =
			(struct record){.id = i, .country = i % COUNTRIES, .amount = i * 31 % 1009};
	roost_aggregate_where(&p, amount, ROOST_AGGREGATE_GREATER_THAN, 900);
	p.value = amount;
	roost_aggregate_group_by(&p,
				 roost_aggregate_field(offsetof(struct record, country),
						       sizeof(records->country), 0),
				 COUNTRIES);
	must(call_with(ROOST_AGGREGATE_OP, &p, sizeof(p), records, sizeof(records), &reply,
		       sizeof(reply), &len) == ROOST_RPC_OK &&
		     len == sizeof(reply),
	     "the query");
	for (unsigned i = 0; i < reply.result.groups; i++)
		printf("country %" PRIu64 ": %" PRIu64 " records, sum %" PRIu64 "\n",
		       reply.group[i].key, reply.group[i].count, reply.group[i].sum);
	printf("%" PRIu64 " of %" PRIu64 " records match\n", reply.result.matched,
	       reply.result.records);
	leave_node();
	return 0;
}
