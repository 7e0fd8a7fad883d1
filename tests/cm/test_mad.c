/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The codec: each management datagram of the golden captures, each field of each message, and
 * refused input. Argument: the folder.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "golden.h"

static const char *folder;

/* Returns true for a REQ and a SIDR_REQ, whose service id can be read alone. */
static bool check_request(const uint8_t *mad, const struct cm_msg *m)
{
	bool is = m->attr == CM_REQ || m->attr == CM_SIDR_REQ;
	uint64_t service = 0;

	assert_int_equal(cm_is_request(mad, &service), is);
	if (is)
		assert_int_equal(service,
				 m->attr == CM_REQ ? m->req.service_id : m->sidr_req.service_id);
	return is;
}

/* Each datagram is parsed, has a name, and is built again byte by byte. */
static void golden_datagrams_survive(void **state)
{
	struct golden_mad g[64];
	size_t all = 0, requests = 0;

	for (const char *const *name = golden_captures; *name; name++) {
		size_t n = golden_load(folder, *name, g, ARRAY_SIZE(g));

		assert_true(n > 0);
		for (size_t i = 0; i < n; i++) {
			uint8_t again[CM_MAD_LEN];
			struct cm_msg m;
			char text[1024];

			assert_int_equal(cm_parse(g[i].mad, CM_MAD_LEN, &m), CM_OK);
			requests += check_request(g[i].mad, &m);
			cm_build(&m, again);
			assert_memory_equal(again, g[i].mad, CM_MAD_LEN);
			assert_true(cm_print(&m, text, sizeof(text)) > 20);
			assert_memory_equal(text, cm_attr_str(m.attr), strlen(cm_attr_str(m.attr)));
		}
		all += n;
	}
	assert_int_equal(all, 130);
	assert_in_range(requests, 10, 60);
}

/* The values of the Linux kernel's first REQ and REP, as tshark shows them. */
static void golden_req_and_rep_say(void **state)
{
	struct golden_mad g[64];
	struct cm_ip ip;
	struct cm_msg m;

	assert_int_equal(golden_load(folder, "cm_connect_disc.pcap", g, ARRAY_SIZE(g)), 5);
	assert_int_equal(cm_parse(g[0].mad, CM_MAD_LEN, &m), CM_OK);
	assert_int_equal(m.attr, CM_REQ);
	assert_int_equal(m.tid, 0x00000002936d94a7ull);
	assert_int_equal(m.local_id, 0xa7946d93);
	assert_int_equal(m.req.service_id, cm_service_id(CM_PS_TCP, 7471));
	assert_int_equal(m.req.ca_guid, 0x505400fffe770002ull);
	assert_int_equal(m.req.qpn, 0x16);
	assert_int_equal(m.req.responder_resources, 16);
	assert_int_equal(m.req.initiator_depth, 16);
	assert_int_equal(m.req.remote_timeout, 20);
	assert_int_equal(m.req.local_timeout, 20);
	assert_int_equal(m.req.transport, CM_TRANSPORT_RC);
	assert_int_equal(m.req.psn, 0x748c10);
	assert_int_equal(m.req.retry_count, 3);
	assert_int_equal(m.req.rnr_retry, 7);
	assert_int_equal(m.req.mtu, 5);
	assert_int_equal(m.req.max_cm_retries, 15);
	assert_int_equal(m.req.pkey, 0xffff);
	assert_int_equal(m.req.primary.flow_label, 0x5e701);
	assert_int_equal(m.req.primary.hop_limit, 64);
	assert_int_equal(m.req.primary.ack_timeout, 19);
	assert_memory_equal(m.req.primary.local_gid, g[0].src.b, CM_GID_LEN);
	assert_memory_equal(m.req.primary.remote_gid, g[0].dst.b, CM_GID_LEN);
	assert_int_equal(cm_ip_parse(m.data, &ip), 0);
	assert_true(ip.v4 && pkt_addr_eq(&ip.src, &g[0].src) && pkt_addr_eq(&ip.dst, &g[0].dst));
	assert_int_equal(ip.sport, 0xb3ee);
	assert_memory_equal(m.data + CM_IP_LEN, "vtest", 6);

	assert_int_equal(cm_parse(g[1].mad, CM_MAD_LEN, &m), CM_OK);
	assert_int_equal(m.attr, CM_REP);
	assert_int_equal(m.local_id, 0x836f7f2c);
	assert_int_equal(m.remote_id, 0xa7946d93);
	assert_int_equal(m.rep.qpn, 0x14);
	assert_int_equal(m.rep.psn, 0x53e79e);
	assert_int_equal(m.rep.ack_delay, 15);
	assert_int_equal(m.rep.rnr_retry, 7);
	assert_int_equal(m.rep.responder_resources, 16);
	assert_int_equal(m.rep.initiator_depth, 16);
	assert_int_equal(m.rep.ca_guid, 0x505400fffe770001ull);
}

