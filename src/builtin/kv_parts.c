/* SPDX-License-Identifier: BSD-2-Clause */
#include "builtin/kv_parts.h"

void kv_parts_set(struct kv_parts *p, const struct kv_table *t, const char *address,
		  uint16_t service)
{
	int self = kv_table_find(t, address, service);

	p->version = t->version;
	p->seed = t->seed;
	p->partitions = t->partitions;
	for (unsigned i = 0; i < t->partitions; i++) {
		bool moves = t->from[i] != KV_TABLE_NOBODY, ours = (int)t->owner[i] == self;

		p->owned[i] = ours && !moves;
		p->moving_in[i] = ours && moves;
		p->moving_out[i] = moves && (int)t->from[i] == self;
	}
}

unsigned kv_parts_owned(const struct kv_parts *p, unsigned *hottest)
{
	unsigned owned = 0;

	*hottest = 0;
	for (unsigned i = 0; i < p->partitions; i++) {
		owned += kv_parts_serve(p, i);
		if (p->operations[i] > p->operations[*hottest])
			*hottest = i;
	}
	return owned;
}
