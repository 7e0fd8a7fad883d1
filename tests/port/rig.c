/* SPDX-License-Identifier: BSD-2-Clause */
#include "rig.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

static bool enter_namespace(void)
{
	char map[64];
	uid_t uid = getuid();

	if (unshare(CLONE_NEWNET) == 0)
		return true;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
		return false;
	snprintf(map, sizeof(map), "0 %u 1", (unsigned)uid);
	return write_file("/proc/self/uid_map", map);
}

static bool add4(int fd, const char *label, const char *text)
{
	struct ifreq req = {0};
	struct sockaddr_in *a = (struct sockaddr_in *)&req.ifr_addr;

	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", label);
	a->sin_family = AF_INET;
	inet_pton(AF_INET, text, &a->sin_addr);
	return ioctl(fd, SIOCSIFADDR, &req) == 0;
}

static bool add6(int fd, const char *device, const char *text, unsigned prefix)
{
	struct in6_ifreq req = {.ifr6_prefixlen = prefix, .ifr6_ifindex = (int)if_nametoindex(device)};

	inet_pton(AF_INET6, text, &req.ifr6_addr);
	return ioctl(fd, SIOCSIFADDR, &req) == 0;
}

/* The kernel looks, in its own time, whether an address is free before it lets anybody use it. */
static bool usable6(const char *text)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6};
	bool ok = false;

	inet_pton(AF_INET6, text, &a.sin6_addr);
	for (int i = 0; i < 2000 && !ok; i++) {
		int fd = socket(AF_INET6, SOCK_DGRAM, 0);

		ok = bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
		close(fd);
		if (!ok)
			usleep(1000);
	}
	return ok;
}

static bool set_up(int fd, const char *device)
{
	struct ifreq req = {0};

	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", device);
	if (ioctl(fd, SIOCGIFFLAGS, &req))
		return false;
	req.ifr_flags |= IFF_UP;
	return ioctl(fd, SIOCSIFFLAGS, &req) == 0;
}

bool rig_private_net(void)
{
	int fd4, fd6;
	bool ok;

	if (!enter_namespace())
		return false;
	fd4 = socket(AF_INET, SOCK_DGRAM, 0);
	fd6 = socket(AF_INET6, SOCK_DGRAM, 0);
	ok = set_up(fd4, "lo") && add4(fd4, "lo:1", "10.77.0.1") && add4(fd4, "lo:2", "10.77.0.2");
	ok = ok && add6(fd6, "lo", "fd77::1", 128) && add6(fd6, "lo", "fd77::2", 128);
	ok = ok && usable6("fd77::1") && usable6("fd77::2");
	close(fd4);
	close(fd6);
	return ok;
}

int rig_tunnel(const char *addr4, const char *addr6, int mtu)
{
	struct ifreq req = {.ifr_name = "tun0"};
	int tun, fd4, fd6;
	bool ok;

	if (!enter_namespace())
		return -1;
	tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (tun < 0)
		return -1;
	fd4 = socket(AF_INET, SOCK_DGRAM, 0);
	fd6 = socket(AF_INET6, SOCK_DGRAM, 0);
	req.ifr_flags = IFF_TUN | IFF_NO_PI;
	ok = ioctl(tun, TUNSETIFF, &req) == 0;
	req.ifr_mtu = mtu;
	ok = ok && ioctl(fd4, SIOCSIFMTU, &req) == 0 && set_up(fd4, "lo") && add4(fd4, "tun0", addr4);
	((struct sockaddr_in *)&req.ifr_netmask)->sin_family = AF_INET;
	inet_pton(AF_INET, "255.255.255.0", &((struct sockaddr_in *)&req.ifr_netmask)->sin_addr);
	ok = ok && ioctl(fd4, SIOCSIFNETMASK, &req) == 0;
	ok = ok && set_up(fd4, "tun0") && add6(fd6, "tun0", addr6, 64) && usable6(addr6);
	close(fd4);
	close(fd6);
	if (!ok) {
		close(tun);
		return -1;
	}
	return tun;
}

bool rig_add6(const char *device, const char *addr)
{
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);
	bool ok = add6(fd, device, addr, 64);

	close(fd);
	return ok && usable6(addr);
}

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

int rig_send(struct port *p, struct port_path *path, uint32_t len, uint8_t tos, uint32_t qpn, uint32_t n)
{
	struct port_room room;
	struct icrc_flow flow;
	int rc = p->ops->reserve(p, path, len, tos, &room);

	if (rc)
		return rc;
	icrc_flow_init(&flow, &p->addr, &path->dst, path->sport, PKT_UDP_PORT);
	rig_build(room.bth, len, qpn, n, &flow, room.ip_id);
	return 0;
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
	} while (n == 0 && now.tv_sec - start.tv_sec < 2);
	return n;
}

bool rig_readable(const struct port *p, int ms)
{
	struct pollfd f = {.fd = p->fd, .events = POLLIN};

	return poll(&f, 1, ms) == 1;
}
