/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A flood of REQs from forged addresses, each another one, as fast as the NIC takes them. The
 * server accepts all requests. Meanwhile a client connects again and again, and each attempt must
 * succeed. 5,300 such requests once kept all clients out for 18 minutes.
 *
 * There are three processes in a network of their own: the server, the client, and the attacker,
 * which uses a raw socket.
 *
 * 100 connections are made, and more until 100,000 requests came. A machine that needs longer than
 * a minute for them, such as an emulated one, makes fewer connections and gets less of the flood.
 * At least 10,000 requests come before the first connection.
 *
 * Usage: test-attacks-flood [6]			77: no network namespace or no raw socket
 *	  test-attacks-flood 4|6 measure [RATE [SECONDS]]	prints JSON: the time to connect
 *		without a flood, while RATE REQs a second (100000) go to a socket of another process
 *		that only receives them ("elsewhere"), and while they go to the server ("flood");
 *		and the server's CPU time. "elsewhere" is what no server can avoid on this machine
 *	  test-attacks-flood 4|6 new [RATE [SECONDS]]	prints JSON: the same, but each connection
 *		is from a new process at an address that did not connect before
 *	  test-attacks-flood 4|6 limit [RATE [SECONDS]]		prints JSON: the same with a bare
 *		server, which only receives, and with one that sends each datagram back. A
 *		connection is then two round trips of one datagram
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

#include "../common/network.h"
#include "../common/skip.h"
#include "base/rng.h"
#include "cm/mad.h"
#include "packet/headers.h"
#include "packet/icrc.h"

#define SERVICE	   7471
#define BACKLOG	   128
#define WAIT_MS	   110000 /* longer than all retries of a REQ */
#define FIRST	   10000  /* requests before the first connection */
#define REQUESTS   100000 /* and connections, on a fast machine */
#define CONNECTS   100
#define LEAST	   10		 /* connections, on any machine */
#define ENOUGH	   (60 * SECOND) /* ns after the first requests; then LEAST is enough */
#define QUEUED_MAX (256 << 10)
#define MEASURED   100000 /* at most, a round */
#define SECOND	   1000000000ull
#define BATCH	   64	      /* datagrams a system call of a bare server, and of the attacker */
#define PREPARED   (1u << 17) /* REQs of the attacker, which it sends in turn if the rate is set */

static const uint64_t seed = 20260703;
enum { SERVER, CLIENT, SINK };
static const char *const ADDRESS[2][3] = {{"10.77.0.1", "10.77.0.2", "10.77.255.1"},
					  {"fd77::1", "fd77::2", "fd77::ffff:1"}};
static bool v6;
static pid_t server;

/* State of the attacker, for the other processes. */
static struct shared {
	_Atomic uint64_t sent, rate; /* rate: REQs a second; 0: no limit */
	_Atomic int on;		     /* 0, or 1 + the address to flood */
	_Atomic int serving, prepared;
	uint64_t took; /* ns of the connection of a process that ended */
} * shared;

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static struct sockaddr_storage address(unsigned which, uint16_t port)
{
	struct sockaddr_storage s = {.ss_family = v6 ? AF_INET6 : AF_INET};

	if (v6)
		((struct sockaddr_in6 *)&s)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)&s)->sin_port = htons(port);
	inet_pton(s.ss_family, ADDRESS[v6][which],
		  v6 ? (void *)&((struct sockaddr_in6 *)&s)->sin6_addr
		     : (void *)&((struct sockaddr_in *)&s)->sin_addr);
	return s;
}

static void use(const char *addr)
{
	char spec[64];

	snprintf(spec, sizeof(spec), "udp:%s", addr);
	setenv("ROOST_PORT", spec, 1);
}

static pid_t begin(void)
{
	pid_t pid = fork();

	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};

	if (rdma_create_qp(id, NULL, &init))
		die("can't make a queue pair: %s", strerror(errno));
}

/* ---- the server ---- */

