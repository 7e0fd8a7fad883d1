/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes snapshots. */
#include "kv/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"
#include "base/sys.h"
#include "kv/snapshot_file.h"

struct kv_snapshot {
	struct kv *kv;
	char *path, *new_path;
	int fd, error; /* the first error: the snapshot cannot be completed */
	bool complete, written, full;
	struct kv_scan_state scan;
	uint64_t pairs;
	XXH3_state_t *hash;
	uint32_t used; /* used bytes of the buffer */
	uint8_t buffer[SNAPSHOT_BUFFER];
};

/* Opens and locks the new file. Another process may have renamed or removed it meanwhile. */
static int open_new(struct kv_snapshot *s)
{
	struct stat own, now;

	s->fd = open(s->new_path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
	if (s->fd < 0)
		return -errno;
	if (flock(s->fd, LOCK_EX | LOCK_NB))
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (fstat(s->fd, &own))
		return -errno;
	if (lstat(s->new_path, &now))
		return errno == ENOENT ? -EBUSY : -errno;
	if (own.st_ino != now.st_ino || own.st_dev != now.st_dev)
		return -EBUSY;
	return ftruncate(s->fd, 0) ? -errno : 0;
}

static void append(struct kv_snapshot *s, const void *data, uint32_t len)
{
	memcpy(s->buffer + s->used, data, len);
	s->used += len;
}

static int flush(struct kv_snapshot *s)
{
	XXH3_64bits_update(s->hash, s->buffer, s->used);
	if (!s->error)
		s->error = file_write(s->fd, s->buffer, s->used);
	s->used = 0;
	return s->error;
}

static int prepare(struct kv_snapshot *s, const char *path)
{
	struct snapshot_head head = {SNAPSHOT_MAGIC, SNAPSHOT_VERSION, 0};

	s->path = strdup(path);
	if (!s->path || asprintf(&s->new_path, "%s.new", path) < 0) {
		s->new_path = NULL;
		return -ENOMEM;
	}
	s->hash = XXH3_createState();
	if (!s->hash || XXH3_64bits_reset(s->hash) != XXH_OK)
		return -ENOMEM;
	append(s, &head, sizeof(head));
	return open_new(s);
}

int kv_snapshot_start(struct kv *kv, const char *path, struct kv_snapshot **out)
{
	struct kv_snapshot *s = malloc(sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	memset(s, 0, offsetof(struct kv_snapshot, buffer));
	s->kv = kv;
	s->scan.client = UINT64_MAX; /* a number that no connection has */
	s->fd = -1;
	err = prepare(s, path);
	if (err) {
		/* The new file belongs to another snapshot. */
		if (err == -EBUSY) {
			sys_close(s->fd);
			s->fd = -1;
		}
		kv_snapshot_free(s);
		return err;
	}
	*out = s;
	return 0;
}

static bool write_pair(void *ctx, const struct kv_pair *p)
{
	struct kv_snapshot *s = ctx;
	uint32_t head = p->key_len | p->value_len << 8 | (p->expires ? SNAPSHOT_EXPIRES : 0);

	s->full = 8 + p->key_len + p->value_len > sizeof(s->buffer) - s->used;
	if (s->full)
		return false;
	append(s, &head, sizeof(head));
	if (p->expires)
		append(s, &p->expires, sizeof(p->expires));
	append(s, p->key, p->key_len);
	append(s, p->value, p->value_len);
	s->pairs++;
	return true;
}

/* Appends the pairs of a bucket. Returns an error of kv_scan_next(). */
static int write_bucket(struct kv_snapshot *s)
{
	uint32_t used = s->used;
	uint64_t pairs = s->pairs;
	int err = kv_scan_next(s->kv, &s->scan, write_pair, s);

	if (err) {
		s->used = used;
		s->pairs = pairs;
		return err;
	}
	s->written = !s->scan.cursor;
	return 0;
}

int kv_snapshot_step(struct kv_snapshot *s, uint64_t buckets)
{
	bool waits = false;

	if (s->error || s->written)
		return s->error;
	s->full = false;
	kv_scan_poll(s->kv);
	while (buckets-- && !s->full && !s->written && !s->error && !waits) {
		int err = write_bucket(s);

		if (err == -EAGAIN)
			waits = !kv_scan_poll(s->kv);
		else
			s->error = err;
	}
	if (flush(s))
		return s->error;
	return s->written ? 0 : waits ? KV_SNAPSHOT_WAITS : 1;
}

int kv_snapshot_finish(struct kv_snapshot *s)
{
	static const uint32_t zero;
	uint64_t sum;
	int rc;

	if (s->error || !s->written || s->complete)
		return s->error ? s->error : -EINVAL;
	append(s, &zero, sizeof(zero));
	append(s, &s->pairs, sizeof(s->pairs));
	if (flush(s))
		return s->error;
	sum = XXH3_64bits_digest(s->hash);
	append(s, &sum, sizeof(sum));
	if (flush(s))
		return s->error;
	rc = file_finish(s->fd, s->new_path, s->path, true);
	if (rc < 0)
		return s->error = rc;
	s->complete = true;
	return rc;
}

void kv_snapshot_free(struct kv_snapshot *s)
{
	if (!s)
		return;
	kv_scan_end(s->kv, &s->scan);
	if (s->fd >= 0) {
		/* The file is removed before the lock ends with the descriptor. */
		if (!s->complete)
			unlink(s->new_path);
		sys_close(s->fd);
	}
	XXH3_freeState(s->hash);
	free(s->path);
	free(s->new_path);
	free(s);
}
