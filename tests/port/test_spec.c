/* SPDX-License-Identifier: BSD-2-Clause */
/* Port specifications: accepted ones, and refused ones with one line that names the remedy. */
#include "rig.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "port/port_impl.h"

static void test_full(void **state)
{
	struct port_spec s;
	char err[256];
	struct pkt_addr a = rig_addr("127.0.0.2");

	assert_int_equal(
		port_spec_parse(
			"udp:127.0.0.2,loss=0.01,dup=.5,reorder=1,corrupt=0,delay=5us,seed=7,mtu=1024,"
			"window=64K,buffer=208k,ring=1M,offload=0,pcap=a%pb.pcap",
			&s, err, sizeof(err)),
		0);
	assert_string_equal(s.kind, "udp");
	assert_true(s.has_address && pkt_addr_eq(&s.addr, &a));
	assert_true(s.faults.loss > 0.0099999 && s.faults.loss < 0.0100001);
	assert_true(s.faults.dup == 0.5 && s.faults.reorder == 1 && s.faults.corrupt == 0);
	assert_int_equal(s.faults.delay_ns, 5000);
	assert_int_equal(s.faults.seed, 7);
	assert_int_equal(s.mtu, 1024);
	assert_int_equal(s.window, 65536);
	assert_int_equal(s.buffer, 208 * 1024);
	assert_int_equal(s.ring, 1 << 20);
	assert_true(s.no_offload);
	assert_string_equal(s.pcap, "a%pb.pcap");
}

static void test_bare(void **state)
{
	struct port_spec s;
	char err[256];

	assert_int_equal(port_spec_parse("shm", &s, err, sizeof(err)), 0);
	assert_string_equal(s.kind, "shm");
	assert_false(s.has_address);
	assert_false(port_faults_any(&s.faults));
	assert_int_equal(s.mtu, 0);
	assert_int_equal(s.faults.seed, PORT_DEFAULT_SEED);
	assert_int_equal(port_spec_parse("udp:fe80::1:2,delay=1ms", &s, err, sizeof(err)), 0);
	assert_true(s.has_address && !pkt_addr_is_v4(&s.addr));
	assert_true(port_faults_any(&s.faults));
}

static void test_times(void **state)
{
	const struct {
		const char *text;
		uint64_t ns;
	} row[] = {{"0", 0},	      {"1ns", 1},	  {"1.5us", 1500},
		   {".25ms", 250000}, {"2s", 2000000000}, {"10s", 10000000000}};
	struct port_spec s;
	char spec[64], err[256];

	for (unsigned i = 0; i < ARRAY_SIZE(row); i++) {
		snprintf(spec, sizeof(spec), "udp,delay=%s", row[i].text);
		assert_int_equal(port_spec_parse(spec, &s, err, sizeof(err)), 0);
		assert_int_equal(s.faults.delay_ns, row[i].ns);
	}
}

/* Numbers are read the same in any locale's convention for decimal points. */
static void test_locale(void **state)
{
	struct port_spec s;
	char err[256];

	if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8")) {
		print_message("SKIPPED: no locale with a decimal comma here\n");
		skip();
	}
	assert_int_equal(port_spec_parse("udp,loss=0.5", &s, err, sizeof(err)), 0);
	assert_true(s.faults.loss == 0.5);
	setlocale(LC_ALL, "C");
}

static void test_refused(void **state)
{
	const struct {
		const char *text, *says;
	} row[] = {
		{"", "udp or shm"},
		{"tcp", "no port kind 'tcp'"},
		{"udp:", "no address"},
		{"udp:1.2.3", "'1.2.3' is no address"},
		{"udp:1.2.3.4:4791", "no address"},
		{"udp,", "no port option ''"},
		{"udp,speed=3", "no port option 'speed': there are loss dup"},
		{"udp,loss", "loss=: give it 0 to 1"},
		{"udp,loss=", "0 to 1"},
		{"udp,loss=1.01", "0 to 1"},
		{"udp,loss=-0.1", "0 to 1"},
		{"udp,loss=nan", "0 to 1"},
		{"udp,loss=.", "0 to 1"},
		{"udp,loss=1e-3", "0 to 1"},
		{"udp,loss=0.1x", "0 to 1"},
		{"udp,delay=5", "as in 5us"},
		{"udp,delay=11s", "as in 5us"},
		{"udp,delay=5min", "as in 5us"},
		{"udp,seed=-1", "a number"},
		{"udp,seed=99999999999999999999", "a number"},
		{"udp,mtu=1000", "256, 512"},
		{"udp,mtu=8192", "256, 512"},
		{"udp,mtu=128", "256, 512"},
		{"udp,window=1", "4K to 1G"},
		{"udp,window=2G", "4K to 1G"},
		{"udp,window=64KB", "4K to 1G"},
		{"udp,offload=yes", "0 or 1"},
		{"udp,pcap=", "file name"},
	};
	struct port_spec s;
	char err[256];

	for (unsigned i = 0; i < ARRAY_SIZE(row); i++) {
		err[0] = '\0';
		if (!port_spec_parse(row[i].text, &s, err, sizeof(err)))
			fail_msg("'%s' was accepted", row[i].text);
		if (!strstr(err, row[i].says) || strchr(err, '\n'))
			fail_msg("'%s': the message is: %s", row[i].text, err);
	}
}

static void test_long(void **state)
{
	static char text[2000];
	struct port_spec s;
	char err[40];

	memset(text, 'x', sizeof(text) - 1);
	assert_int_not_equal(port_spec_parse(text, &s, err, sizeof(err)), 0);
	memcpy(text, "udp,pcap=", 9);
	text[9 + 256] = '\0';
	assert_int_not_equal(port_spec_parse(text, &s, err, sizeof(err)), 0);
	text[9 + 255] = '\0';
	assert_int_equal(port_spec_parse(text, &s, err, sizeof(err)), 0);
}

static void test_mtu_fit(void **state)
{
	assert_int_equal(port_mtu_fit(65535 - 28, 0), 4096);
	assert_int_equal(port_mtu_fit(4148, 0), 4096);
	assert_int_equal(port_mtu_fit(4147, 0), 2048);
	assert_int_equal(port_mtu_fit(1500 - 28, 0), 1024);
	assert_int_equal(port_mtu_fit(1500 - 28, 512), 512);
	assert_int_equal(port_mtu_fit(1500 - 28, 4096), 1024);
	assert_int_equal(port_mtu_fit(307, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full),	cmocka_unit_test(test_bare),
		cmocka_unit_test(test_times),	cmocka_unit_test(test_locale),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_long),
		cmocka_unit_test(test_mtu_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
