/* SPDX-License-Identifier: BSD-2-Clause */
/* Kernels in files: loading, refusal, replacement under load, unloading. */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/rng.h"
#include "kernels/object.h"
#include "objects/count.h"
#include "rig.h"

static struct rig R, *const r = &R;
static struct count_host host;
static char folder[] = "/tmp/roost-test-XXXXXX";

static const char *built(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s.so", OBJECTS, name);
	return path;
}

static void open_rig(uint64_t seed, const struct rig_shape *shape)
{
	rig_open(r, seed, shape);
	memset(&host, 0, sizeof(host));
}

/* Loads a file, or replaces the registered kernel by it. */
static int load(const char *path, bool replace)
{
	struct runtime_registration n = {.self = &host, .replace = replace};
	struct object o;
	struct kernel_version *s;
	char why[256];
	int rc = object_open(path, &o, why, sizeof(why));

	if (rc)
		return rc;
	n.k = o.kernel;
	n.object = &o;
	rc = runtime_prepare(r->f, &n, &s);
	if (rc)
		object_close(&o);
	else
		runtime_publish(r->f, s);
	return rc;
}

static void post(unsigned caller, unsigned slot, uint64_t reads)
{
	struct count_params p = {.where = (uintptr_t)r->node[caller].mem + 8 * slot,
				 .reads = reads};

	rig_post(r, caller, slot, COUNT_OP, &p, sizeof(p), sizeof(struct count_reply), 0);
}

static struct count_reply reply(unsigned caller, unsigned slot)
{
	struct rig_reply a = rig_wait(r, caller, slot, sizeof(struct count_reply));
	struct count_reply out;

	assert_int_equal(a.status, ROOST_RPC_OK);
	assert_int_equal(a.len, sizeof(out));
	memcpy(&out, a.data, sizeof(out));
	return out;
}

static unsigned versions(void)
{
	struct runtime_kernel_info info;
	unsigned n = 0;

	runtime_reap(r->f);
	while (runtime_kernel_info(r->f, n, &info))
		n++;
	return n;
}

static void until_over(void)
{
	world_run(&r->w, world_now(&r->w) + SEC);
	rig_reap(r);
}

/* ---- loading ---- */

static void load_and_unload(void **state)
{
	struct runtime_kernel_info info;

	open_rig(1, &(struct rig_shape){.sp = {.delay_ns = 1000}});
	assert_int_equal(load(built("count-1"), false), 0);
	assert_int_equal(host.started, 1);
	post(0, 3, 0);
	assert_int_equal(reply(0, 3).version, 1);
	assert_true(runtime_kernel_info(r->f, 0, &info));
	assert_string_equal(info.k->name, "count");
	assert_int_equal(info.op, COUNT_OP);
	assert_int_equal(info.state, RUNTIME_KERNEL_ACTIVE);
	assert_true(info.loaded);
	assert_int_equal(info.ctr.calls, 1);
	assert_int_equal(info.ctr.ended_ok, 1);
	assert_int_equal(info.ctr.steps, 3);
	/* Loading an existing op-code is refused, and so is replacing a missing one. */
	assert_int_equal(load(built("count-2"), false), -EEXIST);
	assert_int_equal(host.started, 1);
	/* Unloaded with a call in progress: the call completes, later calls find no kernel. */
	post(0, 4, 100000);
	while (rig_counters(r).calls < 2)
		world_step(&r->w, world_now(&r->w) + SEC);
	assert_int_equal(runtime_unload(r->f, COUNT_OP), 0);
	assert_int_equal(runtime_unload(r->f, COUNT_OP), -ENOENT);
	assert_int_equal(versions(), 1);
	assert_true(runtime_kernel_info(r->f, 0, &info));
	assert_int_equal(info.state, RUNTIME_KERNEL_LEAVING);
	assert_int_equal(info.in_flight, 1);
	post(1, 0, 0);
	assert_int_equal(rig_wait(r, 1, 0, sizeof(struct count_reply)).status, ROOST_RPC_NO_KERNEL);
	assert_int_equal(host.stopped, 0);
	assert_int_equal(reply(0, 4).sum, 1);
	until_over();
	assert_int_equal(versions(), 0);
	assert_int_equal(host.stopped, 1);
	assert_int_equal(load(built("count-2"), true), -ENOENT);
	assert_int_equal(load(built("count-2"), false), 0);
	rig_close(r);
	assert_int_equal(host.started, 2);
	assert_int_equal(host.stopped, 2);
}

