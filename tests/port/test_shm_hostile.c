/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shm port against peers that lie: hellos, descriptors, rings, indices. Whatever they do, the endpoint counts it, drops
 * that connection, and goes on serving an honest peer.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/rng.h"
#include "shm_rig.h"

#define RING  SHM_RING_MIN
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct stage {
	struct port *hub, *honest;
	struct port_path *path;
	struct shm_claim liar;
	uint64_t sent;
};

/* The honest peer is still served. */
static void still_serves(struct stage *s)
{
	srig_send_now(s->honest, s->path, s->sent);

	struct port_pkt pkt = srig_next(s->hub);

	srig_check(&pkt, s->sent++);
	assert_int_equal(shm_of(s->honest)->num_tx, 1);
}

static struct stage open_stage(void)
{
	struct stage s = {.hub = srig_open("10.0.0.1", 0), .honest = srig_open("10.0.0.2", 0)};

	s.liar = srig_claim("10.0.0.66");
	s.path = s.honest->ops->path_get(s.honest, &s.hub->addr, 0);
	still_serves(&s);
	return s;
}

static void close_stage(struct stage *s)
{
	close(s->liar.lock_fd);
	port_close(s->honest);
	port_close(s->hub);
}

static int dial_hub(void)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/10.0.0.1.0", srig_dir);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static struct shm_hello good_hello(void)
{
	struct shm_hello h = {.magic = SHM_HELLO_MAGIC, .version = SHM_HELLO_VERSION, .ring_size = RING};
	struct pkt_addr a = srig_addr("10.0.0.66");

	memcpy(h.addr, a.b, 16);
	return h;
}

static int ring_fd(off_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, bytes), 0);
	assert_int_equal(fallocate(fd, 0, 0, SHM_RING_OVERHEAD + RING), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* Sends bytes with `num` copies of a descriptor, and closes it. */
static void say(int fd, const void *bytes, size_t len, int pass, int num)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(8 * sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)(uintptr_t)bytes, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (num) {
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE((size_t)num * sizeof(int));

		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)num * sizeof(int));
		for (int i = 0; i < num; i++)
			memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &pass, sizeof(int));
	}
	assert_int_equal(sendmsg(fd, &msg, MSG_NOSIGNAL), (ssize_t)len);
	if (pass >= 0)
		close(pass);
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) != -1;
	return n;
}

static bool hung_up(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_DONTWAIT) == 0;
}

/* The hub refuses what came on this connection: hangs up, counts, keeps no descriptor. */
static void expect_refused(struct stage *s, int fd, const char *what)
{
	uint64_t bad = s->hub->stats.rx_bad;
	unsigned rings = shm_of(s->hub)->num_rx;

	s->hub->ops->control(s->hub);
	if (!hung_up(fd))
		fail_msg("%s: accepted", what);
	assert_int_equal(s->hub->stats.rx_bad, bad + 1);
	assert_int_equal(shm_of(s->hub)->num_rx, rings);
	close(fd);
}

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

/* Descriptors that are something else: a file, a folder, a pipe, a memfd opened for reading only. */
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

/* Connections that never say anything take a bounded number of places, and those who speak are heard. */
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
	/* One of them speaks up after all. */
	struct shm_hello h = good_hello();

	say(fd[3], &h, sizeof(h), ring_fd(SHM_RING_OVERHEAD + RING, SEALS), 1);
	s.hub->ops->control(s.hub);
	assert_int_equal(shm_of(s.hub)->num_rx, 2);
	for (int i = 0; i < MANY; i++)
		close(fd[i]);
	s.hub->ops->control(s.hub);
	assert_int_equal(shm_of(s.hub)->num_pending, 0);
	still_serves(&s);
	close_stage(&s);
}

/* The `i`th of many addresses that this process holds. */
static void name_nth(struct shm_hello *h, unsigned i, struct shm_claim *claim)
{
	char text[32];
	struct pkt_addr a;

	snprintf(text, sizeof(text), "10.0.1.%u", i);
	a = srig_addr(text);
	memcpy(h->addr, a.b, 16);
	*claim = srig_claim(text);
}

