/* SPDX-License-Identifier: BSD-2-Clause */
/* The stat socket answers its owner and no other user, and never blocks the service thread. */
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/rest.h"
#include "harness.h"

#define STRANGER 65534
#define WAIT_MS	 60000
#define LOOKS	 5

static atomic_uint refusals; /* calls of accept that found no free descriptor */
static _Atomic uint64_t refused_ms;

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int __real_sys_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags);
int __wrap_sys_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags);

int __wrap_sys_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags)
{
	int rc = __real_sys_accept4(fd, a, len, flags);

	if (rc == -EMFILE) {
		if (!atomic_load(&refusals))
			atomic_store(&refused_ms, now_ms());
		atomic_fetch_add(&refusals, 1);
	}
	return rc;
}

static int connect_to(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(strlen(path) < sizeof(sa.sun_path));
	strcpy(sa.sun_path, path);
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		close(fd);
		return -errno;
	}
	return fd;
}

/* Returns the number of bytes before the end of the stream. */
static ssize_t to_the_end(int fd, char *buf, size_t n)
{
	size_t have = 0;
	ssize_t got;

	while (have < n - 1 && (got = read(fd, buf + have, n - 1 - have)) > 0)
		have += (size_t)got;
	buf[have] = '\0';
	return (ssize_t)have;
}

/* The same for a new connection; -1: there is none. */
static ssize_t ask(const char *path, char *buf, size_t n)
{
	int fd = connect_to(path);
	ssize_t have;

	if (fd < 0)
		return -1;
	have = to_the_end(fd, buf, n);
	close(fd);
	return have;
}

static void answers_its_owner(void **state)
{
	struct drive *d = *state;
	char path[256], buf[65536];
	struct stat st;
	json_t *o, *port;

	fake_inject(fake_port_of(d, 0, 0), 7);
	assert_true(fake_reached(&drive_nic(d)->pu[0].packets, 7));
	assert_int_equal(drive_stat_path(path, sizeof(path), getpid()), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	for (int i = 0; i < 5; i++) {
		for (int k = 0; k < 1000 * i; k++)
			drive_progress(d, 0);
		assert_true(ask(path, buf, sizeof(buf)) > 0);
	}
	o = json_loads(buf, 0, NULL);
	assert_non_null(o);
	assert_int_equal(json_integer_value(json_object_get(o, "pid")), getpid());
	assert_string_equal(json_string_value(json_object_get(o, "program")),
			    program_invocation_short_name);
	assert_true(json_real_value(json_object_get(o, "uptime_s")) > 0);
	assert_int_equal(json_integer_value(json_object_get(o, "pus")), 1);
	assert_int_equal(json_array_size(json_object_get(o, "ports")), 1);
	port = json_array_get(json_object_get(o, "ports"), 0);
	assert_string_equal(json_string_value(json_object_get(port, "kind")), "fake");
	assert_string_equal(json_string_value(json_object_get(port, "address")), "127.0.0.9");
	assert_int_equal(json_integer_value(json_object_get(port, "mtu")), 1024);
	assert_true(json_is_integer(json_object_get(json_object_get(port, "stats"), "rx_packets")));
	assert_int_equal(json_object_size(json_object_get(o, "counters")), NIC_COUNTER_COUNT);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(o, "counters"), "rcvd_pkts")),
		7);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "usage"), "qps")),
			 3);
	json_decref(o);
}

static const char *label(size_t i)
{
	return i ? "second" : "first";
}

static void read_all(uint64_t *values)
{
	values[0] = 5;
	values[1] = 6;
}

static void read_one_pu(const struct nic *nic, unsigned pu, uint64_t *values)
{
	values[0] = 7;
	values[1] = 100 + pu;
}

