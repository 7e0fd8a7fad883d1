/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shm port against hostile peers: hellos, descriptors, rings, indices. The endpoint must count
 * the error, drop that connection, and still serve a correct peer.
 */
#include "base/rng.h"
#include "shm_liar.h"

static void test_hellos(void **state)
{
	struct stage s = open_stage();
	int fds;

	fds = open_descriptors();
	for (int i = 0;; i++) {
		struct shm_hello h = good_hello();
		const char *what = NULL;
		size_t len = sizeof(h);
		off_t bytes = SHM_RING_OVERHEAD + RING;
		int seals = SEALS, num = 1, fd;

		switch (i) {
		case 0:
			what = "magic";
			h.magic++;
			break;
		case 1:
			what = "version";
			h.version++;
			break;
		case 2:
			what = "ring too small";
			h.ring_size = RING / 2;
			bytes = SHM_RING_OVERHEAD + RING / 2;
			break;
		case 3:
			what = "ring size no power of two";
			h.ring_size = 3 * RING;
			bytes += 2 * RING;
			break;
		case 4:
			what = "ring larger than its memory";
			h.ring_size = 2 * RING;
			break;
		case 5:
			what = "ring huge";
			h.ring_size = 1u << 31;
			break;
		case 6:
			what = "ring size 0";
			h.ring_size = 0;
			break;
		case 7:
			what = "no address";
			memset(h.addr, 0, 16);
			break;
		case 8:
			what = "IPv6 address";
			h.addr[0] = 0xfd;
			break;
		case 9:
			what = "lane";
			h.lane = PORT_MAX_LANES;
			break;
		case 10:
			what = "reserved bytes";
			h.zero[6] = 1;
			break;
		case 11:
			what = "short";
			len--;
			break;
		case 12:
			what = "one byte";
			len = 1;
			break;
		case 13:
			what = "no descriptor";
			num = 0;
			break;
		case 14:
			what = "two descriptors";
			num = 2;
			break;
		case 15:
			what = "eight descriptors";
			num = 8;
			break;
		case 16:
			what = "no seals";
			seals = 0;
			break;
		case 17:
			what = "may shrink";
			seals = F_SEAL_GROW | F_SEAL_SEAL;
			break;
		case 18:
			what = "may grow";
			seals = F_SEAL_SHRINK | F_SEAL_SEAL;
			break;
		case 19:
			what = "seals may change";
			seals = F_SEAL_SHRINK | F_SEAL_GROW;
			break;
		case 20:
			what = "read-only";
			seals = SEALS | F_SEAL_WRITE;
			break;
		case 21:
			what = "memory too large";
			bytes++;
			break;
		case 22:
			what = "ring longer than the hub's own";
			h.ring_size = 2 * SHM_RING_DEFAULT;
			bytes = SHM_RING_OVERHEAD + 2 * SHM_RING_DEFAULT;
			break;
		case 23:
			what = "memory that nobody allocated";
			h.ring_size = 2 * RING;
			bytes = SHM_RING_OVERHEAD + 2 * RING;
			break;
		case 24:
			what = "an address that nobody holds";
			h.addr[15]++;
			break;
		case 25:
			what = "a lane that nobody holds";
			h.lane = 1;
			break;
		default:
			break;
		}
		if (!what)
			break;
		fd = dial_hub();
		say(fd, &h, len, num ? ring_fd(bytes, seals) : -1, num);
		expect_refused(&s, fd, what);
	}
	assert_int_equal(open_descriptors(), fds);
	still_serves(&s);
	close_stage(&s);
}

static void test_long_hello(void **state)
{
	struct stage s = open_stage();
	struct {
		struct shm_hello h;
		char more[200];
	} big = {.h = good_hello()};
	int fd = dial_hub();

	still_serves(&s);
	say(fd, &big, sizeof(big), ring_fd(SHM_RING_OVERHEAD + RING, SEALS), 1);
	expect_refused(&s, fd, "long");
	close_stage(&s);
}

