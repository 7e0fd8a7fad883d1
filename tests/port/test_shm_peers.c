/* SPDX-License-Identifier: BSD-2-Clause */
/* The shm port's peers: absent, killed and restarted, many at once, with several lanes, forked. */
#include <fcntl.h>
#include <sys/resource.h>

#include "shm_rig.h"

static void test_absent_peer(void **state)
{
	struct port *a = srig_open("10.0.0.1", 0), *b;
	struct pkt_addr dst = srig_addr("10.0.0.2"), v6 = srig_addr("fd00::1");
	struct port_path *path = a->ops->path_get(a, &dst, 0);
	uint64_t n = 0;

	assert_non_null(path);
	assert_null(a->ops->path_get(a, &v6, 0));
	assert_int_equal(errno, EAFNOSUPPORT);
	for (; n < 100; n++)
		srig_send_now(a, path, n);
	assert_int_equal(a->stats.tx_dropped, 100);
	assert_int_equal(a->stats.tx_packets, 0);
	a->ops->cancel(a);
	assert_int_equal(a->stats.tx_dropped, 99);

	b = srig_open("10.0.0.2", 0);
	for (int i = 0; i < SRIG_WAIT_MS && a->stats.tx_packets == 0; i++, n++) {
		srig_send_now(a, path, n);
		usleep(1000);
	}
	assert_int_equal(a->stats.tx_packets, 1);

	struct port_pkt pkt = srig_next(b);

	srig_check(&pkt, n - 1);
	port_close(b);
	port_close(a);
}

/* The child answers packet n with packet n + 1000 until it is killed. */
static pid_t start_echo(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct port *p = srig_open("10.0.0.2", 0);
		struct pkt_addr parent = srig_addr("10.0.0.1");
		struct port_path *path = p->ops->path_get(p, &parent, 0);

		for (;;) {
			struct port_pkt pkt = srig_next(p);
			uint64_t n;

			memcpy(&n, pkt.bth, 8);
			srig_check(&pkt, n);
			srig_send_now(p, path, n + 1000);
		}
	}
	return pid;
}

/*
 * The child answers each packet n with packet n + 1000. Its descriptors suffice for `peers` peers.
 */
static pid_t start_poor_echo(unsigned peers)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct port *p = srig_open("10.0.0.2", SHM_RING_MIN);
		int used = dup(0);
		struct rlimit limit = {(rlim_t)used + 2 * peers, (rlim_t)used + 2 * peers};

		close(used);
		setrlimit(RLIMIT_NOFILE, &limit);
		for (;;) {
			struct port_pkt pkt = srig_next(p);
			struct port_path *path = p->ops->path_get(p, pkt.src, 0);
			uint64_t n;

			memcpy(&n, pkt.bth, 8);
			srig_send_now(p, path, n + 1000); /* keeps the path, so the ring too */
		}
	}
	return pid;
}

/* Sends packet n repeatedly until packet n + 1000 comes. */
static void call(struct port *a, struct port_path *path, uint64_t n)
{
	struct port_pkt pkts[PORT_BURST];

	for (int i = 0; i < SRIG_WAIT_MS; i++) {
		if (srig_send(a, path, n)) /* fails if the peer has not run for a while */
			a->ops->flush(a);
		for (int k = 0; k < 10; k++) {
			int got = srig_receive(a, pkts);

			for (int j = 0; j < got; j++) {
				if (pkts[j].len == srig_len(n + 1000) &&
				    !memcmp(pkts[j].bth, &(uint64_t){n + 1000}, 8)) {
					srig_check(&pkts[j], n + 1000);
					return;
				}
			}
			usleep(100);
		}
	}
	fail_msg("no answer to %llu", (unsigned long long)n);
}

/*
 * A process with descriptors for a few peers serves that many, if any number comes at once: no peer
 * takes the descriptors that answers to the others need.
 */
static void test_few_descriptors(void **state)
{
	enum { PEERS = 12, SPACE = 4 };
	struct port *a[PEERS];
	struct port_path *path[PEERS];
	struct port_pkt pkts[PORT_BURST];
	struct pkt_addr dst = srig_addr("10.0.0.2");
	bool answered[PEERS] = {0};
	pid_t pid;
	int num = 0;

	for (int i = 0; i < PEERS; i++) {
		char text[32];

		snprintf(text, sizeof(text), "10.0.1.%d", i);
		a[i] = srig_open(text, SHM_RING_MIN);
	}
	pid = start_poor_echo(SPACE);
	for (int i = 0; i < PEERS; i++)
		path[i] = a[i]->ops->path_get(a[i], &dst, 0);
	for (int round = 0; round < SRIG_WAIT_MS && num < SPACE; round++) {
		for (int i = 0; i < PEERS; i++) {
			if (srig_send(a[i], path[i], 0))
				a[i]->ops->flush(a[i]);
			if (srig_receive(a[i], pkts) > 0 && !answered[i]) {
				answered[i] = true;
				num++;
			}
		}
		usleep(1000);
	}
	assert_true(num >= SPACE);
	for (int i = 0; i < PEERS; i++) {
		if (answered[i])
			call(a[i], path[i], 1);
	}
	srig_kill(pid);
	for (int i = 0; i < PEERS; i++)
		port_close(a[i]);
}

