/* SPDX-License-Identifier: BSD-2-Clause */
/* How `roost stat` shows what NICs answered: JSON objects as src/drive/stat.c makes them. */
#ifndef ROOST_CLI_STAT_PRINT_H
#define ROOST_CLI_STAT_PRINT_H

#include <stdbool.h>

#include <jansson.h>

/*
 * Tables on stdout, one a NIC; counters that are zero too if `all`. With `before`, an earlier
 * answer of the same command, `seconds` ago, also what came since, per second.
 */
void stat_print_tables(const json_t *nics, const json_t *before, double seconds, bool all);

/* All counters on stdout in the text format of Prometheus (version 0.0.4). */
void stat_print_prometheus(const json_t *nics);

#endif