/* More rings than there are places: refused, until somebody leaves. */
static void test_too_many_rings(void **state)
{
	struct stage s = open_stage();
	int fd[SHM_MAX_RX];
	struct shm_claim claims[SHM_MAX_RX];
	struct shm_hello h = good_hello();
	struct port_pkt pkts[PORT_BURST];

	still_serves(&s);
	for (unsigned i = 0; i < SHM_MAX_RX - 1; i++) {
		name_nth(&h, i, &claims[i]);
		fd[i] = dial_hub();
		say(fd[i], &h, sizeof(h), ring_fd(SHM_RING_OVERHEAD + RING, SEALS), 1);
		s.hub->ops->control(s.hub);
	}
	assert_int_equal(shm_of(s.hub)->num_rx, SHM_MAX_RX);

	int more = dial_hub();

	name_nth(&h, SHM_MAX_RX - 1, &claims[SHM_MAX_RX - 1]);
	say(more, &h, sizeof(h), ring_fd(SHM_RING_OVERHEAD + RING, SEALS), 1);
	expect_refused(&s, more, "one too many");
	for (unsigned i = 0; i < SHM_MAX_RX - 1; i++)
		close(fd[i]);
	for (unsigned i = 0; i < SHM_MAX_RX; i++)
		close(claims[i].lock_fd);
	for (unsigned i = 0; i < SHM_MAX_RX; i++)
		srig_receive(s.hub, pkts);
	assert_int_equal(shm_of(s.hub)->num_rx, 1);
	still_serves(&s);
	close_stage(&s);
}

/* One sender has one ring: the next one takes its place, however often it comes. */
static void test_ring_after_ring(void **state)
{
	struct stage s = open_stage();
	struct shm_hello h = good_hello();
	struct port_pkt pkts[PORT_BURST];
	int last = -1;

	still_serves(&s);
	for (unsigned i = 0; i < 3 * SHM_MAX_RX; i++) {
		int fd = dial_hub();

		say(fd, &h, sizeof(h), ring_fd(SHM_RING_OVERHEAD + RING, SEALS), 1);
		srig_receive(s.hub, pkts);
		assert_int_equal(shm_of(s.hub)->num_rx, 2);
		if (last >= 0) {
			assert_true(hung_up(last));
			close(last);
		}
		last = fd;
	}
	assert_int_equal(shm_of(s.hub)->rx_bytes, SHM_RING_DEFAULT + RING);
	close(last);
	still_serves(&s);
	close_stage(&s);
}

