/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Snapshots: all pairs that were written are loaded, and an incomplete file is refused as a
 * whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "far_model.h"
#include "kv/snapshot.h"

#define KEYS 3000u

static char folder[64], path[128];

/* What another process does between the open and the lock of the new file. */
static void (*before_lock)(void);

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

int __wrap_flock(int fd, int operation)
{
	void (*other)(void) = before_lock;

	before_lock = NULL;
	if (other)
		other();
	return __real_flock(fd, operation);
}

/* The number of syncs of a folder that fail. */
static unsigned bad_syncs;

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
	struct stat st;

	if (!bad_syncs || fstat(fd, &st) || !S_ISDIR(st.st_mode))
		return __real_fsync(fd);
	bad_syncs--;
	errno = EIO;
	return -1;
}

static struct kv *open_kv(uint64_t size)
{
	struct kv_config c = {.size = size, .inline_max = 20};
	struct kv *kv;

	assert_int_equal(kv_open(&c, &kv), 0);
	return kv;
}

static int run(struct kv *kv, uint8_t code, uint32_t key, void *data, uint32_t len,
	       uint32_t expires)
{
	struct kv_op op = {.code = code,
			   .key = &key,
			   .key_len = 4,
			   .value = data,
			   .value_len = len,
			   .expires = expires,
			   .out = data,
			   .out_cap = len};

	kv_run(kv, &op, 1);
	return op.status ? op.status : (int)op.out_len;
}

static uint64_t pairs(struct kv *kv)
{
	struct kv_stat s;

	kv_get_stat(kv, &s);
	return s.pairs;
}

static int save(struct kv *kv)
{
	struct kv_snapshot *s;
	int err = kv_snapshot_start(kv, path, &s);

	if (err)
		return err;
	while ((err = kv_snapshot_step(s, 50)) > 0)
		;
	if (!err)
		err = kv_snapshot_finish(s);
	kv_snapshot_free(s);
	return err;
}

static int load(struct kv *kv)
{
	char why[200] = "";
	int err = kv_snapshot_load(kv, path, why, sizeof(why));

	assert_true(!err == !why[0]);
	if (err) {
		assert_true(strstr(why, path) && !strchr(why, '\n'));
		assert_int_equal(pairs(kv), err == -EEXIST ? 1 : 0);
		assert_null(kv_check(kv));
	}
	return err;
}

static bool exists(const char *suffix)
{
	char name[160];

	snprintf(name, sizeof(name), "%s%s", path, suffix);
	return access(name, F_OK) == 0;
}

/* Makes the value of a key, which differs in each round. Returns its length. */
static uint32_t make(uint32_t key, unsigned round, uint8_t *out)
{
	uint32_t len = key % 500 == 0 ? 150000 + key : key * 7 % 300;

	memset(out, (int)(key + 100 * round), len);
	return len;
}

/* The store is changed between the steps. Each key in the snapshot has its old or its new value. */
static void a_store_that_is_used_meanwhile(void **state)
{
	static uint8_t value[400000], out[400000];
	struct kv *kv = open_kv(64u << 20), *other;
	uint32_t changed = 0, news = 0;
	struct kv_snapshot *s;
	int more;

	for (uint32_t key = 0; key < KEYS; key++)
		assert_int_equal(
			run(kv, KV_PUT, key, value, make(key, 0, value), key % 3 == 0 ? 100 : 0),
			0);
	assert_int_equal(kv_snapshot_start(kv, path, &s), 0);
	assert_int_equal(kv_snapshot_finish(s), -EINVAL);
	for (uint32_t key = 0; (more = kv_snapshot_step(s, 10)) > 0; key += 7) {
		for (unsigned i = 0; i < 20; i++, key += 7)
			run(kv, KV_PUT, key % KEYS, value, make(key % KEYS, 1, value), 0);
		/* The index grows meanwhile. */
		run(kv, KV_PUT, KEYS + key, value, 4, 0);
		changed++;
	}
	assert_true(more == 0 && changed > 20 && !exists(""));
	assert_int_equal(kv_snapshot_finish(s), 0);
	assert_true(exists("") && !exists(".new"));
	kv_snapshot_free(s);
	kv_close(kv);

	other = open_kv(64u << 20);
	kv_set_time(other, 99);
	assert_int_equal(load(other), 0);
	for (uint32_t key = 0; key < KEYS; key++) {
		uint32_t len = make(key, 0, value);

		assert_int_equal(run(other, KV_GET, key, out, sizeof(out), 0), len);
		if (!len || out[0] == value[0])
			continue;
		make(key, 1, value);
		assert_memory_equal(out, value, len);
		news++;
	}
	assert_true(news > 10);
	assert_null(kv_check(other));
	kv_set_time(other, 100);
	for (uint32_t key = 3; key < KEYS; key += 3)
		if (run(other, KV_GET, key, out, sizeof(out), 0) == -ENOENT)
			news = 0;
	assert_int_equal(news, 0);
	kv_close(other);
	other = open_kv(64u << 20);
	kv_set_time(other, 100);
	assert_int_equal(load(other), 0);
	assert_true(pairs(other) < KEYS);
	kv_close(other);
}

