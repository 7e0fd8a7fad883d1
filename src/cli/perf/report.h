/* SPDX-License-Identifier: BSD-2-Clause */
/* The output of `roost perf`: text for people, JSON in the format of roost-perf(1). */
#ifndef ROOST_CLI_PERF_REPORT_H
#define ROOST_CLI_PERF_REPORT_H

#include "cli/perf/perf.h"

/*
 * Returns the figures of one size. `lat` is NULL when only bandwidth was measured, `bw` when only
 * latency (or a check) was.
 */
json_t *report_row(const struct perf_job *job, const struct perf_result *bw,
		   const struct perf_result *lat);
/*
 * Print the whole report: `rows` of one size, or many of a sweep. `port`: its kind. report_json()
 * prints one JSON object and a newline, last, and takes the references to rows and machine.
 */
void report_json(const struct perf_job *job, const char *port, json_t *rows, bool sweep,
		 json_t *machine);
void report_text(const struct perf_job *job, const char *port, const json_t *rows, bool sweep);

#endif
