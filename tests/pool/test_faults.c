/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls of members that fail, or during which something else happens. Each member is a
 * forked child that does what the test tells it; the test itself is no member.
 */
#include "../common/child.h"
#include "../common/network.h"
#include "datagram.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rest.h"
#include "base/sys.h"
#include "pool/pool.h"

#define SERVICE	    0x000000000106abcdull
#define WAIT_S	    60
#define A_WHILE	    5 /* rests */
#define MOST_QUEUED 1000
#define MOST_STEERS 1000
#define MOST_LINKS  (2 * POOL_SLOTS) /* as in pool.c */

enum op {
	JOIN,
	PUBLISH,
	PUBLISH_SLOWLY,
	CONTINUE,
	MANAGE,
	TAKE,
	FULL,
	ACCEPTS,
	NOT_FULL,
	JOIN_INTERRUPTED,
	JOIN_ELSEWHERE,
	PUBLISH_IN_VAIN,
	TOO_MANY
};

struct reply {
	int rc;
	unsigned slot, silent;
	bool foreign; /* the program has founded another pool */
	bool steers;  /* it attaches a filter, and waits for CONTINUE */
	unsigned num; /* datagrams, or calls of accept */
	uint32_t mark;
	uint64_t ms; /* since the first call of accept that failed */
};

struct program {
	pid_t pid;
	int fd;
	unsigned slot;
};

static struct pkt_addr addr;

/* ---- in the child ---- */

static struct pool *pool;
static struct pool_addr *opened;
static int sock, test_fd;
static bool slowly;
static unsigned interrupts;
static atomic_bool too_many; /* every other answer is refused by the kernel */

static __thread bool steers_in_vain; /* not in the threads of the pool */

static atomic_bool full;
static atomic_uint accepts; /* that failed */
static _Atomic uint64_t first_ms;

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

int __real_sys_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags);
int __wrap_sys_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags);
int __real_sys_connect(int fd, const struct sockaddr *a, socklen_t len);
int __wrap_sys_connect(int fd, const struct sockaddr *a, socklen_t len);

int __wrap_sys_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags)
{
	if (!full)
		return __real_sys_accept4(fd, a, len, flags);
	if (!accepts)
		first_ms = now_ms();
	accepts++;
	return -EMFILE;
}

/* A publisher looks whether the owner of a conflicting entry lives: the test may act meanwhile. */
int __wrap_sys_connect(int fd, const struct sockaddr *a, socklen_t len)
{
	enum op op = JOIN;

	if (slowly && strstr(((const struct sockaddr_un *)a)->sun_path + 1, "-claim-")) {
		struct reply r = {0};

		slowly = false;
		CHECK(write(test_fd, &r, sizeof(r)) == sizeof(r));
		CHECK(read(test_fd, &op, sizeof(op)) == sizeof(op) && op == CONTINUE);
	}
	return __real_sys_connect(fd, a, len);
}

int __real_sys_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_sys_setsockopt(int fd, int level, int name, const void *value, socklen_t len);

/* The filter is refused, and the test may act meanwhile. */
int __wrap_sys_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	struct reply r = {.steers = true};
	enum op op = JOIN;

	if (!steers_in_vain || level != SOL_SOCKET || name != SO_ATTACH_REUSEPORT_CBPF)
		return __real_sys_setsockopt(fd, level, name, value, len);
	CHECK(write(test_fd, &r, sizeof(r)) == sizeof(r));
	CHECK(read(test_fd, &op, sizeof(op)) == sizeof(op) && op == CONTINUE);
	return -ENOBUFS;
}

ssize_t __real_sys_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t __wrap_sys_recvmsg(int fd, struct msghdr *m, int flags);

ssize_t __wrap_sys_recvmsg(int fd, struct msghdr *m, int flags)
{
	if (interrupts && interrupts--)
		return -EINTR;
	return __real_sys_recvmsg(fd, m, flags);
}

