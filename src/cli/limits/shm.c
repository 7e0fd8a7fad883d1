/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The limit of the shm port: two endpoints without a NIC. Packets have the layout of a WRITE and
 * are built in place (header, copied payload, CRC-32), and flushed every 16, or every 32 small
 * ones. The other side receives bursts, checks each CRC and copies the payload out.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/limits/limit.h"
#include "packet/headers.h"
#include "port/port.h"
#include "packet/crc32.h"

#define SMALL	  256u
#define WORK_SIZE (64u << 10)

struct job {
	struct port *port[2];
	struct port_path *path;
	uint8_t *from, *to;
	uint32_t payload, headers, burst, len;
	atomic_bool wrong;
};

static uint32_t advance(uint32_t at, uint32_t payload)
{
	at += payload;
	return at + payload <= WORK_SIZE ? at : 0;
}

static void finish(const struct job *j, uint8_t *bth)
{
	icrc_store(bth + j->len - PKT_ICRC_LEN, crc32_update(0, bth, j->len - PKT_ICRC_LEN));
}

static void stage(const struct job *j, uint8_t *bth, uint32_t n, uint32_t at)
{
	uint8_t *p = pkt_put_bth(bth, PKT_WRITE_MIDDLE, 0, 17, false, n);

	if (j->headers > sizeof(struct pkt_bth))
		p = pkt_put_reth(p, n, 1, j->payload);
	memcpy(p, j->from + at, j->payload);
}

static void send_side(struct job *j, int me, struct limit_pair *p)
{
	struct port *port = j->port[me];
	struct port_pkt none;
	uint8_t *unfinished = NULL;
	uint32_t n = 0, at = 0;
	unsigned spins = 0;

	do {
		for (uint32_t i = 0; i < j->burst; i++) {
			struct port_buf buf;

			if (port->ops->reserve(port, j->path, j->len, 0, &buf)) {
				limit_wait(p, &spins);
				break;
			}
			stage(j, buf.bth, n++, at);
			at = advance(at, j->payload);
			if (unfinished)
				finish(j, unfinished);
			unfinished = buf.bth;
			if (!port->lag) {
				finish(j, unfinished);
				unfinished = NULL;
			}
		}
		if (unfinished)
			finish(j, unfinished);
		unfinished = NULL;
		port->ops->flush(port);
		port->ops->rx_burst(port, &none, 1);
	} while (limit_count(p, me, 0));
}

static void receive_side(struct job *j, int me, struct limit_pair *p)
{
	struct port *port = j->port[me];
	struct port_pkt pkts[PORT_BURST];
	bool connected = false;
	unsigned spins = 0;
	uint32_t at = 0;
	int n;

	do {
		if (!connected)
			port->ops->control(port);
		n = port->ops->rx_burst(port, pkts, PORT_BURST);
		for (int i = 0; i < n; i++) {
			uint8_t *bth = pkts[i].bth;

			if (unlikely(pkts[i].len != j->len ||
				     crc32_update(0, bth, j->len - PKT_ICRC_LEN) !=
					     icrc_load(bth + j->len - PKT_ICRC_LEN))) {
				atomic_store(&j->wrong, true);
				continue;
			}
			memcpy(j->to + at, bth + j->headers, j->payload);
			at = advance(at, j->payload);
		}
		connected |= n > 0;
		if (n == 0)
			limit_wait(p, &spins);
	} while (limit_count(p, me, (uint64_t)n));
}

static void side(void *arg, int me, struct limit_pair *p)
{
	if (me == 0)
		send_side(arg, me, p);
	else
		receive_side(arg, me, p);
}

int limit_shm(const struct limit_cores *c, uint32_t payload, double seconds, double *rate)
{
	struct job j = {.payload = payload, .burst = payload <= SMALL ? 32 : 16};
	double sides[2];
	char err[256];
	int rc = 0;

	j.headers = sizeof(struct pkt_bth) + (payload <= SMALL ? sizeof(struct pkt_reth) : 0);
	j.len = j.headers + payload + PKT_ICRC_LEN;
	j.from = mem_alloc_pages(WORK_SIZE);
	j.to = mem_alloc_pages(WORK_SIZE);
	for (int i = 0; i < 2 && rc == 0; i++) {
		j.port[i] = port_open("shm", 0, 1, err, sizeof(err));
		if (!j.port[i]) {
			fprintf(stderr, "roost limits: %s\n", err);
			rc = -EADDRNOTAVAIL;
		}
	}
	if (rc == 0)
		j.path = j.port[0]->ops->path_get(j.port[0], &j.port[1]->addr, 0);
	if (rc == 0 && (!j.path || !j.from || !j.to))
		rc = -ENOMEM;
	if (rc == 0) {
		memset(j.from, 0x3c, WORK_SIZE);
		memset(j.to, 1, WORK_SIZE);
		rc = limit_pair_run(c, side, &j, seconds, sides);
	}
	if (rc == 0 && j.wrong)
		rc = -EIO;
	if (rc == 0)
		*rate = sides[1];
	for (int i = 0; i < 2; i++)
		port_close(j.port[i]);
	mem_free_pages(j.from, WORK_SIZE);
	mem_free_pages(j.to, WORK_SIZE);
	return rc;
}
