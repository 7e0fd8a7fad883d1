/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs of one pool: each is a forked child that does what the test tells it. The test itself is
 * no member. It sends datagrams from outside, and kills and stops members.
 */
#include "../common/child.h"
#include "../common/network.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "datagram.h"
#include "pool/pool.h"

#define SEED	1
#define MEMBERS 8
#define ROUNDS	60
#define COMES	200
#define MANY	100 /* the last byte of the first of many addresses */
#define SERVICE 0x0000000001061234ull
#define SPORT	4790   /* that members say they send from; nobody has it */
#define LONG_MS 120000 /* a limit for what ends much earlier on an idle machine */

enum op {
	OP_JOIN,
	OP_TAKE,
	OP_PUBLISH,
	OP_WITHDRAW,
	OP_ALIVE,
	OP_FORK,
	OP_OWNED,
	OP_MORE,
	OP_UNITS,
	OP_MANY,
	OP_HAS_SENT,
	OP_COME_AND_GO,
	OP_LEAVE,
};

struct command {
	enum op op;
	unsigned slot;
	uint64_t service;
	uint8_t host; /* last byte of another address than `addr`; 0: `addr` */
};

struct reply {
	int rc;
	unsigned slot, num;
	uint32_t mark[64]; /* of the datagrams that came */
};

struct program {
	pid_t pid;
	int fd;
	unsigned slot;
	bool joined;
};

static struct pkt_addr addr; /* of the pool under test */

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* ---- in the child ---- */

static struct pool *pool;
static struct pool_addr *opened;
static int sock;

static void do_join(struct reply *r, uint8_t host)
{
	struct pkt_addr own = addr;
	unsigned silent;

	pool = pool_get();
	if (!pool) {
		r->rc = -errno;
		return;
	}
	r->slot = (unsigned)pool_slot(pool, 0);
	if (host)
		own.b[15] = host;
	opened = pool_addr_get(pool, &own, 0, &silent);
	r->num = silent;
	if (!opened) {
		r->rc = -errno;
		pool_put(pool);
		pool = NULL;
		return;
	}
	sock = pool_addr_use(opened, r->slot);
	r->rc = sock < 0 ? sock : 0;
	pool_addr_tell(opened, r->slot, &(struct pool_socket){.sport = SPORT});
}

static void do_take(struct reply *r)
{
	uint8_t pkt[512];
	ssize_t n;

	while (r->num < 64 && (n = recv(sock, pkt, sizeof(pkt), MSG_DONTWAIT)) > 0)
		memcpy(&r->mark[r->num++], pkt + n - 4, 4);
}

static atomic_bool claimed;
static atomic_uint opens;

static void *open_and_close(void *arg)
{
	unsigned silent;

	do {
		struct pool_addr *a = pool_addr_get(pool, &addr, 0, &silent);

		CHECK(a != NULL);
		pool_addr_put(a);
		atomic_fetch_add(&opens, 1);
	} while (!atomic_load(&claimed));
	return NULL;
}

/* Claims slots, while another thread opens the address of another member. */
static void do_more(void)
{
	int slot[POOL_MAX_OWN];
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, open_and_close, NULL) == 0);
	for (unsigned i = 0; i < POOL_MAX_OWN; i++) {
		unsigned before = atomic_load(&opens);

		slot[i] = pool_slot(pool, i);
		CHECK(slot[i] >= 0);
		for (unsigned k = 0; k < i; k++)
			CHECK(slot[i] != slot[k]);
		while (atomic_load(&opens) == before)
			sched_yield();
	}
	atomic_store(&claimed, true);
	pthread_join(thread, NULL);
}

/* Uses the address for as many units as a program may have. Returns the first error. */
static int do_units(void)
{
	struct pool_socket told = {.sport = SPORT};
	int rc = 0;

	for (unsigned i = 1; i < POOL_MAX_OWN && rc == 0; i++) {
		int slot = pool_slot(pool, i), fd;

		if (slot < 0)
			return slot;
		fd = pool_addr_use(opened, (unsigned)slot);
		rc = fd < 0 ? fd : pool_addr_tell(opened, (unsigned)slot, &told);
	}
	return rc;
}

