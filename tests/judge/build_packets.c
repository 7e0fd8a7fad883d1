/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets for outside judges: each op-code with several lengths, over IPv4 and IPv6, built and
 * given their ICRC as the engine does, into a pcap file as a port writes it (argument). On stdout a
 * line of JSON for each: what is in it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "packet/headers.h"
#include "packet/icrc.h"
#include "packet/pcap.h"

#define SEED 7

static struct rng rng;

static uint32_t r24(void)
{
	return (uint32_t)rng_u64(&rng) & 0xffffff;
}

/* Builds it at bth, prints its fields (the line is left open), returns BTH .. pad. */
static size_t build(uint8_t *bth, uint8_t opcode, unsigned n)
{
	unsigned flags = pkt_ops[opcode].flags, pad = (4 - n % 4) % 4, bits = rng_u64(&rng) & 0xc0;
	uint32_t qpn = r24(), psn = r24();
	bool ackreq = rng_u64(&rng) & 1;
	uint8_t *p = pkt_put_bth(bth, opcode, (uint8_t)(bits | pad << PKT_BTH_PAD_SHIFT), qpn,
				 ackreq, psn);

	/* A CNP has BECN set; other packets have the bits that the network would set. */
	bth[4] |= opcode == PKT_CNP ? PKT_BTH_BECN : 0;
	printf("{\"opcode\": %u, \"name\": \"%s\", \"se\": %u, \"m\": %u", opcode,
	       pkt_ops[opcode].name, bits >> 7, bits >> 6 & 1);
	printf(", \"padcnt\": %u, \"destqp\": %u, \"psn\": %u, \"a\": %d, \"payload\": %u", pad,
	       qpn, psn, ackreq, n);
	if (flags & PKT_DETH) {
		uint32_t qkey = (uint32_t)rng_u64(&rng), sqpn = r24();

		p = pkt_put_deth(p, qkey, sqpn);
		printf(", \"qkey\": %u, \"sqpn\": %u", qkey, sqpn);
	}
	if (flags & (PKT_RETH | PKT_ATOMIC_ETH)) {
		uint64_t va = rng_u64(&rng), swap = rng_u64(&rng), compare = rng_u64(&rng);
		uint32_t rkey = (uint32_t)rng_u64(&rng), len = (uint32_t)rng_u64(&rng) >> 1;

		printf(", \"va\": %" PRIu64 ", \"rkey\": %u", va, rkey);
		if (flags & PKT_RETH) {
			p = pkt_put_reth(p, va, rkey, len);
			printf(", \"dmalen\": %u", len);
		} else {
			p = pkt_put_atomic(p, va, rkey, swap, compare);
			printf(", \"swap\": %" PRIu64 ", \"compare\": %" PRIu64, swap, compare);
		}
	}
	if (flags & PKT_AETH) {
		static const uint8_t syndromes[] = {PKT_AETH_ACK, 0x20, 0x3f, 0x60,
						    0x61,	  0x62, 0x63};
		uint8_t syndrome = syndromes[rng_below(&rng, sizeof(syndromes))];
		uint32_t msn = r24();

		p = pkt_put_aeth(p, syndrome, msn);
		printf(", \"syndrome\": %u, \"msn\": %u", syndrome, msn);
	}
	if (flags & PKT_ATOMIC_ACK_ETH) {
		uint64_t original = rng_u64(&rng);

		p = pkt_put_be64(p, original);
		printf(", \"original\": %" PRIu64, original);
	}
	if (flags & PKT_IMM) {
		uint32_t imm = (uint32_t)rng_u64(&rng);

		p = pkt_put_imm(p, htobe32(imm));
		printf(", \"imm\": %u", imm);
	}
	if (flags & PKT_IETH) {
		uint32_t rkey = (uint32_t)rng_u64(&rng);

		p = pkt_put_ieth(p, rkey);
		printf(", \"inv_rkey\": %u", rkey);
	}
	if (flags & PKT_CNP_PAD) {
		memset(p, 0, 16);
		p += 16;
	}
	for (unsigned i = 0; i < n; i++)
		*p++ = (uint8_t)(0x80 + 7 * i); /* bytes that no dissector takes for a protocol */
	memset(p, 0, pad);
	return (size_t)(p + pad - bth);
}

static void emit(FILE *f, uint8_t opcode, unsigned n, const struct pkt_addr *src,
		 const struct pkt_addr *dst)
{
	uint8_t bth[PKT_MAX_LEN], record[PCAP_MAX_RECORD];
	uint16_t sport = (uint16_t)(0xc000 | rng_u64(&rng)), id = (uint16_t)rng_u64(&rng);
	uint8_t tos = (uint8_t)rng_u64(&rng);
	static uint64_t time_ns = 1700000000000000000;
	struct icrc_flow flow;
	uint32_t icrc;
	size_t len;

	icrc_flow_init(&flow, src, dst, sport, PKT_UDP_PORT);
	len = build(bth, opcode, n);
	icrc = icrc_compute(&flow, id, bth, len + PKT_ICRC_LEN);
	icrc_store(bth + len, icrc);
	len += PKT_ICRC_LEN;
	printf(", \"v4\": %s, \"id\": %u, \"tos\": %u, \"sport\": %u, \"udplen\": %zu, \"icrc\": %u}\n",
	       flow.v4 ? "true" : "false", id, tos, sport, len + 8, icrc);
	time_ns += 1001;
	len = pcap_encode_record(record, sizeof(record), time_ns, src, dst, sport, PKT_UDP_PORT,
				 tos, id, bth, len);
	if (!len || fwrite(record, 1, len, f) != len) {
		fprintf(stderr, "build_packets: can't write\n");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static const unsigned lengths[] = {0, 1, 2, 3, 4, 63, 256, 1024, 4093, 4096};
	struct pkt_addr src[2], dst[2];
	uint8_t header[PCAP_FILE_HDR_LEN];
	FILE *f;

	if (argc != 2 || !(f = fopen(argv[1], "wb"))) {
		fprintf(stderr, "usage: %s FILE\n", argv[0]);
		return 2;
	}
	rng_seed(&rng, SEED);
	pkt_addr_parse("10.77.0.1", &src[0]);
	pkt_addr_parse("192.168.255.254", &dst[0]);
	pkt_addr_parse("fd77::1", &src[1]);
	pkt_addr_parse("2001:db8:ffff::fffe", &dst[1]);
	pcap_encode_file_header(header, sizeof(header));
	fwrite(header, 1, sizeof(header), f);
	for (unsigned op = 0; op < 256; op++) {
		if (pkt_ops[op].kind == PKT_KIND_NONE)
			continue;
		for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			if (lengths[i] && !(pkt_ops[op].flags & PKT_PAYLOAD))
				continue;
			for (int family = 0; family < 2; family++)
				emit(f, (uint8_t)op, lengths[i], &src[family], &dst[family]);
		}
	}
	if (fclose(f) != 0) {
		fprintf(stderr, "build_packets: can't write\n");
		return 1;
	}
	return 0;
}
