/* SPDX-License-Identifier: BSD-2-Clause */
/* The file of a table of partitions. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "kvwire/remote.h"
#include "kvwire/table.h"

static int fail(char *why, size_t why_len, const char *path, int rc)
{
	snprintf(why, why_len, "%s: %s", path, strerror(-rc));
	return rc;
}

/* Reads a whole file. Returns the number of bytes, or a negative errno. */
static ssize_t read_all(int fd, char *to, size_t cap)
{
	size_t len = 0;
	ssize_t n;

	do {
		n = read(fd, to + len, cap - len);
		if (n > 0)
			len += (size_t)n;
	} while (n > 0 || (n < 0 && errno == EINTR));
	return n < 0 ? -errno : (ssize_t)len;
}

static int read_file(struct kv_table *t, const char *path, char *why, size_t why_len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc, n;
	ssize_t len = fd < 0 ? -errno : 0;
	char *text = malloc(KV_TABLE_TEXT);

	if (!text)
		len = -ENOMEM;
	if (len == 0)
		len = read_all(fd, text, KV_TABLE_TEXT);
	if (fd >= 0)
		close(fd);
	n = snprintf(why, why_len, "%s: ", path);
	if (len < 0)
		rc = fail(why, why_len, path, (int)len);
	else if ((size_t)len == KV_TABLE_TEXT)
		rc = fail(why, why_len, path, -EFBIG);
	else if (n < 0 || (size_t)n >= why_len)
		rc = kv_table_parse(t, text, (size_t)len, NULL, 0);
	else
		rc = kv_table_parse(t, text, (size_t)len, why + n, why_len - (size_t)n);
	free(text);
	return rc;
}

/*
 * Writes the text to a file with a name of its own, and gives this file the name `path`. Returns 0
 * or an error of file_finish(). A process that was killed may have left a file of the first
 * name: programs in containers often have the same process id.
 */
static int write_text(const char *temporary, const char *path, bool replace, const char *text,
		      size_t len)
{
	int fd, rc;

	unlink(temporary);
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	rc = file_write(fd, text, len);
	if (!rc)
		rc = file_finish(fd, temporary, path, replace);
	close(fd);
	if (rc < 0)
		unlink(temporary);
	return rc;
}

static int put_file(const struct kv_table *t, const char *path, bool replace, char *why,
		    size_t why_len)
{
	size_t len = kv_table_format(t, NULL, 0);
	char *text = malloc(len + 1), *temporary = NULL;
	int rc = -ENOMEM;

	if (text && asprintf(&temporary, "%s.%d", path, (int)getpid()) >= 0) {
		kv_table_format(t, text, len + 1);
		rc = write_text(temporary, path, replace, text, len);
		free(temporary);
	}
	free(text);
	if (rc > 0)
		snprintf(why, why_len, "%s: " FILE_NOT_SYNCED, path, strerror(rc));
	return rc < 0 ? fail(why, why_len, path, rc) : rc;
}

static int put(struct kv_table *t, const char *path, bool replace, const struct kv_table_node *gone,
	       char *why, size_t why_len)
{
	int rc;

	if (!kv_table_is_remote(path))
		return put_file(t, path, replace, why, why_len);
	rc = kv_table_has_remote(path, why, why_len);
	return rc ? rc : kv_table_remote->write(t, path, gone, why, why_len);
}

int kv_table_read(struct kv_table *t, const char *path, char *why, size_t why_len)
{
	int rc;

	if (!kv_table_is_remote(path))
		return read_file(t, path, why, why_len);
	rc = kv_table_has_remote(path, why, why_len);
	return rc ? rc : kv_table_remote->read(t, path, why, why_len);
}

int kv_table_create(struct kv_table *t, const char *path, char *why, size_t why_len)
{
	t->revision = 0;
	return put(t, path, false, NULL, why, why_len);
}

int kv_table_replace(struct kv_table *t, const char *path, const struct kv_table_node *gone,
		     char *why, size_t why_len)
{
	return put(t, path, true, gone, why, why_len);
}