/* The same path with other contents is another object. */
static void same_path_again(void **state)
{
	char path[64], command[700];

	open_rig(2, &(struct rig_shape){.sp = {.delay_ns = 1000}});
	snprintf(path, sizeof(path), "%s/kernel.so", folder);
	for (unsigned i = 0; i < 6; i++) {
		/*
		 * Overwritten in place: the inode is the same; the loaded object must not change.
		 */
		snprintf(command, sizeof(command), "cat %s >%s",
			 built(i & 1 ? "count-2" : "count-1"), path);
		assert_int_equal(system(command), 0);
		assert_int_equal(load(path, i > 0), 0);
		post(0, 0, 0);
		assert_int_equal(reply(0, 0).version, i & 1 ? 2 : 1);
		until_over();
	}
	unlink(path);
	post(0, 0, 0);
	assert_int_equal(reply(0, 0).version, 2);
	until_over();
	assert_int_equal(versions(), 1);
	rig_close(r);
	assert_int_equal(host.started, 1);
	assert_int_equal(host.taken, 5);
	assert_int_equal(host.stopped, 6);
}

static void write_file(const char *path, const void *data, size_t n)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static unsigned char *read_file(const char *path, size_t *n)
{
	FILE *f = fopen(path, "r");
	unsigned char *data;
	struct stat st;

	assert_non_null(f);
	assert_int_equal(fstat(fileno(f), &st), 0);
	*n = (size_t)st.st_size;
	data = malloc(*n);
	assert_int_equal(fread(data, 1, *n, f), *n);
	fclose(f);
	return data;
}

