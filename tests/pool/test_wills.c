/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Wills of programs of one pool. Each program is a forked child that does what the test tells it.
 * The test itself is no member. It kills and stops members.
 */
#include "../common/child.h"
#include "../common/network.h"

#include <errno.h>
#include <net/if.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "pool/pool.h"

#define FIRST  1 /* the last byte of an address of the pool */
#define SECOND 2
#define LOCAL  "fe80::84:2" /* an address on two interfaces */
#define SPORT  4790	    /* that members say they send from; nobody has it */
#define BITS   (1u << 5 | 1u << 7)
#define WAIT_S 60

enum op { JOIN, LEAVE_WILLS, EXECUTED, NO_PORT, LOOKED, PORT, OWNED, LEAVE };

struct command {
	enum op op;
	unsigned of;	/* the last byte of an address, or a slot */
	uint32_t scope; /* not 0: LOCAL on this interface */
};

struct reply {
	unsigned slot, owned, executed;
	uint32_t bits;
};

struct program {
	pid_t pid;
	int fd;
	unsigned slot;
};

/* ---- in the child ---- */

static struct pool *pool;
static struct pool_addr *opened;
static struct pkt_addr addr;
static uint32_t scope;

static _Atomic unsigned executed;      /* wills of others, in all */
static _Atomic uint32_t executed_bits; /* by their first byte */
static _Atomic bool no_port;	       /* the program opens its address, and cannot send yet */
static _Atomic bool looked;	       /* a will came meanwhile */

static bool can_execute(void *ctx, const struct pkt_addr *src, uint32_t its_scope)
{
	looked |= no_port;
	return !no_port;
}

static void execute(void *ctx, const struct pool_will *w)
{
	looked |= no_port;
	if (no_port)
		return;
	executed++;
	executed_bits |= 1u << (w->mad[0] & 31);
}

static unsigned do_join(const struct command *c)
{
	unsigned silent, slot;

	pool = pool_get();
	CHECK(pool != NULL);
	slot = (unsigned)pool_slot(pool, 0);
	addr.b[15] = (uint8_t)c->of;
	scope = c->scope;
	CHECK(!scope || pkt_addr_parse(LOCAL, &addr) == 0);
	opened = pool_addr_get(pool, &addr, scope, &silent);
	CHECK(opened && pool_addr_use(opened, slot) >= 0);
	CHECK(pool_addr_tell(opened, slot, &(struct pool_socket){.sport = SPORT}) == 0);
	pool_execute(pool, can_execute, execute, NULL);
	return slot;
}

/* Leaves wills 0 to 2, and removes 1. */
static void leave_wills(void)
{
	struct pool_will w = {.src = addr, .dst = addr, .scope = scope};
	unsigned slot = (unsigned)pool_slot(pool, 0);

	for (uint8_t i = 0; i < 3; i++) {
		w.mad[0] = i + 5;
		pool_leave_will(pool, slot, i, &w);
	}
	pool_leave_will(pool, slot, 1, NULL);
	pool_leave_will(pool, slot, POOL_WILLS, &w); /* there is no space for it */
}

static void do_leave(void)
{
	pool_addr_unuse(opened, (unsigned)pool_slot(pool, 0));
	pool_addr_put(opened);
	pool_put(pool);
}

static void serve(int fd)
{
	struct command c;

	while (read(fd, &c, sizeof(c)) == sizeof(c)) {
		struct reply r = {.executed = executed, .bits = executed_bits};

		switch (c.op) {
		case JOIN:
			r.slot = do_join(&c);
			break;
		case LEAVE_WILLS:
			leave_wills();
			break;
		case EXECUTED:
			break;
		case NO_PORT:
			no_port = true;
			break;
		case LOOKED:
			while (!looked)
				usleep(1000);
			break;
		case PORT:
			no_port = false;
			pool_execute_wills(pool);
			break;
		case OWNED:
			r.owned = pool_owner(pool, c.of) != 0;
			break;
		case LEAVE:
			do_leave();
			break;
		}
		if (write(fd, &r, sizeof(r)) != sizeof(r) || c.op == LEAVE)
			break;
	}
}

/* ---- in the test ---- */

static struct reply tell(const struct program *p, struct command c)
{
	struct reply r;

	assert_int_equal(write(p->fd, &c, sizeof(c)), sizeof(c));
	assert_int_equal(read(p->fd, &r, sizeof(r)), sizeof(r));
	return r;
}

static struct reply ask(const struct program *p, enum op op, unsigned of)
{
	return tell(p, (struct command){op, of, 0});
}

static struct program join_at(struct command where)
{
	struct program p;

	where.op = JOIN;
	p.pid = child_start(serve, &p.fd);
	p.slot = tell(&p, where).slot;
	return p;
}

static struct program join(unsigned of)
{
	return join_at((struct command){.of = of});
}

static void finish(struct program *p)
{
	child_finish(&p->pid, p->fd);
}

/* Waits until the program has sent the wills. */
static void sends_both(const struct program *p)
{
	time_t until = time(NULL) + WAIT_S;
	struct reply r;

	do
		r = ask(p, EXECUTED, 0);
	while (r.executed < 2 && time(NULL) < until);
	assert_int_equal(r.executed, 2);
	assert_int_equal(r.bits, BITS);
}

