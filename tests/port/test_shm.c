/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shm port between two correct endpoints: addresses, exchange, back-pressure, sleeping and
 * waking.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "shm_rig.h"

static void expect_addr(struct port *p, const char *text)
{
	char buf[46];

	assert_string_equal(pkt_addr_print(&p->addr, buf, sizeof(buf)), text);
}

/* ---- addresses ---- */

static void test_addresses(void **state)
{
	char err[256];
	struct port *a = srig_open(NULL, 0), *b = srig_open(NULL, 0), *c;

	expect_addr(a, "10.0.0.1");
	expect_addr(b, "10.0.0.2");
	assert_int_equal(a->mtu, 4096);
	assert_int_equal(a->window, 0);
	assert_int_equal(a->read_window, 0);

	assert_null(srig_open_lane("10.0.0.2", 0, 0, 1, err));
	assert_non_null(strstr(err, "10.0.0.2 is taken by process"));
	assert_null(strchr(err, '\n'));
	port_close(b);
	c = srig_open("10.0.0.2", 0);
	port_close(c);
	c = srig_open("fd00::5", 0);
	expect_addr(c, "fd00::5");
	port_close(c);
	port_close(a);
	assert_int_equal(srig_count_files(), 0);
}

static void test_bad_specifications(void **state)
{
	static const char *const bad[] = {"0.0.0.0", "224.0.0.1", "255.255.255.255",
					  "::", "ff02::1"};
	struct port_spec spec = {.kind = "shm", .ring = 100000};
	char err[256];

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		err[0] = '\0';
		assert_null(srig_open_lane(bad[i], 0, 0, 1, err));
		assert_int_not_equal(strlen(err), 0);
	}
	assert_null(shm_open_port(&spec, 0, 1, err, sizeof(err)));
	assert_non_null(strstr(err, "ring="));
	spec.ring = 0;
	spec.mtu = 1024;

	struct port *p = shm_open_port(&spec, 0, 1, err, sizeof(err));

	assert_non_null(p);
	assert_int_equal(p->mtu, 1024);
	port_close(p);
}

static void test_taken_until_killed(void **state)
{
	char err[256], expected[64];
	pid_t pid = srig_start_holder("10.0.0.9");

	assert_null(srig_open_lane("10.0.0.9", 0, 0, 1, err));
	snprintf(expected, sizeof(expected), "taken by process %d", (int)pid);
	assert_non_null(strstr(err, expected));
	srig_kill(pid);
	assert_true(srig_count_files() > 0); /* the killed process left its socket */
	port_close(srig_open("10.0.0.9", 0));
	assert_int_equal(srig_count_files(), 0);
}

static void make_file(const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", srig_dir, name);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
}

static void test_foreign_files(void **state)
{
	char err[256], path[128];
	struct stat st;
	struct port *p;

	make_file("10.0.0.1.0");
	make_file("10.0.0.77.0.lock");
	snprintf(path, sizeof(path), "%s/10.0.0.2.0.lock", srig_dir);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	snprintf(path, sizeof(path), "%s/10.0.0.3.0", srig_dir);
	assert_int_equal(mkdir(path, 0700), 0);

	assert_null(srig_open_lane("10.0.0.1", 0, 0, 1, err));
	assert_non_null(strstr(err, "no socket"));
	assert_null(srig_open_lane("10.0.0.2", 0, 0, 1, err));
	p = srig_open(NULL, 0);
	expect_addr(p, "10.0.0.4");
	port_close(p);
	/* An unlocked lock file has no owner, with any content. */
	p = srig_open("10.0.0.77", 0);
	port_close(p);
	snprintf(path, sizeof(path), "%s/10.0.0.1.0", srig_dir);
	assert_int_equal(stat(path, &st), 0);
}

