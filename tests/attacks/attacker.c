/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attacks the two ends of connections from a third host on their network, with any source address.
 * test_network.py runs it in a network namespace of its own, and checks the output of the two ends.
 *
 *	attacker ATTACK SEED SECONDS OWN LEFT,LEFT.. RIGHT,RIGHT.. [FILE]
 *
 * FILE is a capture of earlier connections for `replay`, and a network namespace for attacks that
 * see the packets of this namespace. Prints "ready" at the start, and the number of frames at the
 * end.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../nic/make_packet.h"
#include "cm/mad.h"
#include "packet/ip.h"
#include "packet/pcap.h"
#include "wire.h"

#define RATE	    20000 /* frames a second, of attacks that are no flood */
#define REPLAYS	    20000
#define QUOTED	    520 /* bytes of a packet that an ICMP error quotes */
#define SERVICE	    4792
#define NOBODY_HOST 200

static struct wire wire;
static const char *file;

static uint64_t below(uint64_t n)
{
	return rng_below(&wire.rng, n);
}

static uint32_t any24(void)
{
	return (uint32_t)below(1 << 24);
}

static unsigned any_pair(void)
{
	return (unsigned)below(wire.pairs);
}

static enum side any_side(void)
{
	return below(2) ? RIGHT : LEFT;
}

/* Returns an address of the network that no host has. */
static struct pkt_addr nobody(void)
{
	struct pkt_addr a = wire.own;

	a.b[15] = (uint8_t)(NOBODY_HOST + below(50));
	return a;
}

static uint8_t *fill(uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)rng_u64(&wire.rng);
	return p;
}

/* ---- attacks without a view of the packets ---- */

static void send_mad(unsigned pair, enum side to, const struct pkt_addr *from,
		     const struct cm_msg *m)
{
	uint8_t mad[CM_MAD_LEN], bth[PKT_MAX_LEN];
	struct pkt_make make = {.opcode = PKT_UD | PKT_SEND_ONLY,
				.psn = any24(),
				.qkey = CM_QKEY,
				.sqpn = CM_QPN,
				.payload = mad,
				.len = sizeof(mad)};

	cm_build(m, mad);
	wire_packet(&wire, pair, to, from, bth, pkt_make_raw(bth, &make, CM_QPN), true);
}

/* Sends a message of any kind about a connection in the peer's name. Its ids are random or 0. */
static void cm(void)
{
	static const uint8_t attrs[] = {CM_MRA,	 CM_REJ,  CM_REJ,      CM_REP, CM_RTU,
					CM_DREQ, CM_DREP, CM_SIDR_REP, CM_LAP, CM_APR};
	struct cm_msg m = {.attr = attrs[below(sizeof(attrs))], .tid = rng_u64(&wire.rng)};

	m.local_id = below(3) ? (uint32_t)rng_u64(&wire.rng) : 0;
	m.remote_id = below(8) ? (uint32_t)rng_u64(&wire.rng) : 0;
	fill((uint8_t *)&m.lap, sizeof(m.lap));
	if (m.attr == CM_REJ) {
		m.rej.about = (uint8_t)below(3);
		m.rej.reason = (uint16_t)below(CM_REASONS);
		m.rej.ari_len = below(2) ? 8 : 0;
	} else if (m.attr == CM_DREQ || m.attr == CM_LAP) {
		m.dreq.qpn = any24();
	} else if (m.attr == CM_REP) {
		m.rep = (struct cm_rep){
			.qpn = any24(), .psn = any24(), .responder_resources = 1, .rnr_retry = 7};
	} else if (m.attr == CM_SIDR_REP) {
		m.sidr_rep.info_len = 0;
	} else if (m.attr == CM_APR) {
		m.apr.info_len = 0;
	}
	send_mad(any_pair(), any_side(), NULL, &m);
}

static struct cm_msg request(const struct pkt_addr *from, const struct pkt_addr *to)
{
	struct cm_msg m = {.attr = CM_REQ,
			   .tid = rng_u64(&wire.rng),
			   .local_id = (uint32_t)rng_u64(&wire.rng)};
	struct cm_ip ip = {
		.sport = (uint16_t)below(65536), .src = *from, .dst = *to, .v4 = wire.v4};

