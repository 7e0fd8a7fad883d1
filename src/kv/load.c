/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loads snapshots. The file is read twice: no pair is stored before the whole file was found valid.
 * The file may change in between, so the second pass makes all checks again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sys.h"
#include "kv/snapshot.h"
#include "kv/snapshot_file.h"
#include "kv/store.h"

struct loader {
	struct kv *kv;
	const char *path;
	int fd, error;	 /* descriptor, and error of take() */
	uint64_t offset; /* offset of the next read */
	uint64_t pairs;
	XXH3_state_t *hash;
	uint32_t at, have; /* bytes of the buffer that were consumed, and that were read */
	char *why;
	size_t why_len;
	uint8_t buffer[SNAPSHOT_BUFFER];
};

typedef int loader_pair(struct loader *l, const struct kv_pair *p);

static int __attribute__((format(printf, 3, 4)))
refuse(const struct loader *l, int err, const char *format, ...)
{
	int n = snprintf(l->why, l->why_len, "%s ", l->path);
	va_list args;

	va_start(args, format);
	if (n >= 0 && (size_t)n < l->why_len)
		vsnprintf(l->why + n, l->why_len - (size_t)n, format, args);
	va_end(args);
	return err;
}

static int cut_off(const struct loader *l)
{
	return refuse(l, -EBADMSG, "is cut off: the snapshot was not completed");
}

static int damaged(const struct loader *l)
{
	return refuse(l, -EBADMSG, "is damaged: its contents do not match its checksum");
}

