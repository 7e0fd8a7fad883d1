/* SPDX-License-Identifier: BSD-2-Clause */
/* The output of `roost stat`: prints the JSON objects that NICs answer (src/drive/stat.c). */
#ifndef ROOST_CLI_STAT_PRINT_H
#define ROOST_CLI_STAT_PRINT_H

#include <stdbool.h>

#include <jansson.h>

/*
 * Prints one table for each NIC on stdout, with counters that are zero if `all` is set. `before` is
 * an earlier answer, `seconds` old, of the same command; with it, the table also shows the increase
 * per second.
 */
void stat_print_tables(const json_t *nics, const json_t *before, double seconds, bool all);

/*
 * Prints all counters on stdout in the text format of Prometheus (version 0.0.4), with the programs
 * that answered. `silent`: the programs that did not answer.
 */
void stat_print_prometheus(const json_t *nics, const json_t *silent);

#endif