/* Uses more addresses than a slot may have. Returns the error of the last. */
static int do_many(void)
{
	struct pool_addr *a[POOL_SEEN_ADDRS];
	struct pool_socket told = {.sport = SPORT};
	unsigned silent, slot = (unsigned)pool_slot(pool, 0);
	int rc;

	for (unsigned i = 0; i < POOL_SEEN_ADDRS; i++) {
		struct pkt_addr own = addr;

		own.b[15] = (uint8_t)(MANY + i);
		a[i] = pool_addr_get(pool, &own, 0, &silent);
		CHECK(a[i] && pool_addr_use(a[i], slot) >= 0);
		rc = pool_addr_tell(a[i], slot, &told);
		/* the child has joined at one address */
		CHECK(i + 1 == POOL_SEEN_ADDRS || rc == 0);
	}
	for (unsigned i = 0; i < POOL_SEEN_ADDRS; i++) {
		pool_addr_unuse(a[i], slot);
		pool_addr_put(a[i]);
	}
	return rc;
}

static bool has_sent(uint8_t host)
{
	struct pkt_addr from = addr;

	from.b[15] = host;
	return pool_sent_lately(pool, &from, 0, SPORT);
}

/* Joins again and again. No membership has the number of another one. */
static void come_and_go(void)
{
	uint32_t number[COMES];

	for (unsigned i = 0; i < COMES; i++) {
		pool = pool_get();
		CHECK(pool != NULL);
		number[i] = pool_owner(pool, (unsigned)pool_slot(pool, 0));
		CHECK(number[i] != 0);
		for (unsigned k = 0; k < i; k++)
			CHECK(number[k] != number[i]);
		pool_put(pool);
	}
}

/* A child that lives on without a call of exec, as some programs make. */
static void do_fork(void)
{
	if (fork() == 0) {
		pool_addr_put(opened);
		pool_put(pool);
		prctl(PR_SET_PDEATHSIG, 0);
		sleep(2);
		_exit(0);
	}
}

static void serve(int fd)
{
	struct command c;

	while (read(fd, &c, sizeof(c)) == sizeof(c)) {
		struct reply r = {0};

		switch (c.op) {
		case OP_JOIN:
			do_join(&r, c.host);
			break;
		case OP_TAKE:
			do_take(&r);
			break;
		case OP_PUBLISH:
			r.rc = pool_publish(pool, (unsigned)pool_slot(pool, 0), c.service, NULL, 0,
					    POOL_IPV4);
			break;
		case OP_WITHDRAW:
			pool_withdraw(pool, (unsigned)pool_slot(pool, 0), c.service, NULL, 0,
				      POOL_IPV4);
			break;
		case OP_ALIVE:
			r.rc = pool_alive(pool, c.slot);
			break;
		case OP_FORK:
			do_fork();
			break;
		case OP_OWNED:
			r.rc = pool_owner(pool, c.slot) != 0;
			break;
		case OP_MORE:
			do_more();
			break;
		case OP_UNITS:
			r.rc = do_units();
			break;
		case OP_MANY:
			r.rc = do_many();
			break;
		case OP_HAS_SENT:
			r.rc = has_sent(c.host);
			break;
		case OP_COME_AND_GO:
			come_and_go();
			break;
		case OP_LEAVE:
			pool_addr_unuse(opened, (unsigned)pool_slot(pool, 0));
			pool_addr_put(opened);
			pool_put(pool);
			break;
		}
		if (write(fd, &r, sizeof(r)) != sizeof(r) || c.op == OP_LEAVE)
			break;
	}
	_exit(0);
}

/* ---- in the test ---- */

static struct program start(void)
{
	struct program p = {0};

	p.pid = child_start(serve, &p.fd);
	return p;
}

static void tell(struct program *p, struct command c)
{
	assert_int_equal(write(p->fd, &c, sizeof(c)), sizeof(c));
}

static struct reply hear(struct program *p)
{
	struct reply r;

	assert_int_equal(read(p->fd, &r, sizeof(r)), sizeof(r));
	return r;
}

static struct reply ask(struct program *p, struct command c)
{
	tell(p, c);
	return hear(p);
}

static void join_at(struct program *p, uint8_t host)
{
	struct reply r = ask(p, (struct command){.op = OP_JOIN, .host = host});

	if (r.rc)
		fail_msg("a program can't join: %s", strerror(-r.rc));
	p->slot = r.slot;
	p->joined = true;
}

static void join(struct program *p)
{
	join_at(p, 0);
}

static void finish(struct program *p)
{
	child_kill(p->pid);
	close(p->fd);
	*p = (struct program){.fd = -1};
}

static void leave(struct program *p)
{
	ask(p, (struct command){.op = OP_LEAVE});
	close(p->fd);
	waitpid(p->pid, NULL, 0);
	*p = (struct program){.fd = -1};
}

static void send_qp(unsigned slot, uint32_t mark)
{
	datagram_qp(&addr, slot, mark);
}

