/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A kernel in the place of the store, for the tests of commands: its statistics name a table, and
 * its reply to PARTITIONS is shorter than a version.
 */
#include <roost/kernel.h>
#include <roost/kv.h>

#define CODE 0x1f /* bits of the first byte of an operation (docs/kv-wire.md) */
#define DATA 0x10 /* a result with data */

static enum roost_next run(struct roost_call *c)
{
	static const struct roost_kv_stat stat = {.table_version = 1};
	const uint8_t *operation = (const uint8_t *)c->params + 4;
	uint8_t *r = c->scratch;
	unsigned n = 0, len = (*operation & CODE) == ROOST_KV_STAT ? sizeof(stat) : 4;

	/* the head of the reply: version 2, no flags, one result */
	r[n++] = 2;
	r[n++] = 0;
	r[n++] = 1;
	r[n++] = 0;
	r[n++] = DATA;
	if (len > 127) {
		r[n++] = (uint8_t)(len | 0x80);
		r[n++] = (uint8_t)(len >> 7);
	} else {
		r[n++] = (uint8_t)len;
	}
	__builtin_memcpy(r + n, &stat, len);
	ROOST_REPLY(c, r, n + len);
}

static const struct roost_kernel kernel = {
	.abi = ROOST_KERNEL_ABI,
	.version = 1,
	.name = "kv",
	.op = ROOST_KV_OP,
	.scratch_size = 4096,
	.params = run,
};
ROOST_KERNEL_EXPORT(kernel);
