/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files that get their name when they are completely written: what is durable before what, and
 * which file is there after an error.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"

static char folder[64], path[80], temporary[80];

/* Returns the content of a file, or "" if there is none, or a folder. */
static const char *content(const char *name)
{
	static char text[16];
	FILE *f = fopen(name, "r");

	memset(text, 0, sizeof(text));
	if (f) {
		if (!fread(text, 1, sizeof(text) - 1, f))
			text[0] = 0;
		fclose(f);
	}
	return text;
}

static struct {
	unsigned files, folders;				  /* syncs */
	bool file_fails, folder_fails;				  /* with EIO */
	char at_file[16], at_folder[16], temporary_at_folder[16]; /* content at these syncs */
} syncs;

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
	struct stat st;
	bool fails;

	assert_int_equal(fstat(fd, &st), 0);
	if (S_ISDIR(st.st_mode)) {
		syncs.folders++;
		strcpy(syncs.at_folder, content(path));
		strcpy(syncs.temporary_at_folder, content(temporary));
		fails = syncs.folder_fails;
	} else {
		syncs.files++;
		strcpy(syncs.at_file, content(path));
		fails = syncs.file_fails;
	}
	errno = EIO;
	return fails ? -1 : __real_fsync(fd);
}

static void write_file(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(file_write(fd, text, strlen(text)), 0);
	close(fd);
}

/* Puts a file with the content "new" in place. Returns the result. */
static int put(bool replace)
{
	int fd, rc;

	write_file(temporary, "new");
	fd = open(temporary, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	rc = file_finish(fd, temporary, path, replace);
	assert_int_equal(close(fd), 0); /* it is still the caller's */
	return rc;
}

static int setup(void **state)
{
	(void)state;
	memset(&syncs, 0, sizeof(syncs));
	snprintf(folder, sizeof(folder), "/tmp/test-base-file.XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/file", folder);
	snprintf(temporary, sizeof(temporary), "%s/file.new", folder);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	unlink(temporary);
	return rmdir(folder);
}

static void expect(const char *at_path, const char *at_temporary)
{
	assert_string_equal(content(path), at_path);
	assert_string_equal(content(temporary), at_temporary);
}

/* The content is durable before the name, and the folder is synced when it has its last names. */
static void a_file_is_finished(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		bool replace = i & 1, old = i & 2;

		unlink(path);
		if (old)
			write_file(path, "old");
		memset(&syncs, 0, sizeof(syncs));
		assert_int_equal(put(replace), old && !replace ? -EEXIST : 0);
		if (old && !replace) {
			expect("old", "new");
			assert_int_equal(syncs.folders, 0);
			continue;
		}
		expect("new", "");
		assert_int_equal(syncs.files, 1);
		assert_string_equal(syncs.at_file, old ? "old" : "");
		assert_int_equal(syncs.folders, 1);
		assert_string_equal(syncs.at_folder, "new");
		assert_string_equal(syncs.temporary_at_folder, "");
	}
}

static void a_file_that_is_not_synced_is_not_finished(void **state)
{
	(void)state;
	write_file(path, "old");
	syncs.file_fails = true;
	assert_int_equal(put(true), -EIO);
	expect("old", "new");
	assert_int_equal(syncs.folders, 0);
	unlink(path);
	assert_int_equal(put(false), -EIO);
	expect("", "new");
}

static void a_file_that_is_not_renamed_is_not_finished(void **state)
{
	(void)state;
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(put(true), -EISDIR);
	assert_int_equal(put(false), -EEXIST);
	assert_int_equal(syncs.folders, 0);
	assert_int_equal(rmdir(path), 0);
	expect("", "new");
}

/* The new file is there, so the result is not that of an error before the rename. */
static void a_folder_that_is_not_synced(void **state)
{
	(void)state;
	write_file(path, "old");
	syncs.folder_fails = true;
	assert_int_equal(put(true), EIO);
	expect("new", "");
	unlink(path);
	assert_int_equal(put(false), EIO);
	expect("new", "");
	syncs.folder_fails = false;
	assert_int_equal(put(true), 0);
}

/* A name without a folder is in the present one. */
static void a_name_without_a_folder(void **state)
{
	int before = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	assert_true(before >= 0);
	assert_int_equal(chdir(folder), 0);
	strcpy(path, "file");
	strcpy(temporary, "file.new");
	assert_int_equal(put(true), 0);
	expect("new", "");
	assert_int_equal(syncs.folders, 1);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(fchdir(before), 0);
	close(before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_file_is_finished, setup, teardown),
		cmocka_unit_test_setup_teardown(a_file_that_is_not_synced_is_not_finished, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_file_that_is_not_renamed_is_not_finished, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_folder_that_is_not_synced, setup, teardown),
		cmocka_unit_test_setup_teardown(a_name_without_a_folder, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
