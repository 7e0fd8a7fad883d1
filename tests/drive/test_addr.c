/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses: opening with one, adding more while PUs run and service pollers sleep, and refused
 * addresses.
 */
#include "drive/engine.h"
#include "harness.h"

static struct pkt_addr addr(const char *text)
{
	struct pkt_addr a;

	if (pkt_addr_parse(text, &a))
		fail_msg("%s is no address", text);
	return a;
}

static struct drive *open_at(const char *text, struct drive_addr *where)
{
	char err[256] = "";
	struct pkt_addr a = addr(text);
	struct drive *d = NULL;
	int rc = drive_get_at(&harness_ops, &a, &d, where, err, sizeof(err));

	if (rc)
		fail_msg("drive_get_at %s: %d, %s", text, rc, err);
	return d;
}

static struct drive_addr add(struct drive *d, const char *text)
{
	struct drive_addr where = {0};
	struct pkt_addr a = addr(text);
	char err[256] = "";
	int rc = drive_add_addr(d, &a, &where, err, sizeof(err));

	if (rc)
		fail_msg("drive_add_addr %s: %d, %s", text, rc, err);
	return where;
}

static void opened_with_the_address(void **state)
{
	struct drive_addr where;
	struct drive *d;

	unsetenv("ROOST_PORT");
	atomic_store(&fake_opened, 0);
	d = open_at("127.0.0.3", &where);
	assert_string_equal(fake_spec[0], "host:127.0.0.3|0/1");
	assert_int_equal(atomic_load(&fake_opened), 1);
	assert_int_equal(where.port, 0);
	assert_int_equal(where.port_num, 1);
	assert_int_equal(where.gid_index, 0);
	assert_int_equal(where.mtu, 1024);
	drive_put(d);

	/*
	 * Options are kept. A port takes the address only if its specification leaves the choice.
	 */
	setenv("ROOST_PORT", "fake,loss=0.1;fake:::5", 1);
	atomic_store(&fake_opened, 0);
	d = open_at("::4", &where);
	assert_string_equal(fake_spec[0], "fake:::4,loss=0.1|0/1");
	assert_string_equal(fake_spec[1], "fake:::5|0/1");
	assert_int_equal(atomic_load(&fake_opened), 2);
	drive_put(d);
	setenv("ROOST_PORT", "fake", 1);
}

static void added_beside_a_given_one(void **state)
{
	struct drive_addr where;
	struct drive *d, *same;

	setenv("ROOST_PORT", "fake:127.0.0.7,loss=0.1,pcap=x.pcap,dup=0.5", 1);
	setenv("ROOST_PUS", "2", 1);
	atomic_store(&fake_opened, 0);
	d = open_at("::8", &where);
	assert_int_equal(atomic_load(&fake_opened), 4);
	assert_string_equal(fake_spec[0], "fake:127.0.0.7,loss=0.1,pcap=x.pcap,dup=0.5|0/2");
	/* Like the first, but its capture has a file of its own. */
	assert_string_equal(fake_spec[2], "fake:::8,loss=0.1,pcap=x.pcap-::8,dup=0.5|0/2");
	assert_string_equal(fake_spec[3], "fake:::8,loss=0.1,pcap=x.pcap-::8,dup=0.5|1/2");
	assert_int_equal(where.port, 1);
	assert_int_equal(where.gid_index, 1);
	/* An existing address is found. */
	same = open_at("127.0.0.7", &where);
	assert_ptr_equal(same, d);
	assert_int_equal(where.port, 0);
	assert_int_equal(add(d, "::8").port, 1);
	assert_int_equal(atomic_load(&fake_opened), 4);
	drive_put(same);
	drive_put(d);
	unsetenv("ROOST_PUS");
	setenv("ROOST_PORT", "fake", 1);
}

static void what_is_refused_leaves_nothing(void **state)
{
	unsigned opened = atomic_load(&fake_opened), closed = atomic_load(&fake_closed);
	struct pkt_addr taken = addr("127.0.0.66"), a = taken;
	struct drive_addr where = {.port = 77};
	struct drive *d = NULL;
	char err[256] = "";

	/* No port was open, and none stays open. */
	assert_int_equal(drive_get_at(&harness_ops, &taken, &d, &where, err, sizeof(err)),
			 -EADDRINUSE);
	assert_string_equal(err, "in use");
	assert_null(d);
	assert_true(harness_service_ended());
	d = harness_open();
	assert_int_equal(drive_add_addr(d, &taken, &where, err, sizeof(err)), -EADDRINUSE);
	assert_false(drive_find_addr(d, &taken, &where));
	assert_int_equal(where.port, 77);
	for (unsigned i = 1; i < NIC_MAX_PORTS; i++) {
		a.b[14] = (uint8_t)i;
		assert_int_equal(drive_add_addr(d, &a, &where, err, sizeof(err)), 0);
		assert_int_equal(where.port, i);
	}
	a.b[14] = 200;
	err[0] = '\0';
	assert_int_equal(drive_add_addr(d, &a, &where, err, sizeof(err)), -ENOSPC);
	assert_non_null(strstr(err, "at most 16"));
	drive_put(d);
	/* The two refused addresses were never counted as open. */
	assert_int_equal(atomic_load(&fake_opened) - opened - 2,
			 atomic_load(&fake_closed) - closed);
}

static void *add_one(void *arg)
{
	return add(arg, "127.0.0.44").port ? arg : NULL;
}

