/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests the pcap format: an encoded record reads back; every link type, byte order and damage of a
 * file.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "packet/pcap.h"

/* A file under construction. */
struct file {
	uint8_t b[4096];
	size_t n;
};

static void add(struct file *f, const void *p, size_t n)
{
	assert_true(f->n + n <= sizeof(f->b));
	memcpy(f->b + f->n, p, n);
	f->n += n;
}

static void add32(struct file *f, uint32_t v, bool big)
{
	v = big ? htobe32(v) : htole32(v);
	add(f, &v, 4);
}

static void start(struct file *f, uint32_t magic, uint32_t linktype, bool big)
{
	static const uint8_t version[2][4] = {{2, 0, 4, 0}, {0, 2, 0, 4}};

	f->n = 0;
	add32(f, magic, big);
	add(f, version[big], 4);
	add32(f, 0, big);
	add32(f, 0, big);
	add32(f, 65535, big);
	add32(f, linktype, big);
}

static void record(struct file *f, uint32_t s, uint32_t sub, const uint8_t *p, uint32_t n,
		   uint32_t orig, bool big)
{
	add32(f, s, big);
	add32(f, sub, big);
	add32(f, n, big);
	add32(f, orig, big);
	add(f, p, n);
}

static const uint8_t bth[20] = {0x11, 0x40, 0xff, 0xff, 0, 0, 0,    0x11, 0,	0,
				0,    5,    0x1f, 0,	0, 1, 0xde, 0xad, 0xbe, 0xef};

/* An IP frame of ours around bth. */
static size_t frame(uint8_t *out, size_t cap, bool v4)
{
	struct pkt_addr a, b;

	pkt_addr_parse(v4 ? "10.1.2.3" : "fd77::1", &a);
	pkt_addr_parse(v4 ? "10.9.8.7" : "fd77::2", &b);
	return pcap_encode_frame(out, cap, &a, &b, 0xd872, PKT_UDP_PORT, 0x69, 0xabcd, bth,
				 sizeof(bth));
}

/* The Internet checksum over bytes is right when the sum with it is all ones. */
static unsigned sum(unsigned s, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		s += i & 1 ? p[i] : (unsigned)p[i] << 8;
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return s;
}

static void test_frame_v4(void **state)
{
	static const uint8_t want[28] = {0x45, 0x69, 0,	   48,	 0xab, 0xcd, 0x40, 0, 64, 17,
					 0,    0,    10,   1,	 2,    3,    10,   9, 8,  7,
					 0xd8, 0x72, 0x12, 0xb7, 0,    28,   0,	   0};
	uint8_t f[64], ip[20];

	assert_int_equal(frame(f, sizeof(f), true), 28 + sizeof(bth));
	memcpy(ip, f, 20);
	memset(ip + 10, 0, 2);
	assert_memory_equal(ip, want, 20);
	assert_int_equal(sum(0, f, 20), 0xffff);
	assert_memory_equal(f + 20, want + 20, 8);
	assert_memory_equal(f + 28, bth, sizeof(bth));
}

static void test_frame_v6(void **state)
{
	static const uint8_t want[8] = {0x66, 0x90, 0, 0, 0, 28, 17, 64};
	uint8_t f[80];

	assert_int_equal(frame(f, sizeof(f), false), 48 + sizeof(bth));
	assert_memory_equal(f, want, 8);
	assert_memory_equal(f + 48, bth, sizeof(bth));
	assert_int_not_equal(f[46] << 8 | f[47], 0);
	/* Pseudo header: addresses, length, protocol. */
	assert_int_equal(sum(28 + 17, f + 8, 32 + 28), 0xffff);
}

