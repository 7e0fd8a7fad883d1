/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The cause for which a program cannot have an address, in one line with the remedy: no slot is
 * left, the limit of file sizes is too low, or the other programs are of another version of Roost.
 * Every program is a forked child, since the process of a pool can't leave these states again.
 */
#include "../common/child.h"
#include "../common/network.h"
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/core.h"
#include "port/udp.h"

#define OWN   "udp:127.0.83.1"
#define THERE "udp:127.0.83.2"

static pid_t start(void (*fn)(void))
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fn();
		_exit(0);
	}
	assert_true(pid > 0);
	return pid;
}

static void run(void (*fn)(void))
{
	pid_t pid = start(fn);
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status)
		fail_msg("the child ended with status %#x", (unsigned)status);
}

/* The address is refused with this error, in one line with these parts. */
static void refused(int error, const char *part, const char *advice)
{
	char err[512] = "";

	CHECK(!port_open(OWN, 0, 1, err, sizeof(err)) && errno == error);
	if (!strstr(err, part) || !strstr(err, advice) || strchr(err, '\n'))
		child_fails(err);
}

static void opens(const char *spec)
{
	char err[512] = "";
	struct port *p = port_open(spec, 0, 1, err, sizeof(err));

	if (!p)
		child_fails(err);
	port_close(p);
}

/* What the messages name as a way out. */
static void shm_works(void)
{
	opens("shm:10.83.0.1");
}

/* ---- a full pool ---- */

static void full_child(void)
{
	int claim[POOL_SLOTS];

	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		claim[i] = pool_bind_name(NAME_CLAIM, i);
		CHECK(claim[i] >= 0);
	}
	refused(ENOSPC, "64 processing units of this user's programs are in use",
		"roost devices lists them");
	shm_works();
	close(claim[7]);
	opens(OWN);
}

static void full(void **state)
{
	run(full_child);
}

/* ---- the limit of file sizes ---- */

static void limit_files(void)
{
	struct rlimit limit = {1 << 20, 1 << 20};

	CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
}

/* The first program makes the memory of the pool. It would get SIGXFSZ. */
static void short_files_child(void)
{
	limit_files();
	refused(EFBIG, "KiB of shared memory", "ulimit -f unlimited");
}

/* A program that finds the memory needs none. */
static int first_end[2];

static void first_child(void)
{
	char err[512] = "", byte = 1;
	struct port *p = port_open(OWN, 0, 1, err, sizeof(err));

	CHECK(p);
	CHECK(write(first_end[1], &byte, 1) == 1);
	CHECK(read(first_end[1], &byte, 1) == 0);
	port_close(p);
}

static void second_child(void)
{
	limit_files();
	opens(OWN);
	opens(THERE);
}

static void short_files(void **state)
{
	int status;
	pid_t pid;
	char byte;

	run(short_files_child);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, first_end), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(first_end[0]);
		first_child();
		_exit(0);
	}
	close(first_end[1]);
	assert_int_equal(read(first_end[0], &byte, 1), 1);
	run(second_child);
	close(first_end[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- other versions ---- */

/*
 * A program of another version has the address, a slot and the name of a member. Returns its
 * listener.
 */
static int listen_as_other(void)
{
	struct sockaddr_un name;
	socklen_t len = pool_name(&name, NAME_MEMBER, 0);
	struct pkt_addr own = rig_addr("127.0.83.1");
	union udp_name udp;
	socklen_t udp_len = udp_name(&udp, &own, PKT_UDP_PORT, 0);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHECK(pool_bind_name(NAME_CLAIM, 0) >= 0);
	CHECK(!bind(fd, (struct sockaddr *)&name, len) && !listen(fd, 64));
	CHECK(!bind(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), &udp.sa, udp_len));
	return fd;
}

/*
 * Starts a process that answers until it is killed. `answer`: of the memory that it sends; -1: it
 * does not understand requests and hangs up.
 */
static pid_t serve_as_other(int listener, int answer)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		uint8_t ask[512];

		if (recv(fd, ask, sizeof(ask), 0) > 0 && answer >= 0)
			pool_answer(fd, &answer, 1);
		close(fd);
	}
}

/* Its names and its port are free when this returns. */
static void end(pid_t pid)
{
	CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
}

static void silent_child(void)
{
	pid_t pid = serve_as_other(listen_as_other(), -1);

	refused(EADDRINUSE, "of another version of Roost", "udp:127.0.0.2");
	opens(THERE);
	end(pid);
}

static void garbage_child(void)
{
	int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	pid_t pid;

	CHECK(!ftruncate(fd, 1 << 20));
	CHECK(!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
	pid = serve_as_other(listen_as_other(), fd);
	refused(EPROTO, "of another version of Roost", "roost devices lists them");
	shm_works();
	end(pid);
}

static void other_version(void **state)
{
	run(silent_child);
	run(garbage_child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(full),
		cmocka_unit_test(short_files),
		cmocka_unit_test(other_version),
	};

	if (!network_own()) { /* the pool must be empty */
		printf("skipped: no network of its own\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