static void __attribute__((noreturn)) serve(void)
{
	struct rdma_event_channel *ch;
	struct sockaddr_storage at = address(SERVER, SERVICE);
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	use(ADDRESS[v6][SERVER]);
	ch = rdma_create_event_channel();
	if (!ch || rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(id, (struct sockaddr *)&at) || rdma_listen(id, BACKLOG))
		die("can't listen: %s", strerror(errno));
	shared->serving = 1;
	while (!rdma_get_cm_event(ch, &e)) {
		enum rdma_cm_event_type type = e->event;

		id = e->id;
		rdma_ack_cm_event(e);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			make_qp(id);
			if (!rdma_accept(id, &param))
				continue;
		} else if (type == RDMA_CM_EVENT_ESTABLISHED) {
			continue;
		}
		rdma_disconnect(id);
		rdma_destroy_qp(id);
		rdma_destroy_id(id);
	}
	die("no more events: %s", strerror(errno));
}

/*
 * A bare server: it receives, and sends each datagram back if it answers. Its CPU time is what the
 * Linux kernel takes for a REQ.
 */
static void __attribute__((noreturn)) serve_bare(unsigned which, bool answers)
{
	static uint8_t data[BATCH][2048];
	static struct sockaddr_storage name[BATCH];
	static struct iovec iov[BATCH];
	static struct mmsghdr msg[BATCH];
	struct sockaddr_storage at = address(which, PKT_UDP_PORT);
	int fd = socket(at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), size = 4 << 20;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	if (bind(fd, (struct sockaddr *)&at,
		 v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)))
		die("can't bind: %s", strerror(errno));
	shared->serving = 1;
	for (;;) {
		int n;

		for (unsigned i = 0; i < BATCH; i++) {
			iov[i] = (struct iovec){data[i], sizeof(data[i])};
			msg[i].msg_hdr = (struct msghdr){.msg_name = &name[i],
							 .msg_namelen = sizeof(name[i]),
							 .msg_iov = &iov[i],
							 .msg_iovlen = 1};
		}
		n = recvmmsg(fd, msg, BATCH, MSG_WAITFORONE, NULL);
		for (int i = 0; i < n; i++)
			iov[i].iov_len = msg[i].msg_len;
		for (int done = 0, sent; answers && done<n; done += sent> 0 ? sent : 1)
			sent = sendmmsg(fd, msg + done, (unsigned)(n - done), 0);
	}
}

/* ---- the attacker ---- */

#define MAD_AT (sizeof(struct pkt_bth) + sizeof(struct pkt_deth))
#define LEN    (MAD_AT + CM_MAD_LEN + PKT_ICRC_LEN)

struct forged {
	int fd;
	struct rng rng;
	struct sockaddr_storage to; /* the address to flood; dst is the same */
	struct pkt_addr dst;
	uint8_t ip[40 + 8 + LEN];
};

static struct pkt_addr to_pkt(const char *text)
{
	struct pkt_addr a;

	if (pkt_addr_parse(text, &a))
		die("%s is no address", text);
	return a;
}

/*
 * Draws a forged address for which an answer is expensive. An answer to 127/8, this machine, causes
 * an ICMP error, which the Linux kernel does not limit there. fd00::/8 has no route, so the send
 * fails.
 */
static struct pkt_addr anybody(struct forged *f)
{
	uint64_t r = rng_u64(&f->rng);
	struct pkt_addr a = {{[10] = 0xff, 0xff, 127}};

	if (v6)
		a = (struct pkt_addr){{0xfd}};
	memcpy(a.b + (v6 ? 1 : 13), &r, v6 ? 8 : 3);
	a.b[13] |= 1;
	a.b[15] |= 1;
	return a;
}

static void put_req(struct forged *f, const struct pkt_addr *src, uint8_t *mad)
{
	struct cm_ip ip = {.src = *src, .dst = f->dst, .sport = 50000, .v4 = !v6};
	struct cm_msg m = {
		.attr = CM_REQ, .tid = rng_u64(&f->rng), .local_id = (uint32_t)rng_u64(&f->rng)};

	m.req.service_id = cm_service_id(CM_PS_TCP, SERVICE);
	m.req.ca_guid = rng_u64(&f->rng);
	m.req.qpn = (uint32_t)rng_below(&f->rng, 1 << 24);
	m.req.psn = (uint32_t)rng_below(&f->rng, 1 << 24);
	m.req.responder_resources = m.req.initiator_depth = 1;
	m.req.remote_timeout = m.req.local_timeout = 20;
	m.req.max_cm_retries = 15;
	m.req.mtu = 3;
	m.req.retry_count = m.req.rnr_retry = 7;
	m.req.pkey = 0xffff;
	memcpy(m.req.primary.local_gid, src->b, CM_GID_LEN);
	memcpy(m.req.primary.remote_gid, f->dst.b, CM_GID_LEN);
	m.req.primary.hop_limit = 64;
	m.req.primary.ack_timeout = 19;
	cm_ip_build(&ip, m.data);
	cm_build(&m, mad);
}