ssize_t __real_sys_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sys_sendmsg(int fd, const struct msghdr *m, int flags);

ssize_t __wrap_sys_sendmsg(int fd, const struct msghdr *m, int flags)
{
	static atomic_uint answers;

	if (too_many && answers++ % 2 == 0)
		return -ETOOMANYREFS;
	return __real_sys_sendmsg(fd, m, flags);
}

static void do_join(struct reply *r)
{
	pool = pool_get();
	CHECK(pool != NULL);
	r->slot = (unsigned)pool_slot(pool, 0);
	r->foreign = pool_is_foreign(pool);
	opened = pool_addr_get(pool, &addr, 0, &r->silent);
	r->rc = opened ? 0 : -errno;
	if (!opened) {
		pool_put(pool);
		return;
	}
	sock = pool_addr_use(opened, r->slot);
	CHECK(sock >= 0);
	CHECK(pool_addr_tell(opened, r->slot, &(struct pool_socket){.sport = 4790}) == 0);
	pool_manages(pool, r->slot, true);
}

static int publish(void)
{
	return pool_publish(pool, (unsigned)pool_slot(pool, 0), SERVICE, NULL, 0, POOL_IPV4);
}

static void take(struct reply *r)
{
	uint8_t pkt[512];
	ssize_t n;

	while ((n = recv(sock, pkt, sizeof(pkt), MSG_DONTWAIT)) > 0) {
		memcpy(&r->mark, pkt + n - 4, 4);
		r->num++;
	}
}

static void serve(int fd)
{
	enum op op;

	test_fd = fd;
	while (read(fd, &op, sizeof(op)) == sizeof(op)) {
		struct reply r = {.num = accepts, .ms = accepts ? now_ms() - first_ms : 0};

		switch (op) {
		case JOIN:
			do_join(&r);
			break;
		case JOIN_INTERRUPTED:
			interrupts = 2;
			do_join(&r);
			break;
		case JOIN_ELSEWHERE:
			addr.b[15]++;
			do_join(&r);
			break;
		case PUBLISH_IN_VAIN:
			log_set_level(LOG_ERROR); /* a warning for each refusal */
			steers_in_vain = true;
			r.rc = publish();
			steers_in_vain = false;
			break;
		case PUBLISH_SLOWLY:
			slowly = true;
			r.rc = publish();
			break;
		case PUBLISH:
			r.rc = publish();
			break;
		case MANAGE: /* changes the filter of the address */
			pool_manages(pool, (unsigned)pool_slot(pool, 0), false);
			break;
		case TAKE:
			r.num = 0;
			take(&r);
			break;
		case FULL:
		case NOT_FULL:
			full = op == FULL;
			break;
		case TOO_MANY:
			too_many = true;
			break;
		case ACCEPTS:
		case CONTINUE:
			break;
		}
		if (write(fd, &r, sizeof(r)) != sizeof(r))
			break;
	}
}

/* ---- in the test ---- */

static void tell(const struct program *p, enum op op)
{
	assert_int_equal(write(p->fd, &op, sizeof(op)), sizeof(op));
}

static struct reply hear(const struct program *p)
{
	struct reply r;

	assert_int_equal(read(p->fd, &r, sizeof(r)), sizeof(r));
	return r;
}

static struct reply ask(const struct program *p, enum op op)
{
	tell(p, op);
	return hear(p);
}

static pid_t started[8]; /* in this test */
static unsigned num_started;

static struct program start(void)
{
	struct program p;

	p.pid = child_start(serve, &p.fd);
	started[num_started++] = p.pid;
	return p;
}

/* Ends the programs that a failed test has left. */
static int end_all(void **state)
{
	while (num_started) {
		if (started[--num_started])
			child_kill(started[num_started]);
	}
	return 0;
}

static struct program join(void)
{
	struct program p = start();
	struct reply r = ask(&p, JOIN);

	assert_int_equal(r.rc, 0);
	p.slot = r.slot;
	return p;
}