	m.req = (struct cm_req){.service_id = cm_service_id(CM_PS_TCP, SERVICE),
				.ca_guid = rng_u64(&wire.rng),
				.qpn = any24(),
				.psn = any24(),
				.pkey = 0xffff,
				.responder_resources = 1,
				.initiator_depth = 1,
				.remote_timeout = 20,
				.local_timeout = 20,
				.retry_count = 7,
				.rnr_retry = 7,
				.mtu = 3,
				.max_cm_retries = 15,
				.primary = {.local_lid = 0xffff,
					    .remote_lid = 0xffff,
					    .rate = 2,
					    .hop_limit = 64,
					    .ack_timeout = 18}};
	memcpy(m.req.primary.local_gid, from->b, CM_GID_LEN);
	memcpy(m.req.primary.remote_gid, to->b, CM_GID_LEN);
	cm_ip_build(&ip, m.data);
	return m;
}

/* Sends a REQ in the name of the peer, or from an address that no host has. */
static void requests(void)
{
	unsigned pair = any_pair();
	enum side to = any_side();
	struct pkt_addr from = below(4) ? nobody() : wire.addr[pair][!to];
	struct cm_msg m = request(&from, &wire.addr[pair][to]);

	send_mad(pair, to, &from, &m);
}

/* Sends a valid request or response of any service. QP number and PSN are random. */
static void data(void)
{
	static const uint8_t services[] = {PKT_RC, PKT_RC, PKT_RC, PKT_UC, PKT_UD};
	struct pkt_make m = {.psn = any24(),
			     .ackreq = below(2),
			     .va = rng_u64(&wire.rng),
			     .rkey = (uint32_t)rng_u64(&wire.rng),
			     .dmalen = (uint32_t)below(4096),
			     .swap_add = rng_u64(&wire.rng),
			     .syndrome = (uint8_t)rng_u64(&wire.rng),
			     .msn = any24()};
	uint8_t bth[PKT_MAX_LEN];

	do
		m.opcode = (uint8_t)(services[below(sizeof(services))] | below(0x1d));
	while (!pkt_ops[m.opcode].name);
	m.len = below(4) ? (uint32_t)below(64) : 1024;
	wire_packet(&wire, any_pair(), any_side(), NULL, bth, pkt_make_raw(bth, &m, any24()), true);
}

/* Sends random bytes of any length, mostly in the peer's name. */
static void garbage(void)
{
	struct pkt_addr from = nobody();
	uint8_t bth[1500];
	uint32_t len = below(2) ? (uint32_t)below(64) : (uint32_t)below(sizeof(bth) + 1);

	/*
	 * Only the first bytes are parsed before the ICRC is checked, so only these are random.
	 */
	fill(bth, len < 64 ? len : 64);
	if (len > 64)
		memset(bth + 64, 0x5a, len - 64);
	wire_packet(&wire, any_pair(), any_side(), below(4) ? NULL : &from, bth, len, false);
}

/* ---- attacks with a capture of earlier connections ---- */

static struct {
	struct pcap_record rec[REPLAYS];
	size_t count, next;
	uint8_t *image;
} old;

static void load(void)
{
	FILE *f = fopen(file, "rb");
	struct pcap_reader r;
	size_t n;

	old.image = malloc(64u << 20);
	n = f && old.image ? fread(old.image, 1, 64u << 20, f) : 0;
	if (!n || pcap_reader_init(&r, old.image, n)) {
		fprintf(stderr, "attacker: no capture: %s\n", file);
		exit(1);
	}
	fclose(f);
	while (old.count < REPLAYS && pcap_reader_next(&r, &old.rec[old.count]) == 1)
		old.count += old.rec[old.count].kind == PCAP_ROCE &&
			     old.rec[old.count].len <= PKT_MAX_LEN;
	if (!old.count) {
		fprintf(stderr, "attacker: no packets in %s\n", file);
		exit(1);
	}
}