/*
 * What a killed program left is sent by one survivor, once; what a program leaves that ends is not.
 */
static void one_survivor_sends_them(void **state)
{
	time_t until = time(NULL) + WAIT_S;
	struct program p[4], more;
	struct reply r[2];

	for (unsigned i = 0; i < 4; i++) {
		p[i] = join(FIRST);
		ask(&p[i], LEAVE_WILLS, 0);
	}
	ask(&p[3], LEAVE, 0);
	finish(&p[0]);
	do
		for (unsigned i = 0; i < 2; i++)
			r[i] = ask(&p[i + 1], EXECUTED, 0);
	while (r[0].executed + r[1].executed < 2 && time(NULL) < until);
	more = join(FIRST); /* a later look of the survivors, and a new member, change nothing */
	for (unsigned i = 0; i < 2; i++)
		r[i] = ask(&p[i + 1], EXECUTED, 0);
	assert_int_equal(r[0].executed + r[1].executed, 2);
	assert_int_equal(r[0].bits | r[1].bits, BITS);
	assert_int_equal(ask(&more, EXECUTED, 0).executed, 0);
	for (unsigned i = 1; i < 4; i++)
		finish(&p[i]);
	finish(&more);
}

/* A member notices the death of a killed program first, and leaves the wills to the heir. */
static void other_leaves_them(struct program killed, struct program other, struct program heir)
{
	ask(&killed, LEAVE_WILLS, 0);
	child_stop(heir.pid);
	finish(&killed);
	while (ask(&other, OWNED, killed.slot).owned)
		;
	kill(heir.pid, SIGCONT);
	sends_both(&heir);
	assert_int_equal(ask(&other, EXECUTED, 0).executed, 0);
	finish(&other);
	finish(&heir);
}

/* A member does not have the address of the killed program. */
static void another_address_leaves_them(void **state)
{
	other_leaves_them(join(FIRST), join(SECOND), join(FIRST));
}

static int end[2] = {-1, -1}; /* the other ends of the interfaces */

/* A member has the link-local address of the killed program, on another interface. */
static void another_interface_leaves_them(void **state)
{
	struct command first = {.scope = if_nametoindex("tun0")},
		       second = {.scope = if_nametoindex("tun1")};

	if (end[1] < 0) {
		print_message("SKIPPED: no network of its own with tunnel devices\n");
		skip();
	}
	other_leaves_them(join_at(first), join_at(second), join_at(first));
}

/*
 * A member that is just opening the address of a killed program notices the death first. It cannot
 * send yet, and leaves the wills: to its own look when it has a port, or to another member.
 */
static void without_a_port_they_stay(void **state)
{
	for (unsigned others = 0; others < 2; others++) {
		struct program killed = join(FIRST), opening = join(FIRST), heir = {0};

		ask(&opening, NO_PORT, 0);
		ask(&killed, LEAVE_WILLS, 0);
		if (others) {
			heir = join(FIRST);
			child_stop(heir.pid);
		}
		finish(&killed);
		ask(&opening, LOOKED, 0);
		if (others) {
			kill(heir.pid, SIGCONT);
			sends_both(&heir);
			assert_int_equal(ask(&opening, EXECUTED, 0).executed, 0);
		} else {
			ask(&opening, PORT, 0);
			sends_both(&opening);
		}
		finish(&opening);
		finish(&heir);
	}
}

static bool own; /* no other program of the machine is in the pool */

/* Takes a name that members hold while they join or publish. Returns a descriptor. */
static int hold(const char *kind)
{
	struct sockaddr_un n = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int len = snprintf(n.sun_path + 1, sizeof(n.sun_path) - 1, "roost-pool-%u-%s-0",
			   (unsigned)geteuid(), kind);

	assert_true(fd >= 0);
	assert_int_equal(
		bind(fd, (struct sockaddr *)&n,
		     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)len),
		0);
	return fd;
}

/*
 * A program that is stopped while it joins or publishes holds a name for as long as it is stopped.
 * Others leave wills and send them meanwhile.
 */
static void a_stopped_program_delays_no_will(void **state)
{
	struct program killed, heir;
	int names[2];

	if (!own) {
		print_message("SKIPPED: no network of its own\n");
		skip();
	}
	killed = join(FIRST);
	heir = join(FIRST);
	names[0] = hold("publisher");
	names[1] = hold("founder");
	ask(&killed, LEAVE_WILLS, 0);
	finish(&killed);
	sends_both(&heir);
	killed = join(FIRST); /* the successor, too */
	ask(&killed, LEAVE_WILLS, 0);
	finish(&killed);
	while (ask(&heir, EXECUTED, 0).executed < 4)
		usleep(1000);
	for (unsigned i = 0; i < 2; i++)
		close(names[i]);
	finish(&heir);
}

static int setup(void **state)
{
	own = network_own();
	if (own && (end[0] = network_link("tun0", LOCAL)) >= 0)
		end[1] = network_link("tun1", LOCAL);
	return pkt_addr_parse("127.0.84.1", &addr);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_survivor_sends_them),
		cmocka_unit_test(another_address_leaves_them),
		cmocka_unit_test(another_interface_leaves_them),
		cmocka_unit_test(without_a_port_they_stay),
		cmocka_unit_test(a_stopped_program_delays_no_will),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
