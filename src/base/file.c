/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"

int file_write(int fd, const void *bytes, size_t len)
{
	const char *p = bytes;

	while (len) {
		ssize_t n = sys_write(fd, p, len);

		if (n >= 0) {
			p += n;
			len -= (size_t)n;
		} else if (n != -EINTR) {
			return (int)n;
		}
	}
	return 0;
}

/* Makes the names in the folder of `path` durable. Returns 0 or a negative errno. */
static int sync_folder(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	int fd, rc = 0;

	if (!folder)
		return -ENOMEM;
	fd = sys_open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(folder);
	if (fd < 0)
		return fd;
	if (fsync(fd))
		rc = -errno;
	sys_close(fd);
	return rc;
}

int file_finish(int fd, const char *temporary, const char *path, bool replace)
{
	/* link() replaces no file */
	if (fsync(fd) || (replace ? rename(temporary, path) : link(temporary, path)))
		return -errno;
	if (!replace)
		unlink(temporary);
	return -sync_folder(path);
}
