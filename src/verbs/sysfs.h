/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Content of the files of /sys/class/infiniband that differs between processes, for the preload of
 * `roost run`.
 */
#ifndef ROOST_VERBS_SYSFS_H
#define ROOST_VERBS_SYSFS_H

#include <stddef.h>

#include "base/export.h"

enum roost_sysfs {
	ROOST_SYSFS_OTHER, /* use the view's own file */
	ROOST_SYSFS_TEXT,  /* the file's content */
	ROOST_SYSFS_PATH,  /* the path to use instead */
};

/*
 * Answers for the file at `path`, which is absolute, and writes a string of at most n bytes into
 * out. Returns enum roost_sysfs, or -EINVAL where the Linux kernel's file fails with EINVAL: the
 * type of a GID that does not exist. If this process has opened the NIC, the answer describes it;
 * otherwise it describes the NIC that the first process of the machine would get for ROOST_PORT.
 * Any thread, except one that holds the list of contexts.
 */
ROOST_EXPORT int roost_sysfs(const char *path, char *out, size_t n);

#endif
