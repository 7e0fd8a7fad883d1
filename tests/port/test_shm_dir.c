/* SPDX-License-Identifier: BSD-2-Clause */
/* The folder of a user: the name of a socket belongs to a process that listens. */
#include "port/shm_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
/* cmocka.h needs the headers above */
#include <cmocka.h>

#include "base/sys.h"
#include "port/shm_ring.h"

#define NAME "stat.4711"

static int dir = -1;
static int seen; /* the error of a client that comes before the socket listens */

/* Returns 0 if a client is accepted, or a negative errno. */
static int connect_to(const char *name)
{
	struct sockaddr_un sa;
	socklen_t len = shm_dir_sockaddr(dir, name, &sa);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int rc = connect(fd, (struct sockaddr *)&sa, len) ? -errno : 0;

	close(fd);
	return rc;
}

int __real_sys_listen(int fd, int backlog);
int __wrap_sys_listen(int fd, int backlog);

int __wrap_sys_listen(int fd, int backlog)
{
	seen = connect_to(NAME);
	return __real_sys_listen(fd, backlog);
}

/* A refused connection would tell the client that the process of the socket has ended. */
static void has_its_name_when_it_listens(void **state)
{
	int fd;

	(void)state;
	fd = shm_dir_listen(dir, NAME);
	assert_true(fd >= 0);
	assert_int_equal(seen, -ENOENT);
	assert_int_equal(connect_to(NAME), 0);
	assert_int_equal(shm_dir_listen(dir, NAME), -EADDRINUSE);
	close(fd);
	assert_int_equal(connect_to(NAME), -ECONNREFUSED);

	fd = shm_dir_listen(dir, NAME); /* in place of the one that has ended */
	assert_true(fd >= 0);
	assert_int_equal(connect_to(NAME), 0);
	close(fd);
	assert_int_equal(unlinkat(dir, NAME, 0), 0);
}

/* Leaves a socket under the name of a process that has ended. Returns the socket. */
static int of_dead_process(char name[SHM_NAME_MAX])
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	snprintf(name, SHM_NAME_MAX, "stat.%d", pid);
	return shm_dir_listen(dir, name);
}

static void keeps_no_names_of_the_dead(void **state)
{
	char dead[SHM_NAME_MAX], contained[SHM_NAME_MAX], alive[SHM_NAME_MAX];
	const char *const other[] = {"stat.", "stat.0", "stat.99999999999999999999", "stat.7x",
				     "node.4711"};
	int fd;

	(void)state;
	close(of_dead_process(dead));
	fd = of_dead_process(contained); /* its process has this id in another namespace */
	snprintf(alive, sizeof(alive), "stat.%d", getppid());
	close(shm_dir_listen(dir, alive)); /* does not listen yet, or no longer */
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		close(shm_dir_listen(dir, other[i]));

	shm_dir_sweep(dir, "stat.");
	assert_int_equal(faccessat(dir, dead, F_OK, 0), -1);
	assert_int_equal(connect_to(contained), 0);
	assert_int_equal(unlinkat(dir, contained, 0), 0);
	assert_int_equal(unlinkat(dir, alive, 0), 0);
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		assert_int_equal(unlinkat(dir, other[i], 0), 0);
	close(fd);
}

static bool survived;

/* Calls what turns call, with a cancellation pending, as a thread that polls may have. */
static void *call_when_cancelled(void *arg)
{
	const struct pkt_addr addr = {.b = {[10] = 0xff, 0xff, 10, 0, 0, 7}};
	const struct pkt_addr group = {.b = {[10] = 0xff, 0xff, 239, 0, 0, 7}};
	struct shm_claim claim;
	struct shm_holder holder;
	struct shm_prod ring;
	pid_t pid;
	int fd;

	pthread_cancel(pthread_self());
	if (shm_claim(dir, &addr, 0, 1, 65536, &claim, &pid) == 0 &&
	    shm_dir_holder(dir, &addr, 0, &holder) == 0 && holder.ring == 65536 &&
	    shm_dir_mark(dir, &group, &addr, 0) == 0 &&
	    shm_prod_create(SHM_RING_MIN, &ring, &fd) == 0) {
		shm_prod_unmap(&ring);
		sys_close(fd);
		shm_dir_unmark(dir, &group, &addr, 0);
		shm_unclaim(dir, &claim, false);
		survived = true;
	}
	return arg;
}

/* Otherwise the thread would end inside of its turn, and no other thread could run one. */
static void is_no_cancellation_point(void **state)
{
	pthread_t t;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, call_when_cancelled, NULL), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_true(survived);
}

int main(void)
{
	char path[] = "/tmp/roost-test-XXXXXX", err[200];
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(has_its_name_when_it_listens),
		cmocka_unit_test(keeps_no_names_of_the_dead),
		cmocka_unit_test(is_no_cancellation_point),
	};
	int failed;

	if (!mkdtemp(path) || setenv("ROOST_SHM_DIR", path, 1))
		return 1;
	dir = shm_dir_open(err, sizeof(err));
	if (dir < 0)
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	close(dir);
	return rmdir(path) ? 1 : failed; /* nothing is left in the folder */
}