static void send_req(uint64_t service, uint32_t mark)
{
	datagram_request(&addr, service, mark);
}

/*
 * The program has received this datagram, and no other. On a busy machine a thread of the kernel
 * delivers it, after sendto() has returned.
 */
static void check_only(struct program *p, uint32_t mark)
{
	uint64_t until = now_ms() + LONG_MS;
	struct reply r;

	do
		r = ask(p, (struct command){.op = OP_TAKE});
	while (!r.num && now_ms() < until);
	assert_int_equal(r.num, 1);
	assert_int_equal(r.mark[0], mark);
}

static void check_none(struct program *p)
{
	assert_int_equal(ask(p, (struct command){.op = OP_TAKE}).num, 0);
}

/* ---- tests ---- */

static void one_address_for_all(void **state)
{
	struct program p[3];

	for (unsigned i = 0; i < 3; i++) {
		p[i] = start();
		join(&p[i]);
		for (unsigned k = 0; k < i; k++)
			assert_int_not_equal(p[i].slot, p[k].slot);
	}
	for (unsigned i = 0; i < 3; i++)
		send_qp(p[i].slot, 100 + i);
	for (unsigned i = 0; i < 3; i++)
		check_only(&p[i], 100 + i);
	for (unsigned i = 0; i < 3; i++)
		leave(&p[i]);
}

static void the_first_dies(void **state)
{
	struct program a = start(), b = start(), c = start();
	unsigned dead;

	join(&a);
	join(&b);
	dead = a.slot;
	send_qp(dead, 1); /* not read any more */
	finish(&a);
	assert_int_equal(ask(&b, (struct command){.op = OP_ALIVE, .slot = dead}).rc, 0);
	send_qp(b.slot, 2);
	check_only(&b, 2);
	join(&c);
	send_qp(c.slot, 3);
	send_qp(b.slot, 4);
	check_only(&c, 3);
	check_only(&b, 4);
	finish(&b);
	finish(&c);
}

/*
 * All slots get owners; the packets for a dead owner must not reach its successor. What the dead
 * one sent counts until then.
 */
static void successor_gets_nothing_old(void **state)
{
	struct command sent = {.op = OP_HAS_SENT, .host = MANY};
	struct program p[POOL_SLOTS], more = start();
	struct reply r;
	unsigned dead;

	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		p[i] = start();
		join(&p[i]);
	}
	r = ask(&more, (struct command){.op = OP_JOIN});
	assert_int_equal(r.rc, -ENOSPC);
	dead = p[5].slot;
	ask(&p[5], (struct command){.op = OP_MANY});
	finish(&p[5]);
	send_qp(dead, 1);
	assert_true(ask(&p[0], sent).rc);
	join(&more);
	assert_false(ask(&p[0], sent).rc);
	assert_int_equal(more.slot, dead);
	check_none(&more);
	send_qp(dead, 2);
	check_only(&more, 2);
	finish(&more);
	for (unsigned i = 0; i < POOL_SLOTS; i++) {
		if (i != 5)
			finish(&p[i]);
	}
}

/* Programs of four units have four slots each. */
static void sixteen_of_four_units(void **state)
{
	struct program p[POOL_SLOTS / POOL_MAX_OWN], more = start();
	const unsigned programs = sizeof(p) / sizeof(p[0]);
	struct command join_all = {.op = OP_JOIN}, units = {.op = OP_UNITS};

	assert_int_equal(POOL_MAX_OWN, 4);
	for (unsigned i = 0; i < programs; i++) {
		p[i] = start();
		join(&p[i]);
		assert_int_equal(ask(&p[i], units).rc, 0);
	}
	assert_int_equal(ask(&more, join_all).rc, -ENOSPC);
	for (unsigned i = 0; i < programs; i++) {
		send_qp(p[i].slot, 100 + i);
		check_only(&p[i], 100 + i);
	}
	finish(&p[3]);
	join(&more);
	assert_int_equal(ask(&more, units).rc, 0);
	finish(&more);
	for (unsigned i = 0; i < programs; i++) {
		if (i != 3)
			finish(&p[i]);
	}
}

