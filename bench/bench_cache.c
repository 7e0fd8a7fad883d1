/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gets from memcached: by chains from one whose memory is in a hull (docs/guide-memcached.md), by
 * its own protocol over TCP from another one, and by two READs of as many bytes, the first of six
 * buckets. bench/cache.py starts the servers. Prints JSON.
 *
 *	bench-cache latency HULL OWN OTHER READS VALUE WRITERS SECONDS [GETS]
 *	bench-cache time HULL OWN OTHER READS VALUE WRITERS SECONDS
 *
 * HULL is the hull's address, OWN and OTHER the TCP ports of the two memcacheds at 127.0.0.1, READS
 * an address for the target of the READs. `latency` takes turns, for SECONDS each and until the
 * chain has made GETS gets; meanwhile WRITERS threads set keys of their own at the server that is
 * measured. `time` gets from both servers at once, and prints
 * the number of gets in each 100 ms. When the memcached without a hull comes back, its client
 * stores all items again, one after the other; there are 20,000 of them.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "base/hist.h"
#include "base/rng.h"
#include "client.h"
#include "roost/chain_lookup.h"
#include "server.h"

#define KEYS	    64u	   /* whose gets are timed */
#define TIME_KEYS   20000u /* of the gets over time */
#define OWN_KEYS    10000u /* of each writer */
#define MAX_WRITERS 64u
#define SPACE	    (68u << 10)
#define HOOD	    (6 * sizeof(struct roost_bucket))
#define SERVICE	    "7477"
#define READS	    "7478"
#define SLICE_NS    200000000u
#define BIN_NS	    100000000u
#define MAX_BINS    1200u

static struct options {
	const char *hull, *reads;
	int own, other; /* TCP ports */
	unsigned value, writers, keys;
	double seconds;
	uint64_t gets;
	char port[64]; /* ROOST_PORT for the client */
} opt;

static void fail(const char *what)
{
	fprintf(stderr, "bench-cache: %s\n", what);
	_exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- memcached's protocol ---- */

struct tcp {
	int fd;
	char out[SPACE], in[SPACE];
};

static bool tcp_open(struct tcp *t, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)port),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int one = 1;

	t->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (t->fd >= 0 && connect(t->fd, (struct sockaddr *)&a, sizeof(a)) == 0) {
		setsockopt(t->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		return true;
	}
	close(t->fd);
	return false;
}

/* Sends n bytes of `out`, and receives a reply up to its last bytes, `end`. Returns its length. */
static size_t tcp_ask(struct tcp *t, size_t n, const char *end)
{
	const size_t len = strlen(end);
	size_t got = 0;

	for (size_t at = 0; at < n;) {
		ssize_t rc = send(t->fd, t->out + at, n - at, MSG_NOSIGNAL);

		if (rc <= 0)
			return 0;
		at += (size_t)rc;
	}
	while (got < len || memcmp(t->in + got - len, end, len) != 0) {
		ssize_t rc = recv(t->fd, t->in + got, sizeof(t->in) - got, 0);

		if (rc <= 0)
			return 0;
		got += (size_t)rc;
	}
	return got;
}

static bool tcp_set(struct tcp *t, const char *key, unsigned value)
{
	size_t n = (size_t)sprintf(t->out, "set %s 0 0 %u\r\n", key, value);

	memset(t->out + n, 'x', value);
	memcpy(t->out + n, key, strlen(key));
	memcpy(t->out + n + value, "\r\n", 2);
	return tcp_ask(t, n + value + 2, "STORED\r\n") != 0;
}

static void key_name(char *key, unsigned writer, uint64_t n)
{
	sprintf(key, "k%02u-%08u", writer, (unsigned)n);
}

static bool tcp_load(struct tcp *t)
{
	char key[32];

	for (unsigned i = 0; i < opt.keys; i++) {
		key_name(key, 0, i);
		if (!tcp_set(t, key, opt.value))
			return false;
	}
	return true;
}

/* ---- the ways to get. Each returns false if the server is gone ---- */

static struct cache_client *chain;
static struct tcp own, other;

static bool get_by_chain(uint64_t n)
{
	const struct roost_cache_item *item;
	char key[32];
	int found;

	key_name(key, 0, n);
	found = cache_get(chain, key, (uint32_t)strlen(key), &item);
	if (found < 0)
		return false;
	if (!found || item->value_len != opt.value ||
	    memcmp(roost_cache_item_value(item), key, strlen(key)) != 0)
		fail("a get by a chain has no value, or a wrong one");
	return true;
}

static bool get_by_tcp(uint64_t n)
{
	char key[32];
	size_t len, head;

	key_name(key, 0, n);
	len = tcp_ask(&other, (size_t)sprintf(other.out, "get %s\r\n", key), "END\r\n");
	if (!len)
		return false;
	head = (size_t)sprintf(other.out, "VALUE %s 0 %u\r\n", key, opt.value);
	if (len != head + opt.value + 7 || memcmp(other.in + head, key, strlen(key)) != 0)
		fail("memcached has no value, or a wrong one");
	return true;
}

