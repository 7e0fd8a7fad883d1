/* SPDX-License-Identifier: BSD-2-Clause */
#include "golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "packet/headers.h"
#include "packet/pcap.h"

const char *const golden_captures[] = {
	"cm_connect_disc.pcap", "cm_rdma_client.pcap", "cm_reject.pcap",      "cm_reject_ipv6.pcap",
	"cm_ucmatose.pcap",	"cm_udaddy.pcap",      "cm_udaddy_ipv6.pcap", "cmtime_8.pcap",
	"mtu1500_rping.pcap",	"mtu1500_vt_mtu.pcap", "rping_4k.pcap",	      "rping_ipv4.pcap",
	"rping_ipv6.pcap",	"rcopy.pcap",	       "retry_exceeded.pcap", "rstream.pcap",
	"send_rdmacm.pcap",	"vt_ops.pcap",	       "vt_ops_ipv6.pcap",    NULL};

static uint8_t *load(const char *folder, const char *name, size_t *size)
{
	char path[1024];
	uint8_t *data;
	FILE *f;
	long n;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "rb");
	if (!f)
		fail_msg("can't open %s", path);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	n = ftell(f);
	assert_true(n > 0);
	rewind(f);
	data = malloc((size_t)n);
	assert_non_null(data);
	assert_int_equal(fread(data, 1, (size_t)n, f), (size_t)n);
	fclose(f);
	*size = (size_t)n;
	return data;
}

size_t golden_load(const char *folder, const char *name, struct golden_mad *out, size_t max)
{
	struct pcap_record rec;
	struct pcap_reader r;
	size_t size, n = 0;
	uint8_t *data = load(folder, name, &size);

	assert_int_equal(pcap_reader_init(&r, data, size), 0);
	while (pcap_reader_next(&r, &rec) == 1) {
		struct pkt_view v;

		if (rec.kind != PCAP_ROCE || pkt_parse(rec.bth, rec.len, &v) != PKT_OK || v.dqpn != CM_QPN)
			continue;
		assert_int_equal(v.qkey, CM_QKEY);
		assert_int_equal(v.sqpn, CM_QPN);
		assert_int_equal(v.payload_len, CM_MAD_LEN);
		assert_true(n < max);
		out[n].src = rec.src;
		out[n].dst = rec.dst;
		out[n].time_ns = rec.time_ns;
		memcpy(out[n++].mad, v.payload, CM_MAD_LEN);
	}
	free(data);
	return n;
}
