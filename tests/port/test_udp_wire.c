/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The udp port's packets on a wire, seen from a tunnel device. The ICRCs must be built for the
 * identifications that the running Linux kernel gives to the packets of a group. Each packet of
 * each golden capture, put on the wire as it was captured, must be received and verify, although
 * its identification is not visible.
 *
 * Usage: test_udp_wire FOLDER, of captures (77: there can be no tunnel device)
 */
#include "../common/network.h"
#include "rig.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "packet/pcap.h"
#include "port/udp.h"

static char **folders; /* golden and other captures; NULL ends the list */

/* Takes the next frame to port 4791 from the tunnel; false: none comes. */
static bool next_frame(int tun, uint8_t *ip, size_t cap, struct pcap_record *out)
{
	/* A capture file with one record, so that the reader can parse the frame. */
	static uint8_t file[PCAP_FILE_HDR_LEN + PCAP_REC_HDR_LEN + 70000];
	struct pollfd p = {.fd = tun, .events = POLLIN};
	struct pcap_reader r;

	while (poll(&p, 1, RIG_WAIT_MS) == 1) {
		ssize_t n = read(tun, ip, cap);
		size_t at = pcap_encode_file_header(file, sizeof(file));

		assert_true(n > 0);
		at += pcap_encode_record_header(file + at, sizeof(file) - at, 0, (uint32_t)n);
		memcpy(file + at, ip, (size_t)n);
		assert_int_equal(pcap_reader_init(&r, file, at + (size_t)n), 0);
		assert_int_equal(pcap_reader_next(&r, out), 1);
		if (out->kind == PCAP_ROCE) {
			size_t bth = (size_t)(out->bth - file - at);

			out->ip = ip;
			out->bth = ip + bth;
			return true;
		}
		assert_int_equal(out->kind, PCAP_OTHER);
	}
	return false;
}

static uint16_t sum16(uint32_t sum, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum += i % 2 ? p[i] : (uint32_t)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* Checks that the UDP checksum is present and right. */
static void check_udp(const struct pcap_record *f)
{
	const uint8_t *udp = f->bth - 8;
	uint32_t sum = 17 + 8 + (uint32_t)f->len;

	assert_true(udp[6] || udp[7]);
	sum += sum16(0, f->v4 ? f->ip + 12 : f->ip + 8, f->v4 ? 8 : 32);
	assert_int_equal(sum16(sum, udp, 8 + f->len), 0xffff);
}

static const uint32_t sizes[] = {4148, 4148, 4148, 4148, 4148, 4148, 4148, 4148, 4148,
				 4148, 4148, 4148, 4148, 4148, 4148, 4148, 4148, 1076,
				 64,   64,   64,   20,	 64,   4148, 20};

/* Packets to a group come back to its members on this machine. */
static void comes_back(struct port *p, const struct pkt_addr *group, unsigned count)
{
	struct port_pkt pkts[PORT_BURST];

	for (unsigned got = 0; got < count;) {
		int n = rig_burst(p, pkts, PORT_BURST);

		assert_true(n > 0);
		for (int i = 0; i < n; i++)
			rig_check_to(group, &pkts[i], 5, got++);
	}
}

/*
 * Before 6.11 the Linux kernel does not segment for a device without checksums (EIO,
 * net/ipv4/udp.c, udp_send_skb()).
 */
static bool kernel_cuts(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), size = 100;
	char two[200] = {0};
	bool cuts;

	inet_pton(AF_INET, "10.78.0.2", &to.sin_addr);
	assert_int_equal(setsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, sizeof(size)), 0);
	cuts = sendto(fd, two, sizeof(two), 0, (struct sockaddr *)&to, sizeof(to)) == sizeof(two);
	close(fd);
	return cuts;
}

