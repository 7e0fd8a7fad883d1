/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The look-up of `roost demo` by a chain. The client obtains an offload of its own by a call: the
 * kernel notes the call, a thread of the other process makes the queue pairs, their regions and the
 * chain, and the client repeats the call until it is done. After that no thread of the other
 * process takes part in a look-up, and the client has no key of its memory.
 */
#ifndef ROOST_CLI_DEMO_OFFLOAD_H
#define ROOST_CLI_DEMO_OFFLOAD_H

#include "cli/perf/perf.h"

/* ---- the process that has the table ---- */

struct demo_office;
/*
 * Makes a table of keys 1 to `keys` with the values at `values`, `len` bytes each, and lets peers
 * call for offloads. Returns NULL with a line in err. The NIC outlives it.
 */
struct demo_office *demo_office_open(const struct perf_nic *nic, uint64_t keys,
				     const uint8_t *values, uint32_t len, char *err);
void demo_office_close(struct demo_office *o); /* NULL has no effect */

/* ---- the client ---- */

struct demo_offload;
/*
 * Calls for an offload on a queue pair with the op-codes of calls. Returns NULL with a line in err.
 */
struct demo_offload *demo_offload_open(const struct perf_nic *nic, struct ibv_qp *calls, char *err);
void demo_offload_close(struct demo_offload *f); /* NULL has no effect */
/*
 * Looks a key up. Returns 0 and stores the address of the value, which is valid until the next
 * look-up; or -errno with a line in err, -ENOENT if there is no such key.
 */
int demo_offload_get(struct demo_offload *f, uint64_t key, const uint8_t **value, char *err);

#endif