static void test_no_space(void **state)
{
	uint8_t f[128], big[1] = {0};
	struct pkt_addr four, six;

	for (size_t cap = 0; cap < 28 + sizeof(bth); cap++)
		assert_int_equal(frame(f, cap, true), 0);
	for (size_t cap = 0; cap < 48 + sizeof(bth); cap++)
		assert_int_equal(frame(f, cap, false), 0);
	for (size_t cap = 0; cap < PCAP_FILE_HDR_LEN; cap++)
		assert_int_equal(pcap_encode_file_header(f, cap), 0);
	for (size_t cap = 0; cap < PCAP_REC_HDR_LEN; cap++)
		assert_int_equal(pcap_encode_record_header(f, cap, 1, 2), 0);
	pkt_addr_parse("10.0.0.1", &four);
	pkt_addr_parse("fd77::1", &six);
	assert_int_equal(pcap_encode_frame(f, sizeof(f), &four, &six, 1, 2, 0, 0, bth, sizeof(bth)),
			 0);
	assert_int_equal(pcap_encode_frame(f, sizeof(f), &six, &four, 1, 2, 0, 0, bth, sizeof(bth)),
			 0);
	assert_int_equal(pcap_encode_frame(f, SIZE_MAX, &four, &four, 1, 2, 0, 0, big, 65535 - 27),
			 0);
	assert_int_equal(pcap_encode_record(f, 16 + 28 + sizeof(bth) - 1, 0, &four, &four, 1, 2, 0,
					    0, bth, sizeof(bth)),
			 0);
	assert_int_equal(pcap_encode_record(f, 3, 0, &four, &four, 1, 2, 0, 0, bth, sizeof(bth)),
			 0);
}

/* A port's records read back with the same nanosecond. */
static void test_written_reads_back(void **state)
{
	struct pkt_addr a[2], b[2];
	struct pcap_record rec;
	struct pcap_reader r;
	struct file f;

	pkt_addr_parse("10.1.2.3", &a[0]);
	pkt_addr_parse("10.9.8.7", &b[0]);
	pkt_addr_parse("fd77::1", &a[1]);
	pkt_addr_parse("fd77::2", &b[1]);
	f.n = pcap_encode_file_header(f.b, sizeof(f.b));
	assert_int_equal(f.n, PCAP_FILE_HDR_LEN);
	for (int i = 0; i < 2; i++)
		f.n += pcap_encode_record(f.b + f.n, sizeof(f.b) - f.n,
					  1234567890123456789u + (unsigned)i, &a[i], &b[i], 0xc123,
					  PKT_UDP_PORT, 0x6b, 0xfffe, bth, sizeof(bth));
	assert_int_equal(pcap_reader_init(&r, f.b, f.n), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pcap_reader_next(&r, &rec), 1);
		assert_int_equal(rec.kind, PCAP_ROCE);
		assert_int_equal(rec.time_ns, 1234567890123456789u + (unsigned)i);
		assert_true(pkt_addr_eq(&rec.src, &a[i]));
		assert_true(pkt_addr_eq(&rec.dst, &b[i]));
		assert_int_equal(rec.sport, 0xc123);
		assert_int_equal(rec.dport, PKT_UDP_PORT);
		assert_int_equal(rec.v4, i == 0);
		assert_int_equal(rec.tos, 0x6b);
		assert_int_equal(rec.ttl, 64);
		assert_int_equal(rec.ip_id, i == 0 ? 0xfffe : 0);
		assert_int_equal(rec.flow, 0);
		assert_int_equal(rec.len, sizeof(bth));
		assert_memory_equal(rec.bth, bth, sizeof(bth));
	}
	assert_int_equal(pcap_reader_next(&r, &rec), 0);
	assert_int_equal(pcap_reader_next(&r, &rec), 0);
}

static void test_byte_orders(void **state)
{
	uint8_t ip[128];
	size_t n = frame(ip, sizeof(ip), true);

	for (int i = 0; i < 4; i++) {
		bool big = i & 1, nanos = i & 2;
		struct pcap_record rec;
		struct pcap_reader r;
		struct file f;

		start(&f, nanos ? 0xa1b23c4d : 0xa1b2c3d4, 101, big);
		record(&f, 0xf0000000, 999999, ip, (uint32_t)n, (uint32_t)n, big);
		assert_int_equal(pcap_reader_init(&r, f.b, f.n), 0);
		assert_int_equal(pcap_reader_next(&r, &rec), 1);
		assert_int_equal(rec.kind, PCAP_ROCE);
		assert_int_equal(rec.time_ns,
				 0xf0000000ull * 1000000000 + (nanos ? 999999 : 999999000));
		assert_int_equal(pcap_reader_next(&r, &rec), 0);
	}
}