static void test_folder_must_be_private(void **state)
{
	char err[256], link[128];

	assert_int_equal(chmod(srig_dir, 0755), 0);
	assert_null(srig_open_lane(NULL, 0, 0, 1, err));
	assert_non_null(strstr(err, "not a private folder"));
	assert_int_equal(chmod(srig_dir, 0700), 0);

	snprintf(link, sizeof(link), "%s.link", srig_dir);
	assert_int_equal(symlink(srig_dir, link), 0);
	setenv("ROOST_SHM_DIR", link, 1);
	assert_null(srig_open_lane(NULL, 0, 0, 1, err));
	setenv("ROOST_SHM_DIR", srig_dir, 1);
	unlink(link);
}

/* ---- exchange ---- */

static void test_exchange(void **state)
{
	struct srig_pair p = srig_open_pair(SHM_RING_MIN);
	uint64_t sent[2] = {0}, got[2] = {0};

	while (got[0] < 3000 || got[1] < 3000) {
		for (int dir = 0; dir < 2; dir++) {
			struct port *from = dir ? p.b : p.a, *to = dir ? p.a : p.b;
			struct port_pkt pkts[PORT_BURST];
			int n;

			while (sent[dir] < got[dir] + 40 &&
			       srig_send(from, dir ? p.ba : p.ab, sent[dir]))
				sent[dir]++;
			assert_true(from->ops->flush(from));
			n = srig_receive(to, pkts);
			for (int i = 0; i < n; i++) {
				srig_check(&pkts[i], got[dir]);
				assert_int_equal(pkts[i].tos, (uint8_t)got[dir]);
				assert_int_equal(!!(pkts[i].flags & PORT_CE), (got[dir] & 3) == 3);
				assert_true(pkts[i].flags & PORT_ID_KNOWN);
				assert_int_equal(pkts[i].ip_id, 0);
				assert_int_equal(pkts[i].sport, PKT_UDP_PORT);
				assert_true(pkt_addr_eq(pkts[i].src, &from->addr));
				assert_true(pkt_addr_eq(pkts[i].dst, &to->addr));
				got[dir]++;
			}
		}
	}
	assert_int_equal(p.a->stats.rx_packets, got[1]);
	assert_int_equal(p.a->stats.tx_packets, sent[0]);
	assert_int_equal(p.b->stats.rx_packets, got[0]);
	assert_int_equal(p.a->stats.tx_dropped + p.b->stats.rx_bad, 0);
	srig_close_pair(&p);
}

static void test_cancel_and_flush(void **state)
{
	struct srig_pair p = srig_open_pair(0);
	struct port_buf buf;
	struct port_pkt pkts[PORT_BURST];

	assert_true(p.a->ops->flush(p.a));
	assert_int_equal(p.a->ops->reserve(p.a, p.ab, 100, 0, &buf), 0);
	p.a->ops->cancel(p.a);
	assert_true(p.a->ops->flush(p.a));
	assert_int_equal(srig_receive(p.b, pkts), 0);
	assert_true(srig_send(p.a, p.ab, 0));
	assert_int_equal(srig_receive(p.b, pkts), 0); /* not before the flush */
	assert_int_equal(p.a->ops->reserve(p.a, p.ab, 4148, 0, &buf), 0);
	p.a->ops->cancel(p.a);
	srig_send_now(p.a, p.ab, 1);
	assert_int_equal(srig_receive(p.b, pkts), 2);
	srig_check(&pkts[0], 0);
	srig_check(&pkts[1], 1);
	assert_int_equal(p.a->stats.tx_packets, 2);
	assert_int_equal(p.a->ops->reserve(p.a, p.ab, PKT_MAX_LEN + 1, 0, &buf), -EMSGSIZE);
	srig_close_pair(&p);
}

/*
 * The packet reserved last may lack its ICRC. So the receiver does not see it before the flush or
 * the next reservation.
 */
