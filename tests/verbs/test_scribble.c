/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program of the pool writes random bytes over the memory that all members map, and uses the
 * sockets that it has to send invalid data. Two others are connected at the same address meanwhile,
 * and programs join. None of them crashes or waits without end: a transfer has the right bytes or a
 * completion with an error, and a program that can't join prints a line. When all have ended, the
 * next programs have a sound pool.
 *
 *	test-verbs-scribble [SEED]
 */
#include "../common/network.h"
#include "side.h"

#include "forked.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/rng.h"

#define ROUNDS	 3
#define JOINERS	 6
#define WRITES	 2000 /* of the scribbler */
#define BYTES	 4096
#define LIMIT_S	 100 /* only a failure reaches it */
#define LINE	 64
#define MOST_FDS 5000
#define ATTACH	 51 /* SO_ATTACH_REUSEPORT_CBPF */

static uint32_t seed = 1;

/* Seen by all processes of a round. */
static struct shared {
	_Atomic uint32_t end, transfers, scribbles;
} * shared;

/* ---- the scribbler ---- */

/* Returns the memory of the pool, which is mapped in this process. */
static uint8_t *pool_memory(size_t *len)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	uint8_t *found = NULL;
	char text[512];

	assert_non_null(maps);
	while (fgets(text, sizeof(text), maps)) {
		uintptr_t from, to;

		if (!strstr(text, "memfd:roost-pool") ||
		    sscanf(text, "%" SCNxPTR "-%" SCNxPTR, &from, &to) != 2)
			continue;
		found = (uint8_t *)from;
		*len = to - from;
	}
	fclose(maps);
	assert_non_null(found);
	return found;
}

/* Half of the places are lines that are in use. Most of the memory is zeros. */
static void scribble_memory(struct rng *rng, uint8_t *mem, size_t len)
{
	static const uint8_t zeros[LINE];
	size_t at = rng_below(rng, (uint32_t)(len / LINE)) * LINE;
	uint32_t n = 1 + rng_below(rng, LINE);

	if (rng_below(rng, 2)) {
		for (size_t i = 0; i < len && !memcmp(mem + at, zeros, LINE); i += LINE)
			at = (at + LINE) % len;
	}
	at += rng_below(rng, LINE);
	for (uint32_t i = 0; i < n && at + i < len; i++)
		mem[at + i] = rng_below(rng, 4) ? (uint8_t)rng_u64(rng) : 0xff * (i & 1);
}

/* A program for a group that returns one of 256 indices, most of which no socket has. */
static void steer_wrong(struct rng *rng, int fd)
{
	struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, rng_below(rng, 256))};
	struct sock_fprog prog = {1, code};

	setsockopt(fd, SOL_SOCKET, ATTACH, &prog, sizeof(prog));
}

