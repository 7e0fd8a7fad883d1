/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"

uint64_t rng_entropy(void)
{
	uint64_t v;
	ssize_t n;

	do
		n = getrandom(&v, sizeof(v), 0);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(v)) {
		/* There is no fallback: keys made from clock and pid would be predictable. */
		log_error(
			"the kernel gives no random numbers (getrandom: %s): allow this system call in the sandbox",
			strerror(errno));
		abort();
	}
	return v;
}
