/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer that leaves DF clear, over the real udp port: a plain socket with IP_MTU_DISCOVER at
 * IP_PMTUDISC_DONT, which computes the ICRC bit by bit from the fields that the specification
 * lists. Linux chooses the identification of such datagrams and shows it to neither end. The peer
 * uses any value for its ICRC, and the port cannot check it. test_udp_wire.c tests frames with
 * their true identification, from tests/foreign.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "make_packet.h"
#include "world.h"

#define PEER_QPN 0x345678u

static struct world w;
static char nic_text[32], peer_text[32];

static struct port *open_port(unsigned nic)
{
	char spec[64], err[256];
	struct port *p;

	snprintf(spec, sizeof(spec), "udp:%s", nic_text);
	p = port_open(spec, 0, 1, err, sizeof(err));
	if (!p)
		fail_msg("%s", err);
	return p;
}

static struct sockaddr_in socket_addr(const char *text)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PKT_UDP_PORT)};

	assert_int_equal(inet_pton(AF_INET, text, &a.sin_addr), 1);
	return a;
}

/* The socket is not connected: the NIC answers from a source port of its own. */
static int plain_socket(void)
{
	struct sockaddr_in us = socket_addr(peer_text);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), dont = IP_PMTUDISC_DONT;

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &dont, sizeof(dont)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&us, sizeof(us)), 0);
	return fd;
}

static uint32_t plain_crc(uint32_t crc, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		crc ^= p[i];
		for (int b = 0; b < 8; b++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return crc;
}

/*
 * Computes the ICRC of a packet from the socket to the NIC, with DF clear. `buf` has `len` bytes,
 * BTH to pad, and space for four more.
 */
static void put_icrc(uint8_t *buf, uint32_t len, uint16_t id)
{
	uint32_t total = 28 + len + 4;
	uint8_t h[8 + 28], *ip = h + 8, *udp = ip + 20, resv = buf[4];
	struct sockaddr_in us = socket_addr(peer_text), to = socket_addr(nic_text);
	uint32_t crc;

	memset(h, 0xff, sizeof(h));
	ip[0] = 0x45;
	ip[2] = (uint8_t)(total >> 8);
	ip[3] = (uint8_t)total;
	ip[4] = (uint8_t)(id >> 8);
	ip[5] = (uint8_t)id;
	ip[6] = ip[7] = 0; /* no flags */
	ip[9] = 17;
	memcpy(ip + 12, &us.sin_addr, 4);
	memcpy(ip + 16, &to.sin_addr, 4);
	udp[0] = udp[2] = PKT_UDP_PORT >> 8;
	udp[1] = udp[3] = PKT_UDP_PORT & 0xff;
	udp[4] = (uint8_t)((total - 20) >> 8);
	udp[5] = (uint8_t)(total - 20);
	crc = plain_crc(~0u, h, sizeof(h));
	buf[4] = 0xff;
	crc = ~plain_crc(crc, buf, len);
	buf[4] = resv;
	for (int i = 0; i < 4; i++)
		buf[len + (uint32_t)i] = (uint8_t)(crc >> 8 * i);
}

static void connect_to_socket(struct ep *e)
{
	struct nic_qp_attr a;

	ep_to_init(e);
	ep_attr(e, e, &a);
	a.dest_qpn = PEER_QPN;
	assert_int_equal(pkt_addr_parse(peer_text, &a.dgid), 0);
	a.rq_psn = 0xfffffe;
	ep_to_rtr(e, &a);
	ep_to_rts(e, &a);
}

/* Drives the NIC until it answers, and takes the answer. */
static void take_answer(int fd, struct pkt_view *v, uint8_t *buf, size_t size)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	struct nic_counters c;
	ssize_t n;

	while (poll(&pfd, 1, 1) == 0) {
		world_step(&w, world_now(&w));
		nic_counters(w.nic[0], &c);
		assert_int_equal(c.rx_icrc_encapsulated, 0);
	}
	n = recv(fd, buf, size, 0);
	assert_true(n > 0);
	assert_int_equal(pkt_parse(buf, (size_t)n, v), PKT_OK);
}

static void over_the_udp_port(void **state)
{
	struct ep_params ep = {.mem = 65536, .mtu = 1024};
	uint8_t buf[PKT_MAX_LEN];
	struct roost_cqe c;
	struct pkt_view v;
	struct ep e;
	struct sockaddr_in to;
	int fd;

	snprintf(nic_text, sizeof(nic_text), "127.%d.%d.171", 1 + (getpid() >> 8) % 250,
		 getpid() % 250);
	snprintf(peer_text, sizeof(peer_text), "127.%d.%d.172", 1 + (getpid() >> 8) % 250,
		 getpid() % 250);
	world_init_shape(&w, &(struct world_shape){.nics = 1, .open = open_port}, 7,
			 &(struct sim_params){0});
	ep_init(&e, &w, 0, &ep);
	connect_to_socket(&e);
	fd = plain_socket();
	to = socket_addr(nic_text);
	for (uint32_t i = 0; i < 20; i++) {
		struct pkt_make m = {.opcode = PKT_SEND_ONLY,
				     .psn = 0xfffffe + i,
				     .ackreq = true,
				     .len = 1 + 53 * i};
		struct roost_sge sge = ep_sge(&e, 0, 1024);
		uint32_t len = pkt_make_raw(buf, &m, nic_qp_num(e.qp));

		ep_post_recv(&e, i, &sge, 1);
		put_icrc(buf, len - PKT_ICRC_LEN, (uint16_t)(0x3a71 + 4099 * i));
		assert_int_equal(sendto(fd, buf, len, 0, (struct sockaddr *)&to, sizeof(to)), len);
		take_answer(fd, &v, buf, sizeof(buf));
		assert_int_equal(v.opcode, PKT_ACK);
		assert_int_equal(v.syndrome, PKT_AETH_ACK);
		assert_int_equal(v.psn, (0xfffffe + i) & PKT_PSN_MASK);
		assert_true(ep_poll_recv(&e, &c));
		assert_int_equal(c.status, NIC_WC_SUCCESS);
		assert_int_equal(c.byte_len, m.len);
		for (uint32_t k = 0; k < m.len; k++)
			assert_int_equal(e.mem[k], pkt_pattern(k));
	}
	close(fd);
	ep_fini(&e);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_the_udp_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