/* Sends each packet unchanged, and then with up to 4 changed bytes and the right ICRC. */
static void replay(void)
{
	const struct pcap_record *r;
	uint8_t bth[PKT_MAX_LEN];
	bool changed = old.next & 1;

	r = &old.rec[old.next++ / 2 % old.count];
	memcpy(bth, r->bth, r->len);
	for (uint64_t n = changed ? 1 + below(4) : 0; n; n--)
		bth[below(2) ? below(r->len) : below(r->len < 32 ? r->len : 32)] =
			(uint8_t)rng_u64(&wire.rng);
	wire_packet_to(&wire, &r->src, &r->dst, bth, (uint32_t)r->len, true);
}

/* ---- ICMP errors ---- */

struct icmp {
	uint8_t type, code;
};

static const struct icmp errors4[] = {{3, 3}, {3, 3},  {3, 0},	{3, 1},	 {3, 2}, {3, 5},
				      {3, 6}, {3, 9},  {3, 10}, {3, 13}, {4, 0}, {5, 0},
				      {5, 1}, {11, 0}, {11, 1}, {12, 0}};
static const struct icmp errors6[] = {{1, 4}, {1, 4}, {1, 0}, {1, 1}, {1, 3}, {1, 5},
				      {3, 0}, {3, 1}, {4, 0}, {4, 1}, {4, 2}, {137, 0}};

/* Gets the addresses of the packet at `ip`. */
static void addresses(const uint8_t *ip, struct pkt_addr *src, struct pkt_addr *dst)
{
	memcpy(src->b, ip + 8, 16);
	memcpy(dst->b, ip + 24, 16);
	if (wire.v4) {
		memset(src->b, 0, 10);
		memset(src->b + 10, 0xff, 2);
		memcpy(dst->b, src->b, 12);
		memcpy(src->b + 12, ip + 12, 4);
		memcpy(dst->b + 12, ip + 16, 4);
	}
}

/* Sends an ICMP error about the packet at `ip` to the source of this packet. */
static void complain(const uint8_t *ip, size_t len, const struct icmp *e, uint32_t rest)
{
	struct pkt_addr src, dst, router = nobody();

	addresses(ip, &src, &dst);
	wire_icmp(&wire, below(2) ? &dst : &router, &src, e->type, e->code, rest, ip,
		  len < QUOTED ? len : QUOTED);
}

static const struct icmp *any_error(void)
{
	return wire.v4 ? &errors4[below(sizeof(errors4) / sizeof(*errors4))]
		       : &errors6[below(sizeof(errors6) / sizeof(*errors6))];
}

static struct icmp too_big(void)
{
	return wire.v4 ? (struct icmp){3, 4} : (struct icmp){2, 0};
}

/*
 * Makes a packet from one end to the other that is valid except for QP number, PSN and transaction
 * id, which are random.
 */
static size_t guess(uint8_t *ip, size_t cap)
{
	struct pkt_make m = {
		.opcode = below(2) ? PKT_WRITE_ONLY : PKT_ACK, .psn = any24(), .len = 64};
	enum side to = any_side();
	unsigned pair = any_pair();
	uint8_t bth[PKT_MAX_LEN], mad[CM_MAD_LEN];
	uint32_t len, dqpn = any24();
	struct cm_msg req;

	if (!below(4)) {
		req = request(&wire.addr[pair][to], &wire.addr[pair][!to]);
		cm_build(&req, mad);
		m = (struct pkt_make){.opcode = PKT_UD | PKT_SEND_ONLY,
				      .qkey = CM_QKEY,
				      .sqpn = CM_QPN,
				      .payload = mad,
				      .len = sizeof(mad)};
		dqpn = CM_QPN;
	}
	len = pkt_make_raw(bth, &m, dqpn);
	return pcap_encode_frame(ip, cap, &wire.addr[pair][to], &wire.addr[pair][!to], PKT_UDP_PORT,
				 PKT_UDP_PORT, 0, 0, bth, len);
}

/* Sends an ICMP error that quotes a packet that no end has sent, or too few bytes of it. */
static void icmp_guessed(void)
{
	uint8_t ip[WIRE_FRAME];
	size_t n = guess(ip, sizeof(ip));

	complain(ip, below(4) ? n : (wire.v4 ? IP4_HDR_LEN : IP6_HDR_LEN) + below(24), any_error(),
		 0);
}