static uint32_t add16(uint32_t sum, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i += 2)
		sum += (uint32_t)p[i] << 8 | p[i + 1];
	return sum;
}

static size_t put_ip(struct forged *f, const struct pkt_addr *src)
{
	size_t head = v6 ? 40 : 20;
	uint8_t *ip = f->ip, *udp = ip + head;
	uint16_t len = 8 + LEN;
	uint32_t sum;

	memset(ip, 0, head + 8);
	if (v6) {
		ip[0] = 0x60;
		ip[4] = (uint8_t)(len >> 8);
		ip[5] = (uint8_t)len;
		ip[6] = IPPROTO_UDP;
		ip[7] = 64;
		memcpy(ip + 8, src->b, 16);
		memcpy(ip + 24, f->dst.b, 16);
	} else { /* Linux fills in length and checksum; don't fragment, identification 0 */
		ip[0] = 0x45;
		ip[6] = 0x40;
		ip[8] = 64;
		ip[9] = IPPROTO_UDP;
		memcpy(ip + 12, src->b + 12, 4);
		memcpy(ip + 16, f->dst.b + 12, 4);
	}
	udp[0] = udp[2] = PKT_UDP_PORT >> 8;
	udp[1] = udp[3] = PKT_UDP_PORT & 255;
	udp[4] = (uint8_t)(len >> 8);
	udp[5] = (uint8_t)len;
	if (v6) {
		sum = add16(IPPROTO_UDP + len, ip + 8, 32);
		sum = add16(sum, udp, len);
		while (sum >> 16)
			sum = (sum & 0xffff) + (sum >> 16);
		udp[6] = (uint8_t)(~sum >> 8);
		udp[7] = (uint8_t)~sum;
	}
	return head + len;
}

/* Builds a datagram in f->ip. Returns its length. */
static size_t build(struct forged *f)
{
	struct pkt_addr src = anybody(f);
	uint8_t *bth = f->ip + (v6 ? 40 : 20) + 8, *p;
	struct icrc_flow flow;

	p = pkt_put_bth(bth, PKT_UD | PKT_SEND_ONLY, PKT_BTH_MIGREQ, 1, false, 0);
	p = pkt_put_deth(p, CM_QKEY, 1);
	put_req(f, &src, p);
	icrc_flow_init(&flow, &src, &f->dst, PKT_UDP_PORT, PKT_UDP_PORT);
	icrc_store(bth + LEN - PKT_ICRC_LEN, icrc_compute(&flow, 0, bth, LEN));
	return put_ip(f, &src);
}

static void send_one(struct forged *f)
{
	size_t len = build(f);

	if (sendto(f->fd, f->ip, len, 0, (struct sockaddr *)&f->to,
		   v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)) == (ssize_t)len)
		shared->sent++;
}

/*
 * Gets the bytes in the longest queue of the NICs' sockets, and the datagrams that found no space.
 */
static void look_at_queues(unsigned long *most, unsigned long *drops)
{
	FILE *file = fopen(v6 ? "/proc/net/udp6" : "/proc/net/udp", "re");
	unsigned long bytes, lost;
	char line[512];

	*most = *drops = 0;
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line,
			   "%*d: %*[0-9A-F]:12B7 %*[0-9A-F]:%*x %*x %*x:%lx %*x:%*x %*x %*u %*d "
			   "%*u %*d %*x %lu",
			   &bytes, &lost) != 2)
			continue;
		*drops += lost;
		if (bytes > *most)
			*most = bytes;
	}
	if (file)
		fclose(file);
}

/* The attacker avoids losses: a lost REQ would not test the connection manager. */
static unsigned long queued(void)
{
	unsigned long most, drops;

	look_at_queues(&most, &drops);
	return most;
}

static void aim(struct forged *f, unsigned which)
{
	f->to = address(which, 0);
	f->dst = to_pkt(ADDRESS[v6][which]);
}