/*
 * A process has no free descriptor, and lost the spare one, whose number is above the limit. The
 * port says that it must rest, and admits the peer when there is a descriptor again.
 */
static void test_no_descriptor(void **state)
{
	struct port *a = srig_open("10.0.0.1", SHM_RING_MIN),
		    *b = srig_open("10.0.0.2", SHM_RING_MIN);
	struct port_path *path = a->ops->path_get(a, &b->addr, 0);
	struct rlimit was, none;
	struct port_pkt pkt;

	assert_non_null(path);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = was;
	none.rlim_cur = 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	for (unsigned i = 0; i < 3; i++) {
		b->ops->control(b);
		assert_true(b->rests);
		assert_true(srig_readable(b->ctl_fd, 0));
	}
	assert_int_equal(b->stats.rx_bad, 0); /* the peer was not refused */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	srig_send_now(a, path, 1);
	pkt = srig_next(b);
	srig_check(&pkt, 1);
	assert_false(b->rests);
	port_close(b);
	port_close(a);
}

static void test_two_processes_and_sigkill(void **state)
{
	struct port *a = srig_open("10.0.0.1", SHM_RING_MIN);
	struct pkt_addr dst = srig_addr("10.0.0.2");
	struct port_path *path = a->ops->path_get(a, &dst, 0);

	for (uint64_t life = 0; life < 3; life++) {
		pid_t pid = start_echo();

		for (uint64_t n = 0; n < 50; n++)
			call(a, path, life * 100 + n);
		srig_kill(pid);
		/* No process empties the ring any more. It must not block for ever. */
		uint64_t before = a->stats.tx_dropped;

		for (int i = 0; i < SRIG_WAIT_MS && a->stats.tx_dropped == before; i++) {
			if (srig_send(a, path, 7))
				a->ops->flush(a);
			if (life == 1) /* with and without control work */
				a->ops->control(a);
			usleep(100);
		}
		assert_true(a->stats.tx_dropped > before);
	}
	port_close(a);
}

/* A peer that is absent, that reads, that is stopped, and that was killed while stopped. */
static void test_reader(void **state)
{
	struct port *a = srig_open("10.0.0.1", SHM_RING_MIN);
	struct pkt_addr dst = srig_addr("10.0.0.2");
	struct port_path *path = a->ops->path_get(a, &dst, 0);
	enum port_reader seen = PORT_READER_STALLED;
	int status;
	pid_t pid;

	assert_int_equal(a->ops->reader(a, path), PORT_READER_UNKNOWN);
	pid = start_echo();
	call(a, path, 1);
	for (int i = 0; i < SRIG_WAIT_MS && seen != PORT_READER_READS; i++) {
		usleep(1000);
		seen = a->ops->reader(a, path);
	}
	assert_int_equal(seen, PORT_READER_READS);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	srig_send_now(a, path, 2);
	assert_int_equal(a->ops->reader(a, path), PORT_READER_STALLED);
	srig_kill(pid);
	for (int i = 0; i < SRIG_WAIT_MS && seen != PORT_READER_UNKNOWN; i++) {
		if (srig_send(a, path, 3))
			a->ops->flush(a);
		seen = a->ops->reader(a, path);
		usleep(1000);
	}
	assert_int_equal(seen, PORT_READER_UNKNOWN);
	port_close(a);
}

/*
 * The port looks less and less often for a peer that comes and goes. But a peer that has sent a
 * packet gets its answer.
 */