/* Sends "packet too big". The attacker knows the addresses and ports that such an error quotes. */
static void icmp_mtu(void)
{
	static const uint16_t mtus[] = {0, 68, 552, 576, 1280, 1400};
	struct icmp e = too_big();
	uint8_t ip[WIRE_FRAME];

	complain(ip, guess(ip, sizeof(ip)), &e, mtus[below(6)]);
}

/* ---- attacks with a view of the packets ---- */

/* Sends an ICMP error of any kind that quotes the latest packet. */
static void icmp_seen(void)
{
	static uint8_t ip[QUOTED];
	static size_t n;
	struct icmp e = too_big();
	size_t more;

	while ((more = wire_see(&wire, ip, sizeof(ip), n ? 0 : 10)) > 0)
		n = more;
	if (n)
		complain(ip, n, below(8) ? any_error() : &e, wire.v4 || below(8) ? 0 : 1280);
}

/*
 * Finds the last message of a kind among the captured packets, and skips all others. Returns false
 * if there is none.
 */
static bool seen_message(enum cm_attr attr, uint8_t *message, size_t *len, struct cm_msg *m)
{
	size_t hdr = (wire.v4 ? IP4_HDR_LEN : IP6_HDR_LEN) + 8,
	       mad = hdr + sizeof(struct pkt_bth) + sizeof(struct pkt_deth), n;
	static uint8_t ip[WIRE_FRAME];
	bool found = false;
	struct cm_msg seen;

	while ((n = wire_see(&wire, ip, sizeof(ip), 0)) > 0) {
		if (n < mad + CM_MAD_LEN || ip[hdr] != (PKT_UD | PKT_SEND_ONLY) ||
		    cm_parse(ip + mad, CM_MAD_LEN, &seen) != CM_OK || seen.attr != attr)
			continue;
		memcpy(message, ip, n);
		*len = n;
		*m = seen;
		found = true;
	}
	return found;
}

/*
 * Sends "port unreachable" about a REQ that was seen, with its transaction id or another one.
 */
static void quote_request(bool right)
{
	static uint8_t ip[WIRE_FRAME];
	static unsigned turned;
	static size_t n;
	size_t tid = (wire.v4 ? IP4_HDR_LEN : IP6_HDR_LEN) + 8 + sizeof(struct pkt_bth) +
		     sizeof(struct pkt_deth) + 8,
	       len;
	struct icmp e = wire.v4 ? (struct icmp){3, 3} : (struct icmp){1, 4};
	struct cm_msg m;

	if (!n && seen_message(CM_REQ, ip, &len, &m))
		n = len;
	if (!n)
		return;
	if (!right) {
		/* Changes one byte: a random byte would sometimes be the right one. */
		ip[tid + turned % 8] ^= (uint8_t)(1 + below(255));
		turned++;
	}
	complain(ip, n, &e, 0);
}

static void request_misquoted(void)
{
	quote_request(false);
}

static void request_quoted(void)
{
	quote_request(true);
}

/*
 * Sends a REQ in the name of a client that has just connected, for the same queue pair, as if the
 * client had restarted.
 */
static void stale(void)
{
	static struct cm_msg m;
	static struct pkt_addr from, to;
	uint8_t ip[WIRE_FRAME];
	size_t len;

	if (seen_message(CM_REQ, ip, &len, &m)) {
		memcpy(from.b, m.req.primary.local_gid, 16);
		memcpy(to.b, m.req.primary.remote_gid, 16);
	}
	if (!m.attr)
		return;
	m.local_id = (uint32_t)rng_u64(&wire.rng);
	m.tid = rng_u64(&wire.rng);
	for (unsigned i = 0; i < wire.pairs; i++) {
		if (pkt_addr_eq(&wire.addr[i][LEFT], &to) || pkt_addr_eq(&wire.addr[i][RIGHT], &to))
			send_mad(i, (enum side)wire_side(&wire, &to), &from, &m);
	}
}

/*
 * Sends REJs about a connection that was seen to begin. They name the receiver's id, which the
 * attacker has read; the id of the sender is 0 or a wrong one.
 */
