/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the preload of `roost run` asks about files of /sys/class/infiniband whose content depends
 * on the process.
 */
#ifndef ROOST_VERBS_SYSFS_H
#define ROOST_VERBS_SYSFS_H

#include <stddef.h>

#include "base/export.h"

enum roost_sysfs {
	ROOST_SYSFS_OTHER, /* not ours to say: the view's own file */
	ROOST_SYSFS_TEXT,  /* the file's content */
	ROOST_SYSFS_PATH,  /* the path to use instead */
};

/*
 * `path` is absolute. Fills out (n bytes) with a string, or returns -EINVAL for what the kernel's
 * file answers with that: the type of a GID that is not there. Shows the NIC if this process has
 * one open, else what the first process of the machine would get for ROOST_PORT. Any thread, but
 * not while one of ours holds the list of contexts.
 */
ROOST_EXPORT int roost_sysfs(const char *path, char *out, size_t n);

#endif
