/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an observer of a pool sees, who is no member; and names of the pool that another user holds.
 * Members are forked children.
 */
#include "../common/network.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/pool.h"

#define STRANGER 65534

static const struct pkt_addr addr = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}};

struct child {
	pid_t pid;
	int end; /* a byte comes when it is ready */
	int rc;	 /* what it says then */
};

/* Starts a child that runs fn, says what it returned, and waits to be killed. */
static struct child start(int (*fn)(void))
{
	struct child c;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		c.rc = fn();
		if (write(fds[1], &c.rc, sizeof(c.rc)) != sizeof(c.rc))
			_exit(1);
		for (;;)
			pause();
	}
	close(fds[1]);
	c.end = fds[0];
	assert_int_equal(read(c.end, &c.rc, sizeof(c.rc)), sizeof(c.rc));
	return c;
}

static void end(struct child *c)
{
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	close(c->end);
}

/* Joins with `units` slots and uses the address in all. Returns the first slot or -errno. */
static int join(unsigned units)
{
	struct pool *p = pool_get();
	struct pool_addr *a;
	unsigned silent;

	if (!p)
		return -errno;
	for (unsigned i = 0; i < units; i++) {
		struct pool_socket sock = {.sport = (uint16_t)(20000 + i), .mtu = 1024};
		int slot = pool_slot(p, i);

		a = slot < 0 ? NULL : pool_addr_get(p, &addr, 0, &silent);
		if (!a || pool_addr_use(a, (unsigned)slot) < 0)
			return slot < 0 ? slot : -errno;
		pool_addr_tell(a, (unsigned)slot, &sock);
	}
	return pool_slot(p, 0);
}

static int join_one(void)
{
	return join(1);
}

static int join_three(void)
{
	return join(3);
}

static int join_and_receive(void)
{
	int slot = join(1), fd = pool_receive_visits(pool_mine());

	return fd < 0 ? fd : slot;
}

static void sees_programs(void **state)
{
	struct pool_seen seen[POOL_SLOTS];
	struct child one = start(join_one), three = start(join_three);
	unsigned taken = 0, of_three = 0;

	assert_true(one.rc >= 0 && three.rc >= 0);
	assert_int_equal(pool_look(seen), 0);
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		taken += seen[i].taken;
		if (!seen[i].taken)
			continue;
		assert_true(seen[i].known);
		assert_int_equal(seen[i].num_addrs, 1);
		assert_true(pkt_addr_eq(&seen[i].addr[0], &addr));
		of_three += seen[i].first == three.rc;
	}
	assert_int_equal(taken, 4);
	assert_int_equal(of_three, 3);
	assert_int_equal(seen[one.rc].pid, one.pid);
	assert_int_equal(seen[three.rc].pid, three.pid);
	/* The observer is no member, and a member that was killed is gone. */
	assert_null(pool_mine());
	end(&three);
	pool_look(seen);
	assert_false(seen[three.rc].taken);
	assert_true(seen[one.rc].known);
	end(&one);
}

/* A stopped member can't tell its memory; its process is seen all the same. */
static void sees_stopped_programs(void **state)
{
	struct pool_seen seen[POOL_SLOTS];
	struct child a = start(join_and_receive);
	int fd, status;
	pid_t pid;

	assert_true(a.rc >= 0);
	kill(a.pid, SIGSTOP);
	assert_int_equal(waitpid(a.pid, &status, WUNTRACED), a.pid); /* all of its threads stop */
	assert_true(WIFSTOPPED(status));
	assert_int_equal(pool_look(seen), 1);
	assert_true(seen[a.rc].taken);
	assert_int_equal(seen[a.rc].pid, a.pid);
	fd = pool_visit((unsigned)a.rc, &pid);
	assert_true(fd >= 0);
	assert_int_equal(pid, a.pid);
	close(fd);
	end(&a);
	assert_int_equal(pool_visit((unsigned)a.rc, &pid), -ECONNREFUSED);
}

/* ---- another user ---- */