static void rej_seen(void)
{
	static struct cm_msg rtu;
	static struct pkt_addr from, to;
	uint8_t ip[WIRE_FRAME];
	struct cm_msg m, rej = {.attr = CM_REJ, .tid = rng_u64(&wire.rng)};
	size_t len;

	if (seen_message(CM_RTU, ip, &len, &m)) {
		rtu = m;
		addresses(ip, &from, &to);
	}
	if (!rtu.attr)
		return;
	rej.rej =
		(struct cm_rej){.about = (uint8_t)below(3), .reason = (uint16_t)below(CM_REASONS)};
	for (unsigned i = 0; i < wire.pairs; i++) {
		for (enum side s = LEFT; s <= RIGHT; s++) {
			const struct pkt_addr *at = &wire.addr[i][s];
			bool active = pkt_addr_eq(at, &from);

			if (!active && !pkt_addr_eq(at, &to))
				continue;
			rej.remote_id = active ? rtu.local_id : rtu.remote_id;
			rej.local_id = active ? rtu.remote_id : rtu.local_id;
			rej.local_id = below(2) ? 0 : rej.local_id ^ (1u << below(32));
			send_mad(i, s, active ? &to : &from, &rej);
		}
	}
}

static const struct attack {
	const char *name;
	void (*one)(void);
	bool sees, flood;
	unsigned rate; /* 0: RATE */
} attacks[] = {
	{"cm", cm, false, false, 0},
	{"requests", requests, false, false, 0},
	{"data", data, false, false, 0},
	{"garbage", garbage, false, true, 0},
	{"replay", replay, false, false, 0},
	{"icmp-guessed", icmp_guessed, false, false, 0},
	{"icmp-mtu", icmp_mtu, false, false, 0},
	{"icmp-flood", icmp_guessed, false, true, 0},
	{"icmp-seen", icmp_seen, true, false, 0},
	{"request-misquoted", request_misquoted, true, false, 200},
	{"request-quoted", request_quoted, true, false, 200},
	{"stale", stale, true, false, 1000},
	{"rej-seen", rej_seen, true, false, 1000},
};

static double clock_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void take_addresses(char *text, enum side s)
{
	unsigned n = 0;

	for (char *a = strtok(text, ","); a && n < WIRE_PAIRS; a = strtok(NULL, ","), n++) {
		if (pkt_addr_parse(a, &wire.addr[n][s])) {
			fprintf(stderr, "attacker: no address: %s\n", a);
			exit(2);
		}
	}
	wire.pairs = n;
}

static void run(const struct attack *a, double seconds)
{
	double start = clock_s(), now = start, rate = a->rate ? a->rate : RATE;
	uint64_t made = 0;

	while ((now = clock_s()) - start < seconds) {
		for (int i = 0; i < (a->sees ? 1 : WIRE_BATCH); i++, made++)
			a->one();
		wire_flush(&wire);
		if (!a->flood && (double)made / rate > now - start)
			usleep((useconds_t)(((double)made / rate - (now - start)) * 1e6));
	}
}

int main(int argc, char **argv)
{
	const struct attack *a = NULL;

	if (argc < 7) {
		fprintf(stderr,
			"usage: attacker ATTACK SEED SECONDS OWN LEFT,LEFT.. RIGHT,RIGHT.. [FILE]\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof(attacks) / sizeof(*attacks); i++) {
		if (strcmp(attacks[i].name, argv[1]) == 0)
			a = &attacks[i];
	}
	file = argv[7];
	if (!a || ((a->sees || a->one == replay) && !file) || pkt_addr_parse(argv[4], &wire.own)) {
		fprintf(stderr, "attacker: unknown attack %s, or an argument is missing\n",
			argv[1]);
		return 2;
	}
	rng_seed(&wire.rng, strtoull(argv[2], NULL, 0));
	wire.v4 = pkt_addr_is_v4(&wire.own);
	take_addresses(argv[5], LEFT);
	take_addresses(argv[6], RIGHT);
	if (a->one == replay)
		load();
	wire_open(&wire, a->sees ? file : NULL);
	puts("ready");
	fflush(stdout);
	run(a, atof(argv[3]));
	printf("%llu frames\n", (unsigned long long)wire.sent);
	return 0;
}