static void test_short_lives(void **state)
{
	struct port *a = srig_open("10.0.0.1", 0);
	struct pkt_addr dst = srig_addr("10.0.0.2");
	struct port_path *path = a->ops->path_get(a, &dst, 0);

	for (uint64_t life = 0; life < 12; life++) {
		struct port *b = srig_open("10.0.0.2", 0);
		struct port_path *back = b->ops->path_get(b, &a->addr, 0);
		struct port_pkt pkt;

		srig_send_now(b, back, life);
		pkt = srig_next(a);
		srig_check(&pkt, life);
		srig_send_now(a, path, 100 + life);
		assert_int_equal(a->stats.tx_packets, life + 1);
		assert_int_equal(a->stats.tx_dropped, 0);
		pkt = srig_next(b);
		srig_check(&pkt, 100 + life);
		port_close(b);
		a->ops->control(a);
	}
	port_close(a);
}

/* Packets that a peer sent before it left are delivered. */
static void test_last_words(void **state)
{
	struct srig_pair p = srig_open_pair(0);
	struct port_pkt pkts[PORT_BURST];
	uint64_t got = 0;
	int n;

	for (uint64_t i = 0; i < 100; i++)
		srig_send_now(p.a, p.ab, i);
	port_close(p.a);
	p.b->ops->control(p.b);
	while ((n = srig_receive(p.b, pkts)) > 0) {
		for (int i = 0; i < n; i++)
			srig_check(&pkts[i], got++);
	}
	assert_int_equal(got, 100);
	assert_true(p.b->ops->arm(p.b));
	p.b->ops->disarm(p.b, true);
	assert_int_equal(shm_of(p.b)->num_rx, 0);
	port_close(p.b);
}

/*
 * The packet reserved last may still lack its ICRC when the peer is found dead. Its space must stay
 * valid until the flush.
 */
static void test_space_outlives_the_peer(void **state)
{
	struct srig_pair p = srig_open_pair(SHM_RING_MIN);
	struct port_buf buf, last = {0};

	port_close(p.b);
	for (int i = 0; i < SRIG_WAIT_MS && p.a->stats.tx_dropped == 0; i++) {
		int rc = p.a->ops->reserve(p.a, p.ab, 4000, 0, &buf);

		if (rc)
			usleep(1000);
		else if (p.a->stats.tx_dropped == 0)
			last = buf;
	}
	assert_int_equal(p.a->stats.tx_dropped, 1);
	assert_int_equal(shm_of(p.a)->num_tx, 0);
	memset(last.bth, 0, 4000);
	assert_true(p.a->ops->flush(p.a));
	assert_null(shm_of(p.a)->dead_tx);
	port_close(p.a);
}

static void test_path_references(void **state)
{
	struct srig_pair p = srig_open_pair(0);
	struct port_path *again = p.a->ops->path_get(p.a, &p.b->addr, 0);
	struct port_pkt pkts[PORT_BURST];

	assert_ptr_equal(again, p.ab);
	assert_int_equal(shm_of(p.a)->num_tx, 1);
	p.a->ops->path_put(p.a, again);
	srig_send_now(p.a, p.ab, 0);
	assert_int_equal(srig_receive(p.b, pkts), 1);
	p.a->ops->path_put(p.a, p.ab);
	assert_int_equal(shm_of(p.a)->num_tx, 0);
	srig_close_pair(&p);
}

/* ---- many peers, lanes, fork ---- */

static void test_many_peers(void **state)
{
	enum { PEERS = 64, EACH = 50 };
	struct port *hub = srig_open("10.0.0.1", 0), *peer[PEERS];
	struct port_path *path[PEERS];
	uint64_t got[PEERS] = {0}, total = 0;
	struct port_pkt pkts[PORT_BURST];

	for (int i = 0; i < PEERS; i++) {
		peer[i] = srig_open(NULL, SHM_RING_MIN);
		path[i] = peer[i]->ops->path_get(peer[i], &hub->addr, 0);
	}
	/* More packets wait than one burst takes: each peer must get its turn. */
	for (int i = 0; i < PEERS; i++) {
		for (uint64_t n = 0; n < 5; n++)
			srig_send_now(peer[i], path[i], n);
	}
	for (uint64_t round = 0; total < PEERS * EACH; round++) {
		int n = srig_receive(hub, pkts);

		for (int i = 0; i < n; i++) {
			unsigned who = pkts[i].src->b[15] - 2u;

			assert_true(who < PEERS);
			srig_check(&pkts[i], got[who]++);
			total++;
			if (got[who] + 4 < EACH)
				srig_send_now(peer[who], path[who], got[who] + 4);
		}
		for (int i = 0; i < PEERS && round == 40; i++)
			assert_true(got[i] > 0);
		assert_true(round < 100000);
	}
	/* After a long quiet time the rings are cold. A packet is still found. */
	for (int i = 0; i < SHM_HOT_POLLS + 10; i++)
		assert_int_equal(srig_receive(hub, pkts), 0);
	assert_int_equal(shm_of(hub)->num_hot, 0);
	srig_send_now(peer[40], path[40], EACH);

	struct port_pkt pkt = srig_next(hub);

	srig_check(&pkt, EACH);
	assert_true(hub->ops->rx_burst(hub, pkts, 1) == 0);
	assert_true(hub->ops->arm(hub));
	srig_send_now(peer[63], path[63], 0);
	assert_true(srig_readable(hub->fd, 0));
	hub->ops->disarm(hub, true);
	pkt = srig_next(hub);
	srig_check(&pkt, 0);
	for (int i = 0; i < PEERS; i++)
		port_close(peer[i]);
	for (int i = 0; i < 5; i++)
		srig_receive(hub, pkts);
	assert_int_equal(shm_of(hub)->num_rx, 0);
	port_close(hub);
}

