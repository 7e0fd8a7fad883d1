/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzzes the code of src/packet that reads bytes: the pcap reader, the parser, the printer, the
 * ICRC and the oracles; and the head of a datagram of several packets (src/port/udp_join.c). Input
 * that begins like a pcap file is a capture; other input is a packet, BTH .. ICRC, or such a
 * datagram.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "packet/headers.h"
#include "packet/icrc.h"
#include "packet/oracle.h"
#include "packet/pcap.h"
#include "port/udp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "fuzz_packet: %s\n", what);
		abort();
	}
}

/*
 * A packet that the parser accepts is within bounds, prints, and can be given an ICRC that verifies
 * without its identification.
 */
static bool try_packet(const uint8_t *bth, size_t len, struct pkt_view *v)
{
	static const struct pkt_addr a = {{[10] = 0xff, 0xff, 10, 0, 0, 1}},
				     b = {{[10] = 0xff, 0xff, 10, 0, 0, 2}};
	uint8_t copy[PKT_MAX_LEN];
	struct icrc_flow f;
	uint16_t id = 0;
	char text[64];
	int n;

	icrc_flow_init(&f, &a, &b, 49152, PKT_UDP_PORT);
	if (pkt_parse(bth, len, v) != PKT_OK) {
		icrc_verify(&f, false, &id, bth, len);
		return false;
	}
	must(len <= PKT_MAX_LEN, "longer than any packet");
	must(v->op->hdr_len + v->payload_len + v->pad + PKT_ICRC_LEN == len,
	     "lengths don't add up");
	must(v->payload == bth + v->op->hdr_len, "payload is elsewhere");
	must(v->psn <= PKT_PSN_MASK && v->dqpn <= PKT_QPN_MASK, "a number of more than 24 bits");
	n = pkt_print(v, text, sizeof(text));
	must(n > 0 && (size_t)n == strlen(text), "printed length");

	memcpy(copy, bth, len);
	icrc_store(copy + len - PKT_ICRC_LEN, icrc_compute(&f, (uint16_t)(v->psn + 1), copy, len));
	must(icrc_verify(&f, false, &id, copy, len) && id == (uint16_t)(v->psn + 1),
	     "its own ICRC is refused");
	return true;
}

/*
 * The number of records and the final result are the same if the file is read at once or in pieces,
 * which have another address each time.
 */
static void try_pieces(const uint8_t *data, size_t size)
{
	size_t step = 1 + size % 977, have = PCAP_FILE_HDR_LEN + size % 61, base = 0;
	unsigned whole = 0, pieces = 0;
	int end, rc;
	struct pcap_record rec;
	struct pcap_reader r;
	uint8_t *copy;

	pcap_reader_init(&r, data, size);
	while ((end = pcap_reader_next(&r, &rec)) == 1)
		whole++;
	have = have < size ? have : size;
	copy = malloc(have);
	must(copy, "no memory");
	memcpy(copy, data, have);
	pcap_reader_init(&r, copy, have);
	while ((rc = pcap_reader_next(&r, &rec)) == 1 ||
	       ((rc == 0 || rc == -ENODATA) && have < size)) {
		if (rc == 1) {
			pieces++;
			must(rec.kind != PCAP_ROCE ||
				     (rec.bth >= copy && rec.bth + rec.len <= copy + (have - base)),
			     "packet outside of the piece");
			continue;
		}
		base += r.off;
		have = size - have < step ? size : have + step;
		free(copy);
		copy = malloc(have - base);
		must(copy, "no memory");
		memcpy(copy, data + base, have - base);
		pcap_reader_more(&r, copy, have - base);
	}
	must(rc == end && pieces == whole, "read otherwise in pieces");
	free(copy);
}

static void try_capture(const uint8_t *data, size_t size)
{
	struct oracle *oracles[3] = {NULL};
	struct oracle_options oo = oracle_defaults;
	struct pcap_record rec;
	struct pcap_reader r;
	uint64_t index = 0;

	if (pcap_reader_init(&r, data, size) != 0)
		return;
	oo.max_streams = 4;
	oo.max_reads = 3;
	oo.max_findings = 5;
	oracles[0] = oracle_new(&oo);
	while (pcap_reader_next(&r, &rec) == 1) {
		struct pkt_view v;

		index++;
		if (rec.kind != PCAP_ROCE)
			continue;
		must(rec.bth >= data && rec.bth + rec.len <= data + size,
		     "packet outside of the file");
		if (rec.ip && rec.len >= 16)
			icrc_compute_frame(rec.ip, rec.bth, rec.len);
		if (!try_packet(rec.bth, rec.len, &v))
			continue;
		if (!oracles[1]) {
			oo.has_local = true;
			oo.local = rec.src;
			oracles[1] = oracle_new(&oo);
			oo.local = rec.dst;
			oo.disorder = true;
			oo.mtu = 1024;
			oracles[2] = oracle_new(&oo);
		}
		for (int i = 0; i < 3; i++) {
			must(oracles[i], "no memory");
			oracle_feed(oracles[i], index, rec.time_ns, &rec.src, &rec.dst, &v);
		}
	}
	for (int i = 0; i < 3; i++) {
		if (oracles[i])
			must(oracle_totals(oracles[i])->packets <= index,
			     "counted more than there was");
		oracle_free(oracles[i]);
	}
}

/* The packets that a head announces have the length of the datagram. */
static void try_datagram(const uint8_t *data, size_t size)
{
	const struct udp_join_head *h;
	uint32_t at = 0;
	uint8_t *copy;

	if (size > UDP_MAX_DATAGRAM)
		return;
	copy = malloc(size); /* aligned, as a port's buffers are, and with a guard behind it */
	must(copy || !size, "no memory");
	if (size)
		memcpy(copy, data, size);
	h = udp_join_open(copy, (uint32_t)size, &at);
	must(h || !at, "a head that is none");
	for (uint16_t i = 0; h && i < ntohs(h->count); i++) {
		must(h->len[i], "an empty packet");
		at += ntohs(h->len[i]);
	}
	must(!h || at == size, "lengths of packets don't add up");
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pcap_reader r;
	struct pkt_view v;

	if (pcap_reader_init(&r, data, size) == 0) {
		try_capture(data, size);
		if (size < 65536)
			try_pieces(data, size);
	} else {
		try_packet(data, size, &v);
	}
	try_datagram(data, size);
	return 0;
}
