/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of partitions: the text, its errors, and the file. */
#include <errno.h>
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

#include "base/mem.h"
#include "kvwire/table.h"

#define HEAD "roost-kv-partitions 1\nversion 7\nseed 00000000000000ff\npartitions 4\n"

static const char text[] = HEAD "node 10.0.0.1 4792 0-1,3\nnode fd00::2 1 none\n"
				"from fd00::2 1 0,3\nlost 7 0,2-3\nlost 5 1\nend\n";

static struct kv_table table, again;

static bool bad_folders; /* the syncs of folders fail */

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
	struct stat st;

	if (!bad_folders || fstat(fd, &st) || !S_ISDIR(st.st_mode))
		return __real_fsync(fd);
	errno = EIO;
	return -1;
}

static int parse(struct kv_table *t, const char *s, char *why, size_t len)
{
	return kv_table_parse(t, s, strlen(s), why, len);
}

static void test_text(void **state)
{
	char why[200], out[400];

	(void)state;
	assert_int_equal(parse(&table, text, why, sizeof(why)), 0);
	assert_int_equal(table.version, 7);
	assert_int_equal(table.seed, 255);
	assert_int_equal(table.partitions, 4);
	assert_int_equal(table.nodes, 2);
	assert_int_equal(table.owner[1], 0);
	assert_int_equal(table.owner[2], KV_TABLE_NOBODY);
	assert_int_equal(table.owner[3], 0);
	assert_int_equal(table.from[0], 1);
	assert_int_equal(table.from[1], KV_TABLE_NOBODY);
	assert_int_equal(table.from[3], 1);
	assert_int_equal(table.lost[1], 5);
	assert_int_equal(table.lost[3], 7);
	assert_int_equal(kv_table_find(&table, "fd00::2", 1), 1);
	assert_int_equal(kv_table_find(&table, "fd00::2", 2), -1);
	assert_int_equal(kv_table_format(&table, out, sizeof(out)), strlen(text));
	assert_string_equal(out, text);
}

/* A text that is cut anywhere is refused. */
static void test_cut(void **state)
{
	char why[200];

	(void)state;
	for (size_t len = 0; len < strlen(text); len++)
		assert_int_equal(kv_table_parse(&table, text, len, why, sizeof(why)), -EBADMSG);
}

static void test_errors(void **state)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{"", "line 1: 'roost-kv-partitions' is missing"},
		{"roost-kv-partitions 2\n", "line 1: this is a table of another format"},
		{"roost-kv-partitions 1\nversion 0\n", "line 2: versions count from 1"},
		{"roost-kv-partitions 1\nversion 1\nseed g\n",
		 "line 3: 'seed' takes a number up to 18446744073709551615"},
		{"roost-kv-partitions 1\nversion 1\nseed 0\npartitions 3\n",
		 "line 4: the number of partitions is a power of two"},
		{"roost-kv-partitions 1\nversion 1\nseed 0\npartitions 2048\n",
		 "line 4: 'partitions' takes a number up to 1024"},
		{HEAD "node a 1 4\nend\n", "line 5: partitions are numbers below 4: 0-3,7"},
		{HEAD "node a 1 2-1\nend\n", "line 5: partitions are numbers below 4: 0-3,7"},
		{HEAD "node a 1 0,\nend\n", "line 5: partitions are numbers below 4: 0-3,7"},
		{HEAD "node a 1 0\nnode b 1 0\nend\n", "line 6: partition 0 has an owner already"},
		{HEAD "node a 1 0\nnode a 1 1\nend\n", "line 6: the node is in the table already"},
		{HEAD "node a 65536 0\nend\n", "line 5: a node has a service from 1 to 65535"},
		{HEAD "node a 1\nend\n", "line 5: a node has one list of partitions, or none"},
		{HEAD "nodes\n", "line 5: neither 'node' nor 'from' nor 'lost' nor 'end'"},
		{HEAD "end\nend\n", "line 5: text behind the end"},
		{HEAD "node a 1 0\nfrom a 1 0\n", "line 6: partition 0 moves to no other node"},
		{HEAD "node a 1 0\nfrom a 1 1\n", "line 6: partition 1 moves to no other node"},
		{HEAD "node a 1 0\nfrom b 1 0\n", "line 6: the table does not have this node"},
		{HEAD "node a 1 0\nnode b 1 1\nfrom b 1 0,0\n",
		 "line 7: partition 0 moves already"},
		{HEAD "node a 1 0\nlost 8 0\n",
		 "line 6: partitions are lost in a version up to that of the table"},
		{HEAD "lost 0 0\n",
		 "line 5: partitions are lost in a version up to that of the table"},
		{HEAD "lost 1\n", "line 5: one list of partitions is lost"},
		{HEAD "lost 1 4\n", "line 5: partitions are numbers below 4: 0-3,7"},
		{HEAD "lost 1 0\nlost 2 0\n", "line 6: partition 0 is lost twice"},
	};
	char why[200];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(parse(&table, bad[i].text, why, sizeof(why)), -EBADMSG);
		assert_string_equal(why, bad[i].why);
	}
}