static void write_file(const uint8_t *data, size_t n)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, n, f), n);
	fclose(f);
}

static size_t read_file(uint8_t *data, size_t max)
{
	FILE *f = fopen(path, "r");
	size_t n;

	assert_non_null(f);
	n = fread(data, 1, max, f);
	fclose(f);
	return n;
}

static void a_file_that_is_not_whole(void **state)
{
	struct kv *kv = open_kv(1u << 20), *other = open_kv(1u << 20);
	uint8_t file[4096], bad[4097];
	size_t n;

	for (uint32_t key = 0; key < 20; key++)
		assert_int_equal(run(kv, KV_PUT, key, file, key * 3, key % 2 ? 50 : 0), 0);
	assert_int_equal(save(kv), 0);
	n = read_file(file, sizeof(file));
	assert_true(n > 500 && n < sizeof(file));
	for (size_t cut = 0; cut < n; cut++) {
		write_file(file, cut);
		assert_int_equal(load(other), -EBADMSG);
	}
	for (size_t at = 0; at < n; at++) {
		memcpy(bad, file, n);
		bad[at] ^= (uint8_t)(1 << at % 8);
		write_file(bad, n);
		assert_int_equal(load(other), at >= 8 && at < 12 ? -EPROTO : -EBADMSG);
	}
	memcpy(bad, file, n);
	bad[n] = 0;
	write_file(bad, n + 1);
	assert_int_equal(load(other), -EBADMSG);
	for (size_t i = 0; i < sizeof(bad); i++)
		bad[i] = (uint8_t)(i * 31);
	write_file(bad, sizeof(bad));
	assert_int_equal(load(other), -EBADMSG);

	write_file(file, n);
	run(other, KV_PUT, 1, bad, 1, 0);
	assert_int_equal(load(other), -EEXIST);
	run(other, KV_DELETE, 1, NULL, 0, 0);
	assert_int_equal(load(other), 0);
	assert_int_equal(pairs(other), 20);
	unlink(path);
	mkdir(path, 0700);
	run(kv, KV_DELETE, 0, NULL, 0, 0);
	kv_close(kv);
	kv = open_kv(1u << 20);
	assert_int_equal(load(kv), -EBADMSG);
	rmdir(path);
	assert_int_equal(load(kv), -ENOENT);
	kv_close(kv);
	kv_close(other);
}

static void a_store_that_is_too_small(void **state)
{
	static uint8_t value[10000];
	struct kv *kv = open_kv(16u << 20), *other = open_kv(1u << 20);

	for (uint32_t key = 0; key < 1000; key++)
		assert_int_equal(run(kv, KV_PUT, key, value, sizeof(value), 0), 0);
	assert_int_equal(save(kv), 0);
	assert_int_equal(load(other), -ENOSPC);
	kv_close(kv);
	kv_close(other);
}

static void a_snapshot_that_fails_leaves_the_old_one(void **state)
{
	static uint8_t value[10000];
	const struct rlimit small = {100000, RLIM_INFINITY}, any = {RLIM_INFINITY, RLIM_INFINITY};
	struct kv *kv = open_kv(16u << 20), *other = open_kv(16u << 20);
	struct kv_snapshot *s, *second;

	assert_int_equal(run(kv, KV_PUT, 1, value, 1, 0), 0);
	assert_int_equal(save(kv), 0);
	for (uint32_t key = 0; key < 1000; key++)
		assert_int_equal(run(kv, KV_PUT, key, value, sizeof(value), 0), 0);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(save(kv), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &any), 0);
	assert_true(!exists(".new"));

	assert_int_equal(kv_snapshot_start(kv, path, &s), 0);
	assert_int_equal(kv_snapshot_start(kv, path, &second), -EBUSY);
	assert_true(exists(".new"));
	kv_snapshot_free(s);
	assert_true(!exists(".new"));
	assert_int_equal(load(other), 0);
	assert_int_equal(pairs(other), 1);
	kv_close(kv);
	kv_close(other);
}

/*
 * The name of the new file may not be durable, but it is in place, and no error says that the old
 * file is there.
 */
static void a_folder_that_is_not_synced(void **state)
{
	struct kv *kv = open_kv(1u << 20), *other = open_kv(1u << 20);
	uint8_t value[1] = {0};

	assert_int_equal(run(kv, KV_PUT, 1, value, 1, 0), 0);
	assert_int_equal(save(kv), 0);
	assert_int_equal(run(kv, KV_PUT, 2, value, 1, 0), 0);
	bad_syncs = 1;
	assert_int_equal(save(kv), EIO);
	assert_int_equal(bad_syncs, 0);
	assert_true(!exists(".new"));
	assert_int_equal(load(other), 0);
	assert_int_equal(pairs(other), 2);
	assert_int_equal(save(kv), 0);
	kv_close(kv);
	kv_close(other);
}

