/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that an administrator installs with another user's rights: opens the first device. Says
 * first whether the loader saw these rights.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <sys/auxv.h>

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;

	printf("secure=%lu\n", getauxval(AT_SECURE));
	if (ctx)
		ibv_close_device(ctx);
	if (list)
		ibv_free_device_list(list);
	return 0;
}