static void finish(struct program *p)
{
	for (unsigned i = 0; i < num_started; i++) {
		if (started[i] == p->pid)
			started[i] = 0;
	}
	child_finish(&p->pid, p->fd);
}

/*
 * A program tries to publish a service of another one. Meanwhile a member changes the filter of the
 * address, which may give requests to the second program. It gets none after it has failed.
 */
static void a_refused_publisher_gets_nothing(void **state)
{
	struct program p[2] = {join(), join()}, *low = &p[p[0].slot > p[1].slot];
	struct program *owner = &p[low == p];
	struct reply r[2] = {{0}};
	time_t until = time(NULL) + WAIT_S;

	assert_int_equal(ask(owner, PUBLISH).rc, 0);
	tell(low, PUBLISH_SLOWLY);
	hear(low); /* its entry is there, and it looks for others */
	ask(owner, MANAGE);
	tell(low, CONTINUE);
	assert_int_equal(hear(low).rc, -EADDRINUSE);
	datagram_request(&addr, SERVICE, 7);
	do
		for (unsigned i = 0; i < 2; i++)
			r[i] = ask(&p[i], TAKE);
	while (!r[0].num && !r[1].num && time(NULL) < until);
	assert_int_equal(r[low == p].num, 1);
	assert_int_equal(r[low == p].mark, 7);
	for (unsigned i = 0; i < 2; i++)
		finish(&p[i]);
}

/*
 * A member without a free descriptor cannot accept another program, which is told so. It does not
 * try again and again, and answers when it has a descriptor.
 */
static void a_member_without_descriptors_rests(void **state)
{
	struct program member = join(), late = start();
	time_t until = time(NULL) + WAIT_S;
	struct reply r;

	ask(&member, FULL);
	r = ask(&late, JOIN);
	assert_int_equal(r.rc, -EADDRINUSE);
	assert_int_equal(r.silent, 1);
	do
		r = ask(&member, ACCEPTS);
	while (r.ms < A_WHILE * REST_MS && time(NULL) < until);
	assert_in_range(r.num, 1, 2 + r.ms / REST_MS);
	ask(&member, NOT_FULL);
	do /* on a busy machine the member may take more than a second to answer */
		r = ask(&late, JOIN);
	while (r.rc && time(NULL) < until);
	assert_int_equal(r.rc, 0);
	finish(&late);
	finish(&member);
}

/* The answers to a program that joins are read, although the first reads are interrupted. */
static void interrupted_answers_count(void **state)
{
	struct program member = join(), late = start();
	struct reply r = ask(&late, JOIN_INTERRUPTED);

	assert_int_equal(r.rc, 0);
	assert_false(r.foreign);
	finish(&late);
	finish(&member);
}

/*
 * Too many descriptors of the user are under way, because many programs join, and the kernel
 * refuses answers. They are sent later: a program that joins does not take the member for one of
 * another version.
 */
static void refused_answers_are_sent_later(void **state)
{
	struct program member = join(), late = start();
	time_t until = time(NULL) + WAIT_S;
	struct reply r;

	ask(&member, TOO_MANY);
	do { /* on a busy machine the member may take more than a second to answer */
		r = ask(&late, JOIN);
		assert_false(r.foreign);
	} while (r.rc && r.silent && time(NULL) < until);
	assert_int_equal(r.rc, 0);
	finish(&late);
	finish(&member);
}

static socklen_t member_name(struct sockaddr_un *name, const struct program *member)
{
	*name = (struct sockaddr_un){.sun_family = AF_UNIX};
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)sprintf(name->sun_path + 1, "roost-pool-%u-member-%u",
					   (unsigned)geteuid(), member->slot));
}

/*
 * A member is stopped, and so many programs have looked for it that its queue is full. It is there
 * all the same: the next program founds no second pool.
 */
