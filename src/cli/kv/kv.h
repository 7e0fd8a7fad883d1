/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost kv`: declarations that its files share. */
#ifndef ROOST_CLI_KV_H
#define ROOST_CLI_KV_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/options.h"
#include "cli/watch.h"
#include "roost/kv.h"

/* Options of `roost kv bench`. */
struct kv_bench {
	uint64_t keys, value, put_percent, batch, depth;
	uint64_t duration_ns;
	double zipf; /* skew; 0: uniform */
	bool json;
};

/* Runs the measurement on a connection with these batches and prints it. Returns an exit status. */
int kv_bench_run(const struct opt_command *cmd, struct roost_kv *kv, const struct kv_bench *b);

/* Reads the statistics of the store. Returns 0 or a negative errno. */
int kv_read_stat(struct roost_kv *kv, struct roost_kv_stat *s);

/* Shows rates of the store until it is interrupted. Returns an exit status. */
int kv_top(const struct opt_command *cmd, struct roost_kv *kv, const struct watch *w, bool json);

/*
 * Asks the node with this process id, address or name, on this machine, for a snapshot, and waits
 * for its end. Returns an exit status.
 */
int kv_snapshot(const struct opt_command *cmd, const char *node);

/* Returns the name of an error of the store, for a user. */
const char *kv_error(int err);

#endif