static uint8_t *prepared[2]; /* to the server, and to the sink */
static size_t prepared_len;

/*
 * The attacker stands for another machine, whose work takes no time of these cores. So REQs are
 * built in advance, and only sending them remains.
 */
static void prepare(struct forged *f)
{
	for (unsigned k = 0; k < 2; k++) {
		aim(f, k ? SINK : SERVER);
		prepared[k] = malloc(PREPARED * sizeof(f->ip));
		if (!prepared[k])
			die("no memory");
		for (unsigned i = 0; i < PREPARED; i++) {
			prepared_len = build(f);
			memcpy(prepared[k] + i * sizeof(f->ip), f->ip, prepared_len);
		}
	}
	shared->prepared = 1;
}

/* Sends the next n prepared REQs, at most BATCH. */
static void send_prepared(struct forged *f, bool sink, unsigned n)
{
	static unsigned next;
	struct mmsghdr msg[BATCH];
	struct iovec iov[BATCH];
	int sent;

	for (unsigned i = 0; i < n; i++) {
		iov[i] = (struct iovec){prepared[sink] + (next + i) % PREPARED * sizeof(f->ip),
					prepared_len};
		msg[i].msg_hdr = (struct msghdr){.msg_name = &f->to,
						 .msg_namelen = v6 ? sizeof(struct sockaddr_in6)
								   : sizeof(struct sockaddr_in),
						 .msg_iov = &iov[i],
						 .msg_iovlen = 1};
	}
	next += n;
	sent = sendmmsg(f->fd, msg, n, 0);
	if (sent > 0)
		shared->sent += (unsigned)sent;
}

/*
 * Sends at the given rate by the clock, and catches up at once if it is late. Without a rate it
 * sends as fast as the server receives.
 */
static void __attribute__((noreturn)) flood(struct forged *f)
{
	uint64_t began = now(), due = 0, done = 0;

	if (shared->rate)
		prepare(f);

	for (;;) {
		int on = shared->on;

		if (!on) {
			usleep(1000);
			began = now();
			done = 0;
			continue;
		}
		aim(f, (unsigned)on - 1);
		if (shared->rate)
			due = (now() - began) * shared->rate / SECOND;
		else
			due = queued() < QUEUED_MAX ? done + 64 : done;
		while (shared->rate && done < due) {
			unsigned n = due - done < BATCH ? (unsigned)(due - done) : BATCH;

			send_prepared(f, on - 1 == SINK, n);
			done += n;
		}
		for (; done < due; done++)
			send_one(f);
		/* leave CPU time to the other processes */
		if (shared->rate || queued() >= QUEUED_MAX)
			usleep(100);
	}
}

/* ---- the client ---- */

/* Returns false if the connection was refused or there was no answer. */
static bool await(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};
	struct rdma_cm_event *e;
	bool right;

	if (poll(&p, 1, WAIT_MS) != 1 || rdma_get_cm_event(ch, &e)) {
		fprintf(stderr, "no event in %u s\n", WAIT_MS / 1000);
		return false;
	}
	right = e->event == type;
	if (!right)
		fprintf(stderr, "%s, not %s\n", rdma_event_str(e->event), rdma_event_str(type));
	rdma_ack_cm_event(e);
	return right;
}

/* Makes and ends a connection. Returns the ns until it was established. */
static uint64_t connect_once(struct rdma_event_channel *ch)
{
	struct sockaddr_storage to = address(SERVER, SERVICE);
	struct rdma_conn_param param = {.responder_resources = 1,
					.initiator_depth = 1,
					.retry_count = 7,
					.rnr_retry_count = 7};
	struct rdma_cm_id *id;
	uint64_t began, took;

	if (rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000) ||
	    !await(ch, RDMA_CM_EVENT_ADDR_RESOLVED) || rdma_resolve_route(id, 2000) ||
	    !await(ch, RDMA_CM_EVENT_ROUTE_RESOLVED))
		die("can't resolve: %s", strerror(errno));
	make_qp(id);
	began = now();
	if (rdma_connect(id, &param))
		die("can't connect: %s", strerror(errno));
	if (!await(ch, RDMA_CM_EVENT_ESTABLISHED))
		die("not connected in %.3f s, %llu requests came", (double)(now() - began) / SECOND,
		    (unsigned long long)shared->sent);
	took = now() - began;
	rdma_disconnect(id);
	if (!await(ch, RDMA_CM_EVENT_DISCONNECTED))
		die("not disconnected");
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	return took;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* A state of the flood and of the server, to be compared with an earlier one. */
struct look {
	uint64_t at, sent, cpu;
	unsigned long drops;
};