static struct {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct cache_hello target;
} reads;

static void read_once(uint64_t at, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)reads.mr->addr, len, reads.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {reads.target.addr + at, reads.target.rkey}},
			   *bad;
	struct ibv_wc wc;
	int n;

	if (ibv_post_send(reads.id->qp, &wr, &bad))
		fail("can't post a READ");
	do
		n = ibv_poll_cq(reads.id->send_cq, 1, &wc);
	while (n == 0);
	if (n < 0 || wc.status)
		fail("a READ failed");
}

static bool get_by_reads(uint64_t n)
{
	read_once(0, HOOD);
	read_once(HOOD + n * opt.value, opt.value);
	return true;
}

static struct rdma_cm_id *make_id(const char *address, bool passive)
{
	struct ibv_qp_init_attr qp = {.cap = {4, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP,
				      .ai_flags = passive ? RAI_PASSIVE : 0},
			     *info;
	struct rdma_cm_id *id = NULL;

	if (rdma_getaddrinfo(address, READS, &hints, &info) || rdma_create_ep(&id, info, NULL, &qp))
		fail("can't make an endpoint for READs");
	rdma_freeaddrinfo(info);
	return id;
}

/* The target of the READs, a process that does nothing itself. */
static void start_target(void)
{
	const size_t len = HOOD + (size_t)opt.keys * opt.value;
	struct rdma_conn_param param = {.responder_resources = 16};
	struct cache_hello hello;
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	char port[80];

	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(port, sizeof(port), "%.*s:%s", (int)strcspn(opt.port, ":"), opt.port, opt.reads);
	setenv("ROOST_PORT", port, 1);
	id = make_id(opt.reads, true);
	if (rdma_listen(id, 1) || rdma_get_request(id, &id))
		fail("nobody READs");
	mr = ibv_reg_mr(id->pd, calloc(1, len), len,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!mr)
		fail("can't register memory");
	hello = (struct cache_hello){(uintptr_t)mr->addr, mr->rkey, (uint32_t)len};
	param.private_data = &hello;
	param.private_data_len = sizeof(hello);
	if (rdma_accept(id, &param))
		fail("can't accept");
	for (;;)
		pause();
}

static void connect_target(void)
{
	struct rdma_conn_param param = {.initiator_depth = 16, .retry_count = 7};
	const uint64_t start = now_ns();

	for (;;) { /* until the target listens */
		reads.id = make_id(opt.reads, false);
		if (rdma_connect(reads.id, &param) == 0)
			break;
		rdma_destroy_ep(reads.id);
		if (now_ns() - start > 20000000000u)
			fail("can't connect to the target of READs");
		usleep(20000);
	}
	memcpy(&reads.target, reads.id->event->param.conn.private_data, sizeof(reads.target));
	reads.mr = ibv_reg_mr(reads.id->pd, calloc(1, SPACE), SPACE, IBV_ACCESS_LOCAL_WRITE);
	if (!reads.mr)
		fail("can't register memory");
}

/* ---- writers ---- */

static _Atomic int writing; /* the port of the server whose writers are at work; 0: none */
static atomic_uint at_work;

static void *write_keys(void *arg)
{
	const unsigned w = (unsigned)(uintptr_t)arg;
	struct tcp *t = calloc(1, sizeof(*t));
	char key[32];

	if (!t)
		fail("no memory");
	for (uint64_t n = 0;;) {
		const int port = atomic_load(&writing);

		if (!port) {
			usleep(1000);
			continue;
		}
		if (!tcp_open(t, port))
			fail("a writer can't connect");
		atomic_fetch_add(&at_work, 1);
		for (; atomic_load(&writing) == port; n++) {
			key_name(key, 1 + w, n % OWN_KEYS);
			if (!tcp_set(t, key, opt.value))
				fail("a set failed");
		}
		atomic_fetch_sub(&at_work, 1);
		close(t->fd);
	}
	return NULL;
}

static void start_writers(void)
{
	pthread_t thread;

	for (uintptr_t w = 0; w < opt.writers; w++)
		if (pthread_create(&thread, NULL, write_keys, (void *)w))
			fail("can't start a writer");
}

static void set_writing(int port)
{
	atomic_store(&writing, port);
	while (atomic_load(&at_work) != (port ? opt.writers : 0))
		usleep(100);
}

/* ---- latency ---- */

static struct way {
	const char *name;
	bool (*get)(uint64_t n);
	const int *port; /* of the writers beside it */
	struct hist hist;
} ways[] = {{.name = "chain", .get = get_by_chain, .port = &opt.own},
	    {.name = "two-sided", .get = get_by_tcp, .port = &opt.other},
	    {.name = "two READs", .get = get_by_reads}};

#define WAYS (sizeof(ways) / sizeof(ways[0]))

static void latency(void)
{
	uint64_t start, now = 0, from;
	struct rng rng;

	rng_seed(&rng, 3);
	start_writers();
	for (double left = opt.seconds * 1e9; left > 0 || ways[0].hist.count < opt.gets;
	     left -= SLICE_NS)
		for (unsigned i = 0; i < WAYS; i++) {
			set_writing(ways[i].port ? *ways[i].port : 0);
			for (start = from = now_ns(); from - start < SLICE_NS; from = now) {
				if (!ways[i].get(rng_below(&rng, opt.keys)))
					fail("a get failed");
				now = now_ns();
				hist_add(&ways[i].hist, now - from);
			}
			set_writing(0);
		}
	printf("{\"tool\": \"bench-cache\", \"rows\": [");
	for (unsigned i = 0; i < WAYS; i++)
		printf("%s\n  {\"way\": \"%s\", \"size\": %u, \"writers\": %u, \"gets\": %llu, "
		       "\"p50_us\": %.3f, \"p99_us\": %.3f, \"mean_us\": %.3f}",
		       i ? "," : "", ways[i].name, opt.value, ways[i].port ? opt.writers : 0,
		       (unsigned long long)ways[i].hist.count,
		       (double)hist_percentile(&ways[i].hist, 50) / 1e3,
		       (double)hist_percentile(&ways[i].hist, 99) / 1e3,
		       hist_mean(&ways[i].hist) / 1e3);
	printf("\n]}\n");
}

/* ---- gets over time ---- */

struct line {
	struct way *way;
	uint64_t start;
	unsigned bins, gets[MAX_BINS];
};

/* The server came back without items: clients must store them before their gets find any. */
static void come_back(void)
{
	close(other.fd);
	while (!tcp_open(&other, opt.other))
		usleep(1000);
	tcp_load(&other);
}

static void *count(void *arg)
{
	struct line *l = arg;
	struct rng rng;
	uint64_t bin;

	rng_seed(&rng, 3);
	while ((bin = (now_ns() - l->start) / BIN_NS) < l->bins) {
		if (l->way->get(rng_below(&rng, opt.keys)))
			l->gets[bin]++;
		else if (l->way->get == get_by_chain)
			fail("a get by a chain failed");
		else
			come_back();
	}
	return NULL;
}

static void over_time(void)
{
	static struct line lines[2];
	pthread_t thread[2];

	printf("ready\n");
	fflush(stdout);
	for (unsigned i = 0; i < 2; i++) {
		lines[i].way = &ways[i];
		lines[i].start = now_ns();
		lines[i].bins = (unsigned)(opt.seconds * 1e9 / BIN_NS);
		if (pthread_create(&thread[i], NULL, count, &lines[i]))
			fail("can't start a thread");
	}
	for (unsigned i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	printf("{\"tool\": \"bench-cache\", \"bin_ms\": %u", BIN_NS / 1000000);
	for (unsigned i = 0; i < 2; i++) {
		printf(",\n  \"%s\": [", ways[i].name);
		for (unsigned b = 0; b < lines[i].bins; b++)
			printf("%s%u", b ? ", " : "", lines[i].gets[b]);
		printf("]");
	}
	printf("}\n");
}

int main(int argc, char **argv)
{
	const char *port = getenv("ROOST_PORT");

	if (argc < 9 || argc > 10 || !port)
		fail("latency|time HULL OWN OTHER READS VALUE WRITERS SECONDS [GETS], with "
		     "ROOST_PORT");
	snprintf(opt.port, sizeof(opt.port), "%s", port);
	opt.hull = argv[2];
	opt.own = atoi(argv[3]);
	opt.other = atoi(argv[4]);
	opt.reads = argv[5];
	opt.value = (unsigned)atoi(argv[6]);
	opt.writers = (unsigned)atoi(argv[7]);
	opt.seconds = atof(argv[8]);
	opt.gets = argc > 9 ? strtoull(argv[9], NULL, 10) : 0;
	opt.keys = strcmp(argv[1], "time") == 0 ? TIME_KEYS : KEYS;
	if (opt.value < 16 || opt.value > 65536 || opt.writers > MAX_WRITERS ||
	    opt.seconds * 1e9 / BIN_NS > MAX_BINS)
		fail("a number is out of range");
	start_target();
	if (!tcp_open(&own, opt.own) || !tcp_open(&other, opt.other) || !tcp_load(&own) ||
	    !tcp_load(&other))
		fail("can't store in memcached");
	chain = cache_connect(opt.hull, SERVICE, SPACE);
	if (!chain)
		fail("can't connect to the hull");
	connect_target();
	if (opt.keys == TIME_KEYS)
		over_time();
	else
		latency();
	fflush(stdout);
	_exit(0);
}
