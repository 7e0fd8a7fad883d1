/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork(): the parent keeps its NIC, the child starts with none, and inherited handles do no harm.
 */
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "drive/engine.h"
#include "harness.h"

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "child: %s:%d: %s\n", __FILE__, __LINE__, #cond);          \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/*
 * A child's service thread ends with the child. The test includes the functions that exit() runs.
 */
static void assert_child_ok(pid_t pid)
{
	int status = -1;

	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static bool file_is_there(int pid)
{
	char path[256];

	return drive_stat_path(path, sizeof(path), pid) == 0 && access(path, F_OK) == 0;
}

static void use_the_dead(struct drive *d, struct fake_port *port)
{
	int fd = eventfd(1, EFD_CLOEXEC);

	CHECK(drive_dead(d));
	CHECK(port->forks == 1 && port->base.fd == -1);
	CHECK(drive_progress(d, 0) == 0);
	fake_post(d, 0, 1);
	drive_control_lock(d);
	drive_own(d, 0);
	drive_disown(d, 0);
	drive_quiesce(d);
	drive_control_unlock(d);
	CHECK(drive_wait_fd(d, fd, UINT64_MAX) == 0);
	CHECK(drive_now(d) > 0);
	close(fd);
}

static void use_a_new_one(struct drive *parents)
{
	char err[256];
	struct drive *d;
	struct fake_port *port;

	CHECK(drive_get(&harness_ops, &d, err, sizeof(err)) == 0);
	CHECK(d != parents && !drive_dead(d));
	port = fake_port_of(d, 0, 0);
	for (unsigned i = 1; i <= 5; i++) {
		fake_inject(port, 1);
		CHECK(fake_reached(&drive_nic(d)->pu[0].packets, i));
	}
	CHECK(file_is_there(getpid()));
	drive_put(parents);
	CHECK(!drive_dead(d));
	drive_put(d);
	CHECK(!file_is_there(getpid()));
}

__attribute__((unused)) static void child_starts_anew(void **state)
{
	struct drive *d = harness_open();
	struct fake_port *port = fake_port_of(d, 0, 0);
	pid_t pid;

	fake_inject(port, 1);
	assert_true(fake_reached(&drive_nic(d)->pu[0].packets, 1));
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		use_the_dead(d, port);
		use_a_new_one(d);
		_exit(0);
	}
	assert_child_ok(pid);
	/* The parent is not disturbed. */
	assert_false(drive_dead(d));
	assert_int_equal(atomic_load(&port->forks), 0);
	assert_true(file_is_there(getpid()));
	for (unsigned i = 2; i <= 5; i++) {
		harness_sleep_ms(3);
		fake_inject(port, 1);
		assert_true(fake_reached(&drive_nic(d)->pu[0].packets, i));
	}
	drive_put(d);
}

static atomic_bool stop;

static void *poll_and_post(void *arg)
{
	while (!atomic_load(&stop)) {
		drive_progress(arg, 0);
		fake_post(arg, 1, 1);
	}
	return NULL;
}

static void *control_calls(void *arg)
{
	while (!atomic_load(&stop)) {
		drive_control_lock(arg);
		drive_own(arg, 0);
		drive_disown(arg, 0);
		drive_control_unlock(arg);
	}
	return NULL;
}

/* Forks during traffic: no turn is interrupted, and the child holds no lock. */
static void fork_under_load(void **state)
{
	struct drive *d = harness_open();
	pthread_t t[2];

	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&t[0], NULL, poll_and_post, d), 0);
	assert_int_equal(pthread_create(&t[1], NULL, control_calls, d), 0);
	for (int i = 0; i < 30; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			CHECK(drive_nic(d)->pu[0].inside == 0);
			drive_control_lock(d);
			drive_own(d, 0);
			drive_disown(d, 0);
			drive_control_unlock(d);
			CHECK(drive_progress(d, 0) == 0);
			_exit(0);
		}
		assert_child_ok(pid);
	}
	atomic_store(&stop, true);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	drive_put(d);
}

static atomic_uint looks;

/* Holds the PU for a fifth of a second from the time when a fork waits for it. */
static void *long_turn(void *arg)
{
	struct drive *d = arg;
	uint64_t began;

	drive_own(d, 0);
	atomic_store(&looks, 1);
	while (atomic_load(&d->pu[0].word) < PU_WANT)
		harness_sleep_ms(1);
	began = drive_now(d);
	harness_sleep_ms(200);
	drive_disown(d, 0);
	return (void *)(uintptr_t)((drive_now(d) - began) / 1000000);
}

