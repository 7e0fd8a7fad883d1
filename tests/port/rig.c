/* SPDX-License-Identifier: BSD-2-Clause */
#include "rig.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct pkt_addr rig_addr(const char *text)
{
	struct pkt_addr a;

	assert_int_equal(pkt_addr_parse(text, &a), 0);
	return a;
}

static struct port *open_ports[16];

struct port *rig_open(const char *spec)
{
	char err[256];
	struct port *p = port_open(spec, 0, 1, err, sizeof(err));
	int i = 0;

	if (!p)
		fail_msg("%s: %s", spec, err);
	while (open_ports[i])
		i++;
	open_ports[i] = p;
	return p;
}

void rig_close(struct port *p)
{
	for (int i = 0; i < 16; i++) {
		if (open_ports[i] == p)
			open_ports[i] = NULL;
	}
	port_close(p);
}

int rig_close_all(void **state)
{
	for (int i = 0; i < 16; i++) {
		port_close(open_ports[i]);
		open_ports[i] = NULL;
	}
	return 0;
}

static uint8_t content(uint32_t n, uint32_t i)
{
	return (uint8_t)(n * 131 + i * 7 + (i >> 8));
}

void rig_build(uint8_t *bth, uint32_t len, uint32_t qpn, uint32_t n, const struct icrc_flow *flow,
	       uint16_t ip_id)
{
	uint8_t *p = pkt_put_bth(bth, PKT_WRITE_MIDDLE, PKT_BTH_MIGREQ, qpn, false, n);
	uint32_t payload = len - RIG_MIN_LEN;

	for (uint32_t i = 0; i < payload; i++)
		p[i] = content(n, i);
	icrc_store(bth + len - PKT_ICRC_LEN, icrc_compute(flow, ip_id, bth, len));
}

int rig_send(struct port *p, struct port_path *path, uint32_t len, uint8_t tos, uint32_t qpn,
	     uint32_t n)
{
	struct port_buf buf;
	struct icrc_flow flow;
	int rc = p->ops->reserve(p, path, len, tos, &buf);

	if (rc)
		return rc;
	icrc_flow_init(&flow, &p->addr, &path->dst, path->sport, PKT_UDP_PORT);
	rig_build(buf.bth, len, qpn, n, &flow, buf.ip_id);
	return 0;
}

void rig_send_request(struct port *p, const struct pkt_addr *to, uint64_t service,
		      enum cm_attr attr)
{
	uint32_t len = sizeof(struct pkt_bth) + sizeof(struct pkt_deth) + CM_MAD_LEN + PKT_ICRC_LEN;
	struct port_path *path = p->ops->path_get(p, to, PKT_GSI_QPN);
	struct cm_msg m = {.attr = attr};
	struct port_buf buf;
	uint8_t *b;

	assert_non_null(path);
	if (attr == CM_SIDR_REQ)
		m.sidr_req.service_id = service;
	else
		m.req.service_id = service;
	assert_int_equal(p->ops->reserve(p, path, len, 0, &buf), 0);
	memset(buf.bth, 0, len);
	b = pkt_put_bth(buf.bth, PKT_UD | PKT_SEND_ONLY, PKT_BTH_MIGREQ, PKT_GSI_QPN, false, 0);
	cm_build(&m, pkt_put_deth(b, 0x80010000, 1));
	assert_true(p->ops->flush(p));
	p->ops->path_put(p, path);
}

uint32_t rig_psn(const struct port_pkt *pkt)
{
	return pkt_get24(((const struct pkt_bth *)pkt->bth)->psn);
}

bool rig_check(const struct port *p, const struct port_pkt *pkt, uint32_t qpn, uint32_t n)
{
	return rig_check_to(&p->addr, pkt, qpn, n);
}

bool rig_check_to(const struct pkt_addr *dst, const struct port_pkt *pkt, uint32_t qpn, uint32_t n)
{
	const struct pkt_bth *bth = (const struct pkt_bth *)pkt->bth;
	const uint8_t *payload = pkt->bth + sizeof(*bth);
	struct icrc_flow flow;
	uint16_t id = pkt->ip_id;

	assert_true(pkt->len >= RIG_MIN_LEN);
	assert_int_equal(pkt_get24(bth->dqpn), qpn);
	assert_int_equal(pkt_get24(bth->psn), n & PKT_PSN_MASK);
	for (uint32_t i = 0; i < pkt->len - RIG_MIN_LEN; i++) {
		if (payload[i] != content(n, i))
			fail_msg("packet %u of %u bytes: byte %u is wrong", n, pkt->len, i);
	}
	assert_true(pkt_addr_eq(pkt->dst, dst));
	icrc_flow_init(&flow, pkt->src, pkt->dst, pkt->sport, PKT_UDP_PORT);
	assert_true(icrc_verify(&flow, pkt->flags & PORT_ID_KNOWN, &id, pkt->bth, pkt->len));
	return id == pkt->ip_id;
}

int rig_burst(struct port *p, struct port_pkt *pkts, int max)
{
	struct timespec start, now;
	int n;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		n = p->ops->rx_burst(p, pkts, max);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (n == 0 && now.tv_sec - start.tv_sec < RIG_WAIT_MS / 1000);
	return n;
}

bool rig_readable(const struct port *p, int ms)
{
	struct pollfd f = {.fd = p->fd, .events = POLLIN};

	return poll(&f, 1, ms) == 1;
}
