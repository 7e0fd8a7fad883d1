/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost kv`: declarations that its files share. */
#ifndef ROOST_CLI_KV_H
#define ROOST_CLI_KV_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/options.h"
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

/* Returns the name of an error of the store, for a user. */
const char *kv_error(int err);

#endif