static void a_full_queue_is_a_member(void **state)
{
	struct program member = join(), late = start();
	struct sockaddr_un name;
	socklen_t len = member_name(&name, &member);
	int fd[MOST_QUEUED], n = 0, rc = 0;
	struct reply r;

	child_stop(member.pid);
	while (!rc && n < MOST_QUEUED) {
		fd[n] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		rc = connect(fd[n++], (struct sockaddr *)&name, len);
	}
	assert_true(rc && errno == EAGAIN);
	r = ask(&late, JOIN);
	assert_int_equal(r.rc, -EADDRINUSE);
	assert_int_equal(r.silent, 1);
	while (n)
		close(fd[--n]);
	finish(&late);
	finish(&member);
}

/*
 * While a program attaches the filter of its address, a member of another address changes the pool,
 * again and again. The program gives up, and gets its requests.
 */
static void a_member_that_changes_the_pool_keeps_nobody(void **state)
{
	struct program p = join(), busy = start();
	time_t until = time(NULL) + WAIT_S;
	unsigned tries = 0;
	struct reply r;

	assert_int_equal(ask(&busy, JOIN_ELSEWHERE).rc, 0);
	tell(&p, PUBLISH_IN_VAIN);
	while ((r = hear(&p)).steers) {
		assert_true(++tries < MOST_STEERS);
		ask(&busy, MANAGE);
		tell(&p, CONTINUE);
	}
	assert_true(tries > 1);
	assert_int_equal(r.rc, 0);
	ask(&p, MANAGE);
	datagram_request(&addr, SERVICE, 7);
	do
		r = ask(&p, TAKE);
	while (!r.num && time(NULL) < until);
	assert_int_equal(r.mark, 7);
	finish(&busy);
	finish(&p);
}

static unsigned descriptors(pid_t pid)
{
	char path[40];
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Connects as often as `n` says. The member may take its time to accept. */
static void flood(const struct program *member, int fd[], unsigned n)
{
	struct sockaddr_un name;
	socklen_t len = member_name(&name, member);
	time_t until = time(NULL) + WAIT_S;

	for (unsigned i = 0; i < n; i++) {
		int rc;

		fd[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		assert_true(fd[i] >= 0);
		do
			rc = connect(fd[i], (struct sockaddr *)&name, len);
		while (rc && errno == EAGAIN && !usleep(1000) && time(NULL) < until);
		assert_int_equal(rc, 0);
	}
}

/*
 * A program of the user connects to a member again and again, and asks nothing. The member does not
 * keep all of these connections, and another program joins.
 */
static void connections_are_bounded(void **state)
{
	struct program member = join(), late = start();
	unsigned before = descriptors(member.pid);
	time_t until = time(NULL) + WAIT_S;
	static int fd[MOST_LINKS * 3];
	struct reply r;

	flood(&member, fd, ARRAY_SIZE(fd));
	do /* on a busy machine the member may take more than a second to answer */
		r = ask(&late, JOIN);
	while (r.rc && time(NULL) < until);
	assert_int_equal(r.rc, 0);
	assert_false(r.foreign);
	while (descriptors(member.pid) > before + MOST_LINKS && time(NULL) < until)
		usleep(1000);
	assert_in_range(descriptors(member.pid), before, before + MOST_LINKS);
	for (unsigned i = 0; i < ARRAY_SIZE(fd); i++)
		close(fd[i]);
	finish(&late);
	finish(&member);
}

static int setup(void **state)
{
	network_own(); /* if it can be: no other program of the machine is in the pool then */
	return pkt_addr_parse("127.0.85.1", &addr);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_refused_publisher_gets_nothing, end_all),
		cmocka_unit_test_teardown(a_member_without_descriptors_rests, end_all),
		cmocka_unit_test_teardown(interrupted_answers_count, end_all),
		cmocka_unit_test_teardown(refused_answers_are_sent_later, end_all),
		cmocka_unit_test_teardown(a_full_queue_is_a_member, end_all),
		cmocka_unit_test_teardown(a_member_that_changes_the_pool_keeps_nobody, end_all),
		cmocka_unit_test_teardown(connections_are_bounded, end_all),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