/* Groups of counters that other layers register, for the whole NIC or for each PU. */
static void shows_groups(void **state)
{
	static const struct drive_stat_group whole = {
		.name = "whole", .count = 2, .label = label, .read = read_all};
	static const struct drive_stat_group parts = {
		.name = "parts", .count = 2, .label = label, .read_pu = read_one_pu};
	struct drive *d = *state;
	char path[256], buf[65536];
	json_t *o, *g;

	drive_stat_show(d, &whole);
	drive_stat_show(d, &parts);
	assert_int_equal(drive_stat_path(path, sizeof(path), getpid()), 0);
	assert_true(ask(path, buf, sizeof(buf)) > 0);
	o = json_loads(buf, 0, NULL);
	g = json_object_get(o, "whole");
	assert_int_equal(json_integer_value(json_object_get(g, "first")), 5);
	assert_int_equal(json_integer_value(json_object_get(g, "second")), 6);
	g = json_object_get(o, "parts");
	assert_int_equal(json_integer_value(json_object_get(g, "first")), 7);
	assert_int_equal(json_integer_value(json_object_get(g, "second")), 100);
	json_decref(o);
}

/* Returns the answer; NULL: none has come in time. */
static json_t *answer_in_time(const char *path)
{
	int fd = connect_to(path);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char buf[65536];
	json_t *o = NULL;

	if (fd >= 0 && poll(&p, 1, WAIT_MS) == 1 && to_the_end(fd, buf, sizeof(buf)) > 0)
		o = json_loads(buf, 0, NULL);
	close(fd);
	return o;
}

static void *add_address(void *arg)
{
	struct drive_addr where;
	struct pkt_addr a;
	char err[256];

	if (pkt_addr_parse("127.0.0.77", &a) || drive_add_addr(arg, &a, &where, err, sizeof(err)))
		return NULL;
	return arg;
}

/* To open an address takes a second if members of the pool are stopped. */
static void answers_while_an_address_opens(void **state)
{
	struct drive *d = *state;
	unsigned opened = atomic_load(&fake_opened);
	void *added = NULL;
	char path[256];
	pthread_t t;
	json_t *o;

	assert_int_equal(drive_stat_path(path, sizeof(path), getpid()), 0);
	atomic_store(&fake_hold, true);
	assert_int_equal(pthread_create(&t, NULL, add_address, d), 0);
	assert_true(fake_reached(&fake_opened, opened + 1));
	o = answer_in_time(path);
	atomic_store(&fake_hold, false);
	pthread_join(t, &added);
	assert_ptr_equal(added, d);
	assert_non_null(o);
	assert_int_equal(json_array_size(json_object_get(o, "ports")), 1);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "usage"), "qps")),
			 3);
	json_decref(o);
	o = answer_in_time(path);
	assert_int_equal(json_array_size(json_object_get(o, "ports")), 2);
	json_decref(o);
}

/* A control call that does not return. The values that it changes are left out. */
static void answers_during_a_control_call(void **state)
{
	struct drive *d = *state;
	char path[256];
	bool received;
	json_t *o;

	assert_int_equal(drive_stat_path(path, sizeof(path), getpid()), 0);
	drive_control_lock(d);
	o = answer_in_time(path);
	fake_inject(fake_port_of(d, 0, 0), 1);
	received = fake_reached(&drive_nic(d)->pu[0].packets, 1);
	drive_control_unlock(d);
	assert_non_null(o);
	assert_true(received);
	assert_int_equal(json_integer_value(json_object_get(o, "pid")), getpid());
	assert_int_equal(json_object_size(json_object_get(o, "counters")), NIC_COUNTER_COUNT);
	assert_null(json_object_get(o, "usage"));
	assert_null(json_object_get(o, "chains"));
	json_decref(o);
	o = answer_in_time(path);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "usage"), "qps")),
			 3);
	assert_non_null(json_object_get(o, "chains"));
	json_decref(o);
}

/*
 * The process has no descriptor left. A client is hung up on, because the socket would stay
 * readable and keep the service thread busy. Later clients are answered again.
 */