static void golden_reject_and_sidr_say(void **state)
{
	struct golden_mad g[64];
	char text[1024];
	struct cm_msg m;

	assert_int_equal(golden_load(folder, "cm_reject.pcap", g, ARRAY_SIZE(g)), 2);
	assert_int_equal(cm_parse(g[1].mad, CM_MAD_LEN, &m), CM_OK);
	assert_int_equal(m.attr, CM_REJ);
	assert_int_equal(m.rej.reason, CM_REJ_INVALID_SERVICE_ID);
	assert_int_equal(m.rej.about, CM_ABOUT_REQ);
	cm_print(&m, text, sizeof(text));
	assert_non_null(strstr(text, "reason 8 (invalid service id)"));

	assert_int_equal(golden_load(folder, "cm_udaddy.pcap", g, ARRAY_SIZE(g)), 2);
	assert_int_equal(cm_parse(g[0].mad, CM_MAD_LEN, &m), CM_OK);
	assert_int_equal(m.attr, CM_SIDR_REQ);
	assert_int_equal(m.sidr_req.service_id, cm_service_id(CM_PS_UDP, 7174));
	cm_print(&m, text, sizeof(text));
	assert_non_null(strstr(text, "ip 10.77.0.2 46113 > 10.77.0.1 7174"));
	assert_int_equal(cm_parse(g[1].mad, CM_MAD_LEN, &m), CM_OK);
	assert_int_equal(m.attr, CM_SIDR_REP);
	assert_int_equal(m.sidr_rep.qpn, 0x18);
	assert_int_equal(m.sidr_rep.qkey, 0x01234567);
	assert_int_equal(m.sidr_rep.status, CM_SIDR_OK);
}

/*
 * Messages of each kind with random bits: the parsed message is built, and parsed again with the
 * same result.
 */
static void every_field_survives(void **state)
{
	struct rng r;

	rng_seed(&r, 1);
	for (int round = 0; round < 200; round++) {
		for (unsigned a = CM_REQ; a <= CM_APR; a++) {
			uint8_t mad[CM_MAD_LEN], once[CM_MAD_LEN], twice[CM_MAD_LEN];
			struct cm_msg m, n;

			for (size_t i = 0; i < sizeof(mad); i++)
				mad[i] = (uint8_t)rng_u64(&r);
			memcpy(mad, (uint8_t[]){1, 7, 2, 3}, 4);
			mad[16] = 0;
			mad[17] = (uint8_t)a;
			assert_int_equal(cm_parse(mad, CM_MAD_LEN, &m), CM_OK);
			cm_build(&m, once);
			assert_int_equal(cm_parse(once, CM_MAD_LEN, &n), CM_OK);
			assert_memory_equal(&m, &n, sizeof(m));
			cm_build(&n, twice);
			assert_memory_equal(once, twice, CM_MAD_LEN);
			/* No byte of the private data is lost. */
			assert_memory_equal(once + CM_MAD_LEN - cm_data_len(m.attr),
					    mad + CM_MAD_LEN - cm_data_len(m.attr),
					    cm_data_len(m.attr));
		}
	}
}

/*
 * ECE: the vendor id is in one piece in a REQ, in bytes 15, 19 and 23 of a REP, and in 6, 7 and 11
 * of a SIDR_REP.
 */
static void ece_words_are_where_the_kernel_has_them(void **state)
{
	struct cm_msg m = {.attr = CM_REQ, .attr_mod = 0xa1b2c3d4, .req.vendor_id = 0x123456};
	uint8_t mad[CM_MAD_LEN];

	cm_build(&m, mad);
	assert_memory_equal(mad + 20, "\xa1\xb2\xc3\xd4", 4);
	assert_memory_equal(mad + 24 + 4, "\0\x12\x34\x56", 4);
	m = (struct cm_msg){.attr = CM_REP, .rep.vendor_id = 0x123456};
	cm_build(&m, mad);
	assert_int_equal(mad[24 + 15], 0x12);
	assert_int_equal(mad[24 + 19], 0x34);
	assert_int_equal(mad[24 + 23], 0x56);
	m = (struct cm_msg){.attr = CM_SIDR_REP, .sidr_rep.vendor_id = 0x123456};
	cm_build(&m, mad);
	assert_memory_equal(mad + 24 + 6, "\x12\x34", 2);
	assert_int_equal(mad[24 + 11], 0x56);
}

