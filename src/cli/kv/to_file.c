/* SPDX-License-Identifier: BSD-2-Clause */
/* `roost kv get --to`: writes a value to a file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/kv/kv.h"
#include "cli/options.h"

/*
 * Returns the mode that the file gets: that of the file that it replaces, or that of a new file.
 * Returns a negative errno value if there is something else than a file. A device or a pipe would
 * be replaced by a file.
 */
static int find_mode(const char *path)
{
	struct stat st;
	mode_t mask;

	if (!stat(path, &st))
		return S_ISREG(st.st_mode)   ? (int)(st.st_mode & 0777)
		       : S_ISDIR(st.st_mode) ? -EISDIR
					     : -EINVAL;
	if (errno != ENOENT)
		return -errno;
	mask = umask(0);
	umask(mask);
	return (int)(0666 & ~mask);
}

/*
 * Writes a new file beside `path` and renames it. Returns 0, or an error of file_finish().
 */
static int replace(const char *path, const char *bytes, size_t len)
{
	int mode = find_mode(path), fd, rc;
	char *temporary;

	if (mode < 0)
		return mode;
	if (asprintf(&temporary, "%s.XXXXXX", path) < 0)
		return -ENOMEM;
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0) {
		rc = -errno;
		free(temporary);
		return rc;
	}
	rc = file_write(fd, bytes, len);
	if (!rc && fchmod(fd, (mode_t)mode))
		rc = -errno;
	if (!rc)
		rc = file_finish(fd, temporary, path, true);
	close(fd);
	if (rc < 0)
		unlink(temporary);
	free(temporary);
	return rc;
}

/* A symbolic link stays, and the file that it names is replaced. */
static int replace_target(const char *path, const char *bytes, size_t len)
{
	char *target = realpath(path, NULL);
	int rc = replace(target ? target : path, bytes, len);

	free(target);
	return rc;
}

static int show(const struct pair_call *c, const char *file, int rc)
{
	if (rc == -EINVAL)
		return opt_failed(c->cmd, "%s is no file; --to - writes to standard output", file);
	if (rc > 0)
		return opt_failed(c->cmd, "%s: " FILE_NOT_SYNCED, file, strerror(rc));
	return rc ? opt_failed(c->cmd, "%s: %s", file, strerror(-rc)) : CLI_OK;
}

int pair_get_file(const struct pair_call *c, const char *key, const char *file)
{
	char *value = malloc(ROOST_KV_VALUE_MAX);
	size_t len;
	int rc = -ENOMEM, status;

	if (value)
		rc = roost_kv_get(c->kv, key, strlen(key), value, ROOST_KV_VALUE_MAX, &len);
	if (rc) {
		status = opt_failed(c->cmd, "%s", kv_error(rc));
	} else if (!strcmp(file, "-")) {
		kv_print(value, len);
		status = CLI_OK;
	} else {
		status = show(c, file, replace_target(file, value, len));
	}
	free(value);
	return status;
}
