/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef ROOST_TESTS_RESIDENT_H
#define ROOST_TESTS_RESIDENT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the bytes of a line of proc_pid_status(5), or 0 if the file has no such line. */
static inline uint64_t resident_of(const char *field)
{
	FILE *f = fopen("/proc/self/status", "r");
	unsigned long kib = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, field, strlen(field)))
			kib = strtoul(line + strlen(field), NULL, 10);
	if (f)
		fclose(f);
	return kib * 1024ull;
}

/* All bytes of this process that are in memory. */
static inline uint64_t resident_bytes(void)
{
	return resident_of("VmRSS:");
}

/* Memory that processes share, without the heap: sanitizers and huge pages do not change it. */
static inline uint64_t resident_shared_bytes(void)
{
	return resident_of("RssShmem:");
}

#endif
