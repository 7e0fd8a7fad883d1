/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef ROOST_TESTS_RESIDENT_H
#define ROOST_TESTS_RESIDENT_H

#include <stdint.h>
#include <stdio.h>

/* Returns the bytes of this process that are in memory, or 0 if the file has no such line. */
static inline uint64_t resident_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	unsigned long kib = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f) && sscanf(line, "VmRSS: %lu kB", &kib) != 1)
		;
	if (f)
		fclose(f);
	return kib * 1024ull;
}

#endif
