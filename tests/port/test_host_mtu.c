/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The MTU of connected queue pairs between host ports, whose interface has 1500 bytes. The test
 * runs in a network namespace of its own, which has such an interface.
 */
#include "../common/network.h"
#include "rig.h"

#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

#define A  "fd78::1" /* the interface of 1500 bytes has A, B and V4 */
#define B  "fd78::2"
#define V4 "10.78.0.1"
#define LO "127.0.0.1"

static void set_mtu(const char *device, int mtu)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct ifreq req = {.ifr_mtu = mtu};

	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", device);
	assert_int_equal(ioctl(fd, SIOCSIFMTU, &req), 0);
	close(fd);
}

static uint32_t mtu_to(struct port *from, struct port *to, uint32_t stated)
{
	return port_qp_mtu(from, &to->addr, rig_qpn(to), stated);
}

/* Returns the MTU that both ports give a connection. */
static uint32_t agreed(struct port *a, struct port *b, uint32_t stated)
{
	uint32_t mtu = mtu_to(a, b, stated);

	assert_int_equal(mtu_to(b, a, stated), mtu);
	return mtu;
}

/*
 * Programs state the smaller MTU of the two ports. Packets between them have 4096 bytes then, or
 * less by the options of a port. A smaller MTU is the choice of the programs.
 */
static void test_agreed(void **state)
{
	static const struct {
		const char *a, *b;
		uint32_t stated, mtu;
	} row[] = {
		{"host:" A, "host:" B, 1024, 4096},
		{"host:" A, "host:" B, 512, 512},
		{"host:" A, "host:" B ",mtu=4096", 1024, 4096},
		{"host:" A, "host:" B ",mtu=2048", 1024, 2048},
		{"host:" A, "host:" B ",mtu=1024", 1024, 1024},
		{"host:" A, "host:" B ",mtu=512", 512, 512},
		{"host:" A, "udp:" B, 1024, 1024},
		{"udp:" A, "udp:" B, 1024, 1024},
		{"host:" A, "host:" B ",pcap=/dev/null,loss=0.001", 1024, 4096},
		{"host:" V4, "host:" LO, 1024, 4096},
		{"host:" LO, "host:127.0.0.2", 4096, 4096},
		{"host:" LO, "host:127.0.0.2", 1024, 1024},
		{"host:" LO, "host:127.0.0.2,mtu=1024", 1024, 1024},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(row); i++) {
		struct port *a = rig_open(row[i].a), *b = rig_open(row[i].b);
		uint32_t least = a->mtu < b->mtu ? a->mtu : b->mtu;

		assert_true(row[i].stated <= least);
		assert_int_equal(agreed(a, b, row[i].stated), row[i].mtu);
		rig_close(b);
		rig_close(a);
	}
}

/* The peer is on another machine, or no program has the slot. */
static void test_outside(void **state)
{
	struct port *a = rig_open("host:" A), *b = rig_open("host:" B);
	struct pkt_addr far = rig_addr("fd78::99");

	assert_int_equal(port_qp_mtu(a, &far, rig_qpn(b), 1024), 1024);
	assert_int_equal(port_qp_mtu(a, &b->addr, rig_qpn(b) ^ 1u << 18, 1024), 1024);
	assert_int_equal(mtu_to(a, b, 1024), 4096);
	far = b->addr;
	rig_close(b);
	assert_int_equal(port_qp_mtu(a, &far, rig_qpn(a), 1024), 1024);
}

static void exchange_long(struct port *a, struct port *b)
{
	uint32_t len = 4096 + RIG_MIN_LEN;
	struct port_path *path = a->ops->path_get(a, &b->addr, rig_qpn(b));
	struct port_pkt pkt;

	assert_non_null(path);
	for (uint32_t n = 0; n < 100; n++) {
		int got = 0;

		assert_int_equal(rig_send(a, path, len, 0, rig_qpn(b), n), 0);
		assert_true(a->ops->flush(a));
		while (!got) {
			if (b->ops->control)
				b->ops->control(b);
			got = rig_burst(b, &pkt, 1);
		}
		assert_int_equal(pkt.len, len);
		rig_check(b, &pkt, rig_qpn(b), n);
	}
	a->ops->path_put(a, path);
}

/*
 * An end that can make no ring sends by udp. It comes to the same MTU as the other end, and such
 * packets fit.
 */
static void test_no_ring(void **state)
{
	struct port *a = rig_open("host:" A), *b = rig_open("host:" B);
	struct rlimit was, less;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	less = was;
	less.rlim_cur = 32 << 10;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
	exchange_long(a, b);
	assert_int_equal(mtu_to(a, b, 1024), 4096);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_int_equal(port_stats_of(a).tx_shm_packets, 0);
	exchange_long(b, a);
	assert_int_equal(port_stats_of(b).tx_shm_packets, 100);
	assert_int_equal(agreed(a, b, 1024), 4096);

	/* It could make none from the start, and has announced that it takes none either. */
	rig_close(b);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
	b = rig_open("host:" B); /* one line with the cause */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_int_equal(agreed(a, b, 1024), 4096);
	exchange_long(a, b);
	assert_int_equal(port_stats_of(a).tx_shm_packets, 0);
}

/* The same for an end without a free descriptor. */
static void test_no_descriptor(void **state)
{
	struct port *a = rig_open("host:" A), *b = rig_open("host:" B);
	struct rlimit was, none;
	uint32_t mtu;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = was;
	none.rlim_cur = 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	mtu = mtu_to(a, b, 1024);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_int_equal(mtu, 4096);
	assert_int_equal(mtu_to(b, a, 1024), 4096);
}

/* A loopback interface with a small MTU limits the packets of programs that start meanwhile. */
static void test_loopback(void **state)
{
	struct port *a = rig_open("host:" A), *b, *lane[2];
	char err[256];

	set_mtu("lo", 1500);
	b = rig_open("host:" B);
	set_mtu("lo", 65536);
	assert_int_equal(agreed(a, b, 1024), 1024);
	rig_close(b);
	b = rig_open("host:" B);
	assert_int_equal(agreed(a, b, 1024), 4096);
	rig_close(b);

	/* All lanes of a program have the same. */
	lane[0] = port_open("host:" B, 0, 2, err, sizeof(err));
	set_mtu("lo", 1500);
	lane[1] = port_open("host:" B, 1, 2, err, sizeof(err));
	set_mtu("lo", 65536);
	for (unsigned i = 0; i < 2; i++) {
		assert_non_null(lane[i]);
		assert_int_equal(agreed(a, lane[i], 1024), 4096);
	}
	port_close(lane[1]);
	port_close(lane[0]);
}

#define TEST(f) cmocka_unit_test_teardown(f, rig_close_all)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_agreed),	  TEST(test_outside),  TEST(test_no_ring),
		TEST(test_no_descriptor), TEST(test_loopback),
	};

	if (network_tunnel(V4, A, 1500) < 0 || !network_add6("tun0", B)) {
		printf("no network namespace with a tunnel device here\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
