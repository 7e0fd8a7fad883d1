/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measures the cost of the invariant CRC per packet: computation, and verification with the IP
 * identification known, guessed right, and unknown (solved for). The packets of a burst are
 * processed in order, as in the engine. Prints JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <isa-l/crc.h>

#include "packet/headers.h"
#include "packet/icrc.h"
#include "runs.h"

#define BURST  32
#define STRIDE 4352
#define RUNS   9

enum how { RAW, COMPUTE, KNOWN, PREDICTED, SOLVED };

static uint8_t mem[BURST * STRIDE];

static uint32_t one(enum how how, struct icrc_flow *f, uint8_t *p, size_t len, uint16_t id)
{
	uint16_t guess = how == SOLVED ? (uint16_t)~id : id;

	if (how == RAW)
		return crc32_gzip_refl(id, p, len - PKT_ICRC_LEN);
	if (how == COMPUTE)
		return icrc_compute(f, id, p, len);
	if (!icrc_verify(f, how == KNOWN, &guess, p, len) || guess != id) {
		fprintf(stderr, "bench_icrc: a right packet was refused\n");
		exit(1);
	}
	return guess;
}

/* Median over RUNS of the nanoseconds per packet. */
static double measure(enum how how, struct icrc_flow *f, size_t len)
{
	static uint32_t volatile sink __attribute__((unused));
	int rounds = (int)(20000000 / (BURST * (len + 100)));
	double t[RUNS];

	for (int r = 0; r < RUNS; r++) {
		double start = now_ns();

		for (int i = 0; i < rounds; i++) {
			uint32_t x = 0;

			for (int k = 0; k < BURST; k++)
				x ^= one(how, f, mem + k * STRIDE, len, (uint16_t)(k * 977));
			sink = x;
		}
		t[r] = (now_ns() - start) / (rounds * BURST);
	}
	return median(t, RUNS);
}

int main(void)
{
	static const struct {
		const char *name;
		size_t payload;
	} sizes[] = {{"ack", 0}, {"64", 64}, {"1024", 1024}, {"4096", 4096}};
	struct pkt_addr a, b;
	struct icrc_flow f;

	pkt_addr_parse("10.0.0.1", &a);
	pkt_addr_parse("10.0.0.2", &b);
	icrc_flow_init(&f, &a, &b, 0xc123, PKT_UDP_PORT);
	printf("{\"tool\": \"bench_icrc\", \"burst\": %d, \"ns_per_packet\": {", BURST);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
		size_t len = 0;

		for (int k = 0; k < BURST; k++) {
			uint8_t *bth = mem + k * STRIDE, *p;

			if (sizes[s].payload) {
				p = pkt_put_bth(bth, PKT_WRITE_ONLY, 0, 0x123456, true,
						(uint32_t)k);
				p = pkt_put_reth(p, 0x7f0000001000, 0xabcdef,
						 (uint32_t)sizes[s].payload);
				memset(p, k + 1, sizes[s].payload);
				p += sizes[s].payload;
			} else {
				p = pkt_put_bth(bth, PKT_ACK, 0, 0x123456, false, (uint32_t)k);
				p = pkt_put_aeth(p, PKT_AETH_ACK, (uint32_t)k);
			}
			len = (size_t)(p + PKT_ICRC_LEN - bth);
			icrc_store(p, icrc_compute(&f, (uint16_t)(k * 977), bth, len));
		}
		printf("%s\"%s\": {\"bare_crc\": %.1f, \"compute\": %.1f, \"verify_known_id\": %.1f, "
		       "\"verify_predicted_id\": %.1f, \"verify_solved_id\": %.1f}",
		       s ? ", " : "", sizes[s].name, measure(RAW, &f, len),
		       measure(COMPUTE, &f, len), measure(KNOWN, &f, len),
		       measure(PREDICTED, &f, len), measure(SOLVED, &f, len));
	}
	printf("}}\n");
	return 0;
}
