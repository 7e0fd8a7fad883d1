/* SPDX-License-Identifier: BSD-2-Clause */
/* A kernel in the place of the store, as a node of another version: it refuses each batch. */
#include <roost/kernel.h>
#include <roost/kv.h>

static enum roost_next run(struct roost_call *c)
{
	ROOST_FAIL(c, ROOST_RPC_BAD_PARAMS);
}

static const struct roost_kernel kernel = {
	.abi = ROOST_KERNEL_ABI,
	.version = 1,
	.name = "kv",
	.op = ROOST_KV_OP,
	.params = run,
};
ROOST_KERNEL_EXPORT(kernel);