/* After that, the name of the new file is free for the next snapshot. */
static void the_next_one_after_a_bad_sync(void **state)
{
	struct kv *kv = open_kv(1u << 20);
	struct kv_snapshot *s, *next;

	assert_int_equal(kv_snapshot_start(kv, path, &s), 0);
	while (kv_snapshot_step(s, 50) > 0)
		;
	bad_syncs = 1;
	assert_int_equal(kv_snapshot_finish(s), EIO);
	assert_int_equal(kv_snapshot_start(kv, path, &next), 0);
	kv_snapshot_free(s);
	assert_true(exists(".new"));
	kv_snapshot_free(next);
	kv_close(kv);
}

static void another_completes(void)
{
	char name[160];

	snprintf(name, sizeof(name), "%s.new", path);
	assert_int_equal(rename(name, path), 0);
}

static struct kv_snapshot *third;
static struct kv *kv_of_third;

static void another_completes_and_a_third_begins(void)
{
	another_completes();
	assert_int_equal(kv_snapshot_start(kv_of_third, path, &third), 0);
}

/* A second snapshot begins when the first one ends. It leaves the new file of a third one alone. */
static void a_snapshot_that_begins_when_another_ends(void **state)
{
	struct kv *kv = open_kv(1u << 20);
	struct kv_snapshot *s;

	assert_int_equal(save(kv), 0);
	before_lock = another_completes;
	assert_int_equal(kv_snapshot_start(kv, path, &s), -EBUSY);
	assert_true(!exists(".new"));

	kv_of_third = open_kv(1u << 20);
	before_lock = another_completes_and_a_third_begins;
	assert_int_equal(kv_snapshot_start(kv, path, &s), -EBUSY);
	assert_true(exists(".new"));
	while (kv_snapshot_step(third, 1000) > 0)
		;
	assert_int_equal(kv_snapshot_finish(third), 0);
	kv_snapshot_free(third);
	assert_int_equal(save(kv), 0);
	kv_close(kv_of_third);
	kv_close(kv);
}

/* Takes snapshots until it is killed. All values of a snapshot are the same. */
static void take_snapshots(uint32_t first)
{
	struct kv *kv = open_kv(4u << 20);

	for (uint32_t round = first;; round++) {
		for (uint32_t key = 0; key < 1000; key++)
			run(kv, KV_PUT, key, &round, 4, 0);
		if (save(kv))
			_exit(1);
	}
}