static void test_lanes(void **state)
{
	struct port *a = srig_open("10.0.0.1", 0), *lane[3];
	char err[256];

	assert_null(srig_open_lane("10.0.0.2", 0, 1, 3, err)); /* lane 0 must exist first */
	for (unsigned i = 0; i < 3; i++)
		lane[i] = srig_open_lane("10.0.0.2", 0, i, 3, NULL);
	for (uint32_t index = 0; index < 24; index++) {
		uint32_t qpn = index << 4 | 5;
		struct port_path *path = a->ops->path_get(a, &lane[0]->addr, qpn);

		srig_send_now(a, path, index);

		struct port_pkt pkt = srig_next(lane[PORT_LANE_OF_QPN(qpn, 3)]);

		srig_check(&pkt, index);
	}
	assert_int_equal(shm_of(a)->num_tx, 3);
	for (unsigned i = 0; i < 3; i++)
		port_close(lane[i]);
	port_close(a);
}

/* A lane beside another process's lane 0 would take that process's packets. */
static void test_lane_of_another_process(void **state)
{
	pid_t pid = srig_start_holder("10.0.0.2");
	char err[256];

	assert_null(srig_open_lane("10.0.0.2", 0, 1, 2, err));
	assert_non_null(strstr(err, "taken by process"));
	srig_kill(pid);
}

static void test_fork(void **state)
{
	struct srig_pair p = srig_open_pair(0);
	struct port_pkt pkts[PORT_BURST];
	int status;
	pid_t pid;

	srig_send_now(p.a, p.ab, 0);
	p.a->ops->arm(p.a);
	pid = fork();
	if (pid == 0) {
		int fd = p.a->fd;

		p.a->ops->after_fork(p.a);
		p.b->ops->after_fork(p.b);
		if (fcntl(fd, F_GETFD) != -1)
			_exit(1);
		port_close(p.a);
		port_close(p.b);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	p.a->ops->disarm(p.a, true);
	/* The parent's endpoints, connections and files are unchanged. */
	assert_int_equal(srig_receive(p.b, pkts), 1);
	srig_send_now(p.b, p.ba, 1);
	assert_int_equal(srig_receive(p.a, pkts), 1);
	srig_check(&pkts[0], 1);
	assert_int_equal(srig_count_files(), 4);
	srig_close_pair(&p);
	assert_int_equal(srig_count_files(), 0);
}

/* A child has copies of the descriptors. They must not keep a connection, or an event, alive. */
static void test_child_without_after_fork(void **state)
{
	struct srig_pair p = srig_open_pair(0);
	struct port_pkt pkts[PORT_BURST];
	int pipes[2];
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		char c;

		close(pipes[1]);
		_exit(read(pipes[0], &c, 1) == 0 ? 0 : 1);
	}
	close(pipes[0]);
	port_close(p.a);
	for (int i = 0; i < 10; i++)
		assert_int_equal(srig_receive(p.b, pkts), 0);
	assert_int_equal(shm_of(p.b)->num_rx, 0);
	assert_int_equal(shm_of(p.b)->num_tx, 0);
	assert_false(srig_readable(p.b->ctl_fd, 0));
	port_close(p.b);
	close(pipes[1]);
	waitpid(pid, NULL, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, srig_setup, srig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_absent_peer),
		TEST(test_two_processes_and_sigkill),
		TEST(test_few_descriptors),
		TEST(test_no_descriptor),
		TEST(test_reader),
		TEST(test_short_lives),
		TEST(test_last_words),
		TEST(test_space_outlives_the_peer),
		TEST(test_path_references),
		TEST(test_many_peers),
		TEST(test_lanes),
		TEST(test_lane_of_another_process),
		TEST(test_fork),
		TEST(test_child_without_after_fork),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