static void frames_are_right(const char *us, const char *them, const char *options)
{
	int tun = network_tunnel("10.78.0.1", "fd78::1", 9000);
	struct pkt_addr dst = rig_addr(them);
	static uint8_t ip[70000];
	struct pcap_record f;
	struct port_path *path;
	struct port *p;
	char spec[80];
	bool cuts;

	assert_true(tun >= 0);
	cuts = kernel_cuts();
	snprintf(spec, sizeof(spec), "udp:%s%s", us, options);
	p = rig_open(spec);
	path = p->ops->path_get(p, &dst, 0);
	assert_non_null(path);
	if (pkt_addr_is_group(&dst))
		assert_int_equal(p->ops->join(p, &dst), 0);
	for (int round = 0; round < 2; round++) {
		uint16_t ids[ARRAY_SIZE(sizes)];

		for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
			struct port_buf buf;
			struct icrc_flow flow;

			assert_int_equal(p->ops->reserve(p, path, sizes[i], 0x6a, &buf), 0);
			icrc_flow_init(&flow, &p->addr, &dst, path->sport, PKT_UDP_PORT);
			rig_build(buf.bth, sizes[i], 5, i, &flow, buf.ip_id);
			ids[i] = buf.ip_id;
		}
		assert_true(p->ops->flush(p));
		for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
			assert_true(next_frame(tun, ip, sizeof(ip), &f));
			assert_int_equal(f.len, sizes[i]);
			assert_int_equal(f.tos, 0x6a);
			assert_int_equal(f.ttl, 64);
			assert_int_equal(f.sport, path->sport);
			if (f.v4) {
				assert_int_equal(f.ip_id, cuts ? ids[i] : 0);
				assert_int_equal(f.ip[6], 0x40); /* don't fragment */
			}
			check_udp(&f);
			assert_int_equal(icrc_compute_frame(f.ip, f.bth, f.len),
					 icrc_load(f.bth + f.len - 4));
		}
		if (pkt_addr_is_group(&dst))
			comes_back(p, &dst, ARRAY_SIZE(sizes));
	}
	assert_int_equal(p->stats.tx_packets, 2 * ARRAY_SIZE(sizes));
	p->ops->path_put(p, path);
	rig_close(p);
	close(tun);
}

static void test_identifications(void **state)
{
	frames_are_right("10.78.0.1", "10.78.0.2", "");
}

static void test_identifications_single(void **state)
{
	frames_are_right("10.78.0.1", "10.78.0.2", ",offload=0");
}

static void test_ipv6(void **state)
{
	frames_are_right("fd78::1", "fd78::2", "");
	frames_are_right("fd78::1", "fd78::2", ",offload=0");
}

static void test_groups(void **state)
{
	frames_are_right("10.78.0.1", "239.77.0.9", "");
	frames_are_right("10.78.0.1", "239.77.0.9", ",offload=0");
	frames_are_right("fd78::1", "ff0e::77:9", "");
	frames_are_right("fd78::1", "ff02::77:9", "");
}

/*
 * An interface of 1,500 bytes fits packets of MTU 1024. A router on the path, or any sender of a
 * forged ICMP message, may name less. Packets are still sent whole and with DF set.
 */
static void test_mtu(void **state)
{
	int tun = network_tunnel("10.78.0.1", "fd78::1", 1500);
	struct pkt_addr dst = rig_addr("10.78.0.2");
	struct port *p = rig_open("udp:10.78.0.1");
	struct port_path *path = p->ops->path_get(p, &dst, 0);
	static uint8_t ip[2000];
	struct pcap_record f;
	uint8_t icmp[56] = {0x45, 0, 0, 56, 0, 0, 0x40, 0, 64, 1};
	uint16_t sum;

	assert_int_equal(p->mtu, 1024);
	assert_int_equal(rig_send(p, path, 1024 + PKT_MAX_HEADERS + PKT_ICRC_LEN, 0, 5, 0), 0);
	assert_true(p->ops->flush(p));
	assert_true(next_frame(tun, ip, sizeof(ip), &f));

	/* "Fragmentation needed, and the next hop takes 700 bytes" (RFC 1191). */
	memcpy(icmp + 12, ip + 16, 4);
	memcpy(icmp + 16, ip + 12, 4);
	sum = (uint16_t)~sum16(0, icmp, 20);
	icmp[10] = (uint8_t)(sum >> 8);
	icmp[11] = (uint8_t)sum;
	icmp[20] = 3;
	icmp[21] = 4;
	icmp[26] = 700 >> 8;
	icmp[27] = 700 & 0xff;
	memcpy(icmp + 28, ip, 28);
	sum = (uint16_t)~sum16(0, icmp + 20, 36);
	icmp[22] = (uint8_t)(sum >> 8);
	icmp[23] = (uint8_t)sum;
	assert_int_equal(write(tun, icmp, sizeof(icmp)), sizeof(icmp));

	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(rig_send(p, path, 1024 + PKT_MAX_HEADERS + PKT_ICRC_LEN, 0, 5, i),
				 0);
		assert_true(p->ops->flush(p));
		assert_true(next_frame(tun, ip, sizeof(ip), &f));
		assert_int_equal(f.len, 1024 + PKT_MAX_HEADERS + PKT_ICRC_LEN);
		assert_int_equal(ip[6], 0x40);
	}
	assert_int_equal(p->stats.tx_packets, 5);
	assert_int_equal(p->stats.tx_dropped, 0);
	p->ops->path_put(p, path);
	rig_close(p);
	close(tun);
}