/* A name of the most bytes that Linux allows. */
static void a_long_name(void **state)
{
	char path[sizeof(folder) + 1 + NAME_MAX], why[2 * sizeof(path)] = "";
	struct object o;
	size_t n;
	unsigned char *good = read_file(built("count-1"), &n);

	memset(path, 'k', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	memcpy(path, folder, strlen(folder));
	path[strlen(folder)] = '/';
	write_file(path, good, n);
	assert_int_equal(object_open(path, &o, why, sizeof(why)), 0);
	assert_string_equal(why, "");
	assert_string_equal(o.kernel->name, "count");
	object_close(&o);
	unlink(path);
	free(good);
}

/* ---- files without a kernel ---- */

static void refused(const char *path, int rc, const char *says)
{
	struct object o;
	char why[256] = "";

	assert_int_equal(object_open(path, &o, why, sizeof(why)), rc);
	assert_non_null(strstr(why, path));
	assert_non_null(strstr(why, says));
	assert_null(strchr(why, '\n'));
}

static void no_kernels(void **state)
{
	char path[64];
	size_t n;
	unsigned char *good = read_file(built("count-1"), &n);

	snprintf(path, sizeof(path), "%s/bad.so", folder);
	refused(path, -ENOENT, "No such file");
	refused(folder, -ENOEXEC, "no file");
	refused("/dev/zero", -ENOEXEC, "no file");
	write_file(path, "", 0);
	refused(path, -ENOEXEC, "empty");
	write_file(path, "int main;\n", 10);
	refused(path, -ENOEXEC, "no shared object");
	refused(built("no-kernel"), -EINVAL, "ROOST_KERNEL_EXPORT");
	refused(built("other-abi"), -EPROTO, "build it again");
	refused(built("undefined"), -ENOEXEC, "nobody_has_this");
	/* For another machine. */
	good[18] ^= 0x40;
	write_file(path, good, n);
	refused(path, -ENOEXEC, "another kind of machine");
	good[18] ^= 0x40;
	/* A part of the file, as if a compiler is still writing it: any length. */
	for (size_t len = 1; len < n; len += 97) {
		struct object o;
		char why[256];

		write_file(path, good, len);
		assert_int_equal(object_open(path, &o, why, sizeof(why)), -ENOEXEC);
	}
	unlink(path);
	free(good);
}

/* ---- replacing ---- */

/*
 * A thousand replacements, with calls in flight on both QPs all the time, which are counted in
 * memory. No call is lost or runs twice, and each is answered by a version that was active during
 * the call.
 */
static void replace_under_load(const struct rig_shape *shape, uint64_t seed,
			       const char *const names[2])
{
	enum { FLIGHT = 24, TIMES = 1000 };
	uint64_t begun[RIG_CALLERS][FLIGHT], done[RIG_CALLERS][FLIGHT] = {{0}}, replaced = 0,
					     calls = 0;
	bool busy[RIG_CALLERS][FLIGHT] = {{false}};
	unsigned most = 0, left = RIG_CALLERS * FLIGHT;
	struct runtime_kernel_info info;
	struct rng rng;

	rng_seed(&rng, seed);
	open_rig(seed, shape);
	r->turn_ns = 500; /* otherwise all computation is done before the first reply arrives */
	assert_int_equal(load(built(names[0]), false), 0);
	while (left) {
		for (unsigned c = 0; c < RIG_CALLERS; c++) {
			for (unsigned s = 0; s < FLIGHT; s++) {
				struct rig_reply a;

				if (busy[c][s] &&
				    rig_poll(r, c, s, sizeof(struct count_reply), &a)) {
					struct count_reply got;

					assert_int_equal(a.status, ROOST_RPC_OK);
					memcpy(&got, a.data, sizeof(got));
					assert_int_equal(got.sum, ++done[c][s]);
					assert_in_range(got.generation, begun[c][s], replaced);
					busy[c][s] = false;
					left -= replaced == TIMES;
				}
				if (!busy[c][s] && replaced < TIMES) {
					post(c, s,
					     rng_below(&rng, rng_below(&rng, 16) ? 40 : 3000));
					begun[c][s] = replaced;
					busy[c][s] = true;
					calls++;
				}
			}
		}
		rig_reap(r);
		if (replaced < TIMES && rng_below(&rng, 3) == 0) {
			assert_int_equal(load(built(names[(replaced + 1) & 1]), true), 0);
			replaced++;
			if (versions() > most)
				most = versions();
		}
		rig_step(r);
	}
	until_over();
	assert_true(most > 3); /* several at once */
	assert_int_equal(versions(), 1);
	assert_true(runtime_kernel_info(r->f, 0, &info));
	assert_int_equal(info.ctr.calls, calls);
	assert_int_equal(info.ctr.ended_ok, calls);
	assert_int_equal(host.started, 1);
	assert_int_equal(host.taken, TIMES);
	rig_close(r);
}

static void a_thousand_replacements(void **state)
{
	static const char *const own[2] = {"count-1", "count-2"}, *const shared[2] = {"share-1",
										      "share-2"};

	replace_under_load(&(struct rig_shape){.sp = {.delay_ns = 2000}}, 10, own);
	assert_int_equal(host.stopped, 1001);
	replace_under_load(
		&(struct rig_shape){
			.sp = {.loss = 0.02, .dup = 0.02, .reorder = 0.02, .delay_ns = 2000}},
		11, own);
	assert_int_equal(host.stopped, 1001);
	replace_under_load(&(struct rig_shape){.loop = true}, 12, own);
	assert_int_equal(host.stopped, 1001);
	replace_under_load(&(struct rig_shape){.sp = {.delay_ns = 2000}}, 13, shared);
	assert_int_equal(host.stopped, 1);
}

/* A shared `self` ends once, after the last call of the versions that use it. */
static void a_self_that_is_shared(void **state)
{
	open_rig(20, &(struct rig_shape){.sp = {.delay_ns = 1000}});
	assert_int_equal(load(built("share-1"), false), 0);
	post(0, 0, 200000);
	while (!rig_counters(r).calls)
		world_step(&r->w, world_now(&r->w) + SEC);
	/* Versions in between are replaced and freed, though the first one still has a call. */
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(load(built(i & 1 ? "share-1" : "share-2"), true), 0);
	assert_int_equal(versions(), 2);
	assert_int_equal(runtime_unload(r->f, COUNT_OP), 0);
	assert_int_equal(versions(),
			 2); /* the last one has no calls, but is to end what the first one uses */
	assert_int_equal(host.stopped, 0);
	assert_int_equal(reply(0, 0).sum, 1);
	until_over();
	assert_int_equal(versions(), 0);
	assert_int_equal(host.stopped, 1);
	assert_int_equal(host.taken, 5);
	rig_close(r);
}

static int make_folder(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(load_and_unload),
		cmocka_unit_test(same_path_again),
		cmocka_unit_test(a_long_name),
		cmocka_unit_test(no_kernels),
		cmocka_unit_test(a_thousand_replacements),
		cmocka_unit_test(a_self_that_is_shared),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
