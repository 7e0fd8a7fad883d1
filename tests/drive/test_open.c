/* SPDX-License-Identifier: BSD-2-Clause */
/* Opening: the environment, one engine per process, the clock. */
#include <limits.h>

#include "drive/clock.h"
#include "harness.h"

static void one_engine(void **state)
{
	struct drive *a = harness_open(), *b = harness_open();
	unsigned closed = atomic_load(&fake_closed);

	assert_ptr_equal(a, b);
	drive_put(a);
	assert_int_equal(atomic_load(&fake_closed), closed);
	assert_true(harness_find_service() > 0);
	drive_put(b);
	assert_int_equal(atomic_load(&fake_closed), closed + 1);
	assert_true(harness_service_ended());
}

static void *get_and_put(void *arg)
{
	for (int i = 0; i < 10; i++) {
		struct drive *d = harness_open();

		drive_progress(d, 0);
		drive_put(d);
	}
	return NULL;
}

static void opened_by_threads(void **state)
{
	unsigned opened = atomic_load(&fake_opened), closed = atomic_load(&fake_closed);
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, get_and_put, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(atomic_load(&fake_opened) - opened, atomic_load(&fake_closed) - closed);
}

static void lanes_and_ports(void **state)
{
	struct drive *d;

	setenv("ROOST_PORT", ";fake,loss=0.1;fake:::1,mtu=256;", 1);
	setenv("ROOST_PUS", "3", 1);
	setenv("ROOST_SEED", "0x2a", 1);
	setenv("ROOST_TIMEOUT_SCALE", "50", 1);
	atomic_store(&fake_opened, 0);
	d = harness_open();
	assert_int_equal(atomic_load(&fake_opened), 6);
	assert_string_equal(fake_spec[0], "fake,loss=0.1|0/3");
	assert_string_equal(fake_spec[1], "fake:127.0.0.9,loss=0.1|1/3");
	assert_string_equal(fake_spec[2], "fake:127.0.0.9,loss=0.1|2/3");
	assert_string_equal(fake_spec[3], "fake:::1,mtu=256|0/3");
	assert_string_equal(fake_spec[4], "fake:::1,mtu=256|1/3");
	assert_int_equal(drive_nic(d)->cfg.seed[0], 42);
	assert_int_equal(drive_nic(d)->cfg.timeout_scale, 50);
	assert_int_equal(drive_nic(d)->cfg.ports, 2);
	assert_int_equal(drive_nic(d)->cfg.pus, 3);
	drive_put(d);
	unsetenv("ROOST_PUS");
	unsetenv("ROOST_SEED");
	unsetenv("ROOST_TIMEOUT_SCALE");
	unsetenv("ROOST_PORT");
	atomic_store(&fake_opened, 0);
	d = harness_open();
	assert_string_equal(fake_spec[0], "host|0/1");
	drive_put(d);
	setenv("ROOST_PORT", "fake", 1);
}

static void assert_refused(const char *name, const char *value, const char *says)
{
	char err[256] = "", *old = getenv(name) ? strdup(getenv(name)) : NULL;
	unsigned opened = atomic_load(&fake_opened), closed = atomic_load(&fake_closed);
	struct drive *d;

	setenv(name, value, 1);
	assert_int_equal(drive_get(&harness_ops, &d, err, sizeof(err)), -EINVAL);
	if (!strstr(err, says) || strchr(err, '\n'))
		fail_msg("%s=%s: '%s' does not say '%s' in one line", name, value, err, says);
	if (old)
		setenv(name, old, 1);
	else
		unsetenv(name);
	free(old);
	/* Ports opened before the failure are closed. The failed port is never counted. */
	opened = atomic_load(&fake_opened) - opened;
	closed = atomic_load(&fake_closed) - closed;
	assert_true(closed == (opened ? opened - 1 : 0));
}

static void bad_environment(void **state)
{
	char longspec[1000];

	assert_refused("ROOST_PUS", "0", "from 1 to 4");
	assert_refused("ROOST_PUS", "5", "from 1 to 4");
	assert_refused("ROOST_PUS", "two", "from 1 to 4");
	assert_refused("ROOST_PUS", "-1", "from 1 to 4");
	assert_refused("ROOST_PUS", "1x", "from 1 to 4");
	assert_refused("ROOST_TIMEOUT_SCALE", "0", "ROOST_TIMEOUT_SCALE=0");
	assert_refused("ROOST_SEED", "99999999999999999999999", "ROOST_SEED");
	assert_refused("ROOST_PORT", "fake;fake;fake", "at most 2");
	assert_refused("ROOST_PORT", "bad", "no such port");
	assert_refused("ROOST_PORT", "fake;bad", "no such port");
	memset(longspec, 'x', sizeof(longspec) - 1);
	longspec[sizeof(longspec) - 1] = '\0';
	assert_refused("ROOST_PORT", longspec, "too long");
}

static void clock_runs(void **state)
{
	uint64_t before, first, after, last, then;

	clock_start();
	last = clock_now();
	for (int i = 0; i < 1000000; i++) {
		uint64_t now = clock_now();

		assert_true(now >= last);
		last = now;
	}
	/*
	 * Over a tenth of a second the clock agrees with the system's clock to 1 part in 100,
	 * however loaded the machine is.
	 */
	before = clock_system();
	first = clock_now();
	after = clock_system();
	harness_sleep_ms(100);
	then = clock_system();
	last = clock_now();
	assert_true(last - first >= (then - after) / 100 * 99);
	assert_true(last - first <= (clock_system() - before) / 100 * 101);
}

/*
 * Faults of our own loads must be deliverable in the service thread. All other signals belong to
 * the program's threads.
 */
static void signals_are_the_programs(void **state)
{
	char path[64], line[128];
	unsigned long long blocked = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", harness_find_service());
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "SigBlk: %llx", &blocked);
	fclose(f);
	assert_false(blocked & 1ull << (SIGSEGV - 1));
	assert_false(blocked & 1ull << (SIGBUS - 1));
	assert_true(blocked & 1ull << (SIGINT - 1));
	assert_true(blocked & 1ull << (SIGALRM - 1));
	assert_true(blocked & 1ull << (SIGCHLD - 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_engine),
		cmocka_unit_test(opened_by_threads),
		cmocka_unit_test(lanes_and_ports),
		cmocka_unit_test(bad_environment),
		cmocka_unit_test(clock_runs),
		cmocka_unit_test_setup_teardown(signals_are_the_programs, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