/* Descriptors of the wrong type: a file, a folder, a pipe, a memfd opened for reading only. */
static void test_wrong_descriptors(void **state)
{
	struct stage s = open_stage();
	struct shm_hello h = good_hello();
	char path[128];

	still_serves(&s);
	for (int i = 0; i < 4; i++) {
		int fd = dial_hub(), pass = -1, pipes[2] = {-1, -1}, tmp;

		switch (i) {
		case 0:
			snprintf(path, sizeof(path), "%s/file", srig_dir);
			pass = open(path, O_RDWR | O_CREAT, 0600);
			assert_int_equal(ftruncate(pass, SHM_RING_OVERHEAD + RING), 0);
			break;
		case 1:
			pass = open(srig_dir, O_RDONLY | O_DIRECTORY);
			break;
		case 2:
			assert_int_equal(pipe(pipes), 0);
			pass = pipes[0];
			break;
		default:
			tmp = ring_fd(SHM_RING_OVERHEAD + RING, SEALS);
			snprintf(path, sizeof(path), "/proc/self/fd/%d", tmp);
			pass = open(path, O_RDONLY);
			close(tmp);
			break;
		}
		assert_true(pass >= 0);
		say(fd, &h, sizeof(h), pass, 1);
		expect_refused(&s, fd, "descriptor");
		if (pipes[1] >= 0)
			close(pipes[1]);
	}
	still_serves(&s);
	close_stage(&s);
}

/*
 * Silent connections take a bounded number of places: the oldest are closed. Connections that send
 * a hello are served.
 */
static void test_silent_connections(void **state)
{
	enum { MANY = 100 };
	struct stage s = open_stage();
	int fd[MANY];

	for (int i = 0; i < MANY; i++) {
		fd[i] = dial_hub();
		s.hub->ops->control(s.hub);
	}
	assert_int_equal(shm_of(s.hub)->num_pending, SHM_MAX_PENDING);
	still_serves(&s);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(hung_up(fd[i]), i < MANY - SHM_MAX_PENDING);
	/* One of the silent connections sends a hello later. */
	struct shm_hello h = good_hello();

	say(fd[MANY - 3], &h, sizeof(h), ring_fd(SHM_RING_OVERHEAD + RING, SEALS), 1);
	s.hub->ops->control(s.hub);
	assert_int_equal(shm_of(s.hub)->num_rx, 2);
	for (int i = 0; i < MANY; i++)
		close(fd[i]);
	s.hub->ops->control(s.hub);
	assert_int_equal(shm_of(s.hub)->num_pending, 0);
	still_serves(&s);
	close_stage(&s);
}

/*
 * Idle connections do not keep a new peer out, whose hello comes after its connection was accepted.
 */
static void test_peer_beside_idle_connections(void **state)
{
	enum { IDLE = 40 };
	struct stage s = open_stage();
	struct shm_hello h = good_hello();
	int idle[IDLE], fd, fds;

	fds = open_descriptors();
	for (int i = 0; i < IDLE; i++)
		idle[i] = dial_hub();
	s.hub->ops->control(s.hub);
	fd = dial_hub();
	s.hub->ops->control(s.hub);
	assert_false(hung_up(fd));
	say(fd, &h, sizeof(h), ring_fd(SHM_RING_OVERHEAD + RING, SEALS), 1);
	s.hub->ops->control(s.hub);
	assert_int_equal(shm_of(s.hub)->num_rx, 2);
	for (int i = 0; i < IDLE; i++)
		close(idle[i]);
	close(fd);
	for (int i = 0; i < 4; i++)
		srig_receive(s.hub, (struct port_pkt[PORT_BURST]){0});
	assert_int_equal(shm_of(s.hub)->num_pending, 0);
	assert_int_equal(open_descriptors(), fds);
	still_serves(&s);
	close_stage(&s);
}

/*
 * The oldest connection sends its hello, or hangs up, when others need its place. All that happens
 * before the endpoint looks, so its event is in the same batch as the new connections.
 */
