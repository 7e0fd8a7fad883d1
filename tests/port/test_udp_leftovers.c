/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connection requests that came for a program of an address after its death: it is stopped, gets
 * them, and is killed. A survivor of the address takes them, or passes them to the program that has
 * the service now. No sender has to repeat one.
 */
#include "../common/child.h"
#include "../common/network.h"
#include "rig.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "pool/pool.h"

#define OWN	 "udp:127.0.79.1"
#define OUTSIDE	 "udp:127.0.79.2"
#define SERVICE	 0x0000000001065678ull
#define REQUESTS 20
#define LATE	 100 /* bursts that look for packets too many */
#define WAIT_MS	 60000

/* ---- other programs: forked children, made before this process has threads ---- */

enum command { OPEN, PUBLISH, TAKE };

struct reply {
	int rc;
	unsigned slot, requests, others;
};

struct program {
	pid_t pid;
	int fd;
	unsigned slot;
};

/* Counts the packets of a burst. */
static void count(struct port *p, struct reply *r)
{
	struct port_pkt pkts[PORT_BURST];
	int n = p->ops->rx_burst(p, pkts, PORT_BURST);

	for (int i = 0; i < n; i++) {
		if (pkt_get24(((const struct pkt_bth *)pkts[i].bth)->dqpn) == PKT_GSI_QPN)
			r->requests++;
		else
			r->others++;
	}
}

static void serve(int fd)
{
	struct port *p = NULL;
	enum command c;
	char err[256];

	while (read(fd, &c, sizeof(c)) == sizeof(c)) {
		struct reply r = {0};

		if (c == OPEN) {
			p = port_open(OWN, 0, 1, err, sizeof(err));
			if (!p)
				_exit(1);
			pool_manages(pool_mine(), p->slot, true);
			r.slot = p->slot;
		} else if (c == PUBLISH) {
			r.rc = pool_publish(pool_mine(), p->slot, SERVICE, NULL, 0, POOL_IPV4);
		} else {
			count(p, &r);
		}
		if (write(fd, &r, sizeof(r)) != sizeof(r))
			break;
	}
	_exit(0);
}

static struct program start(void)
{
	struct program p = {0};

	p.pid = child_start(serve, &p.fd);
	return p;
}

static struct reply ask(const struct program *p, enum command c)
{
	struct reply r;

	assert_int_equal(write(p->fd, &c, sizeof(c)), sizeof(c));
	assert_int_equal(read(p->fd, &r, sizeof(r)), sizeof(r));
	return r;
}

/* ---- in the test ---- */

static struct program dead[2], heir;
static struct port *survivor, *sender;

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* A listener that is stopped gets requests, and packets for its queue pairs. */
static void fill(struct program *p)
{
	struct port_path *path;
	uint32_t qpn;

	p->slot = ask(p, OPEN).slot;
	assert_int_equal(ask(p, PUBLISH).rc, 0);
	child_stop(p->pid);
	qpn = p->slot << 18 | 0x75;
	path = sender->ops->path_get(sender, &survivor->addr, qpn);
	assert_non_null(path);
	for (uint32_t i = 0; i < REQUESTS; i++) {
		assert_int_equal(rig_send(sender, path, 64, 0, qpn, i), 0);
		assert_true(sender->ops->flush(sender));
		rig_send_request(sender, &survivor->addr, SERVICE, CM_REQ);
	}
	sender->ops->path_put(sender, path);
}

/* A survivor that sleeps is woken, and gets all requests, but nothing for a queue pair. */
static void survivor_takes_them(void **state)
{
	uint64_t until = now_ms() + WAIT_MS;
	struct reply got = {0};

	fill(&dead[0]);
	count(survivor, &got);
	assert_int_equal(got.requests, 0);
	while (!survivor->ops->arm(survivor))
		count(survivor, &got);
	child_finish(&dead[0].pid, dead[0].fd);
	assert_true(rig_readable(survivor, WAIT_MS));
	survivor->ops->disarm(survivor, true);
	while (got.requests < REQUESTS && now_ms() < until)
		count(survivor, &got);
	for (unsigned i = 0; i < LATE; i++)
		count(survivor, &got);
	assert_int_equal(got.requests, REQUESTS);
	assert_int_equal(got.others, 0);
	assert_int_equal(port_stats_of(survivor).rx_bad, 0);
}

/* A program that has published the service since gets them all. */
static void heir_gets_them(void **state)
{
	uint64_t until = now_ms() + WAIT_MS;
	struct reply got = {0}, sum = {0};

	fill(&dead[1]);
	ask(&heir, OPEN);
	assert_int_equal(ask(&heir, PUBLISH).rc, -EADDRINUSE);
	child_finish(&dead[1].pid, dead[1].fd);
	assert_int_equal(ask(&heir, PUBLISH).rc, 0);
	for (unsigned late = 0; late < LATE && now_ms() < until;) {
		struct reply r;

		count(survivor, &got); /* passes them on */
		r = ask(&heir, TAKE);
		sum.requests += r.requests;
		sum.others += r.others;
		late += sum.requests >= REQUESTS;
	}
	assert_int_equal(sum.requests, REQUESTS);
	assert_int_equal(sum.others, 0);
	assert_int_equal(got.requests, 0);
	assert_int_equal(got.others, 0);
}

static int setup(void **state)
{
	network_own(); /* if it can be: no other program of the machine is in the pool then */
	for (unsigned i = 0; i < 2; i++)
		dead[i] = start();
	heir = start();
	survivor = rig_open(OWN);
	sender = rig_open(OUTSIDE);
	pool_manages(pool_mine(), survivor->slot, true);
	return 0;
}

static int teardown(void **state)
{
	for (unsigned i = 0; i < 2; i++)
		child_finish(&dead[i].pid, dead[i].fd);
	child_finish(&heir.pid, heir.fd);
	return rig_close_all(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(survivor_takes_them),
		cmocka_unit_test(heir_gets_them),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