static void test_lag(void **state)
{
	struct srig_pair p = srig_open_pair(0);
	struct port_pkt pkts[PORT_BURST];
	uint64_t sent = 0, got = 0;
	int n;

	assert_int_equal(p.a->lag, 1);
	for (; sent < 200; sent++) {
		assert_true(srig_send(p.a, p.ab, sent));
		while ((n = srig_receive(p.b, pkts)) > 0)
			got += (unsigned)n;
		assert_true(got < sent || sent == 0);
	}
	assert_true(got > 0); /* packets arrive before the flush */
	srig_close_pair(&p);
}

static void test_full_ring_pushes_back(void **state)
{
	struct srig_pair p = srig_open_pair(SHM_RING_MIN);
	struct port_pkt pkts[PORT_BURST];
	uint64_t sent = 0, got = 0;
	int n;

	while (srig_send(p.a, p.ab, sent))
		sent++;
	assert_true(sent > 5);
	assert_true(p.a->stats.tx_blocked > 0);
	p.a->ops->flush(p.a);
	/* The sender sleeps until there is space. */
	assert_true(p.a->ops->arm(p.a));
	assert_false(srig_readable(p.a->fd, 0));
	while ((n = srig_receive(p.b, pkts)) > 0) {
		for (int i = 0; i < n; i++)
			srig_check(&pkts[i], got++);
	}
	assert_int_equal(got, sent);
	assert_true(srig_readable(p.a->fd, SRIG_WAIT_MS));
	p.a->ops->disarm(p.a, true);
	assert_false(srig_readable(p.a->fd, 0));
	srig_send_now(p.a, p.ab, sent);
	assert_int_equal(srig_receive(p.b, pkts), 1);
	srig_check(&pkts[0], sent);
	srig_close_pair(&p);
}

/*
 * A sender that has given up its packets still learns of space in the ring, but only once: then it
 * sleeps.
 */
static void test_space_is_news_once(void **state)
{
	struct srig_pair p = srig_open_pair(SHM_RING_MIN);
	struct port_pkt pkts[PORT_BURST];
	uint64_t sent = 0;

	while (srig_send(p.a, p.ab, sent))
		sent++;
	p.a->ops->flush(p.a);
	while (srig_receive(p.b, pkts) > 0)
		;
	assert_false(p.a->ops->arm(p.a));
	assert_int_equal(p.a->ops->rx_burst(p.a, pkts, PORT_BURST), 0);
	assert_true(p.a->ops->arm(p.a));
	assert_false(srig_readable(p.a->fd, 0));
	p.a->ops->disarm(p.a, true);
	/* The next failure is news again. */
	while (srig_send(p.a, p.ab, sent))
		sent++;
	p.a->ops->flush(p.a);
	assert_true(p.a->ops->arm(p.a));
	while (srig_receive(p.b, pkts) > 0)
		;
	assert_true(srig_readable(p.a->fd, SRIG_WAIT_MS));
	p.a->ops->disarm(p.a, true);
	srig_close_pair(&p);
}

/* ---- sleeping and waking ---- */

static void test_arm(void **state)
{
	struct srig_pair p = srig_open_pair(0);
	struct port_pkt pkts[PORT_BURST];

	assert_true(p.b->ops->arm(p.b));
	assert_false(srig_readable(p.b->fd, 0));
	srig_send_now(p.a, p.ab, 0);
	assert_true(srig_readable(p.b->fd, 0));
	p.b->ops->disarm(p.b, true);
	assert_false(p.b->ops->arm(p.b)); /* a packet waits */
	assert_int_equal(p.b->ops->rx_burst(p.b, pkts, PORT_BURST), 1);
	assert_false(p.b->ops->arm(p.b)); /* the burst is not returned yet */
	assert_int_equal(p.b->ops->rx_burst(p.b, pkts, PORT_BURST), 0);
	assert_true(p.b->ops->arm(p.b));
	p.b->ops->disarm(p.b, true);
	p.b->ops->disarm(p.b, true);

	/* The receiver does not sleep: no system call, no bell. */
	srig_send_now(p.a, p.ab, 1);
	assert_false(srig_readable(p.b->fd, 0));
	srig_close_pair(&p);
}

