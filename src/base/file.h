/* SPDX-License-Identifier: BSD-2-Clause */
/* Writing whole files. Any thread. */
#ifndef ROOST_BASE_FILE_H
#define ROOST_BASE_FILE_H

#include <stddef.h>

/* Writes all bytes. Returns 0 or a negative errno. */
int file_write(int fd, const void *bytes, size_t len);

/*
 * Makes the names in the folder of `path` durable, after a file was created or renamed there.
 * Returns 0 or a negative errno.
 */
int file_sync_folder(const char *path);

#endif