/* A thread that is cancelled while it adds an address ends its call first. */
static void adding_is_not_cancelled(void **state)
{
	struct drive *d = *state;
	unsigned opened = atomic_load(&fake_opened);
	void *result = NULL;
	pthread_t t;

	atomic_store(&fake_hold, true);
	assert_int_equal(pthread_create(&t, NULL, add_one, d), 0);
	assert_true(fake_reached(&fake_opened, opened + 1));
	assert_int_equal(pthread_cancel(t), 0);
	atomic_store(&fake_hold, false);
	assert_int_equal(pthread_join(t, &result), 0);
	assert_ptr_equal(result, d);
	assert_int_equal(add(d, "127.0.0.45").port, 2);
}

/*
 * A packet to the new address wakes the thread that slept when the address was added: the service
 * thread here.
 */
static void a_sleeping_service_thread_hears_it(void **state)
{
	struct drive *d = *state;
	struct drive_addr where;

	assert_true(harness_find_service() > 0);
	assert_true(fake_reached(&fake_port_of(d, 0, 0)->arms, 1));
	for (int round = 0; round < 5; round++) {
		char text[32];
		unsigned seen;

		snprintf(text, sizeof(text), "127.0.1.%d", 1 + round);
		where = add(d, text);
		seen = atomic_load(&drive_nic(d)->pu[0].packets);
		fake_inject(fake_port_of(d, where.port, 0), 1);
		assert_true(fake_reached(&drive_nic(d)->pu[0].packets, seen + 1));
	}
}

static void its_control_work_is_done(void **state)
{
	struct drive *d = *state;
	struct drive_addr where;
	struct fake_port *p;
	uint64_t one = 1;

	atomic_store(&fake_ctl_fd, 1);
	where = add(d, "127.0.2.1");
	atomic_store(&fake_ctl_fd, 0);
	p = fake_port_of(d, where.port, 0);
	assert_int_equal(write(p->base.ctl_fd, &one, sizeof(one)), sizeof(one));
	assert_true(fake_reached(&p->controls, 1));
}

struct waiting {
	struct drive *d;
	int fd;
	atomic_uint done;
	int rc;
};

static void *wait_for_fd(void *arg)
{
	struct waiting *w = arg;

	w->rc = drive_wait_fd(w->d, w->fd, UINT64_MAX);
	atomic_store(&w->done, 1);
	return NULL;
}

/*
 * The same for a thread blocked in a call of the library, which sleeps in poll(2): a packet makes
 * its event.
 */
static void a_waiter_hears_it(void **state)
{
	struct drive *d = *state;
	int event[2];
	struct waiting w = {.d = d};
	struct drive_addr where;
	pthread_t t;

	assert_int_equal(pipe(event), 0);
	w.fd = event[0];
	drive_nic(d)->event_ctx = &event[1];
	assert_int_equal(pthread_create(&t, NULL, wait_for_fd, &w), 0);
	while (!atomic_load(&d->waiting))
		harness_sleep_ms(1);
	where = add(d, "127.0.3.1");
	fake_inject(fake_port_of(d, where.port, 0), 1);
	assert_true(fake_reached(&w.done, 1));
	pthread_join(t, NULL);
	assert_int_equal(w.rc, 0);
	drive_nic(d)->event_ctx = NULL;
	close(event[0]);
	close(event[1]);
}

struct poller {
	struct drive *d;
	unsigned pu;
	atomic_bool stop;
};

static void *poll_pu(void *arg)
{
	struct poller *p = arg;

	while (!atomic_load(&p->stop))
		drive_progress(p->d, p->pu);
	return NULL;
}

/*
 * Two threads poll one PU each while addresses are added. Each packet is seen, and no turn runs
 * while a port is added.
 */
static void added_while_pus_run(void **state)
{
	struct poller p[2];
	struct drive *d;
	pthread_t t[2];

	setenv("ROOST_PUS", "2", 1);
	d = harness_open();
	for (unsigned i = 0; i < 2; i++) {
		p[i] = (struct poller){.d = d, .pu = i};
		assert_int_equal(pthread_create(&t[i], NULL, poll_pu, &p[i]), 0);
	}
	for (unsigned k = 1; k < NIC_MAX_PORTS; k++) {
		char text[32];
		struct drive_addr where;

		snprintf(text, sizeof(text), "127.0.4.%u", k);
		where = add(d, text);
		assert_int_equal(where.port, k);
		for (unsigned i = 0; i < 2; i++) {
			fake_inject(fake_port_of(d, where.port, i), 3);
			assert_true(fake_reached(&drive_nic(d)->pu[i].packets, 3 * k));
		}
	}
	for (unsigned i = 0; i < 2; i++) {
		atomic_store(&p[i].stop, true);
		pthread_join(t[i], NULL);
		assert_int_equal(atomic_load(&drive_nic(d)->pu[i].overlaps), 0);
	}
	drive_put(d);
	unsetenv("ROOST_PUS");
}

static void *add_the_same(void *arg)
{
	for (int i = 0; i < 8; i++) {
		char text[32];

		snprintf(text, sizeof(text), "127.0.5.%d", i);
		assert_int_equal(add(arg, text).port, add(arg, text).port);
	}
	return NULL;
}

static void added_by_threads_at_once(void **state)
{
	struct drive *d = *state;
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, add_the_same, d), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(drive_ports(d), 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opened_with_the_address),
		cmocka_unit_test(added_beside_a_given_one),
		cmocka_unit_test(what_is_refused_leaves_nothing),
		cmocka_unit_test_setup_teardown(adding_is_not_cancelled, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(a_sleeping_service_thread_hears_it, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(its_control_work_is_done, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(a_waiter_hears_it, harness_setup, harness_teardown),
		cmocka_unit_test(added_while_pus_run),
		cmocka_unit_test_setup_teardown(added_by_threads_at_once, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
