/* SPDX-License-Identifier: BSD-2-Clause */
/* The counters and gauges of the machine with their names, for `roost stat`. */
#include "cm/core.h"

#define MESSAGES(X)                                                                                \
	X(req, REQ)                                                                                \
	X(mra, MRA)                                                                                \
	X(rej, REJ)                                                                                \
	X(rep, REP)                                                                                \
	X(rtu, RTU)                                                                                \
	X(dreq, DREQ)                                                                              \
	X(drep, DREP)                                                                              \
	X(sidr_req, SIDR_REQ)                                                                      \
	X(sidr_rep, SIDR_REP)                                                                      \
	X(lap, LAP)                                                                                \
	X(apr, APR)

const struct cm_stat_info cm_stat_info[CM_STATS] = {
	{"connections", "connections that take space, in any state"},
	{"listeners", "listeners"},
#define MESSAGE(name, text)                                                                        \
	{"sent_" #name, #text "s sent, retries included"},                                         \
		{"retried_" #name, #text "s sent again: no answer"},                               \
		{"received_" #name, #text "s received"},                                           \
		{"duplicate_" #name, #text "s received again"},
	MESSAGES(MESSAGE)
#undef MESSAGE
#define COUNTER(name, help) {#name, help},
		CM_COUNTERS(COUNTER)
#undef COUNTER
};

void cm_stat(const struct cm *cm, uint64_t values[CM_STATS])
{
	const struct cm_counters *c = &cm->counters;
	uint64_t *v = values;

	*v++ = cm->in_use;
	*v++ = cm->listening;
	for (unsigned i = 0; i < CM_ATTRS; i++) {
		*v++ = c->sent[i];
		*v++ = c->retried[i];
		*v++ = c->received[i];
		*v++ = c->duplicates[i];
	}
#define COUNTER(name, help) *v++ = c->name;
	CM_COUNTERS(COUNTER)
#undef COUNTER
}