static void send_nonsense(struct rng *rng, int fd, int other)
{
	uint8_t text[600];
	union {
		struct sockaddr any;
		struct sockaddr_storage space;
	} to;
	socklen_t len = sizeof(to);
	size_t n = 1 + rng_below(rng, sizeof(text));

	for (size_t i = 0; i < n; i++)
		text[i] = (uint8_t)rng_u64(rng);
	/* A mail of one packet, by its length: 16 bytes of an address, the length, and more. */
	if (n > 64 && rng_below(rng, 2))
		memcpy(text + 16, &(uint32_t){(uint32_t)n - 32 - rng_below(rng, 9)}, 4);
	if (getsockname(other, &to.any, &len) || to.any.sa_family != AF_INET)
		send(fd, text, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	else
		sendto(fd, text, n, MSG_DONTWAIT | MSG_NOSIGNAL, &to.any, len);
}

static bool is_pool_memory(int fd)
{
	char link[64], name[256] = "";

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return readlink(link, name, sizeof(name) - 1) > 0 && strstr(name, "memfd:roost-pool");
}

static void scribble_descriptor(struct rng *rng, int fd, int other)
{
	static const uint8_t zeros[64];
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
	uint8_t byte[64];
	struct stat st;
	int small = 1;

	if (fstat(fd, &st))
		return;
	if (is_pool_memory(fd)) {
		if (ftruncate(fd, rng_below(rng, 2) ? 0 : st.st_size / 2) == 0)
			fail_msg("the memory of the pool can be made shorter");
		return;
	}
	if (!S_ISSOCK(st.st_mode))
		return;
	switch (rng_below(rng, 8)) {
	case 0:
		steer_wrong(rng, fd);
		break;
	case 1:
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
		break;
	case 2:
		connect(fd, (struct sockaddr *)&to, sizeof(to));
		break;
	case 3:
		recv(fd, byte, sizeof(byte), MSG_DONTWAIT);
		break;
	case 4:
		if (rng_below(rng, 50) == 0)
			shutdown(fd, SHUT_RDWR);
		break;
	case 5:
		sendto(fd, zeros, sizeof(zeros), MSG_DONTWAIT | MSG_NOSIGNAL,
		       (struct sockaddr *)&to, sizeof(to));
		break;
	default:
		send_nonsense(rng, fd, other);
	}
}

static unsigned descriptors(int fds[MOST_FDS])
{
	unsigned n = 0;

	for (int fd = 3; fd < MOST_FDS; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			fds[n++] = fd;
	}
	return n;
}

/* Uses no descriptor that was there before the device: those are the pipes of the test. */
static void scribble(uint64_t round_seed, bool memory, bool sockets)
{
	static int before[MOST_FDS], fds[MOST_FDS];
	unsigned old = descriptors(before), n;
	struct rng rng;
	size_t len = 0;
	uint8_t *mem;

	rng_seed(&rng, round_seed);
	open_device();
	mem = pool_memory(&len);
	n = descriptors(fds);
	for (uint32_t i = 0; i < WRITES; i++) {
		int fd = fds[rng_below(&rng, n)];
		bool own = true;

		for (unsigned k = 0; k < old; k++)
			own = own && before[k] != fd;
		if (memory)
			scribble_memory(&rng, mem, len);
		if (sockets && own)
			scribble_descriptor(&rng, fd, fds[rng_below(&rng, n)]);
		shared->scribbles++;
		if (i % 16 == 0)
			poll(NULL, 0, 1); /* the others run too */
	}
	/* Its own state is invalid now, so it does not leave in order. */
	for (;;)
		pause();
}

/* ---- the others ---- */

/* Writes to the peer and reads it back until the end, or until the connection has an error. */
static void transfer(int in, int out)
{
	static uint8_t buf[3 * BYTES]; /* sent data, data read back, the data of the peer */
	static struct side s;
	bool good = true;

	s.timeout = 14; /* 67 ms: an error comes within seconds */
	side_open(&s, buf, sizeof(buf), IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, in, out);
	for (uint64_t id = 0; good && !shared->end; id++) {
		memset(buf, (int)id, BYTES);
		assert_int_equal(side_post(&s, IBV_WR_RDMA_WRITE, id, buf, BYTES, 2 * BYTES), 0);
		good = side_wc(&s).status == IBV_WC_SUCCESS;
		if (!good)
			break;
		assert_int_equal(side_post(&s, IBV_WR_RDMA_READ, id, buf + BYTES, BYTES, 2 * BYTES),
				 0);
		good = side_wc(&s).status == IBV_WC_SUCCESS;
		if (good)
			assert_memory_equal(buf, buf + BYTES, BYTES);
		shared->transfers += good;
	}
	while (!shared->end)
		poll(NULL, 0, 10);
	side_close(&s);
}

/* Opens and closes the device. A failure must be said. */
static void join(int in, int out)
{
	struct ibv_device **list;
	struct ibv_context *ctx;
	char text[4096];
	FILE *said = tmpfile();
	size_t n;

	assert_non_null(said);
	assert_int_equal(dup2(fileno(said), STDERR_FILENO), STDERR_FILENO);
	choose_port(false);
	list = ibv_get_device_list(NULL);
	ctx = list ? ibv_open_device(list[0]) : NULL;
	if (list)
		ibv_free_device_list(list);
	if (ctx) {
		ibv_close_device(ctx);
		return;
	}
	rewind(said);
	n = fread(text, 1, sizeof(text) - 1, said);
	text[n] = '\0';
	printf("a program can't join: %s", text);
	assert_non_null(strstr(text, "roost: "));
}

/* ---- the test ---- */

static void wait_until(_Atomic uint32_t *count, uint32_t least)
{
	for (unsigned ms = 0; *count < least; ms++) {
		if (ms > LIMIT_S * 1000)
			fail_msg("nothing for %d s", LIMIT_S);
		poll(NULL, 0, 1);
	}
}

static void start(struct forked *f, void (*run)(int in, int out), int in, int out)
{
	if (forked_start(f, LIMIT_S)) {
		run(in < 0 ? f->there[0] : in, out < 0 ? f->back[1] : out);
		fflush(stdout);
		_exit(0);
	}
}

/* Two programs that are connected. Returns when they have exchanged data. */
static void start_two(struct forked two[2], int pipes[2][2])
{
	for (int i = 0; i < 2; i++)
		assert_int_equal(pipe(pipes[i]), 0);
	shared->end = shared->transfers = 0;
	start(&two[0], transfer, pipes[0][0], pipes[1][1]);
	start(&two[1], transfer, pipes[1][0], pipes[0][1]);
	wait_until(&shared->transfers, 20);
}

static void end_two(struct forked two[2], int pipes[2][2])
{
	shared->end = 1;
	for (int i = 0; i < 2; i++) {
		forked_end(&two[i]);
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
}

static void a_member_writes_nonsense(void **state)
{
	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct forked two[2], bad, joiner;
		int pipes[2][2], status;
		uint32_t kind = round % 3;

		printf("seed %u, round %u: %s\n", seed, round,
		       kind == 0   ? "memory"
		       : kind == 1 ? "sockets"
				   : "both");
		fflush(stdout);
		start_two(two, pipes);
		shared->scribbles = 0;
		if (forked_start(&bad, LIMIT_S)) {
			scribble((uint64_t)seed << 32 | round, kind != 1, kind != 0);
			_exit(0);
		}
		for (unsigned i = 1; i <= JOINERS; i++) {
			wait_until(&shared->scribbles, i * WRITES / JOINERS);
			start(&joiner, join, -1, -1);
			forked_end(&joiner);
		}
		kill(bad.pid, SIGKILL);
		assert_int_equal(waitpid(bad.pid, &status, 0), bad.pid);
		assert_true(WIFSIGNALED(status));
		for (int i = 0; i < 2; i++) {
			close(bad.there[i]);
			close(bad.back[i]);
		}
		end_two(two, pipes);
		/* A new pool has none of the invalid data. */
		start_two(two, pipes);
		end_two(two, pipes);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_member_writes_nonsense),
	};

	if (argc > 1)
		seed = (uint32_t)strtoul(argv[1], NULL, 0);
	/* The pool of the machine's own programs must not be harmed. */
	if (!network_own()) {
		printf("SKIPPED: no network of its own for a pool that is scribbled on\n");
		return 77;
	}
	choose_port(false); /* one address for all programs */
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
