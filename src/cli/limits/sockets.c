/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bare UDP over loopback.
 *
 * Bandwidth: one call sends a group and one call receives it. A group is fifteen packets of 4,112
 * bytes (BTH, 4 KiB and ICRC), or 64 packets of 96 bytes (a WRITE of 64 bytes each). A count that
 * both threads see limits the bytes in flight. It has no cost and avoids all losses, so no protocol
 * is faster.
 *
 * Round trip: one small packet there and back. Both sides poll, or the other side sleeps.
 */
#include "cli/limits/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hist.h"
#include "base/mem.h"
#include "base/sys.h"
#include "cli/term.h"
#include "packet/crc32.h"
#include "port/udp.h"

#define ICRC	   4u
#define IN_FLIGHT  8u /* groups */
#define BUFFER	   (2 << 20)
#define DATAGRAM   65536u
#define WORK_SIZE  DATAGRAM
#define PING_BYTES 64u

#define CLOCK_SPINS 1024u
#define OVERDUE_NS  50000000u

struct shape {
	uint32_t headers, payload, packet;
	uint32_t group; /* as many as fit in 64 KiB, and as every Linux kernel accepts */
};

static const struct shape large = {
	.headers = 12, .payload = 4096, .packet = 12 + 4096 + ICRC, .group = 15};
static const struct shape small = {
	.headers = 28, .payload = 64, .packet = 28 + 64 + ICRC, .group = 64};

struct job {
	const struct shape *shape;
	int fd[2];
	struct sockaddr_in addr[2];
	uint8_t *stage, *from, *to, *buf;
	uint32_t in_flight;
	struct hist *hist;
	bool cold;
	atomic_int error;
	_Alignas(128) _Atomic uint64_t received; /* packets */
};

static void fail(struct job *j, int error)
{
	int none = 0;

	atomic_compare_exchange_strong(&j->error, &none, error);
}