static void a_kill_leaves_a_whole_file(void **state)
{
	struct kv *kv = open_kv(4u << 20);
	uint32_t value = 7, old = 7, news = 0;
	struct rng rng;

	rng_seed(&rng, 31);
	for (uint32_t key = 0; key < 1000; key++)
		run(kv, KV_PUT, key, &value, 4, 0);
	assert_int_equal(save(kv), 0);
	kv_close(kv);
	for (unsigned i = 0; i < 30; i++) {
		const struct itimerval at = {.it_value.tv_usec =
						     (suseconds_t)(100 + rng_below(&rng, 20000))};
		int status = 0;
		pid_t child = fork();

		if (child == 0) {
			/* SIGALRM ends the process. */
			setitimer(ITIMER_REAL, &at, NULL);
			take_snapshots(old + 1);
		}
		assert_true(child > 0 && waitpid(child, &status, 0) == child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
		kv = open_kv(4u << 20);
		assert_int_equal(load(kv), 0);
		assert_int_equal(pairs(kv), 1000);
		assert_int_equal(run(kv, KV_GET, 0, &old, 4, 0), 4);
		for (uint32_t key = 1; key < 1000; key++) {
			assert_int_equal(run(kv, KV_GET, key, &value, 4, 0), 4);
			assert_int_equal(value, old);
		}
		kv_close(kv);
	}
	news = old - 7;
	print_message("%u snapshots, 30 kills\n", news);
}

/* ---- a far tier ---- */

/* A line is a page. The number of lines is the same with pages of any size. */
#define FAR_VALUE     ((uint32_t)mem_page_size() / 10)
#define FAR_VALUE_MAX 6554u
#define FAR_SIZE      (4096 * mem_page_size())
#define FAR_NEAR      256u /* lines */
#define FAR_LEAST     50u  /* virtual time of a read */
#define FAR_MOST      200u

static struct far_model far;

/* Opens a store whose pairs are on the far tier, except for some lines. */
static struct kv *open_far(void)
{
	static uint8_t secret[KV_SECRET] = {4, 2};
	struct kv_config c = {.size = FAR_SIZE,
			      .near = FAR_NEAR * mem_page_size(),
			      .secret = secret,
			      .far = &far.far};
	static uint8_t value[FAR_VALUE_MAX];
	struct kv *kv;

	far_model_init(&far, FAR_LEAST, FAR_MOST);
	assert_int_equal(kv_open(&c, &kv), 0);
	for (uint32_t key = 0; key < KEYS; key++) {
		memcpy(value, &key, 4);
		assert_int_equal(run(kv, KV_PUT, key, value, FAR_VALUE, 0), 0);
	}
	return kv;
}

/* Many lines are read at the same time, up to a bound. */
static void many_lines_at_once(void **state)
{
	struct kv *kv = open_far(), *copy = open_kv(FAR_SIZE);
	uint8_t value[FAR_VALUE_MAX];
	struct kv_stat before, after;
	struct kv_snapshot *s;
	uint64_t start = far.now, reads;
	unsigned most = 0;
	int more;

	kv_get_stat(kv, &before);
	assert_int_equal(kv_snapshot_start(kv, path, &s), 0);
	while ((more = kv_snapshot_step(s, 1000)) > 0) {
		if (far.num_busy > most)
			most = far.num_busy;
		if (more == KV_SNAPSHOT_WAITS)
			kv_poll(kv, true);
	}
	assert_int_equal(more, 0);
	assert_int_equal(kv_snapshot_finish(s), 0);
	kv_snapshot_free(s);
	kv_get_stat(kv, &after);
	reads = after.far_reads - before.far_reads;
	print_message("%lu reads in the time of %lu, %u at once\n", reads,
		      2 * (far.now - start) / (FAR_LEAST + FAR_MOST), most);
	assert_true(reads > KEYS / 20);
	assert_true((far.now - start) * 6 < reads * (FAR_LEAST + FAR_MOST) / 2);
	assert_in_range(most, 32, KV_FAR_REQUESTS / 2);
	assert_int_equal(load(copy), 0);
	for (uint32_t key = 0; key < KEYS; key++) {
		assert_int_equal(run(copy, KV_GET, key, value, FAR_VALUE, 0), FAR_VALUE);
		assert_memory_equal(value, &key, 4);
	}
	assert_null(kv_check(kv));
	kv_close(kv);
	kv_close(copy);
}

/*
 * A step does not wait for a far tier that does not answer, and the lines that it held can
 * leave.
 */
static void a_step_does_not_wait(void **state)
{
	struct kv *kv = open_far();
	struct kv_snapshot *s;
	struct kv_stat stat;

	assert_int_equal(kv_snapshot_start(kv, path, &s), 0);
	far.stopped = true; /* a wait ends the program */
	while (kv_snapshot_step(s, 1) == 1)
		;
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(kv_snapshot_step(s, 1000), KV_SNAPSHOT_WAITS);
	far.stopped = false;
	kv_snapshot_free(s);
	for (uint32_t key = 0; key < KEYS; key++) {
		uint8_t value[FAR_VALUE_MAX];

		assert_int_equal(run(kv, KV_GET, key, value, FAR_VALUE, 0), FAR_VALUE);
	}
	kv_get_stat(kv, &stat);
	assert_in_range(stat.near_lines, 1, FAR_NEAR + 64);
	assert_null(kv_check(kv));
	kv_close(kv);
}

static void a_broken_tier_completes_none(void **state)
{
	struct kv *kv = open_far();
	struct kv_snapshot *s;
	int more;

	assert_int_equal(kv_snapshot_start(kv, path, &s), 0);
	far.fail_at = far.started + 40;
	while ((more = kv_snapshot_step(s, 100)) > 0)
		;
	assert_int_equal(more, -EIO);
	assert_int_equal(kv_snapshot_finish(s), -EIO);
	kv_snapshot_free(s);
	kv_close(kv);
}

static int make_folder(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/roost-snapshot-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/store", folder);
	return 0;
}

static int remove_folder(void **state)
{
	char name[160];

	snprintf(name, sizeof(name), "%s.new", path);
	unlink(name);
	unlink(path);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_store_that_is_used_meanwhile),
		cmocka_unit_test(a_file_that_is_not_whole),
		cmocka_unit_test(a_store_that_is_too_small),
		cmocka_unit_test(a_snapshot_that_fails_leaves_the_old_one),
		cmocka_unit_test(a_folder_that_is_not_synced),
		cmocka_unit_test(the_next_one_after_a_bad_sync),
		cmocka_unit_test(a_snapshot_that_begins_when_another_ends),
		cmocka_unit_test(a_kill_leaves_a_whole_file),
		cmocka_unit_test(many_lines_at_once),
		cmocka_unit_test(a_step_does_not_wait),
		cmocka_unit_test(a_broken_tier_completes_none),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