/* ---- golden captures ---- */

static uint8_t *load(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY);
	struct stat st;
	uint8_t *data;

	if (fd < 0 || fstat(fd, &st))
		fail_msg("%s: %s", path, strerror(errno));
	data = malloc((size_t)st.st_size);
	assert_non_null(data);
	assert_int_equal(read(fd, data, (size_t)st.st_size), st.st_size);
	close(fd);
	*size = (size_t)st.st_size;
	return data;
}

/* Writes the record's frame to the wire and receives it. */
static void replay(int tun, struct port *p, const char *name, unsigned n,
		   const struct pcap_record *rec)
{
	size_t frame = (size_t)(rec->bth - rec->ip) + rec->len;
	struct port_pkt pkt;
	struct icrc_flow flow;
	uint16_t id;

	assert_int_equal(write(tun, rec->ip, frame), frame);
	if (rig_burst(p, &pkt, 1) != 1)
		fail_msg("%s, packet %u did not arrive", name, n);
	assert_int_equal(pkt.len, rec->len);
	assert_memory_equal(pkt.bth, rec->bth, rec->len);
	assert_true(pkt_addr_eq(pkt.src, &rec->src) && pkt_addr_eq(pkt.dst, &rec->dst));
	assert_int_equal(pkt.sport, rec->sport);
	assert_int_equal(pkt.tos, rec->tos);
	icrc_flow_init(&flow, pkt.src, pkt.dst, pkt.sport, PKT_UDP_PORT);
	id = pkt.ip_id;
	if (!icrc_verify(&flow, pkt.flags & PORT_ID_KNOWN, &id, pkt.bth, pkt.len))
		fail_msg("%s, packet %u: the ICRC does not verify", name, n);
	if (rec->v4)
		assert_int_equal(id, rec->ip_id);
	/*
	 * A flipped bit is detected; with hidden identification, in all packets but one in 32,768.
	 */
	pkt.bth[n % (pkt.len - PKT_ICRC_LEN)] ^= n % (pkt.len - PKT_ICRC_LEN) == 4 ? 0 : 1;
	if (n % (pkt.len - PKT_ICRC_LEN) != 4 &&
	    icrc_verify(&flow, pkt.flags & PORT_ID_KNOWN, &id, pkt.bth, pkt.len))
		print_message("%s, packet %u: verifies with another identification\n", name, n);
}

/* Sent to a group, from another address than this end's. */
static bool from_outside(const struct pcap_record *rec, const struct port *p)
{
	return pkt_addr_is_group(&rec->dst) && !pkt_addr_eq(&rec->src, &p->addr);
}