static void services(void **state)
{
	struct command publish = {.op = OP_PUBLISH, .service = SERVICE};
	struct program a = start(), b = start(), c = start();
	uint64_t until = now_ms() + LONG_MS;
	uint32_t mark = 10;
	struct reply r;

	join(&a);
	join(&b);
	join(&c);
	assert_int_equal(ask(&b, publish).rc, 0);
	assert_int_equal(ask(&c, publish).rc, -EADDRINUSE);
	send_req(SERVICE, 1);
	check_only(&b, 1);
	assert_int_equal(ask(&b, (struct command){.op = OP_WITHDRAW, .service = SERVICE}).rc, 0);
	assert_int_equal(ask(&c, publish).rc, 0);
	send_req(SERVICE, 2);
	check_only(&c, 2);
	check_none(&b);
	/* a killed listener does not keep its service */
	finish(&c);
	assert_int_equal(ask(&a, publish).rc, 0);
	send_req(SERVICE, 3);
	check_only(&a, 3);
	/* a request for an unknown service reaches some living program, also after a death */
	finish(&a);
	do {
		send_req(SERVICE + 1, ++mark);
		r = ask(&b, (struct command){.op = OP_TAKE});
	} while (!r.num && now_ms() < until);
	assert_int_equal(r.num, 1);
	finish(&b);
}

/* A listener on all addresses has those of its own program: two at different addresses coexist. */
static void services_of_two_addresses(void **state)
{
	struct command publish = {.op = OP_PUBLISH, .service = SERVICE};
	struct program a = start(), b = start(), c = start();

	join(&a);
	join_at(&b, 2);
	join_at(&c, 2);
	assert_int_equal(ask(&b, publish).rc, 0);
	assert_int_equal(ask(&a, publish).rc, 0);
	assert_int_equal(ask(&c, publish).rc, -EADDRINUSE);
	send_req(SERVICE, 1);
	check_only(&a, 1);
	check_none(&b);
	finish(&a);
	finish(&b);
	finish(&c);
}

/* Of programs that publish a service at once, one succeeds. */
static void services_at_once(void **state)
{
	struct program p[MEMBERS];

	for (unsigned i = 0; i < MEMBERS; i++) {
		p[i] = start();
		join(&p[i]);
	}
	for (unsigned n = 0; n < ROUNDS; n++) {
		struct command publish = {.op = OP_PUBLISH, .service = SERVICE + n};
		unsigned good = 0;

		for (unsigned i = 0; i < MEMBERS; i++)
			tell(&p[i], publish);
		for (unsigned i = 0; i < MEMBERS; i++) {
			int rc = hear(&p[i]).rc;

			assert_true(rc == 0 || rc == -EADDRINUSE);
			good += rc == 0;
		}
		assert_int_equal(good, 1);
	}
	for (unsigned i = 0; i < MEMBERS; i++)
		finish(&p[i]);
}

/* Threads of a member claim slots and open an address at the same time. */
static void slots_and_address_at_once(void **state)
{
	struct program a = start(), b;

	join(&a);
	for (unsigned i = 0; i < 5; i++) {
		b = start();
		join_at(&b, 2);
		assert_int_equal(ask(&b, (struct command){.op = OP_MORE}).rc, 0);
		finish(&b);
	}
	finish(&a);
}

/* Peers tell the owners of a slot apart by their numbers. */
static void no_number_returns(void **state)
{
	struct program keeper = start(), other = start();

	join(&keeper); /* the pool stays the same */
	assert_int_equal(ask(&other, (struct command){.op = OP_COME_AND_GO}).rc, 0);
	finish(&keeper);
	finish(&other);
}

static void too_many_addresses(void **state)
{
	struct program a = start();

	join(&a);
	assert_int_equal(ask(&a, (struct command){.op = OP_MANY}).rc, -ENOSPC);
	leave(&a);
}

static void stopped_members(void **state)
{
	struct program a = start(), b = start(), c = start();
	uint64_t from;
	struct reply r;

	join(&a);
	join(&b);
	child_stop(a.pid);
	from = now_ms();
	join(&c); /* b answers */
	assert_true(now_ms() - from < LONG_MS);
	send_qp(c.slot, 1);
	check_only(&c, 1);
	leave(&c);
	/* nobody can answer, and the address is taken: an error, in bounded time */
	child_stop(b.pid);
	c = start();
	r = ask(&c, (struct command){.op = OP_JOIN});
	assert_int_equal(r.rc, -EADDRINUSE);
	assert_true(r.num > 0); /* the reason: they do not answer */
	kill(a.pid, SIGCONT);
	kill(b.pid, SIGCONT);
	join(&c);
	finish(&a);
	finish(&b);
	finish(&c);
}