/* A fork waits for a turn, and the child closes the descriptors of the ports. */
static void fork_waits_for_a_long_turn(void **state)
{
	struct drive *d = harness_open();
	struct fake_port *port = fake_port_of(d, 0, 0);
	bool closed, slow;

	do {
		int status = -1;
		void *ms;
		pthread_t t;
		pid_t pid;

		atomic_store(&looks, 0);
		assert_int_equal(pthread_create(&t, NULL, long_turn, d), 0);
		while (!atomic_load(&looks))
			harness_sleep_ms(1);
		pid = fork();
		if (pid == 0)
			_exit(atomic_load(&port->forks) == 1 ? 0 : 1);
		pthread_join(t, &ms);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		closed = status == 0;
		slow = (uintptr_t)ms > 500; /* the machine: the turn was too long */
	} while (!closed && slow);
	assert_true(closed);
	drive_put(d);
}

/* exit() without drive_put(): the service thread ends, and the stat socket is removed. */
__attribute__((unused)) static void exit_cleans_up(void **state)
{
	for (int put = 0; put < 2; put++) {
		pid_t pid;

		fflush(NULL);
		pid = fork();
		if (pid == 0) {
			char err[256];
			struct drive *d;

			CHECK(drive_get(&harness_ops, &d, err, sizeof(err)) == 0);
			CHECK(file_is_there(getpid()));
			if (put)
				drive_put(d);
			exit(0);
		}
		assert_child_ok(pid);
		assert_false(file_is_there(pid));
	}
}

static void *open_engine(void *arg)
{
	*(struct drive **)arg = harness_open();
	return NULL;
}

static void *release_open(void *arg)
{
	harness_sleep_ms(50);
	atomic_store(&fake_hold, false);
	return NULL;
}

/*
 * Forks while another thread opens the first engine of the process. The child can open its own.
 * This test comes first, because the process must not have had an engine.
 */
__attribute__((unused)) static void fork_during_the_first_open(void **state)
{
	struct drive *d = NULL;
	pthread_t t[2];
	pid_t pid;

	atomic_store(&fake_hold, true);
	assert_int_equal(pthread_create(&t[0], NULL, open_engine, &d), 0);
	assert_true(fake_reached(&fake_opened, 1));
	assert_int_equal(pthread_create(&t[1], NULL, release_open, NULL), 0);
	pid = fork();
	if (pid == 0) {
		struct drive *mine = NULL;
		char err[256];

		alarm(60); /* ends a child that waits for a lock for ever */
		atomic_store(&fake_hold, false);
		CHECK(drive_get(&harness_ops, &mine, err, sizeof(err)) == 0);
		drive_put(mine);
		_exit(0);
	}
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	assert_child_ok(pid);
	drive_put(d);
}

/* A user of QP 1 whose lock is taken by its timer, and by its handlers for fork(). */
static pthread_mutex_t user_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool with_user, forking, exiting;

static void ignore_input(void *ctx, unsigned port, const struct pkt_addr *src,
			 const struct pkt_addr *dst, const uint8_t *mad)
{
}

static uint64_t expire_with_lock(void *ctx, uint64_t now)
{
	pthread_mutex_lock(&user_lock);
	pthread_mutex_unlock(&user_lock);
	return now + 1000000;
}

static void user_before_fork(void)
{
	if (!atomic_load(&with_user))
		return;
	pthread_mutex_lock(&user_lock);
	atomic_store(&forking, true);
	while (!atomic_load(&exiting))
		harness_sleep_ms(1);
	harness_sleep_ms(50); /* until exit() waits for the service thread */
}

static void user_after_fork(void)
{
	if (atomic_load(&with_user))
		pthread_mutex_unlock(&user_lock);
}

static pthread_t forker;

static void *fork_once(void *arg)
{
	if (fork() == 0)
		_exit(0);
	return NULL;
}

/*
 * The last step of exit() removes the fork handlers. glibc 2.36 ends the program with an error if a
 * fork is between its handlers then, so this waits for the fork. The linker puts destructors in the
 * order of the objects, and exit() runs them backwards: this one after that of the drive.
 */
__attribute__((destructor)) static void wait_for_fork(void)
{
	if (!atomic_load(&with_user))
		return;
	CHECK(!file_is_there(getpid()));
	CHECK(pthread_join(forker, NULL) == 0);
}

static void exit_beside_a_fork(void)
{
	static const struct drive_gsi_ops ops = {.input = ignore_input, .expire = expire_with_lock};
	struct drive *d = NULL;
	char err[256];

	CHECK(drive_get(&harness_ops, &d, err, sizeof(err)) == 0);
	CHECK(drive_gsi_open(d, &ops, NULL) == 0);
	CHECK(pthread_atfork(user_before_fork, user_after_fork, NULL) == 0);
	atomic_store(&with_user, true);
	CHECK(pthread_create(&forker, NULL, fork_once, NULL) == 0);
	while (!atomic_load(&forking))
		harness_sleep_ms(1);
	atomic_store(&exiting, true);
	exit(0);
}

/*
 * exit() while another thread forks and holds the lock of the user of QP 1, which the service
 * thread needs before it can end.
 */
