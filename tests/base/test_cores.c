/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/mem.h"

static char top[] = "/tmp/roost-cores-XXXXXX";

static char *at(const char *name)
{
	static char path[4][256];
	static unsigned turn;
	char *p = path[turn++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", top, name);
	return p;
}

static void write_file(const char *name, const char *text)
{
	FILE *f = fopen(at(name), "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void make_dir(const char *name)
{
	mkdir(at(name), 0700);
}

/*
 * The quota of a process in `cgroup`, with one mount of that root, type and options at the folder
 * `mount_point`.
 */
static double quota(const char *cgroup, const char *root, const char *mount_point, const char *type,
		    const char *options)
{
	char line[512];

	write_file("cgroup", cgroup);
	snprintf(
		line, sizeof(line),
		"21 1 0:20 / /proc rw - proc proc rw\n30 24 0:26 %s %s/%s rw,nosuid shared:9 - %s %s %s\n",
		root, top, mount_point, type, type, options);
	write_file("mountinfo", line);
	return cores_quota_from(at("mountinfo"), at("cgroup"));
}

static void version_2(void **state)
{
	make_dir("v2");
	make_dir("v2/a");
	make_dir("v2/a/b");
	write_file("v2/a/cpu.max", "max 100000\n");
	write_file("v2/a/b/cpu.max", "50000 100000\n");
	assert_true(quota("0::/a/b\n", "/", "v2", "cgroup2", "rw") == 0.5);
	assert_true(quota("0::/a\n", "/", "v2", "cgroup2", "rw") == 0);
	/* The parent group has a smaller quota. */
	write_file("v2/a/cpu.max", "20000 100000\n");
	assert_true(quota("0::/a/b\n", "/", "v2", "cgroup2", "rw") == 0.2);
	/* In a namespace of control groups, the own group is the root. */
	assert_true(quota("0::/\n", "/", "v2/a/b", "cgroup2", "rw") == 0.5);
	/* A mount that shows only the own group, by its name outside of the namespace. */
	assert_true(quota("0::/x/y\n", "/x/y", "v2/a/b", "cgroup2", "rw") == 0.5);
	assert_true(quota("0::/x/y\n", "/x/yy", "v2/a/b", "cgroup2", "rw") == 0.5);
	assert_true(quota("0::/\n", "/..", "v2/a", "cgroup2", "rw") == 0.2);
}

static void version_1(void **state)
{
	make_dir("v1");
	make_dir("v1/docker");
	make_dir("v1/docker/id");
	write_file("v1/cpu.cfs_quota_us", "-1\n");
	write_file("v1/cpu.cfs_period_us", "100000\n");
	write_file("v1/docker/id/cpu.cfs_quota_us", "150000\n");
	write_file("v1/docker/id/cpu.cfs_period_us", "100000\n");
	assert_true(quota("4:memory:/other\n3:cpu,cpuacct:/docker/id\n0::/\n", "/", "v1", "cgroup",
			  "rw,cpu,cpuacct") == 1.5);
	assert_true(quota("3:cpu:/docker/id\n", "/docker/id", "v1/docker/id", "cgroup", "rw,cpu") ==
		    1.5);
	assert_true(quota("3:cpu:/\n", "/", "v1", "cgroup", "rw,cpu") == 0);
	/* Other controllers have no such files; cpuset is not cpu. */
	assert_true(quota("3:cpuset:/docker/id\n", "/", "v1", "cgroup", "rw,cpuset") == 0);
	assert_true(quota("3:cpu:/docker/id\n", "/", "v1", "cgroup", "rw,cpuset") == 0);
}

/* The same groups limit the memory. */
static uint64_t memory_of(const char *cgroup, const char *root, const char *mount_point,
			  const char *type, const char *options)
{
	quota(cgroup, root, mount_point, type, options);
	return mem_allowed_from(at("mountinfo"), at("cgroup"));
}

static void memory(void **state)
{
	assert_int_equal(memory_of("0::/a/b\n", "/", "v2", "cgroup2", "rw"), 0);
	write_file("v2/a/b/memory.max", "max\n");
	assert_int_equal(memory_of("0::/a/b\n", "/", "v2", "cgroup2", "rw"), 0);
	write_file("v2/a/memory.max", "268435456\n");
	assert_int_equal(memory_of("0::/a/b\n", "/", "v2", "cgroup2", "rw"), 268435456);
	write_file("v2/a/b/memory.max", "1048576\n");
	assert_int_equal(memory_of("0::/a/b\n", "/", "v2", "cgroup2", "rw"), 1048576);
	/* In version 1, a number above the memory of any machine means no limit. */
	write_file("v1/memory.limit_in_bytes", "9223372036854771712\n");
	assert_int_equal(memory_of("3:memory:/docker/id\n", "/", "v1", "cgroup", "rw,memory"), 0);
	write_file("v1/docker/id/memory.limit_in_bytes", "536870912\n");
	assert_int_equal(memory_of("3:memory:/docker/id\n", "/", "v1", "cgroup", "rw,memory"),
			 536870912);
	assert_int_equal(memory_of("3:memory:/docker/id\n", "/", "v1", "cgroup", "rw,cpu"), 0);
	assert_true(mem_allowed() > 0);
}

static void nothing_to_read(void **state)
{
	assert_true(cores_quota_from("/nonexistent", "/nonexistent") == 0);
	write_file("mountinfo", "nonsense\n - cgroup2\n1 2 3 - cgroup2 x rw\n");
	assert_true(cores_quota_from(at("mountinfo"), "/nonexistent") == 0);
	write_file("cgroup", "0::\n::\n:\n");
	assert_true(cores_quota_from(at("mountinfo"), at("cgroup")) == 0);
	write_file("v2/a/b/cpu.max", "0 0\n");
	write_file("v2/a/cpu.max", "\n");
	assert_true(quota("0::/a/b\n", "/", "v2", "cgroup2", "rw") == 0);
}

static void own(void **state)
{
	cpu_set_t set;

	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	assert_int_equal(cores_allowed(), CPU_COUNT(&set));
	assert_true(cores_quota() >= 0);
	assert_int_equal(cores_quota_short(), cores_quota() > 0 && cores_quota() < 2);
}

static int set_up(void **state)
{
	return mkdtemp(top) ? 0 : -1;
}

static int tear_down(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", top);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(version_2), cmocka_unit_test(version_1),
		cmocka_unit_test(memory),    cmocka_unit_test(nothing_to_read),
		cmocka_unit_test(own),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
