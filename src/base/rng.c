/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/log.h"

int rng_try_entropy(uint64_t *v)
{
	ssize_t n;

	do
		n = getrandom(v, sizeof(*v), 0);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(*v) ? 0 : n < 0 ? -errno : -EIO;
}

uint64_t rng_entropy(void)
{
	uint64_t v;

	if (rng_try_entropy(&v)) {
		/* There is no fallback: keys made from clock and pid would be predictable. */
		log_error(RNG_REFUSED);
		abort();
	}
	return v;
}
