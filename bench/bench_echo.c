/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The limit of calls over udp: a bare echo between two threads on two cores, over loopback. The
 * client keeps a number of requests in flight, and the server sends a reply for each. Both send
 * groups of packets by UDP_SEGMENT, receive them by UDP_GRO, and poll without sleeping; they do no
 * other work. Prints JSON: the rate for several sizes of groups, and the highest one.
 *
 *	bench-echo [REQUEST [REPLY [IN_FLIGHT [SECONDS]]]]
 *
 * REQUEST and REPLY are bytes of a datagram's payload; SECONDS are for each row.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "port/udp.h" /* UDP_SEGMENT, where the C library has none */
#include "common.h"

#define DATAGRAM    65536u
#define SEGMENTS    64u	  /* the most that every Linux kernel with UDP_SEGMENT accepts */
#define GROUP_BYTES 65000 /* of a group with all headers */
#define LOST_NS	    100e6 /* without replies for this time requests count as lost */
#define CLOCK_LOOPS 64	  /* polls between two looks at the clock */

static unsigned request = 72, reply = 112, in_flight = 64;
static double seconds = 0.5;
static int fds[2];
static atomic_bool over;

/* Moves the thread to the core of this number among those that the process may use. */
static void choose_core(unsigned number)
{
	cpu_set_t may, one;

	if (sched_getaffinity(0, sizeof(may), &may))
		return;
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &may) && !number--)
			CPU_SET(i, &one);
	if (CPU_COUNT(&one))
		pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

/* Sends `n` packets of `size` bytes as one group. Returns false if the socket has no space. */
static bool send_group(int fd, const uint8_t *data, unsigned n, unsigned size)
{
	char control[CMSG_SPACE(sizeof(uint16_t))] __attribute__((aligned(8))) = {0};
	struct iovec iov = {(void *)(uintptr_t)data, (size_t)n * size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;
	uint16_t segment = (uint16_t)size;

	if (n > 1) {
		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_UDP;
		c->cmsg_type = UDP_SEGMENT;
		c->cmsg_len = CMSG_LEN(sizeof(segment));
		memcpy(CMSG_DATA(c), &segment, sizeof(segment));
	}
	if (sendmsg(fd, &m, MSG_DONTWAIT) >= 0)
		return true;
	if (errno != EAGAIN && errno != ENOBUFS)
		die("sendmsg");
	return false;
}

/* Returns the number of packets of `size` bytes that have come. */
static unsigned receive(int fd, uint8_t *buf, unsigned size)
{
	ssize_t n = recv(fd, buf, DATAGRAM, MSG_DONTWAIT);

	if (n < 0 && errno != EAGAIN)
		die("recv");
	return n > 0 ? (unsigned)n / size : 0;
}

static void *serve(void *arg)
{
	uint8_t *buf = mem_alloc_pages(DATAGRAM), *out = mem_alloc_pages(DATAGRAM);

	if (!buf || !out)
		die("memory");
	choose_core(1);
	while (!atomic_load_explicit(&over, memory_order_relaxed)) {
		unsigned n = receive(fds[1], buf, request);

		while (n && !send_group(fds[1], out, n, reply))
			;
	}
	mem_free_pages(buf, DATAGRAM);
	mem_free_pages(out, DATAGRAM);
	return NULL;
}

/* Returns the replies per second with groups of this size. */
static double echo(unsigned group, uint8_t *buf, const uint8_t *out)
{
	double start = (double)monotonic_ns(), now = start, heard = start;
	uint64_t done = 0;
	unsigned flying = 0;

	for (unsigned loops = 1; now - start < seconds * 1e9; loops++) {
		unsigned n;

		if (in_flight - flying >= group && send_group(fds[0], out, group, request))
			flying += group;
		n = receive(fds[0], buf, reply);
		done += n;
		flying -= n < flying ? n : flying;
		if (n)
			heard = now;
		if (loops % CLOCK_LOOPS == 0)
			now = (double)monotonic_ns();
		if (now - heard > LOST_NS) {
			flying = 0;
			heard = now;
		}
	}
	/* Replies that are under way belong to this row. */
	for (double until = now + LOST_NS / 10; flying && now < until;
	     now = (double)monotonic_ns()) {
		unsigned n = receive(fds[0], buf, reply);

		flying -= n < flying ? n : flying;
	}
	return (double)done * 1e9 / (now - start);
}

static void open_sockets(void)
{
	struct sockaddr_in addr[2];
	socklen_t len = sizeof(addr[0]);
	int one = 1;

	for (unsigned i = 0; i < 2; i++) {
		addr[i] = (struct sockaddr_in){.sin_family = AF_INET,
					       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		fds[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (fds[i] < 0 || bind(fds[i], (struct sockaddr *)&addr[i], len) ||
		    getsockname(fds[i], (struct sockaddr *)&addr[i], &len))
			die("socket");
		if (setsockopt(fds[i], SOL_UDP, UDP_GRO, &one, sizeof(one)))
			die("UDP_GRO");
	}
	for (unsigned i = 0; i < 2; i++)
		if (connect(fds[i], (struct sockaddr *)&addr[!i], sizeof(addr[0])))
			die("connect");
}

static unsigned most_packets(void)
{
	unsigned longer = request > reply ? request : reply, most = GROUP_BYTES / longer;

	if (most > SEGMENTS)
		most = SEGMENTS;
	return in_flight < most ? in_flight : most;
}

int main(int argc, char **argv)
{
	uint8_t *buf = mem_alloc_pages(DATAGRAM), *out = mem_alloc_pages(DATAGRAM);
	unsigned *values[] = {&request, &reply, &in_flight};
	double best = 0;
	bool first = true;
	pthread_t server;

	for (int i = 1; i < argc && i <= 3; i++)
		*values[i - 1] = (unsigned)atoi(argv[i]);
	if (argc > 4)
		seconds = atof(argv[4]);
	if (!request || !reply || !in_flight || request > 1400 || reply > 1400 || !buf || !out) {
		fprintf(stderr, "usage: bench-echo [REQUEST [REPLY [IN_FLIGHT [SECONDS]]]]\n");
		return 1;
	}
	open_sockets();
	if (pthread_create(&server, NULL, serve, NULL))
		die("thread");
	choose_core(0);
	printf("{\"tool\": \"bench_echo\", \"request\": %u, \"reply\": %u, \"in_flight\": %u, "
	       "\"rows\": [",
	       request, reply, in_flight);
	for (unsigned group = 1; group <= most_packets(); group *= 2) {
		double rate = echo(group, buf, out);

		printf("%s\n  {\"group\": %u, \"rate\": %.0f}", first ? "" : ",", group, rate);
		fflush(stdout);
		first = false;
		if (rate > best)
			best = rate;
	}
	printf("\n], \"rate\": %.0f}\n", best);
	atomic_store(&over, true);
	pthread_join(server, NULL);
	mem_free_pages(buf, DATAGRAM);
	mem_free_pages(out, DATAGRAM);
	return 0;
}