/* Makes at least `need` bytes available, fewer at the end of the file. */
static int fill(struct loader *l, uint32_t need)
{
	if (l->have - l->at >= need)
		return 0;
	memmove(l->buffer, l->buffer + l->at, l->have - l->at);
	l->have -= l->at;
	l->at = 0;
	while (l->have < need) {
		ssize_t n = pread(l->fd, l->buffer + l->have, sizeof(l->buffer) - l->have,
				  (off_t)l->offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return refuse(l, -errno, "cannot be read: %s", strerror(errno));
		if (n == 0)
			return 0;
		l->have += (uint32_t)n;
		l->offset += (uint64_t)n;
	}
	return 0;
}

/*
 * Returns the next `n` bytes, which are valid until the next call, or NULL with l->error set. Adds
 * the bytes to the hash.
 */
static const uint8_t *take(struct loader *l, uint32_t n)
{
	const uint8_t *at;

	l->error = fill(l, n);
	if (!l->error && l->have - l->at < n)
		l->error = cut_off(l);
	if (l->error)
		return NULL;
	at = l->buffer + l->at;
	l->at += n;
	XXH3_64bits_update(l->hash, at, n);
	return at;
}

static int read_head(struct loader *l)
{
	struct snapshot_head head;
	const uint8_t *at;
	int err = fill(l, sizeof(head));

	if (err)
		return err;
	if (l->have - l->at < sizeof(head) ||
	    memcmp(l->buffer, SNAPSHOT_MAGIC, sizeof(head.magic)) != 0)
		return refuse(l, -EBADMSG, "is no snapshot of a key-value store");
	at = take(l, sizeof(head));
	if (!at)
		return l->error;
	memcpy(&head, at, sizeof(head));
	if (head.version != SNAPSHOT_VERSION)
		return refuse(l, -EPROTO, "has version %u of the format; this program reads %u",
			      head.version, SNAPSHOT_VERSION);
	return head.zero ? damaged(l) : 0;
}

static int read_pair(struct loader *l, uint32_t head, loader_pair *use)
{
	struct kv_pair p = {.key_len = head & 0xff, .value_len = head >> 8 & 0x1fffff};
	uint32_t expires_len = head & SNAPSHOT_EXPIRES ? 4 : 0;
	const uint8_t *at;

	if (!p.key_len || p.value_len > KV_VALUE_MAX || head >> 30)
		return damaged(l);
	at = take(l, expires_len + p.key_len + p.value_len);
	if (!at)
		return l->error;
	if (expires_len) {
		memcpy(&p.expires, at, 4);
		if (!p.expires)
			return damaged(l);
	}
	p.key = at + expires_len;
	p.value = p.key + p.key_len;
	l->pairs++;
	return use(l, &p);
}

static int read_end(struct loader *l)
{
	uint64_t pairs, sum, expected;
	const uint8_t *at = take(l, sizeof(pairs));
	int err;

	if (!at)
		return l->error;
	memcpy(&pairs, at, sizeof(pairs));
	expected = XXH3_64bits_digest(l->hash);
	at = take(l, sizeof(sum));
	if (!at)
		return l->error;
	memcpy(&sum, at, sizeof(sum));
	if (sum != expected || pairs != l->pairs)
		return damaged(l);
	err = fill(l, 1);
	if (err)
		return err;
	return l->have > l->at ? refuse(l, -EBADMSG, "has data behind its end") : 0;
}

static int read_file(struct loader *l, loader_pair *use)
{
	uint32_t head;
	const uint8_t *at;
	int err;

	l->offset = l->pairs = 0;
	l->at = l->have = 0;
	XXH3_64bits_reset(l->hash);
	err = read_head(l);
	while (!err) {
		at = take(l, sizeof(head));
		if (!at)
			return l->error;
		memcpy(&head, at, sizeof(head));
		if (!head)
			return read_end(l);
		err = read_pair(l, head, use);
	}
	return err;
}

static int skip_pair(struct loader *l, const struct kv_pair *p)
{
	return 0;
}

static int store_pair(struct loader *l, const struct kv_pair *p)
{
	struct kv_op op = {.code = KV_PUT,
			   .key = p->key,
			   .key_len = p->key_len,
			   .value = p->value,
			   .value_len = p->value_len,
			   .expires = p->expires};

	/* An older value of the key may be in the file, before this value. */
	if (kv_is_expired(l->kv, p->expires))
		op.code = KV_DELETE;
	kv_run(l->kv, &op, 1);
	if (op.status == -EIO)
		return refuse(l, -EIO, "is not loaded: the far tier failed");
	if (op.status == -ENOSPC)
		return refuse(l, -ENOSPC, "does not fit into the store");
	return 0;
}

static bool collect(void *ctx, const struct kv_pair *p)
{
	struct kv_op *op = ctx;

	if (op->key_len)
		return false;
	memcpy((void *)(uintptr_t)op->key, p->key, p->key_len);
	op->key_len = p->key_len;
	return true;
}

/* Empties the store. The file may have changed, so the keys come from the store. */
static void empty(struct kv *kv)
{
	uint8_t key[KV_KEY_MAX];
	uint64_t cursor = 0;

	while (kv->pairs && !kv_far_error(kv)) {
		struct kv_op op = {.code = KV_DELETE, .key = key};

		cursor = kv_scan(kv, cursor, 1, collect, &op);
		if (op.key_len)
			kv_run(kv, &op, 1);
	}
}

static int open_file(struct loader *l)
{
	struct stat st;

	l->fd = sys_open(l->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (l->fd < 0)
		return refuse(l, l->fd, "cannot be opened: %s", strerror(-l->fd));
	if (fstat(l->fd, &st) || !S_ISREG(st.st_mode))
		return refuse(l, -EBADMSG, "is no file");
	return 0;
}

int kv_snapshot_load(struct kv *kv, const char *path, char *why, size_t why_len)
{
	struct loader *l = malloc(sizeof(*l));
	int err;

	if (!l) {
		snprintf(why, why_len, "no memory to load %s", path);
		return -ENOMEM;
	}
	memset(l, 0, offsetof(struct loader, buffer));
	l->kv = kv;
	l->path = path;
	l->fd = -1;
	l->why = why;
	l->why_len = why_len;
	l->hash = XXH3_createState();
	if (!l->hash)
		err = refuse(l, -ENOMEM, "is not loaded: no memory");
	else if (kv->pairs)
		err = refuse(l, -EEXIST, "is not loaded: the store is not empty");
	else
		err = open_file(l);
	if (!err)
		err = read_file(l, skip_pair);
	if (!err) {
		err = read_file(l, store_pair);
		if (err)
			empty(kv);
	}
	if (l->fd >= 0)
		sys_close(l->fd);
	XXH3_freeState(l->hash);
	free(l);
	return err;
}