static void test_oldest_connection_is_ready(void **state)
{
	struct stage s = open_stage();
	struct shm_hello h = good_hello();
	int fd[SHM_MAX_PENDING + 4];

	for (unsigned i = 0; i < SHM_MAX_PENDING; i++)
		fd[i] = dial_hub();
	s.hub->ops->control(s.hub);
	assert_int_equal(shm_of(s.hub)->num_pending, SHM_MAX_PENDING);
	say(fd[0], &h, sizeof(h), ring_fd(SHM_RING_OVERHEAD + RING, SEALS), 1);
	close(fd[1]);
	say(fd[2], "x", 1, -1, 0);
	for (unsigned i = SHM_MAX_PENDING; i < ARRAY_SIZE(fd); i++)
		fd[i] = dial_hub();
	s.hub->ops->control(s.hub);
	assert_int_equal(shm_of(s.hub)->num_rx, 2);
	assert_int_equal(shm_of(s.hub)->num_pending, SHM_MAX_PENDING);
	assert_false(hung_up(fd[0]));
	assert_true(hung_up(fd[2]));
	assert_true(hung_up(fd[3])); /* the oldest one that was silent */
	assert_false(hung_up(fd[4]));
	still_serves(&s);
	close(fd[0]);
	for (unsigned i = 2; i < ARRAY_SIZE(fd); i++)
		close(fd[i]);
	close_stage(&s);
}

/* An accepted connection with a ring that the test controls. */
struct liar {
	int fd;
	struct shm_ring_ctl *ctl;
	_Atomic uint64_t *descs;
};

static struct liar open_liar(struct stage *s)
{
	struct shm_hello h = good_hello();
	int mem = ring_fd(SHM_RING_OVERHEAD + RING, SEALS);
	uint8_t *m =
		mmap(NULL, SHM_RING_OVERHEAD + RING, PROT_READ | PROT_WRITE, MAP_SHARED, mem, 0);
	struct liar l = {.fd = dial_hub(), .ctl = (void *)m, .descs = (void *)(m + SHM_RING_CTL)};
	unsigned rings = shm_of(s->hub)->num_rx;

	assert_true(m != MAP_FAILED);
	say(l.fd, &h, sizeof(h), mem, 1);
	s->hub->ops->control(s->hub);
	assert_int_equal(shm_of(s->hub)->num_rx, rings + 1);
	return l;
}

static void close_liar(struct liar *l)
{
	close(l->fd);
	munmap(l->ctl, SHM_RING_OVERHEAD + RING);
}

#define DESC(lap, offset, len) ((uint64_t)(lap) << 48 | (uint64_t)(offset) << 24 | (len))

static void test_ring_contents(void **state)
{
	static const struct {
		const char *what;
		uint64_t desc;
	} rows[] = {
		{"a lap ahead", DESC(2, 0, 100)},
		{"half way round", DESC(0x8000, 0, 100)},
		{"empty packet", DESC(1, 0, 0)},
		{"too short", DESC(1, 0, SHM_MIN_LEN - 1)},
		{"too long", DESC(1, 0, PKT_MAX_LEN + 1)},
		{"longest length", DESC(1, 0, 0xffff)},
		{"over the end", DESC(1, RING / SHM_REC_ALIGN - 1, SHM_REC_ALIGN + 1)},
		{"behind the end", DESC(1, RING / SHM_REC_ALIGN, 16)},
		{"far behind the end", DESC(1, 0xffffff, 4148)},
		{"ones", UINT64_MAX},
	};
	struct stage s = open_stage();
	struct port_pkt pkts[PORT_BURST];

	still_serves(&s);
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct liar l = open_liar(&s);
		uint64_t bad = s.hub->stats.rx_bad;

		atomic_store(&l.descs[0], rows[i].desc);
		for (int k = 0; k < 4; k++)
			assert_int_equal(srig_receive(s.hub, pkts), 0);
		if (!hung_up(l.fd))
			fail_msg("%s: still connected", rows[i].what);
		assert_int_equal(s.hub->stats.rx_bad, bad + 1);
		assert_int_equal(shm_of(s.hub)->num_rx, 1);
		close_liar(&l);
		still_serves(&s);
	}
	close_stage(&s);
}

/* Packets before the invalid descriptor are delivered, later ones are not. */
static void test_nonsense_behind_packets(void **state)
{
	struct stage s = open_stage();
	struct liar l = open_liar(&s);
	struct port_pkt pkts[PORT_BURST];

	for (unsigned i = 0; i < 8; i++)
		atomic_store(&l.descs[i], DESC(i == 4 ? 7 : 1, i, 20));
	assert_int_equal(srig_receive(s.hub, pkts), 4);
	assert_int_equal(srig_receive(s.hub, pkts), 0);
	assert_true(hung_up(l.fd));
	assert_int_equal(s.hub->stats.rx_bad, 1);
	close_liar(&l);
	still_serves(&s);
	close_stage(&s);
}