static void what_is_no_message_is_refused(void **state)
{
	static const struct {
		uint8_t at, value;
		enum cm_error err;
	} bad[] = {
		{0, 2, CM_ERR_BASE},	  {1, 4, CM_ERR_CLASS}, {2, 1, CM_ERR_VERSION},
		{3, 0x83, CM_ERR_METHOD}, {17, 1, CM_ERR_ATTR}, {17, 0x0f, CM_ERR_ATTR},
		{17, 0x1b, CM_ERR_ATTR},  {16, 1, CM_ERR_ATTR},
	};
	struct cm_msg m = {.attr = CM_REQ}, out;
	uint8_t mad[CM_MAD_LEN];
	uint64_t service;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		cm_build(&m, mad);
		mad[bad[i].at] = bad[i].value;
		assert_int_equal(cm_parse(mad, CM_MAD_LEN, &out), bad[i].err);
		assert_false(cm_is_request(mad, &service));
		assert_non_null(cm_error_str(bad[i].err));
	}
	cm_build(&m, mad);
	assert_int_equal(cm_parse(mad, CM_MAD_LEN - 1, &out), CM_ERR_LENGTH);
	assert_int_equal(cm_parse(mad, 0, &out), CM_ERR_LENGTH);
	assert_null(cm_attr_str((enum cm_attr)0x0f));
	assert_int_equal(cm_data_len((enum cm_attr)0x1b), 0);
}

/* If the length of the additional information exceeds the field, it is cut to the field. */
static void information_lengths_are_cut(void **state)
{
	struct cm_msg m = {.attr = CM_REJ, .rej.ari_len = 127};
	uint8_t mad[CM_MAD_LEN];

	cm_build(&m, mad);
	assert_int_equal(cm_parse(mad, CM_MAD_LEN, &m), CM_OK);
	assert_int_equal(m.rej.ari_len, CM_ARI_LEN);
}

static void ip_header_versions_are_checked(void **state)
{
	struct cm_ip ip = {.v4 = false, .sport = 1234}, out;
	uint8_t data[CM_IP_LEN];

	assert_int_equal(pkt_addr_parse("fd77::1", &ip.src), 0);
	assert_int_equal(pkt_addr_parse("fd77::2", &ip.dst), 0);
	cm_ip_build(&ip, data);
	assert_int_equal(cm_ip_parse(data, &out), 0);
	assert_true(!out.v4 && out.sport == 1234 && pkt_addr_eq(&out.src, &ip.src) &&
		    pkt_addr_eq(&out.dst, &ip.dst));
	data[0] = 0x10;
	assert_int_not_equal(cm_ip_parse(data, &out), 0);
	data[0] = 0;
	data[1] = 0x50;
	assert_int_not_equal(cm_ip_parse(data, &out), 0);
	assert_false(cm_service_is_ip(0x0000000002060000ull));
	assert_true(cm_service_is_ip(cm_service_id(CM_PS_UDP, 1)));
}

/* Prints no more than fits in the buffer that it is given. */
static void printing_stays_in_its_buffer(void **state)
{
	struct cm_msg m = {.attr = CM_REQ, .local_id = 1, .req.service_id = 5, .data = "x"};
	char text[512], buf[64];
	int len = cm_print(&m, text, sizeof(text));

	assert_int_equal(len, strlen(text));
	for (size_t n = 0; n < sizeof(buf); n++) {
		memset(buf, '#', sizeof(buf));
		cm_print(&m, buf, n);
		assert_int_equal(buf[n], '#');
		if (n)
			assert_memory_equal(buf, text, n - 1);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_datagrams_survive),
		cmocka_unit_test(golden_req_and_rep_say),
		cmocka_unit_test(golden_reject_and_sidr_say),
		cmocka_unit_test(every_field_survives),
		cmocka_unit_test(ece_words_are_where_the_kernel_has_them),
		cmocka_unit_test(what_is_no_message_is_refused),
		cmocka_unit_test(information_lengths_are_cut),
		cmocka_unit_test(ip_header_versions_are_checked),
		cmocka_unit_test(printing_stays_in_its_buffer),
	};

	if (argc != 2)
		return 2;
	folder = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