/* Binds a name of root's pool as the other user. Sockets of different types have names apart. */
static int bind_name(const char *kind, unsigned slot)
{
	struct sockaddr_un n = {.sun_family = AF_UNIX};
	int type = strcmp(kind, "member") == 0 ? SOCK_SEQPACKET
		   : strcmp(kind, "stat") == 0 ? SOCK_STREAM
					       : SOCK_DGRAM;
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	int len =
		snprintf(n.sun_path + 1, sizeof(n.sun_path) - 1, "roost-pool-0-%s-%u", kind, slot);
	socklen_t all = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);

	if (fd < 0 || bind(fd, (struct sockaddr *)&n, all) ||
	    (type != SOCK_DGRAM && listen(fd, 64)))
		return -errno;
	return 0;
}

static int hold(const char *kind, unsigned from, unsigned to)
{
	int rc = setresuid(STRANGER, STRANGER, STRANGER) ? -errno : 0;

	for (unsigned i = from; i < to && rc == 0; i++)
		rc = bind_name(kind, i);
	return rc;
}

static int hold_claims(void)
{
	return hold("claim", 0, POOL_SLOTS);
}

static int hold_members(void)
{
	return hold("member", 1, POOL_SLOTS);
}

static int hold_founder(void)
{
	return hold("founder", 0, 1);
}

static int hold_visits(void)
{
	return hold("stat", 0, POOL_SLOTS);
}

static int hold_almost_all_claims(void)
{
	return hold("claim", 2, POOL_SLOTS);
}

static bool not_root(void)
{
	return geteuid() != 0;
}

static void counts_names_of_others(void **state)
{
	struct child a = start(join_one), b;
	uid_t uid = 0;

	assert_int_equal(pool_strangers(&uid), 0);
	end(&a);
	if (not_root())
		skip();
	b = start(hold_almost_all_claims);
	assert_int_equal(b.rc, 0);
	assert_int_equal(pool_strangers(&uid), POOL_SLOTS - 2);
	assert_int_equal(uid, STRANGER);
	end(&b);
}

/* All slots are taken: the program gets an error. When the names are free, it works. */
static void all_claims_taken(void **state)
{
	struct child thief, a;

	if (not_root())
		skip();
	thief = start(hold_claims);
	assert_int_equal(thief.rc, 0);
	a = start(join_one);
	assert_int_equal(a.rc, -ENOSPC);
	end(&a);
	end(&thief);
	a = start(join_one);
	assert_true(a.rc >= 0);
	end(&a);
}

/* The slots that are left work, and their programs find each other. */
static void some_names_taken(void **state)
{
	int (*const thieves[])(void) = {hold_members, hold_founder, hold_visits};

	if (not_root())
		skip();
	for (size_t i = 0; i < sizeof(thieves) / sizeof(thieves[0]); i++) {
		struct pool_seen seen[POOL_SLOTS];
		struct child thief = start(thieves[i]), a = start(join_one);
		pid_t pid;

		assert_int_equal(thief.rc, 0);
		assert_true(a.rc >= 0);
		pool_look(seen);
		assert_true(seen[a.rc].taken);
		if (thieves[i] == hold_members) {
			assert_int_equal(a.rc, 0); /* the one slot whose names are free */
			assert_int_equal(seen[a.rc].pid, a.pid);
		}
		/* A visitor tells nothing to a program of another user. */
		if (thieves[i] == hold_visits)
			assert_int_equal(pool_visit((unsigned)a.rc, &pid), -EPERM);
		end(&a);
		end(&thief);
	}
}

static int own_network(void **state)
{
	if (network_own())
		return 0;
	printf("SKIPPED: no network namespace of its own\n");
	exit(77);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sees_programs),	  cmocka_unit_test(sees_stopped_programs),
		cmocka_unit_test(counts_names_of_others), cmocka_unit_test(all_claims_taken),
		cmocka_unit_test(some_names_taken),
	};

	return cmocka_run_group_tests(tests, own_network, NULL);
}