__attribute__((unused)) static void exit_waits_for_a_fork(void **state)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		alarm(60); /* ends a child that hangs */
		exit_beside_a_fork();
	}
	assert_child_ok(pid);
	assert_false(file_is_there(pid));
}

/* Runs fn in a child that must end by exit(), and removes its stat socket. */
__attribute__((unused)) static void assert_ends(void (*fn)(void))
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		alarm(60); /* ends a child that hangs */
		fn();
	}
	assert_child_ok(pid);
	assert_false(file_is_there(pid));
}

static atomic_uint sends;

static uint64_t expire_and_send(void *ctx, uint64_t now)
{
	static const struct pkt_addr dst;
	static const uint8_t mad[NIC_GSI_LEN];

	if (!atomic_load(&exiting))
		return now + 1000000;
	atomic_store(&sends, 1);
	drive_gsi_send(ctx, 0, &dst, 0, mad);
	return UINT64_MAX;
}

static void exit_inside_a_turn(void)
{
	static const struct drive_gsi_ops ops = {.input = ignore_input, .expire = expire_and_send};
	struct drive *d = NULL;
	char err[256];

	CHECK(drive_get(&harness_ops, &d, err, sizeof(err)) == 0);
	CHECK(drive_gsi_open(d, &ops, d) == 0);
	drive_own(d, 0);
	atomic_store(&exiting, true);
	drive_gsi_wake(d);
	while (!atomic_load(&sends))
		harness_sleep_ms(1);
	exit(0);
}

/*
 * exit() in a signal handler that interrupts a turn. The service thread waits for the end of the
 * turn, to send a datagram.
 */
__attribute__((unused)) static void exit_ends_inside_a_turn(void **state)
{
	assert_ends(exit_inside_a_turn);
}

static const char *label(size_t i)
{
	return "value";
}

static void note_look(const struct nic *nic, unsigned pu, uint64_t *values)
{
	atomic_store(&looks, 1);
}

static void *ask_for_stat(void *arg)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(drive_stat_path(sa.sun_path, sizeof(sa.sun_path), getpid()) == 0);
	CHECK(connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
	return NULL;
}

static void exit_inside_a_control_call(void)
{
	static const struct drive_stat_group group = {
		.name = "group", .count = 1, .label = label, .read_pu = note_look};
	struct drive *d = NULL;
	char err[256];
	pthread_t t;

	CHECK(drive_get(&harness_ops, &d, err, sizeof(err)) == 0);
	drive_stat_show(d, &group);
	drive_control_lock(d);
	CHECK(pthread_create(&t, NULL, ask_for_stat, NULL) == 0);
	CHECK(pthread_join(t, NULL) == 0);
	while (!atomic_load(&looks))
		harness_sleep_ms(1);
	exit(0);
}

/*
 * exit() in a signal handler that interrupts a control call, while the service thread answers
 * `roost stat`.
 */
__attribute__((unused)) static void exit_ends_inside_a_control_call(void **state)
{
	assert_ends(exit_inside_a_control_call);
}

static uint64_t expire_behind_lock(void *ctx, uint64_t now)
{
	if (!atomic_load(&exiting))
		return now + 1000000;
	atomic_store(&sends, 1);
	pthread_mutex_lock(&user_lock);
	pthread_mutex_unlock(&user_lock);
	return UINT64_MAX;
}

static void exit_with_the_lock_of_the_user(void)
{
	static const struct drive_gsi_ops ops = {.input = ignore_input,
						 .expire = expire_behind_lock};
	struct drive *d = NULL;
	char err[256];

	CHECK(drive_get(&harness_ops, &d, err, sizeof(err)) == 0);
	CHECK(drive_gsi_open(d, &ops, d) == 0);
	pthread_mutex_lock(&user_lock);
	atomic_store(&exiting, true);
	drive_gsi_wake(d);
	while (!atomic_load(&sends))
		harness_sleep_ms(1);
	exit(0);
}

/* exit() in a signal handler that interrupts a call of the user of QP 1, which has a lock. */
__attribute__((unused)) static void exit_ends_with_the_lock_of_the_user(void **state)
{
	assert_ends(exit_with_the_lock_of_the_user);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
/* TSan dies if a thread starts in the child of a process with threads, and these tests do that. */
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(fork_during_the_first_open),
#endif
		cmocka_unit_test(fork_under_load),
		cmocka_unit_test(fork_waits_for_a_long_turn),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(child_starts_anew),
		cmocka_unit_test(exit_cleans_up),
		cmocka_unit_test(exit_waits_for_a_fork),
		cmocka_unit_test(exit_ends_inside_a_turn),
		cmocka_unit_test(exit_ends_inside_a_control_call),
		cmocka_unit_test(exit_ends_with_the_lock_of_the_user),
#endif
	};

	return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
