/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Captures that neither the Linux kernel nor Roost made (tests/foreign). Argument: the folder.
 *
 * Scapy made no_df.pcap: IPv4 with DF clear and identifications that count. Each packet parses, its
 * ICRC is right over the frame, and is also verified without the identification and DF.
 */
#include "../common/capture.h"
#include "packet/icrc.h"
#include "packet/ip.h"
#include "packet/oracle.h"

static const char *folder;

static void check(const struct pcap_record *rec)
{
	uint32_t icrc = icrc_load(rec->bth + rec->len - PKT_ICRC_LEN);
	const uint16_t guesses[] = {0, 0xffff, rec->ip_id, (uint16_t)(rec->ip_id ^ 0x8001)};
	uint8_t bad[PKT_MAX_LEN], ours[PCAP_MAX_RECORD];
	struct icrc_flow f;
	uint16_t id;

	assert_int_equal(rec->ip[6], 0);
	icrc_flow_init(&f, &rec->src, &rec->dst, rec->sport, rec->dport);
	assert_int_equal(icrc_compute_frame(rec->ip, rec->bth, rec->len), icrc);
	for (size_t i = 0; i < sizeof(guesses) / sizeof(guesses[0]); i++) {
		id = guesses[i];
		assert_int_equal(icrc_verify(&f, false, &id, rec->bth, rec->len), ICRC_RIGHT_NO_DF);
		assert_int_equal(id, rec->ip_id);
	}
	memcpy(bad, rec->bth, rec->len);
	bad[11] ^= 1;
	assert_int_equal(icrc_verify(&f, false, &id, bad, rec->len), ICRC_WRONG);
	/*
	 * A capture of the socket's data equals the frame, except for the UDP checksum.
	 */
	assert_int_equal(pcap_encode_frame(ours, sizeof(ours), &rec->src, &rec->dst, rec->sport,
					   rec->dport, rec->tos, rec->ip_id | IP_NO_DF, rec->bth,
					   rec->len),
			 PCAP_IP4_UDP_LEN + rec->len);
	assert_memory_equal(ours, rec->ip, PCAP_IP4_UDP_LEN - 2);
}

static void without_df(void **state)
{
	struct oracle *o = oracle_new(&oracle_defaults);
	struct pcap_reader reader;
	struct pcap_record rec;
	uint8_t *data = capture_load(folder, "no_df.pcap", &reader);
	unsigned n = 0;

	assert_non_null(o);
	for (; pcap_reader_next(&reader, &rec) == 1; n++) {
		struct pkt_view v;

		assert_int_equal(rec.kind, PCAP_ROCE);
		assert_int_equal(pkt_parse(rec.bth, rec.len, &v), PKT_OK);
		check(&rec);
		oracle_feed(o, n, rec.time_ns, &rec.src, &rec.dst, &v);
	}
	assert_int_equal(n, 12);
	assert_int_equal(oracle_totals(o)->violations, 0);
	assert_int_equal(oracle_totals(o)->cnps, 1);
	oracle_free(o);
	free(data);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_df),
	};

	if (argc != 2) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 2;
	}
	folder = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