/* Bells without a reason, floods of bells, and flags set by the wrong side have no effect. */
static void test_noise_on_the_socket(void **state)
{
	struct stage s = open_stage();
	struct liar l = open_liar(&s);
	struct port_pkt pkts[PORT_BURST];
	int sent = 0;

	while (send(l.fd, "noise", 5, MSG_DONTWAIT | MSG_NOSIGNAL) == 5)
		sent++;
	assert_true(sent > 10);
	atomic_store(&l.ctl->sleeping, 12345);
	atomic_store(&l.ctl->want_space, 99);
	atomic_store(&l.ctl->head, 1ull << 40);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(srig_receive(s.hub, pkts), 0);
		if (s.hub->ops->arm(s.hub))
			s.hub->ops->disarm(s.hub, true);
	}
	still_serves(&s);
	assert_int_equal(shm_of(s.hub)->num_rx, 2);
	close_liar(&l);
	close_stage(&s);
}

/* A receiver with a wrong index: the sender drops it, and finds it again later. */
static void test_receivers_index(void **state)
{
	struct stage s = open_stage();
	struct shm_tx *tx;
	uint64_t n = 0;

	still_serves(&s);
	tx = shm_of(s.honest)->last_tx;
	atomic_store(&tx->ring.ctl->head, tx->ring.published + (1u << 20));
	for (; s.honest->stats.rx_bad == 0; n++) {
		if (!srig_send(s.honest, s.path, n))
			s.honest->ops->flush(s.honest);
		assert_true(n < 1000000);
	}
	assert_int_equal(shm_of(s.honest)->num_tx, 0);
	for (int i = 0; i < SRIG_WAIT_MS && shm_of(s.honest)->num_tx == 0; i++) {
		srig_send_now(s.honest, s.path, 0);
		usleep(1000);
	}
	assert_int_equal(shm_of(s.honest)->num_tx, 1);
	close_stage(&s);
}

/* Random descriptors: no crash, and each delivered packet is inside the ring. */
static void test_random_rings(void **state)
{
	struct stage s = open_stage();
	struct rng rng;
	uint64_t seed = 20240607;

	rng_seed(&rng, seed);
	still_serves(&s);
	for (int round = 0; round < 300; round++) {
		struct liar l = open_liar(&s);
		struct port_pkt pkts[PORT_BURST];
		uint64_t lap = 1;

		for (int k = 0; k < 50; k++) {
			int n;

			/* Most are valid, so that the consumer makes progress. */
			for (uint32_t i = 0; i < SHM_RING_DESCS; i++) {
				uint64_t offset = rng_below(&rng, RING / SHM_REC_ALIGN -
									  (k % 2 ? 131 : 0)),
					 len = rng_below(&rng, 60) ? 20 + rng_below(&rng, 4000)
								   : rng_u64(&rng);

				atomic_store(&l.descs[i], DESC(lap + !rng_below(&rng, 200), offset,
							       len & 0xffff));
			}
			lap += round % 2;
			n = srig_receive(s.hub, pkts);
			for (int i = 0; i < n; i++) {
				volatile uint8_t sum = 0;

				assert_true(pkts[i].len >= SHM_MIN_LEN &&
					    pkts[i].len <= PKT_MAX_LEN);
				for (uint32_t j = 0; j < pkts[i].len; j++)
					sum ^= pkts[i].bth[j];
				(void)sum;
			}
		}
		close_liar(&l);
		srig_receive(s.hub, pkts);
	}
	still_serves(&s);
	close_stage(&s);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, srig_setup, srig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_hellos),
		TEST(test_long_hello),
		TEST(test_wrong_descriptors),
		TEST(test_silent_connections),
		TEST(test_peer_beside_idle_connections),
		TEST(test_oldest_connection_is_ready),
		TEST(test_ring_contents),
		TEST(test_nonsense_behind_packets),
		TEST(test_noise_on_the_socket),
		TEST(test_receivers_index),
		TEST(test_random_rings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
