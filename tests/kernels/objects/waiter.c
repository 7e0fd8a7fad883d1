/* SPDX-License-Identifier: BSD-2-Clause */
/* A kernel whose calls run until the file WAIT_UNTIL exists, or until their bound. */
#include <stdlib.h>
#include <unistd.h>

#include "roost/kernel.h"

static enum roost_next run(struct roost_call *c)
{
	static const uint32_t version = VERSION;

	ROOST_STEPS(c);
	while (access(getenv("WAIT_UNTIL"), F_OK)) {
		usleep(50); /* so that the bound of steps is a minute away */
		ROOST_READ(c, 0, NULL, 0);
	}
	ROOST_REPLY(c, &version, sizeof(version));
	ROOST_STEPS_END;
}

static const struct roost_kernel waiter = {
	.abi = ROOST_KERNEL_ABI,
	.name = "waiter",
	.version = VERSION,
	.op = 0x2000,
	.params = run,
};

ROOST_KERNEL_EXPORT(waiter);
