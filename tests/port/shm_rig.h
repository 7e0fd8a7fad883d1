/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the tests of the shm port: a folder of their own, opening endpoints, sending and
 * receiving packets with a pattern.
 */
#ifndef TESTS_PORT_SHM_RIG_H
#define TESTS_PORT_SHM_RIG_H

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "port/shm.h"

/* Limit of waits, enough for a busy machine. Reaching it is a failure. */
#define SRIG_WAIT_MS 20000

static char srig_dir[64];

static inline int srig_setup(void **state)
{
	strcpy(srig_dir, "/tmp/roost-test-XXXXXX");
	assert_non_null(mkdtemp(srig_dir));
	setenv("ROOST_SHM_DIR", srig_dir, 1);
	return 0;
}

static inline int srig_teardown(void **state)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", srig_dir);
	return system(cmd);
}

static inline struct pkt_addr srig_addr(const char *text)
{
	struct pkt_addr a;

	assert_int_equal(pkt_addr_parse(text, &a), 0);
	return a;
}

/*
 * Makes this process the holder of an address that none of its endpoints has: even a hostile peer
 * must hold an address.
 */
static inline struct shm_claim srig_claim(const char *text)
{
	struct pkt_addr a = srig_addr(text);
	struct shm_claim c;
	pid_t holder;
	int dirfd = shm_dir_open((char[256]){""}, 256);

	assert_int_equal(shm_claim(dirfd, &a, 0, 1, SHM_RING_DEFAULT, &c, &holder), 0);
	close(dirfd);
	return c;
}

/*
 * Opens an endpoint. `text` NULL: the port chooses the address. `err` NULL: opening must succeed.
 */
static inline struct port *srig_open_lane(const char *text, uint32_t ring, unsigned lane,
					  unsigned lanes, char *err)
{
	struct port_spec spec = {.kind = "shm", .ring = ring};
	char line[256] = "";
	struct port *p;

	if (text) {
		spec.has_address = true;
		spec.addr = srig_addr(text);
	}
	p = shm_open_port(&spec, lane, lanes, err ? err : line, sizeof(line));
	if (!p && !err)
		fail_msg("%s", line);
	return p;
}

static inline struct port *srig_open(const char *text, uint32_t ring)
{
	return srig_open_lane(text, ring, 0, 1, NULL);
}

/*
 * Content of packet n of a stream. Length and bytes are computed from n, so that the receiver needs
 * no message from the sender.
 */
static inline uint32_t srig_len(uint64_t n)
{
	uint64_t h = (n + 1) * 0x9e3779b97f4a7c15u;

	/*
	 * One in four is near the largest, one in four has the smallest length, the rest are
	 * between.
	 */
	switch (h >> 62) {
	case 0:
		return PKT_MAX_LEN - (uint32_t)(h >> 40) % 64;
	case 1:
		return 20 + (uint32_t)(h >> 40) % 200;
	default:
		return 20 + (uint32_t)(h >> 32) % (PKT_MAX_LEN - 19);
	}
}

static inline void srig_fill(uint8_t *bth, uint32_t len, uint64_t n)
{
	memset(bth, (int)(n * 7), len);
	memcpy(bth, &n, sizeof(n));
	memcpy(bth + len - 8, &n, sizeof(n));
}

static inline void srig_check(const struct port_pkt *pkt, uint64_t n)
{
	uint64_t first, last;

	assert_int_equal(pkt->len, srig_len(n));
	memcpy(&first, pkt->bth, 8);
	memcpy(&last, pkt->bth + pkt->len - 8, 8);
	assert_int_equal(first, n);
	assert_int_equal(last, n);
	for (uint32_t i = 8; i < pkt->len - 8; i++) {
		if (pkt->bth[i] != (uint8_t)(n * 7))
			fail_msg("packet %llu, byte %u of %u is wrong", (unsigned long long)n, i,
				 pkt->len);
	}
}

/* Sends packet n without a flush. Returns false if there is no space. */
static inline bool srig_send(struct port *p, struct port_path *path, uint64_t n)
{
	struct port_buf buf;
	uint32_t len = srig_len(n);
	int rc = p->ops->reserve(p, path, len, (uint8_t)n, &buf);

	if (rc == -EAGAIN)
		return false;
	assert_int_equal(rc, 0);
	assert_int_equal(buf.ip_id, 0);
	srig_fill(buf.bth, len, n);
	return true;
}

static inline void srig_send_now(struct port *p, struct port_path *path, uint64_t n)
{
	assert_true(srig_send(p, path, n));
	assert_true(p->ops->flush(p));
}

/* Does control work, then receives one burst. */
static inline int srig_receive(struct port *p, struct port_pkt *pkts)
{
	p->ops->control(p);
	return p->ops->rx_burst(p, pkts, PORT_BURST);
}

/* Polls for the next packet, which must come. */
static inline struct port_pkt srig_next(struct port *p)
{
	struct port_pkt pkt;

	for (int i = 0; i < SRIG_WAIT_MS * 10; i++) {
		p->ops->control(p);
		if (p->ops->rx_burst(p, &pkt, 1) == 1)
			return pkt;
		usleep(100);
	}
	fail_msg("no packet came");
	return pkt;
}

static inline bool srig_readable(int fd, int ms)
{
	struct pollfd f = {.fd = fd, .events = POLLIN};

	return poll(&f, 1, ms) == 1;
}

/* Returns the number of files in the folder. */
static inline int srig_count_files(void)
{
	char cmd[128], out[16] = "";
	FILE *f;

	snprintf(cmd, sizeof(cmd), "ls -A %s | wc -l", srig_dir);
	f = popen(cmd, "r");
	assert_non_null(fgets(out, sizeof(out), f));
	pclose(f);
	return atoi(out);
}

struct srig_pair {
	struct port *a, *b;
	struct port_path *ab, *ba;
};

static inline struct srig_pair srig_open_pair(uint32_t ring)
{
	struct srig_pair p = {.a = srig_open(NULL, ring), .b = srig_open(NULL, ring)};

	p.ab = p.a->ops->path_get(p.a, &p.b->addr, 0);
	p.ba = p.b->ops->path_get(p.b, &p.a->addr, 0);
	assert_non_null(p.ab);
	assert_non_null(p.ba);
	p.a->ops->control(p.a);
	p.b->ops->control(p.b);
	return p;
}

static inline void srig_close_pair(struct srig_pair *p)
{
	port_close(p->a);
	port_close(p->b);
}

/* Starts a child that opens an endpoint, reports that, and waits to be killed. */
static inline pid_t srig_start_holder(const char *addr)
{
	int ready[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		srig_open(addr, 0);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

static inline void srig_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#endif
