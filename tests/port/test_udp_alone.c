/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that can't share an address: the system refuses SO_ATTACH_REUSEPORT_CBPF, or the limit
 * of descriptors is too low. Each then has an address for itself, and logs this. Every program is a
 * forked child, since neither state can be left again.
 */
#include "../common/child.h"
#include "../common/network.h"
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "port/udp.h"

#define ATTACH_CBPF 51 /* SO_ATTACH_REUSEPORT_CBPF */
#define SHARED	    "udp:127.0.78.1"
#define OTHER	    "udp:127.0.78.2"

/* In the child: its log goes to the pipe `said`. */
static int said[2];

/* setsockopt(..., 51, ...) ends with ENOPROTOOPT, as in qemu's emulation of a process. */
static void refuse_attach(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ATTACH_CBPF, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOPROTOOPT),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {sizeof(code) / sizeof(code[0]), code};

	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
}

static void limit_files(rlim_t soft, rlim_t hard)
{
	struct rlimit limit = {soft, hard};

	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
}

/* Runs fn in a child. Returns the child's standard error, in a static buffer. */
static const char *in_child(void (*fn)(void))
{
	static char text[8192];
	size_t have = 0;
	ssize_t n;
	int status;
	pid_t pid;

	assert_int_equal(pipe2(said, O_CLOEXEC), 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		dup2(said[1], STDERR_FILENO);
		close(said[0]);
		close(said[1]);
		fn();
		_exit(0);
	}
	close(said[1]);
	while ((n = read(said[0], text + have, sizeof(text) - 1 - have)) > 0)
		have += (size_t)n;
	text[have] = '\0';
	close(said[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status)
		fail_msg("status %#x; it said: %s", (unsigned)status, text);
	return text;
}

static unsigned count_lines(const char *text, const char *part)
{
	unsigned n = 0;

	for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
		n++;
	return n;
}

/* Packets of two sizes from one port reach a QP of the other. */
static void exchange(struct port *from, struct port *to)
{
	struct port_path *path = from->ops->path_get(from, &to->addr, rig_qpn(to));
	struct port_pkt pkts[PORT_BURST];

	CHECK(path);
	for (uint32_t i = 0; i < 20; i++)
		CHECK(!rig_send(from, path, i % 2 ? 300 : 64, 0, rig_qpn(to), i));
	CHECK(from->ops->flush(from));
	for (uint32_t got = 0; got < 20;) {
		int n = rig_burst(to, pkts, PORT_BURST);

		CHECK(n > 0);
		for (int i = 0; i < n; i++, got++)
			CHECK(rig_psn(&pkts[i]) == got);
	}
	from->ops->path_put(from, path);
}

static struct port *open_or_fail(const char *spec, unsigned lane, unsigned lanes)
{
	char err[512];
	struct port *p = port_open(spec, lane, lanes, err, sizeof(err));

	if (!p)
		child_fails(err);
	return p;
}

/*
 * A second program beside the child. It is forked before the child opens a port, since a process
 * with threads is not forked here, and runs when the child calls run_other().
 */
static int other_go[2];

static void make_other(void (*fn)(void))
{
	char byte;

	CHECK(!pipe2(other_go, O_CLOEXEC));
	fflush(stdout);
	if (fork() == 0) {
		close(other_go[1]);
		if (read(other_go[0], &byte, 1) == 1)
			fn();
		_exit(0);
	}
	close(other_go[0]);
}

static void run_other(void)
{
	int status;

	CHECK(write(other_go[1], "", 1) == 1);
	CHECK(wait(&status) > 0 && status == 0);
}

/* ---- refused ---- */

/* Another program can't have the address, and reads why. */
static void expect_not_shared(void)
{
	char err[512];

	CHECK(!port_open(SHARED, 0, 1, err, sizeof(err)) && errno == EADDRINUSE);
	CHECK(strstr(err, "can't share it") && strstr(err, "127.0.78.1"));
}

static void refused_child(void)
{
	struct port *a, *b;

	refuse_attach();
	make_other(expect_not_shared);
	a = open_or_fail(SHARED, 0, 1);
	b = open_or_fail(OTHER, 0, 1);
	exchange(a, b);
	exchange(b, a);
	exchange(a, a);
	run_other();
	port_close(a);
	/* it is free again at once */
	port_close(open_or_fail(SHARED, 0, 1));
	port_close(b);
}

static void refused(void **state)
{
	const char *text = in_child(refused_child);

	/* one line for each address, with the cause and the effect; the address was opened twice */
	assert_int_equal(count_lines(text, "127.0.78.1 for itself"), 2);
	assert_int_equal(count_lines(text, "127.0.78.2 for itself"), 1);
	assert_non_null(strstr(text, "SO_ATTACH_REUSEPORT_CBPF (Protocol not available)"));
	assert_non_null(strstr(text, "it works, but other programs need other addresses"));
}

/* The first lane has the socket, and passes on the packets of the others. */
static void lanes_child(void)
{
	struct port *lane[3], *other;

	refuse_attach();
	for (unsigned i = 0; i < 3; i++)
		lane[i] = open_or_fail(SHARED, i, 3);
	other = open_or_fail(OTHER, 0, 1);
	for (unsigned i = 0; i < 3; i++) {
		struct port_path *path =
			other->ops->path_get(other, &lane[0]->addr, rig_qpn(lane[i]));
		struct port_pkt pkts[PORT_BURST];
		uint32_t got = 0;

		CHECK(path);
		for (uint32_t n = 0; n < 10; n++)
			CHECK(!rig_send(other, path, 200, 0, rig_qpn(lane[i]), n));
		CHECK(other->ops->flush(other));
		for (unsigned look = 0; got < 10 && look < 1000000; look++) {
			int n = lane[0]->ops->rx_burst(lane[0], pkts, PORT_BURST);

			CHECK(i == 0 || n == 0);
			if (i > 0)
				n = lane[i]->ops->rx_burst(lane[i], pkts, PORT_BURST);
			for (int k = 0; k < n; k++, got++)
				CHECK(rig_psn(&pkts[k]) == got);
		}
		CHECK(got == 10);
		other->ops->path_put(other, path);
		exchange(lane[i], other);
	}
	for (unsigned i = 0; i < 3; i++)
		port_close(lane[i]);
	port_close(other);
}

static void lanes(void **state)
{
	assert_int_equal(count_lines(in_child(lanes_child), "127.0.78.1 for itself"), 1);
}

static void refused_beside(void)
{
	refuse_attach();
	expect_not_shared();
	port_close(open_or_fail(OTHER, 0, 1));
}

/* A program of the pool that may attach programs keeps its address; the other gets an error. */
static void beside_others_child(void)
{
	struct port *a, *b;

	make_other(refused_beside);
	a = open_or_fail(SHARED, 0, 1);
	run_other();
	b = open_or_fail(OTHER, 0, 1);
	exchange(a, b);
	port_close(a);
	port_close(b);
}

static void beside_others(void **state)
{
	in_child(beside_others_child);
}

/* ---- descriptors ---- */

/* The soft limit is raised; the sockets are where select() does not need their numbers. */
static void raised_child(void)
{
	struct port *p[4];
	int low;

	limit_files(256, 4096);
	for (unsigned i = 0; i < 4; i++) {
		char spec[32];

		snprintf(spec, sizeof(spec), "udp:127.0.78.%u", 10 + i);
		p[i] = open_or_fail(spec, 0, 1);
	}
	low = dup(STDOUT_FILENO);
	CHECK(low >= 0 && low < 256);
	exchange(p[0], p[3]);
	for (unsigned i = 0; i < 4; i++)
		port_close(p[i]);
}

static void raised(void **state)
{
	assert_string_equal(in_child(raised_child), "");
}

/* Hard limits are for good. Three addresses fit, and the fourth gets one socket. */
static void hard_child(void)
{
	struct port *p[4];

	limit_files(256, 256);
	for (unsigned i = 0; i < 4; i++) {
		char spec[32];

		snprintf(spec, sizeof(spec), "udp:127.0.78.%u", 10 + i);
		p[i] = open_or_fail(spec, 0, 1);
	}
	for (unsigned i = 1; i < 4; i++)
		exchange(p[0], p[i]);
	for (unsigned i = 0; i < 4; i++)
		port_close(p[i]);
}

static void hard(void **state)
{
	const char *text = in_child(hard_child);

	assert_int_equal(count_lines(text, "for itself"), 1);
	assert_int_equal(count_lines(text, "127.0.78.13 for itself"), 1);
}

static void not_raised_child(void)
{
	struct port *a, *b;

	limit_files(60, 60);
	a = open_or_fail(SHARED, 0, 1);
	b = open_or_fail(OTHER, 0, 1);
	exchange(a, b);
	port_close(a);
	port_close(b);
}

static void not_raised(void **state)
{
	const char *text = in_child(not_raised_child);

	assert_int_equal(count_lines(text, "127.0.78.1 for itself"), 1);
	assert_non_null(strstr(text, "64 sockets do not fit into its limit of open files"));
	assert_non_null(strstr(text, "ulimit -n"));
}

static void expect_no_space(void)
{
	char err[512];

	limit_files(60, 60);
	CHECK(!port_open(SHARED, 0, 1, err, sizeof(err)) && errno == EMFILE);
	CHECK(strstr(err, "limit of open files") && strstr(err, "ulimit -n"));
}

/* Others have the address, and their sockets do not fit. */
static void no_space_child(void)
{
	struct port *a;

	make_other(expect_no_space);
	a = open_or_fail(SHARED, 0, 1);
	run_other();
	port_close(a);
}

static void no_space(void **state)
{
	in_child(no_space_child);
}

static int setup(void **state)
{
	network_own(); /* if it can be: no other program of the machine is in the pool then */
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refused),	 cmocka_unit_test(lanes),
		cmocka_unit_test(beside_others), cmocka_unit_test(raised),
		cmocka_unit_test(hard),		 cmocka_unit_test(not_raised),
		cmocka_unit_test(no_space),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