static struct look look(void)
{
	struct look l = {.at = now(), .sent = shared->sent};
	struct timespec t = {0};
	unsigned long most;
	clockid_t clock;

	if (!clock_getcpuclockid(server, &clock))
		clock_gettime(clock, &t);
	l.cpu = (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
	look_at_queues(&most, &l.drops);
	return l;
}

/* Prints the members of a row that tell what has happened since an earlier look. */
static void print_since(const char *name, const struct look *before)
{
	struct look after = look();
	double secs = (double)(after.at - before->at) / (double)SECOND;

	printf("  {\"case\": \"%s\", \"reqs_per_s\": %.0f, \"drops_per_s\": %.0f, "
	       "\"server_cpu\": %.3f",
	       name, (double)(after.sent - before->sent) / secs,
	       (double)(after.drops - before->drops) / secs,
	       (double)(after.cpu - before->cpu) / 1e9 / secs);
}

/* Makes connections for a time, and prints a row. `once` returns the ns of one; NULL: none. */
static void measure(uint64_t (*once)(void), const char *name, uint64_t ns)
{
	static uint64_t took[MEASURED];
	struct look before = look();
	unsigned n = 0;

	while (once && n < MEASURED && now() - before.at < ns)
		took[n++] = once();
	if (!once)
		usleep((useconds_t)(ns / 1000));
	print_since(name, &before);
	qsort(took, n, sizeof(took[0]), by_value);
	if (n)
		printf(", \"connections\": %u, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f",
		       n, (double)took[n / 2] / 1e3, (double)took[n * 99 / 100] / 1e3,
		       (double)took[n - 1] / 1e3);
	printf("}");
}

static void measure_flood(uint64_t (*once)(void), const char *name, unsigned which, uint64_t secs)
{
	printf(",\n");
	shared->on = 1 + (int)which;
	usleep(500000);
	measure(once, name, secs * SECOND);
}

static void __attribute__((noreturn))
measure_both(uint64_t (*once)(void), uint64_t secs, bool elsewhere)
{
	printf("{\"tool\": \"test-attacks-flood\", \"family\": %d, \"rows\": [\n", v6 ? 6 : 4);
	measure(once, "idle", secs * SECOND);
	if (elsewhere)
		measure_flood(once, "elsewhere", SINK, secs);
	measure_flood(once, "flood", SERVER, secs);
	printf("\n]}\n");
	exit(0);
}

static struct rdma_event_channel *events;

static uint64_t connect_by_cm(void)
{
	return connect_once(events);
}

/* Connects once, in a new process, from an address that did not connect before. */
static uint64_t connect_as_new(void)
{
	static unsigned host = 2;
	char addr[32];
	int status;
	pid_t pid;

	host++;
	snprintf(addr, sizeof(addr), v6 ? "fd77::%x:%x" : "10.77.%u.%u", host >> 8, host & 255);
	if (v6 && !network_add6("lo", addr))
		die("can't add an address");
	fflush(stdout); /* or the child prints the rows, too */
	pid = begin();
	if (pid == 0) {
		use(addr);
		events = rdma_create_event_channel();
		shared->took = connect_once(events);
		exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		die("not connected from %s", addr);
	return shared->took;
}

enum mode { CONNECT, MEASURE, NEW, RECEIVE, ANSWER };

static void __attribute__((noreturn)) client(enum mode mode, uint64_t secs)
{
	uint64_t began;
	unsigned n;

	while (!shared->serving || (shared->rate && !shared->prepared))
		usleep(1000);
	if (mode == NEW)
		measure_both(connect_as_new, secs, false);
	use(ADDRESS[v6][CLIENT]);
	events = rdma_create_event_channel();
	connect_by_cm(); /* opens the device */
	if (mode == MEASURE)
		measure_both(connect_by_cm, secs, true);
	shared->on = 1 + SERVER;
	while (shared->sent < FIRST)
		usleep(1000);
	began = now();
	for (n = 0;
	     n < LEAST || (now() - began < ENOUGH && (n < CONNECTS || shared->sent < REQUESTS));
	     n++)
		connect_by_cm();
	printf("%u connections, while %llu requests came\n", n, (unsigned long long)shared->sent);
	exit(0);
}

/* The round trips of a connection whose client must show that it receives answers. */
static uint64_t connect_bare(void)
{
	static int fd = -1;
	struct sockaddr_storage to = address(SERVER, PKT_UDP_PORT),
				us = address(CLIENT, PKT_UDP_PORT);
	socklen_t len = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	struct pollfd p = {.events = POLLIN};
	uint64_t began = now();
	char data[LEN] = "";

	if (fd < 0) {
		fd = socket(us.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (bind(fd, (struct sockaddr *)&us, len) ||
		    connect(fd, (struct sockaddr *)&to, len))
			die("no bare client: %s", strerror(errno));
	}
	p.fd = fd;
	for (unsigned trips = 0; trips < 2; trips++) {
		do
			send(fd, data, sizeof(data), 0);
		while (poll(&p, 1, 1000) != 1); /* the datagram was lost */
		recv(fd, data, sizeof(data), 0);
	}
	return now() - began;
}

static void __attribute__((noreturn)) bare_client(bool answers, uint64_t secs)
{
	while (!shared->serving || !shared->prepared)
		usleep(1000);
	measure_both(answers ? connect_bare : NULL, secs, false);
}

/* ---- the processes ---- */

static bool open_forged(struct forged *f)
{
	int on = 1;

	f->fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
	aim(f, SERVER);
	if (v6) { /* or the kernel looks for a source address among all of them for each REQ */
		struct sockaddr_storage us = address(CLIENT, 0);

		bind(f->fd, (struct sockaddr *)&us, sizeof(struct sockaddr_in6));
	}
	rng_seed(&f->rng, seed);
	return f->fd >= 0 &&
	       (!v6 || setsockopt(f->fd, IPPROTO_IPV6, IPV6_HDRINCL, &on, sizeof(on)) == 0);
}

/* Runs the server and the attacker until the third process ends. Returns 0 if it has succeeded. */
static int run(struct forged *f, enum mode mode, uint64_t rate, uint64_t secs)
{
	pid_t flooder, last, sink = 0;
	int status;

	shared->rate = rate;
	shared->on = shared->serving = shared->prepared = 0;
	server = begin();
	if (server == 0 && mode >= RECEIVE)
		serve_bare(SERVER, mode == ANSWER);
	if (server == 0)
		serve();
	if (mode == MEASURE) {
		while (!shared->serving) /* the sink sets it, too */
			usleep(1000);
		sink = begin();
		if (sink == 0)
			serve_bare(SINK, false);
	}
	flooder = begin();
	if (flooder == 0)
		flood(f);
	last = begin();
	if (last == 0 && mode >= RECEIVE)
		bare_client(mode == ANSWER, secs);
	if (last == 0)
		client(mode, secs);
	waitpid(last, &status, 0);
	kill(flooder, SIGKILL);
	kill(server, SIGKILL);
	waitpid(flooder, NULL, 0);
	waitpid(server, NULL, 0);
	if (sink) {
		kill(sink, SIGKILL);
		waitpid(sink, NULL, 0);
	}
	return status != 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "";
	uint64_t rate = argc > 3 ? strtoull(argv[3], NULL, 10) : 100000;
	uint64_t secs = argc > 4 ? strtoull(argv[4], NULL, 10) : 5;
	static struct forged f;

	v6 = argc > 1 && !strcmp(argv[1], "6");
	if (!network_private() || !open_forged(&f))
		return skip_status("no network namespace with raw sockets");
	if (v6 && !network_add6("lo", ADDRESS[v6][SINK]))
		return skip_status("no address for the sink");
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		die("no memory");
	if (!strcmp(mode, "measure"))
		return run(&f, MEASURE, rate, secs);
	if (!strcmp(mode, "new"))
		return run(&f, NEW, rate, secs);
	if (!strcmp(mode, "limit"))
		return run(&f, RECEIVE, rate, secs) || run(&f, ANSWER, rate, secs);
	return run(&f, CONNECT, 0, 0);
}