/* Another process cannot speak for an address that it does not hold: packets in a peer's name, or the end of that peer's ring. */
static void test_in_anothers_name(void **state)
{
	struct stage s = open_stage();
	uint64_t bad;
	pid_t pid;

	still_serves(&s);
	bad = s.hub->stats.rx_bad;
	pid = fork();
	if (pid == 0) {
		struct shm_hello h = good_hello();

		memcpy(h.addr, s.honest->addr.b, 16);
		say(dial_hub(), &h, sizeof(h), ring_fd(SHM_RING_OVERHEAD + RING, SEALS), 1);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	s.hub->ops->control(s.hub);
	assert_int_equal(s.hub->stats.rx_bad, bad + 1);
	assert_int_equal(shm_of(s.hub)->num_rx, 1);
	still_serves(&s);
	close_stage(&s);
}

/* Rings of peers are bounded together, however many come; an honest peer that finds no room left offers shorter ones. */
static void test_memory_of_all_rings(void **state)
{
	enum { LONG = 4u << 20, FIT = (SHM_RX_BYTES - SHM_RING_DEFAULT) / LONG };
	struct stage s = open_stage();
	struct shm_hello h = good_hello();
	struct shm_claim claims[FIT + 1];
	int fd[FIT + 1];
	struct port_pkt pkts[PORT_BURST];
	struct port *late;
	struct port_path *path;

	still_serves(&s);
	for (unsigned i = 0; i <= FIT; i++) {
		struct shm_prod ring;
		int mem;

		name_nth(&h, i, &claims[i]);
		h.ring_size = LONG;
		assert_int_equal(shm_prod_create(LONG, &ring, &mem), 0);
		fd[i] = dial_hub();
		say(fd[i], &h, sizeof(h), mem, 1);
		shm_prod_unmap(&ring);
		if (i < FIT) {
			s.hub->ops->control(s.hub);
			assert_false(hung_up(fd[i]));
		} else {
			expect_refused(&s, fd[i], "one ring too long");
		}
	}
	assert_int_equal(shm_of(s.hub)->rx_bytes, SHM_RX_BYTES);
	/* Half a ring of room: too little for what it offers first. */
	close(fd[0]);
	while (shm_of(s.hub)->rx_bytes == SHM_RX_BYTES)
		srig_receive(s.hub, pkts);
	h.ring_size = LONG / 2;
	name_nth(&h, 100, &claims[FIT]);
	{
		struct shm_prod ring;
		int mem;

		assert_int_equal(shm_prod_create(LONG / 2, &ring, &mem), 0);
		fd[0] = dial_hub();
		say(fd[0], &h, sizeof(h), mem, 1);
		shm_prod_unmap(&ring);
		s.hub->ops->control(s.hub);
		assert_false(hung_up(fd[0]));
	}
	late = srig_open("10.0.0.3", 0);
	path = late->ops->path_get(late, &s.hub->addr, 0);
	for (int i = 0; i < SRIG_WAIT_MS && shm_of(s.hub)->rx_bytes < SHM_RX_BYTES; i++) {
		srig_send(late, path, 0);
		late->ops->flush(late);
		late->ops->control(late);
		s.hub->ops->control(s.hub);
		usleep(1000);
	}
	assert_int_equal(shm_of(s.hub)->rx_bytes, SHM_RX_BYTES);
	port_close(late);
	while (shm_of(s.hub)->rx_bytes == SHM_RX_BYTES)
		srig_receive(s.hub, pkts);
	still_serves(&s);
	for (unsigned i = 0; i < FIT; i++)
		close(fd[i]);
	for (unsigned i = 0; i <= FIT; i++)
		close(claims[i].lock_fd);
	close_stage(&s);
}

/* An endpoint with short rings is offered no longer ones. */
static void test_short_rings(void **state)
{
	struct port *hub = srig_open("10.0.0.1", SHM_RING_MIN), *peer = srig_open("10.0.0.2", SHM_RING_MAX);
	struct port_path *path = peer->ops->path_get(peer, &hub->addr, 0);

	srig_send_now(peer, path, 0);

	struct port_pkt pkt = srig_next(hub);

	srig_check(&pkt, 0);
	assert_int_equal(shm_of(hub)->rx_bytes, SHM_RING_MIN);
	assert_int_equal(hub->stats.rx_bad, 0);
	port_close(peer);
	port_close(hub);
}

/* An accepted connection with a ring of the test's own. */
struct liar {
	int fd;
	struct shm_ring_ctl *ctl;
	_Atomic uint64_t *descs;
};

static struct liar open_liar(struct stage *s)
{
	struct shm_hello h = good_hello();
	int mem = ring_fd(SHM_RING_OVERHEAD + RING, SEALS);
	uint8_t *m = mmap(NULL, SHM_RING_OVERHEAD + RING, PROT_READ | PROT_WRITE, MAP_SHARED, mem, 0);
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

#define DESC(lap, place, len) ((uint64_t)(lap) << 48 | (uint64_t)(place) << 24 | (len))

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

/* Packets before the nonsense are delivered; what comes behind it is not. */
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

/* Bells without reason, floods of them, flags set by the wrong side: nothing happens. */
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
	atomic_store(&l.ctl->want_room, 99);
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

/* A receiver that lies about its index: the sender lets go of it, and later finds it again. */
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

/* Random descriptors: never a crash, and each packet handed out lies within the ring. */
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

			/* Mostly good ones, so that the consumer gets somewhere. */
			for (uint32_t i = 0; i < SHM_RING_DESCS; i++) {
				uint64_t place = rng_below(&rng, RING / SHM_REC_ALIGN - (k % 2 ? 131 : 0)),
					 len = rng_below(&rng, 60) ? 20 + rng_below(&rng, 4000)
								   : rng_u64(&rng);

				atomic_store(&l.descs[i],
					     DESC(lap + !rng_below(&rng, 200), place, len & 0xffff));
			}
			lap += round % 2;
			n = srig_receive(s.hub, pkts);
			for (int i = 0; i < n; i++) {
				volatile uint8_t sum = 0;

				assert_true(pkts[i].len >= SHM_MIN_LEN && pkts[i].len <= PKT_MAX_LEN);
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
		TEST(test_too_many_rings),
		TEST(test_ring_after_ring),
		TEST(test_in_anothers_name),
		TEST(test_memory_of_all_rings),
		TEST(test_short_rings),
		TEST(test_ring_contents),
		TEST(test_nonsense_behind_packets),
		TEST(test_noise_on_the_socket),
		TEST(test_receivers_index),
		TEST(test_random_rings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