static int open_socket(struct job *j, int side)
{
	struct sockaddr_in *a = &j->addr[side];
	socklen_t len = sizeof(*a);
	int bytes = BUFFER, rc;

	*a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	j->fd[side] = sys_socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (j->fd[side] < 0)
		return j->fd[side];
	sys_setsockopt(j->fd[side], SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	sys_setsockopt(j->fd[side], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	rc = sys_bind(j->fd[side], (struct sockaddr *)a, len);
	return rc ? rc : sys_getsockname(j->fd[side], (struct sockaddr *)a, &len);
}

/*
 * Returns the maximum number of packets in flight: IN_FLIGHT groups, or fewer if three quarters of
 * the receive buffer hold fewer. No group then finds the buffer full; udp_open.c explains the
 * fraction.
 */
static uint32_t packets_that_fit(const struct shape *s, int fd)
{
	socklen_t len = sizeof(int);
	int bytes = 0;
	uint32_t fit;

	sys_getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &len);
	fit = (uint32_t)bytes / 4 * 3 / (s->packet + s->packet / 16);
	return fit < IN_FLIGHT * s->group ? fit : IN_FLIGHT * s->group;
}

static int set_up_bandwidth(struct job *j)
{
	int size = (int)j->shape->packet, one = 1, rc;

	rc = sys_setsockopt(j->fd[0], SOL_UDP, UDP_SEGMENT, &size, sizeof(size));
	if (!rc)
		rc = sys_setsockopt(j->fd[1], SOL_UDP, UDP_GRO, &one, sizeof(one));
	if (!rc)
		rc = sys_connect(j->fd[0], (struct sockaddr *)&j->addr[1], sizeof(j->addr[1]));
	j->in_flight = packets_that_fit(j->shape, j->fd[1]);
	j->stage = mem_alloc_pages(DATAGRAM);
	j->buf = mem_alloc_pages(DATAGRAM);
	j->from = mem_alloc_pages(WORK_SIZE);
	j->to = mem_alloc_pages(WORK_SIZE);
	if (!j->stage || !j->buf || !j->from || !j->to)
		return -ENOMEM;
	for (uint32_t i = 0; i < WORK_SIZE; i++)
		j->from[i] = (uint8_t)(i * 7 + (i >> 8));
	return rc;
}

static void send_groups(struct job *j, struct limit_pair *p)
{
	const struct shape *s = j->shape;
	uint32_t covered = s->headers + s->payload;
	uint64_t sent = 0, last = 0;
	uint32_t at = 0;
	unsigned spins = 0;

	do {
		ssize_t n;
		uint64_t received = atomic_load_explicit(&j->received, memory_order_acquire);

		if (sent + s->group - received > j->in_flight) {
			limit_wait(p, &spins);
			/*
			 * The Linux kernel may drop packets nevertheless. Packets that are long
			 * overdue do not count as in flight.
			 */
			if (spins % CLOCK_SPINS == 0 && clock_ns() - last > OVERDUE_NS)
				sent = received;
			continue;
		}
		last = clock_ns();
		for (uint32_t i = 0; i < s->group; i++) {
			uint8_t *pkt = j->stage + i * s->packet;
			uint32_t crc;

			memset(pkt, (int)i, s->headers);
			memcpy(pkt + s->headers, j->from + at, s->payload);
			crc = crc32_update(0, pkt, covered);
			memcpy(pkt + covered, &crc, sizeof(crc));
			at = (at + s->payload) % WORK_SIZE;
		}
		do {
			n = sys_sendto(j->fd[0], j->stage, s->group * s->packet, 0, NULL, 0);
		} while (n == -EAGAIN && limit_count(p, 0, 0));
		if (n < 0 && n != -EAGAIN) {
			fail(j, (int)n);
			return;
		}
		sent += s->group;
	} while (limit_count(p, 0, 0) && !atomic_load_explicit(&j->error, memory_order_relaxed));
}

static void receive_groups(struct job *j, struct limit_pair *p)
{
	const struct shape *s = j->shape;
	uint32_t covered = s->headers + s->payload;
	uint64_t total = 0;
	uint32_t at = 0;
	unsigned spins = 0;
	uint64_t got;

	do {
		ssize_t n = sys_recvfrom(j->fd[1], j->buf, DATAGRAM, 0, NULL, NULL);

		got = 0;
		if (n < 0) {
			if (n != -EAGAIN) {
				fail(j, (int)n);
				return;
			}
			limit_wait(p, &spins);
			continue;
		}
		for (const uint8_t *pkt = j->buf; pkt + s->packet <= j->buf + n;
		     pkt += s->packet, got++) {
			uint32_t crc;

			memcpy(&crc, pkt + covered, sizeof(crc));
			if (unlikely(crc32_update(0, pkt, covered) != crc))
				fail(j, -EIO);
			memcpy(j->to + at, pkt + s->headers, s->payload);
			at = (at + s->payload) % WORK_SIZE;
		}
		total += got;
		atomic_store_explicit(&j->received, total, memory_order_release);
	} while (limit_count(p, 1, got) && !atomic_load_explicit(&j->error, memory_order_relaxed));
}

static void bandwidth_side(void *arg, int side, struct limit_pair *p)
{
	(side == 0 ? send_groups : receive_groups)(arg, p);
}

/* Waits for the next small packet. Returns false when the run is over. */
static bool await(struct job *j, int side, struct limit_pair *p, void *buf)
{
	unsigned spins = 0;
	ssize_t n;

	while ((n = sys_recvfrom(j->fd[side], buf, PING_BYTES, 0, NULL, NULL)) < 0) {
		if (n != -EAGAIN && n != -ECONNREFUSED) {
			fail(j, (int)n);
			return false;
		}
		/*
		 * A cold run continues until it has as many round trips as a percentile needs,
		 * without a time limit.
		 */
		if (!limit_count(p, side, 0) && (!j->cold || atomic_load(&j->error)))
			return false;
		if (p->shared)
			limit_wait(p, &spins);
	}
	return true;
}

static void ping_side(void *arg, int side, struct limit_pair *p)
{
	uint8_t buf[PING_BYTES] = {0};
	struct job *j = arg;

	do {
		uint64_t start = clock_ns();
		ssize_t n = side == 0 ? sys_sendto(j->fd[0], buf, sizeof(buf), 0, NULL, 0) : 0;

		if (n < 0 || !await(j, side, p, buf))
			break;
		if (side == 0)
			hist_add(j->hist, clock_ns() - start);
		else
			sys_sendto(j->fd[1], buf, sizeof(buf), 0, NULL, 0);
	} while (limit_count(p, side, 1));
}

static void cold_side(void *arg, int side, struct limit_pair *p)
{
	const struct timespec nap = {.tv_nsec = LIMIT_SLEEP_NS};
	uint8_t buf[PING_BYTES] = {0}; /* the first byte is 1 when the run is over */
	struct job *j = arg;
	unsigned trips = 0;

	while (side == 1 && await(j, 1, p, buf) && !buf[0])
		sys_sendto(j->fd[1], buf, sizeof(buf), 0, NULL, 0);
	while (side == 0 && (limit_count(p, 0, 1) || trips < LIMIT_WAKES)) {
		uint64_t start;
		ssize_t n;

		nanosleep(&nap, NULL);
		start = clock_ns();
		n = sys_sendto(j->fd[0], buf, sizeof(buf), 0, NULL, 0);
		if (n < 0)
			fail(j, (int)n);
		if (n < 0 || !await(j, 0, p, buf))
			break;
		hist_add(j->hist, clock_ns() - start);
		trips++;
	}
	buf[0] = 1;
	if (side == 0)
		sys_sendto(j->fd[0], buf, sizeof(buf), 0, NULL, 0);
}

/*
 * Makes the socket block in recvfrom(2), with a timeout to check whether the other side has failed.
 */
static int make_blocking(int fd)
{
	const struct timeval look = {.tv_sec = 1};
	int rc = sys_fcntl(fd, F_SETFL, 0);

	return rc ? rc : sys_setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof(look));
}