static void test_versions(void **state)
{
	(void)state;
	parse(&table, text, NULL, 0);
	again = table;
	assert_false(kv_table_follows(&again, &table));
	again.version++;
	assert_true(kv_table_follows(&again, &table));
	assert_false(kv_table_follows(&table, &again));
	again.seed++;
	assert_false(kv_table_follows(&again, &table));
	again.seed--;
	again.partitions *= 2;
	assert_false(kv_table_follows(&again, &table));
}

/* Keys are spread over all partitions, and differently with another seed. */
static void test_spread(void **state)
{
	unsigned count[16] = {0}, same = 0;

	(void)state;
	for (uint32_t key = 0; key < 16000; key++) {
		unsigned at = kv_table_partition(1, 16, &key, sizeof(key));

		count[at]++;
		same += at == kv_table_partition(2, 16, &key, sizeof(key));
	}
	for (unsigned i = 0; i < 16; i++)
		assert_in_range(count[i], 800, 1200);
	assert_in_range(same, 800, 1200);
}

static void test_file(void **state)
{
	char folder[] = "/tmp/test-kvwire-table.XXXXXX", path[64], why[200];

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/table", folder);
	parse(&table, text, why, sizeof(why));
	assert_int_equal(kv_table_read(&again, path, why, sizeof(why)), -ENOENT);
	assert_int_equal(kv_table_create(&table, path, why, sizeof(why)), 0);
	assert_int_equal(kv_table_read(&again, path, why, sizeof(why)), 0);
	assert_memory_equal(&again, &table, sizeof(table));
	table.version++;
	assert_int_equal(kv_table_create(&table, path, why, sizeof(why)), -EEXIST);
	assert_int_equal(kv_table_read(&table, path, why, sizeof(why)), 0);
	assert_int_equal(table.version, 7);
	table.version++;
	assert_int_equal(kv_table_replace(&table, path, NULL, why, sizeof(why)), 0);
	assert_int_equal(kv_table_read(&again, path, why, sizeof(why)), 0);
	assert_int_equal(again.version, 8);
	unlink(path);
	assert_int_equal(rmdir(folder), 0); /* no temporary file is left */
}

/* A process with the same id was killed before it had written its table. */
static void test_file_of_a_killed_process(void **state)
{
	char folder[] = "/tmp/test-kvwire-table.XXXXXX", path[64], left[80], why[200];
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/table", folder);
	snprintf(left, sizeof(left), "%s.%d", path, (int)getpid());
	parse(&table, text, why, sizeof(why));
	for (unsigned i = 0; i < 2; i++) {
		f = fopen(left, "w");
		assert_non_null(f);
		fputs("roost-kv-par", f);
		fclose(f);
		table.version++;
		assert_int_equal(i ? kv_table_replace(&table, path, NULL, why, sizeof(why))
				   : kv_table_create(&table, path, why, sizeof(why)),
				 0);
		assert_int_equal(kv_table_read(&again, path, why, sizeof(why)), 0);
		assert_int_equal(again.version, table.version);
	}
	unlink(path);
	assert_int_equal(rmdir(folder), 0);
}

/*
 * Only the sync of the folder fails: the result and the line say that the new table is in place,
 * and not that there was an error before.
 */
static void test_file_in_a_folder_that_is_not_synced(void **state)
{
	char folder[] = "/tmp/test-kvwire-table.XXXXXX", path[64], why[200];

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/table", folder);
	parse(&table, text, why, sizeof(why));
	for (unsigned i = 0; i < 2; i++) {
		table.version++;
		bad_folders = true;
		assert_int_equal(i ? kv_table_replace(&table, path, NULL, why, sizeof(why))
				   : kv_table_create(&table, path, why, sizeof(why)),
				 EIO);
		bad_folders = false;
		assert_non_null(strstr(why, path));
		assert_non_null(strstr(why, "the new file is in place"));
		assert_non_null(strstr(why, strerror(EIO)));
		assert_int_equal(kv_table_read(&again, path, why, sizeof(why)), 0);
		assert_int_equal(again.version, table.version);
	}
	unlink(path);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_spread),
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_file_of_a_killed_process),
		cmocka_unit_test(test_file_in_a_folder_that_is_not_synced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
