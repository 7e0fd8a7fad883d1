/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The second part of `roost demo`: looks up values in a hash table in the memory of the other
 * process, first by READs, as a client must if the node does no processing, then by the kernel
 * `get`, and then by a chain (demo/offload.h). The demo counts the round trips of all.
 */
#ifndef ROOST_CLI_DEMO_GET_H
#define ROOST_CLI_DEMO_GET_H

#include "cli/perf/perf.h"

/* The table, in the process that owns it. */
struct demo_table {
	struct ibv_mr *mr;
	void *mem;
	struct demo_office *office; /* makes chains */
};

/*
 * Creates the table, lets peers call `get`, and adds the location of the table to `link`, which is
 * sent to the peer. Returns 0, or -errno with a line in err.
 */
int demo_table_make(struct demo_table *t, const struct perf_nic *nic, json_t *link, char *err);
void demo_table_free(struct demo_table *t);

struct demo_lookups {
	uint64_t table, rkey; /* table and key of the other process, from its `link` */
	uint64_t keys;	      /* number of look-ups in each way */
	uint64_t reads, calls, sends;
	double read_us, call_us, chain_us; /* median of one look-up */
};

/* Takes table and rkey from `link`. Returns false with oob->err set on errors. */
bool demo_lookups_set_peer(struct demo_lookups *d, struct oob *oob, const json_t *link);
/*
 * Looks up keys in the three ways and compares the values. The first QP of the link has the
 * op-codes of calls; the chain is obtained by a call and has a QP of its own. Returns 0, or -errno
 * with a line in err.
 */
int demo_lookups_run(struct demo_lookups *d, struct perf_link *l, char *err);

#endif