static struct job *job_new(int *rc)
{
	struct job *j = aligned_alloc(128, sizeof(*j));

	*rc = -ENOMEM;
	if (!j)
		return NULL;
	memset(j, 0, sizeof(*j));
	j->fd[0] = j->fd[1] = -1;
	*rc = open_socket(j, 0);
	if (!*rc)
		*rc = open_socket(j, 1);
	return j;
}

static void job_free(struct job *j)
{
	for (int i = 0; i < 2; i++) {
		if (j->fd[i] >= 0)
			sys_close(j->fd[i]);
	}
	mem_free_pages(j->stage, DATAGRAM);
	mem_free_pages(j->buf, DATAGRAM);
	mem_free_pages(j->from, WORK_SIZE);
	mem_free_pages(j->to, WORK_SIZE);
	free(j->hist);
	free(j);
}

static int gso(const struct limit_cores *c, const struct shape *shape, double seconds,
	       double *per_second)
{
	double rate[2];
	int rc;
	struct job *j = job_new(&rc);

	if (!j)
		return rc;
	j->shape = shape;
	if (!rc)
		rc = set_up_bandwidth(j);
	if (!rc)
		rc = limit_pair_run(c, bandwidth_side, j, seconds, rate);
	if (!rc)
		rc = j->error;
	if (!rc)
		*per_second = rate[1];
	job_free(j);
	return rc;
}

int limit_udp_gso(const struct limit_cores *c, double seconds, double *gbps)
{
	int rc = gso(c, &large, seconds, gbps);

	*gbps *= large.payload * 8 / 1e9;
	return rc;
}

int limit_udp_gso_small(const struct limit_cores *c, double seconds, double *mops)
{
	int rc = gso(c, &small, seconds, mops);

	*mops /= 1e6;
	return rc;
}

int limit_udp_rtt(const struct limit_cores *c, bool cold, unsigned percentile, double seconds,
		  double *ns)
{
	double rate[2];
	int rc;
	struct job *j = job_new(&rc);

	if (!j)
		return rc;
	j->hist = calloc(1, sizeof(*j->hist));
	if (!rc && !j->hist)
		rc = -ENOMEM;
	for (int i = 0; i < 2 && !rc; i++)
		rc = sys_connect(j->fd[i], (struct sockaddr *)&j->addr[!i], sizeof(j->addr[0]));
	j->cold = cold;
	if (!rc && cold)
		rc = make_blocking(j->fd[1]);
	if (!rc)
		rc = limit_pair_run(c, cold ? cold_side : ping_side, j, seconds, rate);
	if (!rc)
		rc = j->error;
	if (!rc)
		*ns = (double)hist_percentile(j->hist, percentile);
	job_free(j);
	return rc;
}