/* Returns whether the bell was rung, and resets it. */
static bool rung(struct port *p)
{
	bool yes = srig_readable(p->fd, 0);

	shm_drain(shm_of(p));
	assert_false(srig_readable(p->fd, 0));
	return yes;
}

/*
 * Sets the other side's flag just before each place that reads it. This is the state after a race,
 * in which the other side's store and our load passed each other at the last read.
 */
static void test_late_flags(void **state)
{
	struct srig_pair p = srig_open_pair(0);
	struct port_pkt pkts[PORT_BURST];
	_Atomic uint32_t *sleeping = &shm_of(p.b)->rx[0]->ring.ctl->sleeping;
	_Atomic uint32_t *want_space = &shm_of(p.b)->rx[0]->ring.ctl->want_space;

	/*
	 * The sender reads the flag after the flush, at the next poll, and the last time when idle,
	 * behind a fence.
	 */
	srig_send_now(p.a, p.ab, 0);
	assert_false(rung(p.b));
	for (int i = 0; i < 2; i++) {
		atomic_store(sleeping, 1);
		assert_int_equal(p.a->ops->rx_burst(p.a, pkts, PORT_BURST), 0);
		assert_int_equal(atomic_load(sleeping), 0);
		assert_true(rung(p.b));
	}
	assert_int_equal(shm_of(p.a)->num_unfenced, 0);
	srig_send_now(p.a, p.ab, 1);
	atomic_store(sleeping, 1);
	assert_true(p.a->ops->arm(p.a));
	p.a->ops->disarm(p.a, true);
	assert_true(rung(p.b));
	assert_int_equal(shm_of(p.a)->num_unfenced, 0);

	/*
	 * The receiver reads it when it takes packets, when it finds none, and when it goes to
	 * sleep.
	 */
	atomic_store(want_space, 1);
	assert_int_equal(p.b->ops->rx_burst(p.b, pkts, PORT_BURST), 2);
	assert_true(rung(p.a));
	atomic_store(want_space, 1);
	assert_int_equal(p.b->ops->rx_burst(p.b, pkts, PORT_BURST), 0);
	assert_true(rung(p.a));
	atomic_store(want_space, 1);
	assert_true(p.b->ops->arm(p.b));
	p.b->ops->disarm(p.b, true);
	assert_true(rung(p.a));
	srig_close_pair(&p);
}

/* A new ring wakes its sleeping receiver once control() has accepted the ring. */
static void test_connection_wakes(void **state)
{
	struct port *a = srig_open(NULL, 0), *b = srig_open(NULL, 0);
	struct port_pkt pkts[PORT_BURST];
	struct port_path *ab;

	assert_true(b->ops->arm(b));
	assert_false(srig_readable(b->ctl_fd, 0));
	ab = a->ops->path_get(a, &b->addr, 0);
	srig_send_now(a, ab, 0);
	assert_true(srig_readable(b->ctl_fd, SRIG_WAIT_MS));
	assert_false(srig_readable(b->fd, 0));
	b->ops->control(b);
	assert_false(srig_readable(b->ctl_fd, 0));
	assert_true(srig_readable(b->fd, 0));
	b->ops->disarm(b, true);
	assert_int_equal(b->ops->rx_burst(b, pkts, PORT_BURST), 1);
	port_close(a);
	port_close(b);
}

struct echo {
	struct port *p;
	struct port_path *path;
	unsigned rounds;
};

/* Waits for a packet. Uses arm and poll whenever arm allows it. */
static void sleep_for_packet(struct port *p, uint64_t n)
{
	struct port_pkt pkt;

	while (p->ops->rx_burst(p, &pkt, 1) == 0) {
		if (p->ops->arm(p) && !srig_readable(p->fd, SRIG_WAIT_MS))
			fail_msg("a wake-up was lost at packet %llu", (unsigned long long)n);
		p->ops->disarm(p, true);
	}
	srig_check(&pkt, n);
}