/* A debugger holds a member: others join and get their datagrams. Killed there, it is gone. */
static void stopped_in_a_debugger(void **state)
{
	struct program a = start(), b = start(), c = start();
	pid_t tid[CHILD_THREADS];
	unsigned threads;
	uint64_t from;

	join(&a);
	join(&b);
	threads = child_hold(a.pid, tid);
	if (!threads) {
		finish(&a);
		finish(&b);
		finish(&c);
		print_message("SKIPPED: no process may be traced here\n");
		skip();
	}
	assert_true(threads > 1); /* the thread of the pool */
	from = now_ms();
	join(&c); /* b answers */
	send_qp(c.slot, 1);
	send_qp(b.slot, 2);
	check_only(&c, 1);
	check_only(&b, 2);
	assert_true(now_ms() - from < LONG_MS);
	assert_int_equal(ask(&b, (struct command){.op = OP_ALIVE, .slot = a.slot}).rc, 1);
	child_kill_stopped(tid, threads);
	close(a.fd);
	while (ask(&b, (struct command){.op = OP_OWNED, .slot = a.slot}).rc)
		usleep(1000);
	finish(&b);
	finish(&c);
}

static void forked_child_frees_the_slot(void **state)
{
	struct program a = start(), b = start();
	unsigned slot;

	join(&a);
	join(&b);
	slot = a.slot;
	ask(&a, (struct command){.op = OP_FORK});
	for (int i = 0; i < 100; i++) /* the child closes its copies */
		usleep(1000);
	finish(&a);
	assert_int_equal(ask(&b, (struct command){.op = OP_ALIVE, .slot = slot}).rc, 0);
	finish(&b);
}

static void strangers(void **state)
{
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(4791)};
	struct program a = start(), b = start(); /* first: they must not inherit the socket */
	int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
	uint64_t from = now_ms();

	memcpy(&name.sin_addr, addr.b + 12, 4);
	/* it has the address, and would share it */
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
	assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(ask(&a, (struct command){.op = OP_JOIN}).rc, -EADDRINUSE);
	close(fd);
	join(&a);
	/* it comes and goes between two members */
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
	assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	join(&b);
	close(fd);
	send_qp(a.slot, 1);
	send_qp(b.slot, 2);
	check_only(&a, 1);
	check_only(&b, 2);
	assert_true(now_ms() - from < LONG_MS);
	finish(&a);
	finish(&b);
}

/*
 * Members are killed and stopped at any instant, many while they join. The others get their
 * datagrams, and new ones can join.
 */
static void kills_and_stops(void **state)
{
	struct program p[MEMBERS];
	struct program keeper = start(); /* one that can always answer */
	struct rng r;

	rng_seed(&r, SEED);
	join(&keeper);
	for (unsigned i = 0; i < MEMBERS; i++) {
		p[i] = start();
		join(&p[i]);
	}
	for (unsigned n = 0; n < ROUNDS; n++) {
		struct program *victim = &p[rng_u64(&r) % MEMBERS];
		struct program *other = &p[rng_u64(&r) % MEMBERS];
		bool stopped = other != victim && rng_u64(&r) & 1;

		if (stopped)
			child_stop(other->pid);
		finish(victim);
		*victim = start();
		if (rng_u64(&r) % 3 == 0) { /* it dies at some step of joining */
			tell(victim, (struct command){.op = OP_JOIN});
			usleep((useconds_t)(rng_u64(&r) % 2000));
			finish(victim);
			*victim = start();
		}
		join(victim);
		send_qp(victim->slot, n);
		send_qp(keeper.slot, 1000 + n);
		check_only(victim, n);
		check_only(&keeper, 1000 + n);
		if (stopped) {
			send_qp(other->slot, 2000 + n);
			kill(other->pid, SIGCONT);
			check_only(other, 2000 + n);
		}
	}
	for (unsigned i = 0; i < MEMBERS; i++)
		finish(&p[i]);
	finish(&keeper);
}

static int setup(void **state)
{
	network_own(); /* if it can be: no other program of the machine is in the pool then */
	signal(SIGPIPE, SIG_IGN);
	printf("seed %d\n", SEED);
	return pkt_addr_parse("127.0.77.1", &addr);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_address_for_all),
		cmocka_unit_test(the_first_dies),
		cmocka_unit_test(successor_gets_nothing_old),
		cmocka_unit_test(sixteen_of_four_units),
		cmocka_unit_test(services),
		cmocka_unit_test(services_of_two_addresses),
		cmocka_unit_test(services_at_once),
		cmocka_unit_test(slots_and_address_at_once),
		cmocka_unit_test(no_number_returns),
		cmocka_unit_test(too_many_addresses),
		cmocka_unit_test(stopped_members),
		cmocka_unit_test(stopped_in_a_debugger),
		cmocka_unit_test(forked_child_frees_the_slot),
		cmocka_unit_test(strangers),
		cmocka_unit_test(kills_and_stops),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