static unsigned replay_to(const char *folder, const char *v4, const char *v6)
{
	int tun = network_tunnel(v4, v6, 9000);
	char spec[64];
	struct pkt_addr group = rig_addr("239.77.0.9"); /* of mckey_mcast.pcap */
	struct port *p4, *p6;
	unsigned total = 0;
	DIR *dir = opendir(folder);
	struct dirent *entry;

	assert_non_null(dir);
	assert_true(tun >= 0);
	snprintf(spec, sizeof(spec), "udp:%s", v4);
	p4 = rig_open(spec);
	assert_int_equal(p4->ops->join(p4, &group), 0);
	snprintf(spec, sizeof(spec), "udp:%s", v6);
	p6 = rig_open(spec);
	while ((entry = readdir(dir)) != NULL) {
		char path[512];
		struct pcap_record rec;
		struct pcap_reader r;
		size_t size;
		uint8_t *data;

		if (!strstr(entry->d_name, ".pcap"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		data = load(path, &size);
		assert_int_equal(pcap_reader_init(&r, data, size), 0);
		for (unsigned n = 0; pcap_reader_next(&r, &rec) == 1; n++) {
			struct port *p = rec.kind != PCAP_ROCE		    ? NULL
					 : pkt_addr_eq(&rec.dst, &p4->addr) ? p4
					 : pkt_addr_eq(&rec.dst, &p6->addr) ? p6
					 : from_outside(&rec, p4)	    ? p4
									    : NULL;

			if (p) {
				replay(tun, p, entry->d_name, n, &rec);
				total++;
			}
		}
		free(data);
	}
	closedir(dir);
	rig_close(p4);
	rig_close(p6);
	close(tun);
	return total;
}

/*
 * Two processes without a given address can send each other datagrams of either port's MTU. A given
 * address has its interface's MTU.
 */
static void test_mtu_of_chosen(void **state)
{
	int tun = network_tunnel("10.78.0.1", "fd78::1", 1400);
	struct pkt_addr primary = rig_addr("10.78.0.1");
	struct port *first = rig_open("udp"), *second = rig_open("udp"),
		    *named = rig_open("udp:127.0.0.77"), *lane[2];
	char spec[80] = "udp:", err[200];

	assert_true(pkt_addr_eq(&first->addr, &primary));
	assert_true(pkt_addr_is_loopback(&second->addr));
	assert_int_equal(first->mtu, 1024);
	assert_int_equal(second->mtu, 1024);
	assert_int_equal(named->mtu, 4096);
	lane[0] = port_open("udp", 0, 2, err, sizeof(err));
	assert_non_null(lane[0]);
	pkt_addr_print(&lane[0]->addr, spec + 4, sizeof(spec) - 4);
	lane[1] = port_open(spec, 1, 2, err, sizeof(err)); /* as the drive opens it */
	assert_non_null(lane[1]);
	assert_int_equal(lane[0]->mtu, 1024);
	assert_int_equal(lane[1]->mtu, 1024);
	port_close(lane[1]);
	port_close(lane[0]);
	close(tun);
}

static void test_golden(void **state)
{
	for (char **folder = folders; *folder; folder++) {
		unsigned a = replay_to(*folder, "10.77.0.1", "fd77::1"),
			 b = replay_to(*folder, "10.77.0.2", "fd77::2");

		print_message("%s: %u and %u packets\n", *folder, a, b);
		assert_true(a > 0 && b > 0);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_identifications, rig_close_all),
		cmocka_unit_test_teardown(test_identifications_single, rig_close_all),
		cmocka_unit_test_teardown(test_ipv6, rig_close_all),
		cmocka_unit_test_teardown(test_groups, rig_close_all),
		cmocka_unit_test_teardown(test_mtu, rig_close_all),
		cmocka_unit_test_teardown(test_mtu_of_chosen, rig_close_all),
		cmocka_unit_test_teardown(test_golden, rig_close_all),
	};
	int tun = network_tunnel("10.78.0.1", "fd78::1", 1500);

	if (argc < 2) {
		fprintf(stderr, "usage: %s FOLDER...\n", argv[0]);
		return 2;
	}
	folders = argv + 1;
	if (tun < 0) {
		fprintf(stderr, "SKIPPED: no tunnel device in a network namespace (%s)\n",
			strerror(errno));
		return 77;
	}
	close(tun);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