static void test_link_types(void **state)
{
	static const struct {
		const char *what;
		uint32_t linktype;
		uint8_t header[32];
		size_t n;
		bool v4, found;
	} rows[] = {
		{"raw", 101, {0}, 0, true, true},
		{"raw", 101, {0}, 0, false, true},
		{"raw IPv4", 228, {0}, 0, true, true},
		{"raw IPv6", 229, {0}, 0, false, true},
		{"Ethernet", 1, {[12] = 0x08, 0x00}, 14, true, true},
		{"Ethernet", 1, {[12] = 0x86, 0xdd}, 14, false, true},
		{"frame check sequence", 1 | 0x24000000, {[12] = 0x08, 0x00}, 14, true, true},
		{"VLAN", 1, {[12] = 0x81, 0x00, 0x60, 0x01, 0x08, 0x00}, 18, true, true},
		{"QinQ",
		 1,
		 {[12] = 0x88, 0xa8, 0, 1, 0x81, 0x00, 0, 2, 0x86, 0xdd},
		 22,
		 false,
		 true},
		{"five tags",
		 1,
		 {[12] = 0x81, 0, 0, 1, 0x81, 0, 0, 1, 0x81, 0, 0, 1, 0x81, 0, 0, 1, 0x81, 0, 0, 1},
		 32,
		 true,
		 false},
		{"ARP", 1, {[12] = 0x08, 0x06}, 14, true, false},
		{"RoCE v1", 1, {[12] = 0x89, 0x15}, 14, true, false},
		{"cooked", 113, {[14] = 0x08, 0x00}, 16, true, true},
		{"cooked", 113, {[14] = 0x86, 0xdd}, 16, false, true},
		{"cooked 2", 276, {0x08, 0x00}, 20, true, true},
		{"cooked 2", 276, {0x08, 0x06}, 20, true, false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t p[256] = {0};
		size_t n = rows[i].n;
		struct pcap_record rec;
		struct pcap_reader r;
		struct file f;

		memcpy(p, rows[i].header, n);
		n += frame(p + n, sizeof(p) - n, rows[i].v4);
		n += 6; /* Ethernet's padding, or check sequence: not the packet's */
		start(&f, 0xa1b2c3d4, rows[i].linktype, false);
		record(&f, 1, 2, p, (uint32_t)n, (uint32_t)n, false);
		assert_int_equal(pcap_reader_init(&r, f.b, f.n), 0);
		assert_int_equal(pcap_reader_next(&r, &rec), 1);
		if (rec.kind != (rows[i].found ? PCAP_ROCE : PCAP_OTHER))
			fail_msg("%s (%u): kind %d", rows[i].what, rows[i].linktype, rec.kind);
		if (!rows[i].found)
			continue;
		assert_int_equal(rec.len, sizeof(bth));
		assert_memory_equal(rec.bth, bth, sizeof(bth));
		assert_non_null(rec.ip);
		assert_int_equal(rec.ip[0] >> 4, rows[i].v4 ? 4 : 6);
	}
}

static void test_not_a_capture(void **state)
{
	struct pcap_reader r;
	struct file f;

	start(&f, 0xa1b2c3d4, 1, false);
	for (size_t n = 0; n < PCAP_FILE_HDR_LEN; n++) {
		uint8_t *exact = malloc(n ? n : 1);

		assert_non_null(exact);
		memcpy(exact, f.b, n);
		assert_int_equal(pcap_reader_init(&r, exact, n), -EINVAL);
		free(exact);
	}
	start(&f, 0x12345678, 1, false);
	assert_int_equal(pcap_reader_init(&r, f.b, f.n), -EINVAL);
	start(&f, 0x0a0d0d0a, 1, false);
	assert_int_equal(pcap_reader_init(&r, f.b, f.n), -EPROTONOSUPPORT);
	start(&f, 0xa1b2c3d4, 147, false);
	assert_int_equal(pcap_reader_init(&r, f.b, f.n), -ENOTSUP);
}

/*
 * A file that is cut off anywhere: whole records are read, and an incomplete one is reported; no
 * byte behind the end is read.
 */
static void test_truncated_file(void **state)
{
	uint8_t ip[128];
	size_t n = frame(ip, sizeof(ip), true), one;
	struct file f;

	start(&f, 0xa1b2c3d4, 101, false);
	record(&f, 1, 2, ip, (uint32_t)n, (uint32_t)n, false);
	one = f.n;
	record(&f, 3, 4, ip, (uint32_t)n, (uint32_t)n, false);
	for (size_t cut = PCAP_FILE_HDR_LEN; cut <= f.n; cut++) {
		uint8_t *exact = malloc(cut);
		struct pcap_record rec;
		struct pcap_reader r;
		int whole = 0, end;

		assert_non_null(exact);
		memcpy(exact, f.b, cut);
		assert_int_equal(pcap_reader_init(&r, exact, cut), 0);
		while ((end = pcap_reader_next(&r, &rec)) == 1)
			whole++;
		assert_int_equal(whole, cut < one ? 0 : cut < f.n ? 1 : 2);
		assert_int_equal(
			end, cut == PCAP_FILE_HDR_LEN || cut == one || cut == f.n ? 0 : -ENODATA);
		free(exact);
	}
}

static void test_damaged_records(void **state)
{
	uint8_t ip[128];
	size_t n = frame(ip, sizeof(ip), true);
	struct pcap_record rec;
	struct pcap_reader r;
	struct file f;

	start(&f, 0xa1b2c3d4, 101, false);
	record(&f, 1, 2, ip, (uint32_t)n, (uint32_t)n, false);
	memset(f.b + PCAP_FILE_HDR_LEN + 8, 0xff, 4);
	assert_int_equal(pcap_reader_init(&r, f.b, f.n), 0);
	assert_int_equal(pcap_reader_next(&r, &rec), -EBADMSG);
	f.b[PCAP_FILE_HDR_LEN + 10] = f.b[PCAP_FILE_HDR_LEN + 11] = 0;
	assert_int_equal(pcap_reader_next(&r, &rec), -ENODATA);
}

/* A change of one byte (or of the captured length) of a good frame, and the result. */
static void test_frames(void **state)
{
	static const struct {
		const char *what;
		bool v4;
		int at; /* -1: none */
		uint8_t value;
		int cut; /* bytes that the snap length took */
		enum pcap_kind kind;
	} rows[] = {
		{"right", true, -1, 0, 0, PCAP_ROCE},
		{"right", false, -1, 0, 0, PCAP_ROCE},
		{"other port", true, 23, 0xb8, 0, PCAP_OTHER},
		{"other port", false, 43, 0xb8, 0, PCAP_OTHER},
		{"TCP", true, 9, 6, 0, PCAP_OTHER},
		{"TCP", false, 6, 6, 0, PCAP_OTHER},
		{"version 5", true, 0, 0x55, 0, PCAP_OTHER},
		{"header of 16 bytes", true, 0, 0x44, 0, PCAP_BAD},
		{"header longer than the packet", true, 0, 0x4f, 0, PCAP_BAD},
		{"more in the packet than in the frame", true, 3, 60, 0, PCAP_BAD},
		{"more in the packet than in the frame", false, 5, 60, 0, PCAP_BAD},
		{"more in UDP than in IP", true, 25, 29, 0, PCAP_BAD},
		{"more in UDP than in IP", false, 45, 29, 0, PCAP_BAD},
		{"UDP of 7 bytes", true, 25, 7, 0, PCAP_BAD},
		{"UDP of 8 bytes", true, 25, 8, 0, PCAP_ROCE},
		{"first fragment", true, 6, 0x20, 0, PCAP_FRAGMENT},
		{"later fragment", true, 7, 0x01, 0, PCAP_OTHER},
		{"cut in the payload", true, -1, 0, 1, PCAP_CUT},
		{"cut in the payload", false, -1, 0, 19, PCAP_CUT},
		{"cut in the UDP header", true, -1, 0, 21, PCAP_OTHER},
		{"cut in the IP header", true, -1, 0, 30, PCAP_OTHER},
		{"cut in the IP header", false, -1, 0, 30, PCAP_OTHER},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pcap_record rec;
		struct pcap_reader r;
		uint8_t ip[128], *exact;
		struct file f;
		size_t n;

		n = frame(ip, sizeof(ip), rows[i].v4);
		if (rows[i].at >= 0)
			ip[rows[i].at] = rows[i].value;
		start(&f, 0xa1b2c3d4, 101, false);
		record(&f, 1, 2, ip, (uint32_t)(n - (size_t)rows[i].cut), (uint32_t)n, false);
		exact = malloc(f.n);
		assert_non_null(exact);
		memcpy(exact, f.b, f.n);
		assert_int_equal(pcap_reader_init(&r, exact, f.n), 0);
		assert_int_equal(pcap_reader_next(&r, &rec), 1);
		if (rec.kind != rows[i].kind)
			fail_msg("%s (IPv%d): kind %d, should be %d", rows[i].what,
				 rows[i].v4 ? 4 : 6, rec.kind, rows[i].kind);
		free(exact);
	}
}

/* A header with options: the packet is there, but its ICRC has no definition. */
static void test_ip_options(void **state)
{
	uint8_t ip[128], p[128] = {0};
	size_t n = frame(ip, sizeof(ip), true);
	struct pcap_record rec;
	struct pcap_reader r;
	struct file f;

	memcpy(p, ip, 20);
	memset(p + 20, 1, 4);
	memcpy(p + 24, ip + 20, n - 20);
	p[0] = 0x46;
	p[3] = (uint8_t)(n + 4);
	start(&f, 0xa1b2c3d4, 101, false);
	record(&f, 1, 2, p, (uint32_t)n + 4, (uint32_t)n + 4, false);
	assert_int_equal(pcap_reader_init(&r, f.b, f.n), 0);
	assert_int_equal(pcap_reader_next(&r, &rec), 1);
	assert_int_equal(rec.kind, PCAP_ROCE);
	assert_null(rec.ip);
	assert_memory_equal(rec.bth, bth, sizeof(bth));
}

static void test_v6_fragment_and_flow(void **state)
{
	uint8_t ip[128], p[128] = {0};
	size_t n = frame(ip, sizeof(ip), false);
	struct pcap_record rec;
	struct pcap_reader r;
	struct file f;

	ip[1] = 0x9a;
	ip[2] = 0xbc;
	ip[3] = 0xde;
	start(&f, 0xa1b2c3d4, 101, false);
	record(&f, 1, 2, ip, (uint32_t)n, (uint32_t)n, false);
	memcpy(p, ip, 40);
	p[6] = 44;
	p[5] = (uint8_t)(n - 40 + 8);
	p[40] = 17;
	p[43] = 1; /* more to come, offset 0 */
	memcpy(p + 48, ip + 40, n - 40);
	record(&f, 1, 2, p, (uint32_t)n + 8, (uint32_t)n + 8, false);
	p[43] = 8; /* offset 1 */
	record(&f, 1, 2, p, (uint32_t)n + 8, (uint32_t)n + 8, false);
	assert_int_equal(pcap_reader_init(&r, f.b, f.n), 0);
	assert_int_equal(pcap_reader_next(&r, &rec), 1);
	assert_int_equal(rec.kind, PCAP_ROCE);
	assert_int_equal(rec.flow, 0xabcde);
	assert_int_equal(rec.tos, 0x69);
	assert_int_equal(pcap_reader_next(&r, &rec), 1);
	assert_int_equal(rec.kind, PCAP_FRAGMENT);
	assert_int_equal(pcap_reader_next(&r, &rec), 1);
	assert_int_equal(rec.kind, PCAP_OTHER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frame_v4),	cmocka_unit_test(test_frame_v6),
		cmocka_unit_test(test_no_space),	cmocka_unit_test(test_written_reads_back),
		cmocka_unit_test(test_byte_orders),	cmocka_unit_test(test_link_types),
		cmocka_unit_test(test_not_a_capture),	cmocka_unit_test(test_truncated_file),
		cmocka_unit_test(test_damaged_records), cmocka_unit_test(test_frames),
		cmocka_unit_test(test_ip_options),	cmocka_unit_test(test_v6_fragment_and_flow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