static void without_descriptors(void **state)
{
	struct rlimit was, less;
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct pollfd p = {.events = POLLIN};
	char buf[65536];
	int last;

	assert_int_equal(drive_stat_path(sa.sun_path, sizeof(sa.sun_path), getpid()), 0);
	p.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	last = dup(p.fd);
	assert_int_equal(close(last), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	less = was;
	less.rlim_cur = (rlim_t)last; /* all numbers below are in use */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &less), 0);
	assert_int_equal(connect(p.fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	assert_int_equal(read(p.fd, buf, sizeof(buf)), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_true(ask(sa.sun_path, buf, sizeof(buf)) > 0);
	close(p.fd);
}

/*
 * The process has no descriptor left, and lost the spare one, whose number is above the limit. The
 * service thread rests between its looks, and answers the client when it has a descriptor.
 */
static void without_a_spare_descriptor(void **state)
{
	struct rlimit was, less;
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	char buf[65536];
	uint64_t ms;
	int fd;

	assert_int_equal(drive_stat_path(sa.sun_path, sizeof(sa.sun_path), getpid()), 0);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	less = was;
	less.rlim_cur = 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &less), 0);
	atomic_store(&refusals, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_true(fake_reached(&refusals, 1));
	do
		harness_sleep_ms(10);
	while ((ms = now_ms() - atomic_load(&refused_ms)) < LOOKS * REST_MS);
	/* the first look has two calls: without and with the spare descriptor */
	assert_in_range(atomic_load(&refusals), 1, 3 + ms / REST_MS);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_true(to_the_end(fd, buf, sizeof(buf)) > 0);
	close(fd);
}

/* Clients that connect and never read, or that close at once, must not block the service thread. */
static void rude_peers(void **state)
{
	struct drive *d = *state;
	char path[256], buf[65536];
	int fd[64];

	assert_int_equal(drive_stat_path(path, sizeof(path), getpid()), 0);
	for (int i = 0; i < 64; i++) {
		fd[i] = connect_to(path);
		if (i % 2 && fd[i] >= 0) {
			close(fd[i]);
			fd[i] = -1;
		}
	}
	fake_inject(fake_port_of(d, 0, 0), 1);
	assert_true(fake_reached(&drive_nic(d)->pu[0].packets, 1));
	assert_true(ask(path, buf, sizeof(buf)) > 0);
	for (int i = 0; i < 64; i++) {
		if (fd[i] >= 0)
			close(fd[i]);
	}
}

/*
 * If the folder and the socket let another user in, that user still gets nothing. Needs root to
 * change the user.
 */
static void refuses_others(void **state)
{
	char path[256];
	pid_t pid;
	int status;

	if (geteuid() != 0) {
		print_message("SKIPPED: only root can become another user\n");
		skip();
	}
	assert_int_equal(drive_stat_path(path, sizeof(path), getpid()), 0);
	for (int open = 0; open < 2; open++) {
		if (open) {
			chmod(harness_dir, 0711);
			chmod(path, 0777);
		}
		fflush(NULL);
		pid = fork();
		if (pid == 0) {
			char buf[4096];
			ssize_t n;

			if (setgid(STRANGER) || setuid(STRANGER))
				_exit(2);
			n = ask(path, buf, sizeof(buf));
			/* Refused; or connected because of wrong rights, and closed. */
			_exit(open ? n != 0 : n != -1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		chmod(harness_dir, 0700);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

/* A folder that other users may change is not used. The NIC runs nevertheless. */
static void folder_not_private(void **state)
{
	char path[256];
	struct drive *d;

	chmod(harness_dir, 0755);
	assert_int_equal(drive_stat_path(path, sizeof(path), getpid()), -EPERM);
	d = harness_open();
	fake_inject(fake_port_of(d, 0, 0), 1);
	assert_true(fake_reached(&drive_nic(d)->pu[0].packets, 1));
	drive_put(d);
	chmod(harness_dir, 0700);
}

/* A dead process had our process id, and its socket file is still there. */
static void stale_socket(void **state)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	char buf[65536];
	struct drive *d;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(drive_stat_path(sa.sun_path, sizeof(sa.sun_path), getpid()), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	close(fd);
	d = harness_open();
	assert_true(ask(sa.sun_path, buf, sizeof(buf)) > 0);
	drive_put(d);
	assert_int_equal(access(sa.sun_path, F_OK), -1);
}

static void short_buffer(void **state)
{
	char path[8];

	assert_int_equal(drive_stat_path(path, sizeof(path), 1), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(answers_its_owner, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(shows_groups, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(answers_while_an_address_opens, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(answers_during_a_control_call, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(without_a_spare_descriptor, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(without_descriptors, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(rude_peers, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(refuses_others, harness_setup, harness_teardown),
		cmocka_unit_test(folder_not_private),
		cmocka_unit_test(stale_socket),
		cmocka_unit_test(short_buffer),
	};

	return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
