/* SPDX-License-Identifier: BSD-2-Clause */
#include "golden.h"

#include <string.h>

#include "../common/capture.h"

const char *const golden_captures[] = {
	"cm_connect_disc.pcap", "cm_rdma_client.pcap", "cm_reject.pcap",      "cm_reject_ipv6.pcap",
	"cm_ucmatose.pcap",	"cm_udaddy.pcap",      "cm_udaddy_ipv6.pcap", "cmtime_8.pcap",
	"mtu1500_rping.pcap",	"mtu1500_vt_mtu.pcap", "rping_4k.pcap",	      "rping_ipv4.pcap",
	"rping_ipv6.pcap",	"rcopy.pcap",	       "retry_exceeded.pcap", "rstream.pcap",
	"send_rdmacm.pcap",	"vt_ops.pcap",	       "vt_ops_ipv6.pcap",    NULL};

size_t golden_load(const char *folder, const char *name, struct golden_mad *out, size_t max)
{
	struct pcap_record rec;
	struct pcap_reader r;
	struct pkt_view v;
	size_t n = 0;
	uint8_t *data = capture_load(folder, name, &r);

	while (capture_next(&r, &rec, &v)) {
		if (v.dqpn != CM_QPN)
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
