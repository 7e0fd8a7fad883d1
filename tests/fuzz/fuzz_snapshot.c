/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes the loader of snapshots. The first byte of the input selects: the rest is the file, or it
 * is the pairs of a file, to which the head and a valid end are added. A store is consistent after
 * a load; after an error it is empty, and the error has a text.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "input.h"
#include "kv/snapshot.h"
#include "kv/snapshot_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FILE_MAX 65536u

static void put(uint8_t *file, size_t *n, const void *data, size_t len)
{
	memcpy(file + *n, data, len);
	*n += len;
}

/* Returns the number of pairs, up to the first that is not whole. */
static uint64_t count(const uint8_t *p, size_t size)
{
	uint64_t n = 0;
	uint32_t head, len;

	for (; size >= 4; n++, p += len, size -= len) {
		memcpy(&head, p, 4);
		len = 4 + (head & SNAPSHOT_EXPIRES ? 4 : 0) + (head & 0xff) +
		      (head >> 8 & 0x1fffff);
		if (len > size)
			break;
	}
	return n;
}

static size_t make(uint8_t *file, const uint8_t *data, size_t size)
{
	struct snapshot_head head = {SNAPSHOT_MAGIC, SNAPSHOT_VERSION, 0};
	uint64_t pairs = count(data, size), sum;
	uint32_t zero = 0;
	size_t n = 0;

	put(file, &n, &head, sizeof(head));
	put(file, &n, data, size);
	put(file, &n, &zero, 4);
	put(file, &n, &pairs, 8);
	sum = XXH3_64bits(file, n);
	put(file, &n, &sum, 8);
	return n;
}

static void load(struct kv *kv, const uint8_t *file, size_t n)
{
	char path[40], why[200] = "";
	struct kv_stat stat;
	int err, fd = memfd_create("snapshot", MFD_CLOEXEC);

	must(fd >= 0 && write(fd, file, n) == (ssize_t)n, "no file in memory");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	err = kv_snapshot_load(kv, path, why, sizeof(why));
	close(fd);
	kv_get_stat(kv, &stat);
	must(!err == !why[0], "an error has a text");
	must(!err || stat.pairs == 0, "nothing is loaded after an error");
	must(!kv_check(kv), "the store is consistent");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t secret[KV_SECRET];
	static uint8_t file[FILE_MAX];
	struct kv_config c = {.size = 1u << 20, .inline_max = 20, .secret = secret};
	struct kv *kv;

	if (size < 1 || size > FILE_MAX - 64)
		return 0;
	must(kv_open(&c, &kv) == 0, "a store opens");
	kv_set_time(kv, 1000);
	if (data[0] & 1)
		load(kv, file, make(file, data + 1, size - 1));
	else
		load(kv, data + 1, size - 1);
	kv_close(kv);
	return 0;
}
