/* SPDX-License-Identifier: BSD-2-Clause */
/* Internals of a hull. hull.c has the parent's part, hull_child.c the child's. */
#ifndef ROOST_VERBS_HULL_INT_H
#define ROOST_VERBS_HULL_INT_H

#include <stdatomic.h>
#include <sys/types.h>

#include "roost/hull.h"

/*
 * ROOST_HULL tells an executed child the descriptors that it inherits: that of the channel, and
 * that of each memory. The format is "CHANNEL;NAME,FD,ADDRESS,LENGTH;...", with hexadecimal
 * numbers.
 */
#define HULL_ENV     "ROOST_HULL"
#define HULL_ENV_MAX 2048

struct hull_memory {
	char name[ROOST_HULL_NAME_MAX + 1];
	int fd;
	void *addr;
	size_t len;
};

struct roost_hull {
	bool child;  /* this process is the child */
	int channel; /* this process's end of the channel; -1: none */
	int stop[2]; /* parent: a pipe that makes roost_hull() return */
	unsigned num;
	struct hull_memory memory[ROOST_HULL_MEMORIES];
	uint8_t *request, *reply; /* parent: ROOST_HULL_MESSAGE_MAX bytes each */
};

/* The header of a message of the hull to the child. The reply follows it. */
struct hull_answer {
	int64_t result;
};

bool hull_name_ok(const char *name);
/* Returns the memory with this name, or NULL. */
struct hull_memory *hull_find(struct roost_hull *h, const char *name);

#endif
