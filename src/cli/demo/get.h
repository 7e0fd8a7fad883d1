/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The second part of `roost demo`: values are looked up in a hash table in the other process's
 * memory, by READs, as one has to without processing there, and by the kernel `get`. Round trips
 * are counted.
 */
#ifndef ROOST_CLI_DEMO_GET_H
#define ROOST_CLI_DEMO_GET_H

#include "cli/perf/perf.h"

/* The table, in the process that has it. */
struct demo_table {
	struct ibv_mr *mr;
	void *mem;
};

/*
 * Makes it, lets peers call `get`, and tells the peer by members of `link` where it is. 0 or -errno
 * with a line in err.
 */
int demo_table_make(struct demo_table *t, const struct perf_nic *nic, json_t *link, char *err);
void demo_table_free(struct demo_table *t);

struct demo_lookups {
	uint64_t table, rkey; /* of the other process, out of its `link` */
	uint64_t keys;	      /* looked up in each way */
	uint64_t reads, calls;
	double read_us, call_us; /* median of one look-up */
};

/* Takes table and rkey out of `link`. False with oob->err set. */
bool demo_lookups_meet(struct demo_lookups *d, struct oob *oob, const json_t *link);
/*
 * Looks up keys both ways on the link's first QP, which has the op-codes of calls, and compares. 0
 * or -errno with a line in err.
 */
int demo_lookups_run(struct demo_lookups *d, struct perf_link *l, char *err);

#endif