static void *echo(void *arg)
{
	struct echo *e = arg;

	for (unsigned n = 0; n < e->rounds; n++) {
		srig_send_now(e->p, e->path, n);
		sleep_for_packet(e->p, n);
	}
	return NULL;
}

/* Two threads: each sleeps while the other works. */
static void test_no_wakeup_is_lost(void **state)
{
	enum { ROUNDS = 20000 };
	struct srig_pair p = srig_open_pair(SHM_RING_MIN);
	struct port_pkt pkt;
	pthread_t t;
	struct echo e = {p.b, p.ba, ROUNDS};

	/* The thread sends n and waits for n. This side waits for n and sends n. */
	assert_int_equal(pthread_create(&t, NULL, echo, &e), 0);
	for (unsigned n = 0; n < ROUNDS; n++) {
		sleep_for_packet(p.a, n);
		srig_send_now(p.a, p.ab, n);
	}
	/*
	 * A flush must be followed by another poll or arm (port contract): the last bell may be
	 * rung behind a fence.
	 */
	for (int i = 0; i < 3; i++)
		p.a->ops->rx_burst(p.a, &pkt, 1);
	pthread_join(t, NULL);
	srig_close_pair(&p);
}

struct drain {
	struct port *p;
	unsigned count;
};

static void *drain(void *arg)
{
	struct drain *d = arg;
	struct port_pkt pkts[PORT_BURST];

	for (unsigned got = 0; got < d->count;) {
		int n = d->p->ops->rx_burst(d->p, pkts, PORT_BURST);

		for (int i = 0; i < n; i++)
			srig_check(&pkts[i], got++);
		if (n == 0) {
			if (d->p->ops->arm(d->p) && !srig_readable(d->p->fd, SRIG_WAIT_MS))
				fail_msg("the receiver sleeps for ever after %u", got);
			d->p->ops->disarm(d->p, true);
		}
	}
	while (d->p->ops->rx_burst(d->p, pkts, PORT_BURST))
		;
	return NULL;
}

/* A small ring is always full or empty, so both sides sleep often. */
static void test_sleeping_on_both_ends_of_a_ring(void **state)
{
	enum { COUNT = 10000 };
	struct srig_pair p = srig_open_pair(SHM_RING_MIN);
	struct drain d = {p.b, COUNT};
	struct port_pkt pkts[PORT_BURST];
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, drain, &d), 0);
	for (uint64_t n = 0; n < COUNT;) {
		if (srig_send(p.a, p.ab, n)) {
			n++;
			continue;
		}
		p.a->ops->flush(p.a);
		assert_int_equal(p.a->ops->rx_burst(p.a, pkts, PORT_BURST), 0);
		if (p.a->ops->arm(p.a) && !srig_readable(p.a->fd, SRIG_WAIT_MS))
			fail_msg("the sender sleeps for ever at %llu", (unsigned long long)n);
		p.a->ops->disarm(p.a, true);
	}
	p.a->ops->flush(p.a);
	for (int i = 0; i < 3; i++)
		p.a->ops->rx_burst(p.a, pkts, PORT_BURST);
	pthread_join(t, NULL);
	srig_close_pair(&p);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, srig_setup, srig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_addresses),
		TEST(test_bad_specifications),
		TEST(test_taken_until_killed),
		TEST(test_foreign_files),
		TEST(test_folder_must_be_private),
		TEST(test_exchange),
		TEST(test_cancel_and_flush),
		TEST(test_lag),
		TEST(test_full_ring_pushes_back),
		TEST(test_space_is_news_once),
		TEST(test_arm),
		TEST(test_late_flags),
		TEST(test_connection_wakes),
		TEST(test_no_wakeup_is_lost),
		TEST(test_sleeping_on_both_ends_of_a_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
